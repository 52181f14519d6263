"""Inspect a model of 70 billion parameters under FSDP on a laptop: `python benchmarks/mesh.py`.

The model is Llama 2 70B (arXiv:2307.09288): 80 layers of width 8192, 64 query heads and 8 key/value heads, a SwiGLU of
width 28672, in bfloat16, with one sequence of 4096 tokens per device on 256 devices. Each device holds 1/256 of the
weights; each layer of the scan gathers its own. No device is needed: the mesh is abstract, and nothing is compiled.
"""

import time

import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from rich.console import Console
from rich.table import Table

from rematscope import trace
from rematscope.render.units import bytes_text, count_text

LAYERS, WIDTH, HEADS, KEYS, HIDDEN, VOCABULARY, TOKENS, DEVICES = 80, 8192, 64, 8, 28672, 32000, 4096, 256
HEAD = WIDTH // HEADS
MESH = AbstractMesh((DEVICES,), ("fsdp",), axis_types=(AxisType.Auto,))
MATRICES = {
    "q": (WIDTH, HEADS * HEAD),
    "k": (WIDTH, KEYS * HEAD),
    "v": (WIDTH, KEYS * HEAD),
    "out": (HEADS * HEAD, WIDTH),
    "gate": (WIDTH, HIDDEN),
    "up": (WIDTH, HIDDEN),
    "down": (HIDDEN, WIDTH),
}


def norm(x, scale):
    x = x.astype(jnp.float32)
    return (x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5)).astype(jnp.bfloat16) * scale


def gathered(weights):
    return {
        name: checkpoint_name(lax.all_gather(w, "fsdp", tiled=True), "weights") if w.ndim > 1 else w
        for name, w in weights.items()
    }


def layer(x, weights):
    p = gathered(weights)
    h = norm(x, p["norm1"])
    q = checkpoint_name(h @ p["q"], "q").reshape(TOKENS, KEYS, HEADS // KEYS, HEAD)
    k, v = (checkpoint_name(h @ p[name], name).reshape(TOKENS, KEYS, HEAD) for name in "kv")
    causal = jnp.tri(TOKENS, dtype=bool)
    scores = jnp.einsum("qkgd,tkd->kgqt", q, k) * HEAD**-0.5
    attended = jnp.einsum("kgqt,tkd->qkgd", jax.nn.softmax(jnp.where(causal, scores, -1e9)), v)
    x = x + checkpoint_name(attended.reshape(TOKENS, WIDTH) @ p["out"], "out_proj")
    h = norm(x, p["norm2"])
    gate, up = (checkpoint_name(h @ p[name], name) for name in ("gate", "up"))
    return x + (jax.nn.silu(gate) * up) @ p["down"]


def model(policy):
    """Return the loss of a batch with one sequence per device, and the shapes of its arguments."""
    block = jax.checkpoint(layer, policy=policy)

    def loss(layers, embedding, tokens):
        table = gathered({"embedding": embedding})["embedding"]
        x, _ = lax.scan(lambda x, weights: (block(x, weights), None), table[tokens[0, :-1]], layers)
        logits = (x @ table.T).astype(jnp.float32)
        likelihood = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[0, 1:, None], 1)
        return -lax.pmean(jnp.mean(likelihood), "fsdp")

    split = {name: P(None, "fsdp") for name in MATRICES} | {"norm1": P(), "norm2": P()}
    shapes = MATRICES | {"norm1": (WIDTH,), "norm2": (WIDTH,)}
    layers = {name: _sharded_array((LAYERS, *shape), jnp.bfloat16, split[name]) for name, shape in shapes.items()}
    embedding = _sharded_array((VOCABULARY, WIDTH), jnp.bfloat16, P("fsdp"))
    tokens = _sharded_array((DEVICES, TOKENS + 1), jnp.int32, P("fsdp"))
    specs = split, P("fsdp"), P("fsdp")
    return jax.shard_map(loss, mesh=MESH, in_specs=specs, out_specs=P()), (layers, embedding, tokens)


def _sharded_array(shape, dtype, spec):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(MESH, spec))


def main():
    save = jax.checkpoint_policies.save_only_these_names
    policies = {
        "nothing": save(),
        "out_proj": save("out_proj"),
        "q, k, v, out_proj": save("q", "k", "v", "out_proj"),
        "and gate, up": save("q", "k", "v", "out_proj", "gate", "up"),
        "gathered weights": save("weights"),
    }
    columns = "saved", "on a device", "gathers again", "of", "sent again", "FLOPs again", "of", "seconds"
    table = Table(*columns, title=f"70 billion parameters on {DEVICES} devices, figures of one")
    for name, policy in policies.items():
        f, arguments = model(policy)
        start = time.perf_counter()
        passes = trace(f, *arguments)
        seconds = time.perf_counter() - start
        again, all_of = passes.collectives("R").get("all-gather"), passes.collectives()["all-gather"]
        table.add_row(
            name,
            bytes_text(passes.device_bytes_by_kind()["computed"]),
            str(again.count if again else 0),
            str(all_of.count),
            bytes_text(passes.recompute_cost.link_bytes),
            count_text(passes.recompute_cost.flops, ""),
            count_text(passes.cost.flops, ""),
            f"{seconds:.1f}",
        )
    Console(width=120).print(table)
    parameters = sum(v.nbytes for v in passes.forward.inputs[:-1]) // 2
    print(f"{parameters / 1e9:.1f} billion parameters, {bytes_text(2 * parameters // DEVICES)} of them on a device")


if __name__ == "__main__":
    main()
