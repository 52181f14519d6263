"""What takes long says so where it disturbs no result, and is gone when it is done."""

import threading
import time

import jax.numpy as jnp
import pytest

from rematscope import lint, measure, plan
from rematscope.render import progress as bars
from rematscope.render.progress import progress, working


def test_nothing_is_said_where_nobody_looks(capsys):
    with progress(total=3) as tell:
        tell("one of three", 1)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_shows_what_is_done_and_the_time_that_is_left(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress(total=3) as tell:
        tell("one of three", 1)
    printed = capsys.readouterr()
    assert "one of three" in printed.err and printed.out == ""


def test_what_is_quick_is_quiet(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with progress(total=3, after=1) as tell:
        tell("the first", 1)
        assert capsys.readouterr() == ("", "")
        now = 1.0
        tell("the second", 2)
    assert "the second" in capsys.readouterr().err


def test_a_notebook_shows_text_that_what_comes_next_replaces(monkeypatch, capsys):
    cleared = []
    monkeypatch.setattr("IPython.display.clear_output", lambda wait: cleared.append(wait))
    monkeypatch.setattr(bars, "in_notebook", lambda: True)
    with progress() as tell:
        tell("compiling", 0)
        assert capsys.readouterr().out == "compiling\n" and cleared == []
    assert cleared == [True]
    with progress(total=4) as tell:
        tell("points", 1)
        tell("points", 2)
    assert capsys.readouterr().out == "points: 25%\npoints: 50%\n" and cleared == [True] * 3


@pytest.fixture
def shown(monkeypatch):
    """A terminal, and an event: set when something shows itself, which happens as soon as it begins."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(bars, "PATIENCE", 0)
    start, shown = bars.Progress.start, threading.Event()

    def started(bar):
        start(bar)
        shown.set()

    monkeypatch.setattr(bars.Progress, "start", started)
    return shown


@pytest.mark.parametrize(
    ("does", "text"),
    [
        (lambda f: plan(f, jnp.ones(4), budget=0), "planning"),
        (lambda f: lint(f, jnp.ones(4)), "looking at names and checkpoints"),
        (lambda f: measure(f, jnp.ones(4), target="cpu"), "compiling for cpu"),
    ],
    ids=["plan", "lint", "measure"],
)
def test_what_is_one_long_call_says_what_it_does(shown, capsys, does, text):
    seen = []

    def f(x):
        seen.append(shown.wait(60))
        return jnp.sin(x) ** 2

    does(f)
    printed = capsys.readouterr()
    assert seen[0] and text in printed.err and printed.out == ""


def test_one_says_something_at_a_time(shown, capsys):
    with working("the outer"):
        assert shown.wait(60)
        with working("the inner"):
            pass
    assert "the inner" not in capsys.readouterr().err
    shown.clear()
    with working("the next"):
        assert shown.wait(60)
    assert "the next" in capsys.readouterr().err


def test_a_long_call_is_quiet_in_a_notebook_and_for_a_second(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with working("quick"):
        pass
    monkeypatch.setattr(bars, "PATIENCE", 0)
    monkeypatch.setattr(bars, "in_notebook", lambda: True)
    threads = threading.active_count()
    with working("in a cell"):
        assert threading.active_count() == threads
    assert capsys.readouterr() == ("", "")
