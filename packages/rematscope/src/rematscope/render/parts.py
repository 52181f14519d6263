"""How a view reaches the reader: a terminal through rich, JupyterLab as HTML, GitHub as text."""

import base64
import io
from collections.abc import Callable, Collection, Sequence

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table
from rich.text import Text

from rematscope.render.html import html_table, pre
from rematscope.render.theme import SHEET


class Lines:
    """Text in lines that stay as they are."""

    def __init__(self, lines: Sequence[str]):
        self.lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from map(Text, self.lines)

    def __repr__(self):
        return plain_text(self)

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        page = f'{SHEET}\n<div class="rematscope">{pre([[(line, "")] for line in self.lines])}</div>'
        return {"text/plain": plain_text(self), "text/html": page}


class TextTable:
    """Rows of texts, the first one the header, and a line below."""

    def __init__(self, rows: Sequence[Sequence[str]], footer: str, numeric: Collection[str] = ()):
        self.rows = rows
        self.footer = footer
        self.numeric = numeric

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        header, *rows = self.rows
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
        for title in header:
            table.add_column(title, justify="right" if title in self.numeric else "left", overflow="fold")
        for row in rows:
            table.add_row(*map(Text, row))
        yield table
        yield Text(self.footer)

    def __repr__(self):
        return plain_text(self)

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        return {"text/plain": plain_text(self), "text/html": html_table(self.rows, self.footer)}


class Stack:
    """Views one above another."""

    def __init__(self, *views):
        self.views = views

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for i, view in enumerate(self.views):
            yield Group(*[""] * (i > 0), view)

    def __repr__(self):
        return plain_text(self)

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        pages = [view._repr_mimebundle_()["text/html"] for view in self.views]
        return {"text/plain": plain_text(self), "text/html": "\n<br>\n".join(pages)}


def show(view) -> None:
    """Displays in a notebook, prints in a terminal."""
    console = Console()
    if console.is_jupyter:
        from IPython.display import display

        display(view)
        return
    try:
        console.print(view)
    except UnicodeEncodeError:  # a pipe or an old terminal that knows no arrows
        print(plain_text(view, console.width).encode(console.encoding, "replace").decode(console.encoding))


def plain_text(view, width: int = 100) -> str:
    """What `view` looks like without colour, `width` columns wide."""
    console = Console(width=width, color_system=None, force_jupyter=False, force_terminal=False)
    with console.capture() as capture:
        console.print(view)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def png(plot: Callable, size: tuple[float, float]) -> str:
    """What `plot(ax)` draws, as a base64 text; `size` is in inches. The ground is white in a dark theme too."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    plot(figure.subplots())
    page = io.BytesIO()
    figure.savefig(page, dpi=100, metadata={"Software": None})
    return base64.b64encode(page.getvalue()).decode()
