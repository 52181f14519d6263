"""What was found for a limit, so that it need not be looked for again in this process."""

import dataclasses

from rematscope.scheduling.loop_pairs import Segments
from rematscope.scheduling.plain import Plain
from rematscope.scheduling.proposal import Proposal
from rematscope.scheduling.structure import places, places_of_stops
from rematscope.xla.measure import Measurement


@dataclasses.dataclass(frozen=True)
class Known:
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
    recomputed: float
    of_own: bool
    plain: Plain | None
    places: tuple[int, ...]
    moved: tuple[int, ...]
    stops: tuple[tuple[int, tuple[int, ...]], ...]
    segments: tuple[Segments, ...]
    measurement: Measurement | None
    bound: float

    @classmethod
    def of(cls, trial: Proposal, limit: int, of_own: bool, bound: float) -> "Known":
        """What a trial was, that there is room for."""
        return cls(
            limit,
            trial.taken,
            trial.recomputed,
            of_own,
            trial.plain,
            tuple(places(trial.linearized, trial.kept)),
            tuple(places(trial.linearized, trial.moved)),
            places_of_stops(trial.linearized, trial.stops),
            trial.segments,
            trial.measurement,
            bound,
        )
