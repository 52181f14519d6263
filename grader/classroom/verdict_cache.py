"""Verdicts that are kept: a class often finds the same program."""

import threading
from collections.abc import Callable
from concurrent.futures import Future

from grader.verdicts.kinds import Outcome
from grader.verdicts.verdict import Verdict

_VERDICTS = 10_000  # that are kept, a few kilobytes each


class VerdictCache:
    """Verdicts that are made once for the same programs and inputs, also where several threads ask at the same time."""

    def __init__(self) -> None:
        self._made: dict[bytes, Future[Verdict]] = {}
        self._lock = threading.Lock()

    def __call__(self, key: bytes, make: Callable[[], Verdict]) -> Verdict:
        """The verdict of this key; `make` is called if there is none yet, and raises what it raises for all who ask."""
        with self._lock:
            known = self._made.get(key)
            if known is None:
                mine = self._made[key] = Future()
                if len(self._made) > _VERDICTS:
                    del self._made[next(iter(self._made))]
        if known:
            return known.result()
        try:
            mine.set_result(make())
        except BaseException as error:
            mine.set_exception(error)
        # What could not be judged may be the moment's fault: time was up, memory was short.
        if mine.exception() or mine.result().outcome == Outcome.NOT_JUDGED:
            with self._lock:
                self._made.pop(key, None)
        return mine.result()
