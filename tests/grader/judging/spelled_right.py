"""Right answers, by exercise, that spell values in unusual ways: other shapes, other orders, wider sums."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from sample_answers import Answers

SEGMENTS, NAME, LAYERS = Answers(), Answers(), Answers()
RIGHT = {
    "two_checkpoints": SEGMENTS,
    "name_preactivation": NAME,
    "scan_layers": LAYERS,
}

policies = jax.checkpoint_policies
only_y = functools.partial(jax.checkpoint, policy=policies.save_only_these_names("y"))


def divided(y):
    return y / jnp.sqrt(jnp.mean(y**2, axis=-1, keepdims=True))


# --- two_checkpoints -------------------------------------------------------------------------------------------------


def in_two(segment, *weights, x):
    """Apply two checkpoints, with the boundary at the narrower output."""
    at = 1 if len(weights[0]) < len(weights[1]) else 2
    return jax.checkpoint(segment)(weights[at:], jax.checkpoint(segment)(weights[:at], x))


def with_layer(layer):
    """Return an answer that uses another spelling of a layer."""

    def segment(weights, x):
        return functools.reduce(lambda x, W: layer(W, x), weights, x)

    return lambda W1, W2, W3, x: in_two(segment, W1, W2, W3, x=x)


@SEGMENTS.passes
def rows(W1, W2, W3, x):
    return with_layer(lambda W, x: jnp.sin(x @ W.T))(W1, W2, W3, x[None])[0]


@SEGMENTS.passes
def at_least_two_dimensions(W1, W2, W3, x):
    return with_layer(lambda W, x: jnp.sin(jnp.atleast_2d(x) @ W.T))(W1, W2, W3, x)[0]


@SEGMENTS.passes
def columns_inside(W1, W2, W3, x):
    return with_layer(lambda W, x: jnp.sin(W @ x[:, None])[:, 0])(W1, W2, W3, x)


@SEGMENTS.passes
def expanded(W1, W2, W3, x):
    layer = with_layer(lambda W, x: jnp.sin(jnp.einsum("ij,kjl->kil", W, x)))
    return layer(W1, W2, W3, jnp.expand_dims(x, (0, 2))).reshape(-1)


@SEGMENTS.passes
def transposed_column(W1, W2, W3, x):
    return with_layer(lambda W, x: jnp.sin(W @ x.T).T)(W1, W2, W3, x[:, None].T)[0]


@SEGMENTS.passes
def broadcast_argument(W1, W2, W3, x):
    return with_layer(lambda W, x: jnp.sin(x @ W.T))(W1, W2, W3, jnp.broadcast_to(x, (1, 1, len(x))))[0, 0]


@SEGMENTS.passes
def summed_in_float32(W1, W2, W3, x):
    def product(W, x):
        return jnp.matmul(W, x, preferred_element_type=jnp.float32).astype(x.dtype)

    return with_layer(lambda W, x: jnp.sin(product(W, x)))(W1, W2, W3, x)


@SEGMENTS.passes
def computed_in_float32(W1, W2, W3, x):
    def layer(W, x):
        return jnp.sin(W.astype(jnp.float32) @ x.astype(jnp.float32)).astype(x.dtype)

    return with_layer(layer)(W1, W2, W3, x)


@SEGMENTS.passes
def sine_in_float32(W1, W2, W3, x):
    return with_layer(lambda W, x: jnp.sin((W @ x).astype(jnp.float32)).astype(x.dtype))(W1, W2, W3, x)


@SEGMENTS.passes
def mapped_rows(W1, W2, W3, x):
    return with_layer(lambda W, x: jnp.sin(lax.map(lambda row: jnp.vdot(row, x), W)))(W1, W2, W3, x)


@SEGMENTS.passes
def rounded_to_its_own_precision(W1, W2, W3, x):
    def layer(W, x):
        kind = jnp.finfo(x.dtype)
        return lax.reduce_precision(jnp.sin(W @ x), kind.nexp, kind.nmant)

    return with_layer(layer)(W1, W2, W3, x)


# --- name_preactivation ----------------------------------------------------------------------------------------------


def with_product(product, after=lambda y: y, normal=divided):
    """Return an answer that names the result of `product(x, W1)`."""

    @only_y
    def answer(x, W1, W2):
        y = after(checkpoint_name(product(x, W1), "y"))
        return jnp.sin(normal(y)) @ W2

    return answer


def passes_as(name, product, after=lambda y: y, normal=divided):
    answer = with_product(product, after, normal)
    answer.__name__ = name
    NAME.passes(answer)


passes_as("batch_of_one", lambda x, W: x[None] @ W, lambda y: y[0])
passes_as("product_transposed", lambda x, W: jnp.einsum("na,ab->bn", x, W), jnp.transpose)
passes_as("middle_dimension", lambda x, W: x[:, None] @ W, lambda y: y[:, 0])
passes_as("columns_first", lambda x, W: jax.vmap(lambda column: x @ column, 1, 0)(W), jnp.transpose)
passes_as(
    "summed_in_float32",
    lambda x, W: jnp.matmul(x, W, preferred_element_type=jnp.float32).astype(x.dtype),
)
passes_as("computed_in_float32", lambda x, W: (x.astype(jnp.float32) @ W.astype(jnp.float32)).astype(x.dtype))
passes_as("multiplied_and_summed", lambda x, W: jnp.sum(x[:, :, None] * W, axis=1))
passes_as("mapped_rows", lambda x, W: lax.map(lambda row: row @ W, x))
passes_as(
    "summed_one_by_one",
    lambda x, W: functools.reduce(jnp.add, [x[:, k, None] * W[k] for k in range(len(W))]),
)
passes_as(
    "mean_by_einsum", jnp.matmul, normal=lambda y: y / jnp.sqrt(jnp.einsum("nb,nb->n", y, y) / y.shape[-1])[:, None]
)
passes_as(
    "mean_by_norm",
    jnp.matmul,
    normal=lambda y: y / (jnp.linalg.norm(y, axis=-1, keepdims=True) / jnp.sqrt(y.shape[-1]).astype(y.dtype)),
)
passes_as("rsqrt", jnp.matmul, normal=lambda y: y * lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True)))
passes_as(
    "mean_by_ones",
    jnp.matmul,
    normal=lambda y: y / jnp.sqrt((y * y) @ jnp.ones((y.shape[-1], 1), y.dtype) / y.shape[-1]),
)


def by_hand(name, keep, take):
    """Add an answer with a hand-written backward pass, which saves the matmul's result in another shape."""

    @jax.custom_vjp
    def answer(x, W1, W2):
        return jnp.sin(divided(x @ W1)) @ W2

    def forward(x, W1, W2):
        y = x @ W1
        return jnp.sin(divided(y)) @ W2, (x, W1, W2, keep(y))

    def backward(kept, dz):
        x, W1, W2, y = kept
        _, pullback = jax.vjp(lambda y, W2: jnp.sin(divided(y)) @ W2, take(y, x), W2)
        dy, dW2 = pullback(dz)
        return dy @ W1.T, x.T @ dy, dW2

    answer.defvjp(forward, backward)
    answer.__name__ = name
    NAME.passes_with_advice(answer)


