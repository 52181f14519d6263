"""Markdown in a terminal."""

from typing import ClassVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.default_styles import DEFAULT_STYLES
from rich.markdown import Markdown, TableElement
from rich.theme import Theme


class Prose:
    """Markdown for a terminal, in the terminal's own colors, because rich's colors are not readable on a light
    background."""

    def __init__(self, text: str):
        self.text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        names = (name for name in DEFAULT_STYLES if name.startswith("markdown.") and DEFAULT_STYLES[name].color)
        with console.use_theme(Theme({**dict.fromkeys(names, "none"), "markdown.code": "bold"})):
            yield from list(console.render(_Markdown(self.text, code_theme="github-dark"), options))


class _Folded(TableElement):
    """A table that wraps long words in narrow columns, which rich would cut off."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for table in super().__rich_console__(console, options):
            for column in table.columns:  # type: ignore[union-attr]
                column.overflow = "fold"
            yield table


class _Markdown(Markdown):
    elements: ClassVar = {**Markdown.elements, "table_open": _Folded}
