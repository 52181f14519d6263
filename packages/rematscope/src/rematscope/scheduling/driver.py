"""The driver of `auto`: which candidates are compiled, one after the other, until no better one is left.

Proposers find candidates whose estimated memory is near a target: a 0/1 program over values and steps
(`peak_proposer.py`), a chain that is reversed in several passes (`chain_proposer.py`), loops in segments
(`segments.py`), blocks for a TPU (`tpu_blocks.py`), and plain checkpoints (`checkpoint_proposer.py`). JAX's policies,
the values at narrow places of the model and the author's checkpoints are candidates for any target.

The recompute of a candidate is known before it is compiled. Only its memory is an estimate. So the driver

* sets the target to the memory limit, corrected by measured and estimated bytes of what it has compiled,
* compiles the candidate with the least recompute that is expected to fit, and
* stops when no candidate that is left recomputes less than the best one that fits.

The order does not depend on the number of compiles that are allowed, except for the last one if nothing fits yet: it
goes to a fallback, which is compiled after a first success too if it recomputes less. So more compiles never find
worse.
"""

import abc
import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import jax

from rematscope.ir.program import Value
from rematscope.scheduling.candidate import Candidate, Subject
from rematscope.scheduling.candidate_pool import CandidatePool, Proposer
from rematscope.scheduling.chain_proposer import ChainProposer
from rematscope.scheduling.checkpoint_placement import POLICIES, CheckpointPlacement
from rematscope.scheduling.checkpoint_proposer import CheckpointProposer
from rematscope.scheduling.linearize import Linearized
from rematscope.scheduling.peak_proposer import PeakProposer, SavedBytesProposer
from rematscope.scheduling.segments import SegmentProposer
from rematscope.scheduling.settings import SearchSettings
from rematscope.scheduling.tpu_blocks import BlockProposer


