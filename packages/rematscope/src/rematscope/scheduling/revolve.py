"""The cheapest order in which to reverse a chain if memory holds few of the values between its segments.

A segment is reversed when its inputs are live. To reverse several segments, the program runs forward through the first
ones, saves the inputs of the rest, reverses the rest, drops these inputs, and reverses the first ones in the same way.
It may choose at each point what to save, so segments run forward more than once: s values are enough for C(s + r, r)
segments if none of them runs forward more than r times (Griewank and Walther, "Algorithm 799: revolve", ACM TOMS 2000,
for identical segments). For segments that differ, a dynamic program over the first segment, the number of segments and
the free memory finds the least cost (Beaumont, Eyraud-Dubois, Herrmann, Joly and Shilova, "Optimal checkpointing for
heterogeneous chains", 2019).
"""

import dataclasses
import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rematscope.scheduling.settings import SETTINGS


@dataclasses.dataclass(frozen=True)
class ChainSegment:
    """A stretch of a chain between two cuts.

    Attributes:
      input_bytes: bytes of its inputs; 0 for the first segment, whose inputs are live anyway.
      forward: the cost of computing the inputs of the next segment.
      recompute: the cost of recomputing its residuals from its inputs.
      total: the cost of both at once.
      residual_bytes: bytes of its residuals, which the backward pass reads.
      peak_bytes: bytes that are live while it is reversed, without its inputs.
    """

    input_bytes: int
    forward: float
    recompute: float
    total: float
    residual_bytes: int
    peak_bytes: int


@dataclasses.dataclass(frozen=True)
class RevolveSchedule:
    """An order in which a chain is reversed.

    Attributes:
      work: the recompute cost.
      saved: the segments whose inputs the forward pass saves.
      whole: the segments of which the forward pass saves all residuals.
      snapshots: pairs of the number of segments that are left, and of the segments whose inputs are live then in
        addition to the saved ones.
    """

    work: float
    saved: tuple[int, ...]
    whole: tuple[int, ...]
    snapshots: tuple[tuple[int, tuple[int, ...]], ...]


