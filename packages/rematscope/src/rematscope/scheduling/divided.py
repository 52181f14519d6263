"""Loops of a linearized function in segments: one carry is saved per segment, the other values are recomputed.

A primal loop of n iterations becomes a loop of n/k iterations around a loop of k, and so does its backward loop: its
outer iteration first repeats the inner primal loop, which stacks the values that the inner backward loop reads. A given
number of last iterations is in no segment: they are a loop of their own, which the backward pass runs first.

Each iteration has the same operations on the same operands as before, in the same order. So does each sum that the
backward loop carries, since the inner loops carry it on. Stacks are only sliced, reshaped and concatenated. (A
checkpoint around a nested loop is another program: JAX sums a weight's gradient within each segment first.)
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
from jax import lax

from rematscope.ir.inline import Inliner
from rematscope.ir.program import Equation, Program, Value, free_values, own_values
from rematscope.memory.xla_estimate.unrolled import copy_program
from rematscope.scheduling.linearize import Linearized, substitute_values

# The index of the loop in `loops_of`, the iterations per segment, and the number of last iterations in no segment.
Segments = tuple[int, int, int]


def loops_of(linearized: Linearized) -> list[Equation]:
    """Return the primal loops that a backward loop reverses, in the order of the program."""
    loops = set(linearized.loops.values())
    return [equation for equation in linearized.primal.equations if equation in loops]


def backward_of(linearized: Linearized, loop: Equation) -> Equation | None:
    """Return the backward loop that reverses a primal loop; None if there is not exactly one."""
    found = [backward for backward, primal in linearized.loops.items() if primal is loop]
    return found[0] if len(found) == 1 and found[0].reverse != loop.reverse else None


def array(value: Value, *shape: int) -> Any:
    """Return an array type of a value's dtype and a shape."""
    return jax.ShapeDtypeStruct(shape, value.dtype)


def stacked(value: Value, length: int) -> Any:
    """Return the stack of such values for a number of iterations."""
    return array(value, length, *value.shape)


def traced_operations(f: Callable[..., Any], operands: Sequence[Value], result: Value) -> list[Equation]:
    """Return the operations of a function of arrays; the last one computes the result."""
    jaxpr = jax.make_jaxpr(f)(*(jax.ShapeDtypeStruct(v.shape, v.dtype) for v in operands))
    *others, last = Inliner().program(jaxpr, operands).equations
    return [*others, dataclasses.replace(last, outputs=(result,))]


def in_words(linearized: Linearized, segments: Iterable[Segments]) -> str:
    """Return the code for such segments: checkpoints around nested loops."""
    loops, found = loops_of(linearized), []
    for place, iterations, last in segments:
        behind = f", except the last {last}" if last else ""
        found.append(f"a checkpoint around every {iterations} iterations of the loop at {loops[place].source}{behind}")
    return "; ".join(found)


def divided(linearized: Linearized, segments: Iterable[Segments]) -> Linearized:
    """Return a linearized function with some of its loops in segments.

    Raises:
      IndexError: if it has no such loops.
    """
    loops = loops_of(linearized)
    for place, iterations, last in segments:
        loop, backward = loops[place], backward_of(linearized, loops[place])
        if backward is None or not 0 < iterations <= loop.length - last or (loop.length - last) % iterations:
            raise IndexError(f"no loop {place} that can be in segments of {iterations} iterations before {last} others")
        if last:
            linearized, loop, backward = _without_last_iterations(linearized, loop, backward, last)
        linearized = _in_segments(linearized, loop, backward, iterations)
    return linearized


def _without_last_iterations(
    linearized: Linearized, loop: Equation, backward: Equation, last: int
) -> tuple[Linearized, Equation, Equation]:
    """Return a linearized function in which the last iterations are a loop of their own; and the two other loops."""
    (body,), (backward_body,) = loop.bodies, backward.bodies
    last_values: dict[Value, Value] = {}  # maps values of the loop's body to those of the last iterations
    tail_body, tail_backward_body = copy_program(body, last_values), copy_program(backward_body, dict(last_values))
    forward, head, tail = _split_loop(loop, last, tail_body, tail_first=False)
    backwards, head_backward, tail_backward = _split_loop(backward, last, tail_backward_body, tail_first=True)
    pairs = zip(body.equations, tail_body.equations, strict=True)
    late = {copy for equation, copy in pairs if equation in linearized.deferred}
    saved = linearized.saved.union(last_values[v] for v in linearized.saved & own_values(body))
    loops = {tail_backward: tail, head_backward: head}
    split = _replaced_loops(linearized, backward, forward, backwards, loops)
    return dataclasses.replace(split, saved=saved, deferred=linearized.deferred | late), head, head_backward


def _in_segments(linearized: Linearized, loop: Equation, backward: Equation, iterations: int) -> Linearized:
    (body,), (backward_body,) = loop.bodies, backward.bodies
    own = own_values(body)

    # The values of a primal iteration that the backward loop reads: its slices, or stacks that the inner loop makes.
    slices = {part: Value(stacked(part, iterations)) for part in body.inputs[loop.carries :]}
    read = {v: slices.get(v) or Value(stacked(v, iterations)) for v in free_values(backward_body) if v in own}
    parts = {v: Value(v.aval, v.name) for v in read}
    inner_backward = Program(
        backward_body.inputs,
        [substitute_values(e, parts) for e in backward_body.equations],
        tuple(parts.get(v, v) for v in backward_body.outputs),
    )
    stacks = {v: stack for v, stack in read.items() if v not in slices}
    own_slices = [Value(stacked(part, iterations)) for part in backward_body.inputs[backward.carries :]]
    also_read = [(read[v], parts[v]) for v in read]
    forward, outer = _nest_loop(loop, body, iterations, [*slices.values()], [], stacks)
    backwards, outer_backward = _nest_loop(backward, inner_backward, iterations, own_slices, also_read, {})
    linearized = _replaced_loops(linearized, backward, forward, backwards, {outer_backward: outer})
    return dataclasses.replace(linearized, saved=linearized.saved - own)


