"""A StableHLO program as a graph of values.

The judge asks three things of a program: which operations it is made of, which values depend on which, and how many
FLOPs its matrix multiplications cost. All three come from the text alone (`reader`), so they hold whatever the code
that the text was traced from looked like. Only the trip count of a dynamic loop is not in the text; it is counted when
the program runs (`trip_counter`).
"""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from grader.stablehlo.types import TensorType


@dataclass(frozen=True)
class Matmul:
    """A matrix multiplication, or a convolution, or what does the same (`grader.stablehlo.contraction`).

    Attributes:
      value: the number of the value that it makes.
      flops: FLOPs of all its runs together.
      trip_count: how often it runs: the product of the trip counts of the loops that it is in.
      loop: None, or the place of a dynamic loop among the program's; then `flops` and `trip_count` are for one trip of
        that loop.
      spelled_out: whether it is no operation of its own, but a multiplication of what is summed, or the sum.
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
      kind: what XLA calls it, such as `"all-gather"`.
      operand_bytes, result_bytes: bytes that one device gives and gets in one run.
      devices: how many devices exchange data with each other.
      trip_count: how often it runs: the product of the trip counts of the loops that it is in.
    """

    value: int
    kind: str
    operand_bytes: int
    result_bytes: int
    devices: int
    trip_count: int = 1


@dataclass(frozen=True)
class StableHloProgram:
    """A program's values, numbered.

    The text is in static single assignment form (Cytron et al., "Efficiently computing static single assignment form",
    1991): each of its names is bound once. A value number stands for the array itself. A name to which a value is only
    handed on (through a call, a barrier, a reshape, a loop that leaves it alone) gets that value's number, so that an
    output which is an input has the input's. Unlike in Alpern, Wegman and Zadeck's value numbering (1988), two
    operations that compute the same have two numbers: what is computed again is what the judge looks for.

    A dynamic loop is one whose trip count is no constant. When the program runs, it returns behind its outputs the trip
    count of each of its dynamic loops, an int32 scalar each.

    Attributes:
      text: the program itself, StableHLO.
      inputs, outputs: value numbers of what `main` takes and returns.
      input_types, output_types: their shapes and dtypes.
      output_memory: where each output lies: `"device"`, or for instance `"pinned_host"` if it is offloaded.
      sources: value number → the numbers of the values that it is computed from. A loop's carry has its next value
        among them, so the graph may have circles.
      places: value number → the place of the operation that makes it, as if each call stood inline. Operations that
        run in two calls of one function have two; what is only handed on has none.
      matmuls: in the order of the text, each call of a function standing for what is in the function.
      collectives: likewise, those that exchange data between devices.
      barriers: for each `optimization_barrier`, in the same order, the numbers of the values that it holds together.
      dynamic_loops: how many there are.
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

    def counted(self, trip_counts: Sequence[int]) -> "StableHloProgram":
        """Return the program with its matmuls as they ran.

        Args:
          trip_counts: that of each dynamic loop, all entries of the loop together.
        """
        matmuls = [
            matmul
            if matmul.loop is None
            else dataclasses.replace(repeated(matmul, trip_counts[matmul.loop]), loop=None)
            for matmul in self.matmuls
        ]
        return dataclasses.replace(self, matmuls=tuple(matmuls), dynamic_loops=0)

    def needed_for(self, values: Iterable[int]) -> set[int]:
        """Return all values that `values` are computed from, themselves included."""
        return reach(values, self.sources)

    def dependent_on(self, values: Iterable[int]) -> set[int]:
        """Return all values that are computed from `values`, themselves included."""
        users: list[list[int]] = [[] for _ in self.sources]
        for value, sources in enumerate(self.sources):
            for source in sources:
                users[source].append(value)
        return reach(values, users)


def repeated(matmul: Matmul, trip_count: int) -> Matmul:
    """Return a matmul in a loop of that trip count, which is one for a single trip."""
    return dataclasses.replace(matmul, flops=matmul.flops * trip_count, trip_count=matmul.trip_count * trip_count)


def reach(start: Iterable[int], edges: Sequence[Sequence[int]]) -> set[int]:
    """Return the values reachable from some values along edges, themselves included."""
    # Loops make the graph cyclic (a carry depends on itself); reaching every value once is the fixpoint.
    seen = set(start)
    todo = list(seen)
    while todo:
        for value in edges[todo.pop()]:
            if value not in seen:
                seen.add(value)
                todo.append(value)
    return seen
