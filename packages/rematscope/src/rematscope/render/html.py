"""Views as HTML: a row of programs, a table, lines that stay as they are.

Text is escaped where it becomes HTML, and nowhere else: whatever takes a text here takes it as a reader should see it.
`escaped` does that, on the standard library: markupsafe would be one more requirement for a single line.
"""

import html
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rematscope.render.theme import DOCUMENT, FOLDS, MARKS, SHEET

# A line as it is laid out, in (text, style) pieces: the terminal's and the notebook's view are both made from it.
PieceLine = list[tuple[str, str]]


class Hidden(NamedTuple):
    """Lines that a reader opens.

    Attributes:
      summary: the line that stands for them.
      lines: the lines.
    """

    summary: PieceLine
    lines: list[PieceLine]


def page(inner: str, sheets: str = SHEET) -> str:
    """HTML in the views' style."""
    return f'{sheets}\n<div class="rematscope">{inner}</div>'


def document(inner: str) -> str:
    """A whole page, in the reader's light or dark theme, from HTML whose sheets ask JupyterLab which one is on."""
    asked = re.compile(r'\[data-jp-theme-light="false"\] ([^{}]+\{[^}]*\})')
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width">\n<title>rematscope</title>',
            f"{DOCUMENT}\n<body>",
            asked.sub(r"@media (prefers-color-scheme: dark) { \1 }", inner),
            "</body>\n</html>\n",
        ]
    )


def html_page(columns: Sequence[Sequence[PieceLine | Hidden]], footer: Sequence[PieceLine]) -> str:
    """A row of columns and a footer, each a list of lines, each a list of (text, style) pieces; some lines hidden."""
    # Said inline too: a notebook that is not trusted loses the sheet, and JupyterLab aligns cells to the right.
    cells = "".join(f'<td style="text-align: left; vertical-align: top">{_opening(lines)}</td>' for lines in columns)
    table = f'<table class="rs-programs"><tbody><tr>{cells}</tr></tbody></table>'
    marked = any("rs-marked" in style for lines in columns for line in lines for _, style in _shown(line))
    folded = any(isinstance(line, Hidden) for lines in columns for line in lines)
    return page(f"{table}{pre(footer)}", SHEET + MARKS * marked + FOLDS * folded)


def _shown(line: PieceLine | Hidden) -> PieceLine:
    return line.summary if isinstance(line, Hidden) else line


def _opening(lines: Iterable[PieceLine | Hidden]) -> str:
    """Lines that stay as they are, and such as are opened by a click on what stands for them, or by Enter."""
    parts: list[str] = []
    open_lines: list[PieceLine] = []
    for line in lines:
        if isinstance(line, Hidden):
            parts += [pre(open_lines)] if open_lines else []
            parts.append(f"<details><summary>{pre([line.summary])}</summary>{pre(line.lines)}</details>")
            open_lines = []
        else:
            open_lines.append(line)
    return "".join([*parts, pre(open_lines)])


def html_table(rows: Sequence[Sequence[str]], footer: str | None, about: Sequence[str] = ()) -> str:
    """A table of texts, which may have several lines, its first row the header.

    `about` numbers the values that each of the others is about.
    """
    header, *body = [[escaped(text).replace("\n", "<br>") for text in row] for row in rows]
    head = "".join(f'<th scope="col" style="text-align: left">{cell}</th>' for cell in header)
    starts = [f'<tr data-value="{numbers}">' for numbers in about] or ["<tr>"] * len(body)
    lines = "".join(
        start + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for start, row in zip(starts, body, strict=True)
    )
    table = f'<table class="rs-table"><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>'
    return page(table if footer is None else f"{table}<p>{escaped(footer)}</p>")


def pre(lines: Iterable[PieceLine]) -> str:
    """Lines that stay as they are."""
    return f"<pre>{chr(10).join(''.join(map(_span, line)) for line in lines)}</pre>"


def _span(piece: tuple[str, str]) -> str:
    text, style = piece
    text = escaped(text)
    return f'<span class="{style}">{text}</span>' if style.startswith("rs-") else f"<b>{text}</b>" if style else text


def escaped(text: str) -> str:
    """The text, in HTML. Not for an attribute: quotes stay, as they do in the pages that are stored."""
    return html.escape(text, quote=False)
