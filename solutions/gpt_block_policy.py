"""Worked answer to exercise 19: a menu is lists of names, and the lists are written for every spelling.

A policy cannot ask which kind of block it is used for. It need not: JAX never asks it about a name that a block does
not have. So each list has the names of all blocks: those with one product for queries, keys and values, and those with
three.

One list grows from another, so that a new spelling has one place to go. Names are compared as a whole. Whoever looks
for `mlpwi` at the beginning finds `mlpwi_0` and `mlpwi_1`, but also `mlpwi_activated`, and spends memory on what is
cheap to make again.

"Full" and "minimal" say how much is computed *again*, not how much is saved.
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
    """The policy that an entry of the menu stands for.

    Args:
      name: an entry, such as `"minimal"`.

    Returns:
      A policy for `jax.checkpoint`.
    """
    return jax.checkpoint_policies.save_only_these_names(*MENU[name])
