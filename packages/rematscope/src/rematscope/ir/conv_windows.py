"""Count the elements that the sliding windows of a convolution read, without padding and the holes of a dilation."""

import math

import numpy as np


def conv_window_reads(
    axis: int, outputs: int, window: int, stride: int = 1, padding: int = 0, base_dilation: int = 1, dilation: int = 1
) -> int:
    """Return the number of elements that all windows along one axis read, as XLA counts them for a convolution.

    Args:
      axis: the number of elements of the axis.
      outputs: the number of windows.
      window: the number of positions of a window.
      stride: the distance from one window to the next.
      padding: the number of padding positions before the first element; negative if elements are cut off.
      base_dilation: the distance from one element to the next; the positions in between are holes.
      dilation: the distance from one position of a window to the next.
    """
    before = padding - np.arange(outputs) * stride  # for each window, the number of positions before the first element
    first = np.maximum(0, -(-before // dilation))
    last = np.minimum(window - 1, (before + (axis - 1) * base_dilation) // dilation)
    # A position reads an element, and not a hole, if position · dilation ≡ before (mod base_dilation).
    common = math.gcd(dilation, base_dilation)
    step = base_dilation // common
    residue = before // common * pow(dilation // common, -1, step) % step
    first += (residue - first) % step
    counts = np.maximum(0, (last - first) // step + 1)
    return int(np.sum(counts[before % common == 0]))