class RevolveTable:
    """The cheapest reversals of a chain, for every number of slots of memory.

    Attributes:
      slot: the bytes of a slot. The inputs of most segments are a multiple of it, so that little is wasted.
    """

    def __init__(self, segments: Sequence[ChainSegment], limit: float):
        """Args:
        limit: the bytes that may be live in addition to what is live anyway.
        """
        count, self._count = len(segments), len(segments)
        often = statistics.mode([segment.input_bytes for segment in segments[1:]] or [0]) or limit
        self.slot = max(often / math.ceil(SETTINGS.memory_slots[0] * often / limit), limit / SETTINGS.memory_slots[1])
        self.slots = int(limit / self.slot + 1e-6)
        parts = 1 / self.slot
        self._enters = np.array([self._whole_slots(segment.input_bytes * parts) for segment in segments] + [0])
        self._entering = _prefix_sums([segment.input_bytes * parts for segment in segments])
        self._made = _prefix_sums([segment.residual_bytes * parts for segment in segments])
        least = np.array([self._whole_slots(segment.peak_bytes * parts) for segment in segments])
        forward, both = (
            _prefix_sums([segment.forward for segment in segments]),
            _prefix_sums([segment.total for segment in segments]),
        )
        again = np.array([segment.recompute for segment in segments])
        # By the number of segments and the first one: the slots and the cost if nothing is dropped before the end.
        self._room, self._together = [np.zeros(count + 1, int), least], [np.zeros(count + 1)]
        # By slots, too: the least cost of reversing these segments, infinite with too few slots; the same with the
        # inputs of the first segment in the slots, and with running forward through the segments.
        self._back = [np.zeros((count + 1, self.slots + 1), np.float32)]
        self._after = [self._back[0]]
        self._before = [self._back[0]]
        for d in range(1, count + 1):
            s = np.arange(count + 1 - d)
            if d > 1:
                held = self._whole_slots(self._residual_slots(s, s + d) - self._made[s + d] + self._made[s + d - 1])
                self._room.append(np.maximum(self._room[-1][:-1], held + least[d - 1 :]))
            self._together.append((both[s + d - 1] - both[s] + again[d - 1 :]).astype(np.float32))
            enough = self._room[d][:, None] <= np.arange(self.slots + 1)
            best = np.where(enough, self._together[d][:, None], np.float32(np.inf))
            sums = np.empty_like(best)
            for j in range(1, d):
                np.minimum(best, np.add(self._before[j][: len(s)], self._after[d - j][j:], out=sums), out=best)
            self._back.append(best)
            self._after.append(_shift_slots(best, self._enters[: len(best)]))
            self._before.append(best + (forward[d:] - forward[s]).astype(np.float32)[:, None])
        # The same for all segments from one on, through which the forward pass runs anyway; and with the inputs of the
        # first one in the slots.
        self._rest = np.zeros((count + 1, self.slots + 1), np.float32)
        self._behind = np.zeros((count + 1, self.slots + 1), np.float32)
        for first in reversed(range(count)):
            self._rest[first] = np.min(self._costs_from(first), axis=(0, 1))
            self._behind[first] = _shift_slots(self._rest[[first]], self._enters[[first]])[0]

    def fewest(self, work: float) -> int | None:
        """Return the fewest slots within which the recompute is below a cost; None if all slots are too few."""
        enough = np.flatnonzero(self._rest[0] < work)
        return int(enough[0]) if len(enough) else None

    def best(self, slots: int) -> RevolveSchedule | None:
        """Return the cheapest reversal within a number of slots; None if there is none."""
        if not np.isfinite(work := float(self._rest[0][slots])):
            return None
        saved, whole, through = list[int](), list[int](), list[tuple[int, int, int]]()
        s = 0
        while s < self._count:
            is_whole, more = np.unravel_index(np.argmin(self._costs_from(s)[..., slots]), (2, self._count - s))
            t = s + 1 + int(more)
            if is_whole:
                whole += range(s, t)
                saved += range(s + 1, t)
                slots -= self._whole_slots(self._residual_slots(s, t))
            else:
                through.append((s, t, slots))
            saved += [t] if t < self._count else []
            slots -= int(self._enters[t])
            s = t
        snapshots: list[tuple[int, tuple[int, ...]]] = []
        for s, t, left in reversed(through):
            snapshots.append((t, ()))
            snapshots += self._snapshots_between(s, t, left, ())
        return RevolveSchedule(work, tuple(saved), tuple(whole), tuple(snapshots))

    def _costs_from(self, s: int) -> np.ndarray:
        """Return the cost from segment `s` on, by variant, by the segments before the next saved one, and by free
        slots.

        The variants are to reverse these segments with snapshots, and to save all of their residuals.
        """
        ends = np.arange(s + 1, self._count + 1)
        with_stops = np.stack([self._back[t - s][s] for t in ends]) + self._behind[ends]
        enough = np.array([self._room[t - s][s] for t in ends])[:, None] <= np.arange(self.slots + 1)
        whole = _shift_slots(self._behind[ends], self._whole_slots(self._residual_slots(s, ends)))
        return np.stack([with_stops, np.where(enough, whole, np.inf)])

    def _snapshots_between(
        self, s: int, t: int, slots: int, there: tuple[int, ...]
    ) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield the snapshots on the way back from segment `t` to `s`."""
        best = self._back[t - s][s, slots]
        if self._room[t - s][s] <= slots and self._together[t - s][s] <= best:
            return
        k = min(range(s + 1, t), key=lambda k: self._before[k - s][s, slots] + self._after[t - k][k, slots])
        yield t, (*there, k)
        yield from self._snapshots_between(k, t, slots - int(self._enters[k]), (*there, k))
        yield k, there
        yield from self._snapshots_between(s, k, slots, there)

    def _whole_slots(self, slots: Any) -> Any:
        """Round slots up, to at most one more than there are."""
        return np.minimum(np.ceil(slots - 1e-6), self.slots + 1).astype(int)

    def _residual_slots(self, s: Any, t: Any) -> Any:
        """Return the slots, not rounded, of all residuals of segments from `s` up to `t`."""
        return self._made[t] - self._made[s] + self._entering[t] - self._entering[s + 1]


def _prefix_sums(numbers: Sequence[float]) -> np.ndarray:
    return np.concatenate([[0.0], np.cumsum(numbers)])


def _shift_slots(work: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """Return costs by free slots, if in each row a number of slots is taken."""
    left = np.arange(work.shape[1]) - slots[:, None]
    return np.where(left >= 0, np.take_along_axis(work, np.maximum(left, 0), axis=1), np.float32(np.inf))
