"""Count the FLOPs of contractions: multiplications whose products are summed, however that is spelled.

`dot_general` and `convolution` say what they are. The same product can be spelled as a multiplication and a sum, and
what is neither as a `dot_general`, by `einsum` or `vecdot`:

    x[:, :, None] * w                 each operand is repeated along a dimension of the other: an outer product, whose
                                      products are there to be summed, by whatever sums them
    (w * x).sum(1)                    one operand is repeated, and what comes of it is summed: a matrix times a vector
    x[:, :, None] + w                 the quarter of a difference of squares is a product, and so is the exponential of
                                      a sum of logarithms

Each costs 2 FLOPs an element of the array that is made, which is what the `dot_general` costs that does the same.
A number that is repeated scales, and costs nothing here. Nor does a sum of squares, of which nothing is repeated.
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
_OTHERWISE = {"stablehlo.add", "stablehlo.subtract", "stablehlo.power"}  # of floats: products by way of something else
_MOVE = {"stablehlo.convert", "stablehlo.negate", "stablehlo.reduce_precision", "stablehlo.transpose"}
_CUT = {"stablehlo.slice", "stablehlo.dynamic_slice"}
_SUM = {"stablehlo.reduce", "stablehlo.reduce_window", "stablehlo.scatter"}


class Contractions:
    """Tells what each operation of a program costs; it is told of them one after the other, in the program's order."""

    def __init__(self) -> None:
        # By value number: how many different elements there are at most, where that is fewer than all.
        self._different: dict[int, int] = {}
        # What comes of multiplying an array by one that is repeated: if it is summed, that was half of a contraction.
        self._scaled: set[int] = set()

    def flops(self, op: Op, operands: Sequence[int], result: int) -> int:
        """Return the FLOPs of an operation as contraction, 0 if it is none.

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
            case name if name in _MOVE or name in _CUT:
                self._different[result] = min(self._count_elements(op, operands, 0), _element_count(op.results[0]))
                if operands[0] in self._scaled:
                    self._scaled.add(result)
            case "stablehlo.select":
                if not self._scaled.isdisjoint(operands):
                    self._scaled.add(result)
            case name if name in _SUM:
                return self._add_sum(op, operands)
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
        """As the multiplication and the sum that it stands for."""
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
        """Return how many different elements an operand has at most."""
        size = _element_count(op.operands[place])
        return min(size, self._different.get(operands[place], size))


def _element_count(value: Value) -> int:
    return math.prod(shape_of(value))


def _convolution_flops(convolution: Op) -> int:
    kernel = shape_of(convolution.operands[1])
    features = kernel[convolution_dimensions(convolution).kernel_output_feature_dimension]
    return 2 * math.prod(shape_of(convolution.results[0])) * math.prod(kernel) // max(1, features)
