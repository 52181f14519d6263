"""NumPy implementations of StableHLO operations without control flow.

`OPERATIONS` maps the name of each operation to a factory of its function of arrays. If NumPy's result would differ from
the StableHLO specification or from XLA, the factory raises `Uninterpreted`, and XLA runs the program.
"""

import math
import operator
from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np
from jax.extend.mlir import ir

from grader.stablehlo.bindings import (
    Op,
    Value,
    comparison_direction,
    comparison_type,
    dot_dimensions,
    element_type,
    integer,
    integers,
    operations,
    shape_of,
    text,
)
from grader.stablehlo.types import ALLOWED_CUSTOM_CALLS, DTYPES
from grader.stablehlo.windows import Windows, gathered, scattered

type Array = np.ndarray
type Function = Callable[..., Array]  # a function of the operation's operands
type Maker = Callable[[Op], Function]


class Uninterpreted(Exception):
    """Raised if a program has an unsupported operation or does too much work."""


def _make_elementwise(function: Function) -> Maker:
    def make(op: Op) -> Function:
        dtype = _dtype_of(op.results[0])
        return lambda *arrays: np.asarray(function(*arrays), dtype)

    return make


def _of_floats(function: Function) -> Maker:
    """Do the same as `_make_elementwise` for operations on floats that NumPy computes in several steps. Small floats
    are rounded only once.

    Integers can be divided, because programs compute indices: of a device on a mesh, or of a step in its segment.
    """

    def make(op: Op) -> Function:
        dtype = _dtype_of(op.results[0])
        if dtype.kind in "iu" and op.name in _OF_INTEGERS:
            return _refuse_zero_divisor(_OF_INTEGERS[op.name])
        if not _is_float(dtype):
            raise Uninterpreted(f"{op.name} of integers")
        wide = _accumulation_dtype(dtype)
        return lambda *arrays: np.asarray(function(*(array.astype(wide) for array in arrays)), dtype)

    return make


def _refuse_zero_divisor(function: Function) -> Function:
    def run(left: Array, right: Array) -> Array:
        if not right.all():
            raise Uninterpreted("a number divided by zero")
        return function(left, right)

    return run


def _custom_call(op: Op) -> Function:
    if text(op, "call_target_name") not in ALLOWED_CUSTOM_CALLS:
        raise Uninterpreted("a custom call")
    return lambda array: array  # an annotation of the memory space


def _make_constant(op: Op) -> Function:
    value, dtype, shape = op.attributes["value"], _dtype_of(op.results[0]), shape_of(op.results[0])
    if not isinstance(value, ir.DenseElementsAttr):
        raise Uninterpreted("a constant that is no list of numbers")
    if value.is_splat:  # the bindings cannot return a bfloat16 array, but the single number of a splat
        number = value.get_splat_value()
        if not isinstance(number, ir.FloatAttr | ir.IntegerAttr | ir.BoolAttr):
            raise Uninterpreted("a constant that is no number")
        array = np.broadcast_to(np.array(number.value, dtype), shape)
    else:
        array = np.array(value, dtype).reshape(shape)  # an empty array may lack both
    return lambda: array


def _make_compare(op: Op) -> Function:
    if comparison_type(op) == "TOTALORDER":
        raise Uninterpreted("NaN in an order")
    return _COMPARED_BY[comparison_direction(op)]


def _make_convert(op: Op) -> Function:
    source, target = _dtype_of(op.operands[0]), _dtype_of(op.results[0])
    if _is_float(source) and target.kind in "iu":
        raise Uninterpreted("floats made integers")  # out-of-range floats are undefined
    return lambda array: array.astype(target)


def _make_bitcast(op: Op) -> Function:
    source, target = _dtype_of(op.operands[0]), _dtype_of(op.results[0])
    if source.itemsize != target.itemsize or "b" in (source.kind, target.kind):
        raise Uninterpreted("an array whose shape changes with its dtype")
    return lambda array: np.ascontiguousarray(array).reshape(array.shape).view(target)


