"""The basic views: lines, a paragraph, a table, a stack, and a picture above its numbers."""

import abc
import importlib.util
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from rematscope.render.figure import picture
from rematscope.render.html import escaped, html_table, page, pre
from rematscope.render.theme import PICTURES
from rematscope.render.units import bar_text
from rematscope.render.view import View
from rematscope.render.wrapping import break_words, longest_part


class Lines(View):
    """Lines of text that are never rewrapped in HTML."""

    def __init__(self, lines: Sequence[str]):
        self.lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from map(Text, self.lines)

    def html(self) -> str:
        return page(pre([[(line, "")] for line in self.lines]))


class Paragraph(View):
    """A paragraph of text that wraps at any width."""

    def __init__(self, text: str):
        self.text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.text)

    def html(self) -> str:
        return f"<p>{escaped(self.text)}</p>"


class TextTable(View):
    """A table of strings, with a header and an optional footer.

    Args:
      rows: the rows, lists of the same length. The first row is the header.
      footer: the text below the table; None if there is none.
      numeric: the titles of the columns that are right-aligned and whose texts are never broken.
      bars: maps the title of a column to a number from 0 to 1 for each row, drawn as a bar before the text.
      extra: the titles of the columns that a terminal omits, in this order, while a line would wrap.
      optional: the titles of the columns that it then omits, while numbers, types or source lines do not fit.
    """

    def __init__(
        self,
        rows: Sequence[Sequence[str]],
        footer: str | None = None,
        numeric: Collection[str] = (),
        bars: Mapping[str, Sequence[float]] | None = None,
        extra: Sequence[str] = (),
        optional: Sequence[str] = (),
    ):
        self.rows = rows
        self.footer = footer
        self.numeric = numeric
        self.bars = bars or {}
        self.extra = extra
        self.optional = optional

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        available = options.max_width
        columns, dropped = self._columns_within(available)
        drawn = [self._with_bars(column) for column in columns]
        if _total_width(map(_natural_width, drawn)) <= available:  # a bar is not worth a wrapped line
            columns = drawn
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
        for column, width in zip(columns, self._column_widths(columns, available), strict=True):
            justify: Any = "right" if column[0] in self.numeric else "left"
            table.add_column(column[0], justify=justify, overflow="fold", width=width)
        for row in list(zip(*columns, strict=True))[1:]:
            table.add_row(*map(_Cell, row))
        yield table
        if dropped:
            titles = ", ".join(title.replace("\n", " ") for title in dropped)
            yield Text(f"Not shown at this width: {titles}")
        if self.footer is not None:
            yield Text(self.footer)

    def fits(self, available: int) -> bool:
        """Return whether the table fits in `available` columns without wrapping."""
        return _total_width(map(_natural_width, zip(*self.rows, strict=True))) <= available

    def _columns_within(self, available: int) -> tuple[list["_Column"], list[str]]:
        """Return the columns that fit, and the titles of the others."""
        columns: list[_Column] = list(zip(*self.rows, strict=True))
        dropped: list[str] = []
        for titles, width in ((self.extra, _natural_width), (self.optional, self._least_width)):
            for title in titles:
                if _total_width(map(width, columns)) <= available:
                    break
                dropped += [column[0] for column in columns if column[0] == title]
                columns = [column for column in columns if column[0] != title]
        return columns, dropped

    def _with_bars(self, column: "_Column") -> "_Column":
        """Return the column with bars as block characters, and its texts after them aligned to the right."""
        title, *texts = column
        if title not in self.bars:
            return column
        width = max(map(cell_len, texts), default=0)
        return title, *(f"{bar_text(part)} {text:>{width}}" for part, text in zip(self.bars[title], texts, strict=True))

    def _least_width(self, column: "_Column") -> int:
        """Return the width below which a number, type or source line would be broken, or other words into pieces."""
        title, *texts = column
        lines = [line for text in texts for line in text.splitlines()]
        if title in self.numeric:
            return max([longest_part(title), *map(cell_len, lines)])
        words = max(map(longest_part, lines), default=0)
        return max(longest_part(title), words if title in ("Line", "Type") else min(words, _BREAKABLE))

    def _column_widths(self, columns: Sequence["_Column"], available: int) -> list[int | None]:
        """Return the widths of the columns; None if their least widths do not fit, so that rich also breaks numbers."""
        widths, least = [*map(_natural_width, columns)], [*map(self._least_width, columns)]
        while (over := _total_width(widths) - available) > 0:
            loose = [number for number, width in enumerate(widths) if width > least[number]]
            if not loose:
                return [None] * len(columns)
            widest = max(loose, key=widths.__getitem__)
            # Down to the second widest column at most, so that wide columns shrink together.
            others = sorted((widths[number] for number in loose if number != widest), reverse=True)
            floor = max([least[widest], *(width - 1 for width in others[:1])])
            widths[widest] -= min(over, max(widths[widest] - floor, 1))
        return [*widths]

    def html(self) -> str:
        return html_table(self.rows, self.footer, self.numeric, bars=self.bars)


_Column = tuple[str, ...]  # its title, and the texts of the rows

_BREAKABLE = 12  # characters; longer words may be broken


def _total_width(widths: Iterable[int]) -> int:
    """Return the width of columns that are two characters apart."""
    return sum(width + 2 for width in widths) - 2


def _natural_width(column: _Column) -> int:
    """Return the width at which no line wraps."""
    return max((cell_len(line) for text in column for line in text.splitlines()), default=0)


class _Cell:
    """A cell of a table, whose long words break at readable places."""

    def __init__(self, text: str):
        self.text = text

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, Text(self.text))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text("\n".join(break_words(self.text, options.max_width)))


class Stack(View):
    """Views in a vertical stack."""

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
    """Return a line that says which extra of rematscope to install to see a missing part of a view."""
    return Lines([f"{what} an extra: pip install 'rematscope[{extra}]'"])


_NO_PICTURE = needs("plot", "The picture takes")


class Pictured(View, abc.ABC):
    """A view that is a picture in HTML, above its parts, such as a table of the numbers.

    Attributes:
      size: the width and the height of the picture, in inches.
    """

    size: tuple[float, float]

    @abc.abstractmethod
    def caption(self) -> str:
        """Return the alternative text of the plot."""

    @abc.abstractmethod
    def plot(self, ax) -> None:
        """Draw the picture on matplotlib axes."""

    def picture(self) -> str:
        """Return the picture as HTML."""
        if importlib.util.find_spec("matplotlib") is None:
            return _NO_PICTURE.html()
        return picture(self.plot, self.size, self.caption())

    def html(self) -> str:
        return f"{PICTURES}<p>{self.picture()}</p>\n{super().html()}"

    def page(self) -> str:
        return f"{PICTURES}<p>{self.picture()}</p>\n{''.join(part.page() for part in self.parts())}"
