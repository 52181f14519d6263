"""Cache verdicts: several submissions of a class often trace to the same program."""

import threading
from collections.abc import Callable
from concurrent.futures import Future

from grader.verdicts.verdict import Outcome, Verdict

_VERDICTS = 10_000  # that are kept, a few kilobytes each


class VerdictCache:
    """Verdicts that are made once for the same programs and inputs, also where several threads ask at the same time."""

    def __init__(self) -> None:
        self._made: dict[bytes, Future[Verdict]] = {}
        self._lock = threading.Lock()

    def __call__(self, key: bytes, make: Callable[[], Verdict]) -> Verdict:
        """The verdict of this key; `make` is called if there is none yet, and raises whatever it raises.

        What it raises is for one who asked: the sandbox that it lost may not be that of others who wait. They begin
        anew.
        """
        mine: Future[Verdict] = Future()
        while (made := self._claim_verdict(key, mine)) is not mine:
            if made.exception() is None:
                return made.result()
        try:
            verdict = make()
        except BaseException as error:
            self._forget_verdict(key)
            mine.set_exception(error)
            raise
        # What could not be judged may be the moment's fault: time was up, memory was short.
        if verdict.outcome == Outcome.NOT_JUDGED:
            self._forget_verdict(key)
        mine.set_result(verdict)
        return verdict

    def _claim_verdict(self, key: bytes, mine: Future[Verdict]) -> Future[Verdict]:
        """Return the verdict that is made or being made, or else `mine`, which the caller must make."""
        with self._lock:
            made = self._made.setdefault(key, mine)
            if len(self._made) > _VERDICTS:
                del self._made[next(iter(self._made))]
            return made

    def _forget_verdict(self, key: bytes) -> None:
        with self._lock:
            self._made.pop(key, None)
