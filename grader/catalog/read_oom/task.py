"""What an answer is tried on."""

import jax
import jax.numpy as jnp

from grader.exercises import case_functions
from grader.exercises.case_functions import float32_arrays
from grader.exercises.spec import Case, Integers, OneOf

ranges = {
    "L": Integers(2, 3),
    "b": Integers(1, 2),
    "n": Integers(20, 28),
    "a": Integers(2, 3),
    "c": Integers(24, 32),
    "m": Integers(13, 20),  # never the width, so that no two kinds of residuals have the same shape
    "called": OneOf(("directly", "jax.jit")),
}
signature = "read_oom(params, x, pairs, targets)"

_HEAD_WIDTH = 4
_WEIGHTS = "query", "key", "value", "out", "scale", "shift", "bias", "up", "down"


def cases(rng):
    """Draw few and many layers, heads and sequences."""
    return (
        case(rng, 2, 1, int(rng.integers(21, 27)), 2, 24, int(rng.integers(14, 20))),
        case(rng, 3, 1, 20, 3, 32, 13, called="jax.jit"),
        case(rng, 2, 2, 28, 2, int(rng.integers(25, 32)), 20),
    )


def normalize(x):
    """Divide each row by its root mean square."""
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def compute_layer(w, x, pairs, *, use_bias=True, activation=jax.nn.silu, first=normalize):
    """Return the output of the page's layer, the edges before and after their activation, and the attention weights.

    The keyword arguments replace parts of the layer, for known mistakes.
    """
    h = first(x)
    q, k, v = (jnp.einsum("bnd,dae->bnae", h, w[name]) for name in ("query", "key", "value"))
    scaled = pairs * w["scale"] + w["shift"]
    edges = activation(scaled)
    scores = jnp.einsum("bqae,bkae->baqk", q, k) / q.shape[-1] ** 0.5
    if use_bias:
        scores = scores + jnp.einsum("bijc,ca->baij", edges, w["bias"])
    weights = jax.nn.softmax(scores)
    context = jnp.einsum("baqk,bkae->bqae", weights, v)
    x = x + jnp.einsum("bnae,aed->bnd", context, w["out"])
    return x + jax.nn.silu(normalize(x) @ w["up"]) @ w["down"], scaled, edges, weights


def _function(
    query, key, value, out, scale, shift, bias, up, down, x, pairs, targets, *, name=lambda value, called: value
):
    params = dict(zip(_WEIGHTS, (query, key, value, out, scale, shift, bias, up, down), strict=True))

    def body(x, w):
        y, *values = compute_layer(w, x, pairs)
        return y, values

    y, (scaled, edges, weights) = jax.lax.scan(body, x, params)
    name(scaled, "the scaled pairs of all layers")
    name(edges, "the edges of all layers")
    name(weights, "the attention weights of all layers")
    for number in range(len(query)):
        name(weights[number], f"layer {number + 1}'s attention weights")
    return jnp.mean((y - targets) ** 2)


def case(rng, L, b, n, a, c, m, called="directly", title=None, head_width=_HEAD_WIDTH):
    """Return a case of these sizes."""
    d = a * head_width
    projection = (L, d, a, head_width)
    shapes = [projection] * 3 + [(L, a, head_width, d), (L, c), (L, c), (L, c, a)]
    shapes += [(L, d, m), (L, m, d), (b, n, d), (b, n, n, c), (b, n, d)]

    def apply(answer):
        def loss(query, key, value, out, scale, shift, bias, up, down, x, pairs, targets):
            weights = query, key, value, out, scale, shift, bias, up, down
            return answer(dict(zip(_WEIGHTS, weights, strict=True)), x, pairs, targets)

        return loss

    counts = f"{b} sequence{'s' * (b > 1)} of {n} tokens, {a} heads, {c} channels"
    return Case(
        title or f"{L} layers, {counts}, hidden width {m}" + case_functions.where(called),
        float32_arrays(*shapes),
        transform=case_functions.transform(called),
        apply=apply,
        function=_function,
        structure={"L": L, "b": b, "n": n, "a": a, "c": c, "m": m, "called": called},
    )


shown = case(None, 6, 4, 1024, 16, 64, 2048, title="for the sizes of the memory report", head_width=32)
