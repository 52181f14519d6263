"""Worked answer to exercise 10: save the matmul results and recompute the elementwise operations.

The function has two matmuls with a relu between them, then a square and a sum. Without `jax.checkpoint`, the forward
pass saves what each operation's derivative needs: the mask of the relu, the result of the relu, and twice the second
matmul result. (JAX also saves an array of zeros for the relu, which the backward pass never reads.) None of these is
itself a matmul result, but each follows from one by a cheap elementwise operation: the mask and the relu by one
comparison per element of `x @ w1`, and `2 * z` by one multiplication per element of the second matmul result `z`.

So saving the two matmul results is enough. A matmul of (N, d) by (d, d) takes 2·N·d² FLOPs. The relu, its mask and the
square take N·d FLOPs each, a fraction of about 1/d of a matmul. The backward pass recomputes the relu from the first
matmul result and uses it for the gradient of w2.

`dots_with_no_batch_dims_saveable` returns True for a matmul without batch dimensions and False for every other
operation. It returns False for the relu because a relu is not a matmul; the policy does not look at costs.

Why "no batch dims"? In `x @ w1`, all rows of x share the same weights. Under `jax.vmap` over all three arguments, each
example has weights of its own, and the matmul gets a batch dimension. Attention scores are batched in the same way:
each sequence and head has its own queries and keys. Attention scores take a lot of memory. As long as the sequence is
shorter than the layer is wide, recomputing them is cheap compared with the layer's other matmuls. This policy therefore
does not save batched matmuls, and the backward pass recomputes them. `dots_saveable` would save them. The gradient is
the same with either policy, so only the residuals show the difference.
"""

import jax
import jax.numpy as jnp


def checkpoint_dot_policy(w1, w2, x):
    """Return the sum of squares of `relu(x @ w1) @ w2`, saving only the two matmul results for the backward pass.

    Args:
      w1: weights, shape (d, d).
      w2: weights, shape (d, d), of w1's dtype.
      x: inputs, shape (N, d), of w1's dtype.

    Returns:
      A scalar of that dtype.
    """

    # One checkpoint contains the whole pipeline. With one checkpoint per step, the value passed from one step to the
    # next would be an argument of a checkpointed function, and JAX always saves those if the backward pass reads them.
    def pipeline(w1, w2, x):
        y = x @ w1  # saved
        h = jax.nn.relu(y)  # recomputed from y, and so is the mask for the relu's gradient
        z = h @ w2  # saved
        return jnp.sum(z**2)  # the gradient needs 2 * z, recomputed from z

    # Pass the policy itself and do not call it: JAX calls it for each operation.
    policy = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    return jax.checkpoint(pipeline, policy=policy)(w1, w2, x)
