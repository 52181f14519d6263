"""Training steps as people write them with each library, small enough to compile and to run in a test."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import optax
from flax import linen, nnx
from flax.training.train_state import TrainState
from jax import lax

D, HEADS, LAYERS, TOKENS, BATCH, WORDS = 64, 4, 6, 64, 16, 256


class Subject(NamedTuple):
    """A step and its arguments.

    Attributes:
      step: the training step.
      args: its arguments, arrays or shapes.
      is_random: whether its gradient depends on random numbers, so that microbatches change it.
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


class LinenBlock(linen.Module):
    rate: float = 0.0

    @linen.compact
    def __call__(self, x):
        y = linen.LayerNorm()(x)
        y = linen.MultiHeadDotProductAttention(HEADS)(y, mask=linen.make_causal_mask(x[..., 0]))
        x = x + linen.Dropout(self.rate, deterministic=not self.rate)(y)
        return x + linen.Dense(D)(linen.gelu(linen.Dense(4 * D)(linen.LayerNorm()(x))))


class LinenTransformer(linen.Module):
    rate: float = 0.0

    @linen.compact
    def __call__(self, tokens):
        x = linen.Embed(WORDS, D)(tokens)
        for _ in range(LAYERS):
            x = LinenBlock(self.rate)(x)
        return linen.Dense(WORDS)(linen.LayerNorm()(x))


@subject
def linen_train_state():
    """A TrainState with Adam, jitted, nothing donated."""
    model = LinenTransformer()
    variables = model.init(jax.random.key(0), tokens())
    state = TrainState.create(apply_fn=model.apply, params=variables["params"], tx=optax.adam(1e-3))

    @jax.jit
    def train_step(state, batch):
        def loss_fn(params):
            return cross_entropy(state.apply_fn({"params": params}, batch["inputs"]), batch["labels"])

        loss, grads = jax.value_and_grad(loss_fn)(state.params)
        return state.apply_gradients(grads=grads), loss

    return Subject(train_step, (state, {"inputs": tokens(), "labels": tokens()}))


@subject
def linen_dropout():
    """Dropout, whose key is split in the step."""
    model = LinenTransformer(rate=0.1)
    params = model.init({"params": jax.random.key(0), "dropout": jax.random.key(1)}, tokens())["params"]
    tx = optax.adamw(1e-3)

    def update(params, opt_state, key, inputs, labels):
        key, now = jax.random.split(key)

        def loss_fn(params):
            return cross_entropy(model.apply({"params": params}, inputs, rngs={"dropout": now}), labels)

        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, key, loss

    return Subject(update, (params, tx.init(params), jax.random.key(2), tokens(), tokens()), is_random=True)


class ConvBlock(linen.Module):
    width: int
    stride: int = 1

    @linen.compact
    def __call__(self, x):
        norm = functools.partial(linen.BatchNorm, use_running_average=False)
        y = linen.relu(norm()(linen.Conv(self.width, (3, 3), (self.stride, self.stride))(x)))
        y = norm()(linen.Conv(self.width, (3, 3))(y))
        if y.shape != x.shape:
            x = linen.Conv(self.width, (1, 1), (self.stride, self.stride))(x)
        return linen.relu(x + y)


class ResNet(linen.Module):
    @linen.compact
    def __call__(self, x):
        x = linen.Conv(16, (3, 3))(x)
        for width, stride in ((16, 1), (16, 1), (32, 2), (32, 1), (64, 2), (64, 1)):
            x = ConvBlock(width, stride)(x)
        return linen.Dense(10)(x.mean((1, 2)))


@subject
def linen_batch_norm():
    """A ResNet whose batch statistics are an auxiliary output."""
    model, tx = ResNet(), optax.sgd(0.1, momentum=0.9)
    images = jnp.ones((BATCH, 32, 32, 3))
    variables = model.init(jax.random.key(0), images)

    @functools.partial(jax.jit, donate_argnums=(0, 1, 2))
    def train_step(params, batch_stats, opt_state, images, labels):
        def loss_fn(params):
            logits, new = model.apply({"params": params, "batch_stats": batch_stats}, images, mutable=["batch_stats"])
            return cross_entropy(logits, labels), (new["batch_stats"], logits)

        (loss, (batch_stats, logits)), grads = jax.value_and_grad(loss_fn, has_aux=True)(params)
        updates, opt_state = tx.update(grads, opt_state, params)
        accuracy = jnp.mean(jnp.argmax(logits, -1) == labels)
        return optax.apply_updates(params, updates), batch_stats, opt_state, {"loss": loss, "accuracy": accuracy}

    labels = jnp.arange(BATCH) % 10
    args = variables["params"], variables["batch_stats"], tx.init(variables["params"]), images, labels
    return Subject(train_step, args)


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
def nnx_split():
    """The functional form: a graph that the step closes over, and states that it is given."""
    model = NnxTransformer(nnx.Rngs(0))
    graph, params = nnx.split(model, nnx.Param)
    tx = optax.adam(1e-3)

    @jax.jit
    def train_step(params, opt_state, inputs, labels):
        loss, grads = jax.value_and_grad(lambda p: cross_entropy(nnx.merge(graph, p)(inputs), labels))(params)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    return Subject(train_step, (params, tx.init(params), tokens(), tokens()))


