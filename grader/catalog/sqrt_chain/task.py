"""What an answer is tried on."""

import jax
import jax.numpy as jnp
import numpy as np

from grader.exercises.spec import Case

parameters = ("fs", "k")
ranges: dict = {}
signature = "sqrt_chain(fs, k)"


def cases(rng):
    """Chains of several lengths, at a width drawn anew. Of each function JAX keeps one cosine."""
    return (
        # Two longer segments, two shorter ones: where fewer remain, many another way to cut a chain leads to the same.
        _case("10 functions in 4 segments", 10, 4, rng),
        _case("4 functions in 2 segments with one function twice and under vmap", 4, 2, rng, twice=True),
        _case("3 functions in 3 segments, used a second time", 3, 3, rng, used=True),
        _case("2 functions in 1 segment", 2, 1, rng),
    )


def _case(name, n, k, rng, twice=False, used=False, shape=None):
    rows, width = shape or map(int, rng.permutation([5, 6, 7, 8, 9])[:2])
    argument = jax.ShapeDtypeStruct((*((2,) if twice else ()), rows, width), jnp.float32)
    weights = [_weights(rng, width) for _ in range(n)]
    functions = [_function(w) for w in weights]
    if twice:
        weights[-2], functions[-2] = weights[0], functions[0]

    def function(x, *, name=lambda value, called: value):
        for place, w in enumerate(weights):
            name(jnp.cos(x), f"fs[{place}]'s cosine")
            sine = name(jnp.sin(x), f"fs[{place}]'s sine")
            x = name(sine @ w, "the result" if place == n - 1 else f"fs[{place}]'s output")
        return x

    def apply(answer):
        # A list of its own each time: an answer may change it.
        made = answer([*functions], k)
        if used and callable(made):
            jax.eval_shape(made, argument)
        return made

    return Case(name, (argument,), transform=jax.vmap if twice else lambda f: f, apply=apply, function=function)


def _function(w):
    return lambda x: jnp.sin(x) @ w


def _weights(rng, width):
    size = 2 / width**0.5
    return (size * rng.uniform(0.5, 1, (width, width)) * rng.choice([-1, 1], (width, width))).astype(np.float32)


shown = _case("for 16 functions of the checker's in 4 segments", 16, 4, np.random.default_rng(0), shape=(256, 64))
