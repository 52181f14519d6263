"""The trip count of a while loop that counts: an integer carry with a constant start, step and bound."""

import operator
from collections.abc import Callable, Sequence

import numpy as np

from rematscope.ir.program import Literal, Program, Value

_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "ne": operator.ne,
}
# For each comparison, the one with swapped operands.
SWAPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "ne": "ne"}


def count_iterations(comparison: str, start: int, bound: int, step: int) -> int | None:
    """Return how many times the body of `while start <comparison> bound: start += step` runs; None if it does not end.

    Args:
      comparison: `lt`, `le`, `gt`, `ge` or `ne`.
      start, bound, step: integers that do not overflow on the way.
    """
    holds = _COMPARISONS[comparison]
    if not holds(start, bound):
        return 0
    if step == 0:
        return None
    distance = bound - start
    if comparison == "ne":
        return distance // step if distance % step == 0 and distance // step > 0 else None
    if (step > 0) != (comparison in ("lt", "le")):
        return None  # the counter moves away from the bound
    count = -(-distance // step)
    return count + 1 if comparison in ("le", "ge") and distance % step == 0 else count


def trip_count(condition: Program, body: Program, initial: Sequence[Value]) -> int | None:
    """Return the trip count of a while loop; None if the program does not determine it.

    Args:
      condition, body: programs of the loop; the inputs of each are its carries.
    """
    test = next((e for e in condition.equations if e.outputs[:1] == condition.outputs), None)
    if test is None or test.primitive not in _COMPARISONS or any(v.shape for v in test.inputs):
        return None
    carries = list(condition.inputs)

    def constant(value: Value) -> int | None:
        """Return the value if it is an integer that no iteration changes; else None."""
        if value in carries:
            place = carries.index(value)
            if body.outputs[place] is not body.inputs[place]:
                return None
            value = initial[place]
        return _integer_of(value)

    first, second = test.inputs
    for comparison, counter, bound in ((test.primitive, first, second), (SWAPPED[test.primitive], second, first)):
        if counter in carries:
            place = carries.index(counter)
            start, end, step = _integer_of(initial[place]), constant(bound), _carry_step(body, place)
            if start is not None and end is not None and step is not None:
                return count_iterations(comparison, start, end, step)
    return None


def _carry_step(body: Program, place: int) -> int | None:
    """Return the constant that an iteration adds to a carry; None if there is none."""
    made = body.outputs[place]
    equation = next((e for e in body.equations if made in e.outputs), None)
    if equation is None or equation.primitive not in ("add", "sub"):
        return None
    first, second = equation.inputs
    if first is body.inputs[place] and (step := _integer_of(second)) is not None:
        return step if equation.primitive == "add" else -step
    if second is body.inputs[place] and equation.primitive == "add":
        return _integer_of(first)
    return None


def _integer_of(value: Value) -> int | None:
    if not isinstance(value, Literal) or value.shape or not np.issubdtype(value.dtype, np.integer):
        return None
    return int(value.value)
