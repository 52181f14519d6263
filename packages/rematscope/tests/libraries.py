"""Models as libraries ship them and layers as trainers write them, at a small size, with no thought of this package.

Of each: residuals, gradients, roles, views and plans are tried in `test_libraries.py` against JAX's own.
"""

import functools

import diffrax
import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import optax
from flax import linen, nnx
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from zoo import Case, Later, added_to, normal

TOKENS, D, HEADS = 6, 8, 2
CASES: dict[str, Case] = {}


case = added_to(CASES)


def made(initialize, *args):
    """Parameters, see `drawn`, when they are asked for."""
    return Later(drawn, initialize, *args)


def drawn(initialize, *args):
    """Parameters drawn without compiling what initializes them: their shapes from the library, their numbers not."""
    leaves, tree = jax.tree.flatten(jax.eval_shape(initialize, *args))
    numbers = [normal(i, *leaf.shape) / max(leaf.shape[:1] or [1]) ** 0.5 for i, leaf in enumerate(leaves)]
    return jax.tree.unflatten(tree, numbers)


TEXT = normal(100, 2, TOKENS, D)
IMAGES = normal(101, 2, 6, 6, 3)
KEY = jax.random.key(0)

# Flax, linen: modules, whose names JAX's name stack carries, a lifted scan and a lifted checkpoint.


class Block(linen.Module):
    """Attention and a GELU layer, each after a layer norm."""

    @linen.compact
    def __call__(self, x, _=None):
        y = linen.LayerNorm()(x)
        x = x + linen.MultiHeadDotProductAttention(HEADS, qkv_features=D)(y, mask=linen.make_causal_mask(x[..., 0]))
        x = x + linen.Dense(D)(linen.gelu(linen.Dense(2 * D)(linen.LayerNorm()(x))))
        return x, None


class Stack(linen.Module):
    """A scan over the parameters of identical layers, each with a checkpoint, as in MaxText."""

    @linen.compact
    def __call__(self, x):
        layer = linen.remat(Block, prevent_cse=False, policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable)
        layers = linen.scan(layer, variable_axes={"params": 0}, split_rngs={"params": True}, length=2)
        return layers()(x, None)[0].sum()


class Images(linen.Module):
    """Convolutions with batch norm in training and pooling of either kind."""

    @linen.compact
    def __call__(self, x):
        for width in (4, 6):
            x = linen.relu(linen.BatchNorm(use_running_average=False)(linen.Conv(width, (3, 3))(x)))
            x = linen.max_pool(x, (2, 2), (2, 2), padding="SAME")
        return linen.Dense(3)(linen.avg_pool(x, (2, 2)).reshape(x.shape[0], -1))


class Recurrent(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.RNN(linen.OptimizedLSTMCell(D))(x)


@case(made(Stack().init, KEY, TEXT), TEXT)
def linen_layers_in_a_scan(variables, x):
    return Stack().apply(variables, x)


@case(made(Block().init, KEY, TEXT), TEXT)
def linen_block(variables, x):
    return Block().apply(variables, x)[0].sum()


@case(made(Images().init, KEY, IMAGES), IMAGES)
def linen_images_with_state(variables, x):
    y, state = Images().apply(variables, x, mutable=["batch_stats"])
    return y.sum() + sum(leaf.sum() for leaf in jax.tree.leaves(state))


@case(made(Recurrent().init, KEY, TEXT), TEXT)
def linen_recurrent(variables, x):
    return Recurrent().apply(variables, x).sum()


# Flax, nnx: modules with state of their own, split into a graph and arrays.


class Encoder(nnx.Module):
    def __init__(self, rngs):
        self.attention = nnx.MultiHeadAttention(HEADS, D, decode=False, rngs=rngs)
        self.norm = nnx.LayerNorm(D, rngs=rngs)
        self.up = nnx.Linear(D, 2 * D, rngs=rngs)
        self.down = nnx.Linear(2 * D, D, rngs=rngs)

    def __call__(self, x):
        x = x + self.attention(self.norm(x))
        return x + nnx.remat(lambda m, x: m.down(nnx.silu(m.up(x))))(self, x)


@functools.cache
def encoder():
    """Its graph, and the shapes of its state."""
    return nnx.split(nnx.eval_shape(lambda: Encoder(nnx.Rngs(0))))


@case(made(lambda: encoder()[1]), TEXT)
def nnx_encoder_with_a_checkpoint(state, x):
    return nnx.merge(encoder()[0], state)(x).sum()


# Equinox: modules that are pytrees, its checkpoint, and its loop that saves a few states.


@functools.cache
def mlp_and_cell():
    return eqx.nn.MLP(D, D, 2 * D, 2, jax.nn.tanh, key=KEY), eqx.nn.GRUCell(D, D, key=KEY)


def arrays_of(which):
    """One's parameters, when they are asked for."""
    return Later(lambda: eqx.filter(mlp_and_cell()[which], eqx.is_array))


@case(arrays_of(0), TEXT)
def equinox_layers_in_a_checkpoint(parameters, x):
    mlp = eqx.combine(parameters, mlp_and_cell()[0])
    return jax.vmap(jax.vmap(eqx.filter_checkpoint(mlp)))(x).sum()


@case(arrays_of(1), TEXT)
def equinox_recurrent(parameters, x):
    cell = eqx.combine(parameters, mlp_and_cell()[1])
    step = jax.checkpoint(lambda state, x: (cell(x, state), None))
    return jax.vmap(lambda x: lax.scan(step, jnp.zeros(D), x)[0])(x).sum()


@case(normal(1, D))
def equinox_checkpointed_loop(x):
    end = eqx.internal.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, jnp.sin(c[1])), (0, x), kind="checkpointed",
                                  max_steps=8, checkpoints=2)  # fmt: skip
    return end[1].sum()


