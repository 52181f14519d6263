"""Which equations of a backward program are recomputed, which are late, and which are the backward pass proper.

Value numbering: two values with the same number are equal on every input. A number stands for a primitive, its
parameters and its operands' numbers, so the forward program's numbers tell whether a value of the backward program was
computed before. Names, barriers, moves to another memory and roundings to a value's own precision are transparent.

Inside a loop a number says "this value, as a function of the loop's index". An index is known by its loop's length and
by how many loops of that length are around it, so the bodies of two loops can be compared, and a slice of a stack is
what was stacked.
"""

from rematscope.ir.dependence import mark_dependence
from rematscope.ir.program import Program, Value
from rematscope.ir.value_numbering import Numbering

RECOMPUTED, LATE, BACKWARD = "R", "L", "B"


def assign_roles(forward: Program, backward: Program, cotangents: tuple[Value, ...]) -> dict[Value, Value]:
    """Sets the role of every equation of `backward`.

    * `R`, recomputed: does not depend on the incoming cotangents, and the forward pass computed the same value.
    * `L`, late: does not depend on the cotangents, but is computed here first.
    * `B`, backward: the rest.

    A loop has the role that its operations share; `B` if they differ.

    Returns:
      For each value of a recomputed equation, the value of the forward program that it equals.
    """
    marks = dict.fromkeys(cotangents, 1)
    mark_dependence(backward, marks)
    tainted = {value for value, mark in marks.items() if mark}

    numbering = Numbering(tainted)
    numbering.program(forward)
    computed = {numbering.number(v): v for v in forward.inputs}
    named: dict[int, list[Value]] = {}
    # What a branch computed was computed only if it was taken: it counts for the branches of the backward pass.
    in_branches: dict[int, Value] = {}
    for equation, in_branch in _everything(forward):
        known = in_branches if in_branch else computed
        for value in equation.outputs:
            if equation.primitive == "name":
                named.setdefault(numbering.number(value), []).append(value)
            else:
                known.setdefault(numbering.number(value), value)
    numbering.program(backward)

    forward_value_of: dict[Value, Value] = {}

    def assign(program: Program, in_branch: bool = False) -> None:
        for equation in program.equations:
            for body in equation.bodies:
                assign(body, in_branch or equation.primitive == "cond")
            numbers = [numbering.number(v) for v in equation.outputs]
            known = [computed.get(n) or (in_branches.get(n) if in_branch else None) for n in numbers]
            if equation.primitive == "name":
                # Equal values that are named apart are saved apart, and come again in the order in which they came.
                known = [_next(named[n]) if n in named else v for n, v in zip(numbers, known, strict=True)]
            if equation.bodies:
                inner = {e.role for body in equation.bodies for e in body.equations}
                equation.role = inner.pop() if len(inner) == 1 else BACKWARD
            elif equation.primitive == "optimization_barrier" or not tainted.isdisjoint(
                equation.outputs or equation.inputs  # a print has no output
            ):
                equation.role = BACKWARD
            elif equation.primitive == "device_put":
                equation.role = LATE  # fetching what the host kept computes nothing again
            else:
                equation.role = RECOMPUTED if known and all(known) else LATE
            pairs = zip(equation.outputs, known, strict=True)
            forward_value_of.update((value, before) for value, before in pairs if before is not None)

    assign(backward)
    return {value: before for value, before in forward_value_of.items() if value is not before}


def _next(values: list[Value]) -> Value:
    values.append(values.pop(0))
    return values[-1]


def _everything(program: Program, in_branch: bool = False):
    """Every equation, bodies included, and whether it stands in a branch."""
    for equation in program.equations:
        yield equation, in_branch
        for body in equation.bodies:
            yield from _everything(body, in_branch or equation.primitive == "cond")
