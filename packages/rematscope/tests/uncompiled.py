"""Traced functions that run without being compiled."""

import jax
from jax.extend.core import jaxpr_as_fun


def by_operation(f):
    """Return `f` as a function that is traced as by `jit`, and runs one operation after the other.

    To compile a program of a few small arrays takes about ten times as long. XLA's cache of single operations lasts for
    all tests.
    """

    def run(*args):
        program, shapes = jax.make_jaxpr(f, return_shape=True)(*args)
        with jax.disable_jit():
            results = jaxpr_as_fun(program)(*jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(shapes), results)

    return run
