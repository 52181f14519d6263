"""Worked answer to exercise 3: one checkpoint per layer.

JAX saves the arguments of a checkpointed function and none of its intermediate values. A layer's arguments are its
weights, which are in memory in any case, and its input, which is the previous layer's output. So JAX saves two computed
values: the outputs of layers 1 and 2. (The output of layer 3 is the result, and the backward pass does not need it.)
Without checkpoints, JAX saves three cosines as well.

The backward pass visits the layers from the last to the first. From a layer's input it recomputes the matmul, and from
the matmul result it computes the cosine. It recomputes three matmuls in total. It recomputes no sine, because the sines
of layers 1 and 2 are the saved inputs of the next layers.

One checkpoint around all three layers saves only the arguments. The backward pass then starts from `x` and recomputes
two sines as well, and the intermediate values of all layers are in memory at the same time. One checkpoint per layer
saves slightly more between the passes, but recomputes only one layer at a time.
"""

import jax
import jax.numpy as jnp


@jax.checkpoint
def layer(W, x):
    """Compute one layer, `sin(W @ x)`, saving only its arguments: W of shape (m, n) and x of shape (n,)."""
    return jnp.sin(W @ x)  # both steps are inside: a sine outside of the checkpoint would save its cosine


def checkpoint_each_layer(W1, W2, W3, x):
    """Compute three layers of `sin(W @ x)`, saving only the layers' inputs for the backward pass.

    Args:
      W1, W2, W3: weights, shapes (b, a), (c, b) and (d, c).
      x: input, shape (a,), of the weights' dtype.

    Returns:
      An array of shape (d,) and that dtype.
    """
    x = layer(W1, x)
    x = layer(W2, x)
    return layer(W3, x)
