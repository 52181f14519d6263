"""Requirements on peak memory, which the residuals do not show."""

from collections.abc import Iterator
from dataclasses import dataclass

from grader.exercises.observation import CaseObservation
from grader.util.words import counted, joined
from grader.verdicts.verdict import Finding, FindingKind


@dataclass(frozen=True)
class PeakAtMost:
    """Both passes need no more memory at once than this, in addition to arguments and results.

    Residuals do not tell: recomputed values are in memory too. The peak is that of both passes as XLA compiles them, or
    the one in the order in which they were traced, for which nothing is compiled. XLA can exceed the latter: it may run
    operations in another order, or merge what is recomputed with what was computed. It does neither across iterations
    of a loop.

    Attributes:
      most: the highest peak, in sizes of the case's arguments. A compiled peak is compared to the nearest integer:
        XLA aligns buffers, which takes a few bytes more.
      too_high: the question for an answer that needs more.
      unit: the name of the reference's value in whose sizes the peak is counted; None for the arguments'.
      compiled: whether the compiled passes count, or the traced ones.
      turns: in passes whose loops run each matmul so often, a low enough peak of the traced passes is enough, so that
        nothing needs to be compiled; 0 if loops make no difference.
    """

    most: int
    too_high: str
    unit: str | None = None
    compiled: bool = False
    turns: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        return (self.unit,) if self.unit else ()

    def findings(self, seen: CaseObservation) -> Iterator[Finding]:
        peak = self._relative_peak(seen)
        if (round(peak) if self.compiled else peak) <= self.most:
            return
        how = "Compiled by XLA" if self.compiled else "Run one operation at a time"
        text = f"{how}, your two passes have a peak memory of {peak:.1f} {self._unit_text(seen)}"
        yield Finding(
            FindingKind.PEAK,
            f"{text}, in addition to {joined(seen.arguments)} and the results.",
            expected=f"at most {self.most} {self._unit_text(seen)}",
            got=f"{peak:.1f} {self._unit_text(seen)}",
            next=self.too_high,
        )

    def _relative_peak(self, seen: CaseObservation) -> float:
        size = seen.wanted[self.unit].nbytes if self.unit else seen.input_bytes
        traced = seen.peak(False) / size
        if not self.compiled or (traced <= self.most and 0 < self.turns <= seen.turns):
            return traced
        return seen.peak(True) / size

    def claim(self, seen: CaseObservation) -> str:
        peak = f"{self._relative_peak(seen):.1f} {self._unit_text(seen)}"
        rounded = ", to the nearest integer" if self.compiled else ""
        return f"the peak memory is {peak}, and the limit is {self.most} times{rounded}"

    def _unit_text(self, seen: CaseObservation) -> str:
        return f"times the size of {self.unit or joined(seen.arguments)}"


@dataclass(frozen=True)
class InPieces:
    """No matmul takes more rows at once than a piece has. A peak tells only where arrays are large; this, everywhere.

    Attributes:
      rows: the rows of a piece.
      of: all rows; the reference's largest matmul takes them at once.
      pieces: the pieces' name in findings, in the plural.
      counts: what a piece consists of, in the plural.
      too_large: the question for an answer that takes more rows at once.
    """

    rows: int
    of: int
    pieces: str
    too_large: str
    counts: str = "rows"
    names = ()

    def findings(self, seen: CaseObservation) -> Iterator[Finding]:
        of_a_row = max(seen.reference_flops) // self.of
        if (rows := seen.largest_matmul // of_a_row) > self.rows:
            allowed, got = counted(self.rows, self.counts), counted(rows, self.counts)
            yield Finding(
                FindingKind.PEAK,
                f"One matmul in your two passes processes {got} at once, so the results of all of them are in "
                f"memory at the same time. Each of the {self.pieces} has at most {allowed}.",
                expected=f"at most {allowed} per matmul",
                got=got,
                next=self.too_large,
            )

    def claim(self, seen: CaseObservation) -> None:
        return None  # PeakAtMost says it
