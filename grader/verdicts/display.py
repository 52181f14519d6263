"""How the grader speaks: what it shows is text first, and the same words as HTML and in a terminal."""

import html
import io
import re
from collections.abc import Iterable


class Displayed:
    """Shows itself in a notebook, a terminal and as text. A subclass has `__rich_console__`, and `html()` for the same
    words."""

    def __str__(self) -> str:
        from rich.console import Console

        # 100 columns whatever the terminal: the same verdict is the same text wherever it is stored.
        console = Console(file=io.StringIO(), width=100, color_system=None, force_jupyter=False)
        console.print(self)
        return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())

    __repr__ = __str__

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        return {"text/plain": str(self), "text/html": self.html()}


class Remark(Displayed):
    """A few sentences under a headline, in which code stands in backquotes."""

    def __init__(self, headline: str, *sentences: str):
        self.headline, self.sentences = headline, sentences

    def __rich_console__(self, console, options):
        from rich.padding import Padding
        from rich.text import Text

        yield Text(self.headline.replace("`", ""), style="bold")
        for sentence in self.sentences:
            yield Padding(Text(sentence.replace("`", "")), (0, 0, 0, 2))

    def html(self) -> str:
        return box("".join(f"<p>{text_html(s)}</p>" for s in self.sentences), headline=self.headline)


class Noted(Displayed):
    """A view, and below it sentences that the learner must read."""

    def __init__(self, view: Displayed, notices: Iterable[str]):
        self._parts = [view, *(Remark("Please note", notice) for notice in notices)]

    def __rich_console__(self, console, options):
        yield from self._parts

    def html(self) -> str:
        return "".join(part.html() for part in self._parts)


def box(inner: str, colour: str = "--jp-info-color1", headline: str | None = None) -> str:
    """HTML under a headline, with a line at its left in the colour of one of JupyterLab's variables."""
    # They follow the theme; where they or all styles are missing, plain elements remain.
    title = f"<p><strong>{text_html(headline)}</strong></p>" if headline else ""
    return (
        f'<div style="color: var(--jp-ui-font-color1, inherit); border-left: 4px solid var({colour}, currentColor);'
        f' padding: 0.25em 1em; line-height: var(--jp-content-line-height, 1.5)">{title}{inner}</div>'
    )


def view_html(view) -> str:
    """A view, or its text, as HTML."""
    if isinstance(view, str):
        return f'<pre style="overflow-x: auto">{html.escape(view, quote=False)}</pre>'
    return view._repr_mimebundle_()["text/html"]


def view_rich(view):
    """A view, or its text, for rich."""
    from rich.text import Text

    return Text(view) if isinstance(view, str) else view


def python_html(text: str) -> str:
    """A program as HTML, in the colours that JupyterLab gives to code in its theme."""
    from pygments.lexers import PythonLexer

    pieces = []
    for token, piece in PythonLexer().get_tokens(text):
        colour = next((variable for kind, variable in _CODE_COLOURS.items() if kind in str(token)), None)
        piece = html.escape(piece, quote=False)
        pieces.append(
            f'<span style="color: var(--jp-mirror-editor-{colour}-color)">{piece}</span>' if colour else piece
        )
    return f'<pre style="white-space: pre-wrap">{"".join(pieces)}</pre>'


_CODE_COLOURS = {
    "Comment": "comment", "Doc": "string", "String": "string", "Number": "number", "Keyword": "keyword",
    "Function": "def", "Operator.Word": "keyword",
}  # fmt: skip


def text_html(text: str) -> str:
    """Words as HTML, with what stands in backquotes as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text, quote=False))
