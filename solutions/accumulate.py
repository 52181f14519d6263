"""Worked answer to exercise 29: a scan over microbatches that adds up gradients, and divides once, at the end.

A microbatch's activations are kept for its own backward pass and for nothing else. So both its passes are run before
the next microbatch begins: `jax.value_and_grad` stands *inside* of the loop. What a turn hands on is a sum of
gradients, of the parameters' size, however many microbatches there are.

With the loop inside of `jax.value_and_grad` it is the other way round: first all forward passes, then all backward
passes, and between the two lies what all microbatches keep. A checkpoint around the body helps, but costs another
forward pass.

What is added up are sums: of the losses times their weights, of the weights, of the gradients of the first. The mean
follows from these at the end, and so does its gradient, since the weights do not depend on the parameters. A mean of
the microbatches' means is something else as soon as one of them weighs more than another.
"""

import jax
import jax.numpy as jnp


def accumulate(loss, params, batch, k):
    """The mean loss of a batch and its gradient, from `k` microbatches, one after the other.

    Args:
      loss: takes params and rows of the batch, and returns the weighted sum of their losses, and the sum of their
        weights.
      params: a tree of arrays.
      batch: a tree of arrays with n rows each.
      k: the number of microbatches, which divides n.

    Returns:
      A pair: the sum of all losses divided by the sum of all weights, and its gradient, a tree like params.
    """

    def body(sums, rows):
        (total, weight), gradients = jax.value_and_grad(loss, has_aux=True)(params, rows)
        return jax.tree.map(jnp.add, sums, (total, weight, gradients)), None

    microbatches = jax.tree.map(lambda array: array.reshape(k, -1, *array.shape[1:]), batch)
    like = jax.eval_shape(loss, params, jax.tree.map(lambda array: array[0], microbatches))
    zeros = jax.tree.map(lambda array: jnp.zeros(array.shape, array.dtype), (*like, params))
    (total, weight, gradients), _ = jax.lax.scan(body, zeros, microbatches)
    return total / weight, jax.tree.map(lambda gradient: gradient / weight, gradients)
