"""Worked answer to exercise 28: a scan over chunks of rows, each in a checkpoint.

The logits of a row are as many as there are words, and the row itself is far shorter: `(n, V)` against `(n, d)`. So
the logits are what not to keep. All that they are good for is one number a row, and a scan can add these up: one turn
makes the logits of its chunk, and hands on a sum.

That alone changes nothing of what is kept. The body's backward pass needs the softmax of its chunk, and the scan
stacks what its turns keep. So the body is in a checkpoint: a turn keeps its rows, which are a part of `hidden`, and
its backward turn makes the logits once more, uses them and drops them. One more product is the price.

With the checkpoint around the scan instead, nothing is kept either; but the backward pass then runs the whole scan
once more, and all logits are in memory at the same time after all.

Chunks that do not come out even are filled up with rows of zeros, and a mask takes these out of the sum. The mean
divides by the number of rows at the end: the mean of the chunks' means would weigh the rows of a short chunk more.
"""

import jax
import jax.numpy as jnp


def chunked_loss(hidden, vocabulary, labels, chunks):
    """The mean cross-entropy of `hidden @ vocabulary.T` against labels, with the logits of one chunk at a time.

    Args:
      hidden: shape (n, d), a row for each token.
      vocabulary: shape (V, d), a row for each word.
      labels: shape (n,), integers: the right word of each row.
      chunks: into how many chunks the rows are cut, an integer from 1 to n.

    Returns:
      A number, of hidden's dtype.
    """
    n, rows = len(hidden), -(-len(hidden) // chunks)
    beyond = rows * chunks - n

    @jax.checkpoint
    def loss(hidden, labels, counts):
        logits = hidden @ vocabulary.T
        right = jnp.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
        return jnp.sum(jnp.where(counts, jax.nn.logsumexp(logits, axis=-1) - right, 0))

    def cut(array):
        filled = jnp.pad(array, [(0, beyond), *[(0, 0)] * (array.ndim - 1)])
        return filled.reshape(chunks, rows, *array.shape[1:])

    each = cut(hidden), cut(labels), cut(jnp.ones(n, bool))
    total, _ = jax.lax.scan(lambda total, chunk: (total + loss(*chunk), None), jnp.zeros((), hidden.dtype), each)
    return total / n
