"""The two programs side by side, with what crosses between them."""

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from rematscope.ir import roles
from rematscope.ir.cost import Cost
from rematscope.ir.pretty_print import Line, Pieces, lines, listed, text
from rematscope.ir.program import Value, type_text
from rematscope.render.html import PieceLine, html_page
from rematscope.render.theme import COLOURS
from rematscope.render.units import bytes_text, count_text
from rematscope.render.view import View, show
from rematscope.tracing.residuals import Residual
from rematscope.tracing.trace import Passes, trace
from rematscope.views.words import saved_text

# Below this width the two programs stand one above the other.
_SIDE_BY_SIDE = 110

# A column of programs shows the user's source lines too where it has this much room.
_WITH_SOURCE = 74

LEGEND = {"S": "saved", "R": "recomputed", "L": "late", "B": "backward"}


@dataclasses.dataclass(frozen=True)
class ProgramRow:
    """One line of a view.

    Attributes:
      gutter: `S`, `R`, `L`, `B` or nothing.
      pieces: the code, and the values in it.
      type: dtype and shape of what the line defines.
      saved: the bytes that cross, `20 B →`.
      source: the user's line, or what an input is.
      defines: the values that it defines.
      mark: `◀ here`, where the reader should look.
    """

    gutter: str
    pieces: Pieces
    type: str = ""
    saved: str = ""
    source: str = ""
    defines: tuple[Value, ...] = ()
    mark: str = ""

    @property
    def code(self) -> str:
        return f"{text(self.pieces)}  {self.mark}".rstrip()

    @property
    def style(self) -> str:
        return " ".join([f"rs-{self.gutter}"] * bool(self.gutter) + ["rs-marked"] * bool(self.mark))


class FwdBwd(View):
    """Forward and backward side by side: rich renders it in a terminal, JupyterLab as HTML, GitHub as text.

    Args:
      passes: what `trace` returned.
      marked: values to point at, of either program: the lines that define them say `◀ here`, and stand out.
    """

    def __init__(self, passes: Passes, marked: Collection[Value] = ()):
        self.passes = passes
        self.marked = frozenset(marked)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        if width >= _SIDE_BY_SIDE:
            half = (width - 3) // 2
            left, right = self._columns(half)
            nothing: PieceLine = []
            abreast = itertools.zip_longest(left, right, fillvalue=nothing)
            body = [[*_padded(a, half), (" │ ", "dim"), *b] for a, b in abreast]
        else:
            seam = [("─" * width, "dim")]
            forward, backward = self._columns(width)
            body = [*forward, seam, *backward]
        legend = [("  ".join(f"{letter} {word}" for letter, word in LEGEND.items()), "dim")]
        for line in [*body, legend]:
            coloured = [(piece, " ".join(COLOURS.get(s, s) for s in style.split())) for piece, style in line]
            yield Text.assemble(*coloured, no_wrap=True, overflow="crop")

    def html(self) -> str:
        return html_page(*self.pieces())

    def pieces(self) -> tuple[list[list[PieceLine]], list[PieceLine]]:
        """Both programs and the legend as text that `html_page` takes: lines of (text, style) pieces."""
        legend = [(f"{letter} {word}  ", f"rs-{letter}") for letter, word in LEGEND.items()]
        return self._columns(None), [legend]

    def programs(self) -> list[tuple[str, str, list[ProgramRow]]]:
        """Title, header and lines of both programs."""
        return [("forward", *self._forward()), ("backward", *self._backward())]

    def _columns(self, width: int | None) -> list[list[PieceLine]]:
        return [[*_title(title, header, width), *_layout(rows, width)] for title, header, rows in self.programs()]

    def _forward(self) -> tuple[str, list[ProgramRow]]:
        """Arguments and constants first, then the equations. Each residual's bytes stand on one line, and add up."""
        p = self.passes
        saved = {r.value: r for r in p.residuals}
        constants = [r.value for r in p.residuals if r.kind == "constant"]
        rows = []
        for value in dict.fromkeys([*p.forward.inputs, *constants]):
            residual = saved.pop(value, None)
            kind = residual.kind if residual else "argument"
            line = Line((value,), (value,))
            rows.append(self._row(line, "S" if residual else "", _bytes([residual]), kind))
        for line in lines(p.forward):
            crossing = [saved.pop(v) for v in line.defines if v in saved]
            rows.append(self._row(line, "S" if crossing else "", _bytes(crossing)))
        outputs = p.forward.outputs[: len(p.cotangents)]
        rows.append(ProgramRow("", ("return ", *listed(outputs))))

        return f"{p.function} saves {saved_text(p)}", rows

    def _backward(self) -> tuple[str, list[ProgramRow]]:
        p = self.passes
        rows = [self._row(Line((v,), (v,)), source="cotangent") for v in p.cotangents]
        rows += [self._row(line, line.role) for line in lines(p.backward)]
        for argument, value in zip(p.forward.inputs, p.backward.outputs, strict=True):
            rows.append(ProgramRow("", (f"return d{argument.name} = ", value), type_text(value)))
        recomputed = _work(p.backward.count(role=roles.RECOMPUTED), p.recompute_cost)
        late = _work(p.backward.count(role=roles.LATE), p.late_cost)
        unopened = f"; not looked into: {', '.join(p.unopened)}" if p.unopened else ""
        loops = f"{p.undecided} nested loop{'s' * (p.undecided > 1)}"
        undecided = f"; {loops} not compared, late where in doubt" if p.undecided else ""
        return f"recomputes {recomputed}; late {late}{unopened}{undecided}", rows

    def _row(self, line: Line, gutter: str = "", saved: str = "", source: str = "") -> ProgramRow:
        source = source or str(line.source or "")
        return ProgramRow(gutter, line.pieces, line.type, saved, source, line.defines, self._mark(line.defines))

    def _mark(self, defines: Collection[Value]) -> str:
        """`◀ here`; where one of several values is meant, its name."""
        marked = [v.name for v in defines if v in self.marked]
        if not marked:
            return ""
        return "◀ here" if len(marked) == len(defines) else f"◀ {', '.join(marked)} here"


