"""What takes long says so where it disturbs no result, and is gone when it is done."""

import time

from rematscope.render import progress as bars
from rematscope.render.progress import progress


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
