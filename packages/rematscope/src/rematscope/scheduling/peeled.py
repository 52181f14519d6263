"""A loop of a linearized function whose last iteration is unrolled behind the others.

The backward pass goes through the last iteration first, so what that iteration made is in memory in any case and need
not be recomputed. In a loop, where all iterations save the same values, it would be.

Each iteration has the same operations on the same operands as before, in the same order, and carries go from one to the
next as before. The loop of the other iterations reads its slices from the whole stacks, and writes what it stacks for
the backward pass's result into one array, for a part of a stack would be a copy: no number is computed otherwise.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import source_info_util

from rematscope.ir.program import Equation, Literal, Program, Value
from rematscope.scheduling.linearize import Linearized, own_values
from rematscope.scheduling.loop_pairs import array, backward_of, copied, operations, replaced

source_info_util.register_exclusion(__file__)


def can_be_peeled(linearized: Linearized, loop: Equation) -> bool:
    """Whether there is one backward loop, and each carry is a value of its own that an iteration computes."""
    backward = backward_of(linearized, loop)
    if backward is None or loop.length < 3:
        return False
    (body,) = loop.bodies
    carried = body.outputs[: loop.carries]
    made = own_values(body).difference(body.inputs)
    stacked = (v for each in (loop, backward) for v in each.bodies[0].outputs[each.carries :])
    return (
        len(set(carried)) == len(carried)
        and made.issuperset(carried)
        and not any(isinstance(v, Literal) for v in stacked)
    )


def peeled(linearized: Linearized, loop: Equation) -> Linearized:
    """A linearized function where the last iteration of a loop that `can_be_peeled` is behind the others."""
    backward = backward_of(linearized, loop)
    assert backward is not None, "it can be peeled"
    own = own_values(loop.bodies[0])
    names: dict[Value, Value] = {}  # a value of the loop's body → the same of the last iteration
    copies: dict[Equation, Equation] = {}
    forward, head = _forward(loop, names, copies)
    backwards, head_backward = _backward(loop, backward, dict(names), copies)
    loops = {key: value for key, value in linearized.loops.items() if key is not backward}
    return dataclasses.replace(
        linearized,
        primal=replaced(linearized.primal, loop, forward),
        backward=replaced(linearized.backward, backward, backwards),
        loops=loops | {head_backward: head},
        kept=linearized.kept.union(names[v] for v in linearized.kept & own),
        late=linearized.late.union(copies[e] for e in linearized.late if e in copies),
    )


def _forward(
    loop: Equation, names: dict[Value, Value], copies: dict[Equation, Equation]
) -> tuple[list[Equation], Equation]:
    """What takes the place of a primal loop, and of that the loop of all iterations but the last one."""
    (body,), carries = loop.bodies, loop.carries
    last = _last(loop)
    indices, index, equations, inside = _indexed(loop, last)
    between = [Value(v.aval, v.name) for v in body.inputs[:carries]]
    results = [Value(array(v, loop.length - 1, *v.shape)) for v in body.outputs[carries:]]
    around = dict.fromkeys((*loop.inputs[: loop.first_carry], *loop.stacked_inputs))
    head = dataclasses.replace(
        loop,
        inputs=(*around, *loop.initial, indices),
        outputs=(*between, *results),
        bodies=(Program((*body.inputs[:carries], index), [*inside, *body.equations], body.outputs),),
        length=loop.length - 1,
        first_carry=len(around),
    )
    names.update(zip(body.inputs, between, strict=False))
    names.update(zip(body.outputs[:carries], loop.outputs, strict=False))
    tail = _last_slices(loop, last, names)
    tail += copied(body, names, copies).equations
    for result, value, whole in zip(results, body.outputs[carries:], loop.outputs[carries:], strict=True):
        row = Value(array(value, 1, *value.shape))
        tail += operations(lambda x: lax.expand_dims(x, (0,)), [names.get(value, value)], row)
        pair = [row, result] if loop.reverse else [result, row]
        tail += operations(lambda a, b: lax.concatenate([a, b], 0), pair, whole)
    return [*equations, head, *tail], head


def _backward(
    loop: Equation, backward: Equation, names: dict[Value, Value], copies: dict[Equation, Equation]
) -> tuple[list[Equation], Equation]:
    """What takes the place of a backward loop, and of that the loop of all iterations but the last one."""
    (body,), carries = backward.bodies, backward.carries
    last, length = _last(loop), loop.length
    indices, index, equations, inside = _indexed(backward, last)
    names.update(zip(body.inputs, backward.initial, strict=False))
    tail = _last_slices(backward, last, names)
    tail += copied(body, names, copies).equations
    starts, parts, updates, results = [], [], [], []
    for value in body.outputs[carries:]:  # what was a stack is an array that is written row by row
        start, before, after = (Value(array(value, length, *value.shape)) for _ in range(3))

        def first(row: Any, start: Value = start) -> Any:
            padding = [(last, length - 1 - last, 0), *((0, 0, 0) for _ in start.shape[1:])]
            return lax.pad(lax.expand_dims(row, (0,)), jnp.zeros((), row.dtype), padding)

        tail += operations(first, [names.get(value, value)], start)
        updates += operations(
            lambda rows, row, i: lax.dynamic_update_index_in_dim(rows, row, i, 0), [before, value, index], after
        )
        starts.append(start)
        parts.append(before)
        results.append(after)
    around = dict.fromkeys((*backward.inputs[: backward.first_carry], *backward.stacked_inputs))
    head = dataclasses.replace(
        backward,
        inputs=(*around, *(names.get(v, v) for v in body.outputs[:carries]), *starts, indices),
        bodies=(
            Program(
                (*body.inputs[:carries], *parts, index),
                [*inside, *body.equations, *updates],
                (*body.outputs[:carries], *results),
            ),
        ),
        length=length - 1,
        first_carry=len(around),
        carries=carries + len(starts),
    )
    return [*tail, *equations, head], head


def _last(loop: Equation) -> int:
    """The index of a primal loop's last iteration."""
    return 0 if loop.reverse else loop.length - 1


def _indexed(loop: Equation, last: int) -> tuple[Value, Value, list[Equation], list[Equation]]:
    """Indices of all iterations but the last one, an iteration's index, and what makes the indices and the slices."""
    (body,) = loop.bodies
    first, count = 0 if last else 1, loop.length - 1
    indices = Value(jax.ShapeDtypeStruct((count,), jnp.uint32))
    index = Value(jax.ShapeDtypeStruct((), jnp.uint32))
    equations = operations(lambda: lax.iota(jnp.uint32, count) + jnp.uint32(first), [], indices)
    inside = list[Equation]()
    for stack, part in zip(loop.stacked_inputs, body.inputs[loop.carries :], strict=True):
        inside += operations(lambda x, i: lax.dynamic_index_in_dim(x, i, 0, keepdims=False), [stack, index], part)
    return indices, index, equations, inside


def _last_slices(loop: Equation, last: int, names: dict[Value, Value]) -> list[Equation]:
    """What takes the last iteration's slices from the stacks."""
    equations = list[Equation]()
    for stack, part in zip(loop.stacked_inputs, loop.bodies[0].inputs[loop.carries :], strict=True):
        names[part] = Value(part.aval, part.name)
        equations += operations(lambda x: lax.index_in_dim(x, last, 0, keepdims=False), [stack], names[part])
    return equations
