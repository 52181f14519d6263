"""What an answer is tried on."""

import jax
import jax.numpy as jnp
import numpy as np

from grader.exercise import Case

parameters = ("fs", "k")
signature = "sqrt_chain(fs, k)"


def cases(rng):
    """Chains of several lengths, at a width drawn anew. Of each function JAX keeps one cosine."""
    return (
        _case("7 functions in 3 segments", 7, 3, rng),
        _case("6 functions in 2 segments with one function twice and under vmap", 6, 2, rng, twice=True),
        _case("3 functions in 3 segments", 3, 3, rng),
        _case("2 functions in 1 segment", 2, 1, rng),
    )


def _case(name, n, k, rng, twice=False, shape=None):
    rows, width = shape or map(int, rng.permutation([5, 6, 7, 8, 9])[:2])
    weights = [_weights(rng, width) for _ in range(n)]
    functions = [_function(w) for w in weights]
    if twice:
        weights[-2], functions[-2] = weights[0], functions[0]

    def function(x, *, name=lambda value, called: value):
        for number, w in enumerate(weights, 1):
            name(jnp.cos(x), f"function {number}'s cosine")
            sine = name(jnp.sin(x), f"function {number}'s sine")
            x = name(sine @ w, "the result" if number == n else f"function {number}'s output")
        return x

    return Case(
        name,
        (jax.ShapeDtypeStruct((*((2,) if twice else ()), rows, width), jnp.float32),),
        transform=jax.vmap if twice else lambda f: f,
        # A list of its own each time: an answer may change it.
        apply=lambda answer: answer([*functions], k),
        function=function,
    )


def _function(w):
    return lambda x: jnp.sin(x) @ w


def _weights(rng, width):
    size = 2 / width**0.5
    return (size * rng.uniform(0.5, 1, (width, width)) * rng.choice([-1, 1], (width, width))).astype(np.float32)


shown = _case("for 16 functions of the checker's in 4 segments", 16, 4, np.random.default_rng(0), shape=(256, 64))
