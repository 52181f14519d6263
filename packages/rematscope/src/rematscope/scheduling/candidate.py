"""Candidates of `auto`: what they save, their estimated memory, and their recompute.

Each of these figures takes a while to compute for a long program, so it is computed when it is first asked for.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Protocol

from rematscope.choices.build import CostFunction, work
from rematscope.ir.program import Equation, Value
from rematscope.memory.xla_estimate.estimate import estimate_temporary_bytes
from rematscope.scheduling.backward_emitter import Snapshot
from rematscope.scheduling.checkpoint_placement import CheckpointPlacement, checkpointed
from rematscope.scheduling.costs import recompute_cost_of, work_in
from rematscope.scheduling.divided import Segments
from rematscope.scheduling.host import Moves
from rematscope.scheduling.linearize import Linearized
from rematscope.scheduling.planned import Planned, scheduled_function
from rematscope.scheduling.schedule import Schedule, schedule
from rematscope.tracing.checkpoints import CalledOnce
from rematscope.tracing.signature import Signature
from rematscope.tracing.trace import Trace
from rematscope.xla.measure import Measurement


@dataclasses.dataclass(eq=False)
class SearchProblem:
    """The function that a search is about, with its target and cost.

    Attributes:
      once: the function, as it was traced.
      signature: the call that it was traced for.
      target: the device that candidates are compiled for.
      cost: the cost of recomputing an operation, which the search minimizes.
      least: the FLOPs and transcendentals of both passes with everything saved.
      moves: the values that may be offloaded to the host; None without a host.
      grad_mask: which leaves of a call get a gradient; None for all.
    """

    once: CalledOnce
    signature: Signature
    target: str
    cost: CostFunction
    least: int
    moves: Moves | None = None
    grad_mask: Sequence[bool] | None = None
    _known: dict[Equation, float] = dataclasses.field(default_factory=dict)  # choices have most of theirs in common

    def work(self, programs: Schedule | Trace) -> float:
        """Return the FLOPs and transcendentals of both programs of a candidate."""
        total: float = 0
        for equation in (*programs.forward.equations, *programs.backward.equations):
            if equation not in self._known:
                self._known[equation] = work_in(equation)
            total += self._known[equation]
        return total


@dataclasses.dataclass(eq=False)
class Candidate:
    """A choice of saved values, or of plain checkpoints, that the search compiled or may compile.

    Attributes:
      problem: the function and its target.
      linearized: the primal and the backward program that the choice is about.
      saved: the values of the primal program that are saved.
      snapshots: the points at which the backward pass drops recomputed values.
      placement: the placement of its plain checkpoints; None for a schedule.
      moved: the saved values that are offloaded to the host.
      segments: the segments into which loops of `linearized` are divided; the function itself has none.
      bound: a proven lower bound on the recompute of all choices within the limit of the 0/1 program that proposed this
        candidate; 0 if nothing was proven.
      measurement: the compiled program; None if it was not compiled.
    """

    problem: SearchProblem
    linearized: Linearized
    saved: frozenset[Value]
    snapshots: tuple[Snapshot, ...] = ()
    placement: CheckpointPlacement | None = None
    moved: frozenset[Value] = frozenset()
    segments: tuple[Segments, ...] = ()
    bound: float = 0.0
    measurement: Measurement | None = None

    @cached_property
    def schedule(self) -> Schedule:
        """The two programs of the candidate."""
        return schedule(self.linearized, self.saved, self.snapshots, self.moved, self.problem.target)

    @cached_property
    def function(self) -> Planned:
        """The function with the gradient of this candidate."""
        problem = self.problem
        if self.placement is not None:
            run = checkpointed(problem.once, self.placement)
        else:
            run = scheduled_function(problem.once, self.schedule, problem.grad_mask)
        return Planned(problem.once, problem.signature, run, problem.grad_mask)

    @property
    def _both_programs(self) -> Schedule | Trace:
        """The forward and the backward program, as JAX traces them with plain checkpoints, or as scheduled."""
        return self.schedule if self.placement is None else self.linearized.trace

    @cached_property
    def estimated_bytes(self) -> int:
        programs = self._both_programs
        returned = [*self.linearized.primal.outputs, *programs.backward.outputs]
        return estimate_temporary_bytes([programs.forward, programs.backward], returned, self.problem.target)

    @cached_property
    def recompute_cost(self) -> float:
        """The cost of both passes minus their cost if everything is saved, in FLOPs and transcendentals.

        With another cost function, it is the cost of the operations that the backward pass recomputes.
        """
        in_work = self.problem.cost == work
        if not in_work:
            waited = self.problem.moves.waited(self.schedule.host_bytes) if self.problem.moves else 0
            return recompute_cost_of(self.linearized, self.schedule, self.problem.cost) + waited
        return max(0, self.problem.work(self._both_programs) - self.problem.least)

    def trimmed(self, most: float) -> "Candidate":
        """Return the candidate without the smallest values that it saves.

        Args:
          most: the minimum number of bytes to drop. Values whose recompute would rerun a loop stay saved.
        """
        made = self.schedule
        ends = {v for e in made.forward.equations if e.primitive == "scan" for v in e.outputs[: e.carries]}
        rest = sorted(
            (pair for pair in zip(made.saved, made.values, strict=True) if pair[1] not in self.moved),
            key=lambda pair: (pair[0] in ends, pair[0].nbytes),
            reverse=True,
        )
        dropped = 0.0
        while rest and dropped < most and rest[-1][0] not in ends and (not dropped or rest[-1][0].nbytes <= most):
            dropped += rest.pop()[0].nbytes
        saved = self.moved.union(value for _, value in rest)
        return dataclasses.replace(self, saved=saved, bound=0.0, measurement=None)

    def is_like(self, other: "Candidate") -> bool:
        """Whether both candidates have the same programs."""
        if self.placement is not None or other.placement is not None:
            return self.placement == other.placement
        mine, others = (({*p.schedule.values}, p.snapshots, p.moved) for p in (self, other))
        return mine == others

    @property
    def peak_bytes(self) -> float:
        """The bytes that the compiled program needs; infinite if it does not fit on the device."""
        made = self.measurement
        return math.inf if made is None else made.peak_or_infinity

    @property
    def measured_bytes(self) -> float:
        """The bytes that JAX's `memory_analysis` reports for the gradient of a loss.

        Unlike `peak_bytes`, they include neither the cotangent of a scalar nor the compiler's constants.
        """
        if self.measurement is None or self.measurement.memory is None:
            return math.inf
        made = self.measurement.memory
        ones = sum(v.device_bytes for v in self.linearized.trace.cotangents if not v.shape)
        held = made.argument_bytes + sum(v.device_bytes for v in self.linearized.primal.constants)
        step = held + made.output_bytes - made.overwritten_bytes + made.temp_bytes
        return min(step, made.peak_bytes) - ones

    def fits(self, limit: int) -> bool:
        """Whether the compiled program is within a limit."""
        return self.measured_bytes <= limit


class CandidatePool:
    """All candidates that were proposed for any target.

    Attributes:
      candidates: the candidates, in the order of the proposals.
    """

    def __init__(self) -> None:
        self.candidates: list[Candidate] = []

    def within(self, target_bytes: float) -> list[Candidate]:
        """Return the candidates whose estimate is at most the target."""
        return [one for one in self.candidates if one.estimated_bytes <= target_bytes]

    def cheapest_cost(self, target_bytes: float) -> float:
        """Return the least recompute of the candidates within a target; infinite without one."""
        return min((one.recompute_cost for one in self.within(target_bytes)), default=math.inf)

    def lowest_bound(self, target_bytes: float, *, above: float = 0) -> float:
        """Return the lowest bound that was proven for candidates within a target; infinite without one.

        Args:
          above: the least estimate of the candidates that are considered.
        """
        proven = (one.bound for one in self.within(target_bytes) if one.bound and one.estimated_bytes >= above)
        return min(proven, default=math.inf)


class Proposer(Protocol):
    """A method to find candidates."""

    def propose(self, target_bytes: float, pool: CandidatePool) -> Iterator[Candidate]:
        """Yield candidates whose estimated temporaries approach a target.

        Args:
          target_bytes: the bytes of temporaries that candidates should need.
          pool: all candidates so far. Each yielded candidate is added to the pool before the next one is requested.
        """
        ...