by_hand("kept_flat", jnp.ravel, lambda y, x: y.reshape(len(x), -1))
by_hand("kept_transposed", jnp.transpose, lambda y, x: y.T)
by_hand("kept_transposed_and_flat", lambda y: y.T.ravel(), lambda y, x: y.reshape(-1, len(x)).T)
by_hand("kept_with_more_dimensions", lambda y: y[None, :, None], lambda y, x: y[0, :, 0])
by_hand("kept_once_more_rounded", lambda y: y.astype(jnp.float32).astype(y.dtype), lambda y, x: y)


# --- scan_layers -----------------------------------------------------------------------------------------------------


@LAYERS.passes
def scanned_rows(ws, x):
    layer = jax.checkpoint(lambda w, x: x + jnp.sin(jnp.sin(x) @ w.T))
    return lax.scan(lambda x, w: (layer(w, x), None), x[None], ws)[0][0]


@LAYERS.passes
def scanned_in_float32(ws, x):
    def layer(w, x):
        y = jnp.matmul(w, jnp.sin(x), preferred_element_type=jnp.float32)
        return x + jnp.sin(y).astype(x.dtype)

    return lax.scan(lambda x, w: (jax.checkpoint(layer)(w, x), None), x, ws)[0]


@LAYERS.passes
def scanned_multiplied_and_summed(ws, x):
    layer = jax.checkpoint(lambda w, x: x + jnp.sin(jnp.sum(w * jnp.sin(x), axis=-1)))
    return lax.scan(lambda x, w: (layer(w, x), None), x, ws)[0]
