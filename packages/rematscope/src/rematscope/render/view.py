"""`View`: what shows itself in a terminal through rich, in JupyterLab as HTML, on GitHub and elsewhere as text."""

import io
import os
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

from rematscope.render.files import write_whole
from rematscope.render.html import document


class View:
    """Something that shows itself. A subclass says its `parts`, once.

    What is no sum of parts, or reads otherwise as a page, has a `__rich_console__` or an `html` of its own.
    """

    def parts(self) -> Iterable["View"]:
        """The views that it is made of, from top to bottom."""
        raise NotImplementedError(f"{type(self).__name__} says neither its parts nor how it looks")

    def html(self) -> str:
        """The same words as HTML, in which nothing is fetched, and nothing runs but the search in a long program."""
        return "".join(part.html() for part in self.parts())

    def page(self) -> str:
        """The same for a page by itself, where a reader may also search and nothing else is near."""
        return "".join(part.page() for part in self.parts()) if type(self).html is View.html else self.html()

    def pane(self) -> dict:
        """The state of a widget that shows it: HTML, a note about each value in it, and what stands there meanwhile."""
        return {"html": self.html(), "notes": [], "idle": ""}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes it as one page that needs nothing else: to look at in any browser, or to send to somebody.

        The page follows the browser's light or dark theme. A file that is there is replaced whole.

        Args:
          path: where to; a name that ends in `.html` opens in a browser.

        Raises:
          OSError: it cannot be written there.
        """
        write_whole(path, document(self.page()))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.parts()

    def __repr__(self) -> str:
        return plain_text(self)

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        return {"text/plain": repr(self), "text/html": self.html()}


def in_notebook() -> bool:
    """Whether what is displayed goes to JupyterLab or another front end that shows HTML."""
    return Console().is_jupyter


def show(view: RenderableType) -> None:
    """Displays in a notebook, prints in a terminal."""
    if in_notebook():
        from IPython.display import display

        display(view)
        return
    console = Console()
    try:
        console.print(view)
    except UnicodeEncodeError:  # a pipe or an old terminal that knows no arrows
        print(plain_text(view, console.width, console.encoding))


def plain_text(view: RenderableType, width: int = 100, encoding: str = "utf-8") -> str:
    """What `view` looks like without colour, `width` columns wide, in the characters that an encoding has."""
    # A file of its own: the text is the same wherever the program's output goes.
    page = io.TextIOWrapper(io.BytesIO(), encoding, errors="replace", newline="")
    Console(file=page, width=width, color_system=None, force_jupyter=False, force_terminal=False).print(view)
    page.seek(0)
    return "\n".join(line.rstrip() for line in page.read().splitlines())
