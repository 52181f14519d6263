"""Compute the gradients of a training step in microbatches: run these parts of the step's program in loops.

The step is traced for one microbatch, so its program reads no other microbatch. The program is divided at the
gradients. The operations up to a gradient run in a loop, once per microbatch. The rest, such as the optimizer, runs
once. See `rematscope.reporting.gradient_loops`.

The gradient of a mean over k microbatches is the sum of the gradients of 1/k times each microbatch's loss. So the
cotangents of a microbatch are divided by k, or by the next power of two, which is exact. Each example's cotangents then
have the size that they have for the whole batch. Otherwise, they would overflow sooner in float16.
"""

import contextlib
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding

from rematscope import jax_compat
from rematscope.errors import PlanError
from rematscope.jax_compat.vjp_hook import outside_traces, record_gradients, transform_losses
from rematscope.reporting.arrays import as_type, device_blocks, in_part, stacked, unstacked
from rematscope.reporting.batch_axis import OPENED, NotPaired, batch_axis, commutes, makes_batch, same_equation
from rematscope.reporting.flat_program import (
    FlatProgram,
    Operation,
    Variable,
    evaluate,
    flat_program,
    value_of,
    variables_of,
)
from rematscope.reporting.gradient_loops import (
    Divided,
    Loop,
    divided,
    gradient_marks,
    in_passes,
    mark_of,
    operations_before,
    outside_passes,
    per_example,
    without_scale,
)
from rematscope.reporting.parts import needs_number, run_equation_part
from rematscope.tracing.checkpoints import traced

# Each part of the batch uses its part of the random numbers of the whole batch.

_POSITIONS = False  # outside of scans, the proof covers only positions that read rows of the part: see `gathers`
_DRAWS = frozenset("random_bits random_split rng_bit_generator rng_uniform threefry2x32 random_gamma".split())


def paired_draws(whole: FlatProgram, part: FlatProgram, count: int, function: str) -> dict[Operation, Operation]:
    """Return the operations before the gradients of a step that need the number of their part of the batch.

    Args:
      whole, part: the step for the whole batch and for one of `count` parts, with marks at its gradient.
      count: the number of parts.
      function: the name of the step.

    Returns:
      A dictionary that maps each such operation for a part to the same operation for the whole batch.

    Raises:
      PlanError: if an operation draws random numbers, and it is not known which of them belong to a part.
    """
    one, other = map(_before_last_pass, (whole, part))
    return _operations_with_number(one, other, count, function)


def _before_last_pass(program: FlatProgram) -> list[Operation]:
    """Return the operations outside of the passes of gradients, up to the passes of the last gradient."""
    marks = [mark_of(op) for op in program.operations]
    last = max((i for i, mark in enumerate(marks) if mark is not None and mark.what == "differentiated"), default=0)
    outside = set(outside_passes(program))
    return [op for op in program.operations[:last] if op in outside]


def _operations_with_number(
    whole: Sequence[Operation], part: Sequence[Operation], count: int, function: str
) -> dict[Operation, Operation]:
    random = [op for op in (*whole, *part) if _drawing_primitives(op.eqn)]
    is_paired = [op.name for op in whole] == [op.name for op in part]
    if is_paired and all(
        _draws_for_parts(op.eqn, smaller.eqn, count) for op, smaller in zip(whole, part, strict=True) if op in random
    ):
        pairs = zip(part, whole, strict=True)
        return {smaller: op for smaller, op in pairs if needs_number(op.eqn, smaller.eqn, count, _POSITIONS)}
    if not random:
        return {}
    drawn = ", ".join(sorted({name for op in random for name in _drawing_primitives(op.eqn)}))
    raise PlanError(
        f"{function} draws random numbers ({drawn}) for its loss, and it is not known which of them belong to a "
        "microbatch. Split the key in the step, one part per microbatch, and use jax.lax.scan."
    )


def _draws_for_parts(whole: Any, part: Any, count: int, may_make: bool = True) -> bool:
    """Return whether each part can use its own part of the random numbers that an equation draws.

    This also holds if all parts use the same random numbers.
    """
    if whole.primitive.name in _DRAWS:
        return (may_make and makes_batch(whole, part, count)) or commutes(whole, part, count)
    may_make = may_make and jax_compat.primitive_name(whole) in OPENED | jax_compat.JITS
    bodies = zip(jax_compat.bodies(whole), jax_compat.bodies(part), strict=True)
    pairs = [(jax_compat.body_of(a)[0].eqns, jax_compat.body_of(b)[0].eqns) for a, b in bodies]
    return all(
        len(a) == len(b) and all(_draws_for_parts(one, other, count, may_make) for one, other in zip(a, b, strict=True))
        for a, b in pairs
    )


