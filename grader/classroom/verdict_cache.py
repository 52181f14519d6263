"""Cache verdicts: several submissions of a class often trace to the same program."""

import threading
from collections.abc import Callable
from concurrent.futures import Future

from grader.verdicts.verdict import Outcome, Verdict

_VERDICTS = 10_000  # the size of the cache; each verdict takes a few kilobytes


class VerdictCache:
    """A cache of verdicts, which judges identical programs and inputs once, even if several threads ask for the verdict
    at the same time."""

    def __init__(self) -> None:
        self._made: dict[bytes, Future[Verdict]] = {}
        self._lock = threading.Lock()

    def __call__(self, key: bytes, make: Callable[[], Verdict]) -> Verdict:
        """Return the verdict for `key`. If there is none yet, call `make`, whose errors are passed on.

        An error is raised only in the thread that called `make`, because its sandbox may not be that of the waiting
        threads. These threads start again.
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
        # The cause may be temporary, such as a time limit or too little memory, so this verdict is not cached.
        if verdict.outcome == Outcome.NOT_JUDGED:
            self._forget_verdict(key)
        mine.set_result(verdict)
        return verdict

    def _claim_verdict(self, key: bytes, mine: Future[Verdict]) -> Future[Verdict]:
        """Return the future of a verdict that is finished or in progress; otherwise `mine`, which the caller must
        complete."""
        with self._lock:
            made = self._made.setdefault(key, mine)
            if len(self._made) > _VERDICTS:
                del self._made[next(iter(self._made))]
            return made

    def _forget_verdict(self, key: bytes) -> None:
        with self._lock:
            self._made.pop(key, None)
