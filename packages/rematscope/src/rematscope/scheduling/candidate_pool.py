"""What proposers have proposed so far, and their interface."""

import math
from collections.abc import Iterator
from typing import Protocol

from rematscope.scheduling.candidate import Candidate


class CandidatePool:
    """All candidates that were proposed for any target.

    Attributes:
      candidates: the candidates, in the order of the proposals.
    """

    def __init__(self) -> None:
        self.candidates: list[Candidate] = []

    def within(self, target_bytes: float) -> list[Candidate]:
        """Return the candidates with estimates of at most so many bytes."""
        return [one for one in self.candidates if one.estimated_bytes <= target_bytes]

    def cheapest_cost(self, target_bytes: float) -> float:
        """Return the least recompute of the candidates within a target; infinite without one."""
        return min((one.recompute_cost for one in self.within(target_bytes)), default=math.inf)

    def lowest_bound(self, target_bytes: float, *, above: float = 0) -> float:
        """Return the lowest bound that was proven for candidates within a target; infinite without one.

        Args:
          target_bytes: the target.
          above: the least estimate of the candidates that are considered.
        """
        proven = (one.bound for one in self.within(target_bytes) if one.bound and one.estimated_bytes >= above)
        return min(proven, default=math.inf)


class Proposer(Protocol):
    """One way to find candidates."""

    def propose(self, target_bytes: float, pool: CandidatePool) -> Iterator[Candidate]:
        """Yield candidates whose estimated temporaries approach a target.

        Args:
          target_bytes: the bytes of temporaries that candidates should need.
          pool: all candidates so far; what is yielded is added to it before the next candidate is asked for.
        """
        ...
