"""Compare the costs of checkpoints in a chain of layers, predicted and compiled for this CPU, as a Markdown table.

    python benchmarks/compiled.py

The layers are sin(sin(x @ w) @ w.T) in float32, with `x` of shape (1024, 128), unrolled. Bytes are the peak of the
forward and backward pass together. Predictions come from the trace alone. Times are medians of five rounds, as
multiples of the time without a checkpoint; each round runs all variants, so that a busy machine slows all equally.
"""

import math
import statistics

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from rematscope import measure
from rematscope.render.units import bytes_text, count_text

LAYERS = (4, 16, 64)
D, ROWS, ROUNDS = 128, 1024, 5
policies = jax.checkpoint_policies


def layer(w, x):
    hidden = checkpoint_name(x @ w, "hidden")
    return jnp.sin(jnp.sin(hidden) @ w.T)


def chain(step):
    def f(ws, x):
        for w in ws:
            x = step(w, x)
        return x

    return f


def segments(ws, x):
    size = math.isqrt(len(ws))
    for start in range(0, len(ws), size):
        x = jax.checkpoint(chain(layer))(ws[start : start + size], x)
    return x


def recursive(ws, x):
    """Run the layers with the first half in a checkpoint, and the same within each half."""
    if len(ws) <= 2:
        return chain(layer)(ws, x)
    half = len(ws) // 2
    return recursive(ws[half:], jax.checkpoint(recursive)(ws[:half], x))


VARIANTS = {
    "none": chain(layer),
    "full: each layer": chain(jax.checkpoint(layer)),
    "dots": chain(jax.checkpoint(layer, policy=policies.dots_saveable)),
    "names: the first matmul": chain(jax.checkpoint(layer, policy=policies.save_only_these_names("hidden"))),
    "√n segments": segments,
    "recursive": recursive,
}


def loss(variant):
    return lambda ws, x: jnp.sum(variant(ws, x))


def main():
    print("| layers | checkpoint | peak predicted | compiled | FLOPs predicted | compiled | time |")
    print("|---:|---|---:|---:|---:|---:|---:|")
    for layers in LAYERS:
        ws = [jax.ShapeDtypeStruct((D, D), jnp.float32)] * layers
        x = jax.ShapeDtypeStruct((ROWS, D), jnp.float32)
        found = {name: measure(loss(variant), ws, x) for name, variant in VARIANTS.items()}
        rounds = [[m.time(runs=1).median for m in found.values()] for _ in range(ROUNDS)]
        medians = list(map(statistics.median, zip(*rounds, strict=True)))
        for (name, m), median in zip(found.items(), medians, strict=True):
            bytes_ = [bytes_text(m.predicted.peak_bytes), bytes_text(m.peak_bytes)]
            flops = [count_text(count, "").rstrip() for count in (m.trace.cost.flops, m.cost.flops)]
            print("|", " | ".join([str(layers), name, *bytes_, *flops, f"{median / medians[0]:.2f}"]), "|", flush=True)


if __name__ == "__main__":
    main()
