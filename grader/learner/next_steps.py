"""Say what a learner has learned by passing an exercise, and link to the next page."""

import functools
import re

from markupsafe import Markup
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from grader.learner import board, pages
from grader.learner.board import page_link
from grader.learner.pages import Page
from grader.verdicts.views import box, text_html
from rematscope.render import View


class NextSteps(View):
    """What an exercise teaches, and the pages that come next.

    Args:
      exercise: the exercise's name.
    """

    def __init__(self, exercise: str):
        skill = skills().get(exercise)
        self.learned = f"You can now {skill}." if skill else ""
        self.next = board.board().next

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.learned:
            yield Text(self.learned.replace("`", ""))
        yield Text("".join(piece.label if isinstance(piece, Page) else piece for piece in self.next), style="bold")

    def html(self) -> Markup:
        pieces = (page_link(piece) if isinstance(piece, Page) else piece for piece in self.next)
        learned = Markup("<p>{}</p>").format(text_html(self.learned)) if self.learned else ""
        steps = Markup("<p><strong>{}</strong></p>").format(Markup().join(pieces))
        return box(learned + steps, "--jp-success-color1")


@functools.cache
def skills() -> dict[str, str]:
    """Return what each exercise teaches, by its name, from the last column of README's table of pages; empty if README
    is not installed."""
    try:
        readme = (pages.ROOT / "README.md").read_text(encoding="utf-8")
    except OSError:
        return {}
    return dict(re.findall(r"^\| \d+ \| .*\(exercises/\d+_(\w+)\.ipynb\) \| \d+ \| (.+) \|$", readme, re.M))
