"""Predict whether XLA copies an operand of a matmul or a convolution into the memory layout that it needs."""

import math
from collections.abc import Sequence

from rematscope.ir.program import Equation, Value


def is_outer(product: Equation) -> bool:
    """Return whether a matmul contracts no axes or axes of length 1, so that it is an elementwise multiplication."""
    (contracted, _), _ = product.params["dimension_numbers"]
    return math.prod(product.inputs[0].shape[axis] for axis in contracted) == 1


def has_batch_of_one(product: Equation) -> bool:
    """Return whether a batch axis of a matmul has length 1; XLA removes such an axis."""
    return any(product.inputs[0].shape[axis] == 1 for axis in product.params["dimension_numbers"][1][0])


def is_copied(value: Value, contracted: Sequence[int], batches: Sequence[int], place: int) -> bool:
    """Return whether an operand of a matmul is copied, because its axes are not in the order that the matmul needs.

    The batch axes have to come first, followed by the contracted and the remaining axes, each as one group.

    Args:
      place: the position of the contracted axes: 0 before the remaining axes, 1 after them.
    """
    axes = range(len(value.shape))
    kept = [axis for axis in axes if axis not in (*contracted, *batches)]
    if tuple(batches) == tuple(range(len(batches))) and len(contracted) == 1 and len(kept) <= 1:
        return False
    order = [*batches, *kept, *contracted] if place else [*batches, *contracted, *kept]
    order = [axis for axis in order if value.shape[axis] > 1]
    return order != sorted(order)


def is_swapped(convolution: Equation) -> bool:
    """Return whether the kernel of a convolution is larger than the image, so that XLA swaps them."""
    of, (lhs, rhs) = convolution.params, convolution.inputs
    if of["feature_group_count"] > 1 or of["batch_group_count"] > 1:
        return False
    numbers = of["dimension_numbers"]
    image = math.prod(lhs.shape[axis] for axis in numbers.lhs_spec[2:])
    return math.prod(rhs.shape[axis] for axis in numbers.rhs_spec[2:]) > image
