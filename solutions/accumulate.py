"""Worked answer to exercise 28: a scan over microbatches that adds up gradients and divides once at the end.

The residuals of a microbatch are needed only by its own backward pass. So each iteration runs both passes of one
microbatch: `jax.value_and_grad` is *inside* the loop. The carry is a sum of gradients, of the size of the parameters,
for any number of microbatches.

With the loop inside `jax.value_and_grad`, all forward passes run before all backward passes, and the residuals of all
microbatches are live at once. A checkpoint around the body would help, but it costs a second forward pass.

The loop adds up sums: the weighted losses, the weights, and the gradients of the weighted losses. The mean loss follows
at the end, and so does its gradient, because the weights do not depend on the parameters. The mean of the microbatches'
means is a different number if the microbatches have different weights.
"""

import jax
import jax.numpy as jnp


def accumulate(loss, params, batch, k):
    """Return the mean loss of a batch and its gradient, computed from `k` microbatches one after another.

    Args:
      loss: takes params and rows of the batch, and returns the weighted sum of their losses and the sum of their
        weights.
      params: a pytree of arrays.
      batch: a pytree of arrays with n rows each.
      k: the number of microbatches, which divides n.

    Returns:
      A pair: the sum of all losses divided by the sum of all weights, and its gradient, a pytree like params.
    """

    def body(sums, rows):
        (total, weight), gradients = jax.value_and_grad(loss, has_aux=True)(params, rows)
        return jax.tree.map(jnp.add, sums, (total, weight, gradients)), None

    microbatches = jax.tree.map(lambda array: array.reshape(k, -1, *array.shape[1:]), batch)
    like = jax.eval_shape(loss, params, jax.tree.map(lambda array: array[0], microbatches))
    zeros = jax.tree.map(lambda array: jnp.zeros(array.shape, array.dtype), (*like, params))
    (total, weight, gradients), _ = jax.lax.scan(body, zeros, microbatches)
    return total / weight, jax.tree.map(lambda gradient: gradient / weight, gradients)
