"""Verdicts that are computed once and shared by concurrent requests."""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from grader.classroom.verdict_cache import VerdictCache
from grader.verdicts.verdict import Outcome, Verdict

PASSED = Verdict("policy_from_rules", Outcome.PASSED)
NOT_JUDGED = Verdict("policy_from_rules", Outcome.NOT_JUDGED)


def while_another_waits(make, make_for_another):
    """Return the futures of two requests for a verdict. The second one waits before the first one computes it."""
    cache, asked = VerdictCache(), threading.Event()
    waiting = threading.Event()

    def first():
        asked.set()
        assert waiting.wait(300)
        return make()

    idents = []

    def another():
        idents.append(threading.get_ident())
        return cache(b"same", make_for_another)

    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(cache, b"same", first)
        assert asked.wait(300)
        other = threads.submit(another)
        deadline = time.monotonic() + 300
        while not (idents and waits(idents[0])):
            assert time.monotonic() < deadline
            time.sleep(0.001)
        waiting.set()
    return one, other


def waits(thread):
    """Return whether a thread is blocked in `threading.Condition.wait`."""
    frame = sys._current_frames().get(thread)
    while frame:
        if frame.f_code is threading.Condition.wait.__code__:
            return True
        frame = frame.f_back
    return False


def lost():
    raise ConnectionError("the sandbox is lost")


def test_a_waiting_answer_gets_the_verdict_of_an_identical_answer():
    one, other = while_another_waits(lambda: PASSED, lost)
    assert one.result() is other.result() is PASSED


def test_a_verdict_lost_with_a_sandbox_is_computed_by_a_waiting_sandbox():
    one, other = while_another_waits(lost, lambda: PASSED)
    with pytest.raises(ConnectionError):
        one.result()
    assert other.result() is PASSED


@pytest.mark.parametrize(("first", "then"), [(lambda: NOT_JUDGED, PASSED), (lambda: PASSED, PASSED)])
def test_an_answer_that_could_not_be_judged_is_retried(first, then):
    cache, calls = VerdictCache(), []
    cache(b"same", first)
    assert cache(b"same", lambda: calls.append(1) or PASSED) == then
    assert bool(calls) == (first() is NOT_JUDGED)
