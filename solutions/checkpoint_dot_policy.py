"""Worked answer to exercise 10: save what is dear to compute, recompute what is cheap.

The pipeline is two matrix multiplications with a relu between them, a square and a sum. Without `jax.checkpoint` the
forward pass keeps what each operation's derivative rule asks for: relu's mask, relu's result and twice the second
product. (JAX keeps an array of zeros for relu as well, which nothing reads.) None of these is a matmul's result, though
the mask and relu's result follow from the first one at the cost of one comparison each, and twice the second product at
the cost of one multiplication.

So it is enough to keep the two products. A matmul of (N, d) by (d, d) takes 2·N·d² FLOPs; relu, its mask and the square
take N·d each. Saving the products and recomputing the rest costs some 1/d of a matmul, and the backward pass gets along
with two saved arrays. The third, relu's result, which the gradient of w2 needs, is recomputed from the first product.

The policy is asked about each operation of the forward pass: shall its result be saved?
`dots_with_no_batch_dims_saveable` says yes to a matmul without batch dimensions, and no to all else. (The relu is
recomputed whether or not it is cheap; that is what leaving it out of the policy means.)

Why "no batch dims"? In `x @ w1` all rows of x meet the same weights: d² weights make N·d numbers. Once all three
arguments get a batch dimension, as under `jax.vmap` over all of them, each example has a product of its own.
Attention scores are of that kind. They are large, and as long as a sequence is shorter than the layer is wide, they are
cheap beside the layer's other products. There this policy saves nothing, and the backward pass recomputes both
products. Another policy, `dots_saveable`, would save them too; by the gradient alone nobody could tell the two apart.
"""

import jax
import jax.numpy as jnp


def checkpoint_dot_policy(w1, w2, x):
    """Sum of the squares of `relu(x @ w1) @ w2`, of which only the two products are saved for the backward pass.

    Args:
      w1: weights, shape (d, d).
      w2: weights, shape (d, d), of w1's dtype.
      x: inputs, shape (N, d), of w1's dtype.

    Returns:
      A scalar of that dtype.
    """

    # All of the pipeline stands inside one checkpoint. With one checkpoint a stage, the value between the stages would
    # be an argument of the second one, and arguments of a checkpointed function are always kept.
    def pipeline(w1, w2, x):
        y = x @ w1  # saved
        h = jax.nn.relu(y)  # recomputed from y, as is the mask for relu's gradient
        z = h @ w2  # saved
        return jnp.sum(z**2)  # the gradient needs 2 * z, recomputed from z

    # The policy is the function itself, not called: JAX calls it, once for every operation.
    policy = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    return jax.checkpoint(pipeline, policy=policy)(w1, w2, x)
