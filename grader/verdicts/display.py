"""How the grader speaks: what it shows is text first, and the same words as HTML and in a terminal.

Text becomes HTML by markupsafe: what a `Markup` is formatted with is escaped, unless it is a `Markup` itself.
"""

import re
from collections.abc import Iterable

from markupsafe import Markup, escape
from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.text import Text

from rematscope.render import View


class Note(View):
    """A few sentences under a headline, in which code stands in backquotes."""

    def __init__(self, headline: str, *sentences: str):
        self.headline, self.sentences = headline, sentences

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.headline.replace("`", ""), style="bold")
        for sentence in self.sentences:
            yield Padding(Text(sentence.replace("`", "")), (0, 0, 0, 2))

    def html(self) -> Markup:
        paragraphs = (Markup("<p>{}</p>").format(text_html(sentence)) for sentence in self.sentences)
        return box(Markup().join(paragraphs), headline=self.headline)


class WithNotes(View):
    """A view, and below it sentences that the learner must read."""

    def __init__(self, view: View, notices: Iterable[str]):
        self._parts = [view, *(Note("Please note", notice) for notice in notices)]

    def parts(self) -> Iterable[View]:
        return self._parts


class Preformatted(View):
    """What was a view once and travelled as its text."""

    def __init__(self, text: str):
        self.text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.text)

    def html(self) -> Markup:
        return Markup('<pre style="overflow-x: auto">{}</pre>').format(self.text)


def as_view(view: View | str) -> View:
    """A view, or its text, as a view."""
    return Preformatted(view) if isinstance(view, str) else view


def box(inner: Markup, colour: str = "--jp-info-color1", headline: str | None = None) -> Markup:
    """HTML under a headline, with a line at its left in the colour of one of JupyterLab's variables."""
    # They follow the theme; where they or all styles are missing, plain elements remain.
    title = Markup("<p><strong>{}</strong></p>").format(text_html(headline)) if headline else ""
    return Markup(
        '<div style="color: var(--jp-ui-font-color1, inherit); border-left: 4px solid var({}, currentColor);'
        ' padding: 0.25em 1em; line-height: var(--jp-content-line-height, 1.5)">{}{}</div>'
    ).format(colour, title, inner)


def python_html(text: str) -> Markup:
    """A program as HTML, in the colours that JupyterLab gives to code in its theme."""
    from pygments.lexers import PythonLexer  # late: it takes its time, and only a worked answer needs it

    pieces = []
    for token, piece in PythonLexer().get_tokens(text):
        colour = next((variable for kind, variable in _CODE_COLOURS.items() if kind in str(token)), None)
        span = Markup('<span style="color: var(--jp-mirror-editor-{}-color)">{}</span>')
        pieces.append(span.format(colour, piece) if colour else escape(piece))
    # JupyterLab would have lines end anywhere, in the middle of a word.
    style = "white-space: pre-wrap; word-break: normal; overflow-wrap: anywhere"
    return Markup('<pre style="{}">{}</pre>').format(style, Markup().join(pieces))


_CODE_COLOURS = {
    "Comment": "comment", "Doc": "string", "String": "string", "Number": "number", "Keyword": "keyword",
    "Function": "def", "Operator.Word": "keyword",
}  # fmt: skip


def text_html(text: str) -> Markup:
    """Words as HTML, with what stands in backquotes as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text)))
