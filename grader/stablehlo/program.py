"""Read a StableHLO program as a graph of values, without running it.

The judge asks three things of a program: which operations it is made of, which values depend on which, and how many
FLOPs its matrix multiplications cost. All three come from the text alone, so they hold whatever the code that the
text was traced from looked like. Only how many turns an open loop takes is not in the text; it is counted when the
program runs.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from grader.stablehlo.types import TensorType


@dataclass(frozen=True)
class Matmul:
    """A matrix multiplication (or convolution): the value it makes, its FLOPs and how often it runs, loops counted.

    In an open loop, `loop` is that loop's place among the program's, and the other two are for one of its turns.
    """

    value: int
    flops: int
    times: int
    loop: int | None = None


@dataclass(frozen=True)
class Barrier:
    """An `optimization_barrier`: the values that it holds together."""

    values: tuple[int, ...]


@dataclass(frozen=True)
class StableHloProgram:
    """A program's values, numbered; `sources[v]` are the values that value `v` is computed from.

    `output_memory` is where each output lies: `"device"`, or for instance `"pinned_host"` if it is offloaded.
    A value that is only handed on (through a call, a barrier, a reshape, a loop that leaves it alone) keeps its number,
    so an output that is an input has the input's number.

    An open loop is one that runs until its condition says so. When the program runs, it returns behind its outputs how
    many turns each of its `open_loops` has taken, an int32 each.
    """

    text: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    input_types: tuple[TensorType, ...]
    output_types: tuple[TensorType, ...]
    output_memory: tuple[str, ...]
    sources: tuple[tuple[int, ...], ...]
    matmuls: tuple[Matmul, ...]
    barriers: tuple[Barrier, ...]
    open_loops: int = 0

    def counted(self, turns: Sequence[int]) -> "StableHloProgram":
        """The program with its matmuls as they ran, given the turns that each open loop took."""
        matmuls = [
            matmul if matmul.loop is None else dataclasses.replace(repeated(matmul, turns[matmul.loop]), loop=None)
            for matmul in self.matmuls
        ]
        return dataclasses.replace(self, matmuls=tuple(matmuls), open_loops=0)

    def needed_for(self, values: Iterable[int]) -> set[int]:
        """All values that `values` are computed from, themselves included."""
        return _reach(values, self.sources)

    def dependent_on(self, values: Iterable[int]) -> set[int]:
        """All values that are computed from `values`, themselves included."""
        users: list[list[int]] = [[] for _ in self.sources]
        for value, sources in enumerate(self.sources):
            for source in sources:
                users[source].append(value)
        return _reach(values, users)


def repeated(matmul: Matmul, times: int) -> Matmul:
    return dataclasses.replace(matmul, flops=matmul.flops * times, times=matmul.times * times)


def _reach(start, edges) -> set[int]:
    # Loops make the graph cyclic (a carry depends on itself); reaching every value once is the fixpoint.
    seen, todo = set(start), list(start)
    while todo:
        for value in edges[todo.pop()]:
            if value not in seen:
                seen.add(value)
                todo.append(value)
    return seen
