"""What `auto` found: a function, what it keeps and computes again, and how well that is known. Displays itself."""

import dataclasses
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

from rematscope.choices.build import work
from rematscope.ir.program import Equation, Program, Value, type_text
from rematscope.ir.source import Source
from rematscope.memory.liveness import live_bytes
from rematscope.memory.timeline import Timeline
from rematscope.render.files import write_whole
from rematscope.render.parts import Lines, Paragraph, TextTable
from rematscope.render.units import bytes_text, count_text
from rematscope.render.view import View
from rematscope.scheduling.linearize import Linearized
from rematscope.scheduling.schedule import Schedule
from rematscope.scheduling.structure import digest, places
from rematscope.xla.measure import Measurement

_LINES = 12  # of a table


@dataclasses.dataclass(eq=False)
class Proposal:
    """A choice that was compiled, or may be.

    Attributes:
      function: what computes and differentiates so.
      linearized: the programs that the choice is about.
      kept: the choice, of values of the primal program.
      schedule: its two programs.
      predicted: bytes of temporaries that the programs say.
      recomputed: what both passes compute beyond what they do where everything is kept: FLOPs and transcendentals.
      stretches: None if it is scheduled; else it has JAX's plain checkpoints: its author's, or between these cuts.
      measurement: what XLA made of it; None if it was not compiled.
    """

    function: Callable[..., Any]
    linearized: Linearized
    kept: frozenset[Value]
    schedule: Schedule
    predicted: int
    recomputed: float
    stretches: tuple[int, ...] | None = None
    measurement: Measurement | None = None

    def is_like(self, other: "Proposal") -> bool:
        """Whether both keep the same, scheduled alike."""
        return (self.stretches, self.schedule.kept) == (other.stretches, other.schedule.kept)

    @property
    def peak_bytes(self) -> float:
        """Bytes that the compiled program takes while it runs; infinite if there is no room for it.

        Numbers that the compiler wrote into it are no part of that, nor is the cotangent of a scalar: a step has none.
        """
        made = self.measurement
        if made is None or made.out_of_memory:
            return math.inf
        ones = sum(v.device_bytes for v in self.linearized.passes.cotangents if not v.shape)
        held = made.argument_bytes - ones + sum(v.device_bytes for v in self.linearized.primal.constants)
        return held + made.output_bytes - made.overwritten_bytes + made.temp_bytes


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of the user's code, and what it has to do with the backward pass.

    Attributes:
      source: the line; None for what has none.
      what: types of values that are kept, or operations that run again, each once.
      amount: bytes kept, or FLOPs and transcendentals computed again.
    """

    source: Source | None
    what: tuple[str, ...]
    amount: int


class Auto(View):
    """A function within a limit of memory, and how it keeps to it. Displays itself.

    Attributes:
      function: computes and differentiates as the function that `auto` was given.
      limit: bytes of the peak, or of what may be kept.
      limits_peak: which of the two it is.
      target: what was compiled for.
      trials: all that was compiled, in order.
      bound: what every choice within the limit computes again at least: proven in the 0/1 program, with the memory that
        this counts, and not of what a compiler could make.
    """

    def __init__(
        self,
        linearized: Linearized,
        chosen: Proposal,
        trials: list[Proposal],
        limit: int,
        limits_peak: bool,
        target: str,
        bound: float,
    ):
        self._linearized = linearized
        self._chosen = chosen
        self.function = chosen.function
        self.trials = tuple(trials)
        self.limit = limit
        self.limits_peak = limits_peak
        self.target = target
        self.bound = min(bound, chosen.recomputed)

    @property
    def measurement(self) -> Measurement:
        """What XLA made of both passes."""
        assert self._chosen.measurement is not None, "what is returned was compiled"
        return self._chosen.measurement

    @property
    def recomputed(self) -> float:
        """What is computed again: FLOPs and transcendentals of both passes, less those where everything is kept."""
        return self._chosen.recomputed

    @property
    def kept_bytes(self) -> int:
        """Bytes that the forward pass hands to the backward pass beside the arguments."""
        return self._chosen.schedule.kept_bytes

    @cached_property
    def before(self) -> Timeline:
        """Bytes live over both passes where everything is kept, from the trace."""
        return live_bytes(self._linearized.passes)

    @cached_property
    def after(self) -> Timeline:
        """Bytes live over both passes as they are scheduled, from the trace."""
        return self.measurement.predicted

    @cached_property
    def kept(self) -> tuple[Line, ...]:
        """What is kept, by line; the most bytes first."""
        made = _makers(self._chosen.schedule.forward)
        return _by_line((made.get(v), type_text(v), v.nbytes) for v in self._chosen.schedule.kept)

    @cached_property
    def computed_again(self) -> tuple[Line, ...]:
        """What runs in both passes, by line; the most work first."""
        forward = {v for e, _ in self._chosen.schedule.forward.walk() for v in e.outputs}
        again = (
            (e, e.primitive, times * int(work(e)))
            for e, times in self._chosen.schedule.backward.walk()
            if e.outputs and forward.issuperset(e.outputs)
        )
        return _by_line(again)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the choice where `path` ends in `.json`, for `load`; else the page that every view writes.

        Args:
          path: where to.

        Raises:
          OSError: it cannot be written there.
        """
        if not os.fspath(path).endswith(".json"):
            super().save(path)
            return
        linearized = self._chosen.linearized
        said = {
            "function": linearized.passes.function,
            "structure": digest(linearized),
            "checkpoints": linearized is not self._linearized,
            "stretches": self._chosen.stretches,
            "kept": places(linearized, self._chosen.kept),
        }
        write_whole(path, json.dumps(said))

    @property
    def certificate(self) -> str:
        """What was proven, what was compiled, and what is assumed."""
        measured = self.measurement
        gap = f"{100 * (self.recomputed - self.bound) / self.recomputed:.1f} %" if self.recomputed else "0"
        return (
            f"Compiled for {self.target}: {bytes_text(measured.peak_bytes)} with arguments, outputs and gradients, "
            f"{count_text(measured.cost.flops, 'FLOPs')}. Proven in the 0/1 program: no choice computes less than "
            f"{count_text(int(self.bound), 'operations')} again, a gap of {gap}; it computes each value again once at "
            "most, in this order, and predicts what is fused. Assumed: the same shapes, and the same compiler."
        )

    def parts(self) -> Iterable[View]:
        yield Paragraph(self._headline())
        yield TextTable(self._cells(), self.certificate, numeric=("kept", "again", "predicted", "compiled"))
        if self.kept:
            yield TextTable(_table(self.kept, "kept", bytes_text), numeric=("kept",))
        if self.computed_again:
            yield TextTable(_table(self.computed_again, "again", _count), numeric=("again",))
        yield Lines(["memory over both passes, before and after:"])
        yield self.before
        yield self.after

    def _headline(self) -> str:
        peak = self.measurement.peak_bytes
        of = f" of {bytes_text(self.limit)}" if self.limits_peak else ""
        return (
            f"{self._linearized.passes.function}: {bytes_text(peak)}{of}, {bytes_text(self.kept_bytes)} kept, "
            f"{_count(self.recomputed)} computed again"
        )

    def _cells(self) -> list[list[str]]:
        cells = [["", "kept", "again", "predicted", "compiled"]]
        for trial in self.trials:
            fits = math.isfinite(trial.peak_bytes)
            fixed = trial.peak_bytes - trial.measurement.temp_bytes if trial.measurement and fits else 0
            cells.append(
                [
                    "✓" if trial is self._chosen else "",
                    bytes_text(trial.schedule.kept_bytes),
                    _count(trial.recomputed),
                    bytes_text(trial.predicted + fixed),
                    bytes_text(trial.peak_bytes) if fits else "no room",
                ]
            )
        return cells


