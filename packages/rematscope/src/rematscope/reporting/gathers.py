"""Gathers that read one row per example by its position, such as `x[jnp.arange(batch), labels]`, as batched gathers.

A position counts the examples of the whole batch, so such a gather does not commute with slicing. The equal gather with
batching dimensions does: its indices are the labels alone, and each example reads its own row.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from rematscope import jax_compat
from rematscope.reporting.flat_program import FlatProgram, Operation, Variable, flat_program

# The dimensions of a gather's operand that are read by position, with the axes along which the indices count.
Rows = tuple[tuple[int, int], ...]


def with_batched_gathers(*programs: FlatProgram) -> list[FlatProgram]:
    """Return programs with batching dimensions in place of the positions that their gathers read.

    Args:
      *programs: traces of one function for different lengths of the batch. A gather is replaced in all of them or in
        none.
    """
    found = [[*_rows_of_gathers(program)] for program in programs]
    agreed = [each[0] if len(set(each)) == 1 else () for each in zip(*found, strict=False)]
    if len({*map(len, found)}) > 1 or not any(agreed):
        return [*programs]
    return [program._replace(operations=_with_rows(program.operations, agreed)) for program in programs]


def _with_rows(operations: Sequence[Operation], rows: Sequence[Rows]) -> list[Operation]:
    makers, found = {v: op for op in operations for v in op.outvars}, list[Operation]()
    for op, each in zip(operations, rows, strict=True):
        found += _batched_gather(op, each, makers) if each else [op]
    return found


def _counted_axis(op: Operation, positions: Mapping[Any, int], makers: Mapping[Any, Operation]) -> int | None:
    """Return the axis along which the result of an operation counts from 0; None if it does not, or may not."""
    name, params = op.eqn.primitive.name, op.eqn.params
    if name not in ("iota", "convert_element_type", "broadcast_in_dim", "select_n"):
        return None
    shape, dtype = op.outvars[0].aval.shape, op.outvars[0].aval.dtype
    if not jnp.issubdtype(dtype, np.integer) or max(shape, default=0) > jnp.iinfo(dtype).max:
        return None  # few bits may count the same number twice
    if name == "iota":
        return int(params["dimension"])
    source = op.invars[name == "select_n"]
    axis = positions.get(source) if isinstance(source, Variable) else None
    if axis is None or name == "convert_element_type":
        return axis
    if name == "broadcast_in_dim":
        place = int(params["broadcast_dimensions"][axis])
        return place if shape[place] == source.aval.shape[axis] else None
    return axis if _is_negative(op.invars[0], source, makers) else None  # jnp's index: where(i < 0, i + length, i)


def _is_negative(condition: Any, value: Variable, makers: Mapping[Any, Operation]) -> bool:
    """Return whether a condition is `value < 0`."""
    maker = makers.get(condition)
    if maker is None or maker.eqn.primitive.name != "lt" or maker.invars[0] is not value:
        return False
    zero = maker.invars[1]
    return bool(jax_compat.is_literal(zero) and np.all(np.equal(jax_compat.literal_value(zero), 0)))


def _rows_of_gathers(program: FlatProgram) -> Iterator[Rows]:
    """Yield the positions that each operation of a program reads, if it is a gather that also reads other indices."""
    makers = {v: op for op in program.operations for v in op.outvars}
    positions = dict[Any, int]()  # the axis along which a variable counts 0, 1, 2, …
    for op in program.operations:
        axis = _counted_axis(op, positions, makers)
        if axis is not None:
            positions[op.outvars[0]] = axis
        yield _rows_of_gather(op, positions, makers) if op.eqn.primitive.name == "gather" else ()


def _rows_of_gather(op: Operation, positions: Mapping[Any, int], makers: Mapping[Any, Operation]) -> Rows:
    """Return the dimensions of a gather's operand that are read by position, with the axes of the indices."""
    numbers, (operand, indices) = op.eqn.params["dimension_numbers"], op.invars
    joined, last = makers.get(indices), len(indices.aval.shape) - 1
    columns = [] if joined is None or joined.eqn.primitive.name != "concatenate" else joined.invars
    if joined is None or joined.eqn.params.get("dimension") != last or len(columns) != len(numbers.start_index_map):
        return ()
    found, used = list[tuple[int, int]](), {last, *numbers.start_indices_batching_dims}
    for dim, column in zip(numbers.start_index_map, columns, strict=True):
        axis = positions.get(column, last) if isinstance(column, Variable) else last
        is_row = axis not in used and dim in numbers.collapsed_slice_dims
        if is_row and indices.aval.shape[axis] == operand.aval.shape[dim]:
            found.append((int(dim), axis))
            used.add(axis)
    return tuple(found) if len(found) < len(columns) else ()


def _batched_gather(op: Operation, rows: Rows, makers: Mapping[Any, Operation]) -> list[Operation]:
    """Return the operations that compute a gather with batching dimensions in place of the positions `rows`."""
    numbers, (operand, indices) = op.eqn.params["dimension_numbers"], op.invars
    batching = dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)) | dict(rows)
    columns = zip(numbers.start_index_map, makers[indices].invars, strict=True)
    kept = [(dim, column) for dim, column in columns if dim not in batching]
    dims, last = sorted(batching), len(indices.aval.shape) - 1
    new = lax.GatherDimensionNumbers(
        offset_dims=numbers.offset_dims,
        collapsed_slice_dims=tuple(dim for dim in numbers.collapsed_slice_dims if dim not in batching),
        start_index_map=tuple(dim for dim, _ in kept),
        operand_batching_dims=tuple(dims),
        start_indices_batching_dims=tuple(batching[dim] for dim in dims),
    )
    options = {key: op.eqn.params[key] for key in ("indices_are_sorted", "unique_indices", "mode", "fill_value")}

    def gather(operand: Any, *columns: Any) -> Any:
        indices = lax.concatenate(columns, last) if len(columns) > 1 else columns[0]
        return lax.gather(operand, indices, new, op.eqn.params["slice_sizes"], **options)

    read = [operand, *(column for _, column in kept)]
    made = flat_program(jax_compat.make_jaxpr(gather)(*(v.aval for v in read)))
    names: dict[Any, Any] = dict(zip((*made.inputs, *made.outputs), (*read, *op.outvars), strict=True))
    return [
        Operation(each.eqn, *([names.get(v, v) for v in variables] for variables in (each.invars, each.outvars)))
        for each in made.operations
    ]