# Haiku: functions that are transformed, its checkpoint and its recurrent layers.


@hk.without_apply_rng
@hk.transform
def haiku_model(x):
    attention = hk.MultiHeadAttention(HEADS, D // HEADS, w_init=hk.initializers.RandomNormal())
    x = hk.LayerNorm(-1, True, True)(x + attention(x, x, x))
    return hk.remat(hk.nets.MLP([2 * D, D], activation=jax.nn.gelu))(x).sum()


@hk.without_apply_rng
@hk.transform
def haiku_lstm(x):
    cell = hk.LSTM(D)
    return hk.dynamic_unroll(cell, x.swapaxes(0, 1), cell.initial_state(len(x)))[0].sum()


@case(made(haiku_model.init, KEY, TEXT), TEXT)
def haiku_attention_and_a_checkpoint(parameters, x):
    return haiku_model.apply(parameters, x)


@case(made(haiku_lstm.init, KEY, TEXT), TEXT)
def haiku_recurrent(parameters, x):
    return haiku_lstm.apply(parameters, x)


# optax: losses, and gradients through an optimizer's own steps.


@case(normal(2, 2, TOKENS, 5), jnp.zeros((2, TOKENS)), jnp.array([[1, 2, 1], [3, 3, 4]]), jnp.zeros((2, 3)))
def optax_ctc_loss(logits, logit_paddings, labels, label_paddings):
    return optax.ctc_loss(logits, logit_paddings, labels, label_paddings).sum()


@case(normal(3, 4, 5), jnp.array([0, 3, 1, 1]))
def optax_losses(logits, labels):
    ce = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    return ce.sum() + optax.huber_loss(logits).sum() + optax.sigmoid_focal_loss(logits, jnp.ones_like(logits)).sum()


@case(normal(4, D, D), normal(5, 3, D))
def optax_steps_inside(w, x):
    optimizer = optax.adam(0.1)

    def loss(w):
        return jnp.sum(jnp.tanh(x @ w) ** 2)

    @jax.checkpoint
    def step(carry, _):
        w, state = carry
        updates, state = optimizer.update(jax.grad(loss)(w), state)
        return (optax.apply_updates(w, updates), state), loss(w)

    return lax.scan(step, (w, optimizer.init(w)), length=3)[1].sum()


# diffrax: solves of differential equations, by loops in loops, with each way back that it has.


def solve(y0, rate, solver, **kwargs):
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, y, rate: -rate * y + jnp.sin(y[::-1])), solver, 0.0, 1.0, 0.2, y0, rate,
        max_steps=8, **kwargs,
    )  # fmt: skip
    return solution.ys.sum()


DIFFRAX = normal(6, 3), jnp.float32(0.7)


@case(*DIFFRAX)
def diffrax_with_checkpoints(y0, rate):
    return solve(y0, rate, diffrax.Tsit5(), adjoint=diffrax.RecursiveCheckpointAdjoint(checkpoints=2))


@case(*DIFFRAX)
def diffrax_backwards_in_time(y0, rate):
    return solve(y0, rate, diffrax.Tsit5(), adjoint=diffrax.BacksolveAdjoint())


# Layers as trainers write them.


def rotated(x):
    half = x.shape[-1] // 2
    angle = jnp.arange(x.shape[1])[:, None, None] * 100.0 ** (-jnp.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * jnp.cos(angle) - b * jnp.sin(angle), b * jnp.cos(angle) + a * jnp.sin(angle)], -1)