class Driver(abc.ABC):
    """Compiles candidates of proposers until no better one is left.

    Attributes:
      compiled: the candidates that were compiled, in order.
      compiles: how many candidates may be compiled.
      fixed_bytes: the bytes of a compiled candidate in addition to its temporaries: arguments, outputs, gradients.
      linearized: the function without its checkpoints.
      own: the function with its own checkpoints; None if it has none.
      cuts: for each way to cut the function, the values at its narrow places.
      pool: the candidates that were proposed for a target.
    """

    subject: Subject
    target: str
    settings: SearchSettings
    compiles: int
    compiled: list[Candidate]
    pool: CandidatePool
    fixed_bytes: int
    linearized: Linearized
    own: Linearized | None
    cuts: list[frozenset[Value]]
    blocks: BlockProposer
    peaks: PeakProposer
    chains: ChainProposer
    segments: SegmentProposer
    saved_bytes: SavedBytesProposer
    checkpoints: CheckpointProposer
    tell: Callable[[str, float], None]
    _targets: list[float]  # for which the proposers were asked

    @abc.abstractmethod
    def _compile_candidate(self, candidate: Candidate) -> Candidate:
        """Compile a candidate, and add it to the compiled ones."""

    @abc.abstractmethod
    def _make_candidate(self, linearized: Linearized, saved: frozenset[Value], **others: Any) -> Candidate:
        """Return a schedule that saves some values."""

    @abc.abstractmethod
    def _with_checkpoints(self, placement: CheckpointPlacement) -> Candidate:
        """Return the candidate with plain checkpoints."""

    def _compile_candidates(self, limit: int) -> None:
        """Compile candidates until no better one is left, or the compiles are spent."""
        unconstrained = self._saves_everything
        if unconstrained.estimated_bytes <= limit - self.fixed_bytes and self._compile_candidate(unconstrained).fits(
            limit
        ):
            return
        while len(self.compiled) < self.compiles and (candidate := self._propose_next(limit)) is not None:
            self._compile_candidate(candidate)

    def _propose_next(self, limit: int) -> Candidate | None:
        """Return the candidate to compile next; None if no better one is left."""
        nothing_fits = self._best_feasible(limit) is None
        if nothing_fits and self.compiled and len(self.compiled) == self.compiles - 1:
            return self._fallback_candidate(limit)
        return (
            self._trim_closest(limit)
            or self._cheaper_fallback(limit)
            or self._cheapest_expected(limit)
            or (self._fallback_candidate(limit) if nothing_fits else None)
        )

    def _trim_closest(self, limit: int) -> Candidate | None:
        """Return a schedule that hardly exceeded the memory, without the smallest values that it saves."""
        failed = (one for one in self.compiled if not one.fits(limit))
        closest = min(failed, key=lambda one: one.peak_bytes, default=None)
        if closest is None or closest.placement is not None or closest.snapshots:
            return None
        excess, small = closest.peak_bytes - limit, self.settings.trim_limit * (limit - self.fixed_bytes)
        if excess >= small:
            return None
        for dropped in (max(4 * excess, small), excess):
            trimmed = closest.trimmed(dropped)
            before, after = (self.subject.work(one.schedule) for one in (closest, trimmed))
            is_cheap = after < before + self.settings.trim_cost * self.subject.least
            is_better = is_cheap and trimmed.recompute_cost < self._best_cost(limit)
            # What is recomputed in place of the dropped values may need more memory than they do.
            if is_better and self._is_new(trimmed) and trimmed.estimated_bytes <= closest.estimated_bytes:
                return trimmed
        return None

    def _cheaper_fallback(self, limit: int) -> Candidate | None:
        """Return the fallback after failures and a success: with fewer compiles it would have been the result."""
        cost = self._best_cost(limit)
        if math.isinf(cost) or self.compiled[0].fits(limit) or self._is_proven(cost, self._estimate_target(limit)):
            return None
        fallback = self._fixed_fallback(limit)
        return fallback if fallback.recompute_cost < cost and self._is_new(fallback) else None

    def _cheapest_expected(self, limit: int) -> Candidate | None:
        """Return the candidate with the least recompute that is expected to fit; None without a better one."""
        target = self._estimate_target(limit)
        self._fill_pool(target)
        ceiling = (1 - self.settings.min_improvement) * self._best_cost(limit)
        scheduled = self._cheapest_schedule(limit, target, ceiling) or self._inside_bracket(limit, ceiling)
        cost = scheduled.recompute_cost if scheduled else ceiling
        if not self._are_checkpoints_promising(cost, target):
            return scheduled
        expected = self.checkpoints.propose(self._checkpoint_target(limit), self.pool)
        cheaper = [one for one in expected if one.recompute_cost < cost and self._is_new(one)]
        return min(cheaper, key=lambda one: one.recompute_cost, default=scheduled)

    def _cheapest_schedule(self, limit: int, target: float, ceiling: float) -> Candidate | None:
        """Return the schedule with the least recompute, below a ceiling, whose estimate is within the target."""
        has_failed = any(not one.fits(limit) for one in self.compiled)
        # What hardly exceeds the target is tried first: if it fails, it fits without its smallest values.
        most = target if has_failed else (1 + self.settings.overshoot) * target
        candidates = [*self._fixed_candidates, *self.pool.candidates]
        for candidate in sorted(candidates, key=lambda one: one.recompute_cost):
            if candidate.recompute_cost >= ceiling:
                break
            if candidate.lower_bound_bytes > most or not self._is_new(candidate):
                continue
            if candidate.estimated_bytes <= most:
                return candidate
        if has_failed or not self.blocks.applies:
            return None
        near = self.pool.within(self.settings.block_slack * most)
        above = [one for one in near if one.recompute_cost < ceiling and self._is_new(one)]
        return min(above, key=lambda one: one.estimated_bytes, default=None)

    def _inside_bracket(self, limit: int, ceiling: float) -> Candidate | None:
        """Return the smallest better candidate whose estimate lies between those of a success and of a failure.

        On devices other than a CPU estimates are rough, and such a candidate may fit although it is above the target.
        """
        schedules = [one for one in self.compiled if one.placement is None]
        too_large = self._smallest_failure(schedules, limit)
        if self.target == "cpu" or too_large is None or not any(one.fits(limit) for one in schedules):
            return None
        candidates = (*self._fixed_candidates, *self.pool.candidates)
        inside = (one for one in candidates if one.recompute_cost < ceiling and one.estimated_bytes < too_large)
        return min(filter(self._is_new, inside), key=lambda one: one.estimated_bytes, default=None)

    def _are_checkpoints_promising(self, cost: float, target: float) -> bool:
        """Whether plain checkpoints may recompute less than a cost. To trace all of them is slow."""
        if self.linearized.closed or math.isinf(cost):
            return True
        most = max((one.recompute_cost for one in self._fixed_candidates), default=math.inf)
        if not self.compiled and cost <= most:
            return False  # a schedule goes first
        return not self._is_proven(cost, target) and cost > self.settings.checkpoints_share * most

    def _fill_pool(self, target: float) -> None:
        """Let the proposers propose candidates for a target, unless they did for nearly the same one."""
        same = 1 - self.settings.same_target
        if any(same * target <= other <= target / same for other in self._targets):
            return
        self._targets.append(target)
        self.tell("choosing which values to save", 0)
        schedules: tuple[Proposer, ...] = (self.peaks, self.chains, self.segments, self.saved_bytes)
        for proposer in (self.blocks,) if self.blocks.applies else schedules:
            for candidate in proposer.propose(target, self.pool):
                self.pool.candidates.append(candidate)

    # Targets

    def _estimate_target(self, limit: int) -> float:
        """Return the estimate, in bytes of temporaries, of schedules that should just fit."""
        available = limit - self.fixed_bytes
        schedules = [one for one in self.compiled if one.placement is None]
        fitting = [one.estimated_bytes for one in schedules if one.fits(limit)]
        target = available / self._measured_ratio(schedules)
        too_large = self._smallest_failure(schedules, limit)
        if too_large is not None:
            if fitting:
                return (max(fitting) + too_large) / 2
            slack = 1 if self.target == "cpu" else 1 + self.settings.target_slack
            target = min(slack * target, (1 - self.settings.step_below) * too_large)
        failed = [one for one in schedules if not one.fits(limit)]
        if len(failed) > 1 and not fitting:
            ratios = [self._measured_share(one) for one in failed if math.isfinite(one.peak_bytes)]
            target = min([target, *(self.settings.safe_fill * available / ratio for ratio in ratios)])
        return target

    def _smallest_failure(self, schedules: Sequence[Candidate], limit: int) -> int | None:
        """Return the smallest estimate of the schedules that did not fit; None without one.

        The failure of another kind of schedule, with a smaller estimate than a success, says nothing about the others.
        Nor does one that recomputes more than the best candidate.
        """
        cost = self._best_cost(limit)
        largest = max((one.estimated_bytes for one in schedules if one.fits(limit)), default=0)
        failed = (one for one in schedules if not one.fits(limit) and one.recompute_cost < cost)
        return min((one.estimated_bytes for one in failed if one.estimated_bytes > largest), default=None)

    def _measured_ratio(self, schedules: Sequence[Candidate]) -> float:
        """Return the ratio of measured to estimated bytes of the schedule that was compiled last."""
        ratio = 1.0
        for one in schedules:
            fits = math.isfinite(one.peak_bytes)
            ratio = self._measured_share(one) if fits else self.settings.unmeasured_growth * ratio
        return ratio

    def _measured_share(self, candidate: Candidate) -> float:
        return max(candidate.peak_bytes - self.fixed_bytes, 1) / max(candidate.estimated_bytes, 1)

    def _checkpoint_target(self, limit: int) -> float:
        """Return the estimate of plain checkpoints that should just fit: on a CPU these have ratios of their own."""
        tried = [one for one in self.compiled if one.placement is not None or self.target != "cpu"]
        return (limit - self.fixed_bytes) / max(map(self._measured_share, tried), default=1)

    # What is known of candidates

    def _best_feasible(self, limit: int) -> Candidate | None:
        """Return the compiled candidate that fits and recomputes least."""
        fitting = (one for one in self.compiled if one.fits(limit))
        return min(fitting, key=lambda one: (one.recompute_cost, one.peak_bytes), default=None)

    def _best_cost(self, limit: int) -> float:
        return math.inf if (best := self._best_feasible(limit)) is None else best.recompute_cost

    def _is_new(self, candidate: Candidate) -> bool:
        return not any(one.is_like(candidate) for one in self.compiled)

    def _is_proven(self, cost: float, target: float) -> bool:
        """Whether the 0/1 program, solved near a target, excludes that any schedule recomputes much less."""
        near = (1 - self.settings.near_target) * target
        bound = self.pool.lowest_bound(target, above=near)
        return math.isfinite(bound) and (1 - self.settings.min_improvement) * cost <= bound

    def _lower_bound(self, limit: int) -> float:
        """Return a lower bound of the recompute, for candidates that are expected to fit; 0 if nothing was proven."""
        best = self._best_feasible(limit)
        if best is None or best is self._saves_everything:
            return 0.0
        proven = [one for one in self.compiled if one.bound]
        bound = min((one.bound for one in proven if one.fits(limit)), default=0.0)
        bound = bound or min((one.bound for one in proven), default=0.0)
        if (best.placement or best.snapshots or best.segments) and best.recompute_cost < bound:
            return 0.0  # it is no choice of the 0/1 program, so nothing is proven of such choices
        # Those that recompute hardly less than the best one were not compiled.
        skipped = self._cheapest_schedule(limit, self._estimate_target(limit), best.recompute_cost) if bound else None
        return min(bound, skipped.recompute_cost) if skipped else bound

    # Fallbacks

    def _fallback_candidate(self, limit: int) -> Candidate | None:
        """Return what to compile where nothing fits; None if everything was compiled."""
        safest = self._fixed_fallback(limit)
        if self._is_new(safest):
            return safest
        rest = [one for one in (*self._smallest_candidates, *self.pool.candidates) if self._is_new(one)]
        return self._smallest_of(rest) if rest else None

    def _fixed_fallback(self, limit: int) -> Candidate:
        """Return the fallback, which does not depend on what was compiled.

        It is the cheapest of the checkpoints that fit with some memory to spare, the smallest of those that should fit,
        or else the smallest candidate: the peak of checkpoints on a CPU is estimated best.
        """
        available = limit - self.linearized.fixed_bytes
        fitting = [one for one in self.checkpoints.all if one.estimated_bytes <= available]
        if self.target != "cpu" or not fitting:
            return self._smallest_of(self._smallest_candidates)
        spare = [one for one in fitting if one.estimated_bytes <= self.settings.safe_fill * available]
        return min(spare, key=lambda one: one.recompute_cost) if spare else self._smallest_of(fitting)

    def _smallest_of(self, candidates: Sequence[Candidate]) -> Candidate:
        return min(candidates, key=lambda one: (one.estimated_bytes, one.recompute_cost))

    @cached_property
    def _smallest_candidates(self) -> list[Candidate]:
        """The smallest candidate of each kind."""
        return [self.peaks.smallest(), *self.chains.smallest(), *self._fixed_candidates, self.checkpoints.smallest]

    # Candidates for any target

    @cached_property
    def _saves_everything(self) -> Candidate:
        """The candidate that saves all that JAX saves."""
        if self.linearized.closed:
            return self._with_checkpoints(CheckpointPlacement())
        return self._make_candidate(self.linearized, self.linearized.kept)

    @cached_property
    def _fixed_candidates(self) -> list[Candidate]:
        """Schedules for any target: of policies, of narrow places, and of the author's checkpoints."""
        policies = (getattr(jax.checkpoint_policies, name) for name in POLICIES)
        made = [self._make_candidate(self.linearized, self.linearized.saved_by(policy)) for policy in policies]
        made += [self._make_candidate(self.linearized, saved) for saved in self.cuts]
        if self.own is not None:
            made.append(self._make_candidate(self.own, self.own.kept))
        return made
