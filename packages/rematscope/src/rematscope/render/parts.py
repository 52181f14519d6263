"""The views that others are made of: lines, a paragraph, a table, a stack, and a picture above its numbers."""

import abc
import html
import importlib.util
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rematscope.render.figure import DPI, png
from rematscope.render.html import escaped, html_table, page, pre
from rematscope.render.units import bar_text
from rematscope.render.view import View
from rematscope.render.wrapping import break_words, longest_part


class Lines(View):
    """Text in lines that stay as they are."""

    def __init__(self, lines: Sequence[str]):
        self.lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from map(Text, self.lines)

    def html(self) -> str:
        return page(pre([[(line, "")] for line in self.lines]))


class Paragraph(View):
    """Words that flow into whatever room there is."""

    def __init__(self, text: str):
        self.text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.text)

    def html(self) -> str:
        return f"<p>{escaped(self.text)}</p>"


class TextTable(View):
    """Rows of texts, the first one the header, and a line below.

    Args:
      rows: lists of one length.
      footer: what is said below; None leaves no room for it.
      numeric: the titles of columns that are aligned to the right.
      bars: by the title of a column, a number from 0 to 1 for each row, drawn as a bar before the text.
    """

    def __init__(
        self,
        rows: Sequence[Sequence[str]],
        footer: str | None = None,
        numeric: Collection[str] = (),
        bars: Mapping[str, Sequence[float]] | None = None,
    ):
        self.rows = rows
        self.footer = footer
        self.numeric = numeric
        self.bars = bars or {}

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.bars:
            drawn = TextTable(self._with_bars(), self.footer, self.numeric)
            if drawn.natural_width <= options.max_width:  # a bar is not worth a wrapped line
                yield drawn
                return
        header, *rows = self.rows
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
        # Where words have to be broken, as rich has it.
        widths: Sequence[int | None] = self._column_widths(options.max_width) or [None] * len(header)
        for title, width in zip(header, widths, strict=True):
            justify: Any = "right" if title in self.numeric else "left"
            table.add_column(title, justify=justify, overflow="fold", width=width)
        for row in rows:
            table.add_row(*map(_Cell, row))
        yield table
        if self.footer is not None:
            yield Text(self.footer)

    def _with_bars(self) -> list[list[str]]:
        """The rows with bars as block characters, and the texts after them aligned to the right."""
        columns = []
        for title, *texts in zip(*self.rows, strict=True):
            if title in self.bars:
                width = max(map(cell_len, texts), default=0)
                pairs = zip(self.bars[title], texts, strict=True)
                texts = [f"{bar_text(fraction)} {text:>{width}}" for fraction, text in pairs]
            columns.append([title, *texts])
        return [[*row] for row in zip(*columns, strict=True)]

    @property
    def natural_width(self) -> int:
        """The width at which no line wraps."""
        lines = [[line for text in column for line in text.splitlines()] for column in zip(*self.rows, strict=True)]
        return sum(max(map(cell_len, each), default=0) for each in lines) + 2 * (len(lines) - 1)

    def fits(self, width: int) -> bool:
        """Whether its columns have room side by side with no word broken."""
        return self._column_widths(width) is not None

    def _column_widths(self, room: int) -> list[int] | None:
        """How wide the columns are, two apart; None if a word would have to be broken, or a number."""
        widths, least = [], []
        for title, *texts in zip(*self.rows, strict=True):
            lines = [line for text in texts for line in text.splitlines()]
            widths.append(max(map(cell_len, [title, *lines])))
            least.append(max(cell_len(t) if title in self.numeric else longest_part(t) for t in [*lines, ""]))
            least[-1] = max(least[-1], longest_part(title))
        room -= 2 * (len(widths) - 1)
        while sum(widths) > room:
            loose = [number for number, width in enumerate(widths) if width > least[number]]
            if not loose:
                return None
            widths[max(loose, key=widths.__getitem__)] -= 1
        return widths

    def html(self) -> str:
        return html_table(self.rows, self.footer, self.numeric, bars=self.bars)


class Records(TextTable):
    """The same where there is no room for columns: each row by itself, what it is, then the rest by title."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        (_, *titles), *rows = self.rows
        for first, *texts in rows:
            said = [f"{title} {text.replace(chr(10), ' ')}" for title, text in zip(titles, texts, strict=True) if text]
            yield Text(first, style="bold")
            yield Padding(_Cell(" · ".join(said)), (0, 0, 0, 2))
        if self.footer is not None:
            yield Text(self.footer)


class _Cell:
    """A text in a table, whose long words break where a reader would break them."""

    def __init__(self, text: str):
        self.text = text

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, Text(self.text))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text("\n".join(break_words(self.text, options.max_width)))


class Stack(View):
    """Views one above another."""

    def __init__(self, *views: View):
        self.views = views

    def parts(self) -> Iterable[View]:
        return self.views

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for i, view in enumerate(self.parts()):
            yield Group(*[""] * (i > 0), view)

    def html(self) -> str:
        return "\n<br>\n".join(view.html() for view in self.parts())

    def page(self) -> str:
        return "\n<br>\n".join(view.page() for view in self.parts())


def needs(extra: str, what: str) -> Lines:
    """Says what to install for a thing that is not shown, since it takes one of rematscope's extras."""
    return Lines([f"{what} an extra: pip install 'rematscope[{extra}]'"])


_NO_PICTURE = needs("plot", "The picture takes")


class Pictured(View, abc.ABC):
    """A view that is a picture in a notebook, with its parts, the numbers, below.

    Attributes:
      size: width and height of the picture, in inches.
    """

    size: tuple[float, float]

    @abc.abstractmethod
    def caption(self) -> str:
        """The alternative text of the picture."""

    @abc.abstractmethod
    def plot(self, ax) -> None:
        """Draws the picture on matplotlib axes."""

    def picture(self) -> str:
        if importlib.util.find_spec("matplotlib") is None:
            return _NO_PICTURE.html()
        about = html.escape(self.caption())
        room = 'width="{:.0f}" height="{:.0f}"'.format(*(DPI * inches for inches in self.size))  # before it is decoded
        image = f'<img src="data:image/png;base64,{png(self.plot, self.size)}" {room} alt="{about}"'
        return f'<p>{image} style="max-width: 100%; height: auto"></p>\n'

    def _ipython_display_(self) -> None:
        # Two outputs, since a front end shows only one form of each: the picture, and its numbers.
        from IPython.display import display

        if importlib.util.find_spec("matplotlib") is None:
            display(Stack(*self.parts(), _NO_PICTURE))
            return
        display({"image/png": png(self.plot, self.size), "text/plain": self.caption()}, raw=True)
        display(Stack(*self.parts()))
