"""Windows that slide over an axis: how many of their places meet a number, not padding or the hole of a dilation."""

import math

import numpy as np


def conv_window_reads(
    axis: int, outputs: int, window: int, stride: int = 1, padding: int = 0, base_dilation: int = 1, dilation: int = 1
) -> int:
    """How many numbers all windows along one axis read together, as XLA counts them for a convolution.

    Args:
      axis: the numbers on the axis.
      outputs: how many windows there are.
      window: the places of a window.
      stride: from one window to the next.
      padding: places before the first number; negative where numbers are cut off.
      base_dilation: from one number to the next; what lies between are holes.
      dilation: from one place of a window to the next.
    """
    before = padding - np.arange(outputs) * stride  # places of each window before the first number
    first = np.maximum(0, -(-before // dilation))
    last = np.minimum(window - 1, (before + (axis - 1) * base_dilation) // dilation)
    # Of those places the ones that meet a number and no hole: place · dilation ≡ before, modulo base_dilation.
    common = math.gcd(dilation, base_dilation)
    step = base_dilation // common
    residue = before // common * pow(dilation // common, -1, step) % step
    first += (residue - first) % step
    counts = np.maximum(0, (last - first) // step + 1)
    return int(np.sum(counts[before % common == 0]))
