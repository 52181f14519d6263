"""The search of `auto` for one function: its programs, proposers and results. `driver.py` decides what is compiled."""

import itertools
import math
from collections.abc import Callable, Hashable
from functools import cached_property
from typing import Any

from rematscope.choices.build import CostFunction, work
from rematscope.errors import PlanError
from rematscope.ir.program import Value
from rematscope.render.units import bytes_text
from rematscope.scheduling.cached_choice import CachedChoice, ResultCache
from rematscope.scheduling.candidate import Candidate, Subject
from rematscope.scheduling.candidate_pool import CandidatePool
from rematscope.scheduling.captured import captured
from rematscope.scheduling.chain_proposer import ChainProposer
from rematscope.scheduling.checkpoint_placement import CheckpointPlacement, checkpointed
from rematscope.scheduling.checkpoint_proposer import CheckpointProposer
from rematscope.scheduling.cuts import kept_at_cuts
from rematscope.scheduling.driver import Driver
from rematscope.scheduling.host import HostOffload, HostPeakProgram, Moves
from rematscope.scheduling.linearize import Linearized, linearize
from rematscope.scheduling.peak_program import PeakProgram
from rematscope.scheduling.peak_proposer import PeakProposer, SavedBytesProposer
from rematscope.scheduling.segments import SegmentProposer
from rematscope.scheduling.settings import SETTINGS, SearchSettings
from rematscope.scheduling.tpu_blocks import BlockProposer
from rematscope.scheduling.value_indices import digest, snapshots_at, values_at
from rematscope.seconds.devices import Device
from rematscope.tracing.checkpoints import checkpoints, repeats_what_may_differ, without_checkpoints
from rematscope.tracing.signature import Signature
from rematscope.tracing.trace import trace_call
from rematscope.xla.compiling import Compiled
from rematscope.xla.measure import Measurement, measure_call

_RESULTS = ResultCache(SETTINGS.remembered_results)


