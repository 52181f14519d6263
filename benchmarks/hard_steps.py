"""Training steps whose capacity is missed by 1.2 to 8 times: the report must find changes that fit.

As a script, it prints a table of which proposals fit, with the check of each one's results. `--save` also writes each
report to a page in a folder:

    python benchmarks/hard_steps.py [names…] [--factors 2 4] [--save pages]
"""

import argparse
import functools
import importlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen, nnx
from jax import lax

from rematscope.reporting.fixes import Search
from rematscope.reporting.report import COMPILES, Report
from rematscope.reporting.rewrite import Changes
from rematscope.reporting.subject import Subject as Reported


class Subject(NamedTuple):
    """A step and its arguments, and whether its loss draws random numbers."""

    step: Callable[..., Any]
    args: tuple[Any, ...]
    is_random: bool = False


HARD: dict[str, Any] = {}
FACTORS = 1.2, 2.0, 4.0, 8.0
# Adam with a large eps: with a small one, the first update of a weight whose gradient is 0 is the sign of a rounding.


def hard(make):
    """Add a step under its name; it is created on demand."""
    HARD[make.__name__] = functools.cache(make)
    return HARD[make.__name__]


def cross_entropy(logits, labels):
    return optax.softmax_cross_entropy_with_integer_labels(logits.astype(jnp.float32), labels).mean()


def ids(seed, shape, words):
    return jax.random.randint(jax.random.key(seed), shape, 0, words)


def normal(seed, *shape):
    return jax.random.normal(jax.random.key(seed), shape)


def weights(seed, *shape):
    return normal(seed, *shape) * shape[-2] ** -0.5


def attention(x, p, heads=4):
    batch, time, width = x.shape
    q, k, v = (t.reshape(batch, time, heads, -1) for t in jnp.split(x @ p["qkv"], 3, -1))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (width // heads) ** -0.5
    scores = jnp.where(jnp.tril(jnp.ones((time, time), bool)), scores, jnp.finfo(scores.dtype).min)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v).reshape(x.shape) @ p["out"]


def norm(x):
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)


def layer(x, p):
    x = x + attention(norm(x), p)
    return x + jax.nn.gelu(norm(x) @ p["up"]) @ p["down"]


def layer_weights(seed, width, *stack):
    shapes = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, 4 * width), "down": (4 * width, width)}
    return {name: weights(seed + i, *stack, *shape) for i, (name, shape) in enumerate(shapes.items())}


@hard
def gpt_unrolled():
    """Plain JAX: a list of layers, tied embedding, clipping, AdamW; the loss is a mean over the tokens of a mask."""
    params = {"embed": weights(1, 128, 64), "layers": [layer_weights(10 * i, 64) for i in range(6)]}
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3, eps=1.0))

    def loss_fn(params, batch):
        x = params["embed"][batch["tokens"]]
        for p in params["layers"]:
            x = layer(x, p)
        losses = optax.softmax_cross_entropy_with_integer_labels(norm(x) @ params["embed"].T, batch["targets"])
        return jnp.sum(losses * batch["mask"]) / jnp.sum(batch["mask"])

    @jax.jit
    def train_step(params, opt_state, batch):
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, {"loss": loss, "grad_norm": optax.global_norm(grads)}

    tokens = ids(0, (16, 65), 128)
    batch = {"tokens": tokens[:, :-1], "targets": tokens[:, 1:], "mask": (tokens[:, 1:] > 20).astype(jnp.float32)}
    return Subject(train_step, (params, tx.init(params), batch))


