"""The gradient of a training step, summed over microbatches: the step's own program, with its gradient in a loop.

The step is traced for one microbatch, so that nothing in it knows of the others. Its program is divided at the
gradient: the operations before it run once per microbatch, in a loop; the rest, such as the optimizer, runs once.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import source_info_util

from rematscope import jax_compat
from rematscope.errors import PlanError
from rematscope.jax_compat.vjp_hook import Mark, outside_traces, record_gradients
from rematscope.reporting.arrays import in_part, stacked, unstacked
from rematscope.reporting.batch_axis import NotPaired, batch_axis, same_equation
from rematscope.reporting.flat_program import FlatProgram, Operation, Variable, evaluate, flat_program, value_of

source_info_util.register_exclusion(__file__)


@dataclasses.dataclass(frozen=True)
class Divided:
    """The program of a step, divided at its gradient.

    Attributes:
      inputs: the variables of the arguments.
      constants: values that the program closes over, by variable.
      once: operations that depend neither on the batch nor on the gradient.
      each: operations of both passes, and others that depend on the batch, and not on the gradient.
      rest: operations that depend on the gradient.
      crossing: variables that `each` defines and the rest reads, or the caller.
      gradients: those of them that are gradients.
      same: those that do not depend on the batch, and the operations that define them.
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


def divided(program: FlatProgram, axes: Sequence[int | None], function: str) -> Divided:
    """Divide the program of a step at its gradient.

    Args:
      program: the step on the leaves of its arguments, with marks at its gradient; see
        `rematscope.jax_compat.vjp_hook`.
      axes: the batch axis of each leaf; None for one without.
      function: the name of the step.

    Raises:
      PlanError: if it takes more than one gradient, or takes it inside a loop, a `vmap` or a `shard_map`.
    """
    inputs, constants, eqns, outputs = program
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
        what = f"takes {len(numbers)} gradients" if numbers else "takes its gradient inside a loop or a transformation"
        raise PlanError(
            f"{function} {what}, but microbatches= needs exactly one gradient at the top level of the step. Split the "
            "batch in the step itself, with jax.lax.scan."
        )
    on_batch = {v for v, axis in zip(inputs, axes, strict=True) if axis is not None}
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
        elif operation in marked or not on_batch.isdisjoint(operands):  # both passes stay together
            each.append(operation)
        else:
            once.append(operation)
            continue
        on_batch.update(operation.outvars)
        if not on_data.isdisjoint(operands):
            on_data.update(operation.outvars)
    if drawn := sorted({name for operation in (*once, *each) for name in _random(operation.eqn)}):
        raise PlanError(
            f"{function} draws random numbers ({', '.join(drawn)}) for its loss, such as dropout masks or noise, and "
            "each microbatch would use the same ones. Split the key in the step, one part per microbatch, and use "
            "jax.lax.scan."
        )
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
    needed, slice_ = set(same), list[Operation]()
    for operation in reversed(each):
        if not needed.isdisjoint(operation.outvars):
            slice_.insert(0, operation)
            needed.update(v for v in operation.invars if isinstance(v, Variable))
    return Divided(inputs, constants, once, each, rest, crossing, frozenset(gradients), (same, slice_), outputs)


_DRAWS = frozenset({"random_bits", "rng_bit_generator", "rng_uniform", "threefry2x32", "random_gamma"})


def _random(eqn: Any) -> set[str]:
    """The primitives in an operation that draw random numbers."""
    inside = (_random(e) for body in jax_compat.bodies(eqn) for e in jax_compat.body_of(body)[0].eqns)
    return set[str]().union({eqn.primitive.name} & _DRAWS, *inside)


def in_microbatches(
    flat: Callable[..., Any], leaves: Sequence[Any], axes: Sequence[int | None], count: int, function: str
) -> list[Any]:
    """Return the leaves of what a step returns, its gradient taken in microbatches.

    Gradients and other floating-point values that depend on the batch, such as the loss, are averaged over the
    microbatches; arrays with one entry per example are put together.

    Args:
      flat: the step as a function of flat arrays.
      leaves: its arguments.
      axes: the batch axis of each; None for one without.
      count: the number of microbatches.
      function: the name of the step.

    Raises:
      PlanError: if the step cannot be divided; see `divided`.
    """
    program, env = _run_each(flat, leaves, axes, count, function)
    evaluate(program.rest, env)
    return [value_of(v, env) for v in program.outputs]


def divided_values(
    flat: Callable[..., Any], leaves: Sequence[Any], axes: Sequence[int | None], count: int, function: str
) -> list[Any]:
    """Return the gradient, and what else crosses to the rest of the step, computed in microbatches.

    Args:
      flat, leaves, axes, count, function: as for `in_microbatches`.
    """
    program, env = _run_each(flat, leaves, axes, count, function)
    return [env[v] for v in program.crossing if v not in program.same[0]]


