"""Promote a program to float64. The result, called its shadow, has negligible rounding errors.

If two programs compute the same function in a different order, or with different intermediate rounding, their shadows
agree to many digits, however much their float16 results differ. If they compute different functions, their shadows
differ.

Every float becomes a float64, and every complex number a complex128. Conversions between floats then do nothing, and
`reduce_precision` is removed. A constant becomes the shortest decimal that denotes it in its own dtype, so 0.3 becomes
0.3 from both float16 and float32. `bitcast_convert` keeps the program's dtype, because it works on its bits.
"""

import dataclasses

import numpy as np
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo
from jax.interpreters import mlir

from grader.stablehlo.bindings import Op, element_type, function_type, functions, operations, splat, walk_operations
from grader.stablehlo.program import StableHloProgram
from grader.stablehlo.types import DTYPES, TensorType


def widen_program(text: str) -> str:
    """Return a program's shadow.

    Args:
      text: StableHLO that `reader.read` has let pass.
    """
    with mlir.make_ir_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        _keep_narrow(module)
        for function in functions(module).values():
            _widen_blocks(function)
            type_ = function_type(function)
            wide = ir.FunctionType.get(list(map(_wide_type_of, type_.inputs)), list(map(_wide_type_of, type_.results)))
            function.attributes["function_type"] = ir.TypeAttr.get(wide)
        return str(module.operation.get_asm())


def promote_to_float64(program: StableHloProgram) -> StableHloProgram:
    """Return a program's shadow as a program with the same values and the same value numbers."""
    return dataclasses.replace(
        program,
        text=widen_program(program.text),
        input_types=tuple(map(_wide_type, program.input_types)),
        output_types=tuple(map(_wide_type, program.output_types)),
    )


def widened_array(array: np.ndarray) -> np.ndarray:
    """Return an array for a shadow: floats as float64, other dtypes unchanged."""
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    return array if array.dtype.kind in "biu" else array.astype(np.float64)


def _wide_type(kind: TensorType) -> TensorType:
    return TensorType(kind.shape, str(widened_array(np.zeros((), kind.dtype)).dtype))


def _keep_narrow(module: ir.Module) -> None:
    """Mark the values that keep their dtype, and insert conversions between them and all other values."""
    for op in walk_operations(module.operation):
        is_list = op.name == "stablehlo.constant" and _splat_text(op) is None
        if not is_list and op.name != "stablehlo.bitcast_convert":
            continue
        op.attributes[_NARROW] = ir.UnitAttr.get()
        (result,) = op.results
        uses = [(use.owner, use.operand_number) for use in result.uses]
        with ir.InsertionPoint.after(op):
            after = stablehlo.convert(result.type, result)
        for owner, number in uses:
            owner.operands[number] = after
        for number, operand in enumerate(op.operands):
            with ir.InsertionPoint(op):
                before = stablehlo.convert(operand.type, operand)
            before.owner.attributes[_NARROW] = ir.UnitAttr.get()
            op.operands[number] = before


_NARROW = "narrow"


def _widen_blocks(op: Op) -> None:
    for region in op.regions:
        for block in region.blocks:
            for argument in block.arguments:
                argument.set_type(_wide_type_of(argument.type))
            for inner in operations(block):
                _widen_operation(inner)


def _widen_operation(op: ir.Operation) -> None:
    if _NARROW in op.attributes:
        del op.attributes[_NARROW]
    elif op.name == "stablehlo.reduce_precision":
        op.results[0].replace_all_uses_with(op.operands[0])
        op.erase()
    else:
        if op.name == "stablehlo.constant" and isinstance(number := _splat_text(op), float):
            type_ = _wide_type_of(op.results[0].type)
            op.attributes["value"] = ir.DenseElementsAttr.get_splat(type_, ir.FloatAttr.get_f64(number))
        _widen_blocks(op)
        for result in op.results:
            result.set_type(_wide_type_of(result.type))


def _splat_text(constant: Op) -> float | int | None:
    """Return the number that all elements of a constant equal, as its shortest decimal; None if they differ."""
    number = splat(constant)
    if isinstance(number, ir.IntegerAttr | ir.BoolAttr):
        return int(number.value)
    if not isinstance(number, ir.FloatAttr):
        return None
    dtype = np.dtype(DTYPES[element_type(constant.results[0])])
    return _shortest_decimal(dtype.type(number.value)) if dtype.itemsize < 8 else number.value


def _shortest_decimal(number: np.generic) -> float:
    exact = float(number)
    for digits in range(1, 10):
        short = float(f"{exact:.{digits}g}")
        if type(number)(short) == number:
            return short
    return exact


def _wide_type_of(type_: ir.Type) -> ir.Type:
    try:
        tensor = ir.RankedTensorType(type_)
    except ValueError:  # not an array but a token
        return type_
    match str(tensor.element_type):
        case "bf16" | "f16" | "f32":
            return ir.RankedTensorType.get(tensor.shape, ir.F64Type.get())
        case "complex<f32>":
            return ir.RankedTensorType.get(tensor.shape, ir.ComplexType.get(ir.F64Type.get()))
    return type_
