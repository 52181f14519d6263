"""What each of MaxText's rematerialization policies saves and recomputes, per layer, computed from traces.

    python benchmarks/maxtext.py                                        the tables of docs/maxtext.md
    python benchmarks/maxtext.py context qkv_proj                       the configuration that saves these tensors
    python benchmarks/maxtext.py context --offload query_proj key_proj  ... and offloads those

`MENU` and `TENSORS` were read in github.com/AI-Hypercomputer/maxtext at `COMMIT`: `get_remat_policy` in
src/maxtext/layers/decoders.py, `get_save_and_offload_names` in src/maxtext/utils/maxtext_utils.py and
src/maxtext/configs/base.yml. The layers are written after MaxText's: the same matmuls, and `checkpoint_name` at the
same values. Attention is JAX's splash attention kernel, which MaxText uses on TPUs, with its output and its log-sum-exp
named "context". Nothing is run: tracing takes about a minute.
"""

import argparse
import dataclasses
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel, splash_attention_mask

from rematscope import trace
from rematscope.ir.cost import program_cost

COMMIT, READ = "e591f30cbbf217ed67ef71263ec0538239f9c3b8", "2026-08-22"

_ATTENTION = ("query_proj", "key_proj", "value_proj", "kv_proj", "qkv_proj")
_MLP = ("mlpwi_0", "mlpwi_1", "mlpwi", "mlpwo")

# Policy → names that it saves on the device, names that it offloads. "full" saves a layer's input and nothing else.
MENU: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "minimal_with_context": ((*_ATTENTION, "out_proj", *_MLP, "context"), ()),
    "minimal": ((*_ATTENTION, "out_proj", *_MLP), ()),
    "save_dot_with_context_except_mlp": ((*_ATTENTION, "context", "out_proj"), ()),
    "save_dot_except_mlpwi": ((*_ATTENTION, "out_proj", "mlpwo"), ()),
    "save_dot_except_mlp": ((*_ATTENTION, "out_proj"), ()),
    "save_qkv_proj": (_ATTENTION, ()),
    "qkv_proj_offloaded": ((), ("query_proj", "value_proj", "key_proj", "kv_proj")),
    "minimal_offloaded": ((), (*_ATTENTION, "out_proj", *_MLP)),
    "save_out_proj": (("out_proj",), ()),
    "full": ((), ()),
    "minimal_with_quantization": ((*_ATTENTION, "out_proj", *_MLP, "quantization"), ()),
    "minimal_with_context_and_quantization": ((*_ATTENTION, "out_proj", *_MLP, "context", "quantization"), ()),
}

# Tensors that `remat_policy=custom` sets to remat, device or offload, separately. base.yml also has a setting `engram`,
# which MaxText does not pass on to the policy.
TENSORS = (
    "decoder_layer_input", "indexer_cutoff_threshold", "context", *_MLP, "moe_mlpwi_0", "moe_mlpwi_1", "moe_mlpwo",
    *_ATTENTION, "query_wa_proj", "kv_wa_proj", "mla_q", "mla_kv", "attention_out", "out_proj",
)  # fmt: skip


def configuration(saved: Sequence[str], offloaded: Sequence[str] = ()) -> str:
    """Return MaxText's command-line arguments for a choice of names, for example one that `rematscope.plan` found.

    The shortest form wins: an entry of the menu if one saves and offloads exactly these names. An offloaded layer input
    counts as its own setting, because MaxText saves it on the device otherwise.

    Raises:
      ValueError: If MaxText has no such tensor, or if a name is in both lists.
    """
    unknown = sorted({*saved, *offloaded} - {*TENSORS})
    if unknown:
        raise ValueError(f"MaxText has no tensor called {', '.join(unknown)}. It has {', '.join(TENSORS)}.")
    both = sorted({*saved} & {*offloaded})
    if both:
        raise ValueError(f"{', '.join(both)} cannot be saved on the device and offloaded. Choose one for each name.")
    on_device = set(saved) - {"decoder_layer_input"}
    for name, (menu_saved, menu_offloaded) in MENU.items():
        if on_device == {*menu_saved} and {*offloaded} == {*menu_offloaded}:
            return f"remat_policy={name}"
    settings = [f"{name}=device" for name in TENSORS if name in on_device]
    settings += [f"{name}=offload" for name in TENSORS if name in offloaded]
    return " ".join(["remat_policy=custom", *settings])


