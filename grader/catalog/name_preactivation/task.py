"""What an answer is tried on."""

import jax
import jax.numpy as jnp

from grader.exercises.spec import Case

parameters = ("x", "W1", "W2")
ranges: dict = {}
signature = "name_preactivation(x, W1, W2)"


def cases(rng):
    """Cases of shapes drawn anew. All widths of a case differ."""
    return (
        Case("float32", _arguments(rng, jnp.float32)),
        Case("float16", _arguments(rng, jnp.float16)),
        Case(
            "vmap over x",
            _arguments(rng, jnp.float32, batch=(2,)),
            transform=lambda answer: jax.vmap(answer, in_axes=(0, None, None)),
        ),
    )


def _arguments(rng, dtype, batch=()):
    n, a, b, c = map(int, rng.permutation([5, 6, 7, 8, 9])[:4])
    return _arrays((*batch, n, a), (a, b), (b, c), dtype=dtype)


def _arrays(*shapes, dtype=jnp.float32):
    return tuple(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes)


shown = Case("at the page's shapes", _arrays((256, 64), (64, 64), (64, 64)))
