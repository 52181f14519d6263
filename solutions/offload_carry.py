"""Worked answer to exercise 22: name the carry at the start of the body, and offload that name.

With one checkpoint per layer, a scan saves only its carries: the stacked inputs of the layers. The forward pass
computes one per iteration, and the backward pass needs them in reverse order, so the first one waits longest. Such
values are good candidates for host memory.

In addition to its arguments, a checkpointed function saves what its policy allows, and JAX asks the policy only about
values computed *inside*. The carry comes from outside. So the body first names the carry: the output of
`checkpoint_name` is computed inside, equals the carry, and everything else is computed from it. The policy offloads
this value. The backward pass then no longer needs the argument itself, so JAX does not save it on the device.

A name at the *end* of the body looks equivalent, because a layer's output is the input of the next layer. But the next
iteration receives that value as its argument, which JAX saves on the device, and the backward pass does not need the
named copy. So nothing is offloaded, without any error.
"""

import jax
from jax.ad_checkpoint import checkpoint_name


def offload_carry(layer):
    """Return a model that applies layers in a scan and saves only their inputs, stacked, in host memory.

    Args:
      layer: takes a weight matrix and an array, and returns an array of the same shape.

    Returns:
      A function of `ws`, the stacked weights of all layers, and `x`, the input of the first layer.
    """
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=["carry"],
        offload_src="device",
        offload_dst="pinned_host",
    )

    def model(ws, x):
        def body(x, w):
            return layer(w, checkpoint_name(x, "carry")), None

        return jax.lax.scan(jax.checkpoint(body, policy=policy, prevent_cse=False), x, ws)[0]

    return model