@hard
def gpt_scanned_float16():
    """A scan over layers in float16 from float32 weights, a loss scale, and steps that are skipped."""
    params = {"embed": weights(1, 128, 64), "layers": layer_weights(2, 64, 8)}
    tx = optax.adam(1e-3, eps=1.0)

    def loss_fn(params, tokens, scale):
        half = jax.tree.map(lambda w: w.astype(jnp.float16), params)
        x, _ = lax.scan(lambda x, p: (layer(x, p), None), half["embed"][tokens[:, :-1]], half["layers"])
        logits = (norm(x) @ half["embed"].T).astype(jnp.float32)
        return cross_entropy(logits, tokens[:, 1:]) * scale

    @functools.partial(jax.jit, donate_argnums=0)
    def train_step(state, tokens):
        params, opt_state, scale = state
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens, scale)
        grads = jax.tree.map(lambda g: g / scale, grads)
        finite = jnp.all(jnp.array([jnp.isfinite(g).all() for g in jax.tree.leaves(grads)]))
        updates, new = tx.update(grads, opt_state, params)
        kept = jax.tree.map(lambda a, b: jnp.where(finite, a, b), (optax.apply_updates(params, updates), new),
                            (params, opt_state))  # fmt: skip
        return (*kept, jnp.where(finite, scale, scale / 2)), loss / scale

    return Subject(train_step, ((params, tx.init(params), jnp.float32(1024)), ids(0, (16, 65), 128)))


@hard
def cnn_with_batch_norm():
    """Linen: convolutions with batch normalization, whose statistics are returned, and dropout before the head."""

    class CNN(linen.Module):
        @linen.compact
        def __call__(self, x):
            for width in (16, 16, 32, 32, 64):
                x = linen.Conv(width, (3, 3), 2 if width > x.shape[-1] > 3 else 1, use_bias=False)(x)
                x = linen.relu(linen.BatchNorm(use_running_average=False)(x))
            x = linen.Dropout(0.2, deterministic=False)(x.mean((1, 2)))
            return linen.Dense(10)(x)

    model, tx = CNN(), optax.sgd(0.1, momentum=0.9)
    images, labels = normal(0, 16, 32, 32, 3), ids(1, (16,), 10)
    variables = model.init({"params": jax.random.key(0), "dropout": jax.random.key(1)}, images)
    params, stats = variables["params"], variables["batch_stats"]

    @jax.jit
    def train_step(params, stats, opt_state, images, labels, key):
        def loss_fn(params):
            logits, new = model.apply({"params": params, "batch_stats": stats}, images, mutable=["batch_stats"],
                                      rngs={"dropout": key})  # fmt: skip
            return cross_entropy(logits, labels), (new["batch_stats"], (logits.argmax(-1) == labels).mean())

        (loss, (new, accuracy)), grads = jax.value_and_grad(loss_fn, has_aux=True)(params)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), new, opt_state, loss, accuracy

    return Subject(train_step, (params, stats, tx.init(params), images, labels, jax.random.key(2)), is_random=True)


@hard
def unet_nnx():
    """Flax nnx: a U-Net of a diffusion model; times and noise are drawn in the step, the model changes in place."""

    class Block(nnx.Module):
        def __init__(self, width, out, rngs):
            self.norms = nnx.List([nnx.GroupNorm(width, 4, rngs=rngs), nnx.GroupNorm(out, 4, rngs=rngs)])
            self.convs = nnx.List([nnx.Conv(width, out, (3, 3), rngs=rngs), nnx.Conv(out, out, (3, 3), rngs=rngs)])
            self.time, self.skip = nnx.Linear(32, out, rngs=rngs), nnx.Conv(width, out, (1, 1), rngs=rngs)

        def __call__(self, x, t):
            y = self.convs[0](nnx.silu(self.norms[0](x))) + self.time(t)[:, None, None]
            return self.skip(x) + self.convs[1](nnx.silu(self.norms[1](y)))

    class UNet(nnx.Module):
        def __init__(self, rngs):
            self.enter, self.leave = nnx.Conv(3, 16, (3, 3), rngs=rngs), nnx.Conv(16, 3, (3, 3), rngs=rngs)
            self.down = nnx.List([Block(16, 16, rngs), Block(16, 32, rngs), Block(32, 64, rngs)])
            self.up = nnx.List([Block(128, 32, rngs), Block(64, 16, rngs), Block(32, 16, rngs)])

        def __call__(self, x, t):
            t = jnp.concatenate([f(t[:, None] * 2.0 ** jnp.arange(16)) for f in (jnp.sin, jnp.cos)], -1)
            x, skips = self.enter(x), []
            for block in self.down:
                x = block(x, t)
                skips.append(x)
                x = nnx.avg_pool(x, (2, 2), (2, 2))
            for block in self.up:
                x = jax.image.resize(x, (x.shape[0], 2 * x.shape[1], 2 * x.shape[2], x.shape[3]), "nearest")
                x = block(jnp.concatenate([x, skips.pop()], -1), t)
            return self.leave(x)

    model = UNet(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-4, eps=1.0), wrt=nnx.Param)

    @nnx.jit
    def train_step(model, optimizer, images, key):
        a, b = jax.random.split(key)
        t, noise = jax.random.uniform(a, (images.shape[0],)), jax.random.normal(b, images.shape)
        mixed = images * jnp.cos(t)[:, None, None, None] + noise * jnp.sin(t)[:, None, None, None]
        loss, grads = nnx.value_and_grad(lambda m: jnp.mean((m(mixed, t) - noise) ** 2))(model)
        optimizer.update(model, grads)
        return loss

    return Subject(train_step, (model, optimizer, normal(1, 16, 32, 32, 3), jax.random.key(3)), is_random=True)


