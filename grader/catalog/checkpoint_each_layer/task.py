"""What an answer is tried on."""

import jax
import jax.numpy as jnp

from grader.exercises import case_functions
from grader.exercises.spec import Case, Integers, OneOf

parameters = ("W1", "W2", "W3", "x")
ranges = {
    **{width: Integers(1, 32) for width in "abcd"},
    "dtype": OneOf(("float32", "float16", "bfloat16")),
    "called": case_functions.CALLED,
}
signature = "checkpoint_each_layer(W1, W2, W3, x)"


def cases(rng):
    """Widths each at one end of its range, at the other, and between."""
    ends = rng.choice([1, 32], size=4)
    jit, vmap = rng.permutation(["jax.jit", "jax.vmap"])
    return (
        _make_case(ends, "float32", "as it is"),
        _make_case(33 - ends, "float32", jit),
        _make_case(rng.integers(2, 32, size=4), "float16", vmap),
        _make_case(rng.integers(8, 32, size=4), "bfloat16", rng.choice(case_functions.CALLED.values)),
    )


def case(rng, a, b, c, d, dtype, called):
    """Layers of these widths."""
    return _make_case((a, b, c, d), dtype, called)


def _make_case(widths, dtype, called):
    a, b, c, d = map(int, widths)
    return Case(
        f"{dtype}, widths {a}, {b}, {c}, {d}{case_functions.where(called)}",
        _argument_shapes(a, b, c, d, dtype=dtype, batch=(3,) if called == "jax.vmap" else ()),
        transform=case_functions.transform(called, in_axes=(None, None, None, 0)),
        structure={"a": a, "b": b, "c": c, "d": d, "dtype": str(dtype), "called": str(called)},
    )


def _argument_shapes(a, b, c, d, dtype, batch=()):
    shapes = [(b, a), (c, b), (d, c), (*batch, a)]
    return tuple(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes)


shown = Case("at the page's shapes", _argument_shapes(4, 5, 6, 7, dtype=jnp.float32))
