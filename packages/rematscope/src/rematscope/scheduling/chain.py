"""A program as a chain, which the backward pass may go through more than once.

What crosses a narrow place of a net is all that is needed to go on from there. So between two such places is a link,
and whatever is in it is computed again from what enters it. `rematscope.scheduling.revolve` says in which order to go
back through the links within a limit of memory; here that becomes values to keep, and stops of the backward pass at
which it lets go of what it computed again.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence

from rematscope.ir.program import Equation, Value
from rematscope.scheduling.cuts import crossings
from rematscope.scheduling.fusion import HEAVY, Fusion
from rematscope.scheduling.linearize import Linearized, reading
from rematscope.scheduling.revolve import ChainSegment, RevolveSchedule
from rematscope.scheduling.schedule import Snapshot

_LINKS = 320  # of longer chains several are taken for one
_FEWEST = 4


class Chain:
    """The links of a function, each between two of its narrow places; none where these are few.

    Attributes:
      links: what going through each takes, in their order.
    """

    def __init__(self, linearized: Linearized, cost: Callable[[Equation], float]):
        """Args:
        linearized: the function.
        cost: what running an operation again takes.
        """
        equations = linearized.primal.equations
        crossing = crossings(linearized)
        widths = [sum(v.device_bytes for v in values) for values in crossing]
        costs = [0.0 if e in linearized.deferred else cost(e) for e in equations]
        places = _thinned(_places(crossing, widths, equations), widths)
        self._position = {v: i for i, e in enumerate(equations) for v in _made(e)}
        ends = [0, *(place + 1 for place in places), len(equations)]
        self._spans = [range(a, b) for a, b in itertools.pairwise(ends)]
        # What most links hand on is kept once, and enters none.
        handed = [v for place in places for v in crossing[place]]
        self._common = [v for v in dict.fromkeys(handed) if 2 * handed.count(v) > len(places)]
        self._entering = [[], *([v for v in crossing[place] if v not in self._common] for place in places)]
        self._find_reads(linearized)
        self.links = []
        for i, span in enumerate(self._spans) if places else ():
            leaving = self._entering[i + 1] if i + 1 < len(self._spans) else []
            through, back = (_leading_to(values, equations, span) for values in (leaving, self._reads[i]))
            made = sum(v.device_bytes for v in self._held[i])
            self.links.append(
                ChainSegment(
                    enters=sum(v.device_bytes for v in self._entering[i]),
                    forward=sum(costs[at] for at in through),
                    again=sum(costs[at] for at in back),
                    both=sum(costs[at] for at in through | back),
                    made=made,
                    least=max([made, *(widths[at] for at in span)]),
                )
            )

    def _find_reads(self, linearized: Linearized) -> None:
        """What the backward pass reads of each link, and how many of its operations come before it has left it."""
        equations = linearized.primal.equations
        link_of = {v: i for i, span in enumerate(self._spans) for at in span for v in _made(equations[at])}
        link_of |= {v: link_of[loop.outputs[0]] for v, loop in linearized.loop_of.items() if loop.outputs}
        # What enters a link is there when it is gone back through, though the one before has made it.
        entering = {v: i for i, values in enumerate(self._entering) for v in values if link_of[v] == i - 1}
        self._reads: list[dict[Value, None]] = [{} for _ in self._spans]
        left = [0] * (len(self._spans) + 1)
        for at, equation in enumerate(linearized.backward.equations):
            for value in reading(equation):
                if value in link_of and value not in self._common:
                    i = entering.get(value, link_of[value])
                    left[i] = at + 1
                    if value not in entering:
                        self._reads[i][value] = None
        self._before = [max(left[i:]) for i in range(len(left))]
        fusion = Fusion([equations, linearized.backward.equations], linearized.backward.outputs)
        self._held = [
            {v for value in values for v in fusion.stands_for(value) if link_of.get(v) == i}
            for i, values in enumerate(self._reads)
        ]

    def choice(self, tour: RevolveSchedule) -> tuple[frozenset[Value], tuple[Snapshot, ...]]:
        """The values to keep for a tour, and the stops of the backward pass."""
        kept = {*self._common, *(v for i in tour.kept for v in self._entering[i])}
        kept.update(v for i in tour.whole for v in self._held[i])
        snapshots = []
        for link, entered in tour.snapshots:
            there = {v for i in entered for v in self._entering[i]} - kept
            snapshots.append(Snapshot(self._before[link], tuple(sorted(there, key=self._position.__getitem__))))
        return frozenset(kept), tuple(snapshots)


def _places(crossing: Sequence[list[Value]], widths: Sequence[int], equations: Sequence[Equation]) -> list[int]:
    """Behind which operations to cut: where less crosses than around, and something heavy is done between two cuts.

    Of places in a row where as much crosses it is the last before the next heavy operation, for what is cheap is
    computed again; of those where the same crosses the first, for what is made of it is made again.
    """
    found: list[int] = []
    runs = [list(run) for _, run in itertools.groupby(range(len(widths)), key=widths.__getitem__)]
    around = [math.inf, *(widths[run[0]] for run in runs)]
    for before, run, after in zip(around, runs, around[2:], strict=False):
        if not before > widths[run[0]] < after:
            continue
        done, own = False, list[int]()
        for place in run:
            done = done or equations[place].primitive in HEAVY
            is_last = place == run[-1]
            if (done or not own) and (is_last or (done and equations[place + 1].primitive in HEAVY)):
                while place > run[0] and set(crossing[place - 1]) == set(crossing[place]):
                    place -= 1
                own.append(place)
                done = False
        found += own
    return found


def _thinned(places: Sequence[int], widths: Sequence[int]) -> list[int]:
    """As many of some places as there can be, the narrower ones first; none if they are too few."""
    found = list(places)
    while len(found) >= _LINKS:
        widest = max(widths[place] for place in found)
        narrower = [place for place in found if widths[place] < widest]
        found = narrower if len(narrower) >= _LINKS // 2 else found[:: math.ceil((len(found) + 1) / _LINKS)]
    return found if len(found) >= _FEWEST else []


def _leading_to(values: Iterable[Value], equations: Sequence[Equation], span: range) -> set[int]:
    """The operations of a link that lead to some values."""
    needed, found = set(values), set[int]()
    for at in reversed(span):
        equation = equations[at]
        if not needed.isdisjoint(_made(equation)):
            found.add(at)
            needed.update(reading(equation))
    return found


def _made(equation: Equation) -> tuple[Value, ...]:
    """What an operation makes; a barrier makes nothing."""
    return equation.outputs if equation.primitive != "optimization_barrier" else ()
