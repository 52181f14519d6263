"""Run a StableHLO program with NumPy, one operation after the other.

XLA takes some ten milliseconds to compile a kernel, however small, and an answer's programs have a hundred; NumPy runs
them all in that time. An operation that is not here, and whatever would take long, is left to XLA.
"""

import math
import operator
from collections.abc import Callable, Iterable, Sequence

import ml_dtypes
import numpy as np
from jax.extend.mlir.dialects import stablehlo
from jax.interpreters import mlir

from grader.stablehlo.types import ALLOWED_CUSTOM_CALLS, DTYPES

ir = mlir.ir

# In elements made, summed or multiplied; an operation counts as a thousand, whatever its size. This is a tenth of a
# second at most: XLA is seldom slower with what takes NumPy more.
MAX_WORK = 2**25
_OPERATION = 1_000

Array = np.ndarray


class Uninterpreted(Exception):
    """The program has an operation that is not known here, or does too much."""


def run(text: str, arguments: Sequence[Array]) -> list[Array]:
    """Runs a program.

    Args:
      text: StableHLO that `programs.read` has let pass.
      arguments: what its `main` takes.

    Raises:
      Uninterpreted: it is to be compiled.
    """
    with mlir.make_ir_context():
        return run_module(ir.Module.parse(text), arguments)


def run_module(module: ir.Module, arguments: Sequence[Array]) -> list[Array]:
    """Runs a parsed module, as `run` does."""
    interpreter = _Interpreter(module)
    try:
        with np.errstate(all="ignore"):  # infinity and NaN are values like others
            returned = list(map(np.asarray, interpreter.function("main")(arguments)))
    except (TypeError, ValueError, MemoryError) as error:
        raise Uninterpreted("it is nothing for NumPy") from error
    interpreter.spend(sum(array.size for array in returned))
    return returned


class _Interpreter:
    """Makes Python functions of a module's functions, blocks and operations."""

    def __init__(self, module: ir.Module):
        self.bodies = {
            op.attributes["sym_name"].value: op.regions[0] for op in (view.operation for view in module.body.operations)
        }
        self.functions: dict[str, Callable] = {}
        self.work = 0

    def spend(self, work: int):
        self.work += work
        if self.work > MAX_WORK:
            raise Uninterpreted("it does too much")

    def function(self, name: str) -> Callable:
        """A function of the module, of a sequence of arrays."""
        if name not in self.functions:
            places: dict[ir.Value, int] = {}
            body = self.block(self.bodies[name].blocks[0], places)
            self.functions[name] = lambda arguments: body([None] * len(places), arguments)
        return self.functions[name]

    def block(self, block: ir.Block, places: dict[ir.Value, int]) -> Callable:
        """A block, as a function of its function's frame, which holds each value in its place, and of arguments."""

        def placed(values: Iterable[ir.Value]) -> list[int]:
            return [places.setdefault(value, len(places)) for value in values]

        parameters, steps = placed(block.arguments), []
        *operations, last = (view.operation for view in block.operations)
        for op in operations:
            make = _CONTROL_FLOW.get(op.name, _Interpreter.operation)
            steps.append((make(self, op, places), placed(op.operands), placed(op.results)))
        returned = placed(last.operands)

        def run(frame: list, arguments: Sequence[Array]) -> list[Array]:
            for place, value in zip(parameters, arguments, strict=True):
                frame[place] = value
            for function, operands, results in steps:
                values = function(frame, [frame[place] for place in operands])
                for place, value in zip(results, values, strict=True):
                    frame[place] = value
            return [frame[place] for place in returned]

        return run

    # Each of these makes a function of a frame and of operands.

    def operation(self, op: ir.Operation, _) -> Callable:
        if op.name not in _OPERATIONS:
            raise Uninterpreted(op.name)
        function, work = _OPERATIONS[op.name](op), _OPERATION + _work(op)

        def run(_, operands):
            self.spend(work)
            return (function(*operands),)

        return run

    def barrier(self, op: ir.Operation, _) -> Callable:
        return lambda _, operands: operands

    def call(self, op: ir.Operation, _) -> Callable:
        function = self.function(op.attributes["callee"].value)

        def run(_, operands):
            self.spend(_OPERATION)
            return function(operands)

        return run

    def loop(self, op: ir.Operation, places: dict[ir.Value, int]) -> Callable:
        condition, body = (self.block(region.blocks[0], places) for region in op.regions)

        def run(frame, carries):
            while condition(frame, carries)[0]:
                self.spend(_OPERATION)
                carries = body(frame, carries)
            return carries

        return run

    def case(self, op: ir.Operation, places: dict[ir.Value, int]) -> Callable:
        branches = [self.block(region.blocks[0], places) for region in op.regions]

        def run(frame, operands):
            index = int(operands[0])
            # A number that no branch has chooses the last one.
            return branches[index if 0 <= index < len(branches) else -1](frame, [])

        return run