def _make_shift(function: Function) -> Maker:
    def make(op: Op) -> Function:
        dtype = _dtype_of(op.results[0])
        bits = 8 * dtype.itemsize
        unsigned = np.dtype(f"u{dtype.itemsize}")

        def shift(array: Array, by: Array) -> Array:
            # A shift by at least the number of bits, or by a negative number, gives 0; NumPy does not define it.
            inside = by.astype(unsigned) < bits
            shifted: Array = function(array, np.where(inside, by, 0).astype(dtype)).astype(dtype)
            return np.where(inside, shifted, np.zeros((), dtype))

        return shift

    return make


def _shift_right_logical(array: Array, by: Array) -> Array:
    unsigned = np.dtype(f"u{array.dtype.itemsize}")
    shifted: Array = array.astype(unsigned) >> by.astype(unsigned)
    return shifted.astype(array.dtype)


def _reduce_precision(op: Op) -> Function:
    kind = ml_dtypes.finfo(_dtype_of(op.results[0]))  # type: ignore[no-untyped-call]  # its stub has no types
    if integer(op, "exponent_bits") < kind.nexp or integer(op, "mantissa_bits") < kind.nmant:
        raise Uninterpreted("less precision than a dtype's")
    return lambda array: array


def _make_broadcast(op: Op) -> Function:
    shape, dims = shape_of(op.results[0]), integers(op, "broadcast_dimensions")
    if dims != sorted(dims):
        raise Uninterpreted("a broadcast that transposes")
    sizes = [1] * len(shape)
    for dim, size in zip(dims, shape_of(op.operands[0]), strict=True):
        sizes[dim] = size
    return lambda array: np.broadcast_to(array.reshape(sizes), shape)


def _make_reshape(op: Op) -> Function:
    shape = shape_of(op.results[0])
    return lambda array: array.reshape(shape)


def _make_transpose(op: Op) -> Function:
    dims = integers(op, "permutation")
    return lambda array: array.transpose(dims)


def _make_reverse(op: Op) -> Function:
    dims = tuple(integers(op, "dimensions"))
    return lambda array: np.flip(array, dims)


def _make_iota(op: Op) -> Function:
    dtype, shape, dim = _dtype_of(op.results[0]), shape_of(op.results[0]), integer(op, "iota_dimension")
    sizes = [-1 if place == dim else 1 for place in range(len(shape))]
    return lambda: np.broadcast_to(np.arange(shape[dim]).astype(dtype).reshape(sizes), shape)


def _make_concatenate(op: Op) -> Function:
    dim = integer(op, "dimension")
    return lambda *arrays: np.concatenate(arrays, dim)


