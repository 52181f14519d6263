"""Plain checkpoints of a function, as candidates of `auto`.

Their peak on a CPU is predicted well, so they are the fallback where no schedule fits. They save as many of the most
valuable residuals as fit.
"""

import dataclasses
import operator
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from rematscope.scheduling.candidate import Candidate
from rematscope.scheduling.checkpoint_placement import CheckpointPlacement, ways
from rematscope.scheduling.saving import worth_saving

_NEAR = 1.2  # times the least that is predicted: what a TPU takes may be as far off
_HALVED = 4  # times that what may be saved is halved for one limit
_recomputed, _predicted = operator.attrgetter("recompute_cost"), operator.attrgetter("estimated_bytes")


class CheckpointSearch:
    """Plain checkpoints around blocks and turns of loops; the author's."""

    def __init__(
        self,
        f: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        has_own: bool,
        closed: bool,
        target: str,
        make: Callable[[CheckpointPlacement], Candidate],
    ):
        """Args:
        f, args, kwargs: the function and its arguments.
        has_own, closed: as for `ways`.
        target: what is compiled for.
        make: gives what may be compiled.
        """
        self._f, self._args, self._kwargs = f, args, kwargs
        self._has_own, self._closed, self._target, self._make = has_own, closed, target, make

    @cached_property
    def all(self) -> list[Candidate]:
        """All that are looked at; of policies that save the same, one."""
        found = ways(self._f, self._has_own, self._closed, *self._args, **self._kwargs)
        return [*{(t.estimated_bytes, t.recompute_cost): t for t in map(self._make, reversed([*found]))}.values()]

    @cached_property
    def smallest(self) -> Candidate:
        """The author's checkpoints, or one around each layer, as JAX makes them.

        That is what is predicted to take least; of a target of which less is known, what keeps least of those near it.
        """
        first = min(self.all, key=_predicted)
        if self._target == "cpu":
            return first
        near = (candidate for candidate in self.all if candidate.estimated_bytes <= _NEAR * first.estimated_bytes)
        return min(near, key=lambda candidate: candidate.schedule.saved_bytes)

    def within(self, room: float, fixed: int, candidates: Sequence[Candidate]) -> Candidate | None:
        """The one that computes least again, of those that are expected to fit and were not compiled; None without.

        Args:
          room: bytes of temporaries.
          fixed: bytes that there are besides, in what was compiled.
          trials: what was.
        """
        # Of another target less is known: there they take as much more than predicted as whatever was compiled.
        tried = [t for t in candidates if t.placement is not None or self._target != "cpu"]
        room /= max((max(t.peak_bytes - fixed, 1) / max(t.estimated_bytes, 1) for t in tried), default=1)
        fit = [t for t in self.all if t.estimated_bytes <= room]
        bases = [t for t in fit if t.placement is not None and t.placement.blocks and not t.placement.policy]
        for base in {min(bases, key=key) for key in (_recomputed, _predicted)} if bases else ():
            fit += self._saving(base, room)
        return min((t for t in fit if not any(t.is_like(one) for one in tried)), key=_recomputed, default=None)

    def _saving(self, base: Candidate, room: float) -> list[Candidate]:
        """Such checkpoints that save what is worth most, as much of it as there is room for; none if there is not."""
        plain = base.placement
        assert plain is not None, "it has blocks"
        worth = worth_saving(self._f, plain.blocks, *self._args, **self._kwargs)
        found, least, most = list[Candidate](), 0, len(worth) + 1
        for _ in range(_HALVED):
            count = (least + most) // 2
            if count == least:
                break
            candidate = self._make(dataclasses.replace(plain, saved=tuple(sorted(place for place, _ in worth[:count]))))
            if candidate.estimated_bytes <= room:
                found, least = [candidate], count
            else:
                most = count
        return found
