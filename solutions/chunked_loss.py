"""Worked answer to exercise 27: a scan over chunks of rows, with a checkpoint around its body.

The logits have shape `(n, V)` and are far larger than the hidden states of shape `(n, d)`, so they are the array not to
save. The loss needs only one number per row, and a scan can sum these: each iteration computes the logits of its chunk
and adds one number to the total.

The scan alone does not reduce the saved bytes. The backward pass of the body needs the softmax of its chunk, and the
scan stacks the residuals of all iterations. With a checkpoint around the body, an iteration saves only its rows, which
are a part of `hidden`. Its backward pass recomputes the logits of the chunk, uses them and frees them. The price is one
more matmul.

A checkpoint around the whole scan saves nothing either. But the backward pass then runs the whole scan a second time,
and all logits are in memory at once.

If the number of rows is not a multiple of the chunk size, the last chunk is padded with rows of zeros, and a mask
excludes them from the sum. The sum is divided by the number of rows at the end. A mean of the chunks' means would give
the rows of a short chunk too much weight.
"""

import jax
import jax.numpy as jnp


def chunked_loss(hidden, vocabulary, labels, chunks):
    """Return the mean cross-entropy of `hidden @ vocabulary.T`, with the logits of one chunk at a time.

    Args:
      hidden: shape (n, d), one row per token.
      vocabulary: shape (V, d), one row per vocabulary entry.
      labels: shape (n,), integers: the correct vocabulary entry of each row.
      chunks: the number of chunks, an integer from 1 to n.

    Returns:
      A scalar of hidden's dtype.
    """
    n, rows = len(hidden), -(-len(hidden) // chunks)
    padding = rows * chunks - n

    @jax.checkpoint
    def loss(hidden, labels, counts):
        logits = hidden @ vocabulary.T
        correct = jnp.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
        return jnp.sum(jnp.where(counts, jax.nn.logsumexp(logits, axis=-1) - correct, 0))

    def split(array):
        padded = jnp.pad(array, [(0, padding), *[(0, 0)] * (array.ndim - 1)])
        return padded.reshape(chunks, rows, *array.shape[1:])

    each = split(hidden), split(labels), split(jnp.ones(n, bool))
    total, _ = jax.lax.scan(lambda total, chunk: (total + loss(*chunk), None), jnp.zeros((), hidden.dtype), each)
    return total / n
