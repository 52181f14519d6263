"""Divide a program into a chain of segments, which the backward pass may recompute several times.

The values that cross a narrow place of a model determine all later values. The operations between two narrow places
form a segment, whose values can be recomputed from its inputs. `rematscope.scheduling.revolve` finds an order in which
to reverse the segments within a memory limit. This module turns the order into saved values and snapshots.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

from rematscope.ir.program import Equation, Value, reading, total_bytes
from rematscope.scheduling.backward_emitter import Snapshot
from rematscope.scheduling.candidate import Candidate, CandidatePool, SearchProblem
from rematscope.scheduling.costs import cost_in
from rematscope.scheduling.cuts import crossings
from rematscope.scheduling.fusion import HEAVY, Fusion
from rematscope.scheduling.linearize import Linearized
from rematscope.scheduling.revolve import ChainSegment, RevolveSchedule, RevolveTable
from rematscope.scheduling.settings import SETTINGS


class Chain:
    """The segments of a function between its narrow places.

    Attributes:
      segments: the sizes and costs of the segments, in order; empty if the function has few narrow places.
    """

    def __init__(self, linearized: Linearized, cost: Callable[[Equation], float]):
        equations = linearized.primal.equations
        crossing = crossings(linearized)
        widths = [*map(total_bytes, crossing)]
        costs = [0.0 if e in linearized.deferred else cost(e) for e in equations]
        places = _thin_out(_cut_places(crossing, widths, equations), widths)
        self._position = {v: i for i, e in enumerate(equations) for v in e.defines}
        ends = [0, *(place + 1 for place in places), len(equations)]
        self._spans = [range(a, b) for a, b in itertools.pairwise(ends)]
        # Values that cross most cuts are saved once, and do not count as inputs.
        handed = [v for place in places for v in crossing[place]]
        self._common = [v for v in dict.fromkeys(handed) if 2 * handed.count(v) > len(places)]
        self._entering = [[], *([v for v in crossing[place] if v not in self._common] for place in places)]
        self._find_residuals(linearized)
        self.segments = [self._make_segment(i, equations, costs, widths) for i in range(len(self._spans)) if places]

    def _make_segment(
        self, i: int, equations: Sequence[Equation], costs: Sequence[float], widths: Sequence[int]
    ) -> ChainSegment:
        """Return the sizes and costs of a segment."""
        span = self._spans[i]
        leaving = self._entering[i + 1] if i + 1 < len(self._spans) else []
        forward, recompute = (_leading_to(values, equations, span) for values in (leaving, self._residual_reads[i]))
        residual_bytes = total_bytes(self._residuals[i])
        return ChainSegment(
            input_bytes=total_bytes(self._entering[i]),
            forward=sum(costs[at] for at in forward),
            recompute=sum(costs[at] for at in recompute),
            total=sum(costs[at] for at in forward | recompute),
            residual_bytes=residual_bytes,
            peak_bytes=max([residual_bytes, *(widths[at] for at in span)]),
        )

    def _find_residuals(self, linearized: Linearized) -> None:
        """Find the residuals of each segment, and the number of operations before the backward pass has left it."""
        equations = linearized.primal.equations
        made_in = {v: i for i, span in enumerate(self._spans) for at in span for v in equations[at].defines}
        made_in |= {v: made_in[loop.outputs[0]] for v, loop in linearized.loop_of.items() if loop.outputs}
        # The inputs of a segment are live when it is reversed, although the previous segment computes them.
        entering = {v: i for i, values in enumerate(self._entering) for v in values if made_in[v] == i - 1}
        self._residual_reads: list[dict[Value, None]] = [{} for _ in self._spans]
        left = [0] * (len(self._spans) + 1)
        for at, equation in enumerate(linearized.backward.equations):
            for value in reading(equation):
                if value in made_in and value not in self._common:
                    i = entering.get(value, made_in[value])
                    left[i] = at + 1
                    if value not in entering:
                        self._residual_reads[i][value] = None
        self._before = [max(left[i:]) for i in range(len(left))]
        fusion = Fusion([equations, linearized.backward.equations], linearized.backward.outputs)
        self._residuals = [
            {v for value in values for v in fusion.stands_for(value) if made_in.get(v) == i}
            for i, values in enumerate(self._residual_reads)
        ]

    def choice(self, reversal: RevolveSchedule) -> tuple[frozenset[Value], tuple[Snapshot, ...]]:
        """Return the values to save for a reversal, and its snapshots."""
        saved = {*self._common, *(v for i in reversal.saved for v in self._entering[i])}
        saved.update(v for i in reversal.whole for v in self._residuals[i])
        snapshots = []
        for segment, entered in reversal.snapshots:
            there = {v for i in entered for v in self._entering[i]} - saved
            snapshots.append(Snapshot(self._before[segment], tuple(sorted(there, key=self._position.__getitem__))))
        return frozenset(saved), tuple(snapshots)


def _cut_places(crossing: Sequence[list[Value]], widths: Sequence[int], equations: Sequence[Equation]) -> list[int]:
    """Return the places to cut at: narrower than their neighbors, with something heavy between two cuts.

    Of adjacent places with the same width, it returns the last one before the next heavy operation, so that the cheap
    operations before the place are recomputed with the segment. Of places that the same values cross, it returns the
    first one, so that the values computed from them are recomputed.
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


