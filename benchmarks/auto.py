"""What `auto` makes of models that name nothing, beside a checkpoint around each layer: README's table comes from it.

    python benchmarks/auto.py [cpu | tpu v5e | …]
    python benchmarks/auto.py --sweep
    python benchmarks/auto.py --chains

For each model both are compiled; `auto` is given the peak of the checkpoints, and then one with 80 % of their
temporaries. Printed are the temporaries of both and what both compute again: FLOPs and transcendentals beyond those of
the function without checkpoints. `--sweep` gives three models twelve limits each, from the peak without a checkpoint
down. `--chains` gives chains of 16, 64 and 256 layers the peaks of a checkpoint around each, of √n segments and of
checkpoints in checkpoints. What is computed again is counted in layers there, beside Revolve's count for as many values
as `auto` keeps.
"""

import functools
import math
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


def again(passes):
    """FLOPs and transcendentals that are computed again."""
    return passes.recompute_cost.flops + passes.recompute_cost.transcendentals


def sweep(names=("GPT, 6 layers", "GPT, 8 layers in a scan", "cross attention, 4 layers"), limits=12):
    print("| | limit | compiled | of it used | computed again |\n|---|---:|---:|---:|---:|")
    for name in names:
        make, args = MODELS[name]
        plain = measure(make(False), *args)
        fixed = plain.peak_bytes - plain.temp_bytes
        for i in range(limits):
            limit = fixed + int(plain.temp_bytes * (1 - i / limits))
            try:
                found = auto(make(False), *args, peak=limit)
            except PlanError:
                print(f"| {name} | {limit / 2**20:.1f} MiB | none fits | | |", flush=True)
                continue
            peak = found.measurement.peak_bytes
            print(
                f"| {name} | {limit / 2**20:.1f} MiB | {peak / 2**20:.1f} MiB | {100 * peak / limit:.0f} % "
                f"| {found.recomputed / 1e6:,.0f} M |",
                flush=True,
            )


def chain(layers, way=None):
    """x → sin(x @ w), `layers` times: as it is, a checkpoint around each, in √n segments, or in halves of halves."""

    def run(ws, x):
        for w in ws:
            x = jnp.sin(x @ w)
        return x

    def segments(ws, x, size=None):
        size = size or math.isqrt(len(ws))
        for start in range(0, len(ws), size):
            x = jax.checkpoint(run)(ws[start : start + size], x)
        return x

    def halves(ws, x):
        if len(ws) <= 2:
            return run(ws, x)
        half = len(ws) // 2
        return halves(ws[half:], jax.checkpoint(halves)(ws[:half], x))

    each = functools.partial(segments, size=1)
    f = {None: run, "a checkpoint a layer": each, "√n segments": segments, "halves of halves": halves}[way]
    return lambda ws, x: jnp.sum(f(ws, x))


def revolve(links, slots):
    """Steps that Revolve goes forward with so many values, without the first sweep (Griewank and Walther, 2000)."""
    repeats = next(r for r in range(links) if math.comb(slots + r, slots) >= links)
    return repeats * links - (math.comb(slots + repeats, repeats - 1) if repeats else 0) - (links - 1)


def chains():
    print("| layers | way | temporaries | `auto` | layers again | `auto` | Revolve | seconds |")
    print("|---:|---|---:|---:|---:|---:|---:|---:|")
    state, work = 4096 * 64 * 4, 2 * 4096 * 64 * 64 + 4096 * 64  # of a layer: bytes, and FLOPs with a sine an element
    for layers in (16, 64, 256):
        args = [shape(64, 64)] * layers, shape(4096, 64)
        for way in ("a checkpoint a layer", "√n segments", "halves of halves"):
            measured = measure(chain(layers, way), *args)
            start = time.perf_counter()
            try:
                found = auto(chain(layers), *args, peak=measured.peak_bytes)
                row = [f"{found.measurement.temp_bytes / 2**20:.1f} MiB", f"{found.recomputed / work:.0f}"]
                row.append(revolve(layers + 1, found.kept_bytes // state))  # from product to product, and both ends
            except PlanError:
                row = ["none fits", "", ""]
            print(
                f"| {layers} | {way} | {measured.temp_bytes / 2**20:.1f} MiB | {row[0]} "
                f"| {again(measured.passes) / work:.0f} | {row[1]} | {row[2]} | {time.perf_counter() - start:.0f} |",
                flush=True,
            )


def main(target="cpu"):
    print(f"| {target} | temporaries, a checkpoint a layer | `auto` | computed again | `auto` | seconds |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, (make, args) in MODELS.items():
        layers = measure(make(True), *args, target=target)
        work = again(layers.passes)
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
                f"| {name}, {100 * part:.0f} % | {layers.temp_bytes / 2**20:.1f} MiB | {row[0]} | {work / 1e6:,.0f} M "
                f"| {row[1]} | {seconds:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    {"--sweep": sweep, "--chains": chains}.get(sys.argv[-1], functools.partial(main, *sys.argv[1:]))()
