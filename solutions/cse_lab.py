"""Worked answer to exercise 13: read what JAX asks for, and what XLA makes of it.

With either setting, JAX lowers the same computation. For the page's layer there is a product in the forward pass, the
same one again in the backward pass, one for the gradient of `w`, and one for the gradient of `x`, which the first layer
can do without: `4 n - 1`.

In the compiled program without barriers there are `3 n - 1`. To XLA, a product that is computed again is a product that
is there already, with the same operands. It throws out such copies (*common subexpression elimination*), and what is
left is the program without any checkpoint, its memory included.

Another layer has other numbers. In `jnp.sin(x) @ w` nothing asks for the product again: what its gradient needs are `w`
and the sine. So both programs have `3 n - 1` products, lowered and compiled. Whoever counts needs no rule.

`prevent_cse=True` puts a barrier around the inputs of every recomputation. XLA does not look through it, so that the
two products no longer have the same operands, and both stay. When XLA is done, it takes the barriers out.

In a loop the two products stand in different loops, and nothing has to be prevented: inside of `jax.lax.scan`,
`prevent_cse=False` is safe.
"""

import jax
import jax.numpy as jnp


def cse_lab(layer, w, x, n):
    """Counts barriers and matrix products in the programs of n checkpointed layers.

    Args:
      layer: a function `layer(w, x)` that returns an array of the shape of `x`.
      w: shape and dtype of each layer's weight.
      x: shape and dtype of what goes into the first layer.
      n: the number of layers, at least 1.

    Returns:
      A dict of pairs, first with `prevent_cse=True`, then with `prevent_cse=False`: `barriers` and `lowered`, the
      matrix products, in the lowered program; `compiled`, the matrix products in the compiled one.
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
