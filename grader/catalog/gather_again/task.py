"""What an answer is tried on."""

import jax
import jax.numpy as jnp

from grader.exercises import case_functions
from grader.exercises.spec import Case, Integers, OneOf

ranges = {
    "n": Integers(2, 8),
    "u": Integers(1, 3),
    "v": Integers(1, 4),
    "dtype": OneOf(("float32", "float16")),
    "called": OneOf(("directly", "jax.jit")),
}
signature = "gather_again(params, x)"
devices = 8


def cases(rng):
    """Draw narrow and wide layers with few and many rows."""
    return (
        case(rng, int(rng.integers(3, 8)), 2, int(rng.integers(2, 4))),
        case(rng, 8, 1, 4, called="jax.jit"),
        case(rng, 2, 3, 1, dtype="float16"),
    )


def _function(up, down, x, *, name=lambda value, called: value):
    up = name(jax.lax.all_gather(up, "devices", tiled=True), "the gathered up")
    down = name(jax.lax.all_gather(down, "devices", tiled=True), "the gathered down")
    h = name(x @ up, "h")
    sine = name(jnp.sin(h), "the sine of h")
    name(jnp.cos(h), "the cosine of h")
    return x + name(sine @ down, "the second matmul")


def case(rng, n, u, v, dtype="float32", called="directly", title=None):
    """Return a case for a layer of these widths."""
    d, m = 8 * u, 8 * v
    what = f"width {d}, hidden width {m}"
    return Case(
        title or what + case_functions.where(called, dtype),
        tuple(jax.ShapeDtypeStruct(shape, dtype) for shape in ((d, m), (m, d), (8 * n, d))),
        apply=lambda answer: lambda up, down, x: answer((up, down), x),
        transform=case_functions.on_devices(called, devices=8),
        function=_function,
        structure={"n": n, "u": u, "v": v, "dtype": dtype, "called": called},
    )


shown = case(None, 64, 16, 64, title="for a layer of width 128 on eight devices")
