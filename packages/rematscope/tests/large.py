"""Models at the size that people train, as shapes alone: no machine here would hold one.

Of each, what a look at it says is tried in `tracing/test_large.py`.
"""

import functools

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import optax
from flax import linen, nnx
from jax import lax
from jax.ad_checkpoint import checkpoint_name

KEY = jax.random.key(0)
MODELS = {}


def model(arguments):
    """Adds a function with what makes its arguments, which are shapes: to have a library say them takes seconds, and
    every process of a run reads this."""

    def add(f):
        MODELS[f.__name__] = f, arguments
        return f

    return add


def bf16(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16)


def f32(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def i32(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def normed(x, scale):
    return (x * lax.rsqrt(jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True) + 1e-5)).astype(
        x.dtype
    ) * scale


def llama_layer(x, p, heads=32):
    batch, length, _ = x.shape
    y = normed(x, p["before"])
    q, k, v = ((y @ p[name]).reshape(batch, length, heads, -1) for name in "qkv")
    context = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape)
    x = checkpoint_name(x + context @ p["o"], "middle")
    y = normed(x, p["between"])
    gate = checkpoint_name(y @ p["gate"], "gate")
    return x + (jax.nn.silu(gate) * checkpoint_name(y @ p["up"], "up")) @ p["down"]


def llama_shapes(width, hidden, *layers):
    square, scale = bf16(*layers, width, width), bf16(*layers, width)
    wide = dict.fromkeys(("gate", "up"), bf16(*layers, width, hidden))
    return dict.fromkeys("qkvo", square) | wide | {
        "down": bf16(*layers, hidden, width), "before": scale, "between": scale
    }  # fmt: skip


def likelihood(x, words, tokens):
    logits = (x @ words.T).astype(jnp.float32)
    return optax.softmax_cross_entropy_with_integer_labels(logits[:, :-1], tokens[:, 1:]).mean()


@model(lambda: ({"words": bf16(32_000, 4096), "layers": llama_shapes(4096, 11_008, 32)}, i32(4, 4096)))
def seven_billion_in_a_scan(p, tokens):
    def layer(x, p):
        return jax.checkpoint(llama_layer)(x, p), None

    return likelihood(lax.scan(layer, p["words"][tokens], p["layers"])[0], p["words"], tokens)


@model(lambda: ({"words": bf16(32_000, 4096), "layers": [llama_shapes(4096, 11_008)] * 8}, i32(4, 4096)))
def unrolled_layers_with_names(p, tokens):
    x = p["words"][tokens]
    for layer in p["layers"]:
        x = llama_layer(x, layer)
    return likelihood(x, p["words"], tokens)


@model(
    lambda: ({"router": bf16(4096, 8), "up": bf16(8, 4096, 14_336), "down": bf16(8, 14_336, 4096)}, bf16(4, 2048, 4096))
)
def eight_experts(p, x):
    """Two of eight experts a token, as in Mixtral."""
    tokens = x.reshape(-1, x.shape[-1])
    share, expert = lax.top_k(jax.nn.softmax((tokens @ p["router"]).astype(jnp.float32)), 2)
    order, sizes = jnp.argsort(expert.ravel()), jnp.bincount(expert.ravel(), length=8)
    hidden = checkpoint_name(lax.ragged_dot(jnp.repeat(tokens, 2, 0)[order], p["up"], sizes), "hidden")
    y = lax.ragged_dot(jax.nn.silu(hidden), p["down"], sizes)
    y = jnp.zeros_like(y).at[order].set(y).reshape(-1, 2, x.shape[-1])
    return jnp.sum(y.astype(jnp.float32) * share[..., None])


@model(lambda: ({"in": bf16(2560, 10_240), "step": bf16(5120, 5120), "decay": f32(5120, 16), "b": bf16(5120, 16),
        "c": bf16(5120, 16), "out": bf16(5120, 2560)}, bf16(2, 1024, 2560)))  # fmt: skip
