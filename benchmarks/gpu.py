"""Time checkpoint policies on a GPU: measured seconds and compiled peak next to the roofline's estimate.

    python benchmarks/gpu.py [LAYERS] [SEQUENCE LENGTH] [BATCH SIZE]

The model is a Llama-like decoder in bfloat16 (width 4,096, 32 heads, gated MLP of width 14,336) with its layers in a
`scan`, once with unfused attention and once with cuDNN's fused attention. Each variant is one compiled
`value_and_grad`. The variants are measured round-robin, and the fastest of all runs counts. Without a GPU the script
says so and exits with status 1: JAX's seconds on a CPU say nothing about a GPU's.
"""

import dataclasses
import functools
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from rematscope import estimate_time, trace

WIDTH, HEADS, HIDDEN = 4096, 32, 14336
ROUNDS, RUNS = 4, 3
save_names = jax.checkpoint_policies.save_only_these_names
DEVICES = ("h100", "h200", "a100", "gb200", "b200")  # as NVIDIA's names of devices contain them, longest names first


def rms_norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    mean_square = jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True)
    return (x * jax.lax.rsqrt(mean_square + 1e-6)).astype(x.dtype) * scale


def layer(x: jax.Array, weights: dict[str, jax.Array], attention: str) -> jax.Array:
    """One decoder layer; `x` has shape (batch, sequence, width)."""
    batch, length, _ = x.shape
    normed = rms_norm(x, weights["attention_scale"])
    qkv = checkpoint_name(normed @ weights["qkv"], "qkv_proj").reshape(batch, length, 3, HEADS, WIDTH // HEADS)
    context = jax.nn.dot_product_attention(*jnp.moveaxis(qkv, 2, 0), is_causal=True, implementation=attention)
    context = checkpoint_name(context, "context").reshape(batch, length, WIDTH)
    x = x + checkpoint_name(context @ weights["out"], "out_proj")
    normed = rms_norm(x, weights["mlp_scale"])
    gate, up = (checkpoint_name(normed @ weights[name], f"mlp_{name}") for name in ("gate", "up"))
    return x + checkpoint_name((jax.nn.silu(gate) * up) @ weights["down"], "mlp_down")


def parameters(layers: int) -> dict[str, jax.ShapeDtypeStruct]:
    shapes = {
        "attention_scale": (WIDTH,), "qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH), "mlp_scale": (WIDTH,),
        "gate": (WIDTH, HIDDEN), "up": (WIDTH, HIDDEN), "down": (HIDDEN, WIDTH),
    }  # fmt: skip
    return {name: jax.ShapeDtypeStruct((layers, *shape), jnp.bfloat16) for name, shape in shapes.items()}


def model_loss(step: Callable, weights: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    final, _ = jax.lax.scan(lambda carry, each: (step(carry, each), None), x, weights)
    return jnp.mean(jnp.square(final.astype(jnp.float32)))


def attention_results(primitive: Any, *_: Any, **params: Any) -> bool:
    """A policy that saves the output and the log-sum-exp of cuDNN's kernel, which have no names."""
    return primitive.name == "dot_product_attention_fwd_wrapper"


def variants(attention: str) -> dict[str, Callable]:
    """The loss for each policy; all but the first have a checkpoint around the body of the scan."""
    body = functools.partial(layer, attention=attention)
    minimal = save_names("qkv_proj", "context", "out_proj", "mlp_gate", "mlp_up", "mlp_down")
    offloaded = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[], names_which_can_be_offloaded=["qkv_proj", "context"],
        offload_src="device", offload_dst="pinned_host",
    )  # fmt: skip
    policies = {"full": None, "context": save_names("context"), "minimal": minimal, "qkv, context offloaded": offloaded}
    if attention == "cudnn":
        both = jax.checkpoint_policies.save_from_both_policies
        policies |= {"attention": attention_results, "minimal, attention": both(minimal, attention_results)}
    wrapped = {name: jax.checkpoint(body, policy=policy, prevent_cse=False) for name, policy in policies.items()}
    return {name: functools.partial(model_loss, step) for name, step in ({"no checkpoint": body} | wrapped).items()}


@dataclasses.dataclass
class Row:
    attention: str
    variant: str
    saved: float
    recompute: float
    estimate: float
    peak: float = 0.0
    run: Callable[[], Any] | None = None
    seconds: float = float("inf")
    error: str = ""


def compile_row(attention: str, variant: str, loss: Callable, arguments: tuple, device: str) -> Row:
    """Trace a variant and compile its `value_and_grad`; a row that fails has the error."""
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), arguments)
    found = trace(loss, *shapes)
    estimate = estimate_time(found, device)
    row = Row(attention, variant, found.saved_bytes() / 2**30, estimate.recompute, estimate.step)
    try:
        compiled = jax.jit(jax.value_and_grad(loss)).lower(*shapes).compile()
        row.peak = compiled.memory_analysis().peak_memory_in_bytes / 2**30
        jax.block_until_ready(compiled(*arguments))
        row.run = lambda: jax.block_until_ready(compiled(*arguments))
    except jax.errors.JaxRuntimeError as error:
        row.error = str(error).splitlines()[0][:60]
    return row


def main() -> None:
    gpus = [device for device in jax.devices() if device.platform == "gpu"]
    if not gpus:
        sys.exit("JAX finds no GPU. Install jax[cuda13] on a machine with one, and run this script there.")
    device = next((name for name in DEVICES if name in gpus[0].device_kind.lower()), None)
    if device is None:
        sys.exit(f"rematscope has no figures for {gpus[0].device_kind}: add a row to DEVICES in rematscope/seconds.")
    layers, length, batch = (int(text) for text in (*sys.argv[1:], *("8", "4096", "4")[len(sys.argv) - 1 :]))
    keys = jax.random.split(jax.random.key(0), 8)
    weights = {
        name: (jax.random.normal(key, leaf.shape) / WIDTH**0.5).astype(leaf.dtype)
        for key, (name, leaf) in zip(keys, parameters(layers).items(), strict=False)
    }
    x = jax.random.normal(keys[-1], (batch, length, WIDTH)).astype(jnp.bfloat16)
    shape = f"{layers} layers, sequence length {length}, batch size {batch}"
    print(f"{gpus[0].device_kind}, JAX {jax.__version__}: {shape}")
    rows = [
        compile_row(attention, name, loss, (weights, x), device)
        for attention in ("xla", "cudnn")
        for name, loss in variants(attention).items()
    ]
    for _ in range(ROUNDS):
        for row in rows:
            for _ in range(RUNS if row.run else 0):
                start = time.perf_counter()
                row.run()
                row.seconds = min(row.seconds, time.perf_counter() - start)
    print(f"{'attention':9} {'policy':26} {'saved':>9} {'peak':>9} {'estimate':>9} {'measured':>9} {'ratio':>6}")
    for row in rows:
        result = row.error or f"{1e3 * row.seconds:6.1f} ms {row.seconds / row.estimate:6.2f}"
        sizes = f"{row.saved:5.1f} GiB {row.peak:5.1f} GiB"
        print(f"{row.attention:9} {row.variant:26} {sizes} {1e3 * row.estimate:6.1f} ms {result}")


if __name__ == "__main__":
    main()
