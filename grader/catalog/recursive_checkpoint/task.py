"""What an answer is tried on."""

import jax
import numpy as np
from jax import lax

from grader.exercises import case_functions
from grader.exercises.case_functions import mixing_weights, product
from grader.exercises.spec import Case, Integers, OneOf

parameters = ("funs",)
ranges = {
    "n": Integers(1, 32, "a power of two"),
    "axes": Integers(1, 3),
    "dtype": OneOf(("float32", "float16")),
    "called": OneOf(("as it is", "under jax.jit", "under jax.vmap")),
}
signature = "recursive_checkpoint(funs)"


def cases(rng):
    """Chains of all lengths, with a random width. Of each function JAX saves one cosine."""
    return (
        _make_case(8, rng, shape=_draw_large_shape(rng)),
        _make_case(1, rng),
        _make_case(2, rng, axes=1, called="under jax.jit"),
        _make_case(int(rng.choice([4, 16])), rng, axes=3, dtype="float16", called="under jax.vmap"),
        _make_case(32, rng, shape=_draw_large_shape(rng)),
    )


def _draw_large_shape(rng):
    """Large enough that a buffer's alignment is negligible."""
    return int(rng.integers(400, 600)), 8


def fits(structure):
    """32 functions are asked about once, as the page says."""
    return structure["n"] < 32


def case(rng, n, axes, dtype, called):
    """Return a chain of this length."""
    return _make_case(
        n, rng, axes, dtype, called, shape=(2,) * (axes - 2) + _draw_large_shape(rng) if axes > 1 else None
    )


def _make_case(n, rng, axes=2, dtype="float32", called="as it is", shape=None, name=None):
    shape = shape or (*(2,) * (axes - 2), *map(int, rng.permutation([5, 6, 7, 8, 9])[: min(axes, 2)]))
    batch = (2,) if called == "under jax.vmap" else ()
    weights = [mixing_weights(rng, shape[-1], 1.5, dtype) for _ in range(n)]

    def function(x, *, name=lambda value, called: value):
        for place in reversed(range(n)):
            name(lax.cos(lax.stop_gradient(x)), f"funs[{place}]'s cosine")
            sine = name(lax.sin(x), f"funs[{place}]'s sine")
            x = name(product(sine, weights[place]), f"funs[{place}]'s output" if place else "the result")
        return x

    what = f"{n} function{'s' * (n > 1)}{_OF[axes]}" + " in float16" * (dtype == "float16")
    return Case(
        name or what + f" {called}" * (called != "as it is"),
        (jax.ShapeDtypeStruct((*batch, *shape), dtype),),
        transform=case_functions.transform(called.removeprefix("under ")),
        # A list of its own each time: an answer may change it.
        apply=lambda answer: answer([_make_function(w) for w in weights]),
        function=function,
        structure={"n": n, "axes": axes, "dtype": dtype, "called": called},
    )


_OF = {1: " of vectors", 2: "", 3: " of arrays with three axes"}


def _make_function(w):
    return lambda x: product(lax.sin(x), w)


shown = _make_case(16, np.random.default_rng(0), shape=(256, 64), name="for 16 functions of the grader")
