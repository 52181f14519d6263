"""`with_schedule(f, policy=…)`: a function whose backward pass computes each value again only when it needs it."""

import functools
import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
from jax.extend import source_info_util
from jax.extend.core import jaxpr_as_fun

from rematscope.errors import PlanError
from rematscope.ir.jax_internals import Policy, body_of, is_repeatable, saving_unrepeatable, varying
from rematscope.ir.program import Program
from rematscope.linting.subject import everything
from rematscope.render.units import bytes_text
from rematscope.scheduling.captured import traced_for_a_plan
from rematscope.scheduling.linearize import linearize
from rematscope.scheduling.planned import keeping
from rematscope.scheduling.schedule import schedule
from rematscope.tracing.arguments import called, described
from rematscope.tracing.checkpoints import CalledOnce, checkpoints, nothing, with_policy, without_checkpoints
from rematscope.tracing.trace import Trace, trace
from rematscope.xla.compiling import check_target

source_info_util.register_exclusion(__file__)


def with_schedule(f: Callable[..., Any], policy: Policy | None = None, *, target: str = "cpu") -> Callable[..., Any]:
    """`f` with its checkpoints' choice of what to keep, and a backward pass that computes the rest as late as it may.

    What a checkpoint goes around is computed again as a whole before any of it is used. Here each operation comes
    directly before the first one that reads it, also in the bodies of scans, so that one checkpoint around a whole net
    has the peak of many around its parts. What is kept, and how much is computed again, stays what JAX makes of it.

    Args:
      f: a function of pytrees of arrays, differentiable in reverse mode. If it has checkpoints, they stay where they
        are; if it has none, one around all of it is meant.
      policy: what to keep, for all checkpoints, as for `jax.checkpoint`; None keeps nothing.
      target: what it is compiled for, as for `measure`. A TPU would write what other targets have to be held back from.

    Returns:
      A function with `f`'s values and derivatives. It can be differentiated in forward and reverse mode and again, and
      transformed by `jit` and `vmap`; the schedule is that of reverse mode, and second order computes the first as
      plain JAX. Each call traces `f` again, with the variables that it closes over now: call it under `jax.jit`.

    Raises:
      TraceError: when it is called, as `trace` does.
      PlanError: if `policy` is no function; when it is called, if it makes policies and is none, moves values to the
        host, if `f` changes the state of an object, such as a module of Flax's nnx, or if a checkpoint of `f` is
        differentiated in it, or has to repeat an effect that none may.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from rematscope import scheduled
      >>> def net(ws, x):
      ...     for w in ws:
      ...         x = jnp.sin(x @ w)
      ...     return x.sum()
      >>> ws, x = [jnp.eye(4)] * 3, jnp.ones((2, 4))
      >>> late = with_schedule(net, jax.checkpoint_policies.dots_saveable)
      >>> bool(jnp.allclose(jax.grad(late)(ws, x)[0], jax.grad(net)(ws, x)[0]))
      True
    """

    chosen = None if policy is None else _asked(policy)
    check_target(target)

    @functools.wraps(f)
    def function(*args: Any, **kwargs: Any) -> Any:
        once, leaves = _with_outer_values(traced_for_a_plan(f, args, kwargs), jax.tree.leaves((args, kwargs)))
        repeatable = all(is_repeatable(eqn, prints=True) for eqn in body_of(once.jaxpr)[0].eqns)
        passes = trace(with_policy(once, chosen if repeatable else saving_unrepeatable(chosen)), *leaves)
        if not repeatable:
            _check_runs_once(once, passes, leaves)
        if moved := sum(r.value.nbytes for r in passes.residuals if r.kind == "computed" and r.memory == "host"):
            raise PlanError(
                f"a policy moves {bytes_text(moved)} of {called(f)} to the host, and a schedule keeps all on the "
                "device. Give jax.checkpoint that policy, scheduled one that saves what fits, or auto a host=."
            )
        linearized = linearize(passes)
        late = schedule(linearized, linearized.kept, target=target)
        made = keeping(once, late)
        if not any(checkpoints(once.jaxpr)) and any(e.primitive.name == "scan" for e, _ in everything(once.jaxpr)):
            # A checkpoint around a loop has all of that run again before any of it is used. Where the policy saves what
            # is handed from one iteration to the next, each of them can compute its own again instead.
            plain = linearize(trace(once, *leaves))
            saved = plain.saved_by(chosen or nothing)
            if (inside := schedule(plain, saved, target=target)).saved_bytes <= late.saved_bytes:
                made = keeping(once, inside)
        return made(*leaves)

    return function


def _asked(policy: Policy) -> Policy:
    """The policy, or a sentence where it is what makes one, such as `save_only_these_names`, or nothing of the kind."""
    if not callable(policy):
        raise PlanError(
            f"policy= is {described(policy)}, and no policy. Give a function such as "
            "jax.checkpoint_policies.dots_saveable, or leave it out to keep nothing."
        )
    makes_one = PlanError(
        f"policy= is {called(policy)}, which makes a policy of its arguments and is none. Call it first: "
        "save_only_these_names('h')."
    )

    def asked(primitive: Any, *avals: Any, **params: Any) -> Any:
        try:
            said = policy(primitive, *avals, **params)
        except TypeError:
            if _takes(policy, primitive, *avals, **params):
                raise
            raise makes_one from None
        if callable(said):
            raise makes_one
        return said

    return asked


def _check_runs_once(f: Callable[..., Any], passes: Trace, leaves: list[Any]) -> None:
    """Raises PlanError if a checkpoint recomputes an operation whose second run may give another result."""

    def unrepeatable(backward: Program) -> Counter[str]:
        return Counter(e.primitive for e, _ in backward.walk() if not is_repeatable(e.eqn, prints=True))

    if more := unrepeatable(passes.backward) - unrepeatable(trace(without_checkpoints(f), *leaves).backward):
        raise PlanError(
            f"{called(f)} has {', '.join(more)} inside a loop or branch that a checkpoint recomputes as a whole, and a "
            "second run may give another result. Use jax.random with a key, or leave it outside of the checkpoint."
        )


def _takes(f: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
    try:
        inspect.signature(f).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _with_outer_values(once: CalledOnce, leaves: list[Any]) -> tuple[CalledOnce, list[Any]]:
    """A function of the leaves of its arguments and of what it closes over of a transformation around; and all these.

    What is differentiated or mapped around the function and only closed over would be hidden from its derivative.
    """
    jaxpr: Any = once.jaxpr
    is_outer = [isinstance(const, jax.core.Tracer) for const in jaxpr.consts]
    values = [*(const for const, outer in zip(jaxpr.consts, is_outer, strict=True) if outer), *leaves]
    made = (v.aval for eqn in body_of(jaxpr)[0].eqns for v in eqn.outvars)
    if axes := sorted(frozenset[str]().union(*map(varying, (*map(jax.typeof, values), *made)))):
        raise PlanError(
            f"{called(once.function)} is called inside a shard_map over {', '.join(map(repr, axes))} that checks what "
            "differs between devices (check_vma=True), and scheduled programs do not say that. Put the shard_map into "
            "the function that you give to scheduled, or pass check_vma=False to the shard_map."
        )
    if not any(is_outer):
        return once, leaves

    def with_outer(*operands: Any) -> Any:
        rest = iter(operands)
        consts = [next(rest) if outer else const for const, outer in zip(jaxpr.consts, is_outer, strict=True)]
        return jaxpr_as_fun(jaxpr.replace(consts=consts))(*rest)

    longer = jax.make_jaxpr(with_outer)(*values)
    return CalledOnce(once.function, longer, once.returning(jaxpr.out_avals)), values
