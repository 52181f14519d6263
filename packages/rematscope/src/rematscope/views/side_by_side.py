"""The forward and the backward program side by side, with the residuals."""

import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeVar

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from rematscope.ir.gc_pause import gc_paused
from rematscope.ir.program import Literal, Value
from rematscope.render.html import LEAST_CODE, Hidden, PieceLine, Row, html_page
from rematscope.render.theme import BADGES, TERMINAL
from rematscope.render.units import seconds_text
from rematscope.render.view import View, show
from rematscope.render.wrapping import wrap
from rematscope.seconds.devices import Device, device_called
from rematscope.seconds.roofline import estimate_time, spent_by
from rematscope.tracing.entry_points import with_own_options
from rematscope.tracing.trace import Trace, trace
from rematscope.views.program_rows import LEGEND, Listing, ProgramRow, backward, forward
from rematscope.views.repeats import (
    Forms,
    Repeat,
    repeats,
    summary,
    tree_of,
    with_short_paths,
    without_runs,
    without_trees,
)

_Line = TypeVar("_Line", PieceLine, PieceLine | Row)

# Below this width, the two programs are stacked, and above it if a column would have less space for code.
_SIDE_BY_SIDE = 110

# The least width at which a column of a program has source lines, their functions, and the lines of libraries.
_WITH_SOURCE, _WITH_FUNCTION, _WITH_LIBRARIES = 50, 74, 96

# The largest width of the source lines. A longer one is shown without its function or its library's line.
_SOURCE, _SOURCE_ON_A_PAGE = 28, 44

# Of a longer program, a text shows only the marked lines, each with this many lines before and after it. On a page,
# these lines come first.
_LONG, _AROUND = 60, 3

# A text of more than _MANY lines after folding repeated layers also folds runs of lines that save nothing, and trees of
# arrays. If it still has more than _MOST lines, it also folds runs that save something and layers that are only roughly
# alike, and leaves out lines in the middle.
_MANY, _MOST = 150, 190

# At most this many rows of arguments, or of their gradients, are listed individually.
_TREE = 20

_LEGEND: PieceLine = [(f"{letter} {word}  ", f"rs-{letter}") for letter, word in LEGEND.items()]


