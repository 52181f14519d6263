"""Propagate dependences through programs, including loops and branches."""

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

from rematscope.ir.program import Equation, Program, Value

Node = TypeVar("Node")


def reachable(starts: Iterable[Node], next_of: Callable[[Node], Iterable[Node]]) -> list[Node]:
    """Return the nodes of a graph that can be reached from `starts`, the nearest first, `starts` included."""
    found = dict.fromkeys(starts)
    pending = deque(found)
    while pending:
        new = [node for node in next_of(pending.popleft()) if node not in found]
        found.update(dict.fromkeys(new))
        pending += dict.fromkeys(new)
    return list(found)


def mark_dependence(program: Program, marks: dict[Value, int]) -> None:
    """Mark every value with the marks (a set of bits) of all values that it depends on; loops iterate to a fixpoint.

    A barrier returns its operands under their own names, so its result i depends on operand i only.
    """
    for equation in program.equations:
        if equation.primitive == "optimization_barrier":
            continue
        if not equation.bodies:
            outs = [union_of_marks(marks, equation.inputs)] * len(equation.outputs)
        elif equation.primitive == "cond":
            for body in equation.bodies:
                mark_dependence(body, marks)
            rows = zip(*(body.outputs for body in equation.bodies), strict=True)
            outs = [union_of_marks(marks, [equation.inputs[0], *row]) for row in rows]
        else:
            outs = _mark_loop(equation, marks)
        marks.update(zip(equation.outputs, outs, strict=True))


def _mark_loop(equation: Equation, marks: dict[Value, int]) -> list[int]:
    *condition, body = equation.bodies
    carries = equation.carries
    marks.update(
        (part, marks.get(array, 0)) for array, part in zip(equation.stacked_inputs, body.inputs[carries:], strict=True)
    )
    carried = [marks.get(v, 0) for v in equation.initial]
    while True:
        for program in equation.bodies:
            marks.update(zip(program.inputs[:carries], carried, strict=True))
            mark_dependence(program, marks)
        # The trip count of a while_loop affects all its results.
        stop = union_of_marks(marks, [program.outputs[0] for program in condition])
        grown = [mark | stop | marks.get(v, 0) for mark, v in zip(carried, body.outputs[:carries], strict=True)]
        if grown == carried:
            return carried + [marks.get(v, 0) for v in body.outputs[carries:]]
        carried = grown


def union_of_marks(marks: dict[Value, int], values: Iterable[Value]) -> int:
    """Return all marks of some values."""
    found = 0
    for value in values:
        found |= marks.get(value, 0)
    return found
