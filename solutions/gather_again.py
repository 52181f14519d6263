"""Worked answer to exercise 24: gather inside the checkpoint, and let its policy keep the product alone.

Each device owns an eighth of each weight. To go back through `x @ up` it needs the whole of `up` once more, and so a
gradient without a checkpoint keeps it whole: eight times what the device owns, of every layer at once.

In a checkpoint the gathering is one more operation that can be done again. What comes from outside are the parts, and
they are arguments, which are there in any case. So the gathering has to stand *inside*: what is gathered before the
checkpoint begins is its argument, whole, and kept.

A checkpoint without a policy would make the product `h` again too. That is the dear part, and `h` is small where rows
are few. So it gets a name, and the policy keeps what has that name. The gathered weights get none.

Nothing is said of gradients. What goes back through `all_gather` is a sum over all devices of which each one gets its
part, a `psum_scatter`, and JAX knows that.
"""

import functools

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name


@functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.save_only_these_names("h"))
def gather_again(params, x):
    """What one of eight devices does: the layer of whole weights, on its own rows.

    Args:
      params: its parts of `up` and `down`, `(d / 8, m)` and `(m / 8, d)`.
      x: its rows, `(n, d)`.

    Returns:
      The layer's result for these rows, `(n, d)`.
    """
    up, down = (jax.lax.all_gather(part, "devices", tiled=True) for part in params)
    h = checkpoint_name(x @ up, "h")
    return x + jnp.sin(h) @ down
