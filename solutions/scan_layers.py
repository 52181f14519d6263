"""Worked answer to exercise 11: put the checkpoint around the body of the scan.

`jax.lax.scan` runs one function many times and stacks the residuals of all iterations: if one iteration saves an array
of shape (d,), the scan saves one of shape (L, d). So each residual of the body counts L times.

With a checkpoint around the body, an iteration saves only the body's arguments. One argument is the element of `ws`.
All weights are in memory in any case, so the scan stacks nothing for it. The other argument is the carry, which is the
layer's input. The stacked carries, one array of shape (L, d), are the only computed residual.

With a checkpoint around the whole scan, no iteration saves anything. But the backward pass then runs the whole scan a
second time, and each iteration saves all of its residuals: the peak is as high as without a checkpoint, only later.

`prevent_cse=False` is safe for a checkpoint that is alone in the body of a scan with `unroll=1`, the default. The
forward and the backward pass are two loops, and XLA does not merge operations across loops. Elsewhere, keep
`prevent_cse=True`, which prevents XLA from merging the recompute with the original.
"""

import functools

import jax
import jax.numpy as jnp


@functools.partial(jax.checkpoint, prevent_cse=False)
def remat_layer(w, x):
    """Compute one layer, saving only its arguments: w of shape (d, d) and x of shape (d,)."""
    return x + jnp.sin(w @ jnp.sin(x))


def scan_layers(ws, x):
    """Apply layers of `x + sin(w @ sin(x))` in a scan, saving only the layers' inputs, stacked in one array.

    Args:
      ws: weights, shape (L, d, d); the first is used first.
      x: input, shape (d,), of the weights' dtype.

    Returns:
      An array of shape (d,) and that dtype.
    """
    x, _ = jax.lax.scan(lambda x, w: (remat_layer(w, x), None), x, ws)
    return x