class EqxBlock(eqx.Module):
    attention: eqx.nn.MultiheadAttention
    norms: list[eqx.nn.LayerNorm]
    mlp: eqx.nn.MLP

    def __init__(self, key):
        a, b = jax.random.split(key)
        self.attention = eqx.nn.MultiheadAttention(HEADS, D, key=a)
        self.norms = [eqx.nn.LayerNorm(D), eqx.nn.LayerNorm(D)]
        self.mlp = eqx.nn.MLP(D, D, 4 * D, 1, jax.nn.gelu, key=b)

    def __call__(self, x):
        y = jax.vmap(self.norms[0])(x)
        x = x + self.attention(y, y, y)
        return x + jax.vmap(self.mlp)(jax.vmap(self.norms[1])(x))


class EqxViT(eqx.Module):
    patches: eqx.nn.Conv2d
    blocks: list[EqxBlock]
    head: eqx.nn.Linear
    patch: int = eqx.field(static=True)

    def __init__(self, key):
        first, last, *keys = jax.random.split(key, LAYERS + 2)
        self.patch = 4
        self.patches = eqx.nn.Conv2d(3, D, self.patch, self.patch, key=first)
        self.blocks = [EqxBlock(key) for key in keys]
        self.head = eqx.nn.Linear(D, 10, key=last)

    def __call__(self, image):
        x = self.patches(image).reshape(D, -1).T
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(0))


@subject
def equinox_filter_jit():
    """A model with functions among its leaves, a filtered gradient and a filtered jit."""
    model, tx = EqxViT(jax.random.key(0)), optax.adamw(1e-3)
    images, labels = jnp.ones((BATCH, 3, 32, 32)), jnp.arange(BATCH) % 10

    @eqx.filter_jit
    def make_step(model, opt_state, images, labels):
        loss, grads = eqx.filter_value_and_grad(lambda m: cross_entropy(jax.vmap(m)(images), labels))(model)
        updates, opt_state = tx.update(grads, opt_state, eqx.filter(model, eqx.is_inexact_array))
        return eqx.apply_updates(model, updates), opt_state, loss

    return Subject(make_step, (model, tx.init(eqx.filter(model, eqx.is_inexact_array)), images, labels))


@subject
def haiku_transformer():
    """A transformed function, gradient clipping and a schedule."""

    def block(x):
        norm = functools.partial(hk.LayerNorm, -1, True, True)
        y = norm()(x)
        x = x + hk.MultiHeadAttention(HEADS, D // HEADS, w_init=hk.initializers.VarianceScaling(0.1))(y, y, y)
        return x + hk.nets.MLP([4 * D, D], activation=jax.nn.gelu)(norm()(x))

    @hk.without_apply_rng
    @hk.transform
    def model(tokens):
        x = hk.Embed(WORDS, D)(tokens)
        for _ in range(LAYERS):
            x = block(x)
        return hk.Linear(WORDS)(x)

    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(1e-3, 100)))
    params = model.init(jax.random.key(0), tokens())

    @jax.jit
    def update(params, opt_state, batch):
        inputs, labels = batch
        loss, grads = jax.value_and_grad(lambda p: cross_entropy(model.apply(p, inputs), labels))(params)
        updates, opt_state = tx.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, {"loss": loss, "norm": optax.global_norm(grads)}

    return Subject(update, (params, tx.init(params), (tokens(), tokens())))


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
def unet_of_a_diffusion_model():
    """Convolutions down and up with skips, noise from a key in the step."""

    class Unet(linen.Module):
        @linen.compact
        def __call__(self, x, time):
            time = linen.Dense(32)(jnp.sin(time[:, None] * jnp.arange(1, 17)))
            skips = []
            for width in (16, 32, 64):
                x = linen.silu(linen.GroupNorm(4)(linen.Conv(width, (3, 3))(x)))
                x = x + linen.Dense(width)(time)[:, None, None]
                x = x + linen.Conv(width, (3, 3))(linen.silu(linen.GroupNorm(4)(x)))
                skips.append(x)
                x = linen.avg_pool(x, (2, 2), (2, 2))
            for width in (64, 32, 16):
                x = jnp.repeat(jnp.repeat(x, 2, 1), 2, 2)
                x = jnp.concatenate([x, skips.pop()], -1)
                x = linen.silu(linen.GroupNorm(4)(linen.Conv(width, (3, 3))(x)))
                x = x + linen.Conv(width, (3, 3))(linen.silu(linen.GroupNorm(4)(x)))
            return linen.Conv(3, (3, 3))(x)

    model, tx = Unet(), optax.adam(1e-4)
    images = jnp.ones((BATCH, 32, 32, 3))
    params = model.init(jax.random.key(0), images, jnp.ones(BATCH))

    @jax.jit
    def train_step(params, opt_state, key, images):
        a, b = jax.random.split(key)
        time, noise = jax.random.uniform(a, (len(images),)), jax.random.normal(b, images.shape)
        noisy = images * (1 - time)[:, None, None, None] + noise * time[:, None, None, None]
        loss, grads = jax.value_and_grad(lambda p: jnp.mean((model.apply(p, noisy, time) - noise) ** 2))(params)
        updates, opt_state = tx.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss

    return Subject(train_step, (params, tx.init(params), jax.random.key(3), images), is_random=True)


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
    params = [jnp.ones((256, 256)) / 99 for _ in range(8)]

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

    return Subject(train_step, (params, jnp.float32(128), jnp.ones((1024, 256))))