class SideBySide(View):
    """The forward and the backward program side by side.

    It is displayed as text in a terminal and as HTML in a notebook.

    Args:
      passes: the trace, as returned by `trace`.
      marked: values of either program. The lines that define these values are highlighted with `◀ here`. In a program
        of more than 60 lines, a page shows these lines and their surrounding lines first, and a text shows only them.
      fold: whether to show repeated layers only once in a program of more than 60 lines without marked lines. Text
        output states how many times each layer repeats; in HTML, you can click a layer to unfold it. If False, a text
        also shows all lines of a program with marked lines.
      device: the device for the estimated time of each line, summed over all its runs; None shows no times.
    """

    def __init__(self, passes: Trace, marked: Collection[Value] = (), fold: bool = True, device: Device | None = None):
        self.trace = passes
        self.marked = frozenset(marked)
        self.fold = fold
        self.device = device

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        half = (width - 3) // 2
        if width >= _SIDE_BY_SIDE and max(_least_width(listing.rows) for listing in self.programs()) <= half:
            (left, right), every = self._program_columns(half)
            nothing: PieceLine = []
            abreast = itertools.zip_longest(map(_in_terminal, left), map(_in_terminal, right), fillvalue=nothing)
            body = [[*_pad_pieces(a, half), (" │ ", "dim"), *b] for a, b in abreast]
        else:
            seam = [("─" * width, "dim")]
            (above, below), every = self._program_columns(width)
            body = [*map(_in_terminal, above), seam, *map(_in_terminal, below)]
        legend = [[part for piece in _LEGEND for part in _in_terminal([piece])]]
        if not every:
            folded = "⋮ folded: a notebook can unfold them, SideBySide(trace(f, …), fold=False) shows all"
            legend += [[(part, "")] for part in wrap(folded, width)]
        if self.device is not None:
            legend += [[(part, "")] for part in wrap(str(estimate_time(self.trace, self.device)), width)]
        for line in [*body, *legend]:
            yield Text.assemble(*line, no_wrap=True, overflow="crop")

    @gc_paused()
    def html(self) -> str:
        programs = self.programs()
        return self._programs_html(programs, searched=sum(len(listing.rows) for listing in programs) > _MANY)

    @gc_paused()
    def page(self) -> str:
        return self._programs_html(self.programs(), searched=True)

    def pieces(self) -> tuple[list[list[PieceLine]], list[PieceLine]]:
        """Return both programs without folding, and the legend, as lines of (text, style) pieces for `html_page`."""
        return [_column_lines(*program, None) for program in self.programs()], [_LEGEND]

    def programs(self) -> list[Listing]:
        """Return the contents of both columns, before the layout."""
        spent = {} if self.device is None else spent_by(self.trace, self.device)
        by_value = {equation.outputs[0]: seconds for equation, seconds in spent.items() if equation.outputs}
        return [forward(self.trace, self.marked, by_value), backward(self.trace, self.marked, by_value)]

    def _programs_html(self, programs: Sequence[Listing], searched: bool) -> str:
        forms = Forms()
        columns = [self._html_column(listing, forms, searched) for listing in programs]
        seconds: list[PieceLine] = [] if self.device is None else [[(str(estimate_time(self.trace, self.device)), "")]]
        return html_page(columns, [_LEGEND, *seconds], searched)

    def _html_column(self, listing: Listing, forms: Forms, searched: bool) -> list[PieceLine | Row | Hidden]:
        title, header, rows = listing
        found = self._find_repeats(rows, forms)
        # Hidden rows are laid out with the others, because they use the same columns when they are unfolded.
        laid_out = _lay_out_rows([*rows, *(summary(rows, repeat) for repeat in found)], None)
        lines: list[list[PieceLine | Row]] = [
            [_html_row(row, each)] if searched and not row.heading else list(each)
            for row, each in zip(rows, laid_out, strict=False)
        ]
        column: list[PieceLine | Row | Hidden] = list(_title_lines(title, header))
        start = 0
        for repeat, folded in zip(found, laid_out[len(rows) :], strict=True):
            column += _join_lines(lines[start : repeat.shown])
            column.append(Hidden(folded, _join_lines(lines[repeat.shown : repeat.end])))
            start = repeat.end
        # On a searchable page, the marked lines do not need to come first.
        rest = _join_lines(lines[start:]) if searched else _marked_first(_join_lines(laid_out[start : len(rows)]))
        return [*column, *rest]

    @gc_paused()
    def _program_columns(self, width: int) -> tuple[list[list[PieceLine]], bool]:
        """Return both folded programs in columns of this width, and whether all lines are shown."""
        programs, forms = self.programs(), Forms()
        listings = [listing._replace(rows=self._fold_repeats(listing.rows, forms)) for listing in programs]
        columns: list[list[PieceLine]] = []
        if self.fold and self.marked:
            columns = [[*_title_lines(t, h, width), *_only_marked(_rows_lines(rows, width))] for t, h, rows in programs]
            return columns, all(len(listing.rows) <= _LONG for listing in programs)
        every = not self.fold
        if every or sum(len(listing.rows) for listing in listings) <= _MANY:
            columns = [_column_lines(*listing, width) for listing in listings]
            every = every or sum(map(len, columns)) <= _MANY
        if not every:
            columns = self._shorten_columns(programs, listings, width, forms)
        return columns, every

    def _shorten_columns(
        self, programs: list[Listing], listings: list[Listing], width: int, forms: Forms
    ) -> list[list[PieceLine]]:
        """Return both programs, whose repeated layers are folded in `listings`, in columns that are not too long."""
        columns: list[list[PieceLine]] = []
        for roughly in (False, True):
            found = []
            for program, (_, _, rows) in zip(programs, listings, strict=True):
                if roughly or sum(map(bool, map(tree_of, rows))) > _TREE:  # their names come in an order of their own
                    rows = self._fold_repeats(without_trees(program.rows), forms, roughly)
                found.append(program._replace(rows=with_short_paths(rows)))
            shorter = [found] if roughly else []
            for saved in (False, True):
                shorter.append([each._replace(rows=without_runs(each.rows, saved, roughly)) for each in found])
            for both in shorter:
                columns = [_column_lines(*listing, width) for listing in both]
                if sum(map(len, columns)) <= _MOST:
                    return columns
        return [_without_middle(column, _MOST // len(columns)) for column in columns]

    def _fold_repeats(self, rows: list[ProgramRow], forms: Forms, roughly: bool = False) -> list[ProgramRow]:
        shown: list[ProgramRow] = []
        start = 0
        for repeat in self._find_repeats(rows, forms, roughly):
            shown += [*rows[start : repeat.shown], summary(rows, repeat)]
            start = repeat.end
        return [*shown, *rows[start:]]

    def _find_repeats(self, rows: list[ProgramRow], forms: Forms, roughly: bool = False) -> list[Repeat]:
        return repeats(rows, roughly, forms) if self.fold and not self.marked and len(rows) > _LONG else []


@with_own_options
def print_fwd_bwd(f: Callable, *args, device: Device | str | None = None, **kwargs) -> None:
    """Show the forward and the backward program of `f` side by side.

    Letters mark the lines: `S`, the value is saved for the backward pass; `R`, the backward pass recomputes a value
    that the forward pass has computed; `D`, the computation is deferred: it does not depend on the cotangent, but runs
    only once, in the backward pass; `B`, the computation depends on the cotangent. A residual has the same name in both
    programs.

    Args:
      f: a function that is differentiable in reverse mode, or a training step. It is traced, not run.
      *args, **kwargs: the arguments of `f`, as for `trace`.
      device: the name of a device such as `"tpu v5e"`, a `Device`, or the result of `calibrate()`. If given, the view
        also shows the estimated time of each line, summed over all its runs; see `estimate_time`.

    Raises:
      TraceError: as for `trace`.
      TargetError: if `device` is not known.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from rematscope import print_fwd_bwd
      >>> print_fwd_bwd(jax.checkpoint(lambda x: jnp.sin(jnp.sin(x))), jnp.ones(4))
      forward
      <lambda> saves 16 B: computed 0 B + arguments 16 B
      <BLANKLINE>
      S  x           f32[4]  argument                  16 B →
         a = sin(x)  f32[4]  ...
         b = sin(a)  f32[4]  ...
         return b
      ────...
      backward
      recomputes 1 equation (4 transcendentals); defers 2 equations (8 transcendentals)
      <BLANKLINE>
         ct                       f32[4]  cotangent
         ── barrier: 2 values ──
      R  a = sin(x)               f32[4]  ...
      D  c = cos(x)               f32[4]  ...
      D  d = cos(a)               f32[4]  ...
      B  e = ct * d               f32[4]  ...
      B  f = e * c                f32[4]  ...
         return dx = f            f32[4]
      S saved  R recomputed  D deferred  B backward
    """
    __tracebackhide__ = True
    rates = None if device is None else device_called(device)
    show(SideBySide(trace(f, *args, **kwargs), device=rates))


def _html_row(row: ProgramRow, lines: list[PieceLine]) -> Row:
    makes = [value.name for value in row.defines]
    values = [piece for piece in row.pieces if isinstance(piece, Value) and not isinstance(piece, Literal)]
    reads = dict.fromkeys(value.name for value in values if value not in row.defines)
    return Row(lines, row.gutter, makes, list(reads))


def _column_lines(title: str, header: str, rows: list[ProgramRow], width: int | None) -> list[PieceLine]:
    return [*_title_lines(title, header, width), *_marked_first(_rows_lines(rows, width))]


def _rows_lines(rows: list[ProgramRow], width: int | None) -> list[PieceLine]:
    return _join_lines(_lay_out_rows(rows, width))


def _without_middle(lines: list[PieceLine], most: int) -> list[PieceLine]:
    """Return at most `most` lines: the first and the last ones, and a line with the number of lines left out."""
    if len(lines) <= most:
        return lines
    first, last = 2 * most // 3, most // 3 - 1
    return [*lines[:first], [(f"   ⋮ {len(lines) - first - last:,} more lines", "")], *lines[-last:]]


def _join_lines(lines: Iterable[Iterable[_Line]]) -> list[_Line]:
    return list(itertools.chain.from_iterable(lines))


def _title_lines(title: str, header: str, width: int | None = None) -> list[PieceLine]:
    return [[(title, "bold")], *([(part, "rs-header")] for part in wrap(header, width)), []]


def _marked_first(lines: list[PieceLine]) -> list[PieceLine]:
    """Return the lines of a program; if it is long, the marked lines and their surroundings come first.

    The marked lines do not come first if they and their surroundings are most of the program.
    """
    near = _near_marked(lines)
    if not near or len(lines) <= _LONG or 2 * len(near) > len(lines):
        return lines
    return [*_with_gaps(lines, near), [], [(f"All {len(lines)} lines:", "bold")], [], *lines]


def _only_marked(lines: list[PieceLine]) -> list[PieceLine]:
    """Return the lines of a program; if it is long, only the marked lines and their surroundings, or the first and the
    last lines if none is marked.
    """
    if len(lines) <= _LONG:
        return lines
    near = _near_marked(lines)
    return _with_gaps(lines, near) if near else _without_middle(lines, _LONG)


def _near_marked(lines: list[PieceLine]) -> set[int]:
    """Return the numbers of the marked lines and of the lines around them."""
    marked = [number for number, line in enumerate(lines) if any("rs-marked" in style for _, style in line)]
    return {each for number in marked for each in range(number - _AROUND, number + _AROUND + 1)}


def _with_gaps(lines: list[PieceLine], shown: Collection[int]) -> list[PieceLine]:
    """Return the lines with these numbers, and a line with the number of lines left out for each gap."""
    found: list[PieceLine] = []
    for is_shown, numbers in itertools.groupby(range(len(lines)), shown.__contains__):
        run = [*numbers]
        found += [lines[n] for n in run] if is_shown else [[(f"   ⋮ {len(run):,} more lines", "")]]
    return found


def _lay_out_rows(rows: list[ProgramRow], width: int | None) -> list[list[PieceLine]]:
    """Align rows in columns, and return a list of lines for each row; long code is wrapped within its column."""
    source = width is None or width >= _WITH_SOURCE
    times = ["" if r.seconds is None else seconds_text(r.seconds) for r in rows]
    time_width = max(map(len, times))
    sources = [_short_source(r.source) if width and width < _WITH_FUNCTION else r.source for r in rows]
    type_width = min(max(len(r.type) for r in rows), 22)
    saved_width = max(len(r.saved) for r in rows)
    most = _SOURCE if width and width < _WITH_LIBRARIES else _SOURCE_ON_A_PAGE
    source_width = min(_longest_width(sources), most) if source else 0
    fixed = 3 + sum(w + 2 for w in (type_width, time_width, saved_width, source_width) if w)
    longest = _longest_width(r.code for r in rows if not r.heading)
    code_width = min(longest, 60 if width is None else max(width - fixed, 16))
    if width is not None and (over := fixed + code_width - width) > 0:  # types fold first, the bytes never
        type_width -= min(over, max(type_width - 6, 0))

    out = []
    for row, spent, source_text in zip(rows, times, sources, strict=True):
        if row.heading:  # across all columns
            parts = wrap(row.code, width and width - 3, "      ")
            out.append([[("   ", ""), (part, row.style)] for part in parts])
            continue
        lines = []
        hang = " " * (len(row.code) - len(row.code.lstrip()) + 4)
        codes = wrap(row.code, code_width, hang)
        types = wrap(row.type, type_width)
        for i, (code, kind) in enumerate(itertools.zip_longest(codes, types, fillvalue="")):
            style = row.style
            pieces = [(f"{row.gutter if i == 0 else '':<2} ", style), (_pad_right(code, code_width), style)]
            pieces.append((f"  {kind:<{type_width}}", "rs-type"))
            if time_width:
                pieces.append((f"  {spent if i == 0 else '':>{time_width}}", "rs-type"))
            if source_width:
                origin = source_text if len(source_text) <= source_width else _short_source(source_text)
                origin = _truncate_start(origin, source_width) if i == 0 else ""
                pieces.append((f"  {_pad_right(origin, source_width)}", "rs-source"))
            if saved_width:  # in the last column, so that saved values are next to the backward program
                pieces.append((f"  {row.saved if i == 0 else '':>{saved_width}}", style))
            lines.append(pieces)
        out.append(lines)
    return out


def _in_terminal(line: PieceLine) -> PieceLine:
    """Return a line with the styles of a terminal, which colors only the letter at the start of the line."""
    pieces = list(line)
    if line and (letter := line[0][0][:1]) in BADGES and f"rs-{letter}" in line[0][1].split():
        pieces = [(letter, BADGES[letter]), (line[0][0][1:], line[0][1]), *line[1:]]
    return [(text, " ".join(TERMINAL.get(name, name) for name in style.split(" "))) for text, style in pieces]


def _least_width(rows: list[ProgramRow]) -> int:
    """Return the width below which types would be wrapped; for a long program, from a sample of a thousand rows."""
    some = rows[:: len(rows) // 1000 + 1]
    types, saved = max(len(row.type) for row in some), max(len(row.saved) for row in some)
    code, source = _longest_width(row.code for row in some), _longest_width(_short_source(row.source) for row in some)
    return 3 + min(code, LEAST_CODE) + sum(width + 2 for width in (min(types, 22), source, saved) if width)


def _short_source(text: str) -> str:
    """Return `model.py:7` for `model.py:7 (layer_norm)`; for a line in a library, the user's own line."""
    return text.split(" (")[0].split(" → ")[0]


def _truncate_start(text: str, width: int) -> str:
    """Shorten the name of a file, and keep the number of the line at its end."""
    return text if len(text) <= width else "…" + text[len(text) - width + 1 :]


def _pad_right(text: str, width: int) -> str:
    """Pad a text like `str.ljust`, also if it has characters that take two columns."""
    return text.ljust(width) if text.isascii() else text + " " * (width - cell_len(text))


def _longest_width(texts: Iterable[str]) -> int:
    """Return the number of columns of the longest text; 0 without texts."""
    return max((len(text) if text.isascii() else cell_len(text) for text in texts), default=0)


def _pad_pieces(pieces: PieceLine, width: int) -> PieceLine:
    return [*pieces, (" " * (width - sum(cell_len(text) for text, _ in pieces)), "")]
