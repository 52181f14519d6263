"""What an answer is tried on."""

import jax

from grader.exercises import case_functions
from grader.exercises.spec import Case, Integers, OneOf

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
    jit, vmap = map(str, rng.permutation(["jax.jit", "jax.vmap"]))
    narrow = int(rng.integers(2, 31))
    neighbors, doubled = rng.permutation([narrow, narrow + 1]), rng.choice([(8, 16), (15, 30), (4, 9)])
    return (
        case(rng, 32, 1, 32, 32),
        case(rng, 1, 32, 1, 1, called=jit),
        case(rng, *map(int, (rng.integers(2, 32), *neighbors, rng.integers(2, 32))), dtype="float16", called=vmap),
        case(
            rng,
            *map(int, (rng.integers(8, 32), *rng.permutation(doubled), rng.integers(8, 32))),
            dtype="bfloat16",
            called=str(rng.choice(case_functions.CALLED.values)),
        ),
    )


def fits(structure):
    """Return whether one of the two outputs is narrower."""
    return structure["b"] != structure["c"]


def case(rng, a, b, c, d, *, dtype="float32", called="directly", title=None):
    """Return layers of these widths."""
    shapes = (b, a), (c, b), (d, c), ((3, a) if called == "jax.vmap" else (a,))
    return Case(
        title or f"{dtype}, widths {a}, {b}, {c}, {d}{case_functions.where(called)}",
        tuple(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes),
        transform=case_functions.transform(called, in_axes=(None, None, None, 0)),
        structure={"a": a, "b": b, "c": c, "d": d, "dtype": dtype, "called": called},
    )


shown = case(None, 4, 5, 6, 7, title="at the page's shapes")
