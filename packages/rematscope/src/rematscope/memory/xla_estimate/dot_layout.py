"""The memory layout that matmuls and convolutions need for their operands, and whether an operand is copied for it."""

import math
from collections.abc import Sequence

from rematscope.ir.program import Equation, Value


def is_outer(product: Equation) -> bool:
    """Whether a matmul contracts nothing, or axes of length 1: it is an elementwise multiplication then."""
    (contracted, _), _ = product.params["dimension_numbers"]
    return math.prod(product.inputs[0].shape[axis] for axis in contracted) == 1


def has_batch_of_one(product: Equation) -> bool:
    """Whether a batch axis has length 1, which XLA removes before the matmul."""
    return any(product.inputs[0].shape[axis] == 1 for axis in product.params["dimension_numbers"][1][0])


def is_copied(value: Value, contracted: Sequence[int], batches: Sequence[int], place: int) -> bool:
    """Whether a matmul's operand has to be copied so that its batch axes come first, then the others in one group each.

    Args:
      value: the operand.
      contracted, batches: its contracted and batch axes.
      place: the place of the contracted axes: 0 before the remaining axes, 1 after them.
    """
    axes = range(len(value.shape))
    kept = [axis for axis in axes if axis not in (*contracted, *batches)]
    if tuple(batches) == tuple(range(len(batches))) and len(contracted) == 1 and len(kept) <= 1:
        return False
    order = [*batches, *kept, *contracted] if place else [*batches, *contracted, *kept]
    order = [axis for axis in order if value.shape[axis] > 1]
    return order != sorted(order)


def is_swapped(convolution: Equation) -> bool:
    """Whether a kernel is larger than the image."""
    of, (lhs, rhs) = convolution.params, convolution.inputs
    if of["feature_group_count"] > 1 or of["batch_group_count"] > 1:
        return False
    numbers = of["dimension_numbers"]
    image = math.prod(lhs.shape[axis] for axis in numbers.lhs_spec[2:])
    return math.prod(rhs.shape[axis] for axis in numbers.rhs_spec[2:]) > image