def _thin_out(places: Sequence[int], widths: Sequence[int]) -> list[int]:
    """Return as many places as allowed, the narrower ones first; none if there are too few."""
    found = list(places)
    most = SETTINGS.max_chain_segments
    while len(found) >= most:
        widest = max(widths[place] for place in found)
        narrower = [place for place in found if widths[place] < widest]
        found = narrower if len(narrower) >= most // 2 else found[:: math.ceil((len(found) + 1) / most)]
    return found if len(found) >= SETTINGS.min_chain_segments else []


def _leading_to(values: Iterable[Value], equations: Sequence[Equation], span: range) -> set[int]:
    """Return the operations of a segment that some values depend on."""
    needed, found = set(values), set[int]()
    for at in reversed(span):
        equation = equations[at]
        if not needed.isdisjoint(equation.defines):
            found.add(at)
            needed.update(reading(equation))
    return found


_DOUBLINGS = 5  # of the memory of one segment, within which the smallest reversal is looked for


class ChainProposer:
    """Candidates for a function whose narrow places divide it into a chain of segments."""

    def __init__(self, problem: SearchProblem, linearized: Linearized):
        self._problem, self._linearized = problem, linearized
        self._table: RevolveTable | None = None  # for a memory near the latest target

    @cached_property
    def chain(self) -> Chain:
        """The function as a chain of segments."""
        return Chain(self._linearized, cost_in(self._linearized, self._problem.cost))

    def propose(self, target_bytes: float, pool: CandidatePool) -> Iterator[Candidate]:
        """Yield reversals of the chain, the last of which have estimates near the target."""
        if not self.chain.segments or target_bytes <= 0:
            return
        cheaper = (1 - SETTINGS.min_improvement) * pool.cheapest_cost(target_bytes)
        forward = sum(segment.forward for segment in self.chain.segments)
        table = self._table_for(target_bytes)
        fewest = table.fewest(min(cheaper, SETTINGS.max_chain_recompute * forward))
        if fewest is None:
            return
        slots, tried = round(target_bytes / table.slot), set[RevolveSchedule]()
        for _ in range(SETTINGS.solves_per_target):
            slots = max(slots, fewest)  # with fewer slots the recompute is too large
            reversal = table.best(slots)
            if reversal is None or reversal in tried:
                return
            tried.add(reversal)
            saved, snapshots = self.chain.choice(reversal)
            candidate = Candidate(self._problem, self._linearized, saved, snapshots)
            yield candidate
            slots += math.floor((target_bytes - candidate.estimated_bytes) / table.slot)
            slots = min(max(slots, 0), table.slots)

    def smallest(self) -> Iterator[Candidate]:
        """Yield one candidate with about the least memory, unless it recomputes too much."""
        least = max((segment.input_bytes + segment.peak_bytes for segment in self.chain.segments), default=0)
        for doubling in range(_DOUBLINGS):
            for candidate in self.propose(2**doubling * least, CandidatePool()):
                yield candidate
                return

    def _table_for(self, target: float) -> RevolveTable:
        if self._table is None or not 1 / 3 < target / (self._table.slots * self._table.slot) < 1:
            self._table = RevolveTable(self.chain.segments, 1.5 * target)
        return self._table
