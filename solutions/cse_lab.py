"""Worked answer to exercise 13: read what JAX asks for, and what XLA makes of it.

With either setting, JAX lowers the same computation. Each layer has a product in the forward pass, the same one again
in the backward pass, one for the gradient of `w`, and one for the gradient of `x`, which the first layer can do
without: `4 n - 1`.

In the compiled program without barriers there are `3 n - 1`. To XLA, a product that is computed again is a product that
is there already, with the same operands. It throws out such copies (*common subexpression elimination*), and what is
left is the program without any checkpoint, its memory included.

`prevent_cse=True` puts a barrier around the inputs of every recomputation. XLA does not look through it, so that the
two products no longer have the same operands, and both stay. When XLA is done, it takes the barriers out.

In a loop the two products stand in different loops, and nothing has to be prevented: inside of `jax.lax.scan`,
`prevent_cse=False` is safe.
"""

import jax
import jax.numpy as jnp


def cse_lab(n):
    """Counts barriers and matrix products in the programs of n checkpointed layers, for the CPU.

    Args:
      n: the number of layers, at least 1.

    Returns:
      A dict of pairs, first with `prevent_cse=True`, then with `prevent_cse=False`: `barriers` and `lowered`, the
      matrix products, in the lowered program; `compiled`, the matrix products in the compiled one.
    """
    counts = {"barriers": [], "lowered": [], "compiled": []}
    for prevent_cse in (True, False):
        lowered = lower(n, prevent_cse)
        text = lowered.as_text()
        counts["barriers"].append(text.count("stablehlo.optimization_barrier"))
        counts["lowered"].append(text.count("stablehlo.dot_general"))
        counts["compiled"].append(lowered.compile().as_text().count(" dot("))
    return counts


def lower(n, prevent_cse):
    def layer(w, x):
        return jnp.sin(x @ w)

    def loss(ws, x):
        for w in ws:
            x = jax.checkpoint(layer, prevent_cse=prevent_cse)(w, x)
        return jnp.sum(x)

    cpu = jax.sharding.SingleDeviceSharding(jax.devices("cpu")[0])
    w = jax.ShapeDtypeStruct((16, 16), jnp.float32, sharding=cpu)
    x = jax.ShapeDtypeStruct((8, 16), jnp.float32, sharding=cpu)
    return jax.jit(jax.value_and_grad(loss)).lower([w] * n, x)
