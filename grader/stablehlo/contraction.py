"""Count the FLOPs of contractions: multiplications whose results are summed, however they are written.

`dot_general` and `convolution` are contractions. The same result can be written with other operations:

    x[:, :, None] * w                 each operand is repeated along a dimension of the other. This is an outer product,
                                      whose elements another operation can sum
    (w * x).sum(1)                    one operand is repeated, and the result is summed: a matrix-vector product
    x[:, :, None] + w                 a quarter of a difference of squares is a product, and so is the exponential of
                                      a sum of logarithms

Each costs 2 FLOPs per element of the intermediate array, as much as the equivalent `dot_general`. Multiplying by a
repeated scalar only scales an array, so it costs nothing here. A sum of squares costs nothing either, because no
operand is repeated.
"""

import math
from collections.abc import Sequence

from grader.stablehlo.bindings import (
    Op,
    Value,
    convolution_dimensions,
    dot_dimensions,
    element_type,
    integer,
    operations,
    shape_of,
    splat,
)
from grader.stablehlo.types import MAX_INTEGER

_MULTIPLY = {"stablehlo.multiply", "stablehlo.divide"}
# For floats, these can express products indirectly.
_OTHERWISE = {"stablehlo.add", "stablehlo.subtract", "stablehlo.power"}
_MOVE = {"stablehlo.convert", "stablehlo.negate", "stablehlo.reduce_precision", "stablehlo.transpose"}
_CUT = {"stablehlo.slice", "stablehlo.dynamic_slice"}
_SUM = {"stablehlo.reduce", "stablehlo.reduce_window", "stablehlo.scatter"}


class Contractions:
    """Computes the contraction FLOPs of each operation of a program, given the operations in program order."""

    def __init__(self) -> None:
        # By value number: an upper bound on the number of different elements, if it is less than the size.
        self._different: dict[int, int] = {}
        # The results of multiplying an array by a repeated one. If such a result is summed, the multiplication was half
        # of a contraction.
        self._scaled: set[int] = set()

    def flops(self, op: Op, operands: Sequence[int], result: int) -> int:
        """Return the FLOPs of an operation as a contraction; 0 if it is not one.

        Args:
          op: an operation with a single result.
          operands: the numbers of its operands.
          result: the number of its result.
        """
        match op.name:
            case "stablehlo.dot_general":
                return self._add_dot(op, operands, result)
            case "stablehlo.convolution":
                return _convolution_flops(op)
            case "stablehlo.constant":
                if splat(op) is not None:
                    self._different[result] = 1
            case "stablehlo.iota":
                self._different[result] = shape_of(op.results[0])[integer(op, "iota_dimension")]
            case "stablehlo.broadcast_in_dim":
                self._different[result] = self._count_elements(op, operands, 0)
                if operands[0] in self._scaled:
                    self._scaled.add(result)
            case name if name in _SUM and not _sums_nothing(op):
                return self._add_sum(op, operands)
            case name if name in _MOVE or name in _CUT or name in _SUM:
                self._different[result] = min(self._count_elements(op, operands, 0), _element_count(op.results[0]))
                if operands[0] in self._scaled:
                    self._scaled.add(result)
            case "stablehlo.select":
                if not self._scaled.isdisjoint(operands):
                    self._scaled.add(result)
            case name if len(operands) == 1 and _element_count(op.operands[0]) == _element_count(op.results[0]):
                self._different[result] = self._count_elements(op, operands, 0)
            case name if len(operands) == 2 and _element_count(op.operands[0]) == _element_count(op.results[0]):
                return self._add_elementwise(op, operands, result)
        return 0

    def _add_elementwise(self, op: Op, operands: Sequence[int], result: int) -> int:
        size = _element_count(op.results[0])
        counts = [self._count_elements(op, operands, place) for place in (0, 1)]
        self._different[result] = min(size, math.prod(counts))
        if min(counts) <= 1:
            self._scaled.update([result] if not self._scaled.isdisjoint(operands) else [])
            return 0
        multiplies = op.name in _MULTIPLY
        if max(counts) < self._different[result]:
            if multiplies or (op.name in _OTHERWISE and element_type(op.results[0]) not in MAX_INTEGER):
                return 2 * size
        elif multiplies and min(counts) < size:
            self._scaled.add(result)
        return 0

    def _add_dot(self, dot: Op, operands: Sequence[int], result: int) -> int:
        """Count a `dot_general` as the multiplication and the sum that it is equivalent to."""
        dims, (lhs, rhs) = dot_dimensions(dot), map(shape_of, dot.operands)
        summed = math.prod(lhs[dim] for dim in dims.lhs_contracting_dimensions)
        kept = summed * math.prod(lhs[dim] for dim in dims.lhs_batching_dimensions)
        fewest = min(self._count_elements(dot, operands, place) for place in (0, 1))
        outer = math.prod(lhs) > kept and math.prod(rhs) > kept
        repeats = max(math.prod(lhs), math.prod(rhs)) > kept or fewest < kept
        if fewest <= 1 or not repeats:
            return 0
        if summed == 1 and not outer:
            self._scaled.add(result)
            return 0
        return 2 * math.prod(shape_of(dot.results[0])) * summed

    def _add_sum(self, op: Op, operands: Sequence[int]) -> int:
        adds = any(inner.name == "stablehlo.add" for inner in operations(op.regions[0].blocks[0]))
        summed = {
            _element_count(value) for value, number in zip(op.operands, operands, strict=True) if number in self._scaled
        }
        return 2 * max(summed) if adds and summed else 0

    def _count_elements(self, op: Op, operands: Sequence[int], place: int) -> int:
        """Return an upper bound on the number of different elements of an operand."""
        size = _element_count(op.operands[place])
        return min(size, self._different.get(operands[place], size))


def _sums_nothing(op: Op) -> bool:
    """Return whether an operation reduces an array along axes of length 1 only, which reshapes it."""
    return op.name == "stablehlo.reduce" and _element_count(op.operands[0]) == _element_count(op.results[0])


def _element_count(value: Value) -> int:
    return math.prod(shape_of(value))


def _convolution_flops(convolution: Op) -> int:
    kernel = shape_of(convolution.operands[1])
    features = kernel[convolution_dimensions(convolution).kernel_output_feature_dimension]
    return 2 * math.prod(shape_of(convolution.results[0])) * math.prod(kernel) // max(1, features)