@hard
def mixture_of_experts():
    """Haiku: top-2 routing with a loss that balances the experts, which is no mean over examples."""
    width, experts = 64, 4

    def moe(x):
        gates = jax.nn.softmax(hk.Linear(experts)(x), -1)
        top, which = lax.top_k(gates, 2)
        mixed = jnp.sum(jax.nn.one_hot(which, experts) * (top / top.sum(-1, keepdims=True))[..., None], -2)
        up = hk.get_parameter("up", (experts, width, 2 * width), init=hk.initializers.VarianceScaling())
        down = hk.get_parameter("down", (experts, 2 * width, width), init=hk.initializers.VarianceScaling())
        y = jnp.einsum("btef,efd->bted", jax.nn.gelu(jnp.einsum("btd,edf->btef", x, up)), down)
        share = jnp.mean(jax.nn.one_hot(which[..., 0], experts), (0, 1))
        return jnp.einsum("bted,bte->btd", y, mixed), experts * jnp.sum(share * gates.mean((0, 1)))

    @hk.without_apply_rng
    @hk.transform
    def model(tokens):
        x, balance = hk.Embed(128, width)(tokens), 0.0
        for i in range(4):
            with hk.experimental.name_scope(f"layer{i}"):
                y = hk.LayerNorm(-1, True, True)(x)
                x = x + hk.MultiHeadAttention(4, 16, w_init=hk.initializers.VarianceScaling())(y, y, y)
                y, loss = moe(hk.LayerNorm(-1, True, True)(x))
                x, balance = x + y, balance + loss
        return hk.Linear(128)(x), balance

    tx = optax.adam(1e-3, eps=1.0)
    tokens = ids(0, (16, 64), 128)
    params = model.init(jax.random.key(0), tokens)

    def loss_fn(params, tokens, labels):
        logits, balance = model.apply(params, tokens)
        return cross_entropy(logits, labels) + 0.01 * balance

    @jax.jit
    def update(params, opt_state, tokens, labels):
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens, labels)
        updates, opt_state = tx.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss

    return Subject(update, (params, tx.init(params), tokens, tokens))


