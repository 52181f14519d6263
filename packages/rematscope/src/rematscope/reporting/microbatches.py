"""Compute the gradient of a training step in microbatches: run the gradient part of the step's program in a loop.

The step is traced for one microbatch, so its program reads no other microbatch. The program is divided at the gradient.
The operations up to the gradient run in a loop, once per microbatch. The rest, such as the optimizer, runs once.

The gradient of a mean over k microbatches is the sum of the gradients of 1/k times each microbatch's loss. So the
cotangents of a microbatch are divided by k, or by the next power of two, which is exact. Each example's cotangents then
have the size that they have for the whole batch. Otherwise, they would overflow sooner in float16.
"""

import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding

from rematscope import jax_compat
from rematscope.errors import PlanError
from rematscope.jax_compat.vjp_hook import Mark, outside_traces, record_gradients, transform_losses
from rematscope.reporting.arrays import in_part, stacked, unstacked
from rematscope.reporting.batch_axis import OPENED, NotPaired, batch_axis, commutes, makes_batch, same_equation
from rematscope.reporting.flat_program import (
    FlatProgram,
    Operation,
    Variable,
    evaluate,
    flat_program,
    has_mutable_arrays,
    value_of,
)
from rematscope.reporting.parts import needs_number, run_equation_part
from rematscope.tracing.checkpoints import traced


@dataclasses.dataclass(frozen=True)
class Divided:
    """The program of a step, divided at its gradient.

    Attributes:
      inputs: the variables of the arguments.
      constants: values that the program closes over, by variable.
      once: operations that depend neither on the batch nor on the gradient.
      each: operations of both passes, and other operations that depend on the batch but not on the gradient.
      rest: operations that depend on the gradient, or on the batch by the value of the loss alone.
      crossing: variables that `each` defines, and that `rest` reads or the step returns.
      gradients: the variables in `crossing` that are gradients.
      same: the variables in `crossing` that do not depend on the batch, and the operations that define them.
      outputs: the outputs of the step.
    """

    inputs: Sequence[Any]
    constants: dict[Any, Any]
    once: Sequence[Any]
    each: Sequence[Any]
    rest: Sequence[Any]
    crossing: Sequence[Any]
    gradients: frozenset[Any]
    same: tuple[frozenset[Any], Sequence[Any]]
    outputs: Sequence[Any]


