"""A progress bar or message for long calls, on stderr in a terminal and in its own output in a notebook."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from rematscope.render.view import in_notebook

Report = Callable[[str, float], None]


@contextlib.contextmanager
def progress(total: float | None = None, after: float = 0.0) -> Iterator[Report]:
    """Show the progress and the elapsed time of a call: a bar in a terminal, a line in a notebook.

    Both are removed at the end. Nothing is shown if the output is neither a terminal nor a notebook.

    Args:
      total: the amount of work, in any unit; None if it is not known.
      after: the seconds before anything is shown, so that quick calls are quiet.

    Yields:
      A function that takes the current step, in words, and how much of `total` is done.
    """
    begun = time.monotonic()
    with _show_progress(total, TimeElapsedColumn(), _Left()) as tell:

        def patient(text: str, done: float = 0.0) -> None:
            if tell and time.monotonic() - begun >= after:
                tell(text, done)

        yield patient


DELAY_S = 1.0  # seconds before a message is shown
_one = threading.Lock()  # held by the bar that is shown, because two at a time would overwrite each other


@contextlib.contextmanager
def progress_message(text: str) -> Iterator[None]:
    """Show what a call does, and its elapsed time, once it takes more than a second.

    Within another progress message, nothing is shown.

    Args:
      text: what the call does.
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
def _show_progress(total: float | None, *clocks: ProgressColumn) -> Iterator[Report | None]:
    """Yield a function that shows the progress; None if the output is a log, which would contain every step."""
    console = Console(stderr=True)
    notebook = in_notebook()
    if not (notebook or console.is_terminal) or not _one.acquire(blocking=False):
        yield None
        return
    place = _Line(total) if notebook else _Bar(total, clocks, console)
    try:
        yield place.tell
    finally:
        place.end()
        _one.release()


class _Bar:
    """A progress bar in a terminal."""

    def __init__(self, total: float | None, clocks: Sequence[ProgressColumn], console: Console):
        # One step may take a minute, so rich's default of 30 s is too short to estimate the speed.
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), *clocks, console=console, transient=True,
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
    """A progress line in a notebook, in a separate output that is empty at the end.

    The output also starts empty, because tests compare the outputs of a page as they were first displayed.
    """

    def __init__(self, total: float | None):
        self._total = total
        self._begun = time.monotonic()
        self._text = ""
        self._output: Any = None
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def tell(self, text: str, done: float) -> None:
        from IPython.display import display

        self._text = f"{text} …" if self._total is None else f"{text}: {done / self._total:.0%}"
        if self._output is None:
            self._output = display({}, raw=True, display_id=True)
            threading.Thread(target=self._show_each_second, daemon=True).start()
        self._show_line()

    def _show_line(self) -> None:
        elapsed = int(time.monotonic() - self._begun)
        with self._lock:
            if not self._ended.is_set():
                self._output.update({"text/plain": f"{self._text} {elapsed} s" if elapsed else self._text}, raw=True)

    def _show_each_second(self) -> None:
        """Show the elapsed time each second, also during a call that does not return for a minute."""
        while not self._ended.wait(1):
            self._show_line()

    def end(self) -> None:
        with self._lock:
            self._ended.set()
            if self._output is not None:
                self._output.update({}, raw=True)
