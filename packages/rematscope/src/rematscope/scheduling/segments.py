"""Loops of many iterations in segments, so that not every iteration's carry is saved; see `divided`.

What is handed from iteration to iteration is saved once per segment, and what the iterations of one segment make is in
memory while the backward pass goes through that segment. Both together are least at √n iterations per segment, as many
as there are bytes in the one for the other (Chen et al., 2016). The last iterations, as many as fit in memory, are not
recomputed: what they made is gone before the first segment is recomputed.
"""

from collections.abc import Iterator
from functools import cached_property

from rematscope.choices.build import work
from rematscope.ir.program import Equation, Literal
from rematscope.scheduling.candidate import Candidate, Subject
from rematscope.scheduling.divided import divided
from rematscope.scheduling.linearize import Linearized
from rematscope.scheduling.loop_pairs import Segments, backward_of, loops_of
from rematscope.scheduling.peak_program import PeakProgram

_WORTH = 0.9  # of what a loop takes with a checkpoint around each iteration: segments that take more are no choice
_NEARER = 3  # times that the last iterations are counted anew for one aim


class Segmented:
    """A function whose loops go in segments, as choices of `auto`'s."""

    def __init__(self, subject: Subject, rows: PeakProgram):
        """Args:
        subject: what is chosen for.
        rows: the 0/1 program of the function without segments.
        """
        self._subject, self._rows = subject, rows
        self._made: dict[tuple[Segments, ...], Candidate] = {}
        self._linearized: dict[tuple[Segments, ...], Linearized] = {}

    def linearized(self, segments: tuple[Segments, ...]) -> Linearized:
        """The function in such segments."""
        if segments not in self._linearized:
            self._linearized[segments] = divided(self._rows.linearized, segments)
        return self._linearized[segments]

    def within(self, aim: float) -> Iterator[Candidate]:
        """Choices with segments, of which the last are predicted to take about so much, if any takes so little.

        Args:
          aim: bytes of temporaries.
        """
        if not self._loops:
            return
        yield (least := self._with(0.0))
        most = max(length // turns for _, turns, length in self._loops)
        lower, upper = (0, least.estimated_bytes), (most, self._with(1.0).estimated_bytes)
        for _ in range(_NEARER):
            if not lower[1] <= aim < upper[1] or upper[0] - lower[0] < 2:
                return
            count = lower[0] + int((upper[0] - lower[0]) * (aim - lower[1]) / (upper[1] - lower[1]))
            count = min(max(count, lower[0] + 1), upper[0] - 1)  # of segments that are not computed again
            yield (made := self._with(count / most))
            if made.estimated_bytes > aim:
                upper = count, made.estimated_bytes
            else:
                lower = count, made.estimated_bytes

    def _with(self, share: float) -> Candidate:
        """The choice by which such a share of the turns is not computed again."""
        segments = []
        for place, turns, length in self._loops:
            last = round(share * length)
            last += (length - last) % turns
            segments += [(place, turns, last)] if last < length else []
        asked = tuple(segments)
        if asked not in self._made:
            linearized = self.linearized(asked)
            found = PeakProgram(linearized, cost=self._rows.cost).best(price=self._price)
            kept = found[0] if found else linearized.kept
            self._made[asked] = Candidate(self._subject, linearized, kept, segments=asked)
        return self._made[asked]

    @cached_property
    def _loops(self) -> list[tuple[int, int, int]]:
        in_work = self._subject.cost == work  # of another cost it is not known what a segment takes again
        return worth_dividing(self._rows.linearized) if in_work else []

    @cached_property
    def _price(self) -> float:
        """What a byte has to spare so that it is worth keeping one: what all do that JAX keeps, in the mean."""
        kept = sum(map(self._rows.weight, self._rows.linearized.kept))
        return sum(self._rows.costs.values()) / max(kept, 1)


def worth_dividing(linearized: Linearized) -> list[tuple[int, int, int]]:
    """Loops that had better go in segments: their places, the iterations of each segment, and all iterations.

    Args:
      linearized: a function. Loops in loops are not looked at, nor those in a `shard_map`.
    """
    loops = [(i, _iterations(linearized, loop), loop.length) for i, loop in enumerate(loops_of(linearized))]
    return [one for one in loops if one[1]]


def _iterations(linearized: Linearized, loop: Equation) -> int:
    """How many iterations of a loop had better be in a segment; 0 if segments are not worth it."""
    (body,) = loop.bodies
    handed = sum(v.device_bytes for v in body.inputs[: loop.carries])
    if loop.length < 4 or not handed or backward_of(linearized, loop) is None:
        return 0
    own = {v for e in body.equations for v in e.outputs}
    made = sum(v.device_bytes for v in linearized.kept & own)
    stacks = (*loop.stacked_inputs, *loop.outputs[loop.carries :])
    stacked = sum(v.device_bytes for v in stacks if not isinstance(v, Literal))

    def taken(iterations: int) -> float:
        # Iterations that are left over are a loop of their own, with copies of what is stacked.
        rest = loop.length % iterations
        return loop.length // iterations * handed + (iterations + rest) * made + (stacked if rest else 0)

    best = min(range(2, loop.length // 2 + 1), key=taken)
    return best if taken(best) < _WORTH * (loop.length * handed + made) else 0
