"""A StableHLO program as a graph of values.

The judge needs three facts about a program: its operations, the dependencies between its values, and the FLOPs of its
matmuls. All three come from the text alone (`reader`), so they do not depend on how the traced code is written. Only
the trip count of a dynamic loop is not in the text; it is counted when the program runs (`trip_counter`).
"""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from grader.stablehlo.types import TensorType


@dataclass(frozen=True)
class Matmul:
    """A matmul, a convolution, or an equivalent operation (`grader.stablehlo.contraction`).

    Attributes:
      value: the number of the value that it makes.
      flops: the total FLOPs of all its runs.
      trip_count: the number of its runs: the product of the trip counts of the loops that it is in.
      loop: None, or the index of the dynamic loop that contains it; `flops` and `trip_count` are then for one iteration
        of that loop.
      spelled_out: whether it is not a matmul operation, but a multiplication whose results are summed, or the sum.
    """

    value: int
    flops: int
    trip_count: int
    loop: int | None = None
    spelled_out: bool = False


@dataclass(frozen=True)
class Collective:
    """An operation in which devices exchange data.

    Attributes:
      value: the number of the value that it makes.
      kind: XLA's name of the collective, such as `"all-gather"`.
      operand_bytes, result_bytes: the bytes of one device's operand and result in one run.
      devices: the number of devices that exchange data with each other.
      trip_count: the number of its runs: the product of the trip counts of the loops that it is in.
    """

    value: int
    kind: str
    operand_bytes: int
    result_bytes: int
    devices: int
    trip_count: int = 1


@dataclass(frozen=True)
class Gather:
    """A sharding constraint that gives every device a whole array.

    Attributes:
      value: the number of the whole array.
      nbytes: its size in bytes.
      trip_count: the number of its runs: the product of the trip counts of the loops that it is in.
    """

    value: int
    nbytes: int
    trip_count: int = 1


@dataclass(frozen=True)
class StableHloProgram:
    """A program with numbered values.

    The text is in static single assignment form (Cytron et al., "Efficiently computing static single assignment form",
    1991): each of its names is bound once. A value number identifies an array. A value that is only passed through a
    call, a barrier, a reshape, or a loop that does not change it, keeps its number, so an output that is an input has
    the input's number. An array that a sharding constraint gathers gets a new number. Unlike in the value numbering of
    Alpern, Wegman and Zadeck (1988), two operations that compute the same value have two numbers, because the judge
    looks for recomputed values.

    A dynamic loop has no constant trip count. When the program runs, it returns the trip count of each dynamic loop as
    an int32 scalar, after its outputs.

    Attributes:
      text: the StableHLO text of the program.
      inputs, outputs: the value numbers of the arguments and results of `main`.
      input_types, output_types: their shapes and dtypes.
      output_memory: the memory of each output: `"device"`, or for example `"pinned_host"` if it is offloaded.
      sources: maps a value number to the numbers of the values that it is computed from. A loop's carry depends on its
        next value, so the graph may have cycles.
      places: maps a value number to the place of the operation that computes it, as if all calls were inlined. Values
        that are only passed through have no place.
      matmuls: the matmuls in program order, as if all calls were inlined.
      collectives: the collectives, likewise.
      gathers: the sharding constraints that give every device a whole array, likewise.
      whole: the numbers of these arrays, and of those that consist of their parts, until another constraint.
      barriers: for each `optimization_barrier`, in the same order, the numbers of its operands.
      dynamic_loops: the number of dynamic loops.
    """

    text: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    input_types: tuple[TensorType, ...]
    output_types: tuple[TensorType, ...]
    output_memory: tuple[str, ...]
    sources: tuple[tuple[int, ...], ...]
    places: tuple[tuple[int, int], ...]
    matmuls: tuple[Matmul, ...]
    barriers: tuple[tuple[int, ...], ...]
    dynamic_loops: int = 0
    collectives: tuple[Collective, ...] = ()
    gathers: tuple[Gather, ...] = ()
    whole: tuple[int, ...] = ()

    def counted(self, trip_counts: Sequence[int]) -> "StableHloProgram":
        """Return the program with its matmuls counted as they ran.

        Args:
          trip_counts: the total trip count of each dynamic loop, over all entries of the loop.
        """
        matmuls = [
            matmul
            if matmul.loop is None
            else dataclasses.replace(repeated(matmul, trip_counts[matmul.loop]), loop=None)
            for matmul in self.matmuls
        ]
        return dataclasses.replace(self, matmuls=tuple(matmuls), dynamic_loops=0)

    def needed_for(self, values: Iterable[int]) -> set[int]:
        """Return all values that `values` are computed from, including `values`."""
        return reach(values, self.sources)

    def dependent_on(self, values: Iterable[int]) -> set[int]:
        """Return all values that are computed from `values`, including `values`."""
        users: list[list[int]] = [[] for _ in self.sources]
        for value, sources in enumerate(self.sources):
            for source in sources:
                users[source].append(value)
        return reach(values, users)


def repeated(matmul: Matmul, trip_count: int) -> Matmul:
    """Return a matmul of one iteration, repeated for all iterations of a loop."""
    return dataclasses.replace(matmul, flops=matmul.flops * trip_count, trip_count=matmul.trip_count * trip_count)


def reach(start: Iterable[int], edges: Sequence[Sequence[int]]) -> set[int]:
    """Return the values that are reachable from some values along edges, including these values."""
    # Loops make the graph cyclic, because a carry depends on itself. So each value is visited only once.
    seen = set(start)
    todo = list(seen)
    while todo:
        for value in edges[todo.pop()]:
            if value not in seen:
                seen.add(value)
                todo.append(value)
    return seen
