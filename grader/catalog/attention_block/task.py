"""What an answer is tried on."""

import jax
import jax.numpy as jnp
import numpy as np

from grader.exercises import case_functions
from grader.exercises.spec import Case, Integers, OneOf

ranges = {
    "a": Integers(1, 4),
    "d": Integers(2, 4),
    "s": Integers(4, 64),
    "dtype": OneOf(("float32", "bfloat16")),
    "called": case_functions.CALLED,
}
signature = "attention_block(wq, wk, wv, wo, x)"


def cases(rng):
    """Return sequences shorter than the width, between the width and three times the width, and longer ones.

    Sequences just below and just above three times the width are among them.
    """
    jit, vmap = map(str, rng.permutation(["jax.jit", "jax.vmap"]))
    return (
        case(rng, int(rng.integers(2, 4)), 4, int(rng.integers(5, 8))),
        case(rng, 2, int(rng.integers(3, 5)), 64, called=jit),
        case(rng, 4, 2, 23, called=vmap),
        case(rng, 2, 4, 25, "bfloat16"),
        case(rng, 4, 4, int(rng.integers(17, 40)), "bfloat16", "jax.jit"),
        case(rng, 1, 2, 4),
    )


def fits(structure):
    """Return whether one of the two choices avoids more recompute than the other."""
    return structure["s"] != 3 * structure["a"] * structure["d"]


def _compute_block(wq, wk, wv, wo, x, *, name=lambda value, name: value):
    q = name(jnp.einsum("sh,had->sad", x, wq), "q")
    k = name(jnp.einsum("sh,had->sad", x, wk), "k")
    v = name(jnp.einsum("sh,had->sad", x, wv), "v")
    scale = np.asarray(q.shape[-1] ** -0.5, q.dtype)
    scores = name(jnp.einsum("qad,kad->aqk", q, k) * scale, "the scores")
    weights = name(jax.nn.softmax(scores.astype(jnp.float32)).astype(x.dtype), "the attention weights")
    context = name(jnp.einsum("aqk,kad->qad", weights, v), "context")
    return name(x + jnp.einsum("sad,adh->sh", context, wo), "the result")


def case(rng, a, d, s, dtype="float32", called="directly", title=None):
    """Return a block of these sizes."""
    h = a * d
    batch = (2,) if called == "jax.vmap" else ()
    shapes = *[(h, a, d)] * 3, (a, d, h), (*batch, s, h)
    return Case(
        title or f"{s} tokens, width {h}, {a} head{'s' * (a > 1)}" + case_functions.where(called, dtype),
        tuple(jax.ShapeDtypeStruct(shape, jnp.dtype(dtype)) for shape in shapes),
        transform=case_functions.transform(called, in_axes=(None, None, None, None, 0)),
        function=_compute_block,
        structure={"a": a, "d": d, "s": s, "dtype": dtype, "called": called},
    )


shown = case(None, 4, 16, 512, title="for 512 tokens, width 64 and 4 heads")
