"""What `auto` makes of models that name nothing, beside a checkpoint around each layer: README's table comes from it.

    python benchmarks/auto.py [cpu | tpu v5e | …]

For each model both are compiled; `auto` is given the peak of the checkpoints, and then one with 80 % of their
temporaries. Printed are the temporaries of both and what both compute again: FLOPs and transcendentals beyond those of
the function without checkpoints.
"""

import functools
import sys
import time

import jax
import jax.numpy as jnp
from jax import lax

from rematscope import PlanError, auto, measure


def shape(*lengths):
    return jax.ShapeDtypeStruct(lengths, jnp.float32)


def norm(x, scale):
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * scale


def attention(p, x, y, heads):
    q, k, v = ((a @ p[n]).reshape(*a.shape[:2], heads, -1).swapaxes(1, 2) for a, n in ((x, "q"), (y, "k"), (y, "v")))
    weights = jax.nn.softmax(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5)
    return (weights @ v).swapaxes(1, 2).reshape(x.shape) @ p["o"]


def gpt_layer(x, p):
    y = norm(x, p["s1"])
    x = x + attention(p, y, y, 4)
    return x + jax.nn.gelu(norm(x, p["s2"]) @ p["up"]) @ p["down"]


def cross_layer(x, p):
    x = x + attention(p, norm(x, p["s1"]), p["memory"], 4)
    return x + jax.nn.gelu(norm(x, p["s2"]) @ p["up"]) @ p["down"]


def moe_layer(x, p):
    gates = jax.nn.softmax(x @ p["gate"])
    hidden = jax.nn.gelu(jnp.einsum("btd,edf->btef", norm(x, p["s1"]), p["up"]))
    return x + jnp.einsum("bte,btef,efd->btd", gates, hidden, p["down"])


def conv_layer(x, p):
    y = x
    for n in ("c1", "c2"):
        dims = ("NHWC", "HWIO", "NHWC")
        y = jax.nn.relu(norm(lax.conv_general_dilated(y, p[n], (1, 1), "SAME", dimension_numbers=dims), 1.0))
    return x + y


def mixer_layer(x, p):
    x = x + (jax.nn.gelu(norm(x, p["s1"]).swapaxes(1, 2) @ p["tokens"]) @ p["back"]).swapaxes(1, 2)
    return x + jax.nn.silu(norm(x, p["s2"]) @ p["up"]) @ p["down"]


def block_parameters(d, tokens=None):
    p = {n: shape(d, d) for n in "qkvo"} | {"up": shape(d, 4 * d), "down": shape(4 * d, d)}
    p |= {"s1": shape(d), "s2": shape(d)}
    return p | ({"memory": shape(*tokens)} if tokens else {})


def unrolled(layer, checkpoint):
    def model(ps, x):
        for p in ps:
            x = (jax.checkpoint(layer) if checkpoint else layer)(x, p)
        return jnp.mean(x**2)

    return model


def scanned(layer, checkpoint):
    def body(x, p):
        return layer(x, p), None

    def model(ps, x):
        return jnp.mean(lax.scan(jax.checkpoint(body) if checkpoint else body, x, ps)[0] ** 2)

    return model


def stacked(p, count):
    return jax.tree.map(lambda s: shape(count, *s.shape), p)


D, X = 128, shape(8, 128, 128)
MODELS = {
    "GPT, 6 layers": (functools.partial(unrolled, gpt_layer), ([block_parameters(D)] * 6, X)),
    "GPT, 8 layers in a scan": (functools.partial(scanned, gpt_layer), (stacked(block_parameters(D), 8), X)),
    "cross attention, 4 layers": (
        functools.partial(unrolled, cross_layer),
        ([block_parameters(D, (8, 64, D))] * 4, X),
    ),
    "experts, 4 layers": (
        functools.partial(unrolled, moe_layer),
        ([{"gate": shape(D, 4), "up": shape(4, D, D), "down": shape(4, D, D), "s1": shape(D)}] * 4, X),
    ),
    "residual convolutions, 6 blocks": (
        functools.partial(unrolled, conv_layer),
        ([{n: shape(3, 3, 32, 32) for n in ("c1", "c2")}] * 6, shape(8, 28, 28, 32)),
    ),
    "mixer, 6 layers in a scan": (
        functools.partial(scanned, mixer_layer),
        (stacked(block_parameters(D) | {"tokens": shape(128, 256), "back": shape(256, 128)}, 6), X),
    ),
}


def main(target="cpu"):
    print(f"| {target} | temporaries, a checkpoint a layer | `auto` | computed again | `auto` | seconds |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, (make, args) in MODELS.items():
        layers = measure(make(True), *args, target=target)
        again = layers.passes.recompute_cost.flops + layers.passes.recompute_cost.transcendentals
        for part in (1, 0.8):
            start = time.perf_counter()
            limit = layers.peak_bytes - int((1 - part) * layers.temp_bytes)
            try:
                found = auto(make(False), *args, peak=limit, target=target)
                row = [f"{found.measurement.temp_bytes / 2**20:.1f} MiB", f"{found.recomputed / 1e6:,.0f} M"]
            except PlanError:
                row = ["none fits", ""]
            seconds = time.perf_counter() - start
            print(
                f"| {name}, {100 * part:.0f} % | {layers.temp_bytes / 2**20:.1f} MiB | {row[0]} | {again / 1e6:,.0f} M "
                f"| {row[1]} | {seconds:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