def _replaced_loops(
    linearized: Linearized,
    backward: Equation,
    forwards: Sequence[Equation],
    backwards: Sequence[Equation],
    loops: dict[Equation, Equation],
) -> Linearized:
    """Return a linearized function with other operations in the place of a backward loop and of its primal loop.

    Args:
      loops: maps the backward loops among these operations to the primal loops.
    """
    loops = {key: value for key, value in linearized.loops.items() if key is not backward} | loops
    instead = {linearized.loops[backward]: forwards, backward: backwards}
    primal, reverse = (
        dataclasses.replace(program, equations=[new for e in program.equations for new in instead.get(e, [e])])
        for program in (linearized.primal, linearized.backward)
    )
    return dataclasses.replace(linearized, primal=primal, backward=reverse, loops=loops)


def _nest_loop(
    loop: Equation,
    body: Program,
    iterations: int,
    slices: Sequence[Value],
    also_read: Sequence[tuple[Value, Value]],
    also_stacked: dict[Value, Value],
) -> tuple[list[Equation], Equation]:
    """Return the operations that replace a loop by a loop around a loop of so many iterations, and the outer loop.

    Args:
      slices: the slice of each stack that an iteration of the outer loop gets.
      also_read: further values of the outer iteration that the inner loop slices, and their slices in `body`.
      also_stacked: further values of `body` that the inner loop stacks, and their stacks.
    """
    carries, count = loop.carries, loop.length // iterations
    around = loop.inputs[: loop.first_carry]
    start, end = ([Value(v.aval, v.name) for v in body.inputs[:carries]] for _ in range(2))
    made = [Value(stacked(v, iterations)) for v in body.outputs[carries:]]
    inner = dataclasses.replace(
        loop,
        inputs=(*around, *start, *slices, *(stack for stack, _ in also_read)),
        outputs=(*end, *made, *also_stacked.values()),
        bodies=(
            Program(
                (*body.inputs, *(part for _, part in also_read)), body.equations, (*body.outputs, *also_stacked.keys())
            ),
        ),
        length=iterations,
    )
    before, folded = list[Equation](), list[Value]()
    for stack in loop.stacked_inputs:
        folded.append(Value(array(stack, count, iterations, *stack.shape[1:])))
        before += traced_operations(lambda x: lax.reshape(x, (count, iterations, *x.shape[1:])), [stack], folded[-1])
    results = [Value(array(v, count, iterations, *v.shape[1:])) for v in loop.outputs[carries:]]
    after = list[Equation]()
    for result, whole in zip(results, loop.outputs[carries:], strict=True):
        after += traced_operations(lambda x: lax.reshape(x, (count * iterations, *x.shape[2:])), [result], whole)
    outer = dataclasses.replace(
        loop,
        inputs=(*around, *loop.initial, *folded),
        outputs=(*loop.outputs[:carries], *results),
        bodies=(Program((*start, *slices), [inner], (*end, *made)),),
        length=count,
    )
    return [*before, outer, *after], outer


def _split_loop(
    loop: Equation, last: int, tail_body: Program, *, tail_first: bool
) -> tuple[list[Equation], Equation, Equation]:
    """Return the operations that replace a loop whose last iterations become a loop of their own.

    Args:
      last: the number of iterations of the second loop, in the order of the forward pass.
      tail_first: whether the loop is a backward loop, which begins with the last iterations.

    Returns:
      All operations, the loop of the other iterations, and the loop of the last ones.
    """
    carries, length = loop.carries, loop.length
    around = loop.inputs[: loop.first_carry]
    at_end = loop.reverse == tail_first  # whether the last iterations go through the ends of the stacks
    whole = (0, length - last, length) if at_end else (0, last, length)
    between = tuple(Value(v.aval, v.name) for v in loop.bodies[0].inputs[:carries])
    equations, after = list[Equation](), list[Equation]()
    of_head, of_tail = list[Value](), list[Value]()

    def halves(stack: Value) -> tuple[Value, Value]:
        """Return values for the slices of a stack: the first and the second part."""
        first, second = (Value(array(stack, b - a, *stack.shape[1:])) for a, b in itertools.pairwise(whole))
        of_head.append(first if at_end else second)
        of_tail.append(second if at_end else first)
        return first, second

    for stack in loop.stacked_inputs:
        for part, (start, stop) in zip(halves(stack), itertools.pairwise(whole), strict=True):
            cut = functools.partial(lax.slice_in_dim, start_index=start, limit_index=stop)
            equations += traced_operations(cut, [stack], part)
    read = len(of_head)
    for stack in loop.outputs[carries:]:
        after += traced_operations(lambda a, b: lax.concatenate([a, b], 0), [*halves(stack)], stack)
    first, second = (loop.initial, between), (between, loop.outputs[:carries])
    (head_start, head_end), (tail_start, tail_end) = (second, first) if tail_first else (first, second)
    head = dataclasses.replace(
        loop,
        inputs=(*around, *head_start, *of_head[:read]),
        outputs=(*head_end, *of_head[read:]),
        length=length - last,
    )
    tail = dataclasses.replace(
        loop,
        inputs=(*around, *tail_start, *of_tail[:read]),
        outputs=(*tail_end, *of_tail[read:]),
        bodies=(tail_body,),
        length=last,
    )
    order = [tail, head] if tail_first else [head, tail]
    return [*equations, *order, *after], head, tail
