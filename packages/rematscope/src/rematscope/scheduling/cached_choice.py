"""What was found for a limit, so that it need not be looked for again in this process."""

import dataclasses

from rematscope.scheduling.candidate import Candidate
from rematscope.scheduling.checkpoint_placement import CheckpointPlacement
from rematscope.scheduling.loop_pairs import Segments
from rematscope.scheduling.value_indices import places, snapshot_indices
from rematscope.xla.measure import Measurement


@dataclasses.dataclass(frozen=True)
class CachedChoice:
    """A choice that was compiled, by the places of its values; see `Proposal` for the rest.

    Attributes:
      limit: what it was found for.
      peak: bytes that it takes, compiled, without cotangents of scalars.
      of_own: whether the function had its own checkpoints.
      places, moved: where what is kept, and what of it waits on the host, stands among all values.
      segments: those of loops that the function had.
      bound: what the rows say that every choice costs at least.
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
        """What a trial was, that there is room for."""
        return cls(
            limit,
            candidate.measured_bytes,
            candidate.recompute_cost,
            of_own,
            candidate.placement,
            tuple(places(candidate.linearized, candidate.kept)),
            tuple(places(candidate.linearized, candidate.moved)),
            snapshot_indices(candidate.linearized, candidate.snapshots),
            candidate.segments,
            candidate.measurement,
            bound,
        )
