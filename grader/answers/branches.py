"""Which ways the branches in an answer's code go while it runs."""

import inspect
import sys
from collections.abc import Sequence
from types import CodeType

from grader.answers.watching import Watch

_TOOL = 4  # of the six numbers that there are (PEP 669) one that nothing known uses
_EVENTS = sys.monitoring.events

type Way = tuple[CodeType, int, int]


class Branches(Watch):
    """While it is a context, it sees which ways the branches in some code go, and which functions are entered: an `if`
    that was only ever true has gone one way of two.

    Args:
      codes: the code to watch. Whatever else runs is no slower for it.
    """

    def __init__(self, codes: Sequence[CodeType]):
        super().__init__(_TOOL, codes, {_EVENTS.BRANCH: self._branch, _EVENTS.PY_START: self._enter})
        self.codes = codes
        self._gone: dict[tuple[CodeType, int], set[int]] = {}
        self._of_late: set[Way] = set()
        # A class's body has run when the class was made; Python itself calls a method like __eq__, or nobody does.
        self._not_entered = {
            code
            for code in codes
            if code.co_flags & inspect.CO_OPTIMIZED and (code.co_name == "__call__" or not code.co_name.endswith("__"))
        }

    def _branch(self, code: CodeType, place: int, destination: int) -> None:
        self._gone.setdefault((code, place), set()).add(destination)
        self._of_late.add((code, place, destination))

    def _enter(self, code: CodeType, place: int) -> None:
        self._not_entered.discard(code)
        self._of_late.add((code, place, place))

    def ways_since(self) -> frozenset[Way]:
        """The ways that have been gone since this was asked last: of each its code, where it parts, where it leads."""
        ways = frozenset(self._of_late)
        self._of_late.clear()
        return ways

    @property
    def one_sided(self) -> frozenset[Way]:
        """The ways of those branches that have gone one way of two."""
        alone = [(code, place, ways) for (code, place), ways in self._gone.items() if len(ways) == 1]
        return frozenset((code, place, destination) for code, place, ways in alone for destination in ways)

    @property
    def all_entered(self) -> bool:
        """Whether every function has been entered."""
        return not self._not_entered
