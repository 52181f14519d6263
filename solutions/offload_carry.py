"""Worked answer to exercise 23: the carry gets a name at the head of the body, and the policy sends that name away.

With one checkpoint a layer a scan keeps its carries and nothing else: the input of each layer, stacked. They are made
in the forward pass, one a turn, and wanted in the backward pass, in the opposite order. The first ones wait longest.
That is what the host's memory is good for.

What a checkpoint keeps besides its arguments its policy says, and a policy can be asked about values that are made
*inside*. The carry comes from outside. So the body begins by giving it a name: what `checkpoint_name` returns is made
inside, has the carry's value, and all that follows is made of it. The policy sends it to the host. Now nothing that
the backward pass needs depends on the argument itself, and what nobody needs is not kept.

The name at the *end* of the body looks as good, since a layer's output is the next one's input. But the next turn
gets it as its argument, which is kept on the device as ever, and the named copy is what nobody needs. So nothing is
offloaded, and nobody says so.
"""

import jax
from jax.ad_checkpoint import checkpoint_name


def offload_carry(layer):
    """Layers in a scan, of which the inputs alone are kept, stacked, in the host's memory.

    Args:
      layer: takes a weight and an array, and returns an array like the latter.

    Returns:
      A function of `ws`, the weights of all layers, stacked, and of `x`, the input of the first.
    """
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=["carry"],
        offload_src="device",
        offload_dst="pinned_host",
    )

    def net(ws, x):
        def body(x, w):
            return layer(w, checkpoint_name(x, "carry")), None

        return jax.lax.scan(jax.checkpoint(body, policy=policy, prevent_cse=False), x, ws)[0]

    return net
