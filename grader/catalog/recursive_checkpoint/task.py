"""What an answer is tried on."""

import jax
import jax.numpy as jnp
import numpy as np

from grader.exercises.spec import Case

parameters = ("funs",)
ranges: dict = {}
signature = "recursive_checkpoint(funs)"


def cases(rng):
    """Chains whose lengths are powers of two, at a width drawn anew. Of each function JAX keeps one cosine."""
    return (
        # Large enough that a buffer's alignment is nothing beside it.
        _case("16 functions", 16, rng, shape=(int(rng.integers(400, 600)), 8)),
        _case("4 functions under vmap", 4, rng, batch=(2,)),
        _case("1 function", 1, rng),
    )


def _case(name, n, rng, batch=(), shape=None):
    rows, width = shape or map(int, rng.permutation([5, 6, 7, 8, 9])[:2])
    weights = [_weights(rng, width) for _ in range(n)]

    def function(x, *, name=lambda value, called: value):
        for place in reversed(range(n)):
            name(jnp.cos(x), f"funs[{place}]'s cosine")
            sine = name(jnp.sin(x), f"funs[{place}]'s sine")
            x = name(sine @ weights[place], f"funs[{place}]'s output" if place else "the result")
        return x

    return Case(
        name,
        (jax.ShapeDtypeStruct((*batch, rows, width), jnp.float32),),
        transform=jax.vmap if batch else lambda f: f,
        # A list of its own each time: an answer may change it.
        apply=lambda answer: answer([_function(w) for w in weights]),
        function=function,
    )


def _function(w):
    return lambda x: jnp.sin(x) @ w


def _weights(rng, width):
    size = 2 / width**0.5
    return (size * rng.uniform(0.5, 1, (width, width)) * rng.choice([-1, 1], (width, width))).astype(np.float32)


shown = _case("for 16 functions of the checker's", 16, np.random.default_rng(0), shape=(256, 64))