def mamba_block(p, x):
    """A selective state space of Mamba 2.8B, token after token in chunks that a checkpoint is around."""
    u, gate = jnp.split(x @ p["in"], 2, -1)
    step = jax.nn.softplus((u @ p["step"]).astype(jnp.float32))

    @jax.checkpoint
    def chunk(state, parts):
        def token(state, part):
            step, u, b, c = part
            state = jnp.exp(-step[..., None] * jnp.exp(p["decay"])) * state + (step * u)[..., None] * b[:, None]
            return state, (state * c[:, None]).sum(-1)

        return lax.scan(token, state, parts)

    parts = [t.astype(jnp.float32).swapaxes(0, 1) for t in (step, u, u @ p["b"], u @ p["c"])]
    parts = [t.reshape(-1, 64, *t.shape[1:]) for t in parts]
    _, y = lax.scan(chunk, jnp.zeros((len(x), 5120, 16)), parts)
    y = y.reshape(-1, *y.shape[2:]).swapaxes(0, 1).astype(x.dtype)
    return jnp.sum(((y * jax.nn.silu(gate)) @ p["out"]).astype(jnp.float32))


class Bottleneck(linen.Module):
    width: int
    stride: int = 1

    @linen.compact
    def __call__(self, x):
        norm = functools.partial(linen.BatchNorm, use_running_average=False)
        y = linen.relu(norm()(linen.Conv(self.width, (1, 1), use_bias=False)(x)))
        y = linen.relu(norm()(linen.Conv(self.width, (3, 3), (self.stride,) * 2, use_bias=False)(y)))
        y = norm()(linen.Conv(4 * self.width, (1, 1), use_bias=False)(y))
        if x.shape != y.shape:
            x = norm()(linen.Conv(4 * self.width, (1, 1), (self.stride,) * 2, use_bias=False)(x))
        return linen.relu(x + y)


class ResNet50(linen.Module):
    @linen.compact
    def __call__(self, x):
        x = linen.relu(linen.BatchNorm(use_running_average=False)(linen.Conv(64, (7, 7), (2, 2), use_bias=False)(x)))
        x = linen.max_pool(x, (3, 3), (2, 2), "SAME")
        for stage, blocks in enumerate((3, 4, 6, 3)):
            for block in range(blocks):
                x = Bottleneck(64 * 2**stage, 1 + (stage > 0 and block == 0))(x)
        return linen.Dense(1000)(x.mean((1, 2)))


IMAGES = f32(128, 224, 224, 3)
MOMENTUM = optax.sgd(0.1, momentum=0.9)


def resnet_arguments():
    net = jax.eval_shape(ResNet50().init, KEY, IMAGES)
    return net["params"], jax.eval_shape(MOMENTUM.init, net["params"]), net["batch_stats"], IMAGES, i32(128)


@model(resnet_arguments)
def resnet_step(params, state, statistics, images, labels):
    def loss(params):
        variables = {"params": params, "batch_stats": statistics}
        logits, new = ResNet50().apply(variables, images, mutable=["batch_stats"])
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), new["batch_stats"]

    gradients, new = jax.grad(loss, has_aux=True)(params)
    updates, state = MOMENTUM.update(gradients, state, params)
    return optax.apply_updates(params, updates), state, new


class Vision(linen.Module):
    """ViT-B/16."""

    @linen.compact
    def __call__(self, x):
        x = linen.Conv(768, (16, 16), (16, 16))(x).reshape(x.shape[0], -1, 768)
        x = x + self.param("places", linen.initializers.normal(), x.shape[1:])
        for _ in range(12):
            x = x + linen.MultiHeadDotProductAttention(12)(linen.LayerNorm()(x))
            x = x + linen.Dense(768)(linen.gelu(linen.Dense(3072)(linen.LayerNorm()(x))))
        return linen.Dense(1000)(x.mean(1))


@model(lambda: (jax.eval_shape(Vision().init, KEY, IMAGES), IMAGES))
def vision_transformer(variables, x):
    return Vision().apply(variables, x).sum()


