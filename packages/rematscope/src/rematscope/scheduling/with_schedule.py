"""`with_schedule(f, policy)`: transforms a function so that its backward pass recomputes each value just before its
use.
"""

import functools
import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import jax

from rematscope.errors import PlanError
from rematscope.ir.program import Program
from rematscope.jax_compat import Policy, is_repeatable, is_repeatable_program, saving_unrepeatable, walk_equations
from rematscope.render.units import bytes_text
from rematscope.scheduling.captured import traced_for_a_plan, with_outer_values
from rematscope.scheduling.linearize import linearize
from rematscope.scheduling.planned import scheduled_function, with_arrays
from rematscope.scheduling.schedule import schedule
from rematscope.tracing.arguments import callable_name, check_call, flattened, type_description
from rematscope.tracing.checkpoints import CalledOnce, checkpoints, nothing, with_policy, without_checkpoints
from rematscope.tracing.static_values import StaticRule, call_with_static, unwrap_static
from rematscope.tracing.trace import Trace, trace
from rematscope.xla.compiling import check_target

P = ParamSpec("P")
R = TypeVar("R")


def with_schedule(f: Callable[P, R], policy: Policy | None = None, *, target: str = "cpu") -> Callable[P, R]:
    """Transform `f` so that its backward pass recomputes each value just before its use.

    `jax.checkpoint(f)` recomputes all of `f` before the backward pass uses any of the results. The transformed function
    saves the same values, but recomputes each other value just before the first operation that reads it, even in the
    body of a scan. So one checkpoint around a whole model has the same peak as checkpoints around its layers. The saved
    bytes and the recompute cost are the same as with `jax.checkpoint`.

    Each call traces `f` again, with the current values of the variables that `f` closes over, so call it under
    `jax.jit`.

    Args:
      f: a function of pytrees of arrays that is differentiable in reverse mode. Its checkpoints stay where they are. A
        function without checkpoints gets one around the whole function.
      policy: the policy of all checkpoints, as for `jax.checkpoint`; None saves nothing.
      target: the device that the result will be compiled for, as for `measure`. A program for a TPU needs different
        barriers.

    Returns:
      A callable like `f`, with the same values and derivatives. It supports `jax.jit`, `jax.vmap`, forward mode and
      second derivatives. The schedule applies to reverse mode. In a second derivative, the first derivative is computed
      as in plain JAX, without the schedule.

    Raises:
      TraceError: during a call, as for `trace`.
      PlanError: immediately, if `policy` is not a policy. During a call, if `policy` offloads values to host memory; if
        `f` changes the state of an object, such as a module of Flax's nnx; if `f` takes the gradient of a function that
        has a checkpoint; or if a checkpoint would repeat a side effect. During differentiation, if you differentiate
        only some outputs and the others depend on a custom rule whose gradient is not 0 for cotangents of 0, or if
        forward mode or a second derivative would run a callback of `f` twice.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from rematscope import with_schedule
      >>> def loss(ws, x):
      ...     for w in ws:
      ...         x = jnp.sin(x @ w)
      ...     return x.sum()
      >>> ws, x = [jnp.eye(4)] * 3, jnp.ones((2, 4))
      >>> scheduled = with_schedule(loss, jax.checkpoint_policies.dots_saveable)
      >>> bool(jnp.allclose(jax.grad(scheduled)(ws, x)[0], jax.grad(loss)(ws, x)[0]))
      True
    """
    flattened(f, (), {})
    chosen = None if policy is None else _policy_or_error(policy)
    check_target(target)

    rule = StaticRule(f)

    @functools.wraps(f)
    def function(*args: P.args, **kwargs: P.kwargs) -> R:
        check_call(f, args, kwargs, "use jax.eval_shape for the shape of the result")
        called, given, named = call_with_static(f, args, kwargs, rule)
        once, leaves = with_outer_values(
            traced_for_a_plan(called, given, named), jax.tree.leaves((given, named)), "with_schedule"
        )
        repeatable = is_repeatable_program(once.jaxpr, prints=True)
        passes = _trace_with_policy(once, chosen if repeatable else saving_unrepeatable(chosen), leaves)
        if not repeatable:
            _check_runs_once(once, passes, leaves)
        if moved := sum(r.value.nbytes for r in passes.residuals if r.kind == "computed" and r.memory == "host"):
            raise PlanError(
                f"the policy offloads {bytes_text(moved)} of {callable_name(f)} to host memory, which with_schedule "
                "does not support. Use jax.checkpoint with this policy, with_schedule with a policy that saves "
                "on the device, or auto with host=."
            )
        linearized = linearize(passes)
        late = schedule(linearized, linearized.saved, target=target)
        made = scheduled_function(once, late, None)
        if not any(checkpoints(once.jaxpr)) and any(e.primitive.name == "scan" for e, _ in walk_equations(once.jaxpr)):
            # A checkpoint around a loop recomputes the whole loop before any of its values is used. If the policy saves
            # the carries, each iteration can recompute its own values instead.
            plain = linearize(trace(once, *leaves))
            saved = plain.saved_by(chosen or nothing)
            if (inside := schedule(plain, saved, target=target)).saved_bytes <= late.saved_bytes:
                made = scheduled_function(once, inside, None)
        return cast(R, unwrap_static(with_arrays(made(*leaves))))

    return function


def _trace_with_policy(once: CalledOnce, policy: Policy | None, leaves: list[Any]) -> Trace:
    """Trace both passes with a policy, and name the cause if JAX cannot save what the policy saves."""
    try:
        return trace(with_policy(once, policy), *leaves)
    except TypeError as error:
        if "reduce_precision does not accept dtype complex" not in str(error):
            raise
        raise PlanError(
            f"the policy saves a complex value of {callable_name(once.function)}, which no policy of JAX can save. "
            "Leave policy= out to save nothing, or use auto, which also saves complex values."
        ) from None


def _policy_or_error(policy: Policy) -> Policy:
    """Return the policy, which raises an error during a call if it turns out to be a function that returns policies."""
    if not callable(policy):
        raise PlanError(
            f"policy= is {type_description(policy)}, not a policy. Give a function such as "
            "jax.checkpoint_policies.dots_saveable, or remove policy= to save nothing."
        )
    makes_one = PlanError(
        f"policy= is {callable_name(policy)}, which returns a policy and is not one itself. Call it first: "
        "save_only_these_names('h')."
    )

    def asked(primitive: Any, *avals: Any, **params: Any) -> Any:
        try:
            answer = policy(primitive, *avals, **params)
        except TypeError:
            if _accepts_policy(policy, primitive, *avals, **params):
                raise
            raise makes_one from None
        if callable(answer):
            raise makes_one
        return answer

    return asked


def _check_runs_once(f: Callable[..., Any], passes: Trace, leaves: list[Any]) -> None:
    """Raise PlanError if a checkpoint recomputes an operation whose second run may give another result."""

    def unrepeatable(backward: Program) -> Counter[str]:
        return Counter(e.primitive for e, _ in backward.walk() if not is_repeatable(e.eqn, prints=True))

    if more := unrepeatable(passes.backward) - unrepeatable(trace(without_checkpoints(f), *leaves).backward):
        raise PlanError(
            f"{callable_name(f)} has {', '.join(more)} where a checkpoint cannot save the result, such as in a "
            "while_loop, and a second run may give a different result. Use jax.random with a key for random numbers, "
            "or move this part out of the checkpoint."
        )


def _accepts_policy(f: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
    try:
        inspect.signature(f).bind(*args, **kwargs)
    except TypeError:
        return False
    return True
