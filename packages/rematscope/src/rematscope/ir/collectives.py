"""Operations in which devices exchange data, and how many bytes each device sends over its links for them.

Devices are counted as standing in a ring, each sending to the next. Over n of them an all-gather, in which the shards
go round, and a reduce-scatter, in which their sums do, take n − 1 steps of an n-th of the whole array each; an
all-reduce is one after the other. No way of doing it sends less: Patarasuk and Yuan, "Bandwidth optimal all-reduce
algorithms for clusters of workstations" (Journal of Parallel and Distributed Computing 69, 2009). An all-to-all
exchanges each device's own n-th with no one and the rest in pairs: Thakur, Rabenseifner and Gropp, "Optimization of
collective communication operations in MPICH" (International Journal of High Performance Computing Applications 19,
2005). What stands on the way of a pair in the ring is not counted.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rematscope.ir.implicit_collectives import implicit_collectives
from rematscope.ir.program import BOOKKEEPING, Equation, Program, Value

# JAX's primitive → what the compiler calls it. The first names are those that people write.
KINDS = {
    "all_gather": "all-gather",
    "all_gather_invariant": "all-gather",
    "all_gather_reduced": "all-gather",
    "psum_scatter": "reduce-scatter",
    "reduce_scatter": "reduce-scatter",
    "unreduced_reduce_scatter": "reduce-scatter",
    "psum": "all-reduce",
    "psum2": "all-reduce",
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


def kind(primitive: str) -> str | None:
    """What the compiler calls a collective, `all-gather`; None for any other operation."""
    return KINDS.get(primitive.removesuffix("_start"))


def devices(primitive: str, params: Mapping[str, Any], axes: Mapping[str, int]) -> int:
    """How many devices exchange data with each other in one operation; 1 in what is no collective.

    Args:
      primitive, params: JAX's name of the operation, and its parameters.
      axes: the axes of the mesh, and how long each is.
    """
    if kind(primitive) is None:
        return 1
    if groups := params.get("axis_index_groups"):
        return len(groups[0])
    over = params.get("axes", params.get("axis_name", ()))
    return math.prod(axes.get(axis, 1) for axis in (over if isinstance(over, (tuple, list)) else (over,)))


def link_bytes(compiled: str, operand: int, result: int, devices: int) -> int:
    """Bytes that a device sends over its links for one collective.

    Args:
      compiled: what the compiler calls it, one of `KINDS`' values.
      operand, result: bytes that a device gives and gets.
      devices: how many exchange data with each other.
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
    """For one run of an equation, what it exchanges: the kind, how many times, and bytes over links of all these.

    That is the collective that it is, or those that the types of what it reads and returns ask for.
    """
    if (compiled := kind(equation.primitive)) is not None:
        count = len(equation.inputs) if compiled == "all-reduce" else 1  # several arrays are reduced one by one
        size = link_bytes(compiled, _device_bytes(equation.inputs), _device_bytes(equation.outputs), equation.devices)
        yield compiled, count, size
    for compiled, operand, result, together in implicit_collectives(equation):
        yield compiled, 1, link_bytes(compiled, operand, result, together)


def sent(equation: Equation) -> int:
    """Bytes that a device sends over its links for one run of an equation."""
    return sum(size for _, _, size in exchanges(equation))


@dataclasses.dataclass(frozen=True)
class CollectiveStats:
    """The collectives of one kind.

    Attributes:
      count: how many run, with loops multiplied by their trip counts.
      link_bytes: the bytes that each device sends over its links, summed over all runs.
    """

    count: int = 0
    link_bytes: int = 0


def tallied(found: Iterable[tuple[str, int, int]]) -> dict[str, CollectiveStats]:
    """Adds up collectives by their kinds, of which (kind, how many, bytes over links of all these) are given."""
    counts, sizes = Counter[str](), Counter[str]()
    for name, count, size in found:
        counts[name] += count
        sizes[name] += size
    return {name: CollectiveStats(counts[name], sizes[name]) for name in sorted(counts)}


def collectives_of(program: Program, role: str | None = None, times: int = 1) -> Iterator[tuple[str, int, int]]:
    """Yield for each collective of a program its kind, how often it runs, and the link bytes of all these runs.

    Loops are multiplied by their trip counts; of branches the one that sends most over links counts.

    Args:
      program: the program.
      role: only collectives of this role, as of `rematscope.ir.roles`.
      times: how often the program runs.
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


def _device_bytes(values: Sequence[Value]) -> int:
    return sum(value.device_bytes for value in values)
