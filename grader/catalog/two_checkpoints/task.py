"""What an answer is tried on."""

import jax

from grader.exercises import case_functions
from grader.exercises.spec import Case, Integers, OneOf

parameters = ("W1", "W2", "W3", "x")
ranges = {
    **{width: Integers(1, 32) for width in "abcd"},
    "dtype": OneOf(("float32", "float16", "bfloat16")),
    "called": case_functions.CALLED,
}
signature = "two_checkpoints(W1, W2, W3, x)"


def cases(rng):
    """Return the narrower output first and second, with widths at both ends of their range, and neighboring widths.

    In the first case, a comparison of any other widths, or of the sizes of the weights, gives the wrong order.
    """
    jit, vmap = rng.permutation(["jax.jit", "jax.vmap"])
    narrow = rng.integers(2, 31)
    neighbors, doubled = rng.permutation([narrow, narrow + 1]), rng.choice([(8, 16), (15, 30), (4, 9)])
    return (
        _make_case((32, 1, 32, 32), "float32", "directly"),
        _make_case((1, 32, 1, 1), "float32", jit),
        _make_case((rng.integers(2, 32), *neighbors, rng.integers(2, 32)), "float16", vmap),
        _make_case(
            (rng.integers(8, 32), *rng.permutation(doubled), rng.integers(8, 32)),
            "bfloat16",
            rng.choice(case_functions.CALLED.values),
        ),
    )


def case(rng, a, b, c, d, dtype, called):
    """Return layers of these widths."""
    return _make_case((a, b, c, d), dtype, called)


def fits(structure):
    """Return whether one of the two outputs is narrower."""
    return structure["b"] != structure["c"]


def _make_case(widths, dtype, called, title=None):
    a, b, c, d = map(int, widths)
    return Case(
        title or f"{dtype}, widths {a}, {b}, {c}, {d}{case_functions.where(called)}",
        _argument_shapes(a, b, c, d, dtype=dtype, batch=(3,) if called == "jax.vmap" else ()),
        transform=case_functions.transform(called, in_axes=(None, None, None, 0)),
        structure={"a": a, "b": b, "c": c, "d": d, "dtype": str(dtype), "called": str(called)},
    )


def _argument_shapes(a, b, c, d, dtype, batch=()):
    shapes = [(b, a), (c, b), (d, c), (*batch, a)]
    return tuple(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes)


shown = _make_case((4, 5, 6, 7), "float32", "directly", title="at the page's shapes")