def _drawing_primitives(eqn: Any) -> set[str]:
    """Return the names of the primitives in an operation that draw random numbers."""
    return {each.primitive.name for each in (eqn, *jax_compat.equations_in(eqn))} & _DRAWS


def _loss_of_part(
    loss: Callable[..., Any], whole: Any, which: Any, count: int, function: str, blocks: int
) -> Callable[..., Any]:
    """Return the loss for part number `which` of the batch; `whole` is its jaxpr for the whole batch."""

    def changed(*args: Any, **kwargs: Any) -> Any:
        once, leaves = traced(loss, args, kwargs)
        program, part = flat_program(whole), flat_program(once.jaxpr)
        numbered = _operations_with_number(program.operations, part.operations, count, function)
        if not numbered:
            return once(*args, **kwargs)
        env = {**part.constants, **dict(zip(part.inputs, leaves, strict=True))}
        _evaluate_part(part.operations, numbered, env, which, count, blocks)
        return once.returning([value_of(v, env) for v in part.outputs])

    return functools.wraps(loss, updated=())(changed)


def _evaluate_part(
    operations: Sequence[Operation],
    numbered: Mapping[Operation, Operation],
    env: dict[Variable, Any],
    which: Any,
    count: int,
    blocks: int,
) -> None:
    """Run operations for part number `which` of the batch; `numbered` are the operations that need this number."""
    for op in operations:
        given = [value_of(v, env) for v in op.invars]
        if op in numbered:
            results = run_equation_part(numbered[op].eqn, op.eqn, given, which, count, _POSITIONS, blocks)
        else:
            results = jax_compat.run(op.eqn, given)
        env.update(zip(op.outvars, results, strict=True))


def in_microbatches(
    flat: Callable[..., Any],
    leaves: Sequence[Any],
    axes: Sequence[int | None],
    count: int,
    function: str,
    shardings: Sequence[NamedSharding | None],
) -> list[Any]:
    """Run a step with its gradients computed in microbatches, and return the leaves of its outputs.

    Gradients are added up and other floating-point values that depend on the batch, such as the loss, are averaged over
    the microbatches. Arrays with one entry per example are concatenated, but gradients per example are added up.

    Args:
      flat: the step as a function of flat arrays.
      leaves: its arguments.
      axes: the batch axis of each leaf; None for a leaf without a batch axis.
      count: the number of microbatches.
      function: the name of the step.
      shardings: the sharding of each leaf across devices, as far as it is known.

    Raises:
      PlanError: if the step cannot be divided; see `divided`.
    """
    whole, program, draws = _divided_in_parts(flat, leaves, axes, count, function)
    of_whole, outputs = in_whole(whole, program, function)
    numbered_leaves = [jnp.zeros((), jnp.int32), *leaves]
    inputs, constants, larger = program.program.inputs, program.program.constants, whole.program.constants
    inside = {**constants, **dict(zip(inputs, numbered_leaves, strict=True))}
    outside = {**dict(zip(constants, larger.values(), strict=True)), **dict(zip(inputs, numbered_leaves, strict=True))}
    for op in program.once:
        _evaluate_twice(op, of_whole.get(op), inside, outside)
    blocks = device_blocks(leaves, axes)
    parts = {
        v: stacked(leaf, axis, count, sharding, blocks)
        for v, leaf, axis, sharding in zip(inputs[1:], leaves, axes, shardings, strict=True)
        if axis is not None
    }
    pairs = list(zip(whole.crossing, program.crossing, strict=True))
    for loop in program.loops:
        evaluate([of_whole[op] for op in loop.same[1]], outside)
        own = [(u, v) for u, v in pairs if v in loop.crossing and v not in loop.same[0]]
        stack_axes = {v: stack_axis(u, v, loop, count, function) for u, v in own}
        _run_loop(loop, inputs[0], stack_axes, inside, outside, parts, draws, count, blocks)
        outside |= {v: as_type(outside[v], u.aval) for u, v in own}
        evaluate([of_whole[op] for op in loop.after], outside)
        known = [*loop.crossing, *(v for op in loop.after for v in op.outvars)]
        inside |= {v: outside[v] for v in known}
        divided_values = [v for v in known if v in program.axes]
        parts |= {v: stacked(outside[v], program.axes[v], count, blocks=blocks) for v in divided_values}
    return [value_of(v, outside) for v in outputs]


