"""What an answer is tried on."""

import jax
import jax.numpy as jnp

from grader.exercise import Case

parameters = ("w1", "w2", "x")
signature = "checkpoint_dot_policy(w1, w2, x)"


def cases(rng):
    """Cases of shapes drawn anew: an answer made for one shape fails in another.

    The width d is odd, for a reason that `expect.draw` gives, and the number of rows even, so that the two differ.
    Every case is traced as jax.jit would trace it, so jit needs no case of its own.
    """
    widths, rows = rng.permutation([5, 7, 9]), rng.permutation([6, 8, 10])
    return (
        Case("float32", _arguments(widths[0], rows[0], jnp.float32)),
        Case("bfloat16", _arguments(widths[1], rows[1], jnp.bfloat16)),
        Case("vmap over w1, w2 and x", _arguments(widths[2], rows[2], jnp.float32, batch=(2,)), transform=jax.vmap),
    )


def _arguments(d, n, dtype, batch=()):
    shapes = [(d, d), (d, d), (n, d)]
    return tuple(jax.ShapeDtypeStruct((*batch, *map(int, shape)), dtype) for shape in shapes)


shown = Case("the page's shapes", _arguments(64, 256, jnp.float32))