class UNet(linen.Module):
    @linen.compact
    def __call__(self, x):
        def twice(x, width):
            for _ in range(2):
                x = linen.silu(linen.GroupNorm(8)(linen.Conv(width, (3, 3))(x)))
            return x

        kept = []
        for width in (64, 128, 256, 512):
            kept.append(x := twice(x, width))
            x = linen.avg_pool(x, (2, 2), (2, 2))
        x = twice(x, 1024)
        for width in (512, 256, 128, 64):
            x = linen.ConvTranspose(width, (2, 2), (2, 2))(x)
            x = twice(jnp.concatenate([x, kept.pop()], -1), width)
        return linen.Conv(3, (1, 1))(x)


@model(lambda: (jax.eval_shape(UNet().init, KEY, f32(16, 256, 256, 3)), f32(16, 256, 256, 3)))
def u_net(variables, x):
    return jnp.mean((UNet().apply(variables, x) - x) ** 2)


class Recurrent(linen.Module):
    @linen.compact
    def __call__(self, x):
        for _ in range(2):
            x = linen.RNN(linen.OptimizedLSTMCell(1024))(x)
        return x


@model(lambda: (jax.eval_shape(Recurrent().init, KEY, f32(64, 512, 1024)), f32(64, 512, 1024)))
def lstm(variables, x):
    return Recurrent().apply(variables, x).sum()


class Encoder(nnx.Module):
    """A layer of BERT-large."""

    def __init__(self, rngs):
        self.attention = nnx.MultiHeadAttention(16, 1024, decode=False, rngs=rngs)
        self.norms = nnx.List([nnx.LayerNorm(1024, rngs=rngs) for _ in range(2)])
        self.up, self.down = nnx.Linear(1024, 4096, rngs=rngs), nnx.Linear(4096, 1024, rngs=rngs)

    def __call__(self, x):
        x = self.norms[0](x + self.attention(x))
        return self.norms[1](x + self.down(jax.nn.gelu(self.up(x))))


@functools.cache
def encoders():
    """Their graph, and the shapes of their state."""
    return nnx.split(nnx.eval_shape(lambda: nnx.List([Encoder(nnx.Rngs(0)) for _ in range(6)])))


@model(lambda: (encoders()[1], f32(32, 512, 1024)))
def bert_layers(state, x):
    for layer in nnx.merge(encoders()[0], state):
        x = nnx.remat(lambda layer, x: layer(x))(layer, x)
    return x.sum()


@functools.cache
def mixer():
    """The shapes of its parameters, and the rest of it."""
    nets = eqx.filter_eval_shape(lambda: [eqx.nn.MLP(n, n, 4 * n, 2, jax.nn.gelu, key=KEY) for n in (1024, 196) * 6])
    return eqx.partition(nets, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))


@model(lambda: (mixer()[0], f32(64, 196, 1024)))
def equinox_mixer(parameters, x):
    layers = eqx.combine(parameters, mixer()[1])
    for channels, places in zip(layers[::2], layers[1::2], strict=True):
        x = x + jax.vmap(jax.vmap(channels))(x)
        x = x + jax.vmap(jax.vmap(places, 1, 1))(x)
    return x.sum()


@hk.without_apply_rng
@hk.transform
def decoder(x):
    for _ in range(6):
        normal = hk.initializers.RandomNormal()
        y = hk.LayerNorm(-1, True, True)(x)
        x = x + hk.MultiHeadAttention(16, 64, w_init=normal, model_size=1024)(y, y, y)
        x = x + hk.remat(hk.nets.MLP([4096, 1024], activation=jax.nn.gelu))(hk.LayerNorm(-1, True, True)(x))
    return x.sum()


@model(lambda: (jax.eval_shape(decoder.init, KEY, f32(16, 1024, 1024)), f32(16, 1024, 1024)))
def haiku_decoder(parameters, x):
    return decoder.apply(parameters, x)
