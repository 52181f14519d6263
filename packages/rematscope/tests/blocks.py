"""Six small blocks of real models, with names, for tests and measurements of the planner.

Each block is a function of parameters and inputs without checkpoints. Two blocks consist of layers of Flax and Equinox;
the names are on the results of these layers.
"""

import dataclasses
import functools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from compiled_programs import array
from flax import linen
from jax import lax
from jax.ad_checkpoint import checkpoint_name

BATCH, TOKENS, D, HEADS = 2, 16, 16, 2


@dataclasses.dataclass(frozen=True)
class Block:
    """A function and its arguments, as `jax.ShapeDtypeStruct`s."""

    function: Callable
    args: tuple


BLOCKS: dict[str, Block] = {}
_layer = ""


def name(x, what):
    """Names a value, in a stack of layers with the layer's number before."""
    return checkpoint_name(x, _layer + what)


def block(*args):
    """Adds the decorated function, called with these arguments, to the blocks."""

    def add(function):
        BLOCKS[function.__name__] = Block(function, args)
        return function

    return add


def weights(**shapes):
    return {key: array(*shape) for key, shape in shapes.items()}


TEXT = array(BATCH, TOKENS, D)


def split_heads(x):
    return x.reshape(*x.shape[:-1], HEADS, -1).swapaxes(-2, -3)


def join_heads(x):
    return x.swapaxes(-2, -3).reshape(*x.shape[:-3], x.shape[-2], -1)


def attend(q, k, v, causal=True):
    logits = name(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5, "logits")
    if causal:
        logits = jnp.where(jnp.tri(*logits.shape[-2:], dtype=bool), logits, -1e9)
    return name(jax.nn.softmax(logits) @ v, "context")


@block(
    weights(q=(D, D), k=(D, D), v=(D, D), out=(D, D), up=(D, 4 * D), down=(4 * D, D), scale1=(D,), scale2=(D,)), TEXT
)
def gpt(p, x):
    """Attention and a GELU layer, each after a layer norm, as in GPT-2."""

    def norm(x, which):
        centred = name(x - x.mean(-1, keepdims=True), f"centred{which}")
        deviation = name(lax.rsqrt(jnp.mean(centred**2, -1, keepdims=True) + 1e-5), f"deviation{which}")
        return name(centred * deviation * p[f"scale{which}"], f"norm{which}")

    y = norm(x, 1)
    q, k, v = (name(y @ p[key], key) for key in "qkv")
    x = name(x + join_heads(attend(*map(split_heads, (q, k, v)))) @ p["out"], "middle")
    up = name(norm(x, 2) @ p["up"], "up")
    return jnp.mean((x + jax.nn.gelu(up) @ p["down"]) ** 2)


def rotate(x):
    """Rotary position embedding."""
    half = x.shape[-1] // 2
    angle = jnp.arange(x.shape[-2])[:, None] * 10_000.0 ** (-jnp.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * jnp.cos(angle) - b * jnp.sin(angle), b * jnp.cos(angle) + a * jnp.sin(angle)], -1)


def rms_norm(x, scale, which):
    deviation = name(lax.rsqrt(jnp.mean(x**2, -1, keepdims=True) + 1e-6), f"deviation{which}")
    return name(x * deviation * scale, f"norm{which}")


