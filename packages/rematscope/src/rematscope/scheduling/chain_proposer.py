"""Candidates that reverse a function as a chain, in several passes if memory is small."""

import math
from collections.abc import Iterator
from functools import cached_property

from rematscope.scheduling.candidate import Candidate, Subject
from rematscope.scheduling.candidate_pool import CandidatePool
from rematscope.scheduling.chain import Chain
from rematscope.scheduling.costs import cost_in
from rematscope.scheduling.linearize import Linearized
from rematscope.scheduling.revolve import RevolveSchedule, RevolveTable
from rematscope.scheduling.settings import SETTINGS

_DOUBLINGS = 5  # of the memory of one segment, within which the smallest reversal is looked for


class ChainProposer:
    """Candidates for a function whose narrow places divide it into a chain of segments."""

    def __init__(self, subject: Subject, linearized: Linearized):
        """Args:
        subject: the function and its target.
        linearized: its two programs.
        """
        self._subject, self._linearized = subject, linearized
        self._table: RevolveTable | None = None  # for a memory near the latest target

    @cached_property
    def chain(self) -> Chain:
        """The function as a chain of segments."""
        return Chain(self._linearized, cost_in(self._linearized, self._subject.cost))

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
            candidate = Candidate(self._subject, self._linearized, saved, snapshots)
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