def _make_pad(op: Op) -> Function:
    shape, lows, gaps = shape_of(op.results[0]), integers(op, "edge_padding_low"), integers(op, "interior_padding")
    taken, put = [], []
    for size, padded_size, low, gap in zip(shape_of(op.operands[0]), shape, lows, gaps, strict=True):
        step = gap + 1
        first, last = (
            max(0, -(low // step)),
            min(size, -((low - padded_size) // step)),
        )  # negative padding removes elements
        taken.append(slice(first, max(first, last)))
        put.append(slice(low + first * step, low + (last - 1) * step + 1, step) if first < last else slice(0))

    def pad(array: Array, value: Array) -> Array:
        padded = np.full(shape, value)
        padded[tuple(put)] = array[tuple(taken)]
        return padded

    return pad


def _make_slice(op: Op) -> Function:
    bounds = (integers(op, name) for name in ("start_indices", "limit_indices", "strides"))
    window = tuple(slice(*bound) for bound in zip(*bounds, strict=True))
    return lambda array: array[window]


def _dynamic_slice(op: Op) -> Function:
    sizes = integers(op, "slice_sizes")
    return lambda array, *starts: array[_clamped_window(starts, sizes, array.shape)]


def _dynamic_update_slice(op: Op) -> Function:
    def update(array: Array, part: Array, *starts: Array) -> Array:
        updated = np.array(array)
        updated[_clamped_window(starts, part.shape, array.shape)] = part
        return updated

    return update


def _clamped_window(starts: Sequence[Array], sizes: Sequence[int], shape: Sequence[int]) -> tuple[slice, ...]:
    """Return a dynamic slice. Its start is clamped so that the slice is inside the array."""
    fitting = [min(max(int(start), 0), whole - size) for start, size, whole in zip(starts, sizes, shape, strict=True)]
    return tuple(slice(start, start + size) for start, size in zip(fitting, sizes, strict=True))


def _make_gather(op: Op) -> Function:
    windows = gathered(op)
    if windows is None:
        raise Uninterpreted("an unusual gather")
    return lambda array, indices: array.reshape(-1)[windows.places(_window_starts(windows, indices))]


def _make_scatter(op: Op) -> Function:
    windows, dtype = scattered(op), _dtype_of(op.results[0])
    if windows is None:
        raise Uninterpreted("an unusual scatter")
    block, wide = op.regions[0].blocks[0], _accumulation_dtype(dtype)
    replaces = len(block.operations) == 1 and list(operations(block)[-1].operands) == [block.arguments[1]]
    combine = None if replaces else _combined_by(op)

    def scatter(array: Array, indices: Array, updates: Array) -> Array:
        starts = _window_starts(windows, indices)
        inside = np.ones(starts.shape[1:], bool)
        for start, dim, most in zip(starts, windows.indexed, windows.last_starts(), strict=True):
            fits = (start >= 0) & (start <= most)
            if not (fits | (start <= -windows.sizes[dim]) | (start >= windows.shape[dim])).all():
                raise Uninterpreted("a window that sticks out")  # XLA and the StableHLO specification differ here
            inside &= fits
        # Out-of-bounds updates change an additional element at the end, which is then dropped.
        places = np.where(windows.spread(inside), windows.places(starts), array.size)
        changed = np.append(array.astype(wide), np.zeros((), wide))
        if combine is None:
            changed[places] = updates
        else:
            combine.at(changed, places, updates.astype(wide))
        return changed[:-1].astype(dtype).reshape(array.shape)

    return scatter


def _window_starts(windows: Windows, indices: Array) -> Array:
    if indices.dtype == np.uint64:
        raise Uninterpreted("indices that no int64 has")
    return windows.starts(indices)


def _dot_general(op: Op) -> Function:
    dtype, shape, dims = _dtype_of(op.results[0]), shape_of(op.results[0]), dot_dimensions(op)
    wide = _accumulation_dtype(dtype)  # products of small floats are rounded only once, after they are summed

    def dot(left: Array, right: Array) -> Array:
        product: Array = np.matmul(
            _as_matrices(left.astype(wide), dims.lhs_batching_dimensions, dims.lhs_contracting_dimensions),
            _as_matrices(right.astype(wide), dims.rhs_batching_dimensions, dims.rhs_contracting_dimensions).mT,
        )
        return product.astype(dtype).reshape(shape)

    return dot


def _as_matrices(array: Array, batching: list[int], contracting: list[int]) -> Array:
    """Return an array as a stack of matrices whose rows are contracted."""
    free = [dim for dim in range(array.ndim) if dim not in batching and dim not in contracting]
    sizes = [math.prod(array.shape[dim] for dim in dims) for dims in (batching, free, contracting)]
    return array.transpose([*batching, *free, *contracting]).reshape(sizes)


def _make_reduce(op: Op) -> Function:
    function, dims, dtype = _combined_by(op), tuple(integers(op, "dimensions")), _dtype_of(op.results[0])
    wide = _accumulation_dtype(dtype)
    return lambda array, start: np.asarray(
        function.reduce(array.astype(wide), dims, wide, initial=start.astype(wide)[()]), dtype
    )


def combination(op: Op) -> Function:
    """Return the function that an operation's region defines for combining arrays along their first axis. Raises
    Uninterpreted if the region has an unusual form."""
    function, dtype = _combined_by(op), _dtype_of(op.results[0])
    wide = _accumulation_dtype(dtype)
    return lambda arrays: np.asarray(function.reduce(arrays.astype(wide), 0, wide), dtype)


def _combined_by(op: Op) -> np.ufunc:
    block = op.regions[0].blocks[0]
    combine, last = operations(block)[-2:]
    if (
        len(block.operations) != 2
        or combine.name not in _REDUCED_BY
        or list(combine.operands) != list(block.arguments)
        or list(last.operands) != list(combine.results)
    ):
        raise Uninterpreted("an unusual reduction")
    return _REDUCED_BY[combine.name]


def _dtype_of(value: Value) -> np.dtype:
    dtype = np.dtype(DTYPES.get(element_type(value), object))
    if dtype.kind in "cO":
        raise Uninterpreted("numbers that are not real")
    return dtype


def _is_float(dtype: np.dtype) -> bool:
    return dtype.kind not in "biu"


def _accumulation_dtype(dtype: np.dtype) -> np.dtype:
    return np.dtype(np.float32) if _is_float(dtype) and dtype.itemsize < 4 else dtype


_COMPARED_BY: dict[str, Function] = {
    "EQ": operator.eq, "NE": operator.ne, "GE": operator.ge, "GT": operator.gt, "LE": operator.le, "LT": operator.lt,
}  # fmt: skip

_REDUCED_BY: dict[str, np.ufunc] = {
    "stablehlo.add": np.add, "stablehlo.and": np.bitwise_and, "stablehlo.maximum": np.maximum,
    "stablehlo.minimum": np.minimum, "stablehlo.multiply": np.multiply, "stablehlo.or": np.bitwise_or,
}  # fmt: skip

_ELEMENTWISE: dict[str, Function] = {
    **_REDUCED_BY, "stablehlo.abs": np.abs, "stablehlo.ceil": np.ceil,
    "stablehlo.clamp": lambda low, array, high: np.minimum(np.maximum(low, array), high),
    "stablehlo.cosine": np.cos, "stablehlo.exponential": np.exp, "stablehlo.exponential_minus_one": np.expm1,
    "stablehlo.floor": np.floor, "stablehlo.is_finite": np.isfinite, "stablehlo.log": np.log,
    "stablehlo.log_plus_one": np.log1p, "stablehlo.negate": np.negative, "stablehlo.not": np.invert,
    "stablehlo.round_nearest_even": np.rint, "stablehlo.select": np.where, "stablehlo.sign": np.sign,
    "stablehlo.sine": np.sin, "stablehlo.sqrt": np.sqrt, "stablehlo.subtract": np.subtract, "stablehlo.tan": np.tan,
    "stablehlo.tanh": np.tanh, "stablehlo.xor": np.bitwise_xor,
}  # fmt: skip

_OF_FLOATS: dict[str, Function] = {
    "stablehlo.divide": np.divide, "stablehlo.power": np.power, "stablehlo.remainder": np.fmod,
    "stablehlo.rsqrt": lambda array: 1 / np.sqrt(array),
}  # fmt: skip

# Rounds towards zero, whereas Python's division rounds down.
_OF_INTEGERS: dict[str, Function] = {
    "stablehlo.divide": lambda left, right: (left - np.fmod(left, right)) // right,
    "stablehlo.remainder": np.fmod,
}

OPERATIONS: dict[str, Maker] = {
    **{name: _make_elementwise(function) for name, function in _ELEMENTWISE.items()},
    **{name: _of_floats(function) for name, function in _OF_FLOATS.items()},
    "stablehlo.bitcast_convert": _make_bitcast,
    "stablehlo.shift_left": _make_shift(np.left_shift),
    "stablehlo.shift_right_logical": _make_shift(_shift_right_logical),
    "stablehlo.broadcast_in_dim": _make_broadcast,
    "stablehlo.compare": _make_compare,
    "stablehlo.concatenate": _make_concatenate,
    "stablehlo.constant": _make_constant,
    "stablehlo.convert": _make_convert,
    "stablehlo.custom_call": _custom_call,
    "stablehlo.dot_general": _dot_general,
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.dynamic_update_slice": _dynamic_update_slice,
    "stablehlo.gather": _make_gather,
    "stablehlo.iota": _make_iota,
    "stablehlo.pad": _make_pad,
    "stablehlo.reduce": _make_reduce,
    "stablehlo.reduce_precision": _reduce_precision,
    "stablehlo.reshape": _make_reshape,
    "stablehlo.reverse": _make_reverse,
    "stablehlo.scatter": _make_scatter,
    "stablehlo.slice": _make_slice,
    "stablehlo.transpose": _make_transpose,
}
