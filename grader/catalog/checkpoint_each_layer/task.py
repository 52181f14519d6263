"""What an answer is tried on."""

import jax
import jax.numpy as jnp

from grader.exercises.spec import Case

parameters = ("W1", "W2", "W3", "x")
ranges: dict = {}
signature = "checkpoint_each_layer(W1, W2, W3, x)"


def cases(rng):
    """Cases of shapes drawn anew. All widths of a net differ, so that no two of its values can be mixed up."""
    return (
        Case("float32", _arguments(rng, jnp.float32)),
        Case("float16", _arguments(rng, jnp.float16)),
        Case(
            "vmap over x",
            _arguments(rng, jnp.float32, batch=(3,)),
            transform=lambda answer: jax.vmap(answer, in_axes=(None, None, None, 0)),
        ),
    )


def _arguments(rng, dtype, batch=()):
    return _shapes(rng.permutation([5, 6, 7, 8, 9])[:4], dtype, batch)


def _shapes(sizes, dtype, batch=()):
    a, b, c, d = map(int, sizes)
    shapes = [(b, a), (c, b), (d, c), (*batch, a)]
    return tuple(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes)


shown = Case("at the page's shapes", _shapes((4, 5, 6, 7), jnp.float32))
