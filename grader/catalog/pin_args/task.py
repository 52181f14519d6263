"""What an answer is tried on."""

import jax
import jax.numpy as jnp
import numpy as np

from grader.exercises import case_functions
from grader.exercises.spec import Case, Integers, OneOf, given

parameters = ("f",)
ranges = {
    "weights": Integers(1, 3),
    "n": Integers(2, 12),
    "d": Integers(3, 12),
    "dtype": OneOf(("float32", "float16")),
    "called": case_functions.CALLED,
}
signature = "pin_args(f)"


def cases(rng):
    """Draw layers with one, two and three weights."""
    n, d = int(rng.integers(3, 12)), int(rng.integers(4, 12))
    (few, one), (many, other) = rng.permutation([(1, 2), (3, 12)])
    jit, vmap = map(str, rng.permutation(["jax.jit", "jax.vmap"]))
    return (
        _make_case(2, n, d, "float32", "as it is", rng),
        _make_case(int(few), int(one), 12, "float32", jit, rng),
        _make_case(int(many), int(other), 3, "float16", vmap, rng),
    )


def case(rng, weights, n, d, dtype, called):
    """Return a case for a layer with so many weights."""
    return _make_case(weights, n, d, dtype, called, rng)


def _without_name(value, called):
    return value


def _layer(ws, x, name):
    for number, w in enumerate(ws, 1):
        product = name(x @ w, f"matmul {number}")
        name(jnp.cos(product), f"the cosine of matmul {number}")
        x = name(jnp.sin(product), f"the sine of matmul {number}")
    return x


def _one(w1, x, *, name=_without_name):
    return _layer((w1,), x, name)


def _two(w1, w2, x, *, name=_without_name):
    return _layer((w1, w2), x, name)


def _three(w1, w2, w3, x, *, name=_without_name):
    return _layer((w1, w2, w3), x, name)


def _make_case(weights, n, d, dtype, called, rng, name=None):
    batch = (2,) if called == "jax.vmap" else ()
    shapes = [(d, d)] * weights + [(n, d)]
    function = (_one, _two, _three)[weights - 1]
    return Case(
        name
        or f"a layer with {weights} weight{'s' * (weights > 1)}"
        + ", in float16" * (dtype == "float16")
        + case_functions.where(called),
        tuple(jax.ShapeDtypeStruct((*batch, *shape), dtype) for shape in shapes),
        transform=case_functions.transform(called),
        apply=lambda answer: answer(given(function)),
        function=function,
        structure={"weights": weights, "n": n, "d": d, "dtype": dtype, "called": called},
    )


shown = _make_case(2, 256, 64, "float32", "as it is", np.random.default_rng(0), name="for a layer with two weights")