def _run_each(
    flat: Callable[..., Any], leaves: Sequence[Any], axes: Sequence[int | None], count: int, function: str
) -> tuple[Divided, dict[Any, Any]]:
    """Run a step up to its gradient, in microbatches; return its program and the values so far."""
    sizes = {jnp.shape(leaf)[axis] for leaf, axis in zip(leaves, axes, strict=True) if axis is not None}
    if len(sizes) != 1 or sizes.pop() % count:
        raise PlanError(
            f"microbatches={count} does not divide the batch of {function}. The axes of in_axes= must all have the "
            f"same length, a multiple of {count}."
        )
    whole, program = (
        divided(flat_program(jaxpr_of_step(flat, leaves, axes, parts, record_gradients)), axes, function)
        for parts in (1, count)
    )
    of_whole, outputs = in_whole(whole, program, function)
    env = {**program.constants, **dict(zip(program.inputs, leaves, strict=True))}
    evaluate(program.once, env)
    same, makers = program.same
    evaluate(makers, env)
    after = env
    if not all(same_equation(op.eqn, of_whole[op].eqn) for op in (*program.once, *makers)):
        after = {v: whole.constants[u] for v, u in zip(program.constants, whole.constants, strict=True)}
        after |= dict(zip(program.inputs, leaves, strict=True))
        evaluate([of_whole[op] for op in (*program.once, *makers)], after)
    if count == 1:
        evaluate(program.each, env)
        return program, env
    parts_of = {
        v: stacked(leaf, axis, count)
        for v, leaf, axis in zip(program.inputs, leaves, axes, strict=True)
        if axis is not None
    }
    pairs = zip(whole.crossing, program.crossing, strict=True)
    stack_axes = {v: stack_axis(u, v, program.gradients, count, function) for u, v in pairs if v not in same}
    summed = [v for v, axis in stack_axes.items() if axis is None]
    listed = [(v, axis) for v, axis in stack_axes.items() if axis is not None]

    def turn(sums: list[Any], parts: list[Any]) -> tuple[list[Any], list[Any]]:
        inside = {**env, **dict(zip(parts_of, parts, strict=True))}
        evaluate(program.each, inside)
        added = [total + inside[v].astype(total.dtype) for total, v in zip(sums, summed, strict=True)]
        return added, [inside[v] for v, _ in listed]

    zeros = [jnp.zeros(v.aval.shape, jnp.promote_types(v.aval.dtype, jnp.float32)) for v in summed]
    sums, stacks = lax.scan(turn, zeros, list(parts_of.values()), length=count)
    after.update((v, (total / count).astype(v.aval.dtype)) for v, total in zip(summed, sums, strict=True))
    after.update((v, unstacked(x, axis)) for (v, axis), x in zip(listed, stacks, strict=True))
    rest = [of_whole[op] for op in program.rest]
    return dataclasses.replace(program, rest=rest, outputs=outputs), after


def jaxpr_of_step(
    flat: Callable[..., Any],
    leaves: Sequence[Any],
    axes: Sequence[int | None],
    count: int,
    recorder: Callable[..., Any],
) -> Any:
    """Return the jaxpr of a step for one of `count` parts of its batch.

    Args:
      flat: the step as a function of flat arrays.
      leaves: its arguments.
      axes: the batch axis of each; None for one without.
      count: the number of parts.
      recorder: takes the step and returns it with marks, such as `record_gradients`.
    """
    shapes = [in_part(leaf, axis, count) for leaf, axis in zip(leaves, axes, strict=True)]
    with outside_traces():
        return jax.make_jaxpr(recorder(flat))(*shapes)


def in_whole(whole: Divided, part: Divided, function: str) -> tuple[dict[Operation, Operation], list[Any]]:
    """Return what a step for the whole batch does outside of its gradient, by what the step for a part does there.

    The outputs of the step for the whole batch are returned too. All have the variables of the part. The operations
    compute the same if no literal or shape in them depends on the length of the batch.

    Raises:
      PlanError: if the two programs differ in more than shapes and literals.
    """
    both = [[*each.once, *each.same[1], *each.rest] for each in (whole, part)]
    names = [[op.eqn.primitive.name for op in operations] for operations in both]
    known = [[*each.inputs, *each.constants, *each.crossing] for each in (whole, part)]
    made = [[v for op in each.each for v in op.outvars] for each in (whole, part)]
    places = [[made_here.index(v) for v in each.crossing] for made_here, each in zip(made, (whole, part), strict=True)]
    if names[0] != names[1] or len(known[0]) != len(known[1]) or places[0] != places[1]:
        raise PlanError(f"The program of {function} for a microbatch differs from that for the whole batch.")
    variables: dict[Any, Any] = dict(zip(*known, strict=True))
    found = dict[Operation, Operation]()
    for op, other in zip(*both, strict=True):
        operands = [variables[v] if isinstance(v, Variable) else v for v in op.invars]
        found[other] = Operation(op.eqn, operands, other.outvars)
        variables.update(zip(op.outvars, other.outvars, strict=True))
    return found, [variables[v] if isinstance(v, Variable) else v for v in whole.outputs]


def stack_axis(whole: Variable, part: Variable, gradients: frozenset[Any], count: int, function: str) -> int | None:
    """Return the axis along which the values of all microbatches are put together; None if their mean is taken.

    Args:
      whole, part: a variable that crosses to the rest of the step, and the same for one of `count` parts of the batch.
      gradients: those of the parts' variables that are gradients.
      count: the number of parts.
      function: the name of the step.

    Raises:
      PlanError: if neither gives the value for the whole batch.
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
