"""What an exercise may ask of the memory that both passes take at once: what crosses between them does not tell."""

from collections.abc import Iterator
from dataclasses import dataclass

from grader.exercises.behaviour import Behaviour
from grader.util.words import counted
from grader.verdicts.kinds import FindingKind
from grader.verdicts.verdict import Finding


@dataclass(frozen=True)
class PeakAtMost:
    """Both passes need no more memory at once than this, in addition to arguments and results.

    Residuals do not tell: recomputed values are in memory too. The peak is that of both passes as XLA compiles them, or
    the one in the order in which they were traced, for which nothing is compiled. XLA can exceed the latter: it may run
    operations in another order, or merge what is recomputed with what was computed. It does neither across iterations
    of a loop.

    Attributes:
      most: the highest peak, in sizes of the case's arguments, to the nearest integer: buffers are aligned, which takes
        a few bytes more.
      too_high: the question that leads on from an answer that needs more.
      merged: the question that leads on from one that has no barrier, so that XLA merges what is recomputed with what
        was computed; None where loops are recomputed, which it does not merge.
      unit: the name of the reference's value in whose sizes the peak is counted; None for the arguments'.
      compiled: whether the compiled passes count, or the traced ones.
      turns: in passes whose loops run each matmul so often, a low enough peak of the traced passes is enough, so that
        nothing needs to be compiled; 0 if loops make no difference.
    """

    most: int
    too_high: str
    merged: str | None = None
    unit: str | None = None
    compiled: bool = False
    turns: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        return (self.unit,) if self.unit else ()

    def findings(self, seen: Behaviour) -> Iterator[Finding]:
        peak = self._peak(seen)
        if round(peak) <= self.most:
            return
        arguments = " and ".join(seen.arguments)
        how = "Compiled" if self.compiled else "One operation after the other"
        what = f"{peak:.1f} times {self.unit}" if self.unit else f"{peak:.1f} vectors of {arguments}'s size"
        text = f"{how}, your two passes have {what} in memory at the worst moment, besides {arguments} and the results."
        if merged := self.merged and self.compiled and seen.recomputed and not seen.barriers:
            text += (
                " No barrier keeps the recomputed values apart from the forward pass (prevent_cse=False, perhaps), so "
                "XLA computes them once and saves them."
            )
        yield Finding(
            FindingKind.PEAK,
            text,
            expected=f"{self.most} at most",
            got=f"{peak:.1f}",
            next=self.merged if merged else self.too_high,
        )

    def _peak(self, seen: Behaviour) -> float:
        size = seen.wanted[self.unit].nbytes if self.unit else seen.input_bytes
        traced = seen.peak(False) / size
        if not self.compiled or (round(traced) <= self.most and 0 < self.turns <= seen.turns):
            return traced
        return seen.peak(True) / size

    def claim(self, seen: Behaviour) -> str:
        what = f"times {self.unit}" if self.unit else "vectors"
        return f"it has {self._peak(seen):.1f} {what} in memory at the worst moment, and {self.most} are allowed"


@dataclass(frozen=True)
class InPieces:
    """No matmul takes more rows at once than a piece has. A peak tells only where arrays are large; this, everywhere.

    Attributes:
      rows: the rows of a piece.
      of: all rows; the reference's largest matmul takes them at once.
      pieces: what findings call several pieces.
      too_large: the question that leads on from an answer that takes more rows at once.
    """

    rows: int
    of: int
    pieces: str
    too_large: str
    names = ()

    def findings(self, seen: Behaviour) -> Iterator[Finding]:
        of_a_row = max(seen.reference_flops) // self.of
        if (rows := seen.largest_matmul // of_a_row) > self.rows:
            allowed = counted(self.rows, "rows")
            yield Finding(
                FindingKind.PEAK,
                f"A single matmul of your two passes takes {rows} rows at once, so that what it makes of them is all "
                f"in memory at the same time. One of the {self.pieces} has {allowed}.",
                expected=f"{allowed} at most in a matmul",
                got=counted(rows, "rows"),
                next=self.too_large,
            )

    def claim(self, seen: Behaviour) -> None:
        return None  # PeakAtMost says it
