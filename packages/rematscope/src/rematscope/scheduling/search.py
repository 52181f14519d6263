"""Search for a plan of one function: `auto` compiles candidates until no better candidate remains.

Proposers find candidates whose estimated memory is near a target: a 0/1 program over values and steps
(`peak_proposer.py`), a chain that is reversed in several passes (`chain.py`), loops in segments
(`segments.py`), blocks for a TPU (`tpu_blocks.py`), and plain checkpoints (`checkpoint_proposer.py`). JAX's policies,
the values at narrow places of the model and the author's checkpoints are candidates for any target.

The recompute of a candidate is known before it is compiled, but its memory is only estimated. So the search

* sets the target to the memory limit, corrected by the ratio of measured to estimated bytes of compiled candidates,
* compiles the candidate with the least recompute that is expected to fit, and
* stops when no remaining candidate recomputes less than the best candidate that fits.

The order of compilation does not depend on the allowed number of compiles, with one exception: if nothing fits yet,
the last compile is that of a fallback. To make sure that more compiles never give a worse result, the search compiles
the fallback also after a later success, if the fallback recomputes less.
"""

import itertools
import math
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import jax

from rematscope.choices.build import CostFunction, work
from rematscope.errors import PlanError
from rematscope.ir.cost import operations
from rematscope.ir.program import Value
from rematscope.render.units import bytes_text
from rematscope.scheduling.candidate import Candidate, CandidatePool, Proposer, SearchProblem
from rematscope.scheduling.captured import captured
from rematscope.scheduling.chain import ChainProposer
from rematscope.scheduling.checkpoint_placement import POLICIES, CheckpointPlacement
from rematscope.scheduling.checkpoint_proposer import CheckpointProposer
from rematscope.scheduling.cuts import saved_at_cuts
from rematscope.scheduling.host import HostOffload, HostPeakProgram, Moves
from rematscope.scheduling.linearize import linearize
from rematscope.scheduling.peak_program import PeakProgram
from rematscope.scheduling.peak_proposer import PeakProposer
from rematscope.scheduling.per_call import GradientCall
from rematscope.scheduling.segments import SegmentProposer
from rematscope.scheduling.settings import SETTINGS
from rematscope.scheduling.stored_choice import CachedChoice, StoredChoice, digest
from rematscope.scheduling.tpu_blocks import BlockProposer
from rematscope.seconds.devices import Device
from rematscope.tracing.checkpoints import checkpoints, recomputes_unrepeatable, without_checkpoints
from rematscope.tracing.signature import Signature
from rematscope.xla.compiling import Compiled
from rematscope.xla.measure import Measurement, measure_call

_RESULTS: dict[tuple[Any, ...], tuple[CachedChoice, ...]] = {}  # the latest results of each search, by its key


class SearchOptions(NamedTuple):
    """The checked options of `auto`, by its names; `limits_peak` says whether `limit` is for the compiled peak."""

    limit: int
    limits_peak: bool
    target: str
    compiles: int
    cost: CostFunction
    host: HostOffload | None

    def search(self, call: GradientCall) -> "ScheduleSearch":
        return ScheduleSearch(call, self.target, self.compiles, self.cost, self.host)


