"""Batch axes that consist of several blocks, such as that of `jnp.concatenate([chosen, rejected])`.

An axis of n blocks has n times the batch, one after the other. A part of the batch has the same n blocks, each of them
shorter, so that its axis is not a contiguous slice of the whole axis. An operation that treats the positions of the
batch axis independently keeps the blocks. The functions in this module decide how the other operations change them.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from rematscope import jax_compat
from rematscope.reporting.batch_axis import MADE, axes_of, batch_axis, custom_tangents, same_params
from rematscope.reporting.flat_program import Operation

# The number of blocks of an axis whose positions all have equal values: any number is right.
ANY = 0


def blocks_of_results(op: Operation, smaller: Operation, blocks: Sequence[int | None], count: int) -> list[int] | None:
    """Return the number of blocks of each result of an operation that joins, divides or regroups blocks.

    Args:
      op, smaller: the operation for the whole batch and for a part.
      blocks: the number of blocks of each operand along its batch axis; None for an operand without one.
      count: the number of parts.

    Returns:
      The numbers; None if the operation is another one, or mixes positions of different blocks.
    """
    rule = _RULES.get(op.eqn.primitive.name)
    if rule is None:
        return None
    before, after = axes_of(op.invars, smaller.invars, count), axes_of(op.outvars, smaller.outvars, count)
    if None in after or [axis is None for axis in before] != [each is None for each in blocks]:
        return None
    return rule(op.eqn, smaller.eqn, [axis or 0 for axis in before], [axis or 0 for axis in after], blocks, count)


def is_divisible(op: Operation, smaller: Operation, blocks: int, count: int) -> bool:
    """Return whether each block of each batch axis of an operation can be divided into parts, in its bodies too.

    Then an operation that commutes with slicing also computes a part of each block from the parts of the blocks.

    Args:
      op, smaller: the operation for the whole batch and for a part.
      blocks: the number of blocks.
      count: the number of parts.
    """
    one, other = [*_variables(op.eqn)], [*_variables(smaller.eqn)]
    return len(one) == len(other) and all(
        axis is None or v.aval.shape[axis] % (blocks * count) == 0
        for v, axis in zip(one, axes_of(one, other, count), strict=True)
    )


def _variables(eqn: Any) -> Iterator[Any]:
    """Yield the variables of an equation, of its bodies and of their custom derivatives."""
    for each in (eqn, *jax_compat.equations_in(eqn)):
        yield from (*each.invars, *each.outvars)
        if each.primitive.name == "custom_jvp_call":
            for inner, _ in jax_compat.walk_equations(custom_tangents(each)):
                yield from (*inner.invars, *inner.outvars)


def makes_positions(op: Operation, smaller: Operation, count: int) -> bool:
    """Return whether an operation, or one in its bodies, makes positions, random bits or keys of a batch."""
    one, other = ([each.eqn, *jax_compat.equations_in(each.eqn)] for each in (op, smaller))
    return len(one) != len(other) or any(
        each.primitive.name in MADE
        and (axis := batch_axis(each.outvars[0].aval, part.outvars[0].aval, count)) is not None
        and each.params.get("dimension", axis) == axis
        for each, part in zip(one, other, strict=True)
    )


def _lengths(eqn: Any, axes: Sequence[int]) -> list[int]:
    return [v.aval.shape[axis] for v, axis in zip(eqn.invars, axes, strict=True)]


def _concatenation(
    whole: Any, part: Any, before: Sequence[int], after: Sequence[int], blocks: Sequence[int | None], count: int
) -> list[int] | None:
    if None in blocks or {*before, *after} != {whole.params["dimension"]} or not same_params(whole.params, part.params):
        return None
    lengths = _lengths(whole, before)
    sizes = {length // n for length, n in zip(lengths, blocks, strict=True) if n} or {*lengths}
    if len(sizes) != 1:
        return None
    (size,) = sizes
    return [sum(lengths) // size] if all(length % size == 0 for length in lengths) else None


def _slice(
    whole: Any, part: Any, before: Sequence[int], after: Sequence[int], blocks: Sequence[int | None], count: int
) -> list[int] | None:
    axis, n = before[0], blocks[0]
    names = "start_indices", "limit_indices", "strides"
    (start, _, stride), (start_of_part, _, stride_of_part) = (
        [each.params[name] or [1] * len(each.params["start_indices"]) for name in names] for each in (whole, part)
    )
    others = [i for i in range(len(start)) if i != axis]
    if n is None or axis != after[0] or tuple(stride) != tuple(stride_of_part):
        return None
    if any(start[i] != start_of_part[i] for i in others):
        return None
    length, found = whole.invars[0].aval.shape[axis], whole.outvars[0].aval.shape[axis]
    if stride[axis] > 1:  # such as the even positions, if pairs are interleaved
        is_regular = start[axis] == start_of_part[axis] < stride[axis] and found * stride[axis] == length
        return [n] if is_regular else None
    size = length // n if n else 1
    if start[axis] != count * start_of_part[axis] or start[axis] % size or found % size:
        return None
    return [found // size if n else ANY]


def _split(
    whole: Any, part: Any, before: Sequence[int], after: Sequence[int], blocks: Sequence[int | None], count: int
) -> list[int] | None:
    axis, n, sizes = before[0], blocks[0], whole.params["sizes"]
    if n is None or {axis, *after} != {whole.params["axis"]} or whole.params["axis"] != part.params["axis"]:
        return None
    size = whole.invars[0].aval.shape[axis] // n if n else 1
    if any(one != count * other or one % size for one, other in zip(sizes, part.params["sizes"], strict=True)):
        return None
    return [one // size if n else ANY for one in sizes]


def _reshape(
    whole: Any, part: Any, before: Sequence[int], after: Sequence[int], blocks: Sequence[int | None], count: int
) -> list[int] | None:
    """Count the blocks of an array in the order of its elements: a reshape keeps this order, and this number."""
    n, shape, new = blocks[0], whole.invars[0].aval.shape, whole.outvars[0].aval.shape
    if n is None or whole.params.get("dimensions") is not None:
        return None
    outer, remaining = math.prod(shape[: before[0]]), math.prod(new[: after[0]])
    if n == ANY and outer == remaining and shape[before[0]] == new[after[0]]:
        return [ANY]
    found, rest = divmod(outer * (n or 1), remaining)
    return None if rest else [found]


def _tile(
    whole: Any, part: Any, before: Sequence[int], after: Sequence[int], blocks: Sequence[int | None], count: int
) -> list[int] | None:
    reps = whole.params["reps"]
    if blocks[0] is None or before[0] != after[0] or tuple(reps) != tuple(part.params["reps"]):
        return None
    return [blocks[0] * reps[after[0]]]


_RULES = {"concatenate": _concatenation, "slice": _slice, "split": _split, "reshape": _reshape, "tile": _tile}
