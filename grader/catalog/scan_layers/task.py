"""What an answer is tried on."""

import jax

from grader.exercises import case_functions
from grader.exercises.spec import Case, Integers, OneOf

ranges = {
    "L": Integers(1, 64),
    "d": Integers(1, 12),
    "dtype": OneOf(("float32", "float16")),
    "called": OneOf(("directly", "under jax.jit", "under jax.vmap")),
}
signature = "scan_layers(ws, x)"


def cases(rng):
    """Return the stacks of all heights and widths. To trace a high one takes no longer, and it is interpreted."""
    return (
        case(rng, 5, int(rng.integers(6, 10))),
        case(rng, 1, 1),
        case(rng, int(rng.integers(2, 6)), 12, "float16", "under jax.vmap"),
        case(rng, int(rng.integers(6, 64)), int(rng.integers(2, 12)), called="under jax.vmap"),
        case(rng, 64, int(rng.integers(2, 12)), called="under jax.jit"),
    )


def case(rng, L, d, dtype="float32", called="directly", name=None):
    """Return a stack of this height and width."""
    batch = (2,) if called == "under jax.vmap" else ()
    what = f"{L} layer{'s' * (L > 1)} of width {d}" + " in float16" * (dtype == "float16")
    return Case(
        name or what + f", {called}" * (called != "directly"),
        (jax.ShapeDtypeStruct((L, d, d), dtype), jax.ShapeDtypeStruct((*batch, d), dtype)),
        transform=case_functions.transform(called.removeprefix("under "), in_axes=(None, 0)),
        structure={"L": L, "d": d, "dtype": dtype, "called": called},
    )


shown = case(None, 48, 256, name="for 48 layers of width 256")
