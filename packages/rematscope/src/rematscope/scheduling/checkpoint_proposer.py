"""Candidates with plain checkpoints: the author's checkpoints, and checkpoints around layers and loop iterations.

The estimated peak of plain checkpoints on a CPU is accurate, so they are the fallback if no schedule fits. Some of the
candidates also save as many of the most valuable residuals as fit.
"""

import dataclasses
from collections.abc import Iterator
from functools import cached_property

from rematscope.scheduling.calls import worth_saving
from rematscope.scheduling.candidate import Candidate, CandidatePool, SearchProblem
from rematscope.scheduling.checkpoint_placement import CheckpointPlacement, checkpointed, placements
from rematscope.scheduling.linearize import Linearized, linearize
from rematscope.scheduling.per_call import GradientCall
from rematscope.scheduling.settings import SETTINGS


class CheckpointProposer:
    """Proposes candidates with plain checkpoints."""

    def __init__(self, problem: SearchProblem, call: GradientCall, linearized: Linearized, own: Linearized | None):
        """Args:
        problem: the function, and what the search is for.
        call: the call that it is planned for.
        linearized: the function without its checkpoints.
        own: the function with its own checkpoints; None if it has none.
        """
        self._problem, self._call = problem, call
        self._linearized, self._own = linearized, own
        self._whole = problem.once.without_checkpoints.jaxpr
        self._by_placement: dict[CheckpointPlacement, Candidate] = {}

    def candidate(self, placement: CheckpointPlacement) -> Candidate:
        """Return the candidate for a placement."""
        if placement not in self._by_placement:
            same = {CheckpointPlacement(): self._linearized, CheckpointPlacement(own=True): self._own}.get(placement)
            found = same or linearize(self._call.trace(checkpointed(self._problem.once, placement)))
            self._by_placement[placement] = Candidate(self._problem, found, found.saved, placement=placement)
        return self._by_placement[placement]

    @cached_property
    def all(self) -> list[Candidate]:
        """The candidates without further saved values; only the first of several with equal memory and recompute."""
        found = placements(self._whole, self._own is not None, self._linearized.closed)
        made = [self.candidate(placement) for placement in found]
        return [*{(one.estimated_bytes, one.recompute_cost): one for one in reversed(made)}.values()]

    @cached_property
    def smallest(self) -> Candidate:
        """The candidate with the smallest estimate.

        For devices other than a CPU, estimates are rough. Then it is the candidate with the fewest saved bytes among
        those whose estimate is near the smallest.
        """
        first = min(self.all, key=lambda one: one.estimated_bytes)
        if self._problem.target == "cpu":
            return first
        near = (one for one in self.all if one.estimated_bytes <= SETTINGS.near_smallest * first.estimated_bytes)
        return min(near, key=lambda one: one.schedule.saved_bytes)

    def propose(self, target_bytes: float, pool: CandidatePool) -> Iterator[Candidate]:
        """Yield the candidates within the target, then two of them with as many saved values as fit.

        The two are the candidate with the least recompute and the candidate with the smallest estimate.
        """
        fitting = [one for one in self.all if one.estimated_bytes <= target_bytes]
        yield from fitting
        bases = [one for one in fitting if one.placement and one.placement.blocks and not one.placement.policy]
        if bases:
            cheapest = min(bases, key=lambda one: one.recompute_cost)
            smallest = min(bases, key=lambda one: one.estimated_bytes)
            for base in dict.fromkeys((cheapest, smallest)):
                yield from self._with_saved_values(base, target_bytes)

    def _with_saved_values(self, base: Candidate, target: float) -> list[Candidate]:
        """Return the candidate whose checkpoints also save as many of the most valuable residuals as fit.

        The list is empty if saving any further residual exceeds the target.
        """
        placement = base.placement
        assert placement is not None, "it has blocks"
        worth = worth_saving(self._whole, placement.blocks)
        found, fewest, most = list[Candidate](), 0, len(worth) + 1
        for _ in range(SETTINGS.halvings):
            count = (fewest + most) // 2
            if count == fewest:
                break
            saved = tuple(sorted(place for place, _ in worth[:count]))
            candidate = self.candidate(dataclasses.replace(placement, saved=saved))
            if candidate.estimated_bytes <= target:
                found, fewest = [candidate], count
            else:
                most = count
        return found
