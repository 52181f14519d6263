"""Names for the values of both programs: arguments keep theirs, everything else gets a letter."""

import itertools
import keyword
import string
from collections.abc import Iterator

from rematscope.program import Equation, Program, Value


def name_values(
    function: str, forward: Program, backward: Program, cotangents: tuple[Value, ...], twins: dict[Value, Value]
) -> None:
    """Names every value, in the order in which a reader meets it.

    A value that crosses is one object and so has one name in both programs. A recomputed value takes the name of the
    forward value that it equals; where that name is taken in the backward program, with a prime. No value is called
    like the function itself.
    """
    taken = {function, *(v.name for v in forward.inputs)}
    for i, value in enumerate(cotangents):
        value.name = _primed("ct" if len(cotangents) == 1 else f"ct{i}", taken)
    letters = (name for name in _letters() if name not in taken)
    _name(forward, lambda value: next(letters), depth=0)
    for value in forward.constants | backward.constants:
        value.name = value.name or next(letters)

    used = {v.name for v in backward.inputs}

    def backward_name(value: Value) -> str:
        return _primed(twins[value].name, used) if value in twins else next(letters)

    _name(backward, backward_name, depth=0)


def _primed(name: str, taken: set[str]) -> str:
    """Takes `name`, with as many primes as make it a new one."""
    while name in taken:
        name += "′"
    taken.add(name)
    return name


def _letters() -> Iterator[str]:
    """a … z, aa … zz, aaa …, without Python's keywords, the loop indices, and l, which looks like 1."""
    for size in itertools.count(1):
        for letters in itertools.product(string.ascii_lowercase, repeat=size):
            if (name := "".join(letters)) not in (*LOOP_INDICES, "l") and not keyword.iskeyword(name):
                yield name


LOOP_INDICES = ("i", "j", "k")


def _name(program: Program, fresh, depth: int) -> None:
    for equation in program.equations:
        if equation.primitive in ("scan", "while"):
            _name_loop(equation, fresh, depth)
        else:
            for body in equation.bodies:
                _name(body, fresh, depth)
        for value in equation.outputs:
            value.name = value.name or fresh(value)


def _name_loop(equation: Equation, fresh, depth: int) -> None:
    """A loop reads as Python: its carries are variables, its slices and stacks are indexed by the loop's letter."""
    body = equation.bodies[-1]
    carries = equation.carries
    for i, carry in enumerate(equation.outputs[:carries]):
        carry.name = fresh(carry)
        for program in equation.bodies:
            program.inputs[i].name = carry.name
    for array, part in zip(equation.stacked_inputs, body.inputs[carries:], strict=True):
        part.name = f"{array.name}[{LOOP_INDICES[depth % len(LOOP_INDICES)]}]"
    for program in equation.bodies:
        _name(program, fresh, depth + 1)
