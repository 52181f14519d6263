"""Compare the roofline's seconds with measured ones on this machine's device.

    python benchmarks/seconds.py

Ten functions: the measured time of both passes, compiled as one program, next to what `estimate_time` predicts with the
rates of `calibrate()`. The functions are measured round-robin, several times: the fastest run of each counts, and the
spread is the slowest round divided by the fastest. Other programs on the machine make both worse.
"""

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from rematscope import calibrate, estimate_time, trace

ROUNDS, RUNS = 5, 3


def f32(*shape: int) -> Any:
    return jnp.asarray(np.random.default_rng(0).standard_normal(shape) / math.sqrt(shape[-1]), jnp.float32)


def attention(q, k, v):
    scores = jnp.einsum("hqd,hkd->hqk", q, k) / math.sqrt(q.shape[-1])
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores), v)


def convolution(x, w):
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def norm(x, scale):
    mean, square = x.mean(-1, keepdims=True), jnp.square(x).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(square - mean**2 + 1e-5) * scale


FUNCTIONS: dict[str, tuple[Callable, tuple]] = {
    "product": (lambda x, w: x @ w, (f32(1024, 1024), f32(1024, 1024))),
    "narrow matmul": (lambda x, w: x @ w, (f32(16384, 64), f32(64, 64))),
    "two layers": (lambda x, w, u: jax.nn.gelu(x @ w) @ u, (f32(1024, 512), f32(512, 2048), f32(2048, 512))),
    "attention": (attention, (f32(8, 512, 64),) * 3),
    "scan of a cell": (
        lambda x, w: lax.scan(lambda h, _: (jnp.tanh(h @ w), None), x, length=32)[0],
        (f32(256, 512), f32(512, 512)),
    ),
    "convolution": (convolution, (f32(8, 32, 32, 64), f32(3, 3, 64, 64))),
    "element-wise chain": (lambda x: jnp.sqrt(jnp.abs(x * 2 + 1) + 3) * x - 1, (f32(4096, 4096),)),
    "sines": (lambda x: jnp.sin(x) * jnp.exp(x), (f32(2048, 2048),)),
    "norm": (norm, (f32(8192, 1024), f32(1024))),
    "gather": (lambda table, i: table[i], (f32(32768, 256), jnp.arange(8192) * 7 % 32768)),
}


def main() -> None:
    device = calibrate()
    print(f"{device.name}: {device.source}")
    matmuls, memory = device.matmul["float32"] / 1e9, device.bandwidth / 1e9
    print(f"matmuls {matmuls:.0f} GFLOP/s in float32, memory {memory:.1f} GB/s\n")
    found = {}
    for name, (f, args) in FUNCTIONS.items():
        out = jax.eval_shape(f, *args)

        def both(*args, f=f, out=out):
            result, pullback = jax.vjp(f, *args)
            gradients = pullback(jnp.ones(out.shape, out.dtype))
            return result, [g for g in gradients if g.dtype != jax.dtypes.float0]

        found[name] = jax.jit(both).lower(*args).compile(), args, estimate_time(trace(f, *args), device).step
    rounds: dict[str, list[float]] = {name: [] for name in found}
    for _ in range(ROUNDS):
        for name, (compiled, args, _) in found.items():
            times = []
            for _ in range(RUNS):
                start = time.perf_counter()
                jax.block_until_ready(compiled(*args))
                times.append(time.perf_counter() - start)
            rounds[name].append(min(times))
    print("| function | predicted | measured | predicted / measured | spread of rounds |")
    print("|---|---:|---:|---:|---:|")
    ratios = []
    for name, (_, _, predicted) in found.items():
        measured = min(rounds[name])
        ratios.append(predicted / measured)
        cells = f"{1e3 * predicted:.2f} ms", f"{1e3 * measured:.2f} ms", f"{ratios[-1]:.2f}"
        print(f"| {name} | {' | '.join(cells)} | {max(rounds[name]) / measured:.2f} × |")
    off = [max(ratio, 1 / ratio) for ratio in ratios]
    print(f"\noff by a factor of {statistics.median(off):.2f} in the median, {max(off):.2f} at most")


if __name__ == "__main__":
    main()