def _evaluate_twice(op: Operation, whole: Operation | None, inside: dict[Any, Any], outside: dict[Any, Any]) -> None:
    """Run an operation for a part of the batch and, if it differs, for the whole batch.

    Args:
      op: the operation for a part.
      whole: the operation for the whole batch; None if only the loops read its results.
      inside, outside: the values that the loops and the other operations read, to which the results are added.
    """
    evaluate([op], inside)
    if whole is None:
        return
    is_same = same_equation(op.eqn, whole.eqn) and all(inside[v] is outside[v] for v in variables_of(op.invars))
    if is_same:
        outside |= {v: inside[v] for v in op.outvars}
    else:
        evaluate([whole], outside)


def _run_loop(
    loop: Loop,
    number: Variable,
    stack_axes: Mapping[Variable, int | None],
    given: Mapping[Any, Any],
    outside: dict[Any, Any],
    parts: Mapping[Any, Any],
    draws: Mapping[Operation, Operation],
    count: int,
    blocks: int,
) -> None:
    """Run a loop over the parts of the batch, and add its results to `outside`.

    Args:
      loop: the loop.
      number: the variable of the number of the part.
      stack_axes: what `stack_axis` returns for each of its crossing variables that depends on the batch.
      given: the values of the variables before the loop.
      outside: the values of the variables for the whole batch.
      parts: the stacks of the parts of the divided variables.
      draws: what `paired_draws` returns.
      count: the number of parts.
      blocks: what `device_blocks` returns.
    """
    read = {v for op in loop.each for v in variables_of(op.invars)}
    summed = [v for v, axis in stack_axes.items() if axis is None]
    listed = [(v, axis) for v, axis in stack_axes.items() if axis is not None]
    read_parts = {v: stack for v, stack in parts.items() if v in read}
    sums_of_parts = {v for v in summed if v in loop.totals or v in loop.gradients}

    def turn(sums: list[Any], numbered: tuple[Any, list[Any]]) -> tuple[list[Any], list[Any]]:
        which, slices = numbered
        typed = {v: as_type(part, v.aval) for v, part in zip(read_parts, slices, strict=True)}
        inside = {**given, number: which, **typed}
        _evaluate_part(loop.each, draws, inside, which, count, blocks)
        # A mean is divided before it is added up: the sum of the parts may overflow although their mean does not.
        own = [inside[v].astype(total.dtype) for total, v in zip(sums, summed, strict=True)]
        added = [
            total + (part if v in sums_of_parts else part / count)
            for total, part, v in zip(sums, own, summed, strict=True)
        ]
        return added, [inside[v] for v, _ in listed]

    def start(v: Variable) -> Any:
        is_float = jnp.issubdtype(v.aval.dtype, jnp.inexact)
        dtype = jnp.promote_types(v.aval.dtype, jnp.float32) if is_float else v.aval.dtype
        return as_type(jnp.zeros(v.aval.shape, dtype), v.aval)

    sums, stacks = lax.scan(
        turn, [start(v) for v in summed], (jnp.arange(count, dtype=jnp.int32), list(read_parts.values()))
    )
    ratio = cotangent_divisor(count) / count
    for v, total in zip(summed, sums, strict=True):
        if v in loop.gradients and v not in loop.totals:
            total = total * ratio
        outside[v] = total.astype(v.aval.dtype)
    outside.update((v, unstacked(x, axis, blocks)) for (v, axis), x in zip(listed, stacks, strict=True))


