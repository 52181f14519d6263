"""The order in which a CPU runs operations.

They run breadth first (`BFScheduler`), for those that do not depend on each other may run at the same time. So a copy
of what the forward pass made is made in the forward pass, also for a product of the backward pass, and zeros are there
from the start. A loop is given one tuple and makes another, of which parts are taken: each of these has a turn, too.
"""

import collections
from collections.abc import Callable, Collection, Iterable, Sequence

from rematscope.ir import roles
from rematscope.ir.program import Equation, Value
from rematscope.memory.hlo_rewrites import MIXED, is_alias


def thunk_order(
    equations: Sequence[Equation], absent: Collection[Value], reads: Callable[[Equation], Iterable[Iterable[Value]]]
) -> list[Equation]:
    """Equations that write something, each when all that it reads is there, and the first that is ready first.

    Args:
      equations: one after the other, on one level.
      absent: what is computed where it is read, and has no turn.
      reads: the values that an equation reads from memory, for each of its operands.
    """
    nothing: frozenset[int] = frozenset()
    behind: dict[Value, frozenset[int]] = {}  # value → the places of those that write it, or what it is made of
    given: list[int] = []
    sources: dict[int, frozenset[int]] = {}
    readers: dict[int, list[int]] = {}
    last_readers: dict[int, list[int]] = {}
    turned = {e.inputs[0] for e in equations if e.primitive == "transpose"}
    names: list[int] = []

    def between(read: Collection[int]) -> int:
        """What comes between two operations, and has a turn of its own."""
        place = len(equations) + len(sources)
        sources[place] = frozenset(read)
        for source in read:
            readers.setdefault(source, []).append(place)
        return place

    held: set[int] = set()  # barriers, and what is computed again
    last = -1
    for place, equation in enumerate(equations):
        if equation.outputs and all(v in absent for v in equation.outputs):
            continue
        found = [v for values in reads(equation) for v in values]
        for value in found:
            if value not in behind:
                given.append(-1 - len(given))
                behind[value] = frozenset(given[-1:])
        read = nothing.union(*(behind[v] for v in found))
        if is_alias(equation):
            behind.update(dict.fromkeys(equation.outputs, read))
            names.append(place)
            continue
        if equation.role != roles.RECOMPUTED:
            last = place
        elif last >= 0 and held.isdisjoint(read):  # no barrier holds it back, but it is asked for here
            read |= {last}
        if equation.primitive == "optimization_barrier" or equation.role == roles.RECOMPUTED:
            held.add(place)
        if is_loop := equation.bodies or equation.primitive == MIXED:
            read = frozenset({between(read)})
        sources[place] = read
        for source in read:
            # A product that is transposed becomes another product, which XLA adds behind all others.
            is_last = equation.primitive == "dot_general" and equation.outputs[0] in turned
            (last_readers if is_last else readers).setdefault(source, []).append(place)
        behind.update(dict.fromkeys(equation.outputs, frozenset({between({place}) if is_loop else place})))
    for source, places in last_readers.items():
        readers.setdefault(source, []).extend(places)
    missing = {place: len(read) for place, read in sources.items()}
    queue = collections.deque([*given, *(place for place, count in missing.items() if not count)])
    rank: dict[int, int] = {}
    while queue:
        rank[place := queue.popleft()] = len(rank)
        for reader in readers.get(place, ()):
            missing[reader] -= 1
            if not missing[reader]:
                queue.append(reader)

    def turn(place: int) -> tuple[int, int]:
        if place in rank:
            return rank[place], -1
        made_of = nothing.union(*(behind[v] for v in equations[place].outputs))
        return max((rank[source] for source in made_of), default=-1), place

    places = [*(place for place in sources if place < len(equations)), *names]
    return [equations[place] for place in sorted(places, key=turn)]
