"""What an answer is tried on."""

import jax
import jax.numpy as jnp
import numpy as np

from grader.exercises import case_functions
from grader.exercises.spec import Case, Integers, OneOf

ranges = {
    "n": Integers(1, 32),
    "a": Integers(2, 32),
    "b": Integers(2, 32),
    "c": Integers(1, 32),
    "dtype": OneOf(("float32", "float16", "bfloat16")),
    "called": case_functions.CALLED,
}
signature = "name_preactivation(x, W1, W2)"


def cases(rng):
    """Return cases with each width inside its range, at the lower end, and at the upper end.

    The minimum of a and b is 2, because dividing a row of one element by its root mean square would only leave its
    sign.
    """
    ends = rng.integers(2, size=4)
    least, most = np.array([1, 2, 2, 1]), np.full(4, 32)
    jit, vmap = map(str, rng.permutation(["jax.jit", "jax.vmap"]))
    return (
        case(rng, *map(int, np.where(ends, least, most))),
        case(rng, *map(int, np.where(ends, most, least)), called=jit),
        case(rng, *map(int, rng.integers(8, 32, size=4)), dtype="float16", called=vmap),
        case(
            rng,
            *map(int, rng.integers(8, 32, size=4)),
            dtype="bfloat16",
            called=str(rng.choice(case_functions.CALLED.values)),
        ),
    )


def case(rng, n, a, b, c, *, dtype="float32", called="directly"):
    """Return a case with these numbers of rows and these widths."""
    batch = (2,) if called == "jax.vmap" else ()
    return Case(
        f"{dtype}, {n} {'row' if n == 1 else 'rows'}, widths {a}, {b}, {c}{case_functions.where(called)}",
        _shaped_arrays((*batch, n, a), (a, b), (b, c), dtype=dtype),
        transform=case_functions.transform(called, in_axes=(0, None, None)),
        structure={"n": n, "a": a, "b": b, "c": c, "dtype": dtype, "called": called},
    )


def _shaped_arrays(*shapes, dtype=jnp.float32):
    return tuple(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes)


shown = Case("at the page's shapes", _shaped_arrays((256, 64), (64, 64), (64, 64)))