def check_batch(leaves: Sequence[Any], axes: Sequence[int | None], count: int, function: str) -> None:
    """Raise PlanError if the arguments of a step have no common batch length that is a multiple of `count`."""
    sizes = {jnp.shape(leaf)[axis] for leaf, axis in zip(leaves, axes, strict=True) if axis is not None}
    if len(sizes) != 1 or sizes.pop() % count:
        raise PlanError(
            f"microbatches={count} does not divide the batch of {function}. The axes of in_axes= must all have the "
            f"same length, a multiple of {count}."
        )
    blocks = device_blocks(leaves, axes)
    (size,) = {jnp.shape(leaf)[axis] for leaf, axis in zip(leaves, axes, strict=True) if axis is not None}
    if size % (count * blocks):
        raise PlanError(
            f"microbatches={count} does not divide the batch of {function} on {blocks} devices. Each microbatch needs "
            f"rows of each device, so the length of the batch, {size}, must be a multiple of {count * blocks}."
        )


def _divided_in_parts(
    flat: Callable[..., Any], leaves: Sequence[Any], axes: Sequence[int | None], count: int, function: str
) -> tuple[Divided, Divided, dict[Operation, Operation]]:
    """Return a step for the whole batch and for a part, divided at its gradients, and what `paired_draws` returns."""
    losses: tuple[list[Any], list[Any]] = ([], [])
    whole, plain = (
        flat_program(jaxpr_of_step(flat, leaves, axes, parts, functools.partial(_recording_loss, found=found)))
        for parts, found in zip((1, count), losses, strict=True)
    )
    try:
        both, draws = divided_pair(whole, plain, axes, count, function)
    except NotPaired:
        raise PlanError(f"The program of {function} for a microbatch differs from that for the whole batch.") from None
    whole_losses = paired_losses(*losses, function)
    if not any(
        _operations_with_number(flat_program(one).operations, flat_program(other).operations, count, function)
        for one, other in zip(whole_losses, losses[1], strict=True)
    ):
        return *both, draws
    remaining = iter(whole_losses)

    def of_part(smaller: Callable[..., Any], which: Any) -> Callable[..., Any]:
        return _loss_of_part(smaller, next(remaining), which, count, function, device_blocks(leaves, axes))

    numbered = flat_program(jaxpr_of_step(flat, leaves, axes, count, of_part))
    numbered_axes = _axes_like(plain, both[1].axes, numbered, function)
    numbered = without_scale(numbered, per_example(numbered, numbered_axes))
    draws = paired_draws(whole, numbered, count, function)
    program = divided(numbered, axes, function, [*draws], numbered_axes)
    if comparable_interface(program) != comparable_interface(both[1]):
        raise PlanError(f"The program of {function} for a microbatch differs with its part of the random numbers.")
    return both[0], program, draws


def divided_pair(
    whole: FlatProgram, part: FlatProgram, axes: Sequence[int | None], count: int, function: str
) -> tuple[tuple[Divided, Divided], dict[Operation, Operation]]:
    """Return a step for the whole batch and for a part, divided at its gradients, and what `paired_draws` returns.

    Args:
      whole, part: the step for the whole batch and for one of `count` parts, with marks at its gradients.
      axes: the batch axis of each leaf of the arguments; None for one without.
      count: the number of parts.
      function: the name of the step.

    Raises:
      PlanError: as for `divided` and `paired_draws`.
      NotPaired: if the two programs differ in more than shapes and literals.
    """
    draws = paired_draws(whole, part, count, function)
    own, smaller_own = _paired_axes(whole, part, count)
    inside, pairs = in_passes(part), zip(whole.operations, part.operations, strict=True)
    random = [
        (op, smaller)
        for op, smaller in pairs
        if smaller in inside and needs_number(op.eqn, smaller.eqn, count, _POSITIONS)
    ]
    one, other = (
        divided(without_scale(each, per_example(each, found)), axes, function, [*drawn], found, drawn_inside)
        for each, found, drawn, drawn_inside in (
            (whole, own, draws.values(), [op for op, _ in random]),
            (part, smaller_own, draws.keys(), [smaller for _, smaller in random]),
        )
    )
    if _crossing_places(one) != _crossing_places(other):
        raise NotPaired
    return (one, other), draws


