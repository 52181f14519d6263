"""The FLOPs of cuDNN's fused attention, counted as the authors of FlashAttention count them.

The forward pass is two matmuls, QKᵀ and PV: 4·b·h·s²·d FLOPs for b sequences of length s and h heads of size d. The
backward pass has five: 2.5 times as many, since the kernel recomputes P. A causal mask halves s², and a sliding window
leaves the pairs inside it. Softmax is not counted. See Dao, "FlashAttention-2" (arXiv 2307.08691, section 4.1) and the
function `flops` in `hopper/benchmark_attn.py` of the flash-attention repository. Padding and packed sequences depend on
lengths that only the arguments know, so that they count in full.
"""

from collections.abc import Sequence
from typing import Any

from rematscope.ir.program import Typed

BACKWARD = 2.5  # FLOPs of the backward pass per FLOP of the forward pass

# JAX binds the primitive whose name ends in `_wrapper`, and lowers it to the primitive without this suffix.
FORWARD_KERNELS = frozenset(
    "dot_product_attention_fwd dot_product_attention_fwd_wrapper dot_product_attention_fp8_fwd "
    "dot_product_attention_fp8_fwd_wrapper".split()
)
# How to save the results of these kernels under jax_remat3, which does not ask a policy about them.
SAVED_BY_A_RULE = (
    "name them in the forward rule of a custom_vjp around the kernel, and set "
    "jax.config.update('jax_custom_vjp3', True), because jax_remat3 does not ask a policy about kernels."
)
BACKWARD_KERNELS = frozenset(name.replace("_fwd", "_bwd") for name in FORWARD_KERNELS)


def forward_flops(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> int:
    """Return the FLOPs of `dot_product_attention_fwd`, which reads the queries, the keys and the values first."""
    query, key, value = (_heads_second(array, params["layout"]) for array in inputs[:3])
    batch, heads, queries, head_size = query
    _, _, keys, _ = key
    pairs = _attended_pairs(queries, keys, _is_causal(params), params.get("sliding_window_length"))
    return round(2 * batch * heads * pairs * (head_size + value[3]))


def backward_flops(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> int:
    """Return the FLOPs of `dot_product_attention_bwd`, which reads the queries, the keys and the values first."""
    return round(BACKWARD * forward_flops(inputs, outputs, params))


def _heads_second(array: Typed, layout: int) -> tuple[int, int, int, int]:
    """Return the shape as (batch, heads, length, size); the second axis of layout 0 is the length, of 1 the heads."""
    batch, second, third, size = array.shape
    return (batch, third, second, size) if layout == 0 else (batch, second, third, size)


def _is_causal(params: dict[str, Any]) -> bool:
    """Return whether the mask is causal, according to the name of the `MaskType`, or to a flag for float8."""
    mask = params.get("mask_type")
    return bool(params["use_causal_mask"]) if mask is None else "CAUSAL" in mask.name


def _attended_pairs(queries: int, keys: int, causal: bool, window: int | None) -> float:
    """Return the number of (query, key) pairs: with a causal mask, query i attends to the keys up to i."""
    if window is not None:  # JAX's windows end at the query itself
        return sum(max(0, min(i + 1, keys) - max(0, i + 1 - window)) for i in range(queries))
    if not causal:
        return queries * keys
    square = min(queries, keys)
    return square**2 / 2 + (queries - square) * keys
