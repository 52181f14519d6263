"""Batch axes that consist of several blocks, such as that of `jnp.concatenate([chosen, rejected])`.

An axis of n blocks has n times the batch, one after the other. A part of the batch has the same n blocks, each of them
shorter, so that its axis is not a contiguous slice of the whole axis. An operation that treats the positions of the
batch axis independently keeps the blocks. The functions in this module decide how the other operations change them.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from rematscope import jax_compat
from rematscope.reporting.batch_axis import MADE, Pair, axes_of, batch_axis, custom_tangents, same_params

# The number of blocks of an axis whose positions all have equal values: any number is right.
ANY = 0


def blocks_of_results(op: Pair, blocks: Sequence[int | None]) -> list[int] | None:
    """Return the number of blocks of each result of an operation that joins, divides or regroups blocks.

    Args:
      op: the operation.
      blocks: the number of blocks of each operand along its batch axis; None for an operand without one.

    Returns:
      The numbers; None if the operation is another one, or mixes positions of different blocks.
    """
    rule = _RULES.get(op.eqn.primitive.name)
    if rule is None:
        return None
    if None in op.after or [axis is None for axis in op.before] != [each is None for each in blocks]:
        return None
    return rule(op, blocks)


def is_divisible(op: Pair, blocks: int) -> bool:
    """Return whether each block of each batch axis of an operation can be divided into parts, in its bodies too.

    Then an operation that commutes with slicing also computes a part of each block from the parts of the blocks.

    Args:
      op: the operation.
      blocks: the number of blocks.
    """
    one, other = ([*_variables_in(eqn)] for eqn in op.eqns)
    return len(one) == len(other) and all(
        axis is None or v.aval.shape[axis] % (blocks * op.count) == 0
        for v, axis in zip(one, axes_of(one, other, op.count), strict=True)
    )


def _variables_in(eqn: Any) -> Iterator[Any]:
    """Yield the variables of an equation, of its bodies and of their custom derivatives."""
    for each in (eqn, *jax_compat.equations_in(eqn)):
        yield from (*each.invars, *each.outvars)
        if each.primitive.name == "custom_jvp_call":
            for inner, _ in jax_compat.walk_equations(custom_tangents(each)):
                yield from (*inner.invars, *inner.outvars)


def makes_positions(op: Pair) -> bool:
    """Return whether an operation, or one in its bodies, makes positions, random bits or keys of a batch."""
    one, other = ([eqn, *jax_compat.equations_in(eqn)] for eqn in op.eqns)
    return len(one) != len(other) or any(
        each.primitive.name in MADE
        and (axis := batch_axis(each.outvars[0].aval, part.outvars[0].aval, op.count)) is not None
        and each.params.get("dimension", axis) == axis
        for each, part in zip(one, other, strict=True)
    )


def _blocks_of_concatenation(op: Pair, blocks: Sequence[int | None]) -> list[int] | None:
    whole, part = op.eqns
    along = {whole.params["dimension"]}
    if None in blocks or {*op.before, *op.after} != along or not same_params(whole.params, part.params):
        return None
    lengths = [v.aval.shape[axis] for v, axis in zip(op.invars, op.before, strict=True) if axis is not None]
    sizes = {length // n for length, n in zip(lengths, blocks, strict=True) if n} or {*lengths}
    if len(sizes) != 1:
        return None
    (size,) = sizes
    return [sum(lengths) // size] if all(length % size == 0 for length in lengths) else None


def _blocks_of_slice(op: Pair, blocks: Sequence[int | None]) -> list[int] | None:
    axis, n = op.before[0], blocks[0]
    names = "start_indices", "limit_indices", "strides"
    (start, _, stride), (start_of_part, _, stride_of_part) = (
        [each.params[name] or [1] * len(each.params["start_indices"]) for name in names] for each in op.eqns
    )
    if n is None or axis is None or axis != op.after[0] or tuple(stride) != tuple(stride_of_part):
        return None
    if any(start[i] != start_of_part[i] for i in range(len(start)) if i != axis):
        return None
    length, found = op.invars[0].aval.shape[axis], op.outvars[0].aval.shape[axis]
    if stride[axis] > 1:  # such as the even positions, if pairs are interleaved
        is_regular = start[axis] == start_of_part[axis] < stride[axis] and found * stride[axis] == length
        return [n] if is_regular else None
    size = length // n if n else 1
    if start[axis] != op.count * start_of_part[axis] or start[axis] % size or found % size:
        return None
    return [found // size if n else ANY]


def _blocks_of_split(op: Pair, blocks: Sequence[int | None]) -> list[int] | None:
    axis, n, (whole, part) = op.before[0], blocks[0], [eqn.params for eqn in op.eqns]
    if n is None or axis is None or {axis, *op.after} != {whole["axis"]} or whole["axis"] != part["axis"]:
        return None
    sizes, size = whole["sizes"], op.invars[0].aval.shape[axis] // n if n else 1
    if any(one != op.count * other or one % size for one, other in zip(sizes, part["sizes"], strict=True)):
        return None
    return [one // size if n else ANY for one in sizes]


def _blocks_of_reshape(op: Pair, blocks: Sequence[int | None]) -> list[int] | None:
    """Count the blocks of an array in the order of its elements: a reshape keeps this order, and this number."""
    n, shape, new = blocks[0], op.invars[0].aval.shape, op.outvars[0].aval.shape
    (before, *_), (after,) = op.before, op.after
    if n is None or before is None or after is None or op.eqn.params.get("dimensions") is not None:
        return None
    outer, remaining = math.prod(shape[:before]), math.prod(new[:after])
    if n == ANY and outer == remaining and shape[before] == new[after]:
        return [ANY]
    found, rest = divmod(outer * (n or 1), remaining)
    return None if rest else [found]


def _blocks_of_tile(op: Pair, blocks: Sequence[int | None]) -> list[int] | None:
    reps, reps_of_part = (tuple(eqn.params["reps"]) for eqn in op.eqns)
    if blocks[0] is None or op.before[0] != op.after[0] or reps != reps_of_part:
        return None
    return [blocks[0] * reps[op.after[0] or 0]]


_RULES = {
    "concatenate": _blocks_of_concatenation,
    "slice": _blocks_of_slice,
    "split": _blocks_of_split,
    "reshape": _blocks_of_reshape,
    "tile": _blocks_of_tile,
}
