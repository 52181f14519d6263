"""The garbage collector runs as often after a check as before."""

import gc

import pytest

from grader import check
from grader.util import garbage


def test_the_garbage_collector_runs_as_often_after_a_check_as_before():
    before = gc.get_threshold()
    during = []

    def count_residuals(*_):
        during.append(gc.get_threshold()[0])
        raise ZeroDivisionError

    assert not check(count_residuals).passed
    assert set(during) == {garbage.SELDOM} and gc.get_threshold() == before


def test_an_error_leaves_nothing_behind():
    before = gc.get_threshold()
    with pytest.raises(KeyError), garbage.infrequent_collections():
        raise KeyError
    assert gc.get_threshold() == before
