"""Worked answer to exercise 30: gather outside the loop over microbatches, with a checkpoint around each of the two.

The order of the loops decides how often a weight crosses the links. If the all-gather is inside the loop over
microbatches, each microbatch gathers the weights in both passes, and the backward pass reduces and scatters a gradient
for each microbatch. Outside the loop, one all-gather serves all microbatches. Its transpose is outside the loop too:
JAX adds up the gradients of the whole weight in the carry of the backward loop, and runs one reduce-scatter afterwards.

Two checkpoints have different tasks. The outer one contains the all-gathers, so the residuals are the shards and `x`,
which are arguments, and the backward pass gathers each weight once more. With this checkpoint alone, the backward pass
would rerun the loop and save the intermediates of all microbatches. The inner one is around one microbatch. The loop
then saves only its inputs, and the backward loop recomputes the intermediates of one microbatch at a time.

Nesting does not recompute anything twice. The inner checkpoint needs only its inputs, so the outer one has nothing to
recompute but the gathers.
"""

import jax
import jax.numpy as jnp


def microbatch_fsdp(params, x, k):
    """Compute the layer for the rows of one of eight devices, one microbatch at a time.

    Args:
      params: this device's shards of `up` and `down`, `(d / 8, m)` and `(m / 8, d)`.
      x: this device's rows of all microbatches, `(k r, d)`.
      k: the number of microbatches.

    Returns:
      The layer's output for these rows, `(k r, d)`.
    """

    @jax.checkpoint
    def all_microbatches(params, x):
        up, down = (jax.lax.all_gather(shard, "devices", tiled=True) for shard in params)

        @jax.checkpoint
        def one_microbatch(rows):
            return rows + jnp.sin(rows @ up) @ down

        return jax.lax.map(one_microbatch, x.reshape(k, -1, x.shape[-1])).reshape(x.shape)

    return all_microbatches(params, x)
