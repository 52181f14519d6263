"""Worked answer to exercise 26: attention that keeps two things, and says what they are called.

A softmax's backward pass needs the weights, one for each query and each key. Left to itself JAX keeps them. But they
can be made from the scores and one number a row, the logarithm of the row's sum of exponentials: `exp(scores - lse)`.
And the scores are one product of `q` and `k`, which are in memory anyway. So the rule keeps `out` and `lse`, and pays
with one product in the backward pass. Kernels do the same block by block, so that not even the backward pass holds all
scores at a time.

What a rule keeps is its own business only while nobody puts a checkpoint around it. Inside one, the forward rule runs
again for all that the backward rule asks for, unless the policy finds it by a name. The names stand in the forward
rule, on the very values that it hands on. A name on what the function returns would be on a copy, made behind the rule:
the rule's own `out` would have none. With `out` alone named, everything runs again for `lse`.

`delta` is the sum over a row of `dp * p`. Since `out = p @ v`, it is also that of `ct * out`, which is much shorter.
That is what `out` is kept for, besides what the layer does with it.
"""

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name


@jax.custom_vjp
def flash_like(q, k, v):
    """Attention that keeps its result and one number for each query.

    Args:
      q: shape (n, d), the queries.
      k: shape (m, d), the keys.
      v: shape (m, e), the values.

    Returns:
      `softmax(q @ k.T / sqrt(d)) @ v`, shape (n, e). Under a checkpoint what its rule keeps has the names `out` and
      `lse`.
    """
    return attend(q, k, v)[0]


def scores_of(q, k):
    return q @ k.T / q.shape[-1] ** 0.5


def attend(q, k, v):
    scores = scores_of(q, k)
    lse = jax.nn.logsumexp(scores, axis=-1)
    return jnp.exp(scores - lse[:, None]) @ v, lse


def forward(q, k, v):
    out, lse = attend(q, k, v)
    out, lse = checkpoint_name(out, "out"), checkpoint_name(lse, "lse")
    return out, (q, k, v, out, lse)


def backward(kept, ct):
    q, k, v, out, lse = kept
    p = jnp.exp(scores_of(q, k) - lse[:, None])
    dp = ct @ v.T
    delta = jnp.sum(ct * out, axis=-1)
    dscores = p * (dp - delta[:, None]) / q.shape[-1] ** 0.5
    return dscores @ k, dscores.T @ q, p.T @ ct


flash_like.defvjp(forward, backward)
