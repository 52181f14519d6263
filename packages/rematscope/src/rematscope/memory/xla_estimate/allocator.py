"""The buffers of results: allocated from the start, and shared by other values until the results are written."""

import bisect
from collections.abc import Iterable


class FirstFit:
    """The buffers of results, which hold other values until the results are written; smallest and earliest first."""

    def __init__(self, results: Iterable[tuple[int, int, int]]):
        """Args:
        results: for each result its bytes, the step from which its buffer is free, and the step that writes it.
        """
        self._made: dict[int, list[int]] = {}  # for each size the steps that write results of that size
        # For each buffer, in order, the starts and the stops of the intervals in which it is occupied.
        self._taken: dict[int, list[tuple[list[int], list[int]]]] = {}
        for size, made, free in sorted((size, made, free) for size, free, made in results):
            self._made.setdefault(size, []).append(made)
            self._taken.setdefault(size, []).append(([-1], [free]))

    def allocate(self, size: int, made: int, last: int) -> bool:
        """Reserve a buffer for so many bytes between two steps, and return whether there was one."""
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