_CONTROL_FLOW = {
    "func.call": _Interpreter.call,
    "stablehlo.case": _Interpreter.case,
    "stablehlo.optimization_barrier": _Interpreter.barrier,
    "stablehlo.while": _Interpreter.loop,
}


# Each of these makes a function of arrays of an operation without control flow.


def _elementwise(function: Callable) -> Callable:
    def make(op):
        dtype = _dtype(op.results[0])
        return lambda *arrays: np.asarray(function(*arrays), dtype)

    return make


def _of_floats(function: Callable) -> Callable:
    """As `_elementwise`, for floats only, and for what NumPy does in several steps: small floats are rounded once."""

    def make(op):
        dtype = _dtype(op.results[0])
        if not _is_float(dtype):
            raise Uninterpreted(f"{op.name} of integers")
        wide = _wide(dtype)
        return lambda *arrays: np.asarray(function(*(array.astype(wide) for array in arrays)), dtype)

    return make


def _custom_call(op: ir.Operation) -> Callable:
    if op.attributes["call_target_name"].value not in ALLOWED_CUSTOM_CALLS:
        raise Uninterpreted("a custom call")
    return lambda array: array  # a note of where it lies


def _constant(op: ir.Operation) -> Callable:
    value, dtype, shape = op.attributes["value"], _dtype(op.results[0]), _shape(op.results[0])
    if not isinstance(value, ir.DenseElementsAttr):
        raise Uninterpreted("a constant that is no list of numbers")
    if value.is_splat:
        array = np.broadcast_to(np.array(value.get_splat_value().value, dtype), shape)
    else:
        array = np.array(list(value), dtype).reshape(shape)
    return lambda: array


def _compare(op: ir.Operation) -> Callable:
    if "compare_type" in op.attributes and "TOTALORDER" in str(op.attributes["compare_type"]):
        raise Uninterpreted("NaN in an order")
    direction = stablehlo.ComparisonDirectionAttr(op.attributes["comparison_direction"]).value
    return getattr(operator, direction.lower())


def _convert(op: ir.Operation) -> Callable:
    source, target = _dtype(op.operands[0]), _dtype(op.results[0])
    if _is_float(source) and target.kind in "iu":
        raise Uninterpreted("floats made integers")  # some do not fit
    return lambda array: array.astype(target)


def _reduce_precision(op: ir.Operation) -> Callable:
    kind = ml_dtypes.finfo(_dtype(op.results[0]))
    if op.attributes["exponent_bits"].value < kind.nexp or op.attributes["mantissa_bits"].value < kind.nmant:
        raise Uninterpreted("less precision than a dtype's")
    return lambda array: array


def _broadcast(op: ir.Operation) -> Callable:
    shape, dims = _shape(op.results[0]), list(op.attributes["broadcast_dimensions"])
    if dims != sorted(dims):
        raise Uninterpreted("a broadcast that transposes")
    sizes = [1] * len(shape)
    for dim, size in zip(dims, _shape(op.operands[0]), strict=True):
        sizes[dim] = size
    return lambda array: np.broadcast_to(array.reshape(sizes), shape)