def divided(
    program: FlatProgram, axes: Sequence[int | None], function: str, draws: Collection[Operation] = ()
) -> Divided:
    """Divide the program of a step at its gradient.

    Args:
      program: the step, with marks at its gradient; see `jaxpr_of_step`.
      axes: the batch axis of each leaf; None for one without.
      function: the name of the step.
      draws: operations that make random numbers of the batch; see `paired_draws`.

    Raises:
      PlanError: if the step takes several gradients, or takes its gradient inside a loop, a `vmap` or a `shard_map`, if
        it uses its batch after the gradient, or if it uses mutable arrays.
    """
    inputs, constants, eqns, outputs = program
    if has_mutable_arrays(program):
        raise PlanError(
            f"{function} uses mutable arrays (jax.new_ref), which microbatches= does not support. Pass their values as "
            "arguments, and return the new ones."
        )
    gradients, numbers = dict[Any, None](), set[int]()
    marked = set[Operation]()
    for operation in eqns:
        mark = Mark.read(jax_compat.checkpoint_name(operation.eqn) or "")
        if mark is not None:
            marked.add(operation)
        if mark is not None and mark.what == "gradient":
            gradients.update(dict.fromkeys(operation.outvars))
            numbers.add(mark.gradient)
    if len(numbers) != 1:
        what = f"{len(numbers)} gradients" if numbers else "no gradient outside loops and transformations"
        raise PlanError(
            f"{function} takes {what}, but microbatches= needs exactly one, at the top level of the step. Pass the "
            "step that takes the gradient, or split the batch in the step itself, with jax.lax.scan."
        )
    on_batch = {inputs[0], *(v for v, axis in zip(inputs[1:], axes, strict=True) if axis is not None)}
    on_data = set(on_batch)
    on_gradient = set(gradients)
    once, each, rest = [], [], []
    for operation in eqns:
        operands = [v for v in operation.invars if isinstance(v, Variable)]
        if any(v in gradients for v in operation.outvars):
            each.append(operation)
        elif not on_gradient.isdisjoint(operands):
            on_gradient.update(operation.outvars)
            rest.append(operation)
        elif (
            operation in draws or operation in marked or not on_batch.isdisjoint(operands)
        ):  # the marks delimit the passes, so they stay in the loop with both passes
            each.append(operation)
        else:
            once.append(operation)
            continue
        on_batch.update(operation.outvars)
        if operation in draws or not on_data.isdisjoint(operands):
            on_data.update(operation.outvars)
    late = _operations_on_the_value(each, on_batch)
    each = [operation for operation in each if operation not in late]
    after = late.union(rest)
    rest = [operation for operation in eqns if operation in after]
    made = {v for operation in each for v in operation.outvars}
    read = [v for operation in rest for v in operation.invars] + list(outputs)
    crossing = [v for v in dict.fromkeys([*gradients, *(v for v in read if isinstance(v, Variable))]) if v in made]
    if any(v in on_batch - made for v in read if isinstance(v, Variable)):
        made_of_batch = [v for v in inputs if v in on_batch and v in read]
        if made_of_batch:
            raise PlanError(
                f"{function} returns its batch, or reads it after its gradient, which microbatches= does not support. "
                "Do so outside of the step."
            )
    same = frozenset(v for v in crossing if v not in on_data and v not in gradients)
    makers = _operations_before(same, each)
    return Divided(inputs, constants, once, each, rest, crossing, frozenset(gradients), (same, makers), outputs)


def _operations_on_the_value(operations: Sequence[Operation], on_batch: Collection[Any]) -> set[Operation]:
    """Return the operations that depend on the batch only by the value of the loss, such as a perplexity.

    They run once, after the gradient, because such a function of the mean is not the mean of the function. Operations
    that the gradient depends on are not among them.

    Args:
      operations: the operations up to the gradient that depend on the batch.
      on_batch: all variables that depend on the batch.
    """
    values, candidates = set[Any](), set[Operation]()
    for operation in operations:
        mark = Mark.read(jax_compat.checkpoint_name(operation.eqn) or "")
        operands = [v for v in operation.invars if isinstance(v, Variable) and v in on_batch]
        if mark is not None and mark.what == "value":
            values.update(operation.outvars)
        elif mark is None and operands and all(v in values for v in operands):
            values.update(operation.outvars)
            candidates.add(operation)
    needed, found = set[Any](), set[Operation]()
    for operation in reversed(operations):
        if operation in candidates and needed.isdisjoint(operation.outvars):
            found.add(operation)
        else:
            needed.update(v for v in operation.invars if isinstance(v, Variable))
    return found


def _operations_before(values: Iterable[Any], operations: Sequence[Operation]) -> list[Operation]:
    """Return the operations that the given values depend on, in order."""
    needed, found = set(values), list[Operation]()
    for operation in reversed(operations):
        if not needed.isdisjoint(operation.outvars):
            found.append(operation)
            needed.update(v for v in operation.invars if isinstance(v, Variable))
    return found[::-1]


# Each part of the batch uses its part of the random numbers of the whole batch.

_POSITIONS = False  # outside of scans, the proof covers only positions that read rows of the part: see `gathers`
_DRAWS = frozenset("random_bits random_split rng_bit_generator rng_uniform threefry2x32 random_gamma".split())


