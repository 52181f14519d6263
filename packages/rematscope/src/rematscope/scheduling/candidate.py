"""Choices that `auto` may compile: what they keep, what they are predicted to take and to compute again.

Each of these takes a while to find out in a long program, so it is found out when somebody asks.
"""

import dataclasses
import math
from functools import cached_property

from rematscope.choices.build import CostFunction, work
from rematscope.ir.primitives import MATMULS
from rematscope.ir.program import Equation, Value, nbytes
from rematscope.memory.xla_estimate import estimate_temporary_bytes
from rematscope.scheduling.checkpoint_placement import CheckpointPlacement
from rematscope.scheduling.costs import cost_again, work_in
from rematscope.scheduling.host import Moves
from rematscope.scheduling.linearize import Linearized
from rematscope.scheduling.loop_pairs import Segments
from rematscope.scheduling.planned import Planned, scheduled_as, with_checkpoints
from rematscope.scheduling.schedule import Schedule, Snapshot, schedule
from rematscope.tracing.checkpoints import CalledOnce
from rematscope.tracing.signature import Signature
from rematscope.tracing.trace import Trace
from rematscope.xla.measure import Measurement


@dataclasses.dataclass(eq=False)
class Subject:
    """What is chosen for.

    Attributes:
      once: the function, as it was traced.
      signature: the call that it was traced for.
      target: what is compiled for.
      cost: what is to be least of all that is computed again.
      least: what both passes compute at all events, in FLOPs and transcendentals.
      moves: what may wait on the host, if anything may.
      grad_mask: which leaves of a call get a gradient; None for all.
    """

    once: CalledOnce
    signature: Signature
    target: str
    cost: CostFunction
    least: int
    moves: Moves | None = None
    grad_mask: tuple[bool, ...] | None = None
    _known: dict[Equation, float] = dataclasses.field(default_factory=dict)  # choices have most of theirs in common

    def work(self, programs: Schedule | Trace) -> float:
        """FLOPs and transcendentals of both programs of a choice."""
        total: float = 0
        for equation in (*programs.forward.equations, *programs.backward.equations):
            if equation not in self._known:
                self._known[equation] = work_in(equation)
            total += self._known[equation]
        return total


@dataclasses.dataclass(eq=False)
class Candidate:
    """A choice that was compiled, or may be.

    Attributes:
      subject: what it is a choice for.
      linearized: the programs that the choice is about.
      kept: the choice, of values of the primal program.
      stops: where the backward pass lets go of what it computed again.
      placement: None if it is scheduled; else the plain checkpoints of JAX's that it has.
      moved: those of what is kept that wait in the host's memory.
      segments: those of loops that the programs have, if there are some; the function has none.
      measurement: what XLA made of it; None if it was not compiled.
    """

    subject: Subject
    linearized: Linearized
    kept: frozenset[Value]
    snapshots: tuple[Snapshot, ...] = ()
    placement: CheckpointPlacement | None = None
    moved: frozenset[Value] = frozenset()
    segments: tuple[Segments, ...] = ()
    measurement: Measurement | None = None

    @cached_property
    def schedule(self) -> Schedule:
        """Its two programs."""
        return schedule(self.linearized, self.kept, self.snapshots, self.moved, self.subject.target)

    @cached_property
    def function(self) -> Planned:
        """What computes and differentiates so."""
        subject = self.subject
        if self.placement is not None:
            return with_checkpoints(subject.once, subject.signature, self.placement, subject.grad_mask)
        return scheduled_as(subject.once, subject.signature, self.schedule, subject.grad_mask)

    @property
    def _programs(self) -> Schedule | Trace:
        """As JAX makes them, or as they are scheduled."""
        return self.schedule if self.placement is None else self.linearized.trace

    @cached_property
    def estimated_bytes(self) -> int:
        """Bytes of temporaries that the programs say."""
        programs = self._programs
        returned = [*self.linearized.primal.outputs, *programs.backward.outputs]
        return estimate_temporary_bytes([programs.forward, programs.backward], returned, self.subject.target)

    @cached_property
    def lower_bound_bytes(self) -> int:
        """Bytes that the programs say at least, which is seen at once: products that are kept, and what loops stack,
        are there when the backward pass begins, but for what lies in results' rooms until these are made."""
        made, maker_of = self.schedule, self.linearized.maker_of
        kept = (v for v, own in zip(made.kept, made.values, strict=True) if _is_written(v, own, maker_of.get(own)))
        returned = {*self.linearized.primal.outputs, *made.backward.outputs}
        rooms = sum(nbytes(v.on_device) for v in returned)
        return sum(v.device_bytes for v in kept if v.memory == "device") - rooms

    @cached_property
    def recompute_cost(self) -> float:
        """What both passes compute beyond what they do where everything is kept: FLOPs and transcendentals, or in the
        unit of another cost what the backward pass computes again."""
        in_work = self.subject.cost == work
        if not in_work:
            waited = self.subject.moves.waited(self.schedule.host_bytes) if self.subject.moves else 0
            return cost_again(self.linearized, self.schedule, self.subject.cost) + waited
        return max(0, self.subject.work(self._programs) - self.subject.least)

    def trimmed(self, most: float) -> "Candidate":
        """The choice without the smallest of what it keeps, so many bytes at least; no loop runs again for that."""
        made = self.schedule
        ends = {v for e in made.forward.equations if e.primitive == "scan" for v in e.outputs[: e.carries]}
        rest = sorted(
            (pair for pair in zip(made.kept, made.values, strict=True) if pair[1] not in self.moved),
            key=lambda pair: (pair[0] in ends, pair[0].nbytes),
            reverse=True,
        )
        dropped = 0.0
        while rest and dropped < most and rest[-1][0] not in ends and (not dropped or rest[-1][0].nbytes <= most):
            dropped += rest.pop()[0].nbytes
        kept = self.moved.union(value for _, value in rest)
        return dataclasses.replace(self, kept=kept, measurement=None)

    def is_like(self, other: "Candidate") -> bool:
        """Whether both keep the same, scheduled alike."""
        if self.placement is not None or other.placement is not None:
            return self.placement == other.placement
        mine, others = (({*p.schedule.values}, p.snapshots, p.moved) for p in (self, other))
        return mine == others

    @property
    def peak_bytes(self) -> float:
        """Bytes that the compiled program takes while it runs; infinite if there is no room for it."""
        made = self.measurement
        return math.inf if made is None or made.out_of_memory else made.peak_bytes

    @property
    def measured_bytes(self) -> float:
        """The same as whoever compiles a loss's gradient, and takes that for a limit, reads it: it has no cotangent of
        a scalar, and JAX's `memory_analysis` does not count numbers that the compiler wrote."""
        made = self.measurement
        if made is None or made.out_of_memory:
            return math.inf
        ones = sum(v.device_bytes for v in self.linearized.trace.cotangents if not v.shape)
        held = made.argument_bytes + sum(v.device_bytes for v in self.linearized.primal.constants)
        step = held + made.output_bytes - made.overwritten_bytes + made.temp_bytes
        return min(step, made.peak_bytes) - ones

    def fits(self, limit: int) -> bool:
        """Whether that is no more than a limit."""
        return self.measured_bytes <= limit


def _is_written(kept: Value, value: Value, maker: Equation | None) -> bool:
    """Whether what is kept of a value is there for sure: a stack, or a product's result."""
    return kept is not value or (maker is not None and maker.primitive in MATMULS)