def _paired_axes(whole: FlatProgram, part: FlatProgram, count: int) -> tuple[dict[Variable, int], dict[Variable, int]]:
    """Return the batch axes of the variables of a step for the whole batch and for a part.

    Raises:
      NotPaired: if the two programs have other operations.
    """
    names = [[(op.name, len(op.outvars)) for op in each.operations] for each in (whole, part)]
    if names[0] != names[1] or len(whole.constants) != len(part.constants):
        raise NotPaired
    pairs = list(zip(all_variables(whole), all_variables(part), strict=True))
    part_of = dict(pairs)
    outputs = zip(whole.outputs, part.outputs, strict=True)
    if any(part_of.get(v) is not u for v, u in outputs if isinstance(v, Variable)):
        raise NotPaired
    found = dict[Variable, int](), dict[Variable, int]()
    for one, other in pairs:
        with contextlib.suppress(NotPaired):
            axis = batch_axis(one.aval, other.aval, count)
            if axis is not None:
                found[0][one] = found[1][other] = axis
    return found


def all_variables(program: FlatProgram) -> list[Variable]:
    """Return all variables of a program, in the order of the program."""
    return [*program.inputs, *program.constants, *(v for op in program.operations for v in op.outvars)]


def _axes_like(
    program: FlatProgram, axes: Mapping[Variable, int], numbered: FlatProgram, function: str
) -> dict[Variable, int]:
    """Return the batch axes of the variables of a step outside of the passes of its gradients.

    Args:
      program, axes: the step for a part of the batch, and the batch axes of its variables.
      numbered: the same step, whose losses use their part of the random numbers.
      function: the name of the step.
    """
    outside = [outside_passes(each) for each in (program, numbered)]
    gradients = [[v for _, v in gradient_marks(each)] for each in (program, numbered)]
    if [op.name for op in outside[0]] != [op.name for op in outside[1]] or len(gradients[0]) != len(gradients[1]):
        raise PlanError(f"The program of {function} for a microbatch differs with its part of the random numbers.")
    pairs = [*zip(program.inputs, numbered.inputs, strict=True), *zip(*gradients, strict=True)]
    for op, other in zip(*outside, strict=True):
        pairs += zip((*op.invars, *op.outvars), (*other.invars, *other.outvars), strict=True)
    pairs += zip(program.outputs, numbered.outputs, strict=True)
    return {other: axes[v] for v, other in pairs if isinstance(v, Variable) and v in axes}


def _recording_loss(loss: Callable[..., Any], _: Any, found: list[Any]) -> Callable[..., Any]:
    """Return a loss that appends its jaxpr to `found` when it is traced."""

    def run(*args: Any, **kwargs: Any) -> Any:
        once, _ = traced(loss, args, kwargs)
        found.append(once.jaxpr)
        return once(*args, **kwargs)

    return functools.wraps(loss, updated=())(run)


def paired_losses(whole: Sequence[Any], part: Sequence[Any], function: str) -> list[Any]:
    """Return for each loss of a step for a part of the batch, in the order of its traces, that for the whole batch.

    Args:
      whole, part: the jaxprs of the losses, in the order of their traces. A loss may be traced more than once.
      function: the name of the step.

    Raises:
      PlanError: if it is not known which of several losses belong together.
    """
    if len(whole) == len(part):
        return [*whole]
    if any(len({re.sub(r" at 0x[0-9a-f]+", "", str(loss)) for loss in each}) != 1 for each in (whole, part)):
        raise PlanError(f"{function} traces its losses more often for the whole batch than for a microbatch.")
    return [whole[-1]] * len(part)


def _crossing_places(program: Divided) -> list[list[int]]:
    """Return the indices of the crossing values of each loop among all values that the loop computes."""
    made = [{v: i for i, v in enumerate(v for op in loop.each for v in op.outvars)} for loop in program.loops]
    return [[places[v] for v in loop.crossing] for loop, places in zip(program.loops, made, strict=True)]


def comparable_interface(program: Divided) -> list[Any]:
    """Return the constants, the crossing values and the operations outside of loops, in a comparable form."""
    crossing = [
        (
            v in loop.gradients,
            v in loop.totals,
            v in loop.same[0],
            program.axes.get(v) if loop is not program.loops[-1] else None,
            v.aval.str_short(),
        )
        for loop in program.loops
        for v in loop.crossing
    ]
    return [
        [id(value) for value in program.program.constants.values()],
        crossing,
        [[op.name for op in loop.after] for loop in program.loops],
    ]


def cotangent_divisor(count: int) -> int:
    """Return the number that the cotangents of one of `count` parts are divided by: the next power of two."""
    return 1 << (count - 1).bit_length()


