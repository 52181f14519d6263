"""Requirements on peak memory, which the residuals do not show."""

from collections.abc import Iterator
from dataclasses import dataclass

from grader.exercises.observation import CaseObservation
from grader.exercises.requirements import Requirement
from grader.util.words import counted
from grader.verdicts.verdict import Finding, FindingKind
from rematscope.render import joined


@dataclass(frozen=True)
class PeakAtMost(Requirement):
    """The peak memory of both passes, without arguments and results, is within a limit.

    The residuals do not show the peak, because recomputed values take memory too. The peak is that of the compiled
    passes, or that of the traced passes in program order, which needs no compilation. The compiled peak can exceed the
    traced one: XLA may reorder operations, or merge recomputed values with the original ones. It does neither across
    iterations of a loop.

    Attributes:
      most: the limit, as a multiple of the arguments' size. A compiled peak is rounded to the nearest integer before it
        is compared, because XLA aligns buffers, which adds a few bytes.
      too_high: the question for an answer with a higher peak.
      unit: the name of a value of the reference; the limit is then a multiple of its size. None for the arguments'
        size.
      compiled: whether the limit applies to the compiled passes instead of the traced ones.
      trip_count: if loops run each matmul at least this many times, a traced peak within the limit suffices, and the
        passes are not compiled; 0 to always compile.
    """

    most: int
    too_high: str
    unit: str | None = None
    compiled: bool = False
    trip_count: int = 0

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
        if not self.compiled or (traced <= self.most and 0 < self.trip_count <= seen.least_trip_count):
            return traced
        return seen.peak(True) / size

    def claim(self, seen: CaseObservation) -> str:
        peak = f"{self._relative_peak(seen):.1f} {self._unit_text(seen)}"
        rounded = ", to the nearest integer" if self.compiled else ""
        return f"the peak memory is {peak}, and the limit is {self.most} times{rounded}"

    def _unit_text(self, seen: CaseObservation) -> str:
        return f"times the size of {self.unit or joined(seen.arguments)}"


@dataclass(frozen=True)
class InPieces(Requirement):
    """No matmul processes more rows at once than a piece has. Unlike a peak, this also applies to small arrays.

    Attributes:
      rows: the number of rows of a piece.
      of: the total number of rows, which the reference's largest matmul processes at once.
      pieces: the name of the pieces in findings, in the plural.
      counts: the name of a piece's rows, in the plural.
      too_large: the question for an answer that processes more rows at once.
    """

    rows: int
    of: int
    pieces: str
    too_large: str
    counts: str = "rows"

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


@dataclass(frozen=True)
class InLoops(Requirement):
    """The text of both passes contains few matmuls, because loops run them.

    The live bytes in the traced order show the peak of a loop. They do not show the peak of unrolled steps: XLA may run
    these in another order, and hold the arrays of all steps at the same time.

    Attributes:
      most: the largest number of matmuls in the text of both passes, in which a matmul in a loop counts once.
      steps: the name of the steps in findings, in the plural.
      too_many: the question for an answer with more matmuls.
    """

    most: int
    steps: str
    too_many: str

    def findings(self, seen: CaseObservation) -> Iterator[Finding]:
        if seen.matmuls > self.most:
            yield Finding(
                FindingKind.PEAK,
                f"Your two passes contain {seen.matmuls} matmuls, counting each loop's matmuls once. XLA may run "
                f"unrolled {self.steps} in any order, so the arrays of all {self.steps} may be in memory at the same "
                "time.",
                expected=f"at most {counted(self.most, 'matmuls')}, counting each loop's matmuls once",
                got=counted(seen.matmuls, "matmuls"),
                next=self.too_many,
            )
