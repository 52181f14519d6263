"""Windows that slide over an axis: how many of their places meet a number, not padding or the hole of a dilation."""

import numpy as np


def taps(
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
    places = np.arange(outputs)[:, None] * stride + np.arange(window) * dilation - padding
    inside = (places >= 0) & (places <= (axis - 1) * base_dilation)
    return int(np.sum(inside & (places % base_dilation == 0)))
