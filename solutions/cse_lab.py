"""Worked answer to exercise 13: count operations in JAX's program, and in the program that XLA compiles it to.

With both settings, JAX lowers the same computation. For the page's layer, the forward pass has one matmul per layer.
The backward pass recomputes it, and has one matmul for the gradient of `w` and one for the gradient of `x`, which the
first layer does not need: `4 n - 1` in total.

Without barriers, the compiled program has `3 n - 1` matmuls. For XLA, the recomputed matmul is a duplicate with the
same operands. XLA removes such duplicates (*common subexpression elimination*). The result is the program without a
checkpoint, and it needs as much memory.

Other layers have other counts. In `jnp.sin(x) @ w`, the backward pass does not need the result of the matmul: the
gradient needs `w` and the sine. So both programs have `3 n - 1` matmuls, lowered and compiled. The function counts, so
it does not depend on such formulas.

`prevent_cse=True` passes the inputs of each recompute, and the cotangent, through a barrier. XLA does not optimize
across it, so for XLA the two matmuls have different operands, and both remain. XLA removes the barriers at the end.

In a `jax.lax.scan`, the two matmuls are in different loops, and XLA does not merge operations across loops. For a
checkpoint that is alone in the body of a scan with `unroll=1`, the default, `prevent_cse=False` is therefore safe.
"""

import jax
import jax.numpy as jnp


def cse_lab(layer, w, x, n):
    """Count barriers and matmuls in the programs of n checkpointed layers.

    Args:
      layer: a function `layer(w, x)` that returns an array of the shape of `x`.
      w: shape and dtype of each layer's weight.
      x: shape and dtype of the first layer's input.
      n: the number of layers, at least 1.

    Returns:
      A dict of pairs, first with `prevent_cse=True`, then with `prevent_cse=False`: `barriers` and `lowered`, the
      number of matmuls, in the lowered program; `compiled`, the number of matmuls in the compiled program.
    """
    counts = {"barriers": [], "lowered": [], "compiled": []}
    for prevent_cse in (True, False):
        lowered = lower(layer, w, x, n, prevent_cse)
        text = lowered.as_text()
        counts["barriers"].append(text.count("stablehlo.optimization_barrier"))
        counts["lowered"].append(text.count("stablehlo.dot_general"))
        counts["compiled"].append(lowered.compile().as_text().count(" dot("))
    return counts


def lower(layer, w, x, n, prevent_cse):
    def loss(ws, x):
        for w in ws:
            x = jax.checkpoint(layer, prevent_cse=prevent_cse)(w, x)
        return jnp.sum(x)

    return jax.jit(jax.value_and_grad(loss)).lower([w] * n, x)