def _reshape(op: ir.Operation) -> Callable:
    shape = _shape(op.results[0])
    return lambda array: array.reshape(shape)


def _transpose(op: ir.Operation) -> Callable:
    dims = list(op.attributes["permutation"])
    return lambda array: array.transpose(dims)


def _reverse(op: ir.Operation) -> Callable:
    dims = tuple(op.attributes["dimensions"])
    return lambda array: np.flip(array, dims)


def _iota(op: ir.Operation) -> Callable:
    dtype, shape, dim = _dtype(op.results[0]), _shape(op.results[0]), op.attributes["iota_dimension"].value
    sizes = [-1 if place == dim else 1 for place in range(len(shape))]
    return lambda: np.broadcast_to(np.arange(shape[dim]).astype(dtype).reshape(sizes), shape)


def _concatenate(op: ir.Operation) -> Callable:
    dim = op.attributes["dimension"].value
    return lambda *arrays: np.concatenate(arrays, dim)


def _pad(op: ir.Operation) -> Callable:
    shape = _shape(op.results[0])
    low, high, between = (list(op.attributes[f"{where}"]) for where in _PADDING)
    if min(low + high, default=0) < 0:
        raise Uninterpreted("negative padding")
    sizes = zip(low, _shape(op.operands[0]), between, strict=True)
    inside = tuple(slice(start, start + size * (gap + 1) - gap * (size > 0), gap + 1) for start, size, gap in sizes)

    def pad(array, value):
        padded = np.full(shape, value)
        padded[inside] = array
        return padded

    return pad


_PADDING = "edge_padding_low", "edge_padding_high", "interior_padding"


def _slice(op: ir.Operation) -> Callable:
    bounds = (list(op.attributes[name]) for name in ("start_indices", "limit_indices", "strides"))
    window = tuple(slice(*bound) for bound in zip(*bounds, strict=True))
    return lambda array: array[window]


def _dynamic_slice(op: ir.Operation) -> Callable:
    sizes = list(op.attributes["slice_sizes"])
    return lambda array, *starts: array[_window(starts, sizes, array.shape)]


def _dynamic_update_slice(op: ir.Operation) -> Callable:
    def update(array, part, *starts):
        updated = np.array(array)
        updated[_window(starts, part.shape, array.shape)] = part
        return updated

    return update


def _window(starts: Sequence[Array], sizes: Sequence[int], shape: Sequence[int]) -> tuple[slice, ...]:
    """A dynamic slice; one that would stick out is moved until it does not."""
    fitting = [min(max(int(start), 0), whole - size) for start, size, whole in zip(starts, sizes, shape, strict=True)]
    return tuple(slice(start, start + size) for start, size in zip(fitting, sizes, strict=True))


def _dot_general(op: ir.Operation) -> Callable:
    dtype, shape, dims = _dtype(op.results[0]), _shape(op.results[0]), _dot_dimensions(op)
    wide = _wide(dtype)  # the products of small floats are rounded once, when they are added up

    def dot(left, right):
        product = np.matmul(
            _matrices(left.astype(wide), dims.lhs_batching_dimensions, dims.lhs_contracting_dimensions),
            _matrices(right.astype(wide), dims.rhs_batching_dimensions, dims.rhs_contracting_dimensions).mT,
        )
        return product.astype(dtype).reshape(shape)

    return dot


def _matrices(array: Array, batching: list[int], contracting: list[int]) -> Array:
    """An array as a stack of matrices, whose rows are what is contracted."""
    free = [dim for dim in range(array.ndim) if dim not in batching and dim not in contracting]
    sizes = [math.prod(array.shape[dim] for dim in dims) for dims in (batching, free, contracting)]
    return array.transpose([*batching, *free, *contracting]).reshape(sizes)


def _dot_dimensions(op: ir.Operation) -> stablehlo.DotDimensionNumbers:
    return stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])