def jaxpr_of_step(
    flat: Callable[..., Any],
    leaves: Sequence[Any],
    axes: Sequence[int | None],
    count: int,
    change: Callable[[Callable[..., Any], Any], Callable[..., Any]],
) -> Any:
    """Return the jaxpr of a step for one of `count` parts of its batch, with marks at its gradient.

    Its cotangents are divided by `cotangent_divisor(count)`. The inputs of the jaxpr are the number of the part and the
    leaves of the step's arguments.

    Args:
      flat: the step as a function of flat arrays.
      leaves: its arguments.
      axes: the batch axis of each leaf; None for a leaf without a batch axis.
      count: the number of parts.
      change: a function that takes a loss of the step and the number of the part, and returns the loss to use instead.
    """
    shapes = [in_part(leaf, axis, count) for leaf, axis in zip(leaves, axes, strict=True)]

    def numbered(which: Any, *leaves: Any) -> Any:
        changed = transform_losses(flat, lambda loss: change(loss, which))
        return record_gradients(changed, 1 / cotangent_divisor(count))(*leaves)

    with outside_traces(keeps_axes=True):
        return jax_compat.make_jaxpr(numbered)(jax.ShapeDtypeStruct((), jnp.int32), *shapes)


def _before_loops(program: Divided) -> list[Operation]:
    """Return the operations before the loops that the outputs or other operations outside of loops depend on."""
    outside = [op for loop in program.loops for op in (*loop.same[1], *loop.after)]
    read = [*program.program.outputs, *(v for op in outside for v in op.invars)]
    return operations_before(variables_of(read), program.once)


def in_whole(whole: Divided, part: Divided, function: str) -> tuple[dict[Operation, Operation], list[Any]]:
    """Map the operations outside of the loops of a step for a part to those of the step for the whole batch.

    Also return the outputs of the step for the whole batch. Both use the variables of the step for a part. Two paired
    operations compute the same values if none of their literals and shapes depends on the length of the batch.

    Raises:
      PlanError: if the two programs differ in more than shapes and literals.
    """
    both = [
        [*_before_loops(each), *(op for loop in each.loops for op in (*loop.same[1], *loop.after))]
        for each in (whole, part)
    ]
    names = [[op.name for op in operations] for operations in both]
    known = [[*each.program.inputs, *each.program.constants, *each.crossing] for each in (whole, part)]
    if names[0] != names[1] or len(known[0]) != len(known[1]):
        raise PlanError(f"The program of {function} for a microbatch differs from that for the whole batch.")
    variables: dict[Any, Any] = dict(zip(*known, strict=True))
    found = dict[Operation, Operation]()
    for op, other in zip(*both, strict=True):
        operands = [variables[v] if isinstance(v, Variable) else v for v in op.invars]
        found[other] = Operation(op.eqn, operands, other.outvars)
        variables.update(zip(op.outvars, other.outvars, strict=True))
    return found, [variables[v] if isinstance(v, Variable) else v for v in whole.program.outputs]


def stack_axis(whole: Variable, part: Variable, loop: Loop, count: int, function: str) -> int | None:
    """Return the axis along which the values of all microbatches are concatenated; None if they are added up.

    Args:
      whole, part: a crossing variable of the step for the whole batch, and the same variable for one of `count` parts.
      loop: the loop that defines it.
      count: the number of parts.
      function: the name of the step.

    Raises:
      PlanError: if neither concatenation nor the mean gives the value for the whole batch.
    """
    what = f"{part.aval.dtype}{list(whole.aval.shape)}"
    try:
        axis = batch_axis(whole.aval, part.aval, count)
    except NotPaired:
        raise PlanError(
            f"{function} returns, or uses after its gradient, {what}, whose shape does not follow from the length of "
            "the batch, so microbatches= cannot combine its parts. Compute it outside of the step."
        ) from None
    if axis is not None and part in loop.gradients:
        raise PlanError(
            f"{function} takes one gradient with respect to its batch, {what}, and to other values, which "
            "microbatches= does not support. Take two gradients, or split the batch in the step, with jax.lax.scan."
        )
    if axis is not None or part in loop.gradients | loop.totals or jnp.issubdtype(part.aval.dtype, jnp.floating):
        return axis
    raise PlanError(
        f"{function} returns, or uses after its gradient, an array of {part.aval.dtype} that depends on the batch, and "
        "microbatches= only averages floating-point values. Compute it outside of the step."
    )
