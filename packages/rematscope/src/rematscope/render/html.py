"""Views as HTML: a row of programs, a table, lines that stay as they are."""

import html
from collections.abc import Sequence

from rematscope.render.theme import MARKS, SHEET


def html_page(columns, footer) -> str:
    """A row of columns and a footer, each a list of lines, each a list of (text, style) pieces."""
    # Said inline too: a notebook that is not trusted loses the sheet, and JupyterLab aligns cells to the right.
    cells = "".join(f'<td style="text-align: left; vertical-align: top">{pre(lines)}</td>' for lines in columns)
    table = f'<table class="rs-programs"><tbody><tr>{cells}</tr></tbody></table>'
    sheets = SHEET + MARKS * any("rs-marked" in style for lines in columns for line in lines for _, style in line)
    return f'{sheets}\n<div class="rematscope">{table}{pre(footer)}</div>'


def html_table(rows, footer: str, about: Sequence[str] = ()) -> str:
    """A table of texts, its first row the header; `about` numbers the values that each of the others is about."""
    header, *body = [list(map(escaped, row)) for row in rows]
    head = "".join(f'<th scope="col" style="text-align: left">{cell}</th>' for cell in header)
    starts = [f'<tr data-value="{numbers}">' for numbers in about] or ["<tr>"] * len(body)
    lines = "".join(
        start + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for start, row in zip(starts, body, strict=True)
    )
    table = f'<table class="rs-table"><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>'
    return f'{SHEET}\n<div class="rematscope">{table}<p>{escaped(footer)}</p></div>'


def pre(lines) -> str:
    return f"<pre>{chr(10).join(''.join(map(_span, line)) for line in lines)}</pre>"


def _span(piece: tuple[str, str]) -> str:
    text, style = piece
    text = escaped(text)
    return f'<span class="{style}">{text}</span>' if style.startswith("rs-") else f"<b>{text}</b>" if style else text


def escaped(text: str) -> str:
    """The text, in HTML."""
    return html.escape(text, quote=False)