def _count(number: float) -> str:
    return count_text(int(number), "").rstrip()


def _makers(program: Program) -> dict[Value, Equation]:
    """What makes each value; a stack is made where its slices are."""
    made = {v: e for e in program.equations if e.primitive != "optimization_barrier" for v in e.outputs}
    for equation in program.equations:
        if equation.primitive == "scan":
            inside = _makers(equation.bodies[0])
            pairs = zip(equation.outputs, equation.bodies[0].outputs, strict=True)
            made.update((stack, inside[part]) for stack, part in pairs if part in inside)
    return made


def _by_line(found: Iterable[tuple[Equation | None, str, int]]) -> tuple[Line, ...]:
    amounts: Counter[Source | None] = Counter()
    what: dict[Source | None, dict[str, None]] = {}
    for equation, text, amount in found:
        source = equation.source if equation is not None else None
        amounts[source] += amount
        what.setdefault(source, {})[text] = None
    return tuple(Line(source, tuple(what[source]), amount) for source, amount in amounts.most_common())


def _table(lines: tuple[Line, ...], title: str, text: Callable[[float], str]) -> list[list[str]]:
    rows = [[title, "what", "line"]]
    for line in lines[:_LINES]:
        what = ", ".join(line.what[:4]) + (f" and {len(line.what) - 4} more" if len(line.what) > 4 else "")
        rows.append([text(line.amount), what, str(line.source or "what a loop is handed")])
    if len(lines) > _LINES:
        rows.append([text(sum(line.amount for line in lines[_LINES:])), f"{len(lines) - _LINES} lines more", ""])
    return rows
