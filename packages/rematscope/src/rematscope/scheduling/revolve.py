"""In which order to go back through a chain, if memory holds few of the values between its links.

A link is gone back through when what enters it is there. To go back through several links, one goes forward through
the first of them, keeps what enters the rest, goes back through the rest, lets go of it, and goes back through the
first ones in the same way. Where to keep something is open at each turn, so that links are gone forward through more
than once: s values are enough for C(s + r, r) links if none of them is gone through more than r times (Griewank and
Walther, "Algorithm 799: revolve", ACM TOMS 2000, for links that are alike). For links that differ a dynamic program
over the first link, the number of links and the memory that is left finds the least work (Beaumont, Eyraud-Dubois,
Herrmann, Joly and Shilova, "Optimal checkpointing for heterogeneous chains", 2019).
"""

import dataclasses
import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

_SLOTS = 128, 512  # parts that memory is counted in, at least and at most


@dataclasses.dataclass(frozen=True)
class ChainSegment:
    """A stretch of a chain between two cuts.

    Attributes:
      enters: bytes of what leads into it; of the first link none, for that is there anyway.
      forward: what it takes to go through it, for what leads into the next one.
      again: what it takes to compute what going back reads of it, when what enters it is there.
      both: what the two take together.
      made: bytes of what going back reads of it.
      least: bytes that going back through it takes beside what enters it.
    """

    enters: int
    forward: float
    again: float
    both: float
    made: int
    least: int


@dataclasses.dataclass(frozen=True)
class RevolveSchedule:
    """How a chain is gone back through.

    Attributes:
      work: what is computed again.
      kept: the links whose entries the forward pass keeps.
      whole: the links of which it keeps all that going back reads.
      stops: pairs of how many links are left, and which entries the backward pass then has beside those kept.
    """

    work: float
    kept: tuple[int, ...]
    whole: tuple[int, ...]
    snapshots: tuple[tuple[int, tuple[int, ...]], ...]


