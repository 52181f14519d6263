"""Results of searches, so that the same limit is not searched twice in a process."""

import dataclasses
from typing import Any

from rematscope.scheduling.candidate import Candidate
from rematscope.scheduling.checkpoint_placement import CheckpointPlacement
from rematscope.scheduling.loop_pairs import Segments
from rematscope.scheduling.value_indices import indices_of, snapshot_indices
from rematscope.xla.measure import Measurement


@dataclasses.dataclass(frozen=True)
class CachedChoice:
    """A compiled candidate, as indices of its values; see `Candidate` for the other attributes.

    Attributes:
      limit: the limit that it was found for.
      peak: the measured bytes, without cotangents of scalars.
      of_own: whether the function has its own checkpoints.
      places, moved: the indices of the saved values, and of those that are offloaded.
      segments: the segments of loops.
      bound: the proven lower bound of the recompute.
    """

    limit: int
    peak: float
    recompute_cost: float
    of_own: bool
    placement: CheckpointPlacement | None
    places: tuple[int, ...]
    moved: tuple[int, ...]
    snapshots: tuple[tuple[int, tuple[int, ...]], ...]
    segments: tuple[Segments, ...]
    measurement: Measurement | None
    bound: float

    @classmethod
    def of(cls, candidate: Candidate, limit: int, of_own: bool, bound: float) -> "CachedChoice":
        """Return a compiled candidate in this form."""
        return cls(
            limit,
            candidate.measured_bytes,
            candidate.recompute_cost,
            of_own,
            candidate.placement,
            tuple(indices_of(candidate.linearized, candidate.kept)),
            tuple(indices_of(candidate.linearized, candidate.moved)),
            snapshot_indices(candidate.linearized, candidate.snapshots),
            candidate.segments,
            candidate.measurement,
            bound,
        )


class ResultCache:
    """The latest results of each search."""

    def __init__(self, most: int):
        """Args:
        most: how many results are remembered for each key.
        """
        self._most = most
        self._results: dict[tuple[Any, ...], tuple[CachedChoice, ...]] = {}

    def add(self, key: tuple[Any, ...], result: CachedChoice) -> None:
        """Remember a result."""
        self._results[key] = (*self._results.get(key, ())[-self._most :], result)

    def within(self, key: tuple[Any, ...], limit: int) -> list[CachedChoice]:
        """Return the results whose peak is within a limit."""
        return [one for one in self._results.get(key, ()) if one.peak <= limit]

    def smallest(self, key: tuple[Any, ...]) -> CachedChoice | None:
        """Return the result with the smallest peak; None without any."""
        return min(self._results.get(key, ()), key=lambda one: one.peak, default=None)
