"""Loop-invariant code motion, as XLA does it for a CPU (`WhileLoopInvariantCodeMotion`).

If no iteration of a loop changes the operands of an operation, the operation runs once, before the loop, and its result
stays in memory until the loop ends. An example is the gather of a whole weight in a loop over microbatches. An
operation does not move if its operands pass an optimization barrier together with a value that changes. So the gathers
that a checkpoint repeats stay in the loop. XLA moves operations that it can merge into their readers (reshapes, slices,
broadcasts, …) only together with a reader. The effect on a GPU and on a TPU is not known, so no moves are predicted
there.
"""

import dataclasses

from rematscope import jax_compat
from rematscope.ir.primitives import VIEWS
from rematscope.ir.program import BOOKKEEPING, Equation, Literal, Program, Value, values_of_program

_LOOPS = ("scan", "while")
_NOT_ALONE = BOOKKEEPING | VIEWS | frozenset("broadcast_in_dim iota rev slice transpose".split())


def with_moved(program: Program) -> Program:
    """Return the program after XLA's loop-invariant code motion."""
    equations: list[Equation] = []
    for equation in program.equations:
        if equation.primitive == "shard_map":
            equations.append(dataclasses.replace(equation, bodies=tuple(map(with_moved, equation.bodies))))
        else:
            moved, left = hoist_invariants(equation)
            equations += [*moved, left]
    return dataclasses.replace(program, equations=equations)


def hoist_invariants(loop: Equation) -> tuple[list[Equation], Equation]:
    """Return the operations that XLA moves out of a loop and its nested loops, and the loop without them.

    Args:
      loop: any equation. Operations are only moved out of a `scan` or a `while` with more than one iteration.
    """
    if loop.primitive not in _LOOPS or (loop.counted and loop.length <= 1):
        return [], loop
    *condition, body = loop.bodies
    body = with_moved(body)
    loop = dataclasses.replace(loop, bodies=(*condition, body))
    found = _Invariants(loop)
    moved = found.worth_moving()
    if not moved:
        return [], loop
    gone = {equation.outputs for equation in moved}
    bodies = (*condition, _without_equations(body, gone))
    read = set[Value]().union(*map(values_of_program, bodies))
    around = (*loop.inputs[: loop.first_carry], *(v for equation in moved for v in equation.outputs))
    kept = tuple(v for v in around if v in read)
    inputs = (*kept, *loop.inputs[loop.first_carry :])
    left = dataclasses.replace(loop, bodies=bodies, inputs=inputs, first_carry=len(kept))
    stands_for = found.stands_for
    return [dataclasses.replace(e, inputs=tuple(stands_for.get(v, v) for v in e.inputs)) for e in moved], left


def _without_equations(program: Program, gone: set[tuple[Value, ...]]) -> Program:
    equations: list[Equation] = []
    for equation in program.equations:
        if equation.primitive == "shard_map":
            bodies = tuple(_without_equations(body, gone) for body in equation.bodies)
            equations.append(dataclasses.replace(equation, bodies=bodies))
        elif equation.primitive == "optimization_barrier" or equation.outputs not in gone:
            equations.append(equation)
    return dataclasses.replace(program, equations=equations)


class _Invariants:
    """The operations of a loop's body, including its `shard_map`s, that compute the same values in every iteration.

    Attributes:
      equations: these operations, in order.
      stands_for: maps an unchanged carry to its initial value, and a device's shard to the whole array.
    """

    def __init__(self, loop: Equation):
        body = loop.bodies[-1]
        self.equations: list[Equation] = []
        self.stands_for: dict[Value, Value] = {}
        self._varying: set[Value] = set(body.inputs)
        for value, result, initial in zip(body.inputs, body.outputs[: loop.carries], loop.initial, strict=False):
            if result is value:
                self._varying.discard(value)
                self.stands_for[value] = initial
        self._on_host = False
        self._add_program(body)

    def worth_moving(self) -> list[Equation]:
        """Return the operations that XLA moves, without views and broadcasts that no other moved operation reads."""
        if self._on_host:
            return []  # XLA does not change a loop that offloads values
        needed: set[Value] = set()
        moved = []
        for equation in reversed(self.equations):
            if equation.primitive not in _NOT_ALONE or not needed.isdisjoint(equation.outputs):
                moved.append(equation)
                needed.update(equation.inputs)
        return moved[::-1]

    def _add_program(self, program: Program) -> None:
        for equation in program.equations:
            self._on_host |= any(value.memory == "host" for value in equation.outputs)
            varies = not self._varying.isdisjoint(equation.inputs)
            if equation.primitive == "optimization_barrier":
                if varies:
                    self._varying.update(equation.outputs)
            elif equation.primitive == "shard_map":
                self._add_shard_map(equation)
            elif varies or equation.bodies or jax_compat.effects_of(equation.eqn):
                self._varying.update(equation.outputs)
            else:
                self.equations.append(equation)

    def _add_shard_map(self, equation: Equation) -> None:
        (body,) = equation.bodies
        for array, part in zip(equation.inputs, body.inputs, strict=True):
            whole = isinstance(array, Literal) or array.placement.shape != part.placement.shape
            if whole or array in self._varying:
                self._varying.add(part)
            else:
                self.stands_for[part] = self.stands_for.get(array, array)
        self._add_program(body)
        self._varying.update(equation.outputs)
