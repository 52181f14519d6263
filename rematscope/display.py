"""How a view reaches the reader: a terminal through rich, JupyterLab as HTML, GitHub as text."""

import base64
import html
import io
from collections.abc import Callable, Collection, Sequence

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table
from rich.text import Text

# Okabe and Ito's colours, which the colour-blind can tell apart. The gutter letters say the same without colour.
COLOURS = {"rs-S": "bold #0072b2", "rs-R": "bold #d55e00", "rs-L": "bold #cc79a7", "rs-B": ""}
COLOURS |= {"rs-type": "dim", "rs-source": "dim", "rs-marked": "reverse"}

# JupyterLab says on <body> which theme is on. Without this sheet (GitHub, an untrusted notebook) the text still stands
# in its columns.
SHEET = """<style>
.rematscope { color: inherit; container-type: inline-size; }
.rematscope .rs-programs, .rematscope .rs-programs tbody { display: block; width: 100%; margin: 0; border: 0; }
.rematscope .rs-programs tr { display: flex; flex-wrap: wrap; gap: 0 1em; background: none !important; }
.rematscope .rs-programs td { display: block; flex: 0 1 auto; padding: 0; border: 0; text-align: left;
  vertical-align: top; max-width: 100%; overflow-x: auto; }
.rematscope .rs-programs td + td { border-left: 1px solid #8888; padding-left: 1em; }
.rematscope .rs-table { margin: 0; font-family: var(--jp-code-font-family, monospace); font-size: 12px; }
.rematscope .rs-table th, .rematscope .rs-table td { text-align: left; padding: 2px 1em 2px 0; max-width: none; }
.rematscope .rs-table :is(th, td):is(:nth-child(3), :nth-child(4)) { text-align: right !important; }
.rematscope p { margin: 0.3em 0 0; font-weight: 600; }
.rematscope pre { margin: 0; padding: 0; background: none; color: inherit; line-height: 1.35; font-size: 12px;
  white-space: pre; }
.rs-S, .rs-R, .rs-L { font-weight: 600; }
.rs-S { color: #005a8f; } .rs-R { color: #a34700; } .rs-L { color: #8a3a6b; }
.rs-type, .rs-source { opacity: 0.75; }
[data-jp-theme-light="false"] .rs-S { color: #6cbcf5; }
[data-jp-theme-light="false"] .rs-R { color: #ffa45c; }
[data-jp-theme-light="false"] .rs-L { color: #ee9fcb; }
@container (max-width: 1150px) { .rematscope .rs-source { display: none; } }
</style>"""
# Apart, so that pages on which nothing is marked stay as they are stored.
_MARKS = """<style>
.rs-marked { background: #ffedb3; border-block: 1px solid #946200; font-weight: 600; }
[data-jp-theme-light="false"] .rs-marked { background: #4d3b00; border-color: #ffd257; }
</style>"""


class Lines:
    """Text in lines that stay as they are."""

    def __init__(self, lines: Sequence[str]):
        self.lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from map(Text, self.lines)

    def __repr__(self):
        return plain_text(self)

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        page = f'{SHEET}\n<div class="rematscope">{_pre([[(line, "")] for line in self.lines])}</div>'
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


def live(view: Callable, **controls) -> None:
    """Shows `view(**values)` under widgets that set the values, in a notebook. A view may be lively without any.

    Where no widget runs (on GitHub, in a page that was stored, in a terminal), `view` is shown for the first values.

    Args:
      view: a function of the controls' values that returns something that displays itself. A `Linked` lights up.
      **controls: an ipywidgets control for each argument of `view`.
    """

    def current():
        return view(**{name: control.value for name, control in controls.items()})

    if not Console().is_jupyter:
        show(current())
        return
    import ipywidgets
    from IPython.display import display

    from rematscope.linked import widget

    def state() -> dict:
        shown = current()
        return shown.pane() if hasattr(shown, "pane") else {"html": shown._repr_mimebundle_()["text/html"]}

    pane = widget(**state())

    def update(_change):
        with pane.hold_sync():
            for name, value in state().items():
                setattr(pane, name, value)

    for control in controls.values():
        control.observe(update, "value")
    row = ipywidgets.Box(list(controls.values()), layout={"flex_flow": "row wrap"})
    page = ipywidgets.VBox([row, pane] if controls else [pane])
    # A front end shows the richest form that it can: the widget where its model lives, else the twin.
    display({**page._repr_mimebundle_(), **current()._repr_mimebundle_()}, raw=True)


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


def html_page(columns, footer) -> str:
    """A row of columns and a footer, each a list of lines, each a list of (text, style) pieces."""
    # Said inline too: a notebook that is not trusted loses the sheet, and JupyterLab aligns cells to the right.
    cells = "".join(f'<td style="text-align: left; vertical-align: top">{_pre(lines)}</td>' for lines in columns)
    table = f'<table class="rs-programs"><tbody><tr>{cells}</tr></tbody></table>'
    sheets = SHEET + _MARKS * any("rs-marked" in style for lines in columns for line in lines for _, style in line)
    return f'{sheets}\n<div class="rematscope">{table}{_pre(footer)}</div>'


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


def _pre(lines) -> str:
    return f"<pre>{chr(10).join(''.join(map(_span, line)) for line in lines)}</pre>"


def _span(piece: tuple[str, str]) -> str:
    text, style = piece
    text = escaped(text)
    return f'<span class="{style}">{text}</span>' if style.startswith("rs-") else f"<b>{text}</b>" if style else text


def escaped(text: str) -> str:
    """The text, in HTML."""
    return html.escape(text, quote=False)