def _reduce(op: ir.Operation) -> Callable:
    block = op.regions[0].blocks[0]
    combine, last = (view.operation for view in [*block.operations][-2:])
    if (
        len(block.operations) != 2
        or combine.name not in _REDUCED_BY
        or list(combine.operands) != list(block.arguments)
        or list(last.operands) != list(combine.results)
    ):
        raise Uninterpreted("an unusual reduction")
    function, dims, dtype = _REDUCED_BY[combine.name], tuple(op.attributes["dimensions"]), _dtype(op.results[0])
    wide = _wide(dtype)
    return lambda array, start: np.asarray(
        function.reduce(array.astype(wide), dims, wide, initial=start.astype(wide)[()]), dtype
    )


def _work(op: ir.Operation) -> int:
    if op.name == "stablehlo.dot_general":
        sizes = _shape(op.operands[0])
        return math.prod(
            [*_shape(op.results[0]), *(sizes[dim] for dim in _dot_dimensions(op).lhs_contracting_dimensions)]
        )
    touched = op.operands if op.name == "stablehlo.reduce" else op.results
    return sum(math.prod(_shape(value)) for value in touched)


def _shape(value: ir.Value) -> list[int]:
    return list(ir.RankedTensorType(value.type).shape)


def _dtype(value: ir.Value) -> np.dtype:
    dtype = np.dtype(DTYPES.get(str(ir.RankedTensorType(value.type).element_type), object))
    if dtype.kind in "cO":
        raise Uninterpreted("numbers that are not real")
    return dtype


def _is_float(dtype: np.dtype) -> bool:
    return dtype.kind not in "biu"


def _wide(dtype: np.dtype) -> np.dtype:
    return np.dtype(np.float32) if _is_float(dtype) and dtype.itemsize < 4 else dtype


_REDUCED_BY = {
    "stablehlo.add": np.add, "stablehlo.and": np.bitwise_and, "stablehlo.maximum": np.maximum,
    "stablehlo.minimum": np.minimum, "stablehlo.multiply": np.multiply, "stablehlo.or": np.bitwise_or,
}  # fmt: skip

_OPERATIONS = {
    name: _elementwise(function)
    for name, function in {
        **_REDUCED_BY, "stablehlo.abs": np.abs, "stablehlo.ceil": np.ceil,
        "stablehlo.clamp": lambda low, array, high: np.minimum(np.maximum(low, array), high),
        "stablehlo.cosine": np.cos, "stablehlo.exponential": np.exp, "stablehlo.exponential_minus_one": np.expm1,
        "stablehlo.floor": np.floor, "stablehlo.is_finite": np.isfinite, "stablehlo.log": np.log,
        "stablehlo.log_plus_one": np.log1p, "stablehlo.negate": np.negative, "stablehlo.not": np.invert,
        "stablehlo.round_nearest_even": np.rint, "stablehlo.select": np.where, "stablehlo.sign": np.sign,
        "stablehlo.sine": np.sin, "stablehlo.sqrt": np.sqrt, "stablehlo.subtract": np.subtract,
        "stablehlo.tan": np.tan, "stablehlo.tanh": np.tanh, "stablehlo.xor": np.bitwise_xor,
    }.items()
} | {
    name: _of_floats(function)
    for name, function in {
        "stablehlo.divide": np.divide, "stablehlo.power": np.power, "stablehlo.rsqrt": lambda array: 1 / np.sqrt(array),
    }.items()
} | {
    "stablehlo.broadcast_in_dim": _broadcast, "stablehlo.compare": _compare, "stablehlo.concatenate": _concatenate,
    "stablehlo.constant": _constant, "stablehlo.convert": _convert, "stablehlo.custom_call": _custom_call,
    "stablehlo.dot_general": _dot_general, "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.dynamic_update_slice": _dynamic_update_slice, "stablehlo.iota": _iota, "stablehlo.pad": _pad,
    "stablehlo.reduce": _reduce, "stablehlo.reduce_precision": _reduce_precision, "stablehlo.reshape": _reshape,
    "stablehlo.reverse": _reverse, "stablehlo.slice": _slice, "stablehlo.transpose": _transpose,
}  # fmt: skip
