"""Which ways the branches in an answer's code go while it runs."""

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import CodeType

_TOOL = 4  # of the six numbers that there are (PEP 669) one that nothing known uses
_BRANCH = sys.monitoring.events.BRANCH


class Branches(AbstractContextManager):
    """While it is a context, it sees which ways the branches in some code go: an `if` that was only ever true has gone
    one way of two.

    Args:
      codes: the code to watch. Whatever else runs is no slower for it.
    """

    def __init__(self, codes: Sequence[CodeType]):
        self.codes = self._codes = codes
        self._gone: dict[tuple[CodeType, int], set[int]] = {}
        self._of_late: set[tuple[CodeType, int, int]] = set()

    def __enter__(self) -> "Branches":
        if sys.monitoring.get_tool(_TOOL):  # somebody else watches
            self._codes = ()
        if self._codes:
            sys.monitoring.use_tool_id(_TOOL, __name__)
            sys.monitoring.register_callback(_TOOL, _BRANCH, self._branch)
            for code in self._codes:
                sys.monitoring.set_local_events(_TOOL, code, _BRANCH)
        return self

    def __exit__(self, *_: object) -> None:
        if self._codes:
            for code in self._codes:
                sys.monitoring.set_local_events(_TOOL, code, 0)
            sys.monitoring.register_callback(_TOOL, _BRANCH, None)
            sys.monitoring.free_tool_id(_TOOL)

    def _branch(self, code: CodeType, place: int, destination: int) -> None:
        self._gone.setdefault((code, place), set()).add(destination)
        self._of_late.add((code, place, destination))

    def ways_since(self) -> frozenset[tuple[CodeType, int, int]]:
        """The ways that have been gone since this was asked last: of each its code, where it parts, where it leads."""
        ways = frozenset(self._of_late)
        self._of_late.clear()
        return ways

    @property
    def one_sided(self) -> frozenset[tuple[CodeType, int, int]]:
        """The ways of those branches that have gone one way of two."""
        alone = [(code, place, ways) for (code, place), ways in self._gone.items() if len(ways) == 1]
        return frozenset((code, place, destination) for code, place, ways in alone for destination in ways)
