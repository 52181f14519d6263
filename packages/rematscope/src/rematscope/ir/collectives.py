"""Operations in which devices exchange data, and how many bytes each device sends over its links for them.

The counts assume that n devices form a ring in which each device sends to the next one. An all-gather, which passes
shards around the ring, and a reduce-scatter, which passes partial sums around the ring, take n − 1 steps, each of which
sends 1/n of the whole array. An all-reduce is a reduce-scatter followed by an all-gather. No algorithm sends fewer
bytes: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations" (Journal of Parallel
and Distributed Computing 69, 2009). In an all-to-all, each device keeps 1/n of its operand and sends the rest directly
to the other devices: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH"
(International Journal of High Performance Computing Applications 19, 2005). Bytes that a device forwards for other
devices of the ring are not counted.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rematscope.ir.implicit_collectives import implicit_collectives
from rematscope.ir.program import BOOKKEEPING, Equation, Program, Value, total_bytes

# JAX's primitive → XLA's name.
KINDS = {
    "all_gather": "all-gather",
    "all_gather_invariant": "all-gather",
    "all_gather_reduced": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "unreduced_reduce_scatter": "reduce-scatter",
    "psum": "all-reduce",
    "psum_invariant": "all-reduce",
    "unreduced_psum": "all-reduce",
    "pmax": "all-reduce",
    "pmin": "all-reduce",
    "unreduced_pmax": "all-reduce",
    "unreduced_pmin": "all-reduce",
    "all_to_all": "all-to-all",
    "ragged_all_to_all": "ragged-all-to-all",
    "ppermute": "collective-permute",
    "pbroadcast": "collective-broadcast",
}


def collective_kind(primitive: str) -> str | None:
    """Return XLA's name of a collective, such as `all-gather`; None for any other operation."""
    return KINDS.get(primitive.removesuffix("_start"))


def devices_per_group(primitive: str, params: Mapping[str, Any], axes: Mapping[str, int]) -> int:
    """Return how many devices exchange data with each other in one operation; 1 if it is not a collective.

    Args:
      axes: the axes of the mesh with their sizes.
    """
    if collective_kind(primitive) is None:
        return 1
    if groups := params.get("axis_index_groups"):
        return len(groups[0])
    return math.prod(axes.get(axis, 1) for axis in _communicated_axes(params))


def _communicated_axes(params: Mapping[str, Any]) -> tuple[Any, ...]:
    over = params.get("axes", params.get("axis_name", ()))
    return tuple(over) if isinstance(over, (tuple, list)) else (over,)


def link_bytes(compiled: str, operand: int, result: int, devices: int) -> int:
    """Return the bytes that a device sends over its links for one collective.

    Args:
      compiled: XLA's name of the collective, one of the values of `KINDS`.
      operand, result: the bytes of a device's operands and results.
      devices: the number of devices that exchange data with each other.
    """
    match compiled:
        case "all-gather":
            return result * (devices - 1) // devices
        case "all-reduce":
            return 2 * operand * (devices - 1) // devices
        case "reduce-scatter" | "all-to-all" | "ragged-all-to-all":
            return operand * (devices - 1) // devices
    return operand  # each sends its own to one other


def exchanges(equation: Equation) -> Iterator[tuple[str, int, int]]:
    """Yield the collectives of one run of an equation: kind, number of runs, and the total link bytes of these runs.

    An equation is a collective itself, or implies collectives by the shardings of its operands and results.
    """
    compiled = collective_kind(equation.primitive)
    if compiled in ("all-reduce", "collective-permute", "collective-broadcast"):
        count = len(equation.inputs) if compiled == "all-reduce" else 1  # each array has its own all-reduce
        size = link_bytes(compiled, total_bytes(equation.inputs), total_bytes(equation.outputs), equation.devices)
        yield compiled, count, size
    elif compiled is not None:
        # XLA does not divide these along the automatic axes of a mesh: it gathers the operands along them first.
        over = set(_communicated_axes(equation.params))
        for value in equation.inputs:
            if value.placement.is_explicit and (ways := _block_bytes(value, over) // max(1, value.device_bytes)) > 1:
                yield "all-gather", 1, link_bytes("all-gather", value.device_bytes, ways * value.device_bytes, ways)
        operand, result = (sum(_block_bytes(v, over) for v in values) for values in (equation.inputs, equation.outputs))
        yield compiled, 1, link_bytes(compiled, operand, result, equation.devices)
    for compiled, operand, result, together in implicit_collectives(equation):
        yield compiled, 1, link_bytes(compiled, operand, result, together)


def sent_bytes(equation: Equation) -> int:
    """Return the bytes that a device sends over its links for one run of an equation."""
    return sum(size for _, _, size in exchanges(equation))


@dataclasses.dataclass(frozen=True)
class CollectiveStats:
    """The number of collectives of one kind, and the bytes that they send.

    Attributes:
      count: the number of runs; a collective in a loop counts once per iteration.
      link_bytes: the bytes that each device sends over its links, summed over all runs.
    """

    count: int = 0
    link_bytes: int = 0


def tally_by_kind(found: Iterable[tuple[str, int, int]]) -> dict[str, CollectiveStats]:
    """Sum collectives by kind, given tuples of a kind, a number of runs and the link bytes of these runs."""
    counts, sizes = Counter[str](), Counter[str]()
    for name, count, size in found:
        counts[name] += count
        sizes[name] += size
    return {name: CollectiveStats(counts[name], sizes[name]) for name in sorted(counts)}


def collectives_of(program: Program, role: str | None = None, times: int = 1) -> Iterator[tuple[str, int, int]]:
    """Yield the kind of each collective of a program, the number of times it runs, and the link bytes of all its runs.

    A collective in a loop counts once per iteration. Of several branches, the branch that sends most bytes over links
    counts.
    """
    for equation in program.equations:
        if equation.primitive == "cond":
            yield from most_sent(collectives_of(body, role, times) for body in equation.bodies)
        elif equation.bodies:
            for body in equation.bodies:
                yield from collectives_of(body, role, times * equation.length)
        elif equation.primitive not in BOOKKEEPING and role in (None, equation.role):
            for name, count, size in exchanges(equation):
                yield name, times * count, times * size


def most_sent(branches: Iterable[Iterable[tuple[str, int, int]]]) -> list[tuple[str, int, int]]:
    """Return the collectives of the branch that sends most bytes over links."""
    return max(map(list, branches), key=lambda found: sum(size for _, _, size in found))


def _block_bytes(value: Value, over: set[str]) -> int:
    """Return the bytes of an operand or result in a `shard_map`, whole along the automatic axes.

    A collective that moved out of its `shard_map` has the whole array as its operand; one of its axes shards it.
    """
    is_outside = over.intersection(axis for axes in value.placement.axes or () for axis in axes)
    return value.device_bytes if is_outside else value.nbytes
