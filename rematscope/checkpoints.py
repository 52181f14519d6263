"""The checkpoints that a function has, and the same function with another policy in them."""

import functools
from collections.abc import Callable, Iterator

import jax
from jax.extend.core import jaxpr_as_fun

from rematscope import _jax


def with_policy(f: Callable, policy: Callable | None) -> Callable:
    """Returns `f` with `policy` in each of its checkpoints; with one checkpoint around all of it if it has none.

    Args:
      f: a function of pytrees of arrays. Checkpoints are found in functions that it calls, in jit, loops and branches.
      policy: what `jax.checkpoint` takes: None saves nothing.
    """

    @functools.wraps(f)
    def planned(*args, **kwargs):
        leaves, tree = jax.tree.flatten((args, kwargs))

        def flat(*leaves):
            args, kwargs = jax.tree.unflatten(tree, leaves)
            return f(*args, **kwargs)

        jaxpr, out = jax.make_jaxpr(flat, return_shape=True)(*leaves)
        if not any(checkpoints(jaxpr)):
            return jax.checkpoint(flat, policy=policy)(*leaves)
        results = jaxpr_as_fun(_jax.with_policy(jaxpr, policy))(*leaves)
        return jax.tree.unflatten(jax.tree.structure(out), results)

    return planned


def checkpoints(jaxpr) -> Iterator[jax.extend.core.JaxprEqn]:
    """Every checkpoint that stands in no other one."""
    for eqn in _jax.body_of(jaxpr)[0].eqns:
        if _jax.is_checkpoint(eqn):
            yield eqn
        else:
            for body in _jax.bodies(eqn):
                yield from checkpoints(body)
