"""Worked answer to exercise 19: which values of a layer are sharded, and which are replicated on every device?

Tensor parallelism shards the values that have an axis of heads or of hidden columns. The other values have the width of
the layer and are replicated. In bytes per element of (s, b, h):

* sharded: queries, keys, values and `context`, 2 bytes each, and two values that are four times as wide, 24 in total;
* replicated: `x`, `middle` and the outputs of both norms, 2 bytes each, and two masks of 1 byte each, 10 in total;
* the attention matrix, sharded by heads: two bfloat16 values and a mask, 5 bytes for each pair of tokens in each head.

On one device, 24 and 10 add up to the 34 of chapter 10. Sequence parallelism also shards the replicated values, by
tokens, so they are divided by `t` too. Selective recomputation does not save the attention matrix. Full recomputation
saves only `x`, which is replicated.

These are the formulas of Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022),
table 2. The function adds integers and divides last, so the result is an integer.
"""


def activation_bytes(s, b, h, a, t, mode):
    """Return the bytes that one transformer layer saves on each of t devices.

    Args:
      s: the sequence length.
      b: the batch size.
      h: the width of the layer.
      a: the number of heads.
      t: the number of devices that share the layer; it divides s, h and a.
      mode: `"full"`, or `"tensor"` with `"+sequence"` and `"+selective"` as options.

    Returns:
      An integer.
    """
    if mode == "full":
        return 2 * s * b * h
    sharded, replicated, matrix = 24 * s * b * h, 10 * s * b * h, 5 * a * s * s * b
    if "selective" in mode:
        matrix = 0
    if "sequence" in mode:
        replicated //= t
    return replicated + (sharded + matrix) // t