def print_fwd_bwd(f: Callable, *args, **kwargs) -> None:
    """Shows what `f`'s forward pass computes and saves beside what its backward pass does with it.

    A letter marks a line: `S` saved for the backward pass, `R` recomputed (the forward pass had this value), `L` late
    (first computed in the backward pass, though it does not depend on the cotangent), `B` backward. A value that
    crosses has one name on both sides.

    Args:
      f: a function that is differentiable in reverse mode. It is not run.
      *args, **kwargs: its arguments, as for `trace`.

    Raises:
      TraceError: as `trace` does.

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
      recomputes 1 (4 transcendentals); late 2 (8 transcendentals)
      <BLANKLINE>
         ct                       f32[4]  cotangent
         ── barrier: 2 values ──
      R  a = sin(x)               f32[4]  ...
      L  c = cos(x)               f32[4]  ...
      L  d = cos(a)               f32[4]  ...
      B  e = ct * d               f32[4]  ...
      B  f = e * c                f32[4]  ...
         return dx = f            f32[4]
      S saved  R recomputed  L late  B backward
    """
    __tracebackhide__ = True
    show(FwdBwd(trace(f, *args, **kwargs)))


def _bytes(residuals: Iterable[Residual | None]) -> str:
    found = [r.nbytes for r in residuals if r is not None]
    return f"{bytes_text(sum(found))} →" if found else ""


def _work(count: int, cost: Cost) -> str:
    parts = []
    if cost.flops:
        parts.append(count_text(cost.flops, "FLOPs"))
    if cost.transcendentals:
        parts.append(count_text(cost.transcendentals, "transcendentals"))
    return f"{count:,}" + (f" ({', '.join(parts)})" if parts else "")


def _title(title: str, header: str, width: int | None = None) -> list[PieceLine]:
    return [[(title, "bold")], *([(part, "")] for part in _folded(header, width)), []]


def _layout(rows: list[ProgramRow], width: int | None) -> list[PieceLine]:
    """Aligns rows in columns; code too long for its column goes on below itself."""
    source = width is None or width >= _WITH_SOURCE
    type_width = min(max(len(r.type) for r in rows), 22)
    saved_width = max(len(r.saved) for r in rows)
    source_width = min(max(cell_len(r.source) for r in rows), 28) if source else 0
    fixed = 3 + sum(w + 2 for w in (type_width, saved_width, source_width) if w)
    longest = max(cell_len(r.code) for r in rows)
    code_width = min(longest, 60 if width is None else max(width - fixed, 16))
    if width is not None and (over := fixed + code_width - width) > 0:  # types fold first, the bytes never
        type_width -= min(over, max(type_width - 6, 0))

    out = []
    for row in rows:
        hang = " " * (len(row.code) - len(row.code.lstrip()) + 4)
        codes = _folded(row.code, code_width, hang)
        types = _folded(row.type, type_width)
        for i, (code, kind) in enumerate(itertools.zip_longest(codes, types, fillvalue="")):
            style = row.style
            pieces = [(f"{row.gutter if i == 0 else '':<2} ", style), (_filled(code, code_width), style)]
            pieces.append((f"  {kind:<{type_width}}", "rs-type"))
            if source_width:
                origin = _shortened(row.source, source_width) if i == 0 else ""
                pieces.append((f"  {_filled(origin, source_width)}", "rs-source"))
            if saved_width:  # last, so that what crosses stands at the seam
                pieces.append((f"  {row.saved if i == 0 else '':>{saved_width}}", style))
            out.append(pieces)
    return out


def _folded(text: str, width: int | None, hang: str = "") -> list[str]:
    """Breaks `text` after a comma or a space where it can, so that no part is longer than `width`."""
    if width is None or len(text) <= width:
        return [text]
    hang = hang[: width // 2]  # deep nesting in a narrow column: what is left must still get shorter
    parts = []
    while len(text) > width:
        cut = max(text.rfind(" ", len(hang) + 1, width), text.rfind(",", len(hang), width - 1))
        cut = cut + 1 if cut > len(hang) else width
        parts.append(text[:cut].rstrip())
        text = hang + text[cut:].lstrip()
    return [*parts, text]


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _filled(text: str, width: int) -> str:
    """Like `str.ljust`, for characters that take two columns too."""
    return text + " " * (width - cell_len(text))


def _padded(pieces: PieceLine, width: int) -> PieceLine:
    return [*pieces, (" " * (width - sum(cell_len(text) for text, _ in pieces)), "")]
