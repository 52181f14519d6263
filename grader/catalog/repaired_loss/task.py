"""What an answer is tried on."""

import jax
import jax.numpy as jnp

from grader.exercises import case_functions
from grader.exercises.case_functions import float32_arrays
from grader.exercises.spec import Case, Integers, OneOf

ranges = {
    "L": Integers(2, 4),
    "n": Integers(8, 10),
    "a": Integers(1, 3),
    "m": Integers(9, 16),
    "called": OneOf(("directly", "jax.jit")),
}
signature = "repaired_loss(params, x, targets)"

_HEAD_WIDTH = 4
_WEIGHTS = "query", "key", "value", "out", "gate", "up", "down"


def cases(rng):
    """Draw few and many layers, one and several heads."""
    return (
        case(rng, 3, 9, 2, int(rng.integers(10, 16))),
        case(rng, 2, 8, 1, 9, called="jax.jit"),
        case(rng, 4, 10, 3, 16),
    )


def rms_norm(x):
    """Divide each row by its root mean square."""
    return x * jax.lax.rsqrt(jnp.mean(x**2, axis=-1, keepdims=True) + 1e-6)


def rotate(x):
    """Apply rotary position embeddings to (n, a, h)."""
    frequencies = 1e4 ** (-jnp.arange(0, x.shape[-1], 2) / x.shape[-1])
    angles = jnp.arange(len(x))[:, None, None] * frequencies
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1)


def compute_layer(weights, x):
    """Return the output of the page's layer, its masked attention scores and the result of attention."""
    normed = rms_norm(x)
    query, key = (rotate(jnp.einsum("nd,dah->nah", normed, weights[which])) for which in ("query", "key"))
    value = jnp.einsum("nd,dah->nah", normed, weights["value"])
    scores = jnp.einsum("qah,kah->aqk", query, key) / query.shape[-1] ** 0.5
    scores = jnp.where(jnp.tri(len(x), dtype=bool), scores, -1e9)
    context = jnp.einsum("aqk,kah->qah", jax.nn.softmax(scores), value)
    x = x + jnp.einsum("qah,ahd->qd", context, weights["out"])
    normed = rms_norm(x)
    return x + (jax.nn.silu(normed @ weights["gate"]) * (normed @ weights["up"])) @ weights["down"], scores, context


def z_loss(scores):
    """Return the mean square of the log of each softmax's denominator."""
    return jnp.mean(jax.nn.logsumexp(scores, axis=-1) ** 2)


def _function(query, key, value, out, gate, up, down, x, targets, *, name=lambda value, called: value):
    def body(x, weights):
        y, scores, context = compute_layer(weights, x)
        return y, (x, scores, context, z_loss(scores))

    weights = dict(zip(_WEIGHTS, (query, key, value, out, gate, up, down), strict=True))
    y, (inputs, scores, contexts, penalties) = jax.lax.scan(body, x, weights)
    name(inputs, "the layers' inputs")
    name(scores, "the layers' scores")
    name(jnp.exp(scores - jnp.max(scores, axis=-1, keepdims=True)), "the exponentials of the layers' scores")
    name(contexts, "the layers' contexts")
    error = name(name(y, "the last layer's output") - targets, "the error")
    # Residuals of a square, however it is written.
    name(2 * error, "twice the error")
    name(-error, "the negative error")
    name(-2 * error, "twice the negative error")
    return jnp.mean(error**2) + 0.1 * jnp.mean(penalties)


def case(rng, L, n, a, m, called="directly", title=None, head_width=_HEAD_WIDTH):
    """Return a case of these sizes."""
    d = a * head_width
    attention, mlp = (L, d, a, head_width), (L, d, m)
    shapes = [attention] * 3 + [(L, a, head_width, d), mlp, mlp, (L, m, d), (n, d), (n, d)]

    def apply(answer):
        def loss(query, key, value, out, gate, up, down, x, targets):
            weights = query, key, value, out, gate, up, down
            return answer(dict(zip(_WEIGHTS, weights, strict=True)), x, targets)

        return loss

    heads = f"{a} head{'s' * (a > 1)}"
    return Case(
        title or f"{L} layers, {n} tokens, {heads}, MLP width {m}" + case_functions.where(called),
        float32_arrays(*shapes),
        transform=case_functions.transform(called),
        apply=apply,
        function=_function,
        structure={"L": L, "n": n, "a": a, "m": m, "called": called},
    )


shown = case(None, 4, 128, 4, 256, title="for 4 layers of width 64 with 4 heads and 128 tokens", head_width=16)
