"""Candidates that are best in the 0/1 program for the peak (`peak_program.py`)."""

import math
from collections.abc import Iterator, Sequence

from rematscope.scheduling.candidate import Candidate, CandidatePool, SearchProblem
from rematscope.scheduling.peak_program import PeakProgram, PeakSolution
from rematscope.scheduling.settings import SETTINGS


class PeakProposer:
    """Candidates with the least recompute within a peak.

    The 0/1 program predicts another peak than the estimate does, so it is solved for several limits for each target.
    """

    def __init__(self, problem: SearchProblem, programs: Sequence[PeakProgram]):
        """Args:
        programs: its 0/1 programs, one for each set of values that is saved in any case.
        """
        self._problem, self._programs = problem, programs
        self._solved: dict[PeakProgram, list[tuple[float, int]]] = {}  # limits, and the estimates of their solutions

    def propose(self, target_bytes: float, pool: CandidatePool) -> Iterator[Candidate]:
        """Yield solutions for limits that bring the estimate nearer and nearer to the target."""
        for program in self._programs:
            yield from self._approach_target(program, target_bytes, pool)

    def smallest(self) -> Candidate:
        """Return a candidate whose peak is near the least that the program can reach."""
        return self._make_candidate(self._programs[0], self._programs[0].smallest())

    def _approach_target(self, program: PeakProgram, target: float, pool: CandidatePool) -> Iterator[Candidate]:
        solved = self._solved.setdefault(program, [])
        previous, least = -1, 0.0
        for attempt in range(1, SETTINGS.solves_per_target + 3):  # more than these only if no estimate is within it
            limit = max(least, next_limit(solved, target))
            solution = program.best(peak=limit)
            known_bound = pool.lowest_bound(target)
            if solution is None and not least and (least := program.least) not in dict(solved):
                continue  # the estimate may be smaller than the peak of the program
            if solution is None:
                return
            candidate = self._make_candidate(program, solution)
            size = candidate.estimated_bytes
            solved.append((limit, size))
            if solution.bound >= known_bound and size >= SETTINGS.filled_target * target:
                return  # other candidates recompute less, and nothing is left for this program to win
            yield candidate
            too_large = size > target and (size == previous or limit == least)
            if too_large or self._is_close_enough(candidate, target, solved, attempt):
                return
            previous = size

    def _is_close_enough(
        self, candidate: Candidate, target: float, solved: Sequence[tuple[float, int]], attempt: int
    ) -> bool:
        """Whether a program need not be solved again for a target."""
        size = candidate.estimated_bytes
        if size <= target and not candidate.recompute_cost:
            return True
        # An estimate near the target is not enough: a solution for a higher limit may need no more memory.
        is_near = (1 - SETTINGS.same_target) * target <= size <= target
        if is_near and any(other > target for _, other in solved):
            return True
        return attempt >= SETTINGS.solves_per_target and any(other <= target for _, other in solved)

    def _make_candidate(self, program: PeakProgram, solution: PeakSolution) -> Candidate:
        return Candidate(self._problem, program.linearized, solution.saved, moved=solution.moved, bound=solution.bound)


def next_limit(solved: Sequence[tuple[float, int]], target: float) -> float:
    """Return the limit for the 0/1 program for which the estimate should be the target.

    Args:
      solved: limits for which it was solved, with the estimates of the solutions.
    """
    if not solved:
        return target
    low, under = max((pair for pair in solved if pair[1] <= target), default=(0.0, 0))
    high, over = min((pair for pair in solved if pair[1] > target), default=(math.inf, 0))
    if 0 < low < high < math.inf:  # estimates jump, since tensors are large
        return low + (high - low) * min(max(0.1, (target - under) / (over - under)), 0.9)
    return low * max(target / max(under, 1), 1.06) if low else high * min(0.98, target / max(over, 1))
