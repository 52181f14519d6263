"""Worked answer to exercise 5: the leaves of the pullback are the residuals.

`jax.vjp(f, *args)` runs the forward pass. It returns the output and a function that runs the backward pass, the
pullback. The pullback holds every value that the backward pass needs from the forward pass, which are the residuals. It
is a pytree, and the residuals are its leaves.

Nothing has to run to count them: `jax.eval_shape` only traces, and returns shapes and dtypes instead of arrays. Tracing
is cheap, and it also makes the count exact. On concrete arrays, `jax.vjp` identifies arguments by their array: if one
array appears in two places, the pullback can hold an argument that the traced function does not save.

No case needs special treatment. The residuals of a loop are stacked, with its length as the first dimension. A constant
that a derivative needs is a leaf of shape (). An argument that the backward pass needs is one leaf, however often the
backward pass reads it.

`rematscope.trace(f, *args).residuals` lists the same values, and where each comes from.
"""

import jax


def count_residuals(f, *args):
    """Count the residuals that the forward pass of `f` saves for the gradient with respect to all arguments.

    Args:
      f: a differentiable function of pytrees of arrays.
      *args: its arguments.

    Returns:
      (n, bytes): the number of residuals, and their size in bytes.
    """

    def residuals(*args):
        _, pullback = jax.vjp(f, *args)
        return jax.tree.leaves(pullback)

    saved = jax.eval_shape(residuals, *args)
    return len(saved), sum(array.size * array.dtype.itemsize for array in saved)
