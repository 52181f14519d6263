"""The order in which XLA for a CPU runs operations.

The order is breadth first (`BFScheduler`), because independent operations may run at the same time. So a copy of a
forward value is made in the forward pass even if only a matmul of the backward pass reads the copy, and arrays of zeros
are live from the start. A loop takes a tuple and returns a tuple. The operation that makes the tuple, and those that
extract its elements, also have a place in the order.
"""

import collections
from collections.abc import Callable, Collection, Iterable, Sequence

from rematscope.ir import roles
from rematscope.ir.program import Equation, Value
from rematscope.memory.xla_estimate.hlo_rewrites import MIXED
from rematscope.memory.xla_estimate.level import is_alias

Reads = Callable[[Equation], Iterable[Iterable[Value]]]  # the values that an equation reads from memory, per operand


def thunk_order(
    equations: Sequence[Equation], fused_away: Collection[Value], reads: Reads, in_backward_body: bool
) -> list[Equation]:
    """Return the equations that write a result, each after its operands, in the order in which they become ready.

    Args:
      fused_away: values that are computed inside their readers; the order leaves out their equations.
      reads: a function that returns the values that an equation reads from memory.
      in_backward_body: whether a loop or a `cond` of the backward pass contains the equations. There, recomputed
        operations without a barrier run as soon as their operands are ready. Elsewhere, XLA merges such operations with
        the forward pass, but the order places them in the backward pass, as the trace does.
    """
    graph = _ThunkGraph(equations, in_backward_body)
    for place, equation in enumerate(equations):
        if not equation.outputs or any(v not in fused_away for v in equation.outputs):
            graph.add(place, equation, [v for values in reads(equation) for v in values])
    ranks = graph.breadth_first_ranks()

    def position(place: int) -> tuple[int, int]:
        """Return the rank of an operation; an alias follows the operations that compute its value."""
        if place in ranks:
            return ranks[place], -1
        sources = frozenset[int]().union(*(graph.writers[v] for v in equations[place].outputs))
        return max((ranks[source] for source in sources), default=-1), place

    return [equations[place] for place in sorted(graph.places, key=position)]


class _ThunkGraph:
    """The dependences of operations, which are identified by their index among the equations.

    Attributes:
      places: the indices of the added equations.
      writers: for each value, the indices of the operations that write the value; for an alias, those of its original.
    """

    def __init__(self, equations: Sequence[Equation], in_backward_body: bool):
        self._in_backward_body = in_backward_body
        self.places: list[int] = []
        self.writers: dict[Value, frozenset[int]] = {}
        self._count = len(equations)
        self._transposed = {e.inputs[0] for e in equations if e.primitive == "transpose"}
        self._given: list[int] = []  # the indices of values from outside this level, which are ready first
        self._sources: dict[int, frozenset[int]] = {}
        self._readers: dict[int, list[int]] = {}
        self._last_readers: dict[int, list[int]] = {}
        self._held: set[int] = set()  # barriers and recomputed operations
        self._last = -1  # the last operation that is not recomputed

    def add(self, place: int, equation: Equation, found: Sequence[Value]) -> None:
        """Add the equation at index `place`, which reads the values `found` from memory."""
        self.places.append(place)
        for value in found:
            if value not in self.writers:
                self._given.append(-1 - len(self._given))
                self.writers[value] = frozenset(self._given[-1:])
        read = frozenset[int]().union(*(self.writers[v] for v in found))
        if is_alias(equation):
            self.writers.update(dict.fromkeys(equation.outputs, read))
            return
        if equation.role != roles.RECOMPUTED:
            self._last = place
        elif not self._in_backward_body and self._last >= 0 and self._held.isdisjoint(read):
            read |= {self._last}  # recomputed without a barrier before it
        if equation.primitive == "optimization_barrier" or equation.role == roles.RECOMPUTED:
            self._held.add(place)
        written = frozenset({place})
        if equation.bodies or equation.primitive == MIXED:
            self._connect_operation(place, frozenset({self._add_tuple(read)}))
            written = frozenset({self._add_tuple(written)})
        else:
            # XLA replaces a matmul whose result is transposed with another matmul, which it appends to the program.
            is_last = equation.primitive == "dot_general" and equation.outputs[0] in self._transposed
            self._connect_operation(place, read, is_last)
        self.writers.update(dict.fromkeys(equation.outputs, written))

    def _connect_operation(self, place: int, read: frozenset[int], is_last: bool = False) -> None:
        self._sources[place] = read
        for source in read:
            (self._last_readers if is_last else self._readers).setdefault(source, []).append(place)

    def _add_tuple(self, read: frozenset[int]) -> int:
        """Add the operation that makes a loop's tuple, or one that extracts an element of its result."""
        place = self._count + len(self._sources)
        self._connect_operation(place, read)
        return place

    def breadth_first_ranks(self) -> dict[int, int]:
        """Return the number of operations that run before each operation, by index."""
        for source, places in self._last_readers.items():
            self._readers.setdefault(source, []).extend(places)
        missing = {place: len(read) for place, read in self._sources.items()}
        queue = collections.deque([*self._given, *(place for place, count in missing.items() if not count)])
        ranks: dict[int, int] = {}
        while queue:
            ranks[place := queue.popleft()] = len(ranks)
            for reader in self._readers.get(place, ()):
                missing[reader] -= 1
                if not missing[reader]:
                    queue.append(reader)
        return ranks
