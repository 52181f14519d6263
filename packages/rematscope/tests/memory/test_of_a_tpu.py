"""The temporaries predicted for a TPU v5e, compared with the bytes that libtpu 0.0.50 allocates.

A TPU fuses elementwise operations with the matmuls that read them and with the matmuls that they read. The prediction
is less accurate for checkpoints around some of these layers: libtpu allocates 46 % more for a `perceptron`, 28 % more
for `attention`, 20 % more for a `rectified` layer, and 28 % less for a `gated` one.
"""

import importlib.util

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from rematscope import measure, trace
from rematscope.memory.xla_estimate.estimate import estimate_temporary_bytes

WIDTH, TOKENS = 1024, (64, 512)


def of(*lengths):
    return jax.ShapeDtypeStruct(lengths, jnp.bfloat16)


def normed(x):
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def perceptron(x, w):
    return x + jax.nn.gelu(x @ w["up"]) @ w["down"]


def rectified(x, w):
    y = normed(x.astype(jnp.float32)).astype(jnp.bfloat16)
    return x + jax.nn.relu(y @ w["up"]) @ w["down"]


def gated(x, w):
    return x + (jax.nn.silu(x @ w["q"]) * (x @ w["k"])) @ w["v"]


def one_product(x, w):
    return x + jnp.tanh((normed(x) * w["scale"]) @ w["q"])


def attention(x, w, heads=8):
    q, k, v = ((x @ w[n]).reshape(*x.shape[:2], heads, -1).swapaxes(1, 2) for n in "qkv")
    weights = jax.nn.softmax(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5)
    return x + (weights @ v).swapaxes(1, 2).reshape(x.shape) @ w["o"]


def block(x, w):
    y = normed(x) * w["scale"]
    return perceptron(x + attention(y, w, 4) - y, w)


def stack(layer, checkpoint):
    def loss(ws, x):
        for w in ws:
            x = (jax.checkpoint(layer) if checkpoint else layer)(x, w)
        return jnp.mean(x**2)

    sizes = dict.fromkeys("qkvo", (WIDTH, WIDTH))
    sizes |= {"up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH), "scale": (WIDTH,)}
    return loss, [{name: of(*size) for name, size in sizes.items()}] * 3, of(*TOKENS, WIDTH)


SET_ASIDE = {
    (perceptron, False): 1_007_278_080,
    (rectified, False): 1_009_651_200,
    (gated, False): 742_068_736,
    (one_product, False): 405_633_024,
    (one_product, True): 337_544_704,
    (attention, False): 2_429_492_736,
    (block, False): 2_429_618_688,
    (block, True): 955_283_456,
}


def predicted(f, args):
    passes = trace(f, *args)
    return estimate_temporary_bytes(
        [passes.forward, passes.backward], [*passes.outputs, *passes.backward.outputs], "tpu v5e"
    )


@pytest.mark.parametrize(("layer", "checkpoint"), SET_ASIDE)
def test_matmuls_are_fused_with_the_operations_around_them(layer, checkpoint):
    f, *args = stack(layer, checkpoint)
    assert predicted(f, args) == pytest.approx(SET_ASIDE[layer, checkpoint], rel=0.12)


@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs the extra tpu")
def test_libtpu_still_does():
    f, *args = stack(gated, False)
    assert predicted(f, args) == pytest.approx(measure(f, *args, target="tpu v5e").temp_bytes, rel=0.12)
