"""Worked answer to exercise 17: each menu entry is a list of names that covers every kind of block.

A policy cannot find out which kind of block it is applied to, and it does not need to: JAX never asks it about a name
that the block does not have. So each list contains the names of all blocks, with fused and with separate projections.

The lists build on each other, so a new name has to be added in one place only. Names are compared as a whole. The
prefix `mlpwi` matches `mlpwi_0` and `mlpwi_1`, but also `mlpwi_activated`, which takes memory and is cheap to
recompute.

"full" and "minimal" describe how much is *recomputed*, not how much is saved.
"""

import jax

QKV = ("query_proj", "key_proj", "value_proj", "qkv_proj")
PROJECTIONS = (*QKV, "out_proj", "mlpwi", "mlpwi_0", "mlpwi_1", "mlpwo")
MENU = {
    "full": (),
    "save_out_proj": ("out_proj",),
    "save_qkv_proj": QKV,
    "minimal": PROJECTIONS,
    "minimal_with_context": (*PROJECTIONS, "context"),
}


def gpt_block_policy(name):
    """Return the policy for an entry of the menu.

    Args:
      name: an entry, such as `"minimal"`.

    Returns:
      A policy for `jax.checkpoint`.
    """
    return jax.checkpoint_policies.save_only_these_names(*MENU[name])
