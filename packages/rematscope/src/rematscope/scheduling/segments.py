"""Candidates that divide loops of many iterations into segments, so that not every iteration's carry is saved.

One carry is saved per segment, and the values of a segment are recomputed when the backward pass reaches it. If carries
and values have the same size, the total bytes are smallest with about √n iterations per segment (Chen et al., 2016);
see `divided`. As many of the last iterations as fit in memory are not recomputed. Their values are freed before the
first segment is recomputed.
"""

from collections.abc import Iterator
from functools import cached_property

from rematscope.choices.build import work
from rematscope.ir.program import Equation, Literal
from rematscope.scheduling.candidate import Candidate, CandidatePool, SearchProblem
from rematscope.scheduling.costs import cost_in
from rematscope.scheduling.divided import Segments, backward_of, divided, loops_of
from rematscope.scheduling.linearize import Linearized
from rematscope.scheduling.peak_program import PeakProgram
from rematscope.scheduling.settings import SETTINGS


class SegmentProposer:
    """Candidates that divide the loops of a function into segments."""

    def __init__(self, problem: SearchProblem, rows: PeakProgram):
        self._problem, self._rows = problem, rows
        self._made: dict[tuple[Segments, ...], Candidate] = {}
        self._linearized: dict[tuple[Segments, ...], Linearized] = {}

    def linearized(self, segments: tuple[Segments, ...]) -> Linearized:
        """Return the programs of the function with such segments."""
        if segments not in self._linearized:
            self._linearized[segments] = divided(self._rows.linearized, segments)
        return self._linearized[segments]

    def propose(self, target_bytes: float, pool: CandidatePool) -> Iterator[Candidate]:
        """Yield candidates with segments, the last of which have estimates near the target, if any is so small."""
        if not self._divisible_loops:
            return
        yield (least := self._keep_share_of_iterations(0.0))
        most = max(length // iterations for _, iterations, length in self._divisible_loops)
        lower, upper = (0, least.estimated_bytes), (most, self._keep_share_of_iterations(1.0).estimated_bytes)
        for _ in range(SETTINGS.solves_per_target):
            if not lower[1] <= target_bytes < upper[1] or upper[0] - lower[0] < 2:
                return
            count = lower[0] + int((upper[0] - lower[0]) * (target_bytes - lower[1]) / (upper[1] - lower[1]))
            count = min(max(count, lower[0] + 1), upper[0] - 1)  # of segments that are not recomputed
            yield (made := self._keep_share_of_iterations(count / most))
            if made.estimated_bytes > target_bytes:
                upper = count, made.estimated_bytes
            else:
                lower = count, made.estimated_bytes

    def _keep_share_of_iterations(self, share: float) -> Candidate:
        """Return the candidate that does not recompute the given share of the iterations, the last ones."""
        segments = []
        for place, iterations, length in self._divisible_loops:
            last = round(share * length)
            last += (length - last) % iterations
            segments += [(place, iterations, last)] if last < length else []
        asked = tuple(segments)
        if asked not in self._made:
            linearized = self.linearized(asked)
            found = PeakProgram(linearized, cost=self._rows.cost).best(price=self._price_per_byte)
            saved = found.saved if found else linearized.saved
            self._made[asked] = Candidate(self._problem, linearized, saved, segments=asked)
        return self._made[asked]

    @cached_property
    def _divisible_loops(self) -> list[tuple[int, int, int]]:
        in_work = self._problem.cost == work  # of another cost it is not known what a segment takes again
        return worth_dividing(self._rows.linearized) if in_work else []

    @cached_property
    def _price_per_byte(self) -> float:
        """The recompute that saving one byte must avoid: the mean over all values that JAX saves, or more.

        It is more than the recompute that each byte avoids if all values of a divided loop are saved. Otherwise these
        values would be saved, which is what dividing the loop should avoid.
        """
        linearized, rows = self._rows.linearized, self._rows
        prices = [sum(rows.costs.values()) / max(sum(map(rows.weight, linearized.saved)), 1)]
        loops = loops_of(linearized)
        for loop in (loops[i] for i, *_ in self._divisible_loops):
            own = {v for e in loop.bodies[0].equations for v in e.outputs}
            saved = sum(map(rows.weight, linearized.saved & own))
            prices += [SETTINGS.segment_price * cost_in(linearized, rows.cost)(loop) / saved] if saved else []
        return max(prices)


def worth_dividing(linearized: Linearized) -> list[tuple[int, int, int]]:
    """Return the loops that should be divided: their indices, the iterations per segment, and all iterations.

    Args:
      linearized: a function. Loops in loops and in `shard_map` are not divided.
    """
    loops = [(i, _iterations_per_segment(linearized, loop), loop.length) for i, loop in enumerate(loops_of(linearized))]
    return [one for one in loops if one[1]]


def _iterations_per_segment(linearized: Linearized, loop: Equation) -> int:
    """Return how many iterations of a loop a segment should have; 0 if the loop should not be divided."""
    (body,) = loop.bodies
    handed = sum(v.device_bytes for v in body.inputs[: loop.carries])
    if loop.length < 4 or not handed or backward_of(linearized, loop) is None:
        return 0
    own = {v for e in body.equations for v in e.outputs}
    made = sum(v.device_bytes for v in linearized.saved & own)
    stacks = (*loop.stacked_inputs, *loop.outputs[loop.carries :])
    stacked = sum(v.device_bytes for v in stacks if not isinstance(v, Literal))

    def taken(iterations: int) -> float:
        # Iterations that are left over are a loop of their own, with copies of what is stacked.
        rest = loop.length % iterations
        return loop.length // iterations * handed + (iterations + rest) * made + (stacked if rest else 0)

    best = min(range(2, loop.length // 2 + 1), key=taken)
    return best if taken(best) < SETTINGS.segment_saving * (loop.length * handed + made) else 0
