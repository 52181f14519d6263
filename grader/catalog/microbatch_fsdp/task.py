"""What an answer is tried on."""

import jax
import jax.numpy as jnp

from grader.exercises import case_functions
from grader.exercises.spec import Case, Integers, OneOf

ranges = {
    "r": Integers(2, 8),
    "k": Integers(1, 8),
    "u": Integers(1, 2),
    "v": Integers(2, 8),
    "dtype": OneOf(("float32", "float16")),
    "called": OneOf(("directly", "jax.jit")),
}
signature = "microbatch_fsdp(params, x, k)"
devices = 8


def cases(rng):
    """Draw many microbatches, so that one is small compared with all of them; few; and a single one."""
    return (
        case(rng, int(rng.integers(4, 8)), 8, 1, int(rng.integers(5, 8))),
        case(rng, 8, int(rng.integers(6, 9)), 1, 4, called="jax.jit"),
        case(rng, 2, int(rng.integers(2, 4)), 2, 2, dtype="float16"),
        case(rng, int(rng.integers(2, 9)), 1, 1, 8),
    )


def most_hidden(r, k, d, m):
    """The memory that the two passes may need on a device, in units of the hidden layer of one microbatch.

    A right answer needs up to 1.3 units in addition to the weights and the rows, with three copies of the rows, and the
    usual one needs one copy. Saving `h` of all microbatches takes `k` units more than the usual answer. Where `is_wide`
    holds, `k` is at least 6 and the rows' share at most `k / 4` units per copy, so that it exceeds this limit by more
    than half a unit.
    """
    weights, rows = 6 * d * m, 3 * k * r * d
    return 3 + round((weights + rows) / (r * m))


def is_wide(r, k, d, m):
    """Return whether the hidden layers of all microbatches are large next to the weights and the rows."""
    return r >= 4 and k >= 6 and m >= 4 * d


def case(rng, r, k, u, v, dtype="float32", called="directly", title=None):
    """Return a case with `k` microbatches of `r` rows."""
    d, m = 8 * u, 8 * v

    def function(up, down, x, *, name=lambda value, called: value):
        up = name(jax.lax.all_gather(up, "devices", tiled=True), "the gathered up")
        down = name(jax.lax.all_gather(down, "devices", tiled=True), "the gathered down")
        h = jnp.concatenate([rows @ up for rows in jnp.split(x, k)])
        name(h, "h of all microbatches")
        sine = name(jnp.sin(h), "the sine of h of all microbatches")
        name(jnp.cos(h), "the cosine of h of all microbatches")
        if k > 1:
            name(h[:r], "one microbatch's hidden layer")
        return x + jnp.concatenate([rows @ down for rows in jnp.split(sine, k)])

    what = f"{k} microbatch{'es' * (k > 1)} of {r} rows, width {d}, hidden width {m}"
    return Case(
        title or what + case_functions.where(called, dtype),
        tuple(jax.ShapeDtypeStruct(shape, dtype) for shape in ((d, m), (m, d), (8 * k * r, d))),
        apply=lambda answer: lambda up, down, x: answer((up, down), x, k),
        transform=case_functions.on_devices(called, devices=8),
        function=function,
        structure={"r": r, "k": k, "u": u, "v": v, "dtype": dtype, "called": called},
    )


shown = case(None, 64, 8, 16, 64, title="for 8 microbatches of 64 rows per device and a layer of width 128")
