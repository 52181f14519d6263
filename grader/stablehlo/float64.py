"""Promote a program to float64: its shadow, which rounding does not affect.

Nothing in it is rounded that matters. Where two programs compute the same in another order, or with other roundings in
between, their shadows agree to many digits, however far apart float16 has taken the programs themselves; where they
compute something else, their shadows show that.

Every float becomes a float64 and every complex number a complex128. A conversion from one float to another then does
nothing, and `reduce_precision` is left out. A constant becomes the shortest decimal that denotes it in its own dtype:
0.3 is 0.3, be it written in float16 or in float32. Bits are those of the dtype that the program has:
`bitcast_convert` keeps it.
"""

import dataclasses

import numpy as np
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo
from jax.interpreters import mlir

from grader.stablehlo.bindings import Op, element_type, function_type, functions, operations, splat
from grader.stablehlo.program import StableHloProgram
from grader.stablehlo.types import DTYPES, TensorType


def widened(text: str) -> str:
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
    """Return a program's shadow as a program: the same values, with the same numbers."""
    return dataclasses.replace(
        program,
        text=widened(program.text),
        input_types=tuple(map(_wide_type, program.input_types)),
        output_types=tuple(map(_wide_type, program.output_types)),
    )


def widened_array(array: np.ndarray) -> np.ndarray:
    """Return an array as a shadow takes it: floats in float64, all else as it is."""
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    return array if array.dtype.kind in "biu" else array.astype(np.float64)


def _wide_type(kind: TensorType) -> TensorType:
    return TensorType(kind.shape, str(widened_array(np.zeros((), kind.dtype)).dtype))


def _keep_narrow(module: ir.Module) -> None:
    """Mark what keeps its dtype, and put conversions between that and the rest."""
    marked: list[ir.Operation] = []

    def look(op: ir.Operation) -> ir.WalkResult:
        if op.name == "stablehlo.bitcast_convert" or (op.name == "stablehlo.constant" and _splat_text(op) is None):
            marked.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(look)
    for op in marked:
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
    """Return a constant's only number; a float's is the shortest decimal that denotes it. None if it has several."""
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
    except ValueError:  # a token
        return type_
    match str(tensor.element_type):
        case "bf16" | "f16" | "f32":
            return ir.RankedTensorType.get(tensor.shape, ir.F64Type.get())
        case "complex<f32>":
            return ir.RankedTensorType.get(tensor.shape, ir.ComplexType.get(ir.F64Type.get()))
    return type_
