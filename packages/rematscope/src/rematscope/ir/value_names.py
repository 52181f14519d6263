"""Name the values of both programs: arguments keep their names, and all other values get letters."""

import dataclasses
import itertools
import keyword
import string
from collections.abc import Callable, Iterator

from rematscope.ir.placement import index_text, meshes_in
from rematscope.ir.program import CASTS, Equation, Program, Value


def name_values(
    function: str,
    forward: Program,
    backward: Program,
    cotangents: tuple[Value, ...],
    forward_value_of: dict[Value, Value],
) -> None:
    """Name every value, in the order in which it appears in the programs.

    A residual is one object, so it has the same name in both programs. A recomputed value gets the name of the forward
    value that it equals, with a prime if the backward program already uses this name. No value has the name of the
    function.
    """
    taken = {function, *(v.name for v in forward.inputs), *(axis for mesh in meshes_in(forward) for axis in mesh.shape)}
    for i, value in enumerate(cotangents):
        value.name = _take_primed("ct" if len(cotangents) == 1 else f"ct{i}", taken)
    indices = [letter for letter in string.ascii_lowercase[8:] if letter not in (*taken, "l")][:3]
    avoided = {*taken, *indices, "l"}  # a set: a large model has thousands of arguments, and a value for each letter
    letters = (name for name in _letter_names() if name not in avoided)
    _name_values(forward, lambda value: next(letters), indices, depth=0)
    for value in forward.constants | backward.constants:
        value.name = value.name or next(letters)

    used = {v.name for v in backward.inputs}

    def backward_name(value: Value) -> str:
        return _take_primed(forward_value_of[value].name, used) if value in forward_value_of else next(letters)

    _name_values(backward, backward_name, indices, depth=0)


def name_recomputed(backward: Program, forward_value_of: dict[Value, Value]) -> None:
    """Rename the recomputed values of a program with names: each gets the name of the value that it equals."""
    used = {v.name for v in backward.inputs}
    for equation in backward.equations:
        for value in equation.outputs:
            if value in forward_value_of and equation.primitive not in ("scan", "while"):
                value.name = _take_primed(forward_value_of[value].name, used)
        for body in equation.bodies:
            name_recomputed(dataclasses.replace(body, inputs=backward.inputs), forward_value_of)


def _take_primed(name: str, taken: set[str]) -> str:
    """Return `name` with as many primes as make it unique, and mark it as taken; `a′4` for four or more primes."""
    primed = itertools.chain((name + "′" * count for count in range(4)), (f"{name}′{i}" for i in itertools.count(4)))
    free = next(each for each in primed if each not in taken)
    taken.add(free)
    return free


def _letter_names() -> Iterator[str]:
    """Yield a … z, aa … zz, aaa …, without Python's keywords."""
    for size in itertools.count(1):
        for letters in itertools.product(string.ascii_lowercase, repeat=size):
            if not keyword.iskeyword(name := "".join(letters)):
                yield name


def _name_values(program: Program, fresh: Callable[[Value], str], indices: list[str], depth: int) -> None:
    for equation in program.equations:
        if equation.primitive in ("scan", "while"):
            _name_loop(equation, fresh, indices, depth)
        elif equation.primitive in CASTS:
            equation.outputs[0].name = equation.inputs[0].name
        else:
            if equation.primitive == "shard_map":
                _name_parts(equation, fresh)
            for body in equation.bodies:
                _name_values(body, fresh, indices, depth)
        for value in equation.outputs:
            value.name = value.name or fresh(value)


def _name_parts(equation: Equation, fresh: Callable[[Value], str]) -> None:
    """Name a device's shards by mesh axes, such as `w[d]` or `x[:, model]`; a replicated array keeps its name."""
    (body,) = equation.bodies
    for array, part, spec in zip(equation.inputs, body.inputs, equation.params["in_specs"], strict=True):
        array.name = array.name or fresh(array)  # a constant has none yet
        part.name = array.name + index_text(spec)


def _name_loop(equation: Equation, fresh: Callable[[Value], str], indices: list[str], depth: int) -> None:
    """Name a loop's values as in Python: carries are variables, and the loop's letter indexes slices and stacks."""
    equation.index = indices[depth % len(indices)]
    body = equation.bodies[-1]
    carries = equation.carries
    for i, carry in enumerate(equation.outputs[:carries]):
        carry.name = fresh(carry)
        for program in equation.bodies:
            program.inputs[i].name = carry.name
    for array, part in zip(equation.stacked_inputs, body.inputs[carries:], strict=True):
        part.name = f"{array.name}[{equation.index}]"
    for program in equation.bodies:
        _name_values(program, fresh, indices, depth + 1)
