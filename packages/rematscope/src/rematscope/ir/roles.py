"""The role of each equation of a backward program: recomputed, deferred, or backward.

Value numbering says whether the forward program already computed a value of the backward program; see
`rematscope.ir.value_numbering`. Names, barriers, moves to another memory and roundings to a value's own precision are
transparent. Loop bodies are compared with each other, and a slice of a stack equals the value that was stacked.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rematscope.ir.dependence import mark_dependence
from rematscope.ir.inline import ForwardRule
from rematscope.ir.program import CASTS, Equation, Program, Value
from rematscope.ir.value_numbering import ValueNumbering

RECOMPUTED, DEFERRED, BACKWARD = "R", "D", "B"


class Equal(NamedTuple):
    """The equal values of both programs.

    Attributes:
      forward_value_of: maps the value of a recomputed equation to the forward value that it equals, the first if there
        are several.
      equal_values: maps such a first value to all forward values that equal it, in program order, if there are several.
      unproven_equalities: the number of loops, in either program, whose carries could not all be compared.
    """

    forward_value_of: dict[Value, Value]
    equal_values: dict[Value, list[Value]]
    unproven_equalities: int


def assign_roles(
    forward: Program,
    backward: Program,
    cotangents: tuple[Value, ...],
    rules: Mapping[Value, ForwardRule] | None = None,
) -> Equal:
    """Set the role of every equation of `backward`.

    * `R`, recomputed: does not depend on the incoming cotangents, and the forward pass computed the same value.
    * `D`, deferred: does not depend on the cotangents, and the forward pass did not compute the value, as far as is
      known: in a loop that could not be compared with the forward pass's loop, values that depend on its carries count
      as deferred.
    * `B`, backward: the rest.

    A loop has the role that its operations share; `B` if they differ.

    Returns:
      The equal values.
    """
    marks = dict.fromkeys(cotangents, 1)
    mark_dependence(backward, marks)
    on_cotangents = {value for value, mark in marks.items() if mark}

    numbering = ValueNumbering(on_cotangents, rules)
    numbering.program(forward)
    computed = {numbering.number(v): v for v in forward.inputs}
    named: dict[int, list[Value]] = {}
    alike: dict[Value, list[Value]] = {}
    # A value from a branch exists only if that branch was taken, so only branches of the backward pass may match it.
    in_branches: dict[int, Value] = {}
    for equation, in_branch in _walk_with_branches(forward):
        if equation.primitive in CASTS:
            continue  # their operands have the same numbers
        known = in_branches if in_branch else computed
        for value in equation.outputs:
            if equation.primitive == "name":
                named.setdefault(numbering.number(value), []).append(value)
            else:
                first = known.setdefault(numbering.number(value), value)
                alike.setdefault(first, []).append(value)
    numbering.program(backward)

    forward_value_of: dict[Value, Value] = {}

    def assign(program: Program, in_branch: bool = False) -> None:
        for equation in program.equations:
            for body in equation.bodies:
                assign(body, in_branch or equation.primitive == "cond")
            numbers = [numbering.number(v) for v in equation.outputs]
            before = [computed.get(n) or (in_branches.get(n) if in_branch else None) for n in numbers]
            if equation.primitive == "name":
                # Equal values with different names are saved separately, and recomputed in the forward pass's order.
                before = [_take_in_turn(named[n]) if n in named else v for n, v in zip(numbers, before, strict=True)]
            if equation.bodies:
                inner = {e.role for body in equation.bodies for e in body.equations}
                equation.role = inner.pop() if len(inner) == 1 else BACKWARD
            elif equation.primitive == "optimization_barrier" or not on_cotangents.isdisjoint(
                equation.outputs or equation.inputs  # a print has no output
            ):
                equation.role = BACKWARD
            elif equation.primitive == "device_put" or (
                numbering.unboxes(equation) and equation.inputs[0] in program.inputs
            ):
                equation.role = DEFERRED  # fetching an offloaded residual recomputes nothing
            else:
                # A kernel may return residuals only when it is recomputed: one known result is enough.
                equation.role = RECOMPUTED if any(before) else DEFERRED
            pairs = zip(equation.outputs, before, strict=True)
            forward_value_of.update((value, first) for value, first in pairs if first is not None)

    assign(backward)
    again = {value: first for value, first in forward_value_of.items() if value is not first}
    several = {first: values for first, values in alike.items() if len(values) > 1}
    return Equal(again, several, len(numbering.unproven_equalities))


def _take_in_turn(values: list[Value]) -> Value:
    values.append(values.pop(0))
    return values[-1]


def _walk_with_branches(program: Program, in_branch: bool = False) -> Iterator[tuple[Equation, bool]]:
    """Yield every equation, including those of bodies, and whether it is inside a branch."""
    for equation in program.equations:
        yield equation, in_branch
        for body in equation.bodies:
            yield from _walk_with_branches(body, in_branch or equation.primitive == "cond")