def paired_draws(whole: FlatProgram, part: FlatProgram, count: int, function: str) -> dict[Operation, Operation]:
    """Return the operations before the gradient of a step that need the number of their part of the batch.

    Args:
      whole, part: the step for the whole batch and for one of `count` parts, with marks at its gradient.
      count: the number of parts.
      function: the name of the step.

    Returns:
      A dictionary that maps each such operation for a part to the same operation for the whole batch.

    Raises:
      PlanError: if an operation draws random numbers, and it is not known which of them belong to a part.
    """
    one, other = (list(itertools.takewhile(lambda op: not _is_mark(op), each.operations)) for each in (whole, part))
    return _operations_with_number(one, other, count, function)


def _is_mark(operation: Operation) -> bool:
    return Mark.read(jax_compat.checkpoint_name(operation.eqn) or "") is not None


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


def _loss_of_part(loss: Callable[..., Any], whole: Any, which: Any, count: int, function: str) -> Callable[..., Any]:
    """Return the loss for part number `which` of the batch; `whole` is its jaxpr for the whole batch."""

    def changed(*args: Any, **kwargs: Any) -> Any:
        once, leaves = traced(loss, args, kwargs)
        program, part = flat_program(whole), flat_program(once.jaxpr)
        numbered = _operations_with_number(program.operations, part.operations, count, function)
        if not numbered:
            return once(*args, **kwargs)
        env = {**part.constants, **dict(zip(part.inputs, leaves, strict=True))}
        _evaluate_part(part.operations, numbered, env, which, count)
        return once.returning([value_of(v, env) for v in part.outputs])

    return functools.wraps(loss, updated=())(changed)


