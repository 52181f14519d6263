"""Worked answer to exercise 20: which of a layer's values are split, and which does every device have?

Tensor parallelism splits what has heads or the MLP's columns. The other values are as wide as the layer, and lie on
every device as a whole:

* inside, split: queries, keys, values and `context`, 2 bytes each, and two values four times as wide, which makes 24;
* outside, whole: `x`, `middle` and the results of both norms, 2 bytes each, and two masks of 1 byte, which makes 10;
* the attention matrix, split by heads: twice 2 bytes and a mask, 5 for each pair of tokens in each head.

On one device 24 and 10 are the 34 of chapter 10. Sequence parallelism gives each device its share of the tokens of what
lies outside, so that this is divided by `t` too. Selective recomputation forgets the attention matrix and nothing else.
Full recomputation forgets all but `x`, and that lies outside.

These are the formulas of Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022),
table 2. Writing them as sums of integers, and dividing last, keeps the result an integer.
"""


def activation_bytes(s, b, h, a, t, mode):
    """Bytes that one transformer layer keeps on each of t devices.

    Args:
      s: the number of tokens.
      b: the number of sequences in a batch.
      h: the width of the layer.
      a: the number of heads.
      t: the number of devices that share the layer; it divides s, h and a.
      mode: `"full"`, or `"tensor"`, to which `"+sequence"` and `"+selective"` may be added.

    Returns:
      An integer.
    """
    if mode == "full":
        return 2 * s * b * h
    inside, outside, matrix = 24 * s * b * h, 10 * s * b * h, 5 * a * s * s * b
    if "selective" in mode:
        matrix = 0
    if "sequence" in mode:
        outside //= t
    return outside + (inside + matrix) // t