@block(
    weights(q=(D, D), k=(D, D // 2), v=(D, D // 2), out=(D, D), gate=(D, 3 * D), up=(D, 3 * D), down=(3 * D, D))
    | weights(scale1=(D,), scale2=(D,)),
    TEXT,
)
def swiglu(p, x):
    """Grouped queries with rotary positions and a gated layer, as in Llama."""
    y = rms_norm(x, p["scale1"], 1)
    q, k, v = (name(y @ p[key], key) for key in "qkv")
    k, v = (jnp.repeat(t.reshape(*t.shape[:-1], HEADS // 2, -1), 2, -2).swapaxes(-2, -3) for t in (k, v))
    q, k = name(rotate(split_heads(q)), "q_rotated"), name(rotate(k), "k_rotated")
    x = name(x + join_heads(attend(q, k, v)) @ p["out"], "middle")
    y = rms_norm(x, p["scale2"], 2)
    gate, up = name(y @ p["gate"], "gate"), name(y @ p["up"], "up")
    hidden = name(jax.nn.silu(gate) * up, "hidden")
    return jnp.mean((x + hidden @ p["down"]) ** 2)


EXPERTS, PICKED, CAPACITY = 4, 2, 12


@block(
    weights(scale1=(D,), router=(D, EXPERTS), up=(EXPERTS, D, 2 * D), gate=(EXPERTS, D, 2 * D))
    | weights(down=(EXPERTS, 2 * D, D), shared=(D, D)),
    TEXT,
)
def moe(p, x):
    """Experts with a capacity of `CAPACITY` tokens, two experts per token, and a shared expert for all tokens."""
    tokens = rms_norm(x, p["scale1"], 1).reshape(-1, D)
    odds = name(jax.nn.softmax(name(tokens @ p["router"], "router")), "odds")
    share, expert = lax.top_k(odds, PICKED)
    expert = name(expert, "expert")
    share = name(share / share.sum(-1, keepdims=True), "share")
    picked = name(jax.nn.one_hot(expert, EXPERTS, dtype=jnp.int32).reshape(-1, EXPERTS), "picked")
    place = name(jnp.cumsum(picked, 0) * picked, "place")
    seats = jax.nn.one_hot(place - 1, CAPACITY)
    seats = name(seats.reshape(-1, PICKED, EXPERTS, CAPACITY), "seats")
    given = name(jnp.einsum("tkec,td->ecd", seats, tokens), "given")
    gate = name(jnp.einsum("ecd,edh->ech", given, p["gate"]), "gate")
    up = name(jnp.einsum("ecd,edh->ech", given, p["up"]), "up")
    hidden = name(jax.nn.silu(gate) * up, "hidden")
    result = name(jnp.einsum("ech,ehd->ecd", hidden, p["down"]), "result")
    together = jnp.einsum("tk,tkec,ecd->td", share, seats, result)
    return jnp.mean((together + jnp.tanh(name(tokens @ p["shared"], "shared"))).reshape(x.shape) ** 2)


@block(
    weights(
        inside=(D, 4 * D), kernel=(3, 1, 2 * D), rate=(2 * D, 2 * D), bc=(2 * D, 8), decay=(2 * D, 4), skip=(2 * D,)
    )
    | weights(out=(2 * D, D), scale1=(D,)),
    TEXT,
)
def mamba(p, x):
    """A selective state space: a scan over time whose decay depends on its input."""
    inner, gate = jnp.split(name(rms_norm(x, p["scale1"], 1) @ p["inside"], "inside"), 2, -1)
    numbers = ("NWC", "WIO", "NWC")
    mixed = lax.conv_general_dilated(
        inner, p["kernel"], (1,), [(2, 0)], dimension_numbers=numbers, feature_group_count=2 * D
    )
    u = name(jax.nn.silu(name(mixed, "mixed")), "u")
    rate = name(jax.nn.softplus(name(u @ p["rate"], "rate_before")), "rate")
    b, c = jnp.split(name(u @ p["bc"], "bc"), 2, -1)
    decay = name(-jnp.exp(p["decay"]), "decay")

    def step(state, at):
        u, rate, b, c = at
        kept = name(jnp.exp(rate[..., None] * decay), "kept")
        taken = name((rate * u)[..., None] * b[:, None], "taken")
        state = name(kept * state + taken, "state")
        return state, name(jnp.einsum("bdn,bn->bd", state, c), "seen")

    times = tuple(t.swapaxes(0, 1) for t in (u, rate, b, c))
    _, y = lax.scan(step, jnp.zeros((x.shape[0], 2 * D, 4)), times)
    y = name((y.swapaxes(0, 1) + u * p["skip"]) * jax.nn.silu(gate), "gated")
    return jnp.mean((x + y @ p["out"]) ** 2)


LAYERS = (linen.Conv, linen.GroupNorm)


class Bottleneck(linen.Module):
    """Three convolutions and a way around them, as in ResNet-50, with group norms."""

    width: int
    out: int

    @linen.compact
    def __call__(self, x):
        conv = functools.partial(linen.Conv, use_bias=False)
        y = linen.relu(linen.GroupNorm(4, name="norm1")(conv(self.width, (1, 1), name="conv1")(x)))
        y = linen.relu(linen.GroupNorm(4, name="norm2")(conv(self.width, (3, 3), 2, name="conv2")(y)))
        y = linen.GroupNorm(4, name="norm3")(conv(self.out, (1, 1), name="conv3")(y))
        return linen.relu(y + linen.GroupNorm(4, name="norm4")(conv(self.out, (1, 1), 2, name="conv4")(x)))


def named_layers(call, args, kwargs, context):
    """Gives the result of each Flax layer the name of that layer."""
    result = call(*args, **kwargs)
    return name(result, "/".join(context.module.path)) if isinstance(context.module, LAYERS) else result


RESNET = linen.Sequential([Bottleneck(8, 32), Bottleneck(16, 64)])
IMAGES = array(BATCH, 8, 8, 16)


@block(jax.eval_shape(RESNET.init, jax.random.key(0), IMAGES), IMAGES)
def resnet(p, x):
    with linen.intercept_methods(named_layers):
        return jnp.mean(RESNET.apply(p, x) ** 2)


class Named(eqx.Module):
    """A layer whose result has a name."""

    layer: Callable
    name: str = eqx.field(static=True)

    def __call__(self, *args, **kwargs):
        return name(self.layer(*args, **kwargs), self.name)


class Decoder(eqx.Module):
    """Attention to itself, attention to a memory, and a GELU layer, on one sequence."""

    norms: list
    to_itself: eqx.nn.MultiheadAttention
    to_memory: eqx.nn.MultiheadAttention
    hidden: eqx.nn.MLP

    def __init__(self, key):
        keys = jax.random.split(key, 3)
        self.norms = [Named(eqx.nn.LayerNorm(D), f"norm{i}") for i in range(3)]
        self.to_itself = named_attention(eqx.nn.MultiheadAttention(HEADS, D, key=keys[0]), "self")
        self.to_memory = named_attention(eqx.nn.MultiheadAttention(HEADS, D, key=keys[1]), "cross")
        mlp = eqx.nn.MLP(D, D, 4 * D, 1, jax.nn.gelu, key=keys[2])
        self.hidden = eqx.tree_at(lambda m: m.layers[0], mlp, Named(mlp.layers[0], "up"))

    def __call__(self, x, memory):
        y = jax.vmap(self.norms[0])(x)
        x = x + self.to_itself(y, y, y, mask=jnp.tri(len(x), dtype=bool))
        x = name(x + self.to_memory(jax.vmap(self.norms[1])(x), memory, memory), "middle")
        return x + jax.vmap(lambda x: self.hidden(self.norms[2](x)))(x)


def named_attention(attention, which):
    def projections(a):
        return a.query_proj, a.key_proj, a.value_proj, a.output_proj

    named = [Named(layer, f"{which}_{part}") for layer, part in zip(projections(attention), "qkvo", strict=True)]
    return eqx.tree_at(projections, attention, named)


DECODER = eqx.filter_eval_shape(Decoder, jax.random.key(0))
PARAMETERS, STATIC = eqx.partition(DECODER, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))


@block(PARAMETERS, TEXT, array(BATCH, 24, D))
def cross_attention(p, x, memory):
    return jnp.mean(jax.vmap(eqx.combine(p, STATIC))(x, memory) ** 2)


def stack(layers):
    """A stack of the language models' blocks in rotation, each with a checkpoint and its own names."""
    kinds = [BLOCKS[which] for which in ("gpt", "swiglu", "moe", "mamba")]
    kinds = [kinds[i % len(kinds)] for i in range(layers)]

    def net(ps, x):
        global _layer
        for i, (kind, p) in enumerate(zip(kinds, ps, strict=True)):
            _layer = f"{i}."
            # A function of its own, or JAX takes the trace of an equal layer before, names and all.
            x = x + jax.checkpoint(lambda p, x, kind=kind: kind.function(p, x))(p, x)
        _layer = ""
        return jnp.mean(x)

    return net, ([kind.args[0] for kind in kinds], TEXT)