class ScheduleSearch:
    """A search for a plan of one function.

    Attributes:
      call: the function, and the arguments that it is planned for.
      compiled: the candidates that were compiled, in order.
      compiles: how many candidates may be compiled.
      fixed_bytes: the bytes of a compiled candidate in addition to its temporaries: arguments, outputs, gradients.
      linearized: the function without its checkpoints.
      own: the function with its own checkpoints; None if it has none.
      cuts: for each way to cut the function, the values at its narrow places.
      pool: the candidates that were proposed for a target.
    """

    def __init__(
        self,
        call: GradientCall,
        target: str,
        compiles: int,
        cost: CostFunction = work,
        host: HostOffload | None = None,
    ):
        self.call, self.target, self.cost, self.compiles, self.host = call, target, cost, compiles, host
        self.compiled: list[Candidate] = []
        self.pool = CandidatePool()
        self.tell: Callable[[str, float], None] = lambda text, done: None
        self._targets: list[float] = []  # the targets for which the proposers have proposed candidates
        once = captured(call.f, call.args, call.kwargs)
        self.linearized = linearize(call.trace(without_checkpoints(once)))
        has_own = any(checkpoints(once.jaxpr)) and not recomputes_unrepeatable(once.jaxpr)
        self.own = linearize(call.trace(once)) if has_own else None
        self.moves = Moves.of(self.linearized, self.own, host, cost) if host and isinstance(cost, Device) else None
        least = operations(self.linearized.trace.cost)
        signature = Signature(call.f, call.args, call.kwargs)
        self.problem = SearchProblem(once, signature, target, cost, least, self.moves, call.grad_mask)
        self.fixed_bytes = self.linearized.fixed_bytes
        self.cuts = [*itertools.islice(saved_at_cuts(self.linearized), SETTINGS.cuts)]
        self.blocks = BlockProposer(self.problem, self.linearized, self.cuts)
        self.checkpoints = CheckpointProposer(self.problem, call, self.linearized, self.own)
        self._propose_schedules()

    def _propose_schedules(self) -> None:
        """Set up the proposers of schedules."""
        # Fixing the values at narrow places as saved splits the 0/1 program into small problems that are solved well.
        # With offloading, saving other values and moving them to the host may be better, so nothing is fixed.
        cuts = self.cuts[: SETTINGS.solved_cuts] if self.moves is None else []
        programs = [self._peak_program(saved) for saved in cuts or [frozenset()]]
        self.peaks = PeakProposer(self.problem, programs)
        self.chains = ChainProposer(self.problem, self.linearized)
        self.segments = SegmentProposer(self.problem, programs[0])

    @property
    def name(self) -> str:
        return self.linearized.trace.function

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """The key of this search in the cache of results."""
        cost = self.cost
        counted = repr(cost) if isinstance(cost, Device) else cost if isinstance(cost, Hashable) else object()
        own = digest(self.own) if self.own else ""
        return digest(self.linearized), own, self.target, counted, self.compiles, self.host

    # Results

    def within_peak(self, limit: int) -> tuple[Candidate, float]:
        """Return the best candidate whose compiled peak is within a limit, and a lower bound on the recompute cost.

        Raises:
          PlanError: if no compiled candidate is within the limit.
        """
        known = _RESULTS.get(self.key, ())
        cached = [one for one in known if one.peak <= limit]
        for one in cached:  # a result for a higher limit is the best here too if it fits, so peaks rise with the limit
            if one.limit >= limit:
                return self._restore_candidate(one.choice, one.measurement), one.bound
        self._compile_candidates(max(limit, self.fixed_bytes))
        bound = self._lower_bound(limit)
        least = self._best_cost(limit)
        if cheaper := [one for one in cached if one.recompute_cost < least]:  # found for a lower limit
            cheapest = min(cheaper, key=lambda one: one.recompute_cost)
            self._restore_candidate(cheapest.choice, cheapest.measurement)
        best = self._best_feasible(limit)
        if best is None and (smallest := min(known, key=lambda one: one.peak, default=None)):
            # The message names the smallest peak that any call has found.
            self._restore_candidate(smallest.choice, smallest.measurement)
        found = best or min(self.compiled, key=lambda one: one.peak_bytes)
        if found.measurement is not None and math.isfinite(found.peak_bytes):
            found_for = limit if best else int(found.peak_bytes)
            choice, peak, cost = StoredChoice.of(found, self.own), found.measured_bytes, found.recompute_cost
            result = CachedChoice(choice, found_for, peak, cost, found.measurement, bound)
            _RESULTS[self.key] = (*known[-SETTINGS.remembered_results :], result)
        if best is None:
            raise PlanError(self._refusal_text(limit, found.peak_bytes))
        return best, bound

    def within_saved(self, limit: int) -> tuple[Candidate, float]:
        """Return the best candidate that saves at most `limit` bytes, and a lower bound on the recompute cost.

        Raises:
          PlanError: if every candidate saves more bytes.
        """
        program = self._peak_program()
        solution = program.best(saved=limit)
        if solution is None:
            raise PlanError(
                f"saved={bytes_text(limit)} is too small: the smallest choice for {self.name} saves "
                f"{program.least_saved:,} bytes, such as the carry of each iteration of a loop. Allow that much."
            )
        candidate = Candidate(self.problem, self.linearized, solution.saved, moved=solution.moved)
        return self._compile_candidate(candidate), solution.bound

    def recall(self, choice: StoredChoice, made: Compiled) -> None:
        """Add a candidate that another process compiled."""
        candidate = self._restore_candidate(choice)
        candidate.measurement = Measurement(self.call.trace(candidate.function), self.target, made)

    # Choice of the next candidate to compile

    def _compile_candidates(self, limit: int) -> None:
        """Compile candidates until no better candidate remains, or the allowed number of compiles is reached."""
        unconstrained = self._saves_everything
        if unconstrained.estimated_bytes <= limit - self.fixed_bytes and self._compile_candidate(unconstrained).fits(
            limit
        ):
            return
        while len(self.compiled) < self.compiles and (candidate := self._propose_next(limit)) is not None:
            self._compile_candidate(candidate)

    def _propose_next(self, limit: int) -> Candidate | None:
        """Return the candidate to compile next; None if no better candidate remains."""
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
        """Return the schedule that exceeded the limit by the least, without its smallest saved values.

        Return None if the schedule exceeded the limit by much, or if the trimmed schedule is not better.
        """
        failed = (one for one in self.compiled if not one.fits(limit))
        closest = min(failed, key=lambda one: one.peak_bytes, default=None)
        if closest is None or closest.placement is not None or closest.snapshots:
            return None
        excess, small = closest.peak_bytes - limit, SETTINGS.trim_limit * (limit - self.fixed_bytes)
        if excess >= small:
            return None
        for dropped in (max(4 * excess, small), excess):
            trimmed = closest.trimmed(dropped)
            before, after = (self.problem.work(one.schedule) for one in (closest, trimmed))
            is_cheap = after < before + SETTINGS.trim_cost * self.problem.least
            is_better = is_cheap and trimmed.recompute_cost < self._best_cost(limit)
            # Recomputing the dropped values may take more memory than saving them.
            if is_better and self._is_new(trimmed) and trimmed.estimated_bytes <= closest.estimated_bytes:
                return trimmed
        return None

    def _cheaper_fallback(self, limit: int) -> Candidate | None:
        """Return the fallback if it recomputes less than the best candidate and earlier candidates did not fit.

        With fewer compiles, the fallback would have been the result.
        """
        cost = self._best_cost(limit)
        if math.isinf(cost) or self.compiled[0].fits(limit) or self._is_proven(cost, self._estimate_target(limit)):
            return None
        fallback = self._fixed_fallback(limit)
        return fallback if fallback.recompute_cost < cost and self._is_new(fallback) else None

    def _cheapest_expected(self, limit: int) -> Candidate | None:
        """Return the candidate with the least recompute that is expected to fit; None if none improves on the best."""
        target = self._estimate_target(limit)
        self._fill_pool(target)
        ceiling = (1 - SETTINGS.min_improvement) * self._best_cost(limit)
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
        # The first candidate may slightly exceed the target, because it can be trimmed if it does not fit.
        most = target if has_failed else (1 + SETTINGS.overshoot) * target
        candidates = [*self._fixed_candidates, *self.pool.candidates]
        for candidate in sorted(candidates, key=lambda one: one.recompute_cost):
            if candidate.recompute_cost >= ceiling:
                break
            if self._is_new(candidate) and candidate.estimated_bytes <= most:
                return candidate
        if has_failed or not self.blocks.applies:
            return None
        near = self.pool.within(SETTINGS.block_slack * most)
        above = [one for one in near if one.recompute_cost < ceiling and self._is_new(one)]
        return min(above, key=lambda one: one.estimated_bytes, default=None)

    def _inside_bracket(self, limit: int, ceiling: float) -> Candidate | None:
        """Return the better candidate with the smallest estimate, if that is below the estimate of a failed schedule.

        On devices other than a CPU, estimates are rough, so such a candidate may fit although its estimate exceeds the
        target.
        """
        schedules = [one for one in self.compiled if one.placement is None]
        too_large = self._smallest_failure(schedules, limit)
        if self.target == "cpu" or too_large is None or not any(one.fits(limit) for one in schedules):
            return None
        candidates = (*self._fixed_candidates, *self.pool.candidates)
        inside = (one for one in candidates if one.recompute_cost < ceiling and one.estimated_bytes < too_large)
        return min(filter(self._is_new, inside), key=lambda one: one.estimated_bytes, default=None)

    def _are_checkpoints_promising(self, cost: float, target: float) -> bool:
        """Return whether plain checkpoints may recompute less than a cost. If not, the search does not trace them.

        Tracing all of them is slow.
        """
        if self.linearized.closed or math.isinf(cost):
            return True
        most = max((one.recompute_cost for one in self._fixed_candidates), default=math.inf)
        if not self.compiled and cost <= most:
            return False  # compile a schedule first
        return not self._is_proven(cost, target) and cost > SETTINGS.checkpoints_share * most

    def _fill_pool(self, target: float) -> None:
        """Add the candidates that the proposers find for a target, unless they did so for nearly the same target."""
        same = 1 - SETTINGS.same_target
        if any(same * target <= other <= target / same for other in self._targets):
            return
        self._targets.append(target)
        self.tell("choosing which values to save", 0)
        schedules: tuple[Proposer, ...] = (self.peaks, self.chains, self.segments)
        for proposer in (self.blocks,) if self.blocks.applies else schedules:
            for candidate in proposer.propose(target, self.pool):
                self.pool.candidates.append(candidate)

    # Targets

    def _estimate_target(self, limit: int) -> float:
        """Return the estimated bytes of temporaries at which a schedule is expected to just fit."""
        available = limit - self.fixed_bytes
        schedules = [one for one in self.compiled if one.placement is None]
        fitting = [one.estimated_bytes for one in schedules if one.fits(limit)]
        target = available / self._measured_ratio(schedules)
        too_large = self._smallest_failure(schedules, limit)
        if too_large is not None:
            if fitting:
                return (max(fitting) + too_large) / 2
            slack = 1 if self.target == "cpu" else 1 + SETTINGS.target_slack
            target = min(slack * target, (1 - SETTINGS.step_below) * too_large)
        failed = [one for one in schedules if not one.fits(limit)]
        if len(failed) > 1 and not fitting:
            ratios = [self._measured_share(one) for one in failed if math.isfinite(one.peak_bytes)]
            target = min([target, *(SETTINGS.safe_fill * available / ratio for ratio in ratios)])
        return target

    def _smallest_failure(self, schedules: Sequence[Candidate], limit: int) -> int | None:
        """Return the smallest estimate of the schedules that did not fit; None if there is none.

        A failure is ignored if its estimate is smaller than that of a success, because the estimates of different kinds
        of schedules have different errors. A failure that recomputes more than the best candidate is ignored too.
        """
        cost = self._best_cost(limit)
        largest = max((one.estimated_bytes for one in schedules if one.fits(limit)), default=0)
        failed = (one for one in schedules if not one.fits(limit) and one.recompute_cost < cost)
        return min((one.estimated_bytes for one in failed if one.estimated_bytes > largest), default=None)

    def _measured_ratio(self, schedules: Sequence[Candidate]) -> float:
        """Return the ratio of measured to estimated bytes of the schedule that was compiled last.

        For a schedule without a measured peak, increase the previous ratio.
        """
        ratio = 1.0
        for one in schedules:
            fits = math.isfinite(one.peak_bytes)
            ratio = self._measured_share(one) if fits else SETTINGS.unmeasured_growth * ratio
        return ratio

    def _measured_share(self, candidate: Candidate) -> float:
        return max(candidate.peak_bytes - self.fixed_bytes, 1) / max(candidate.estimated_bytes, 1)

    def _checkpoint_target(self, limit: int) -> float:
        """Return the estimated bytes at which plain checkpoints are expected to just fit.

        On a CPU, the error of the estimate differs between plain checkpoints and schedules, so only the former count.
        """
        tried = [one for one in self.compiled if one.placement is not None or self.target != "cpu"]
        return (limit - self.fixed_bytes) / max(map(self._measured_share, tried), default=1)

    # Knowledge about candidates

    def _best_feasible(self, limit: int) -> Candidate | None:
        """Return the compiled candidate that fits and has the least recompute; None if none fits."""
        fitting = (one for one in self.compiled if one.fits(limit))
        return min(fitting, key=lambda one: (one.recompute_cost, one.peak_bytes), default=None)

    def _best_cost(self, limit: int) -> float:
        return math.inf if (best := self._best_feasible(limit)) is None else best.recompute_cost

    def _is_new(self, candidate: Candidate) -> bool:
        return not any(one.is_like(candidate) for one in self.compiled)

    def _is_proven(self, cost: float, target: float) -> bool:
        """Return whether the bound of the 0/1 program near a target proves that no schedule recomputes much less."""
        near = (1 - SETTINGS.near_target) * target
        bound = self.pool.lowest_bound(target, above=near)
        return math.isfinite(bound) and (1 - SETTINGS.min_improvement) * cost <= bound

    def _lower_bound(self, limit: int) -> float:
        """Return a lower bound on the recompute of candidates that are expected to fit; 0 if nothing was proven."""
        best = self._best_feasible(limit)
        if best is None or best is self._saves_everything:
            return 0.0
        proven = [one for one in self.compiled if one.bound]
        bound = min((one.bound for one in proven if one.fits(limit)), default=0.0)
        bound = bound or min((one.bound for one in proven), default=0.0)
        if (best.placement or best.snapshots or best.segments) and best.recompute_cost < bound:
            return 0.0  # the best candidate is not a choice of the 0/1 program, so the bound does not apply to it
        # The search skips candidates that recompute only slightly less than the best one, so the bound includes them.
        skipped = self._cheapest_schedule(limit, self._estimate_target(limit), best.recompute_cost) if bound else None
        return min(bound, skipped.recompute_cost) if skipped else bound

    # Fallbacks

    def _fallback_candidate(self, limit: int) -> Candidate | None:
        """Return the candidate to compile if nothing fits; None if all were compiled."""
        safest = self._fixed_fallback(limit)
        if self._is_new(safest):
            return safest
        rest = [one for one in (*self._smallest_candidates, *self.pool.candidates) if self._is_new(one)]
        return self._smallest_of(rest) if rest else None

    def _fixed_fallback(self, limit: int) -> Candidate:
        """Return the fallback, which does not depend on the compiled candidates.

        On a CPU, the fallback consists of plain checkpoints if possible, because their estimated peak is the most
        accurate: the cheapest placement that is expected to fit with a margin, or else the smallest placement that is
        expected to fit. If no placement is expected to fit, and on other devices, it is the smallest candidate.
        """
        available = limit - self.linearized.fixed_bytes
        fitting = [one for one in self.checkpoints.all if one.estimated_bytes <= available]
        if self.target != "cpu" or not fitting:
            return self._smallest_of(self._smallest_candidates)
        spare = [one for one in fitting if one.estimated_bytes <= SETTINGS.safe_fill * available]
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
        """The candidate that saves the same residuals as JAX without checkpoints."""
        if self.linearized.closed:
            return self.checkpoints.candidate(CheckpointPlacement())
        return Candidate(self.problem, self.linearized, self.linearized.saved)

    @cached_property
    def _fixed_candidates(self) -> list[Candidate]:
        """Schedules for any target: those of JAX's policies, of narrow places, and of the author's checkpoints."""
        policies = (getattr(jax.checkpoint_policies, name) for name in POLICIES)
        made = [Candidate(self.problem, self.linearized, self.linearized.saved_by(policy)) for policy in policies]
        made += [Candidate(self.problem, self.linearized, saved) for saved in self.cuts]
        if self.own is not None:
            made.append(Candidate(self.problem, self.own, self.own.saved))
        return made

    # Making and compiling candidates

    def _peak_program(self, saved: frozenset[Value] = frozenset()) -> PeakProgram:
        if self.moves is None:
            return PeakProgram(self.linearized, saved, self.cost)
        return HostPeakProgram(self.moves, saved, self.cost)

    def _restore_candidate(self, choice: StoredChoice, measurement: Measurement | None = None) -> Candidate:
        """Add a candidate that was compiled before."""
        if choice.placement is not None:
            candidate = self.checkpoints.candidate(choice.placement)
        else:
            linearized = self.own if choice.of_own and self.own is not None else self.linearized
            linearized = self.segments.linearized(choice.segments) if choice.segments else linearized
            saved, snapshots, moved = choice.values(linearized)
            candidate = Candidate(
                self.problem, linearized, saved, snapshots=snapshots, moved=moved, segments=choice.segments
            )
        candidate.measurement = measurement
        self.compiled.append(candidate)
        return candidate

    def _compile_candidate(self, candidate: Candidate) -> Candidate:
        count, saved = f"{len(self.compiled) + 1} of {self.compiles}", bytes_text(candidate.schedule.saved_bytes)
        self.tell(f"compiling candidate {count} ({saved} saved) for {self.target}", 0)
        call = self.call
        made = measure_call(candidate.function, call.args, call.kwargs, self.target, call.grad_mask)
        candidate.measurement = made
        if made.memory is not None:
            self.fixed_bytes = made.memory.peak_bytes - made.memory.temp_bytes
        self.compiled.append(candidate)
        return candidate

    def _refusal_text(self, limit: int, least: float) -> str:
        """Return the message that nothing is within a limit, with the smallest peak that was compiled."""
        if limit < self.fixed_bytes:
            why = (
                f"{self.name} needs {bytes_text(self.fixed_bytes)} for its arguments, outputs and gradients alone, "
                f"{bytes_text(self.fixed_bytes - limit)} more than {bytes_text(limit)}."
            )
        else:
            why = f"no compiled choice for {self.name} on {self.target} stays within {bytes_text(limit)}."
        if math.isinf(least):
            return f"{why} None of them fits: reduce the batch size."
        return (
            f"{why} The smallest peak found is {int(least):,} bytes ({bytes_text(least)}): allow that much, "
            f"reduce the batch size, or try more with compiles={2 * self.compiles}."
        )
