"""The checkpoints that a function has, and the same function with another policy in them."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.extend import source_info_util
from jax.extend.core import ClosedJaxpr, JaxprEqn, jaxpr_as_fun

from rematscope.errors import PlanError
from rematscope.ir import jax_internals
from rematscope.ir.jax_internals import AnyJaxpr, Policy
from rematscope.tracing.arguments import flattened

source_info_util.register_exclusion(__file__)


def nothing(*_: Any, **__: Any) -> bool:
    """A policy that saves nothing. A checkpoint that has it was given it here."""
    return False


def with_policy(f: Callable[..., Any], policy: Policy | None) -> Callable[..., Any]:
    """Returns `f` with `policy` in each of its checkpoints; with one checkpoint around all of it if it has none.

    Args:
      f: a function of pytrees of arrays. Checkpoints are found in functions that it calls, in jit, loops and branches,
        but not in custom rules.
      policy: what `jax.checkpoint` takes: None saves nothing.

    Raises:
      PlanError: when the function is called, if a checkpoint of `f` is differentiated in it.
    """

    @functools.wraps(f)
    def planned(*args: Any, **kwargs: Any) -> Any:
        flat, leaves = flattened(f, args, kwargs)
        jaxpr, out = jax.make_jaxpr(flat, return_shape=True)(*leaves)
        found = list(checkpoints(jaxpr))
        if any(map(jax_internals.is_differentiated, found)):
            # What the gradient inside keeps was decided when it was taken: another policy would not change that.
            raise PlanError(
                f"{getattr(f, '__name__', 'the function')} takes the gradient of a function that has a checkpoint, and "
                "names can only be chosen before that. Give the function itself and not its gradient."
            )
        if found:
            results = jaxpr_as_fun(jax_internals.jaxpr_with_policy(jaxpr, policy))(*leaves)
        else:
            results = jax.checkpoint(jaxpr_as_fun(jaxpr), policy=policy)(*leaves)  # f itself would be traced again
        return jax.tree.unflatten(jax.tree.structure(out), results)

    return planned


def without_checkpoints(f: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `f` without the checkpoints that `with_policy` reaches."""

    @functools.wraps(f)
    def plain(*args: Any, **kwargs: Any) -> Any:
        flat, leaves = flattened(f, args, kwargs)
        jaxpr, out = jax.make_jaxpr(flat, return_shape=True)(*leaves)
        jaxpr = jax_internals.rewritten(
            jaxpr,
            lambda eqn, _: [jax_internals.eqn_without_checkpoint(eqn) if jax_internals.is_checkpoint(eqn) else eqn],
        )
        return jax.tree.unflatten(jax.tree.structure(out), jaxpr_as_fun(jaxpr)(*leaves))

    return plain


def checkpoints(jaxpr: AnyJaxpr) -> Iterator[JaxprEqn]:
    """Every checkpoint that `with_policy` reaches, those in other ones included."""
    for eqn in jax_internals.body_of(jaxpr)[0].eqns:
        if jax_internals.is_checkpoint(eqn):
            yield eqn
        for body in () if jax_internals.is_custom_rule(eqn) else jax_internals.bodies(eqn):
            yield from checkpoints(body)


def jaxpr_of(f: Callable[..., Any], *args: Any, **kwargs: Any) -> ClosedJaxpr:
    """The jaxpr of `f` on the leaves of its arguments, arrays or `jax.ShapeDtypeStruct`s."""
    flat, leaves = flattened(f, args, kwargs)
    return jax.make_jaxpr(flat)(*leaves)
