"""`View`: an object that displays itself through rich in a terminal, as HTML in JupyterLab, and as text elsewhere."""

import io
import os
import shutil
import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

from rematscope.render.files import write_whole
from rematscope.render.html import html_document


class View:
    """An object that displays itself in every format. A subclass defines only the `parts` that it consists of.

    A subclass that does not consist of parts, or whose HTML differs from its text, overrides `__rich_console__` or
    `html`.
    """

    def parts(self) -> Iterable["View"]:
        """Return the views that this view consists of, from top to bottom."""
        raise NotImplementedError(f"{type(self).__name__} defines neither parts nor __rich_console__")

    def html(self) -> str:
        """Return the view as HTML that loads no resources and uses no JavaScript, except for the search in long
        programs."""
        return "".join(part.html() for part in self.parts())

    def page(self) -> str:
        """Return the view as HTML for a standalone page, in which all programs can be searched."""
        return "".join(part.page() for part in self.parts()) if type(self).html is View.html else self.html()

    def pane(self) -> dict:
        """Return the widget's state: HTML, a note about each value, and the text for when no value is highlighted."""
        return {"html": self.html(), "notes": [], "idle": ""}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the view to a self-contained HTML file.

        The page follows the browser's light or dark theme. `save` replaces an existing file atomically.

        Args:
          path: the path of the file to write, such as `"view.html"`.

        Raises:
          OSError: if the file cannot be written.
        """
        write_whole(path, html_document(self.page()))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.parts()

    def __repr__(self) -> str:
        return plain_text(self, _text_width())

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        return {"text/plain": repr(self), "text/html": self.html()}


def in_notebook() -> bool:
    """Return whether the output goes to JupyterLab or another front end that shows HTML."""
    return Console().is_jupyter


def show(view: RenderableType) -> None:
    """Display a view in a notebook, or print it in a terminal."""
    if in_notebook():
        from IPython.display import display

        display(view)
        return
    console = Console()
    try:
        console.print(view)
    except UnicodeEncodeError:  # a pipe or an old terminal whose encoding has no arrows
        print(plain_text(view, console.width, console.encoding))


def _text_width() -> int:
    """Return the width of text in columns: 100, or that of a narrower terminal that Python prints to."""
    return min(100, shutil.get_terminal_size().columns) if sys.stdout.isatty() else 100


def plain_text(view: RenderableType, width: int = 100, encoding: str = "utf-8") -> str:
    """Return a view as text without colors, `width` columns wide, in the characters of an encoding."""
    # A separate file, so that the text does not depend on where the program's output goes.
    page = io.TextIOWrapper(io.BytesIO(), encoding, errors="replace", newline="")
    Console(file=page, width=width, color_system=None, force_jupyter=False, force_terminal=False).print(view)
    page.seek(0)
    return "\n".join(line.rstrip() for line in page.read().splitlines())
