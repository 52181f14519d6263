"""One bar for whatever takes long, on the side where it disturbs no result."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from rematscope.render.view import in_notebook

Report = Callable[[str, float], None]


@contextlib.contextmanager
def progress(total: float | None = None, after: float = 0.0) -> Iterator[Report]:
    """Says how far something is: with a bar in a terminal, in a line in a notebook; it goes when that is done.

    Args:
      total: what there is to do, in any unit; None if that is not known.
      after: seconds in which nothing is shown yet, so that what is quick is quiet.

    Yields:
      A function that takes what is being done, in words, and how much of `total` is done.
    """
    begun = time.monotonic()
    with _show_progress(total, _Left()) as tell:

        def patient(text: str, done: float = 0.0) -> None:
            if tell and time.monotonic() - begun >= after:
                tell(text, done)

        yield patient


DELAY_S = 1.0  # seconds after which somebody wonders
_one = threading.Lock()  # held by the one that shows itself: two at a time would write over each other


@contextlib.contextmanager
def progress_message(text: str) -> Iterator[None]:
    """Says what is being done, and in a terminal for how long, once it takes more than a second.

    It needs no steps to be told of: what is done may be one call that does not come back for a minute. Within another
    one it says nothing.

    Args:
      text: what is being done.
    """
    with _show_progress(None, TimeElapsedColumn()) as tell:
        if tell is None:
            yield
            return
        turns, done = threading.Lock(), False

        def show() -> None:
            with turns:
                if not done:
                    tell(text, 0.0)

        timer = threading.Timer(DELAY_S, show)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            with turns:
                done = True


@contextlib.contextmanager
def _show_progress(total: float | None, clock: ProgressColumn) -> Iterator[Report | None]:
    """A function that shows how far something is; None where nobody looks (a log would keep every step)."""
    console = Console(stderr=True)
    notebook = in_notebook()
    if not (notebook or console.is_terminal) or not _one.acquire(blocking=False):
        yield None
        return
    place = _Line(total) if notebook else _Bar(total, clock, console)
    try:
        yield place.tell
    finally:
        place.end()
        _one.release()


class _Bar:
    """In a terminal."""

    def __init__(self, total: float | None, clock: ProgressColumn, console: Console):
        # One step may take a minute: half of one, as rich has it, is too short to tell how fast it goes.
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), clock, console=console, transient=True,
            speed_estimate_period=300,
        )  # fmt: skip
        self._task = self._bar.add_task("", total=total)

    def tell(self, text: str, done: float) -> None:
        self._bar.update(self._task, description=text, completed=done)
        self._bar.start()

    def end(self) -> None:
        if self._bar.live.is_started:
            self._bar.stop()


class _Left(TimeRemainingColumn):
    def render(self, task: Task) -> Text:
        return Text.assemble("about ", super().render(task), " left") if task.time_remaining is not None else Text()


class _Line:
    """In a notebook: an output that changes, and is empty at the end; what else the cell puts out stays.

    It begins empty too: whoever compares a page's outputs with stored ones looks at those that came, not at what became
    of them.
    """

    def __init__(self, total: float | None):
        self._total = total
        self._output: Any = None

    def tell(self, text: str, done: float) -> None:
        from IPython.display import display

        if self._output is None:
            self._output = display({}, raw=True, display_id=True)
        share = f"{text} …" if self._total is None else f"{text}: {done / self._total:.0%}"
        self._output.update({"text/plain": share}, raw=True)

    def end(self) -> None:
        if self._output is not None:
            self._output.update({}, raw=True)
