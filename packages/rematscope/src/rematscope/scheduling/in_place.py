"""Sums with an array that is zero but for a part of it: only that part is added, where it is.

The derivative of a loop that reads a part of an array each turn adds an array of that size each turn: zeros with the
part's cotangent in them. XLA makes all of it, and goes through all of both. A loop that carries the sum writes the part
in place. And what is added to such a sum behind the loop is there at its start, where it was made before that: else
both would be there while the loop runs.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import primitives

from rematscope.ir.program import Equation, Literal, Value, reads

_ADDS = ("add", "add_any")


def added_in_place(
    equations: Sequence[Equation], outputs: Iterable[Value], maker: Callable[[Value], Equation | None]
) -> list[Equation]:
    """A backward program, or a loop's body in it, with such sums in place.

    Args:
      equations: of the program.
      outputs: what is needed of them.
      maker: what makes a value of the primal program.
    """
    times = _times(equations, outputs)
    updates = (e for e in equations if e.primitive == "dynamic_update_slice")
    parts = {e.outputs[0]: e for e in updates if _is_zero(e.inputs[0], maker)}
    found: list[Equation] = []
    replaced: set[Equation] = set()
    for equation in equations:
        terms = list(equation.inputs) if equation.primitive in _ADDS else []
        update = next((parts[v] for v in terms if v in parts and times[v] == 1), None)
        if update is None or equation.outputs[0].shape != update.outputs[0].shape:
            found.append(equation)
            continue
        terms.remove(update.outputs[0])
        if isinstance(terms[0], Literal) or times[terms[0]] > 1:
            found.append(equation)
            continue
        replaced.add(update)
        found += _added(equation, terms[0], update)
    return [e for e in found if e not in replaced]


def begun(
    equations: Sequence[Equation], outputs: Iterable[Value], maker: Callable[[Value], Equation | None]
) -> tuple[list[Equation], dict[Equation, Equation]]:
    """A backward program in which loops begin their sums with what was made before and is added to them behind.

    Args:
      equations, outputs, maker: as for `added_in_place`.

    Returns:
      The program, and which loop each was that begins otherwise.
    """
    times = _times(equations, outputs)
    place = {v: i for i, e in enumerate(equations) for v in e.outputs}
    found = list[Equation | None](equations)
    loop_at = {v: i for i, e in enumerate(equations) if e.primitive == "scan" for v in e.outputs[: e.carries]}
    was: dict[Equation, Equation] = {}
    for i, equation in enumerate(equations):
        if equation.primitive not in _ADDS:
            continue
        for total, other in (equation.inputs, equation.inputs[::-1]):
            at = loop_at.get(total)
            if at is None or times[total] > 1 or other not in place or place[other] >= at:
                continue
            loop = found[at]
            assert loop is not None, "only sums are left out"
            k = loop.outputs.index(total)
            alike = (other.shape, other.dtype) == (total.shape, total.dtype)
            if alike and _is_zero(loop.initial[k], maker) and _is_sum(loop, k):
                inputs, results = [*loop.inputs], [*loop.outputs]
                inputs[loop.first_carry + k], results[k] = other, equation.outputs[0]
                longer = dataclasses.replace(loop, inputs=tuple(inputs), outputs=tuple(results))
                was[longer] = was.pop(loop, loop)
                found[at], found[i] = longer, None
                loop_at[equation.outputs[0]] = place[equation.outputs[0]] = at
                break
    return [e for e in found if e is not None], was


def _is_sum(loop: Equation, k: int) -> bool:
    """Whether a loop does nothing with what it carries but add to it."""
    (body,) = loop.bodies
    value = body.inputs[k]
    while value is not body.outputs[k]:
        readers = [e for e in body.equations if value in e.inputs or any(value in reads(b) for b in e.bodies)]
        if (
            len(readers) == 2
            and readers[0].primitive == "dynamic_slice"
            and _is_written_back(readers[0], readers[1], body.equations)
        ):
            value = readers[1].outputs[0]
        elif len(readers) == 1 and readers[0].primitive in _ADDS and readers[0].inputs.count(value) == 1:
            value = readers[0].outputs[0]
        else:
            return False
        if value in body.outputs and value is not body.outputs[k]:
            return False
    return body.inputs[k] not in body.outputs and body.outputs.count(value) == 1


def _is_written_back(read: Equation, written: Equation, equations: Sequence[Equation]) -> bool:
    """Whether a part that is read is only added to, and written where it was."""
    by = [e for e in equations if read.outputs[0] in e.inputs]
    return (
        written.primitive == "dynamic_update_slice"
        and len(by) == 1
        and by[0].primitive in _ADDS
        and written.inputs[:2] == (read.inputs[0], by[0].outputs[0])
        and written.inputs[2:] == read.inputs[1:]
    )


def _times(equations: Sequence[Equation], outputs: Iterable[Value]) -> Counter[Value]:
    """How often each value is read."""
    times = Counter(v for e in equations for v in (*e.inputs, *(v for body in e.bodies for v in reads(body))))
    times.update(outputs)
    return times


def _is_zero(value: Value, maker: Callable[[Value], Equation | None]) -> bool:
    """Whether a value is zeros all over."""
    while not isinstance(value, Literal):
        made = maker(value)
        if made is None or made.primitive != "broadcast_in_dim":
            return False
        value = made.inputs[0]
    return not np.shape(value.value) and value.value == 0


def _added(equation: Equation, whole: Value, update: Equation) -> list[Equation]:
    """The operations that add a part to an array in place."""
    _, part, *start = update.inputs

    def add(whole: Any, part: Any, *start: Any) -> Any:
        there = primitives.dynamic_slice_p.bind(whole, *start, slice_sizes=part.shape)
        return primitives.dynamic_update_slice_p.bind(whole, primitives.add_p.bind(there, part), *start)

    jaxpr = jax.make_jaxpr(add)(*(jax.ShapeDtypeStruct(v.shape, v.dtype) for v in (whole, part, *start))).jaxpr
    values: dict[Any, Value] = dict(zip(jaxpr.invars, (whole, part, *start), strict=True))
    values[jaxpr.outvars[0]] = equation.outputs[0]
    made = []
    for eqn in jaxpr.eqns:
        for var in eqn.outvars:
            values.setdefault(var, Value(var.aval))
        eqn = eqn.replace(source_info=update.eqn.source_info)
        inputs, outputs = (tuple(values[var] for var in vars) for vars in (eqn.invars, eqn.outvars))
        made.append(Equation(eqn.primitive.name, inputs, outputs, dict(eqn.params), eqn, calls=update.calls))
    return made