def _evaluate_part(
    operations: Sequence[Operation],
    numbered: Mapping[Operation, Operation],
    env: dict[Variable, Any],
    which: Any,
    count: int,
) -> None:
    """Run operations for part number `which` of the batch; `numbered` are the operations that need this number."""
    for op in operations:
        given = [value_of(v, env) for v in op.invars]
        if op in numbered:
            results = run_equation_part(numbered[op].eqn, op.eqn, given, which, count, _POSITIONS)
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
    """Run a step with its gradient computed in microbatches, and return the leaves of its outputs.

    Gradients are added up and other floating-point values that depend on the batch, such as the loss, are averaged over
    the microbatches. Arrays with one entry per example are concatenated.

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
    check_batch(leaves, axes, count, function)
    program, env = _run_each(flat, leaves, axes, count, function, shardings)
    evaluate(program.rest, env)
    return [value_of(v, env) for v in program.outputs]


def check_batch(leaves: Sequence[Any], axes: Sequence[int | None], count: int, function: str) -> None:
    """Raise PlanError if the arguments of a step have no common batch length that is a multiple of `count`."""
    sizes = {jnp.shape(leaf)[axis] for leaf, axis in zip(leaves, axes, strict=True) if axis is not None}
    if len(sizes) != 1 or sizes.pop() % count:
        raise PlanError(
            f"microbatches={count} does not divide the batch of {function}. The axes of in_axes= must all have the "
            f"same length, a multiple of {count}."
        )


def _run_each(
    flat: Callable[..., Any],
    leaves: Sequence[Any],
    axes: Sequence[int | None],
    count: int,
    function: str,
    shardings: Sequence[NamedSharding | None],
) -> tuple[Divided, dict[Any, Any]]:
    """Run a step in microbatches up to its gradient, and return its program and the values computed so far."""
    whole, program, draws = _divided_in_parts(flat, leaves, axes, count, function)
    of_whole, outputs = in_whole(whole, program, function)
    numbered_leaves = [jnp.zeros((), jnp.int32), *leaves]
    env = {**program.constants, **dict(zip(program.inputs, numbered_leaves, strict=True))}
    evaluate(program.once, env)
    same, makers = program.same
    evaluate(makers, env)
    after = env
    once = after_gradient(program)
    if not all(same_equation(op.eqn, of_whole[op].eqn) for op in (*once, *makers)):
        after = {v: whole.constants[u] for v, u in zip(program.constants, whole.constants, strict=True)}
        after |= dict(zip(program.inputs, numbered_leaves, strict=True))
        evaluate([of_whole[op] for op in (*once, *makers)], after)
    if count == 1:
        evaluate(program.each, env)
        return program, env
    parts_of = {
        v: stacked(leaf, axis, count, sharding)
        for v, leaf, axis, sharding in zip(program.inputs[1:], leaves, axes, shardings, strict=True)
        if axis is not None
    }
    pairs = zip(whole.crossing, program.crossing, strict=True)
    stack_axes = {v: stack_axis(u, v, program.gradients, count, function) for u, v in pairs if v not in same}
    summed = [v for v, axis in stack_axes.items() if axis is None]
    listed = [(v, axis) for v, axis in stack_axes.items() if axis is not None]

    def turn(sums: list[Any], numbered: tuple[Any, list[Any]]) -> tuple[list[Any], list[Any]]:
        which, parts = numbered
        inside = {**env, program.inputs[0]: which, **dict(zip(parts_of, parts, strict=True))}
        _evaluate_part(program.each, draws, inside, which, count)
        added = [total + inside[v].astype(total.dtype) for total, v in zip(sums, summed, strict=True)]
        return added, [inside[v] for v, _ in listed]

    zeros = [jnp.zeros(v.aval.shape, jnp.promote_types(v.aval.dtype, jnp.float32)) for v in summed]
    sums, stacks = lax.scan(turn, zeros, (jnp.arange(count, dtype=jnp.int32), list(parts_of.values())))
    ratio = cotangent_divisor(count) / count
    totals = [total * ratio if v in program.gradients else total / count for v, total in zip(summed, sums, strict=True)]
    after.update((v, total.astype(v.aval.dtype)) for v, total in zip(summed, totals, strict=True))
    after.update((v, unstacked(x, axis)) for (v, axis), x in zip(listed, stacks, strict=True))
    rest = [of_whole[op] for op in program.rest]
    return dataclasses.replace(program, rest=rest, outputs=outputs), after


def _divided_in_parts(
    flat: Callable[..., Any], leaves: Sequence[Any], axes: Sequence[int | None], count: int, function: str
) -> tuple[Divided, Divided, dict[Operation, Operation]]:
    """Return a step for the whole batch and for a part, divided at the gradient, and what `paired_draws` returns."""
    losses: tuple[list[Any], list[Any]] = ([], [])
    whole, plain = (
        flat_program(jaxpr_of_step(flat, leaves, axes, parts, functools.partial(_recording_loss, found=found)))
        for parts, found in zip((1, count), losses, strict=True)
    )
    draws = paired_draws(whole, plain, count, function)
    both = divided(whole, axes, function, draws.values()), divided(plain, axes, function, draws.keys())
    places = [_crossing_places(each) for each in both]
    if places[0] != places[1]:
        raise PlanError(f"The program of {function} for a microbatch differs from that for the whole batch.")
    loss, smaller = map(only_loss, losses)
    if loss is None or smaller is None:
        raise PlanError(f"{function} takes gradients of several losses, and microbatches= needs exactly one.")
    one, other = flat_program(loss).operations, flat_program(smaller).operations
    if not _operations_with_number(one, other, count, function):
        return *both, draws

    def of_part(smaller: Callable[..., Any], which: Any) -> Callable[..., Any]:
        return _loss_of_part(smaller, loss, which, count, function)

    numbered = flat_program(jaxpr_of_step(flat, leaves, axes, count, of_part))
    draws = paired_draws(whole, numbered, count, function)
    program = divided(numbered, axes, function, draws.keys())
    if _comparable_interface(program) != _comparable_interface(both[1]):
        raise PlanError(f"The program of {function} for a microbatch differs with its part of the random numbers.")
    return both[0], program, draws


def _recording_loss(loss: Callable[..., Any], _: Any, found: list[Any]) -> Callable[..., Any]:
    """Return a loss that appends its jaxpr to `found` when it is traced."""

    def run(*args: Any, **kwargs: Any) -> Any:
        once, _ = traced(loss, args, kwargs)
        found.append(once.jaxpr)
        return once(*args, **kwargs)

    return functools.wraps(loss, updated=())(run)


def only_loss(losses: Sequence[Any]) -> Any:
    """Return the loss if all jaxprs are traces of the same loss; None if there are several losses, or none."""
    if len(losses) > 1 and len({re.sub(r" at 0x[0-9a-f]+", "", str(loss)) for loss in losses}) > 1:
        return None
    return losses[-1] if losses else None


def _crossing_places(program: Divided) -> list[int]:
    """Return the indices of the crossing values among all values that are computed before the gradient."""
    made = [v for op in program.each for v in op.outvars]
    return [made.index(v) for v in program.crossing]


def _comparable_interface(program: Divided) -> list[Any]:
    """Return the constants, the crossing values and the operations after the gradient, in a comparable form."""
    crossing = [(v in program.gradients, v in program.same[0], v.aval.str_short()) for v in program.crossing]
    return [
        [id(value) for value in program.constants.values()],
        crossing,
        [op.name for op in program.rest],
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

    with outside_traces():
        return jax_compat.make_jaxpr(numbered)(jax.ShapeDtypeStruct((), jnp.int32), *shapes)


def after_gradient(program: Divided) -> list[Operation]:
    """Return the operations without dependence on the batch that the outputs or the rest of the step depend on."""
    read = [*program.outputs, *(v for op in (*program.rest, *program.same[1]) for v in op.invars)]
    return _operations_before((v for v in read if isinstance(v, Variable)), program.once)


def in_whole(whole: Divided, part: Divided, function: str) -> tuple[dict[Operation, Operation], list[Any]]:
    """Map the operations outside of the gradient of a step for a part to those of the step for the whole batch.

    Also return the outputs of the step for the whole batch. Both use the variables of the step for a part. Two paired
    operations compute the same values if none of their literals and shapes depends on the length of the batch.

    Raises:
      PlanError: if the two programs differ in more than shapes and literals.
    """
    both = [[*after_gradient(each), *each.same[1], *each.rest] for each in (whole, part)]
    names = [[op.name for op in operations] for operations in both]
    known = [[*each.inputs, *each.constants, *each.crossing] for each in (whole, part)]
    if names[0] != names[1] or len(known[0]) != len(known[1]):
        raise PlanError(f"The program of {function} for a microbatch differs from that for the whole batch.")
    variables: dict[Any, Any] = dict(zip(*known, strict=True))
    found = dict[Operation, Operation]()
    for op, other in zip(*both, strict=True):
        operands = [variables[v] if isinstance(v, Variable) else v for v in op.invars]
        found[other] = Operation(op.eqn, operands, other.outvars)
        variables.update(zip(op.outvars, other.outvars, strict=True))
    return found, [variables[v] if isinstance(v, Variable) else v for v in whole.outputs]


def stack_axis(whole: Variable, part: Variable, gradients: frozenset[Any], count: int, function: str) -> int | None:
    """Return the axis along which the values of all microbatches are concatenated; None if they are averaged.

    Args:
      whole, part: a crossing variable of the step for the whole batch, and the same variable for one of `count` parts.
      gradients: the variables for a part that are gradients.
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
    if axis is not None and part in gradients:
        raise PlanError(
            f"{function} takes a gradient per example, or with respect to its batch: {what}. microbatches= only "
            "averages gradients. Split the batch in the step itself, with jax.lax.scan."
        )
    if axis is not None or part in gradients or jnp.issubdtype(part.aval.dtype, jnp.floating):
        return axis
    raise PlanError(
        f"{function} returns, or uses after its gradient, an array of {part.aval.dtype} that depends on the batch, and "
        "microbatches= only averages floating-point values. Compute it outside of the step."
    )
