"""`scheduled(f, policy=…)`: a function whose backward pass computes each value again only when it needs it."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import source_info_util

from rematscope.errors import PlanError
from rematscope.ir.jax_internals import Policy
from rematscope.linting.subject import everything
from rematscope.render.units import bytes_text
from rematscope.scheduling.differentiable import differentiable
from rematscope.scheduling.linearize import Linearized, linearize
from rematscope.scheduling.schedule import Schedule, schedule
from rematscope.tracing.arguments import called, check_arrays, described, flattened
from rematscope.tracing.checkpoints import checkpoints, jaxpr_of, nothing, with_policy
from rematscope.tracing.trace import trace
from rematscope.xla.compiling import check_target

source_info_util.register_exclusion(__file__)


def scheduled(f: Callable[..., Any], policy: Policy | None = None, *, target: str = "cpu") -> Callable[..., Any]:
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
      plain JAX. Call it under `jax.jit`: each call traces `f` anew.

    Raises:
      TraceError: when it is called, as `trace` does.
      PlanError: if `policy` is no function; when it is called, if it makes policies and is none, moves values to the
        host, or if a checkpoint of `f` is differentiated in it, or has to repeat an effect that none may.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from rematscope import scheduled
      >>> def net(ws, x):
      ...     for w in ws:
      ...         x = jnp.sin(x @ w)
      ...     return x.sum()
      >>> ws, x = [jnp.eye(4)] * 3, jnp.ones((2, 4))
      >>> late = scheduled(net, jax.checkpoint_policies.dots_saveable)
      >>> bool(jnp.allclose(jax.grad(late)(ws, x)[0], jax.grad(net)(ws, x)[0]))
      True
    """

    chosen = None if policy is None else _asked(policy)
    check_target(target)

    @functools.wraps(f)
    def function(*args: Any, **kwargs: Any) -> Any:
        flat, leaves = flattened(f, args, kwargs)
        check_arrays(leaves)
        # What is differentiated around and f closes over becomes an argument: f itself would hide it.
        converted, closed_over = jax.closure_convert(flat, *leaves)
        converted.__name__ = called(f)
        leaves += closed_over
        passes = trace(with_policy(converted, chosen), *leaves)
        if moved := sum(r.value.nbytes for r in passes.residuals if r.kind == "computed" and r.memory == "host"):
            raise PlanError(
                f"a policy moves {bytes_text(moved)} of {called(f)} to the host, and a schedule keeps all on the "
                "device. Give jax.checkpoint that policy, scheduled one that saves what fits, or auto a host=."
            )
        linearized = linearize(passes)
        late = schedule(linearized, linearized.kept, target=target)
        made = keeping(converted, linearized, late)
        jaxpr = jaxpr_of(converted, *leaves)
        if not any(checkpoints(jaxpr)) and any(eqn.primitive.name == "scan" for eqn, _ in everything(jaxpr)):
            # A checkpoint around a loop has all of that run again before any of it is used. Where the policy saves what
            # is handed from one iteration to the next, each of them can compute its own again instead.
            plain = linearize(trace(converted, *leaves))
            saved = plain.saved_by(chosen or nothing)
            if (inside := schedule(plain, saved, target=target)).kept_bytes <= late.kept_bytes:
                made = keeping(converted, plain, inside)
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


def _takes(f: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
    try:
        inspect.signature(f).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def keeping(f: Callable[..., Any], linearized: Linearized, programs: Schedule) -> Callable[..., Any]:
    """`f` with a backward pass that keeps some values and computes the others again late.

    Args:
      f: a function.
      linearized: its two programs, from a trace with arguments like those that it is called with.
      programs: both passes, if these values are kept.
    """
    shapes = [(v.shape, v.dtype) for v in linearized.passes.forward.inputs]
    forward, backward = (jax.jit(program.__call__) for program in (programs.forward, programs.backward))

    @functools.wraps(f)
    def function(*args: Any, **kwargs: Any) -> Any:
        flat, leaves = flattened(f, args, kwargs)
        check_arrays(leaves)
        given = [(jnp.shape(leaf), jax.typeof(leaf).dtype) for leaf in leaves]
        if given != shapes:
            raise PlanError(
                f"what to keep of {called(f)} was chosen for other shapes or dtypes of its arguments. Choose again for "
                "these."
            )
        tree = jax.tree.structure(jax.eval_shape(f, *args, **kwargs))
        result = differentiable(lambda *leaves: jax.tree.leaves(flat(*leaves)), forward, backward)(*leaves)
        return jax.tree.unflatten(tree, result)

    return function
