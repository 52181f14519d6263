"""Training steps as people write them with each library, small enough to compile and to run in a test."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax import lax

D, HEADS, LAYERS, TOKENS, BATCH, WORDS = 64, 4, 6, 64, 16, 256


class Subject(NamedTuple):
    """A step and its arguments.

    Attributes:
      step: the training step.
      args: its arguments, arrays or shapes.
      is_random: whether its loss draws random numbers.
    """

    step: Callable[..., Any]
    args: tuple[Any, ...]
    is_random: bool = False


STEPS: dict[str, Callable[[], Subject]] = {}


def subject(make: Callable[[], Subject]) -> Callable[[], Subject]:
    """Adds a subject under its name; it is made when a test asks for it."""
    STEPS[make.__name__] = functools.cache(make)
    return STEPS[make.__name__]


def tokens(*shape: int) -> jax.Array:
    return jax.random.randint(jax.random.key(7), shape or (BATCH, TOKENS), 0, WORDS)


def cross_entropy(logits: Any, labels: Any) -> Any:
    return optax.softmax_cross_entropy_with_integer_labels(logits.astype(jnp.float32), labels).mean()


class NnxBlock(nnx.Module):
    def __init__(self, rngs):
        self.first, self.second = nnx.LayerNorm(D, rngs=rngs), nnx.LayerNorm(D, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(HEADS, D, decode=False, rngs=rngs)
        self.up, self.down = nnx.Linear(D, 4 * D, rngs=rngs), nnx.Linear(4 * D, D, rngs=rngs)

    def __call__(self, x):
        x = x + self.attention(self.first(x))
        return x + self.down(nnx.gelu(self.up(self.second(x))))


class NnxTransformer(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Embed(WORDS, D, rngs=rngs)
        self.blocks = nnx.List([NnxBlock(rngs) for _ in range(LAYERS)])
        self.head = nnx.Linear(D, WORDS, rngs=rngs)

    def __call__(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@subject
def nnx_in_place():
    """A step that changes its model and its optimizer in place."""
    model = NnxTransformer(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)

    @nnx.jit
    def train_step(model, optimizer, inputs, labels):
        loss, grads = nnx.value_and_grad(lambda model: cross_entropy(model(inputs), labels))(model)
        optimizer.update(model, grads)
        return loss

    return Subject(train_step, (model, optimizer, tokens(), tokens()))


@subject
def scanned_layers_in_bfloat16():
    """A scan over stacked layers, computed in bfloat16 from float32 parameters; shapes alone."""
    f32 = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.float32)
    shapes = {"qkv": f32((LAYERS, D, 3 * D)), "out": f32((LAYERS, D, D))}
    shapes |= {"up": f32((LAYERS, D, 4 * D)), "down": f32((LAYERS, 4 * D, D)), "embed": f32((WORDS, D))}
    tx = optax.adam(1e-3)

    def layer(x, p):
        q, k, v = jnp.split(x @ p["qkv"], 3, -1)
        weights = jax.nn.softmax(q @ k.swapaxes(-1, -2) / 8, -1)
        x = x + (weights @ v) @ p["out"]
        return x + jax.nn.gelu(x @ p["up"]) @ p["down"], None

    def loss_fn(params, inputs, labels):
        params = jax.tree.map(lambda w: w.astype(jnp.bfloat16), params)
        embed = params.pop("embed")
        x, _ = lax.scan(layer, embed[inputs], params)
        return cross_entropy(x @ embed.T, labels)

    def train_step(params, opt_state, inputs, labels):
        loss, grads = jax.value_and_grad(loss_fn)(params, inputs, labels)
        updates, opt_state = tx.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss

    ids = jax.ShapeDtypeStruct((BATCH, TOKENS), jnp.int32)
    return Subject(train_step, (shapes, jax.eval_shape(tx.init, shapes), ids, ids))


@subject
def recurrent_over_time():
    """A GRU over 256 steps."""
    width, steps = 64, 256
    params = {"w": jnp.ones((width, 3 * width)) / 99, "u": jnp.ones((width, 3 * width)) / 99, "o": jnp.ones((width, 1))}

    def cell(p, h, x):
        a, b = x @ p["w"], h @ p["u"]
        r, z = (jax.nn.sigmoid(a[:, i : i + width] + b[:, i : i + width]) for i in (0, width))
        return (1 - z) * jnp.tanh(a[:, 2 * width :] + r * b[:, 2 * width :]) + z * h

    def loss_fn(p, x, y):
        h, _ = lax.scan(lambda h, x: (cell(p, h, x), None), jnp.zeros((x.shape[1], width)), x)
        return jnp.mean((h @ p["o"] - y) ** 2)

    @jax.jit
    def train_step(p, x, y):
        loss, grads = jax.value_and_grad(loss_fn)(p, x, y)
        return jax.tree.map(lambda w, g: w - 0.1 * g, p, grads), loss

    return Subject(train_step, (params, jnp.ones((steps, BATCH, width)), jnp.ones((BATCH, 1))))


@subject
def low_rank_adapters():
    """LoRA: the model is frozen, small matrices next to each layer are trained."""
    frozen = [jnp.ones((D, 4 * D)) / 99, jnp.ones((4 * D, D)) / 99]
    frozen, tx = [frozen] * LAYERS, optax.adam(1e-3)
    adapters = [{"a": jnp.ones((D, 4)) / 9, "b": jnp.zeros((4, 4 * D))} for _ in range(LAYERS)]

    def block(x, w, adapter):
        return x + jax.nn.gelu(x @ w[0] + x @ adapter["a"] @ adapter["b"]) @ w[1]

    def loss_fn(adapters, frozen, x, y):
        for w, adapter in zip(frozen, adapters, strict=True):
            x = block(x, w, adapter)
        return jnp.mean((x - y) ** 2)

    @jax.jit
    def train_step(adapters, opt_state, frozen, x, y):
        loss, grads = jax.value_and_grad(loss_fn)(adapters, frozen, x, y)
        updates, opt_state = tx.update(grads, opt_state)
        return optax.apply_updates(adapters, updates), opt_state, loss

    x = jnp.ones((BATCH, 4 * TOKENS, D))
    return Subject(train_step, (adapters, tx.init(adapters), frozen, x, x))


@subject
def float16_with_a_loss_scale():
    """Gradients of a scaled loss, an update that is skipped where one is not finite, and a wide MLP."""
    params = [jnp.ones((64, 64)) / 99 for _ in range(8)]

    def loss_fn(params, x):
        x = x.astype(jnp.float16)
        for w in params:
            x = jnp.tanh(x @ w.astype(jnp.float16)) + x
        return jnp.mean(x.astype(jnp.float32) ** 2)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def train_step(params, scale, x):
        loss, grads = jax.value_and_grad(lambda p: loss_fn(p, x) * scale)(params)
        finite = jnp.all(jnp.stack([jnp.isfinite(g).all() for g in grads]))
        new = [jnp.where(finite, w - 0.1 * g / scale, w) for w, g in zip(params, grads, strict=True)]
        return new, jnp.where(finite, scale, scale / 2), loss / scale

    return Subject(train_step, (params, jnp.float32(128), jnp.ones((1024, 64))))