@dataclasses.dataclass(frozen=True)
class Model:
    """The shape of one decoder layer; of a mixture of experts if `experts` is not 0."""

    name: str
    width: int
    heads: int
    kv_heads: int
    hidden: int
    experts: int = 0
    per_token: int = 0
    head_size: int = 128

    def weights(self) -> dict[str, jax.ShapeDtypeStruct]:
        kv = self.kv_heads * self.head_size
        expert = (self.experts,) if self.experts else ()
        shapes = {
            "attention_scale": (self.width,), "query": (self.width, self.heads * self.head_size),
            "key": (self.width, kv), "value": (self.width, kv), "out": (self.heads * self.head_size, self.width),
            "mlp_scale": (self.width,), "wi_0": (*expert, self.width, self.hidden),
            "wi_1": (*expert, self.width, self.hidden), "wo": (*expert, self.hidden, self.width),
        }  # fmt: skip
        if self.experts:
            shapes["router"] = (self.width, self.experts)
        return {name: jax.ShapeDtypeStruct(shape, jnp.bfloat16) for name, shape in shapes.items()}


MODELS = (
    Model("Llama 3 8B", 4096, 32, 8, 14336),
    Model("Llama 3 70B", 8192, 64, 8, 28672),
    Model("Mixtral 8x7B", 4096, 32, 8, 14336, experts=8, per_token=2),
)
LENGTHS = (2048, 8192, 32768)


@functools.cache
def splash_attention(heads: int, length: int) -> Callable:
    mask = splash_attention_mask.MultiHeadMask([splash_attention_mask.CausalMask((length, length))] * heads)
    return splash_attention_kernel.make_splash_mha_single_device(mask, residual_checkpoint_name="context")


def rms_norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    mean_square = jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True)
    return (x * jax.lax.rsqrt(mean_square + 1e-6)).astype(x.dtype) * scale


def rotate(x: jax.Array) -> jax.Array:
    """Apply rotary position embeddings to `x` of shape (heads, tokens, head size)."""
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1])[:, None] * (1e-4 ** (jnp.arange(half) / half))
    cosine, sine = jnp.cos(angles).astype(x.dtype), jnp.sin(angles).astype(x.dtype)
    first, second = jnp.split(x, 2, -1)
    return jnp.concatenate([first * cosine - second * sine, second * cosine + first * sine], -1)


def attention(weights: dict[str, jax.Array], x: jax.Array, model: Model) -> jax.Array:
    def project(name: str, heads: int) -> jax.Array:
        return (x @ weights[name]).reshape(x.shape[0], heads, model.head_size).transpose(1, 0, 2)

    query = checkpoint_name(rotate(project("query", model.heads)), "query_proj") * model.head_size**-0.5
    key = checkpoint_name(rotate(project("key", model.kv_heads)), "key_proj")
    value = checkpoint_name(project("value", model.kv_heads), "value_proj")
    out = splash_attention(model.heads, x.shape[0])(query, key, value)
    out = checkpoint_name(out.transpose(1, 0, 2).reshape(x.shape[0], -1), "attention_out")
    return checkpoint_name(out @ weights["out"], "out_proj")


