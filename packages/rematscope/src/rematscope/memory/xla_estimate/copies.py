"""Predict which values XLA copies before it overwrites them: donated arguments, and values with other readers.

XLA's `CopyInsertion` runs before the operations are scheduled. It copies an overwritten value unless the data
dependences alone put every reader before the write. For example, it copies a donated weight if the backward pass
multiplies a cotangent by the weight, because the update of the weight does not depend on the result of this matmul. It
also copies the momentum of Lion, because two results are computed from it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from rematscope.ir.primitives import UPDATES
from rematscope.ir.program import Equation, Value
from rematscope.memory.xla_estimate.broadcasts import value_like
from rematscope.memory.xla_estimate.level import Level, is_alias


def overwritten_operands(equation: Equation) -> Sequence[Value]:
    """Return the operands that an equation overwrites: the target of a scatter, or the carries of a loop."""
    if equation.primitive in UPDATES:
        return equation.inputs[:1]
    return equation.initial if equation.primitive in ("scan", "while") else ()


def with_copies(level: Level) -> Level:
    """Return the level with copies of overwritten values that have other readers, inserted as early as possible."""
    made = {value: equation for equation in level.equations for value in equation.outputs}
    changed: dict[Equation, Equation] = {}
    copies: dict[Equation, list[Equation]] = {}
    for equation in level.equations:
        inputs = list(equation.inputs)
        for value in overwritten_operands(equation):
            if value in made and level.counts[level.original(value)] > 1:
                copy = value_like(value)
                copies.setdefault(made[value], []).append(
                    Equation("copy", (value,), (copy,), {}, equation.eqn, role=equation.role)
                )
                inputs[inputs.index(value)] = copy
                changed[equation] = equation.with_inputs(tuple(inputs))
    if not changed:
        return level
    equations: list[Equation] = []
    for equation in level.equations:
        equations += [changed.get(equation, equation), *copies.get(equation, [])]
    return level.with_equations(equations)


def copied_arguments(
    equations: Sequence[Equation],
    reads: Callable[[Equation], Iterable[Iterable[Value]]],
    aliased: Mapping[Value, Value],
    in_place: Collection[str],
) -> list[Value]:
    """Return the donated arguments that XLA copies.

    Args:
      reads: a function that returns, for each operand of an equation, the values that it reads from memory.
    """
    readers = dict.fromkeys(aliased.values(), 0)  # for each argument, a bit for each equation that reads it
    before: dict[Value, int] = {}  # for each value, the bits of the equations that ran before it is written
    behind: dict[Value, int] = {}  # for each value, the bits of the equations that ran before it was completed
    made_of: dict[Value, set[Value]] = {}  # the values in memory that an alias stands for
    bits = 0
    for equation in equations:
        found = {part for values in reads(equation) for v in values for part in made_of.get(v, [v])}
        if is_alias(equation):
            made_of[equation.outputs[0]] = found
            continue
        known = 0
        own = 0
        for value in found:
            known |= behind.get(value, 0)
            if value in readers:
                own |= 1 << bits
                readers[value] |= 1 << bits
                bits += 1
        writes_over = equation.primitive in in_place or equation.bodies
        before.update(dict.fromkeys(equation.outputs, known | own if writes_over else known))
        behind.update(dict.fromkeys(equation.outputs, known | own))
    return [
        argument
        for result, argument in aliased.items()
        if any(readers[argument] & ~before.get(v, readers[argument]) for v in made_of.get(result, [result]))
    ]
