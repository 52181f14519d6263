"""What an exercise may ask of the memory that both passes take at once: what crosses between them does not tell."""

from collections.abc import Iterator
from dataclasses import dataclass

from grader.exercises.behaviour import Behaviour
from grader.util.words import counted
from grader.verdicts.kinds import FindingKind
from grader.verdicts.verdict import Finding


@dataclass(frozen=True)
class PeakAtMost:
    """Both passes take no more memory at once than this, besides arguments and results.

    Residuals do not tell: what is rebuilt, and what waits meanwhile, is in memory too. Most of it is seen without a
    compiler, in the order in which both passes were traced. A compiler may take more where it runs in another order, or
    computes once what is written twice; between the turns of a loop it does neither.

    Attributes:
      most: the most memory, in sizes of the case's arguments, to the nearest one: a few bytes more are buffers'
        alignment.
      too_high: the question that leads on from an answer that takes more.
      merged: the question that leads on from one that has no barrier, so that XLA merges what is recomputed with what
        was computed; None where loops are recomputed, which it does not merge.
      unit: the name of the reference's value in whose sizes it is counted; None for the arguments'.
      compiled: how much XLA may set aside, in the same sizes; None if it is not asked.
      turns: where each matmul runs so often in loops, XLA is not asked; 0 if it is asked wherever matmuls run.
    """

    most: int
    too_high: str
    merged: str | None = None
    unit: str | None = None
    compiled: int | None = None
    turns: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        return (self.unit,) if self.unit else ()

    def findings(self, seen: Behaviour) -> Iterator[Finding]:
        most, peak, how = self.most, self._peak(seen, compiled=False), "One operation after the other"
        if round(peak) <= most and self.compiled is not None and not 0 < self.turns <= seen.turns:
            most, peak, how = self.compiled, self._peak(seen, compiled=True), "Compiled"
        if round(peak) <= most:
            return
        arguments = " and ".join(seen.arguments)
        what = f"{peak:.1f} times {self.unit}" if self.unit else f"{peak:.1f} vectors of {arguments}'s size"
        text = f"{how}, your two passes have {what} in memory at the worst moment, besides {arguments} and the results."
        if merged := self.merged and how == "Compiled" and seen.recomputed and not seen.barriers:
            text += (
                " Nothing keeps what is computed again apart from the forward pass (prevent_cse=False, perhaps), so "
                "that XLA computes it once and keeps it."
            )
        yield Finding(
            FindingKind.PEAK,
            text,
            expected=f"{most} at most",
            got=f"{peak:.1f}",
            next=self.merged if merged else self.too_high,
        )

    def _peak(self, seen: Behaviour, compiled: bool) -> float:
        return seen.peak(compiled) / (seen.wanted[self.unit].nbytes if self.unit else seen.input_bytes)

    def claim(self, seen: Behaviour) -> str:
        what = f"times {self.unit}" if self.unit else "vectors"
        return f"it has at most {self.most} {what} in memory at once"


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