@hard
def lstm_with_time_first():
    """Two LSTM layers over sequences whose first axis is time, each with a length."""
    width, steps, batch = 64, 64, 32
    params = [{"w": weights(i, 64, 4 * width), "u": weights(i + 5, width, 4 * width)} for i in range(2)]
    params = {"cells": params, "out": weights(9, width, 16)}
    tx = optax.rmsprop(1e-3, eps=1.0)

    def cell(p, carry, x):
        h, c = carry
        i, f, g, o = jnp.split(x @ p["w"] + h @ p["u"], 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (jax.nn.sigmoid(o) * jnp.tanh(c), c), jax.nn.sigmoid(o) * jnp.tanh(c)

    def loss_fn(params, xs, ys, lengths):
        for p in params["cells"]:
            zero = jnp.zeros((xs.shape[1], width))
            _, xs = lax.scan(functools.partial(cell, p), (zero, zero), xs)
        valid = jnp.arange(xs.shape[0])[:, None] < lengths
        errors = jnp.sum((xs @ params["out"] - ys) ** 2, -1)
        return jnp.sum(errors * valid) / jnp.sum(valid)

    @jax.jit
    def train_step(params, opt_state, xs, ys, lengths):
        loss, grads = jax.value_and_grad(loss_fn)(params, xs, ys, lengths)
        updates, opt_state = tx.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss

    data = normal(0, steps, batch, 64), normal(1, steps, batch, 16), ids(2, (batch,), steps) + 1
    return Subject(train_step, (params, tx.init(params), *data))


@hard
def vit_with_dropout():
    """Equinox: a ViT whose dropout has a key per example; the model is filtered."""

    class Layer(eqx.Module):
        attention: eqx.nn.MultiheadAttention
        mlp: eqx.nn.MLP
        norms: list[eqx.nn.LayerNorm]
        dropout: eqx.nn.Dropout

        def __init__(self, key):
            a, b = jax.random.split(key)
            self.attention = eqx.nn.MultiheadAttention(4, 64, key=a)
            self.mlp = eqx.nn.MLP(64, 64, 256, 1, jax.nn.gelu, key=b)
            self.norms = [eqx.nn.LayerNorm(64), eqx.nn.LayerNorm(64)]
            self.dropout = eqx.nn.Dropout(0.1)

        def __call__(self, x, key):
            a, b = jax.random.split(key)
            y = jax.vmap(self.norms[0])(x)
            x = x + self.dropout(self.attention(y, y, y), key=a)
            return x + self.dropout(jax.vmap(self.mlp)(jax.vmap(self.norms[1])(x)), key=b)

    class ViT(eqx.Module):
        patches: eqx.nn.Conv2d
        layers: list[Layer]
        head: eqx.nn.Linear

        def __init__(self, key):
            a, b, *keys = jax.random.split(key, 8)
            self.patches, self.head = eqx.nn.Conv2d(3, 64, 4, 4, key=a), eqx.nn.Linear(64, 10, key=b)
            self.layers = [Layer(key) for key in keys]

        def __call__(self, image, key):
            x = self.patches(image).reshape(64, -1).T
            for each, own in zip(self.layers, jax.random.split(key, len(self.layers)), strict=True):
                x = each(x, own)
            return self.head(x.mean(0))

    model, tx = ViT(jax.random.key(0)), optax.adamw(1e-3, eps=1.0)

    @eqx.filter_jit
    def make_step(model, opt_state, images, labels, key):
        @eqx.filter_value_and_grad
        def loss_fn(model):
            return cross_entropy(jax.vmap(model)(images, jax.random.split(key, images.shape[0])), labels)

        loss, grads = loss_fn(model)
        updates, opt_state = tx.update(grads, opt_state, eqx.filter(model, eqx.is_inexact_array))
        return eqx.apply_updates(model, updates), opt_state, loss

    state = tx.init(eqx.filter(model, eqx.is_inexact_array))
    return Subject(make_step, (model, state, normal(1, 16, 3, 32, 32), ids(2, (16,), 10), jax.random.key(3)), True)


@hard
def lora_scanned():
    """LoRA in bfloat16: a scan over frozen layers with adapters next to their matrices."""
    frozen = {name: w.astype(jnp.bfloat16) for name, w in layer_weights(2, 64, 8).items()}
    frozen["embed"] = weights(1, 256, 64).astype(jnp.bfloat16)
    adapters = {"a": weights(3, 8, 64, 4), "b": jnp.zeros((8, 4, 192))}
    tx = optax.adam(1e-3, eps=1.0)

    def loss_fn(adapters, frozen, tokens):
        def body(x, p):
            p["qkv"] = p["qkv"] + (p.pop("a") @ p.pop("b")).astype(jnp.bfloat16)
            return layer(x, p), None

        stack = {name: w for name, w in frozen.items() if name != "embed"} | adapters
        x, _ = lax.scan(body, frozen["embed"][tokens[:, :-1]], stack)
        return cross_entropy(norm(x) @ frozen["embed"].T, tokens[:, 1:])

    @jax.jit
    def train_step(adapters, opt_state, frozen, tokens):
        loss, grads = jax.value_and_grad(loss_fn)(adapters, frozen, tokens)
        updates, opt_state = tx.update(grads, opt_state)
        return optax.apply_updates(adapters, updates), opt_state, loss

    return Subject(train_step, (adapters, tx.init(adapters), frozen, ids(0, (16, 65), 256)))


@hard
def large_vocabulary():
    """Two layers and a head whose logits are most of the memory; the last step's metrics use them too."""
    params = {"embed": weights(1, 4096, 32), "head": weights(2, 32, 4096), "layers": [layer_weights(9, 32)] * 2}
    tx = optax.sgd(1e-2, momentum=0.9)

    def loss_fn(params, tokens, targets):
        x = params["embed"][tokens]
        for p in params["layers"]:
            x = layer(x, p)
        logits = norm(x) @ params["head"]
        log_z = jax.nn.logsumexp(logits, -1)
        picked = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
        right = jnp.mean(logits.argmax(-1) == targets)
        return jnp.mean(log_z - picked) + 1e-4 * jnp.mean(log_z**2), right

    @jax.jit
    def train_step(params, opt_state, tokens, targets):
        (loss, right), grads = jax.value_and_grad(loss_fn, has_aux=True)(params, tokens, targets)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss, right

    tokens = ids(0, (16, 128), 4096)
    return Subject(train_step, (params, tx.init(params), tokens, tokens))


@hard
def transformer_with_scanned_dropout():
    """Linen: `nn.scan` over blocks with dropout, whose keys are split per layer."""

    class Block(linen.Module):
        @linen.compact
        def __call__(self, x, _):
            drop = functools.partial(linen.Dropout, 0.1, deterministic=False)
            y = linen.LayerNorm()(x)
            x = x + drop()(linen.MultiHeadDotProductAttention(4)(y, y))
            return x + drop()(linen.Dense(64)(linen.gelu(linen.Dense(256)(linen.LayerNorm()(x))))), None

    class Model(linen.Module):
        @linen.compact
        def __call__(self, tokens):
            x = linen.Embed(128, 64)(tokens) + self.param("positions", linen.initializers.normal(), (64, 64))
            rngs = {"params": True, "dropout": True}
            x, _ = linen.scan(Block, {"params": 0}, split_rngs=rngs, length=6)()(x, None)
            return linen.Dense(128)(x)

    model, tx = Model(), optax.adamw(1e-3, eps=1.0)
    tokens = ids(0, (16, 64), 128)
    params = model.init({"params": jax.random.key(0), "dropout": jax.random.key(1)}, tokens)["params"]

    def train_step(params, opt_state, batch, step):
        key = jax.random.fold_in(jax.random.key(7), step)

        def loss_fn(params):
            return cross_entropy(model.apply({"params": params}, batch["x"], rngs={"dropout": key}), batch["y"])

        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    return Subject(train_step, (params, tx.init(params), {"x": tokens, "y": tokens}, jnp.int32(3)), is_random=True)


@hard
def contrastive():
    """CLIP: two towers and a loss over all pairs of examples, which no microbatches give."""
    params = {"image": [layer_weights(i, 64) for i in (1, 2)], "text": [layer_weights(i, 64) for i in (3, 4)]}
    params |= {"patch": weights(5, 48, 64), "embed": weights(6, 128, 64), "scale": jnp.float32(1.0)}
    tx = optax.adam(1e-3, eps=1.0)

    def tower(x, layers):
        for p in layers:
            x = layer(x, p)
        x = x.mean(1)
        return x / jnp.linalg.norm(x, axis=-1, keepdims=True)

    def loss_fn(params, images, texts):
        one = tower(images @ params["patch"], params["image"])
        other = tower(params["embed"][texts], params["text"])
        logits = one @ other.T * jnp.exp(params["scale"])
        labels = jnp.arange(logits.shape[0])
        return (cross_entropy(logits, labels) + cross_entropy(logits.T, labels)) / 2

    @jax.jit
    def train_step(params, opt_state, images, texts):
        loss, grads = jax.value_and_grad(loss_fn)(params, images, texts)
        updates, opt_state = tx.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss

    return Subject(train_step, (params, tx.init(params), normal(0, 32, 64, 48), ids(1, (32, 32), 128)))


def copied(tree):
    return jax.tree.map(lambda leaf: jnp.copy(leaf) if eqx.is_array(leaf) else leaf, tree)


def outcome(step, args):
    """Return the floating-point results of a step on copies of its arguments, with the modules that it changes."""
    args = copied(args)
    returned = step(*args)
    modules = [arg for arg in args if isinstance(arg, nnx.Module | nnx.Optimizer)]
    leaves = [leaf for leaf in jax.tree.leaves((returned, modules)) if eqx.is_inexact_array(leaf)]
    return [np.asarray(leaf, np.float64) for leaf in leaves]


def difference(expected, found):
    """Return the largest difference of two outcomes, relative to the norm of the array."""
    norms = [(np.linalg.norm(a - b), np.linalg.norm(a)) for a, b in zip(expected, found, strict=True)]
    return max((gap / (size + 1e-3) for gap, size in norms), default=0.0)


def reported(subject, base, limit):
    """Return the report on a step that was already traced and compiled, for another capacity."""
    search = Search(subject, limit, COMPILES, lambda *_: None)
    search.measured[Changes()] = base
    subject.operations = 0
    return Report(subject, search, search.run(), None)


def line_of(name, factor, step, args, report, expected):
    """Return what a report proposes for a capacity, and how far the results of the proposed step differ."""
    best = report.best
    if best is None:
        least = min((fix.best_bytes for fix in report.fixes), default=report.peak_bytes)
        return f"{name:34} {factor:3}x  nothing fits: least {least / report.limit:.2f} of the capacity"
    scope = {report.function: step}
    exec(best.snippet, scope)
    gap = difference(expected, outcome(scope[report.function], args))
    return (
        f"{name:34} {factor:3}x  {best.peak_bytes / report.limit:.2f} of the capacity, {best.extra_share:+.0%} FLOPs, "
        f"differs by {gap:.0e}: {best.changes}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="the names of the steps; all by default")
    parser.add_argument("--factors", type=float, nargs="+", default=FACTORS, help="compiled peak / capacity")
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="write each report to a page in this folder")
    options = parser.parse_args()
    for name in ("library_steps", "example_steps"):  # which add their own
        importlib.import_module(name)
    steps, missed = sys.modules["hard_steps"].HARD, 0
    chosen = options.names or steps
    for name in chosen:
        step, args, *_ = steps[name]()
        start = time.process_time()
        subject = Reported(step, args, {}, None, "cpu")
        subject.traced(Changes())
        base, expected = subject.compiled(Changes()), outcome(step, args)
        for factor in options.factors:
            report = reported(subject, base, int(base.peak_or_infinity / factor))
            missed += report.best is None
            print(line_of(name, factor, step, args, report, expected), flush=True)
            if options.save:
                options.save.mkdir(parents=True, exist_ok=True)
                report.save(options.save / f"{name}_{factor:g}.html")
        print(f"{name:34} {time.process_time() - start:.0f} s", flush=True)
    total = len(options.factors) * len(chosen)
    print(f"{total - missed} of {total} fit")


if __name__ == "__main__":
    sys.modules["hard_steps"] = sys.modules["__main__"]
    main()
