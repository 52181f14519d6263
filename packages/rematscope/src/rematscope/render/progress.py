"""One bar for whatever takes long, on the side where it disturbs no result."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from rematscope.render.view import in_notebook


@contextlib.contextmanager
def progress(total: float | None = None, after: float = 0.0) -> Iterator[Callable[[str, float], None]]:
    """Says how far something is: with a bar in a terminal, as text in a notebook; it goes when that is done.

    Args:
      total: what there is to do, in any unit; None if that is not known.
      after: seconds in which nothing is shown yet, so that what is quick is quiet.

    Yields:
      A function that takes what is being done, in words, and how much of `total` is done.
    """
    begun = time.monotonic()
    with (_as_text if in_notebook() else _as_bar)(total) as tell:

        def patient(text: str, done: float = 0.0) -> None:
            if time.monotonic() - begun >= after:
                tell(text, done)

        yield patient


PATIENCE = 1.0  # seconds after which somebody wonders
_shown = threading.Lock()  # held by the one that shows itself: two at a time would write over each other


@contextlib.contextmanager
def working(text: str) -> Iterator[None]:
    """Says in a terminal what is being done and for how long, once it takes more than a second.

    It needs no steps to be told of: what is done may be one call that does not come back for a minute. Within another
    one it says nothing. Nor does it in a notebook, which shows itself that a cell runs, and where what goes again would
    take along what the cell has put out before.

    Args:
      text: what is being done.
    """
    console = Console(stderr=True)
    if in_notebook() or not console.is_terminal or not _shown.acquire(blocking=False):
        yield
        return
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=console, transient=True
    )  # fmt: skip
    bar.add_task(text, total=None)
    turns, done = threading.Lock(), False

    def show() -> None:
        with turns:
            if not done:
                bar.start()

    timer = threading.Timer(PATIENCE, show)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with turns:
            done = True
            if bar.live.is_started:
                bar.stop()
        _shown.release()


@contextlib.contextmanager
def _as_bar(total: float | None) -> Iterator[Callable[[str, float], None]]:
    console = Console(stderr=True)
    if not console.is_terminal:  # a log would keep every step
        yield lambda text, done: None
        return
    # One step may take a minute: half of one, as rich has it, is too short to tell how fast it goes.
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), _Left(), console=console, transient=True,
        speed_estimate_period=300,
    )  # fmt: skip
    task = bar.add_task("", total=total)

    def tell(text: str, done: float) -> None:
        bar.update(task, description=text, completed=done)
        bar.start()

    alone = _shown.acquire(blocking=False)
    try:
        yield tell
    finally:
        bar.stop()
        if alone:
            _shown.release()


class _Left(TimeRemainingColumn):
    def render(self, task: Task) -> Text:
        return Text.assemble("about ", super().render(task), " left") if task.time_remaining is not None else Text()


@contextlib.contextmanager
def _as_text(total: float | None) -> Iterator[Callable[[str, float], None]]:
    from IPython.display import clear_output

    said = False

    def tell(text: str, done: float) -> None:
        nonlocal said
        if said:
            clear_output(wait=True)
        print(text if total is None else f"{text}: {done / total:.0%}")
        said = True

    try:
        yield tell
    finally:
        if said:
            clear_output(wait=True)  # what comes next takes its place