class RevolveTable:
    """The best tours through a chain, for every part of a limit of memory.

    Attributes:
      slots: how many parts there are.
      slot: bytes of each. What enters most links is a multiple of it, so that nothing of that is wasted.
    """

    def __init__(self, links: Sequence[ChainSegment], limit: float):
        """Args:
        links: the chain.
        limit: bytes that may be there beside what is there anyway.
        """
        count, self._count = len(links), len(links)
        often = statistics.mode([link.enters for link in links[1:]] or [0]) or limit
        self.slot = max(often / math.ceil(_SLOTS[0] * often / limit), limit / _SLOTS[1])
        self.slots = int(limit / self.slot + 1e-6)
        parts = 1 / self.slot
        self._enters = np.array([self._up(link.enters * parts) for link in links] + [0])
        self._entering = _sums([link.enters * parts for link in links])
        self._made = _sums([link.made * parts for link in links])
        least = np.array([self._up(link.least * parts) for link in links])
        forward, both = _sums([link.forward for link in links]), _sums([link.both for link in links])
        again = np.array([link.again for link in links])
        # By number of links and the first one: slots and work if nothing is let go of before all are gone back through.
        self._room, self._together = [np.zeros(count + 1, int), least], [np.zeros(count + 1)]
        # And by slots: the least work of going back through them, infinite where they are too few.
        self._back = [np.zeros((count + 1, self.slots + 1), np.float32)]
        self._after = [self._back[0]]  # with what enters the first one in the slots
        self._before = [self._back[0]]  # with going forward through them
        for d in range(1, count + 1):
            s = np.arange(count + 1 - d)
            if d > 1:
                held = self._up(self._held(s, s + d) - self._made[s + d] + self._made[s + d - 1])
                self._room.append(np.maximum(self._room[-1][:-1], held + least[d - 1 :]))
            self._together.append((both[s + d - 1] - both[s] + again[d - 1 :]).astype(np.float32))
            enough = self._room[d][:, None] <= np.arange(self.slots + 1)
            best = np.where(enough, self._together[d][:, None], np.float32(np.inf))
            sums = np.empty_like(best)
            for j in range(1, d):
                np.minimum(best, np.add(self._before[j][: len(s)], self._after[d - j][j:], out=sums), out=best)
            self._back.append(best)
            self._after.append(_later(best, self._enters[: len(best)]))
            self._before.append(best + (forward[d:] - forward[s]).astype(np.float32)[:, None])
        # The same for all links from one on, through each of which the forward pass goes anyway.
        self._rest = np.zeros((count + 1, self.slots + 1), np.float32)
        self._behind = np.zeros((count + 1, self.slots + 1), np.float32)  # with what enters the first one in the slots
        for first in reversed(range(count)):
            self._rest[first] = np.min(self._parts(first), axis=(0, 1))
            self._behind[first] = _later(self._rest[[first]], self._enters[[first]])[0]

    def fewest(self, work: float) -> int | None:
        """The fewest slots within which less than so much is computed again; None if there are not so many."""
        enough = np.flatnonzero(self._rest[0] < work)
        return int(enough[0]) if len(enough) else None

    def best(self, slots: int) -> RevolveSchedule | None:
        """What computes least again within so many slots; None if nothing is within them."""
        if not np.isfinite(work := float(self._rest[0][slots])):
            return None
        kept, whole, through = list[int](), list[int](), list[tuple[int, int, int]]()
        s = 0
        while s < self._count:
            is_whole, more = np.unravel_index(np.argmin(self._parts(s)[..., slots]), (2, self._count - s))
            t = s + 1 + int(more)
            if is_whole:
                whole += range(s, t)
                kept += range(s + 1, t)
                slots -= self._up(self._held(s, t))
            else:
                through.append((s, t, slots))
            kept += [t] if t < self._count else []
            slots -= int(self._enters[t])
            s = t
        snapshots: list[tuple[int, tuple[int, ...]]] = []
        for s, t, left in reversed(through):
            snapshots.append((t, ()))
            snapshots += self._stops(s, t, left, ())
        return RevolveSchedule(work, tuple(kept), tuple(whole), tuple(snapshots))

    def _parts(self, s: int) -> np.ndarray:
        """The work from link `s` on, [way, links less one, slots], by how many links come before the next that is kept.

        These are gone back through with stops, or all that going back reads of them is kept.
        """
        ends = np.arange(s + 1, self._count + 1)
        with_stops = np.stack([self._back[t - s][s] for t in ends]) + self._behind[ends]
        enough = np.array([self._room[t - s][s] for t in ends])[:, None] <= np.arange(self.slots + 1)
        whole = _later(self._behind[ends], self._up(self._held(s, ends)))
        return np.stack([with_stops, np.where(enough, whole, np.inf)])

    def _stops(self, s: int, t: int, slots: int, there: tuple[int, ...]) -> Iterator[tuple[int, tuple[int, ...]]]:
        """The stops on the way back from `t` to `s`."""
        best = self._back[t - s][s, slots]
        if self._room[t - s][s] <= slots and self._together[t - s][s] <= best:
            return
        k = min(range(s + 1, t), key=lambda k: self._before[k - s][s, slots] + self._after[t - k][k, slots])
        yield t, (*there, k)
        yield from self._stops(k, t, slots - int(self._enters[k]), (*there, k))
        yield k, there
        yield from self._stops(s, k, slots, there)

    def _up(self, slots: Any) -> Any:
        """Slots as whole ones, no more than there are and one."""
        return np.minimum(np.ceil(slots - 1e-6), self.slots + 1).astype(int)

    def _held(self, s: Any, t: Any) -> Any:
        """Slots, not rounded, of all that going back through links from `s` up to `t` reads."""
        return self._made[t] - self._made[s] + self._entering[t] - self._entering[s + 1]


def _sums(numbers: Sequence[float]) -> np.ndarray:
    return np.concatenate([[0.0], np.cumsum(numbers)])


def _later(work: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """Work by slots, if in each row so many of them are taken."""
    left = np.arange(work.shape[1]) - slots[:, None]
    return np.where(left >= 0, np.take_along_axis(work, np.maximum(left, 0), axis=1), np.float32(np.inf))
