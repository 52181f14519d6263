"""Worked answer to exercise 18: name the projections and the context, and let the shape decide which names are saved.

The backward pass of attention needs q, k, v and the attention weights, and the gradient of `wo` needs the context. The
weights are never saved here, so the scores are recomputed in any case. What remains is a choice:

* With q, k and v saved, the backward pass does not recompute three matmuls of 2 s h² FLOPs each, 6 s h² in total. It
  recomputes the scores and, for the gradient of `wo`, the context.
* With the context saved, it does not recompute the matmul of the weights and v, 2 s² h FLOPs. It recomputes q, k, v and
  the scores.

The second choice avoids more if 2 s² h > 6 s h², that is, if the sequence is longer than three times the width. Per
saved byte, `context` is better as soon as the sequence is longer than the width: q, k and v take three times as much.

The names are inside the checkpointed function. A name outside, or on a value that is not computed there, has no effect.
"""

import functools

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name


def attention_block(wq, wk, wv, wo, x):
    """Compute `x + attention(x) @ wo`, saving q, k and v, or the context, whichever avoids more recompute.

    Args:
      wq, wk, wv: projections, (h, a, d), for a heads of size d, where h = a * d.
      wo: output projection, (a, d, h).
      x: the input, (s, h).

    Returns:
      An array of x's shape and dtype.
    """
    s, h = x.shape
    names = ("context",) if s > 3 * h else ("q", "k", "v")

    @functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.save_only_these_names(*names))
    def block(wq, wk, wv, wo, x):
        q = checkpoint_name(jnp.einsum("sh,had->sad", x, wq), "q")
        k = checkpoint_name(jnp.einsum("sh,had->sad", x, wk), "k")
        v = checkpoint_name(jnp.einsum("sh,had->sad", x, wv), "v")
        context = checkpoint_name(jax.nn.dot_product_attention(q, k, v), "context")
        return x + jnp.einsum("sad,adh->sh", context, wo)

    return block(wq, wk, wv, wo, x)
