"""Typed access to operations of MLIR's Python bindings: their attributes, shapes and element types.

MLIR's verifier guarantees that a parsed operation has the attributes that its dialect requires. The bindings do not
declare the attributes' types, so this module declares them once.
"""

from typing import Any

import numpy as np
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

type Value = ir.Value[Any]  # the bindings do not declare the type
type Op = ir.Operation | ir.OpView


def operations(block: ir.Block) -> list[ir.Operation]:
    """Return a block's operations; the last one is the terminator."""
    return [view.operation for view in block.operations]


def operation_offsets(module: ir.Module) -> dict[ir.Operation, int]:
    """Return the offset of each operation in its function.

    A call takes as many offsets as the called function has operations. So the sum of an operation's offset and the
    offsets of the calls that lead to it is a unique place for each call of its function.
    """
    bodies = {name: walk_operations(function) for name, function in functions(module).items()}
    offsets: dict[ir.Operation, int] = {}
    sizes: dict[str, int] = {}

    def size_of(name: str) -> int:
        if name not in sizes:
            sizes[name] = end = 0  # recursive functions are refused by the reader
            for op in bodies.get(name, []):
                offsets[op] = end
                end += 1 + (size_of(callee(op)) if op.name == "func.call" else 0)
            sizes[name] = end
        return sizes[name]

    for name in bodies:
        size_of(name)
    return offsets


def walk_operations(op: Op) -> list[ir.Operation]:
    """Return an operation and all operations in it, each after those in its own regions."""
    walked: list[ir.Operation] = []

    def look(inner: ir.Operation) -> ir.WalkResult:
        walked.append(inner)
        return ir.WalkResult.ADVANCE

    op.walk(look)
    return walked


def functions(module: ir.Module) -> dict[str, ir.Operation]:
    """Return a module's functions by their names."""
    return {text(op, "sym_name"): op for op in operations(module.body) if op.name == "func.func"}


def function_type(function: Op) -> ir.FunctionType:
    """Return the argument and result types of a `func.func`."""
    return ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)


def callee(call: Op) -> str:
    """Return the name of the function that a `func.call` calls."""
    return ir.FlatSymbolRefAttr(call.attributes["callee"]).value


def integer(op: Op, name: str) -> int:
    """Return an attribute that is an integer."""
    return ir.IntegerAttr(op.attributes[name]).value


def integers(op: Op, name: str) -> list[int]:
    """Return an attribute that is a list of integers, such as dimensions."""
    return list(ir.DenseI64ArrayAttr(op.attributes[name]))


def device_pairs(op: Op) -> np.ndarray:
    """Return the pairs of devices that a permutation sends from and to."""
    return np.array(ir.DenseIntElementsAttr(op.attributes["source_target_pairs"]))


def text(op: Op, name: str) -> str:
    """Return an attribute that is a string."""
    return ir.StringAttr(op.attributes[name]).value


def splat(constant: Op) -> ir.Attribute | None:
    """Return the number that all elements of a constant equal; None if they differ, or if they are complex, which the
    bindings do not support."""
    if element_type(constant.results[0]).startswith("complex"):
        return None
    value = constant.attributes["value"]
    return value.get_splat_value() if isinstance(value, ir.DenseElementsAttr) and value.is_splat else None


def dot_dimensions(dot: Op) -> stablehlo.DotDimensionNumbers:
    """Return the batching and the contracting dimensions of a `dot_general`."""
    return stablehlo.DotDimensionNumbers(dot.attributes["dot_dimension_numbers"])


def gather_dimensions(gather: Op) -> stablehlo.GatherDimensionNumbers:
    """Return a gather's dimension numbers for the array, the indices and the result."""
    return stablehlo.GatherDimensionNumbers(gather.attributes["dimension_numbers"])


def scatter_dimensions(scatter: Op) -> stablehlo.ScatterDimensionNumbers:
    """Return a scatter's dimension numbers for the array, the indices and the updates."""
    return stablehlo.ScatterDimensionNumbers(scatter.attributes["scatter_dimension_numbers"])


def convolution_dimensions(convolution: Op) -> stablehlo.ConvDimensionNumbers:
    """Return the batch, feature and space dimensions of image, kernel and result."""
    return stablehlo.ConvDimensionNumbers(convolution.attributes["dimension_numbers"])


def comparison_direction(compare: Op) -> str:
    """Return `"EQ"`, `"NE"`, `"GE"`, `"GT"`, `"LE"` or `"LT"`."""
    direction: str = stablehlo.ComparisonDirectionAttr(compare.attributes["comparison_direction"]).value
    return direction


def comparison_type(compare: Op) -> str | None:
    """Return `"FLOAT"`, `"TOTALORDER"`, `"SIGNED"` or `"UNSIGNED"`; None if the element type decides."""
    if "compare_type" not in compare.attributes:
        return None
    kind: str = stablehlo.ComparisonTypeAttr(compare.attributes["compare_type"]).value
    return kind


def shape_of(value: Value) -> list[int]:
    """Return the shape of a value that is an array."""
    return ir.RankedTensorType(value.type).shape


def element_type(value: Value) -> str:
    """Return the element type of an array in MLIR's notation: `"f32"`, `"ui8"`, `"complex<f32>"`."""
    return str(ir.RankedTensorType(value.type).element_type)
