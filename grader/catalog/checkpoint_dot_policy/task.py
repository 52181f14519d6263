"""What an answer is tried on."""

import jax
import jax.numpy as jnp

from grader.exercises.spec import Case

parameters = ("w1", "w2", "x")
ranges: dict = {}
signature = "checkpoint_dot_policy(w1, w2, x)"


def cases(rng):
    """Cases of shapes drawn anew: an answer made for one shape fails in another.

    The width d is odd, for a reason that `expect.draw` gives, and the number of rows even, so that the two differ.
    Every case is traced as jax.jit would trace it, so jit needs no case of its own.
    """
    widths, rows = rng.permutation([5, 7, 9]), rng.permutation([6, 8, 10])
    return (
        # Rows enough for products that have more elements than on the page: a policy may ask for that.
        Case("float32", _arguments(widths[0], 2 * (8_250 // widths[0]), jnp.float32)),
        # It may ask for dimensions too. What is mapped by itself gives a product one more, but no batch dimension, even
        # if x and w1 each have one.
        Case(
            "bfloat16 under vmap over x and then w1",
            _arguments(widths[1], rows[1], jnp.bfloat16, w1=(2,), x=(2,)),
            transform=lambda answer: jax.vmap(jax.vmap(answer, in_axes=(None, None, 0)), in_axes=(0, None, None)),
        ),
        Case(
            "vmap over all three arguments",
            _arguments(widths[2], rows[2], jnp.float32, w1=(2,), w2=(2,), x=(2,)),
            transform=jax.vmap,
        ),
    )


def _arguments(d, n, dtype, w1=(), w2=(), x=()):
    shapes = [(*w1, d, d), (*w2, d, d), (*x, n, d)]
    return tuple(jax.ShapeDtypeStruct(tuple(map(int, shape)), dtype) for shape in shapes)


shown = Case("at the page's shapes", _arguments(64, 256, jnp.float32))
