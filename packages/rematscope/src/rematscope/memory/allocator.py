"""Room that is set aside for results from the start, and who else lies there until they are made."""

import bisect
from collections.abc import Iterable


class FirstFit:
    """The rooms of results, in which others may lie until these are made; the smallest and earliest come first."""

    def __init__(self, results: Iterable[tuple[int, int, int]]):
        """Args:
        results: bytes of each, the step from which its room is free, and the one at which it is made.
        """
        self._made: dict[int, list[int]] = {}  # bytes → when results of that size are made
        # Of each room the steps between which it is taken, in order: starts, and stops.
        self._taken: dict[int, list[tuple[list[int], list[int]]]] = {}
        for size, made, free in sorted((size, made, free) for size, free, made in results):
            self._made.setdefault(size, []).append(made)
            self._taken.setdefault(size, []).append(([-1], [free]))

    def allocate(self, size: int, made: int, last: int) -> bool:
        """Finds a room for so many bytes from one step to another, if there is one."""
        for room, steps in self._made.items():
            if room < size:
                continue
            for starts, stops in self._taken[room][bisect.bisect_left(steps, last) :]:
                place = bisect.bisect_left(starts, made)
                if (place and stops[place - 1] > made) or (place < len(starts) and starts[place] < last):
                    continue
                starts.insert(place, made)
                stops.insert(place, last)
                return True
        return False
