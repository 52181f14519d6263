"""Worked answer to exercise 32: compute peak and cost of every configuration, and return the cheapest that fits.

Eight policies and the divisors of the batch are at most 80 configurations, so all of them can be computed. Shortcuts
fail. The fewest microbatches that fit leave little memory, so that more must be recomputed. The policy that recomputes
least needs many microbatches, and each of them gathers all weights. Which of the two costs less depends on the
number of tokens per device: recompute grows with it, and the traffic does not.

Three terms of the peak do not shrink with the tokens: parameters with their optimizer state, the sum of the gradients
that accumulation adds, and the gathered weights. The logits and the intermediates of a layer are never live at the same
time, so only the larger of the two counts.
"""

HEAD_WIDTH = 128
VOCABULARY = 32_768
FLOPS_PER_BYTE = 2_200

POLICIES = {
    "full": (),
    "save_context": ("context",),
    "save_out_proj": ("out_proj",),
    "save_qkv_proj": ("qkv_proj",),
    "save_dot_except_mlp": ("qkv_proj", "out_proj"),
    "save_dot_with_context_except_mlp": ("qkv_proj", "out_proj", "context"),
    "minimal": ("qkv_proj", "out_proj", "mlpwi"),
    "minimal_with_context": ("qkv_proj", "out_proj", "mlpwi", "context"),
}


def count_parameters(width, layers):
    """Return the number of parameters: 12 h² per layer, and the table."""
    return 12 * layers * width**2 + VOCABULARY * width


def peak(width, sequence_length, layers, batch, devices, policy, microbatches):
    """Return the peak bytes per device."""
    tokens = batch // microbatches * sequence_length
    bytes_per_parameter = 16 if microbatches == 1 else 20  # with microbatches also the sum of their gradients
    state = bytes_per_parameter * count_parameters(width, layers) // devices

    context = 2 * width + 4 * (width // HEAD_WIDTH)  # the kernel's output, and its log-sum-exp in float32
    saved = {"qkv_proj": 6 * width, "out_proj": 2 * width, "mlpwi": 8 * width, "context": context}
    residuals = layers * tokens * (2 * width + sum(saved[name] for name in POLICIES[policy]))

    layer = 40 * width * tokens + 2 * 2 * 12 * width**2
    loss = 2 * 4 * VOCABULARY * tokens + 2 * 2 * VOCABULARY * width
    return state + residuals + max(layer, loss)


def cost(width, sequence_length, layers, batch, devices, policy, microbatches):
    """Return the recomputed FLOPs, plus the traffic of all microbatches but the first as FLOPs."""
    flops = {
        "qkv_proj": 6 * width**2,
        "out_proj": 2 * width**2,
        "mlpwi": 8 * width**2,
        "context": 2 * sequence_length * width,
    }
    recomputed = sum(flops[name] for name in flops if name not in POLICIES[policy])
    collectives = 3 * 2 * count_parameters(width, layers) // devices * (devices - 1)  # gather twice, reduce once
    return layers * batch * sequence_length * recomputed + (microbatches - 1) * collectives * FLOPS_PER_BYTE


def choose_configuration(width, sequence_length, layers, batch, devices, capacity):
    """Choose the checkpoint policy and the number of microbatches that fit in memory at the lowest cost.

    Args:
      width: the width of the layers, a multiple of 128.
      sequence_length: tokens per sequence.
      layers: the number of layers.
      batch: sequences per device and step.
      devices: the number of devices across which the weights are sharded.
      capacity: the memory of one device, in bytes.

    Returns:
      The policy's name, the number of microbatches, the peak in bytes, and the cost in FLOPs; an empty tuple if no
      configuration fits.
    """
    sizes = width, sequence_length, layers, batch, devices
    best = ()
    for microbatches in range(1, batch + 1):
        if batch % microbatches:
            continue
        for policy in POLICIES:
            nbytes, flops = peak(*sizes, policy, microbatches), cost(*sizes, policy, microbatches)
            if nbytes <= capacity and (not best or flops < best[3]):
                best = policy, microbatches, nbytes, flops
    return best
