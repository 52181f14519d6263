"""Worked answer to exercise 29: stop the gradient at the frozen weights, and save only residuals of other gradients.

The backward pass of `x @ w` has two matmuls: `ct @ w.T` for the gradient of `x`, and `x.T @ ct` for the gradient of
`w`. Only the second one needs `x` as a residual. With `stop_gradient(w)`, JAX knows that `w` needs no gradient, so it
drops the second matmul and its residual. With `stop_gradient(x @ w)` it would drop both, and the layers before this one
would get no gradient from the frozen path.

`silu(h)` is needed only by gradients of weights that it is multiplied by. If `down` has no adapter, no gradient
needs it. If it has one, the gradient of `a` needs it, and `silu(h)` is recomputed from `h`.

A policy for matmuls such as `dots_saveable` saves both terms of `h = x @ up + x @ a @ b`, because JAX asks it about
each matmul, and `h` is the result of an addition. Two arrays of the size of `h` are saved instead of one. So `h` gets
a name, and so does the narrow `x @ a`: it has `r` columns and saves a matmul in the backward pass.

The two weights are not merged. `x @ (w + a @ b)` computes the same, but it saves a second copy of the weight, and the
gradients of `a` and `b` then follow from the gradient of the merged weight, a matmul of the full size.
"""

import functools

import jax
from jax.ad_checkpoint import checkpoint_name


@functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.save_only_these_names("hidden", "narrow"))
def lora_layer(frozen, adapters, x):
    """Compute an MLP with LoRA adapters.

    Args:
      frozen: the weights `{"up": (d, m), "down": (m, d)}`, which need no gradient.
      adapters: for `"up"`, for `"down"` or for both, a pair `(a, b)` of matrices with rank r.
      x: rows, `(n, d)`.

    Returns:
      `silu(x @ up) @ down`, `(n, d)`, where each weight w with an adapter is replaced by `w + a @ b`.
    """
    h = checkpoint_name(_multiply(x, frozen["up"], adapters.get("up")), "hidden")
    return _multiply(jax.nn.silu(h), frozen["down"], adapters.get("down"))


def _multiply(x, weight, adapter):
    y = x @ jax.lax.stop_gradient(weight)
    if adapter is None:
        return y
    a, b = adapter
    return y + checkpoint_name(x @ a, "narrow") @ b
