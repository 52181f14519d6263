"""Worked answer to exercise 4: one checkpoint a layer.

A checkpointed function keeps its arguments and nothing of what happens inside. With one checkpoint a layer, the
arguments are the layer's weights, which are there anyway, and its input, which is the output of the layer before. So
two computed values are kept, the outputs of layers 1 and 2. (Nobody needs the third: it is the result.) Without
checkpoints there are three cosines besides.

The backward pass goes through the layers from the last to the first. From a layer's input it computes the product
again, and from that the cosine. Three products are computed a second time; no sine is, since the next layer's input was
kept.

One checkpoint around all three layers keeps the arguments alone. But then the backward pass starts from `x`: it
computes two sines again as well, and while it works, all that plain `net` would have kept is in memory at once. One
checkpoint a layer keeps a little more from one pass to the other, and has to rebuild only one layer at a time.
"""

import jax
import jax.numpy as jnp


@jax.checkpoint
def layer(W, x):
    """One layer, `sin(W @ x)`, of which only the arguments are kept: W of shape (m, n), x of shape (n,) to (m,)."""
    return jnp.sin(W @ x)  # both steps inside: a sine left outside would keep its cosine


def checkpoint_each_layer(W1, W2, W3, x):
    """Three layers of `sin(W @ x)`, of which only the layers' inputs are saved for the backward pass.

    Args:
      W1, W2, W3: weights, shapes (b, a), (c, b) and (d, c).
      x: input, shape (a,), of the weights' dtype.

    Returns:
      An array of shape (d,) and that dtype.
    """
    x = layer(W1, x)
    x = layer(W2, x)
    return layer(W3, x)
