"""Long calls show a progress message that does not disturb results and disappears at the end."""

import threading
import time

import jax.numpy as jnp
import pytest

from rematscope import lint, measure, plan
from rematscope.render import progress as bars
from rematscope.render.progress import progress, progress_message


def test_no_progress_is_printed_without_a_terminal(capsys):
    with progress(total=3) as tell:
        tell("one of three", 1)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_shows_the_progress_and_the_remaining_time(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress(total=3) as tell:
        tell("one of three", 1)
    printed = capsys.readouterr()
    assert "one of three" in printed.err and printed.out == ""


def test_quick_calls_print_no_progress(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with progress(total=3, after=1) as tell:
        tell("the first", 1)
        assert capsys.readouterr() == ("", "")
        now = 1.0
        tell("the second", 2)
    assert "the second" in capsys.readouterr().err


@pytest.fixture
def cell(monkeypatch):
    """In a notebook: what the cell's outputs have shown so far, the last of it now, a list for each; and no cell is
    cleared."""
    outputs = []

    class Output(list):
        def update(self, data, raw):
            self.append(data.get("text/plain", ""))

    def display(data, raw, display_id):
        assert data == {}, "whoever compares outputs sees nothing come"
        outputs.append(Output())
        return outputs[-1]

    monkeypatch.setattr("IPython.display.display", display)
    monkeypatch.setattr(bars, "in_notebook", lambda: True)
    return outputs


def test_a_notebook_shows_a_line_that_is_empty_at_the_end(cell, capsys):
    with progress() as tell:
        tell("compiling", 0)
        assert cell == [["compiling …"]]
    with progress(total=4) as tell:
        tell("points", 1)
        tell("points", 2)
    with progress(total=4, after=60) as tell:
        tell("what is quick", 1)
    assert cell == [["compiling …", ""], ["points: 25%", "points: 50%", ""]]
    assert capsys.readouterr() == ("", "")


def test_a_long_call_shows_its_task_in_a_notebook(cell, monkeypatch):
    monkeypatch.setattr(bars, "DELAY_S", 60)
    with progress_message("quick"):
        pass
    assert cell == []
    monkeypatch.setattr(bars, "DELAY_S", 0)
    with progress_message("planning"), progress_message("the inner"):
        deadline = time.monotonic() + 300
        while not cell or not cell[0]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert cell == [["planning …", ""]]


@pytest.mark.slow
def test_a_notebook_shows_the_seconds_while_a_call_does_not_return(cell):
    with progress() as tell:
        tell("compiling", 0)
        deadline = time.monotonic() + 300
        while "compiling … 2 s" not in cell[0]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert cell[0][0] == "compiling …" and cell[0][-1] == ""


def test_a_terminal_shows_the_seconds_of_a_step_of_unknown_length(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress() as tell:
        tell("compiling", 0)
    assert "0:00:0" in capsys.readouterr().err


@pytest.fixture
def shown(monkeypatch):
    """A terminal, and an event: set when something shows itself, which happens as soon as it begins."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(bars, "DELAY_S", 0)
    start, shown = bars.Progress.start, threading.Event()

    def started(bar):
        start(bar)
        shown.set()

    monkeypatch.setattr(bars.Progress, "start", started)
    return shown


@pytest.mark.parametrize(
    ("does", "text"),
    [
        (lambda f: plan(f, jnp.ones(4), saved=0), "planning"),
        (lambda f: lint(f, jnp.ones(4)), "checking names and checkpoints"),
        (lambda f: measure(f, jnp.ones(4), target="cpu"), "compiling for cpu"),
    ],
    ids=["plan", "lint", "measure"],
)
def test_a_single_long_call_shows_its_task(shown, capsys, does, text):
    seen = []

    def f(x):
        seen.append(shown.wait(60))
        return jnp.sin(x) ** 2

    does(f)
    printed = capsys.readouterr()
    assert seen[0] and text in printed.err and printed.out == ""


def test_one_says_something_at_a_time(shown, capsys):
    with progress_message("the outer"):
        assert shown.wait(60)
        with progress_message("the inner"):
            pass
    assert "the inner" not in capsys.readouterr().err
    shown.clear()
    with progress_message("the next"):
        assert shown.wait(60)
    assert "the next" in capsys.readouterr().err