@case({"q": normal(7, D, 4, 4), "kv": normal(8, D, 2, 2, 4), "o": normal(9, 4, 4, D)}, TEXT)
def grouped_query_attention(p, x):
    """Four heads of queries to two of keys and values, by JAX's own attention."""
    q = rotated(jnp.einsum("btd,dhk->bthk", x, p["q"]))
    k, v = jnp.einsum("btd,dchk->cbthk", x, p["kv"])
    context = jax.nn.dot_product_attention(q, rotated(k), v, is_causal=True)
    return jnp.einsum("bthk,hkd->btd", checkpoint_name(context, "context"), p["o"]).sum()


@case({"router": normal(10, D, 4), "up": normal(11, 4, D, 2 * D), "down": normal(12, 4, 2 * D, D)}, TEXT)
def experts_with_ragged_dot(p, x):
    """Two of four experts a token; tokens sorted by expert, no token dropped."""
    tokens = x.reshape(-1, D)
    share, expert = lax.top_k(jax.nn.softmax(tokens @ p["router"]), 2)
    order = jnp.argsort(expert.ravel())
    sizes = jnp.bincount(expert.ravel(), length=4)
    hidden = checkpoint_name(lax.ragged_dot(jnp.repeat(tokens, 2, 0)[order], p["up"], sizes), "up")
    result = lax.ragged_dot(jax.nn.silu(hidden), p["down"], sizes)
    result = jnp.zeros_like(result).at[order].set(result).reshape(-1, 2, D)
    return jnp.sum(result * share[..., None])


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def fused(q, k, v, rows):
    return fused_forward(q, k, v, rows)[0]


def fused_forward(q, k, v, rows):
    """Attention over blocks of keys with a running maximum, so that no matrix of logits is ever whole."""

    def block(carry, kv):
        high, total, out = carry
        k, v = kv
        logits = q @ k.T
        higher = jnp.maximum(high, logits.max(-1))
        scale, weight = jnp.exp(high - higher), jnp.exp(logits - higher[:, None])
        return (higher, scale * total + weight.sum(-1), scale[:, None] * out + weight @ v), None

    start = jnp.full(len(q), -1e9), jnp.zeros(len(q)), jnp.zeros_like(q)
    (high, total, out), _ = lax.scan(block, start, (k.reshape(-1, rows, D), v.reshape(-1, rows, D)))
    out = out / total[:, None]
    return out, (q, k, v, out, high + jnp.log(total))


def fused_backward(rows, residuals, d_out):
    q, k, v, out, logsum = residuals
    delta = (out * d_out).sum(-1)

    def block(d_q, kv):
        k, v = kv
        weight = jnp.exp(q @ k.T - logsum[:, None])
        d_logits = weight * (d_out @ v.T - delta[:, None])
        return d_q + d_logits @ k, (d_logits.T @ q, weight.T @ d_out)

    d_q, (d_k, d_v) = lax.scan(block, jnp.zeros_like(q), (k.reshape(-1, rows, D), v.reshape(-1, rows, D)))
    return d_q, d_k.reshape(k.shape), d_v.reshape(v.shape)


fused.defvjp(fused_forward, fused_backward)


@case(normal(13, D, 3 * D) / 3, TEXT)
def fused_attention(w, x):
    q, k, v = jnp.split(checkpoint_name(x @ w, "qkv"), 3, -1)
    return jax.vmap(lambda *qkv: fused(*qkv, 2))(q, k, v).sum()


@case({"in": normal(14, D, 2 * D), "decay": normal(15, D), "out": normal(16, D, D)}, TEXT)
def state_space_by_an_associative_scan(p, x):
    """A parallel linear recurrence whose decay depends on its input, as in Mamba."""
    u, gate = jnp.split(checkpoint_name(x @ p["in"], "in"), 2, -1)
    decay = jnp.exp(-jax.nn.softplus(u) * jnp.exp(p["decay"]))

    def after(first, then):
        return first[0] * then[0], first[1] * then[0] + then[1]

    _, state = lax.associative_scan(after, (decay, u), axis=1)
    return jnp.sum(checkpoint_name(state * jax.nn.silu(gate), "gated") @ p["out"])


@case({"up": normal(17, 3, D, D), "down": normal(18, 3, D, D)}, TEXT)
def layers_in_a_scan_over_microbatches(p, x):
    """Accumulated over microbatches, each through a scan of layers that offloads nothing and saves one name."""
    policy = jax.checkpoint_policies.save_only_these_names("hidden")

    @functools.partial(jax.checkpoint, policy=policy)
    def layer(x, p):
        return x + checkpoint_name(jnp.tanh(x @ p["up"]), "hidden") @ p["down"], None

    def microbatch(total, x):
        return total + jnp.mean(lax.scan(layer, x, p)[0] ** 2), None

    return lax.scan(microbatch, jnp.float32(0), x)[0]