class Search(Driver):
    """A search for a plan of one function.

    Attributes: see `Driver`.
    """

    def __init__(
        self,
        f: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        target: str,
        compiles: int,
        cost: CostFunction = work,
        host: HostOffload | None = None,
        grad_mask: tuple[bool, ...] | None = None,
        settings: SearchSettings = SETTINGS,
    ):
        self.f, self.grad_mask, self.host = f, grad_mask, host
        self.args, self.kwargs, self.target, self.cost, self.compiles = args, kwargs, target, cost, compiles
        self.settings = settings
        self.compiled: list[Candidate] = []
        self.pool = CandidatePool()
        self.tell: Callable[[str, float], None] = lambda text, done: None
        self._targets: list[float] = []  # for which the proposers were asked
        self._by_placement: dict[CheckpointPlacement, Candidate] = {}
        once = captured(f, args, kwargs)
        self.linearized = self._trace_linearized(without_checkpoints(once))
        has_own = any(checkpoints(once.jaxpr)) and not repeats_what_may_differ(once.jaxpr)
        self.own = self._trace_linearized(once) if has_own else None
        self.moves = Moves.of(self.linearized, self.own, host, cost) if host and isinstance(cost, Device) else None
        whole = self.linearized.trace.cost
        least = whole.flops + whole.transcendentals
        signature = Signature(f, args, kwargs)
        self.subject = Subject(once, signature, target, cost, least, self.moves, grad_mask, settings)
        self.fixed_bytes = self.linearized.fixed_bytes
        self.cuts = [*itertools.islice(kept_at_cuts(self.linearized), settings.cuts)]
        self.blocks = BlockProposer(self.subject, self.linearized, self.cuts)
        self.checkpoints = CheckpointProposer(
            once, args, kwargs, has_own=has_own, closed=self.linearized.closed, target=target, settings=settings,
            make=self._with_checkpoints,
        )  # fmt: skip
        self._propose_schedules()

    def _propose_schedules(self) -> None:
        """Set up the proposers of schedules."""
        # The values at narrow places are saved in any case: each stretch in between is a small problem, solved well.
        # With a host, other values may be saved instead, and moved there.
        cuts = self.cuts[: self.settings.solved_cuts] if self.moves is None else []
        programs = [self._peak_program(saved) for saved in cuts or [frozenset()]]
        self.peaks = PeakProposer(self.subject, programs)
        self.chains = ChainProposer(self.subject, self.linearized)
        self.segments = SegmentProposer(self.subject, programs[0])
        self.saved_bytes = SavedBytesProposer(self.subject, programs)

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.linearized.trace.function

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """The key of this search in the cache of results."""
        cost = self.cost
        counted = repr(cost) if isinstance(cost, Device) else cost if isinstance(cost, Hashable) else object()
        own = digest(self.own) if self.own else ""
        return digest(self.linearized), own, self.target, counted, self.compiles, self.host, self.settings

    # Results

    def within_peak(self, limit: int) -> tuple[Candidate, float]:
        """Return the best candidate whose compiled peak is within a limit, and a lower bound of every recompute.

        Raises:
          PlanError: if no compiled candidate is within the limit.
        """
        cached = _RESULTS.within(self.key, limit)
        for one in cached:  # the best for a higher limit is the best here too if it fits, so peaks never rise
            if one.limit >= limit:
                return self._recall_result(one), one.bound
        self._compile_candidates(max(limit, self.fixed_bytes))
        bound = self._lower_bound(limit)
        least = self._best_cost(limit)
        if cheaper := [one for one in cached if one.recompute_cost < least]:  # found for a lower limit
            self._recall_result(min(cheaper, key=lambda one: one.recompute_cost))
        best = self._best_feasible(limit)
        if best is None and (smallest := _RESULTS.smallest(self.key)):
            self._recall_result(smallest)  # the message names the smallest peak that any call has found
        found = best or min(self.compiled, key=lambda one: one.peak_bytes)
        if found.measurement is not None and math.isfinite(found.peak_bytes):
            found_for = limit if best else int(found.peak_bytes)
            _RESULTS.add(self.key, CachedChoice.of(found, found_for, found.linearized is self.own, bound))
        if best is None:
            raise PlanError(self._refusal_text(limit, found.peak_bytes))
        return best, bound

    def within_saved(self, limit: int) -> tuple[Candidate, float]:
        """Return the best candidate that saves at most so many bytes, and a lower bound of every recompute.

        Raises:
          PlanError: if no candidate saves so little.
        """
        program = self._peak_program()
        solution = program.best(saved=limit)
        if solution is None:
            raise PlanError(
                f"saved={bytes_text(limit)} is too small: the loops of {self.name} must save the carry of each "
                "iteration. Allow more."
            )
        candidate = self._make_candidate(self.linearized, solution.saved, moved=solution.moved)
        return self._compile_candidate(candidate), solution.bound

    def recall(self, cached: CachedChoice, made: Compiled) -> None:
        """Add a candidate that another process compiled."""
        candidate = self._recall_result(cached)
        passes = trace_call(candidate.function, self.args, self.kwargs, grad_mask=self.grad_mask)
        candidate.measurement = Measurement(passes, self.target, made)

    # Candidates

    def _make_candidate(self, linearized: Linearized, saved: frozenset[Value], **others: Any) -> Candidate:
        return Candidate(self.subject, linearized, saved, **others)

    def _with_checkpoints(self, placement: CheckpointPlacement) -> Candidate:
        if placement not in self._by_placement:
            same = {CheckpointPlacement(): self.linearized, CheckpointPlacement(own=True): self.own}.get(placement)
            linearized = same or self._trace_linearized(checkpointed(self.subject.once, placement))
            self._by_placement[placement] = self._make_candidate(linearized, linearized.kept, placement=placement)
        return self._by_placement[placement]

    def _trace_linearized(self, f: Callable[..., Any]) -> Linearized:
        return linearize(trace_call(f, self.args, self.kwargs, grad_mask=self.grad_mask))

    def _peak_program(self, saved: frozenset[Value] = frozenset()) -> PeakProgram:
        if self.moves is None:
            return PeakProgram(self.linearized, saved, self.cost)
        return HostPeakProgram(self.moves, saved, self.cost)

    def _recall_result(self, cached: CachedChoice) -> Candidate:
        """Add a candidate that an earlier call compiled."""
        if cached.placement is not None:
            candidate = self._with_checkpoints(cached.placement)
        else:
            linearized = self.own if cached.of_own and self.own is not None else self.linearized
            linearized = self.segments.linearized(cached.segments) if cached.segments else linearized
            saved, moved = (values_at(linearized, places) for places in (cached.places, cached.moved))
            snapshots = snapshots_at(linearized, cached.snapshots)
            candidate = self._make_candidate(
                linearized, saved, snapshots=snapshots, moved=moved, segments=cached.segments
            )
        candidate.measurement = cached.measurement
        self.compiled.append(candidate)
        return candidate

    def _compile_candidate(self, candidate: Candidate) -> Candidate:
        count, saved = f"{len(self.compiled) + 1} of {self.compiles}", bytes_text(candidate.schedule.saved_bytes)
        self.tell(f"compiling candidate {count} ({saved} saved) for {self.target}", 0)
        made = measure_call(candidate.function, self.args, self.kwargs, self.target, self.grad_mask)
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
