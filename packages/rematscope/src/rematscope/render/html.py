"""Render views as HTML: programs in columns, tables, and preformatted lines.

Text is escaped only where it becomes HTML, so all functions take unescaped text. `escaped` uses the standard library,
because markupsafe would be another dependency for a single line.
"""

import functools
import html
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rematscope.render.theme import COLOURS, DARK, DOCUMENT, FOLDS, MARKS, SEARCHED, SHEET

# A line as (text, style) pieces, from which both the terminal's and the notebook's view are built.
PieceLine = list[tuple[str, str]]


class Row(NamedTuple):
    """A row of a program, on one or more lines, that a reader can search for.

    Attributes:
      lines: the lines.
      role: the letter of its role, or "".
      makes, reads: the names of the values that the row defines, and of the other values in it.
    """

    lines: list[PieceLine]
    role: str
    makes: Sequence[str]
    reads: Sequence[str]


class Hidden(NamedTuple):
    """Folded lines, which a reader can unfold.

    Attributes:
      summary: the line that is shown while they are folded, on one or more lines.
      lines: the folded lines.
    """

    summary: Sequence[PieceLine]
    lines: Sequence[PieceLine | Row]


def page(inner: str, sheets: str = SHEET) -> str:
    """Return HTML in the style of the views."""
    return f'{sheets}\n<div class="rematscope">{inner}</div>'


@functools.cache
def search_script() -> str:
    """Return the script that makes programs searchable. Untrusted notebooks drop it and show the programs unchanged."""
    return f"<script>\n{Path(__file__).with_name('search.js').read_text(encoding='utf-8')}</script>"


def html_document(inner: str) -> str:
    """Return a whole page from HTML, with the browser's light or dark theme instead of the notebook's.

    All searchable programs on the page are searched together.
    """
    script = search_script()
    if script in inner:
        inner = inner.replace(script, "") + script
    asked = re.compile(rf"{re.escape(DARK)} ([^{{}}]+\{{[^}}]*\}})")
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width">\n<title>rematscope</title>',
            f"{DOCUMENT}\n<body>",
            asked.sub(r"@media (prefers-color-scheme: dark) { \1 }", inner),
            "</body>\n</html>\n",
        ]
    )


def html_page(
    columns: Sequence[Sequence[PieceLine | Row | Hidden]], footer: Sequence[PieceLine], searched: bool = False
) -> str:
    """Return columns and a footer as HTML. Each is a list of lines, and each line is a list of (text, style) pieces."""
    cells = "".join(f'<td style="{_column_style(lines)}">{_fold_lines(lines)}</td>' for lines in columns)
    table = f'<table class="rs-programs"><tbody><tr>{cells}</tr></tbody></table>'
    marked = any("rs-marked" in style for lines in columns for line in lines for _, style in _visible_line(line))
    folded = any(isinstance(line, Hidden) for lines in columns for line in lines)
    sheets = SHEET + MARKS * marked + FOLDS * folded + SEARCHED * searched
    return page(f"{table}{pre(footer)}{search_script() if searched else ''}", sheets)


def _column_style(lines: Sequence[PieceLine | Row | Hidden]) -> str:
    """Return the style of a column: its grid, and the minimum widths of code and source lines before columns stack.

    A column that is alone in its row may be narrower: its code wraps before its last column is cut off.
    """
    widths: dict[int, int] = {}
    shortest: dict[int, int] = {}
    for line in _all_lines(lines):
        for i, (text, style) in enumerate(line if len(line) > 2 else ()):
            widths[i] = max(widths.get(i, 0), len(text))
            if i == 1:
                shortest[i] = min(widths[i], LEAST_CODE)
            elif style == "rs-source":
                shortest[i] = max(shortest.get(i, 0), len(_AFTER_THE_LINE.sub("", text).rstrip()))
    # Inline, since a notebook that is not trusted loses the sheet, and JupyterLab aligns cells to the right.
    style = "text-align: left; vertical-align: top"
    if not widths:
        return style
    # One more character than a source line needs, because browsers round widths.
    least_of = shortest | {1: min(shortest.get(1, 0), LEAST_CODE_ALONE)}
    tracks = " ".join(f"minmax({least_of[i]}ch, {w + 1}ch)" if i in shortest else f"{w}ch" for i, w in widths.items())
    least, most = sum((widths | shortest).values()), sum(widths.values()) + len(shortest)
    return f"{style}; --rs-columns: {tracks}; flex: 1 1 {least}ch; max-width: min(100%, {most}ch)"


LEAST_CODE, LEAST_CODE_ALONE = 22, 16  # characters, for code next to another program and alone


def _all_lines(lines: Iterable[PieceLine | Row | Hidden]) -> Iterator[PieceLine]:
    for line in lines:
        if isinstance(line, list):
            yield line
        elif isinstance(line, Row):
            yield from line.lines
        else:
            yield from _all_lines([*line.summary, *line.lines])


def _visible_line(line: PieceLine | Row | Hidden) -> PieceLine:
    if isinstance(line, list):
        return line
    return [piece for each in (line.lines if isinstance(line, Row) else line.summary) for piece in each]


