"""What an answer is tried on."""

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from grader.exercises import case_functions
from grader.exercises.spec import Case, Integers, OneOf

ranges = {
    "named": OneOf(("no", "yes")),
    "L": Integers(2, 32),
    "n": Integers(1, 8),
    "d": Integers(3, 12),
    "dtype": OneOf(("float32", "float16")),
    "called": OneOf(("directly", "jax.jit", "jax.vmap")),
}
signature = "offload_carry(layer)"


def cases(rng):
    """Draw stacks of few and many layers, whose layers name values of their own or do not."""
    return (
        case(rng, 5, int(rng.integers(2, 8)), int(rng.integers(6, 12)), named="no"),
        case(rng, int(rng.integers(6, 32)), 8, 12, named="yes", called="jax.jit"),
        case(rng, 2, 1, 3, named="yes", dtype="float16"),
        case(rng, 32, int(rng.integers(2, 8)), int(rng.integers(4, 12)), named="no", called="jax.vmap"),
    )


def _layer(w, x):
    return x + jnp.sin(jnp.sin(x) @ w)


def _layer_with_names(w, x):
    return x + jnp.sin(checkpoint_name(checkpoint_name(jnp.sin(x), "layer_sine") @ w, "layer_product"))


def _function(ws, x, *, name=lambda value, called: value):
    def turn(x, w):
        sine = jnp.sin(x)
        y = sine @ w
        here, s, product = jax.lax.stop_gradient((x, sine, y))
        return x + jnp.sin(y), (here, s, jnp.cos(here), product, jnp.cos(product))

    result, stacked = jax.lax.scan(turn, x, ws)
    for what, values in zip(("input", "sine", "first cosine", "matmul", "second cosine"), stacked, strict=True):
        name(values, f"the layers' {what}s")
    name(jnp.concatenate([stacked[0][1:], jax.lax.stop_gradient(result)[None]]), "the layers' outputs")
    for place in range(1, len(ws) if len(ws) <= 5 else 2):  # the first layers are enough to recognize a Python loop
        name(stacked[0][place], f"layer {place + 1}'s input")
    return name(result, "the result")


def case(rng, L, n, d, named, dtype="float32", called="directly", title=None):
    """Return a case with `L` layers on arrays of this shape."""
    batch = (2,) if called == "jax.vmap" else ()
    layer = {"no": _layer, "yes": _layer_with_names}[named]
    what = f"{L} layers{' that name values' * (named == 'yes')}"
    return Case(
        title or what + case_functions.where(called, dtype),
        (jax.ShapeDtypeStruct((L, d, d), dtype), jax.ShapeDtypeStruct((*batch, n, d), dtype)),
        transform=case_functions.transform(called, in_axes=(None, 0)),
        apply=lambda answer: answer(lambda w, x: layer(w, x)),
        function=_function,
        structure={"named": named, "L": L, "n": n, "d": d, "dtype": dtype, "called": called},
    )


shown = case(None, 48, 128, 256, named="no", title="for 48 layers of width 256")
