"""Wrong answers, by exercise, that hide their recompute."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from sample_answers import Answers

NAME, LAYERS, DOTS = Answers(), Answers(), Answers()
WRONG = {"name_preactivation": NAME, "scan_layers": LAYERS, "checkpoint_dot_policy": DOTS}


def divided(y):
    return y / jnp.sqrt(jnp.mean(y**2, axis=-1, keepdims=True))


# --- name_preactivation: the matmul's result is saved, but still recomputed -------------------------------------------


def again(name, product, kind="recomputes", words=(), hidden=False):
    """Add an answer that saves the matmul's result, as asked, but also runs `product(x, W1)` in its backward pass."""

    @jax.custom_vjp
    def answer(x, W1, W2):
        return jnp.sin(divided(x @ W1)) @ W2

    def forward(x, W1, W2):
        y = x @ W1
        return jnp.sin(divided(y)) @ W2, (x, W1, W2, y)

    def backward(kept, dz):
        x, W1, W2, y = kept
        if hidden:
            x = x + 0 * dz[..., :1]
        once_more = product(x, W1)
        _, pullback = jax.vjp(lambda y, W2: jnp.sin(divided(y)) @ W2, (y + once_more) / 2, W2)
        dy, dW2 = pullback(dz)
        return dy @ W1.T, x.T @ dy, dW2

    answer.defvjp(forward, backward)
    answer.__name__ = name
    NAME.fails_with(kind, *words)(answer)


def summed_by_scan(x, W):
    def body(total, column_and_row):
        column, row = column_and_row
        return total + column[:, None] * row, None

    return lax.scan(body, jnp.zeros((x.shape[0], W.shape[1]), x.dtype), (x.T, W))[0]


def outer(x, W):
    return x[:, :, None] * W


def quarters(x, W):
    both = x[:, :, None] + W
    squares = both.astype(jnp.float32) ** 2 - x.astype(jnp.float32)[:, :, None] ** 2 - W.astype(jnp.float32) ** 2
    return (squares.sum(1) / 2).astype(x.dtype)


def logarithms(x, W):
    signs = jnp.sign(x)[:, :, None] * jnp.sign(W)
    sizes = jnp.exp(jnp.log(abs(x).astype(jnp.float32))[:, :, None] + jnp.log(abs(W).astype(jnp.float32)))
    return (signs * sizes).sum(1).astype(x.dtype)


PRODUCTS = {
    "multiplied_and_summed": lambda x, W: jnp.sum(outer(x, W), axis=1),
    "multiplied_and_summed_transposed": lambda x, W: jnp.sum(x.T[:, :, None] * W[:, None], axis=0),
    "multiplied_flat_and_summed": lambda x, W: (
        (
            jnp.broadcast_to(x[:, :, None], (*x.shape, W.shape[1])).ravel()
            * jnp.broadcast_to(W, (len(x), *W.shape)).ravel()
        )
        .reshape(*x.shape, -1)
        .sum(1)
    ),
    "multiplied_selected_and_summed": lambda x, W: jnp.where(jnp.isfinite(outer(x, W)), outer(x, W), 0).sum(1),
    "summed_one_by_one": lambda x, W: functools.reduce(jnp.add, [x[:, k, None] * W[k] for k in range(len(W))]),
    "summed_by_scan": summed_by_scan,
    "summed_by_associative_scan": lambda x, W: lax.associative_scan(jnp.add, outer(x, W), axis=1)[:, -1],
    "summed_by_mean": lambda x, W: jnp.mean(outer(x, W), axis=1) * x.shape[1],
    "divided_by_reciprocals": lambda x, W: jnp.sum(x[:, :, None] / (1 / W), axis=1),
    "by_vecdot": lambda x, W: jnp.vecdot(x[:, None], W.T),
    "by_tensordot": lambda x, W: jnp.tensordot(x, W, 1),
    "row_by_row_in_a_map": lambda x, W: lax.map(lambda row: row @ W, x),
    "row_by_row_multiplied_and_summed": lambda x, W: lax.map(lambda row: jnp.sum(row[:, None] * W, 0), x),
    "by_squares_of_sums": quarters,
    "by_logarithms": logarithms,
}

for name, product in PRODUCTS.items():
    again(name, product)
for name in ("multiplied_and_summed", "summed_one_by_one", "summed_by_scan", "by_tensordot", "by_squares_of_sums"):
    again(f"{name}_behind_the_cotangent", PRODUCTS[name], kind="extra matmuls", hidden=True)


# --- scan_layers: matrix-vector products -----------------------------------------------------------------------------


def by_columns(w, x):
    """Repeats no array, only single elements."""
    return lax.scan(lambda total, both: (total + both[0] * both[1], None), jnp.zeros_like(x), (w.T, x))[0]


def layers_again(name, product, kind="recomputes"):
    """Add an answer that recomputes each layer's matmul twice."""

    def layer(w, x):
        return x + jnp.sin(w @ jnp.sin(x))

    @jax.custom_vjp
    def answer(ws, x):
        return lax.scan(lambda x, w: (layer(w, x), None), x, ws)[0]

    def forward(ws, x):
        x, inputs = lax.scan(lambda x, w: (layer(w, x), x), x, ws)
        return x, (ws, inputs)

    def backward(kept, ct):
        def back(ct, w_x):
            w, x = w_x
            y = w @ jnp.sin(x)
            y = (y + product(w, jnp.sin(x))) / 2
            dy = ct * jnp.cos(y)
            return ct + (w.T @ dy) * jnp.cos(x), jnp.outer(dy, jnp.sin(x))

        return lax.scan(back, ct, kept, reverse=True)[::-1]

    answer.defvjp(forward, backward)
    answer.__name__ = name
    LAYERS.fails_with(kind)(answer)


layers_again("matrix_multiplied_and_summed", lambda w, x: jnp.sum(w * x, axis=1))
layers_again("matrix_by_columns", lambda w, x: functools.reduce(jnp.add, [w[:, k] * x[k] for k in range(len(x))]))
layers_again("matrix_by_matmul", jnp.matmul)
layers_again("matrix_by_scaled_columns", by_columns)


# --- checkpoint_dot_policy: sums in float32 are saved in float32 -----------------------------------------------------


@DOTS.fails_with("also saved", "x @ w1", "f32[")
@functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable)
def dots_in_float32(w1, w2, x):
    y = jnp.matmul(x, w1, preferred_element_type=jnp.float32).astype(x.dtype)
    return jnp.sum((jax.nn.relu(y) @ w2) ** 2)
