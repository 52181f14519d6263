"""Worked answer to exercise 12: the checkpoint goes around the body of the scan.

`jax.lax.scan` runs one function many times. What this function keeps for the backward pass is kept of every turn,
stacked: where one turn keeps an array of shape (d,), the scan keeps one of shape (L, d). So a value saved or not saved
in the body counts L times.

With a checkpoint around the body, a turn keeps the body's arguments. One is the element of `ws`, of which all are in
memory anyway: nothing is stacked for it. The other is the carry, the layer's input. One array, (L, d), is all that is
kept besides the arguments.

With the checkpoint around the scan, nothing of any turn is kept. But then the backward pass first runs the whole scan
once more, and this time each turn keeps all it needs: as much is in memory at once as without a checkpoint, only later.

In a scan `prevent_cse=False` is safe. The forward pass is one loop and the backward pass another, and the compiler
does not merge what stands in two different loops. Outside of a loop the default is there to keep it from doing that.
"""

import functools

import jax
import jax.numpy as jnp


@functools.partial(jax.checkpoint, prevent_cse=False)
def layer(w, x):
    """One layer, of which only the arguments are kept: w of shape (d, d), x of shape (d,) to (d,)."""
    return x + jnp.sin(w @ jnp.sin(x))


def scan_layers(ws, x):
    """Layers of `x + sin(w @ sin(x))` in a scan, of which only the layers' inputs are saved, stacked in one array.

    Args:
      ws: weights, shape (L, d, d); the first is used first.
      x: input, shape (d,), of the weights' dtype.

    Returns:
      An array of shape (d,) and that dtype.
    """
    x, _ = jax.lax.scan(lambda x, w: (layer(w, x), None), x, ws)
    return x