def dense_mlp(weights: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    gate = checkpoint_name(x @ weights["wi_0"], "mlpwi_0")
    up = checkpoint_name(x @ weights["wi_1"], "mlpwi_1")
    return checkpoint_name((jax.nn.silu(gate) * up) @ weights["wo"], "mlpwo")


def expert_mlp(weights: dict[str, jax.Array], x: jax.Array, model: Model) -> jax.Array:
    """A mixture of experts without dropped tokens: tokens sorted by expert, and one ragged matmul per weight."""
    scores, chosen = jax.lax.top_k(jax.nn.softmax((x @ weights["router"]).astype(jnp.float32)), model.per_token)
    order = jnp.argsort(chosen.reshape(-1))
    sizes = jnp.bincount(chosen.reshape(-1), length=model.experts).astype(jnp.int32)
    tokens = x[order // model.per_token]

    def name(value: jax.Array, tensor: str) -> jax.Array:
        return checkpoint_name(checkpoint_name(value, tensor), f"moe_{tensor}")

    gate = name(jax.lax.ragged_dot(tokens, weights["wi_0"], sizes), "mlpwi_0")
    up = checkpoint_name(jax.lax.ragged_dot(tokens, weights["wi_1"], sizes), "moe_mlpwi_1")
    out = name(jax.lax.ragged_dot(jax.nn.silu(gate) * up, weights["wo"], sizes), "mlpwo")
    unsorted = out[jnp.argsort(order)].reshape(*chosen.shape, -1)
    return jnp.sum(unsorted * (scores / scores.sum(-1, keepdims=True)).astype(x.dtype)[..., None], 1)


def decoder_layer(x: jax.Array, weights: dict[str, jax.Array], model: Model) -> jax.Array:
    """One layer for one sequence; `x` has shape (tokens, width)."""
    x = checkpoint_name(x, "decoder_layer_input")
    x = x + attention(weights, rms_norm(x, weights["attention_scale"]), model)
    normed = rms_norm(x, weights["mlp_scale"])
    return x + (expert_mlp(weights, normed, model) if model.experts else dense_mlp(weights, normed))


def policy_of(saved: Sequence[str], offloaded: Sequence[str]) -> Any:
    if not offloaded:
        return jax.checkpoint_policies.save_only_these_names(*saved)
    return jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=list(saved), names_which_can_be_offloaded=list(offloaded),
        offload_src="device", offload_dst="pinned_host",
    )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Row:
    """What a policy saves per layer for one sequence in bfloat16, in bytes, and what it recomputes.

    `recompute` is a share of three forward passes, the usual count of a step's FLOPs.
    """

    device_bytes: int
    host_bytes: int
    recompute: float


def row(saved: Sequence[str], offloaded: Sequence[str], model: Model, length: int) -> Row:
    weights = model.weights()
    x = jax.ShapeDtypeStruct((length, model.width), jnp.bfloat16)
    layer = functools.partial(decoder_layer, model=model)
    found = trace(jax.checkpoint(layer, policy=policy_of(saved, offloaded)), x, weights)
    parameters = {*found.forward.inputs[1:]}
    arrays = {each.array: each for each in found.residuals if each.kind != "constant" and each.array not in parameters}
    host = sum(each.nbytes for each in arrays.values() if each.memory == "host")
    device = sum(each.nbytes for each in arrays.values() if each.memory != "host")
    # The trace counts all blocks of the attention matrix; the kernel skips the blocks above the diagonal.
    skipped = 2 * model.heads * model.head_size * length**2
    forward = program_cost(trace(layer, x, weights).forward).flops - skipped
    recomputed = found.recompute_cost.flops - (0 if "context" in saved else skipped)
    return Row(device, host, recomputed / (3 * forward))


def table(model: Model, lengths: Sequence[int] = LENGTHS) -> str:
    """Return a Markdown table: per policy the bytes saved per token and layer, and the recompute by sequence length."""
    heads = " | ".join(f"recompute at {length // 1024}k tokens" for length in lengths)
    lines = [f"| policy | on the device | on the host | {heads} |", "|---|" + "---:|" * (2 + len(lengths))]
    for policy, (saved, offloaded) in {**MENU, "custom context=device": (("context",), ())}.items():
        if "quantization" in policy:  # it differs from the others only in a model with quantized matmuls
            continue
        rows = [row(saved, offloaded, model, length) for length in lengths]
        first = rows[0]
        sizes = (
            f"{size / lengths[0] / 1024:.1f} KiB" if size else "–" for size in (first.device_bytes, first.host_bytes)
        )
        shares = (f"{each.recompute:.1%}" for each in rows)
        lines.append(f"| `{policy}` | " + " | ".join([*sizes, *shares]) + " |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="MaxText's rematerialization policies: what they save and recompute.")
    parser.add_argument("saved", nargs="*", metavar="NAME", help="tensors to save on the device")
    parser.add_argument("--offload", nargs="+", default=[], metavar="NAME", help="tensors to offload to host memory")
    asked = parser.parse_args(arguments)
    if asked.saved or asked.offload:
        try:
            print(configuration(asked.saved, asked.offload))
        except ValueError as error:
            print(error, file=sys.stderr)
            return 2
        return 0
    for model in MODELS:
        print(f"### {model.name}\n\n{table(model)}\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