def _fold_lines(lines: Iterable[PieceLine | Row | Hidden]) -> str:
    """Return lines as HTML, in which folded lines unfold with a click on their summary, or with Enter."""
    parts: list[str] = []
    open_lines: list[PieceLine | Row] = []
    for line in lines:
        if isinstance(line, Hidden):
            parts += [_program_html(open_lines)] if open_lines else []
            summary, inner = _program_html(line.summary), _program_html(line.lines)
            parts.append(f"<details><summary>{summary}</summary>{inner}</details>")
            open_lines = []
        else:
            open_lines.append(line)
    return "".join([*parts, _program_html(open_lines)])


def html_table(
    rows: Sequence[Sequence[str]],
    footer: str | None,
    numeric: Collection[str] = (),
    about: Sequence[str] = (),
    makes: Sequence[Sequence[str]] = (),
    bars: Mapping[str, Sequence[float]] | None = None,
) -> str:
    """Return a table of texts as HTML. Texts may have several lines, and the first row is the header.

    `numeric` contains the titles of right-aligned columns. For each other row, `about` contains the numbers of the
    values that it is about, and `makes` contains the names by which a reader can find it.
    """
    header, *body = [[_in_lines(text, title) for title, text in zip(rows[0], row, strict=True)] for row in rows]
    # Without the sheet, notebooks align cells to the right and center headers. Headers may break: a narrow table fits.
    aligned = [f"text-align: {'right' if title in numeric else 'left'}" for title in rows[0]]
    styles = [
        f"{each}; white-space: nowrap" if title in numeric else each
        for title, each in zip(rows[0], aligned, strict=True)
    ]
    head = "".join(f'<th scope="col" style="{each}">{cell}</th>' for cell, each in zip(header, aligned, strict=True))
    starts = [f'<tr data-value="{numbers}">' for numbers in about]
    starts += [f'<tr class="rs-row" tabindex="-1" data-makes="{_names_attribute(names)}">' for names in makes]
    drawn = [(bars or {}).get(title) for title in rows[0]]
    lines = "".join(
        start
        + "".join(
            f'<td style="{style if bar is None else _with_bar(style, bar[i])}">{cell}</td>'
            for cell, style, bar in zip(row, styles, drawn, strict=True)
        )
        + "</tr>"
        for i, (start, row) in enumerate(zip(starts or ["<tr>"] * len(body), body, strict=True))
    )
    table = f'<table class="rs-table"><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>'
    # The table is focusable, so that the keyboard can scroll it in a narrow panel.
    table = f'<div class="rs-scroll" tabindex="0" role="group" aria-label="Table">{table}</div>'
    return page(table if footer is None else f"{table}<p>{escaped(footer)}</p>")


def _with_bar(style: str, fraction: float) -> str:
    """Return a cell's style with a bar to the left of the text, which is 2.6 em wide for the fraction 1."""
    colours = f"linear-gradient(to right, {COLOURS['S']}44 {100 * fraction:.1f}%, transparent 0)"
    return f"{style}; padding-left: 3em; background: {colours} 0 .25em / 2.6em 1.1em no-repeat"


def _in_lines(text: str, title: str) -> str:
    """Return a cell's text, in which paths and names can be broken between parts, but source lines cannot."""
    text = escaped(text).replace("\n", "<br>").replace("][", "]<wbr>[").replace("/", "/<wbr>")
    return text if title == "Line" else text.replace("_", "_<wbr>")


def pre(lines: Iterable[PieceLine]) -> str:
    """Return preformatted lines as HTML."""
    texts = ("".join(_span_html(text, style) for text, style in line) for line in lines)
    return f"<pre>{chr(10).join(texts)}</pre>"


def _program_html(lines: Iterable[PieceLine | Row]) -> str:
    """Return the lines of a program as HTML, with the pieces of each line in columns."""
    return f"<pre>{chr(10).join(map(_line_html, lines))}</pre>"


def _line_html(line: PieceLine | Row) -> str:
    if not isinstance(line, Row):
        while line and not line[-1][0].strip():  # the code of a line without a type extends across the next columns
            line = line[:-1]
        pieces = "".join(_span_html(text, style) if style else f"<span>{escaped(text)}</span>" for text, style in line)
        return f'<span class="rs-line">{pieces or "&nbsp;"}</span>'
    makes, reads = _names_attribute(line.makes), _names_attribute(line.reads)
    data = f'data-role="{line.role}" data-makes="{makes}" data-reads="{reads}"'
    return f'<span class="rs-row" tabindex="-1" {data}>{chr(10).join(map(_line_html, line.lines))}</span>'


def _names_attribute(names: Sequence[str]) -> str:
    """Return names as the value of an HTML attribute: a list in JSON."""
    return f"[{', '.join(map(_quote_name, names))}]"


@functools.lru_cache(1 << 16)  # values occur several times
def _quote_name(name: str) -> str:
    return html.escape(json.dumps(name, ensure_ascii=False))


@functools.lru_cache(1 << 14)  # lines often have the same source and type
def _span_html(text: str, style: str) -> str:
    text = escaped(text)
    if style == "rs-source" and (more := _AFTER_THE_LINE.search(text)):  # the part that a narrow column omits
        text = f"{text[: more.start()]}<span>{more[0]}</span>"
    return f'<span class="{style}">{text}</span>' if style.startswith("rs-") else f"<b>{text}</b>" if style else text


_AFTER_THE_LINE = re.compile(r" (\(|→).*")  # the function of a source line, or the library's line


def escaped(text: str) -> str:
    """Return text as HTML. Not for attributes, because quotes are not escaped, as in the saved pages."""
    return html.escape(text, quote=False)
