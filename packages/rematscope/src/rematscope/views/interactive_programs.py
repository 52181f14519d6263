"""`interactive_programs(f, *args)`: both programs and the residuals, with a value highlighted wherever it appears."""

from collections.abc import Callable, Iterable, Iterator

from rematscope.ir.program import Literal, Program, Value, type_text
from rematscope.ir.roles import BACKWARD, DEFERRED, RECOMPUTED
from rematscope.render.html import escaped, html_table
from rematscope.render.parts import Stack
from rematscope.render.units import bytes_text
from rematscope.render.widget import live
from rematscope.seconds.devices import Device, device_called
from rematscope.tracing.entry_points import with_own_options
from rematscope.tracing.residuals import Residual
from rematscope.tracing.trace import Trace, trace
from rematscope.views.program_rows import LEGEND, Listing, ProgramRow
from rematscope.views.residual_table import NUMERIC, ResidualTable
from rematscope.views.side_by_side import SideBySide

_HINT = "Point at a value, or use Tab and the arrow keys, to highlight it wherever it appears."


class InteractivePrograms(Stack):
    """The table of residuals above the forward and the backward program side by side.

    `live` highlights a value in the table and in both programs. Other displays are static.

    Args:
      passes: the trace, as returned by `trace`.
      device: the device for time estimates; None shows no times.
    """

    def __init__(self, passes: Trace, device: Device | None = None):
        self.programs, self.table = SideBySide(passes, device=device), ResidualTable(passes, device)
        super().__init__(self.table, self.programs)

    def pane(self) -> dict:
        """Return the widget's state: HTML in which every value has a number, and a note about each value."""
        programs = self.programs.programs()
        passes = self.programs.trace
        numbers = _Numbers(passes)
        body = "".join(_program_html(*program, numbers) for program in programs)
        legend = "  ".join(f'<span class="rs-{letter}">{letter} {word}</span>' for letter, word in LEGEND.items())
        table = html_table(self.table.cells(), "", NUMERIC, [numbers.of(row.values) for row in self.table.rows])
        page = f'{table}<br><div class="rematscope"><div class="rs-both">{body}</div>'
        page += f'<div class="rs-legend">{legend}</div></div>'
        saved = {residual.array: residual for residual in passes.residuals}
        return {"html": page, "notes": _value_notes(programs, saved, numbers), "idle": _HINT}


@with_own_options
def interactive_programs(f: Callable, *args, device: Device | str | None = None, **kwargs) -> None:
    """Show the residuals and both programs of `f` interactively.

    In a notebook, point at a value, tap it, or move to its line with Tab and the arrow keys. The value is then
    highlighted wherever it appears, and a line of text describes it. Esc removes the highlight. Outside of a notebook,
    `interactive_programs` prints the output of both `residual_table` and `print_fwd_bwd`.

    Args:
      f: a function that is differentiable in reverse mode, or a training step. It is traced, not run.
      *args, **kwargs: the arguments of `f`, as for `trace`.
      device: the device for time estimates, as for `residual_table`; None shows no times.

    Raises:
      TraceError: as for `trace`.
      TargetError: if `device` is not known.

    Example:
      >>> import jax.numpy as jnp
      >>> from rematscope import interactive_programs
      >>> interactive_programs(jnp.sin, jnp.ones(4))  # in a notebook, each `b` is highlighted under the pointer
      Residual  Type    Bytes  ...
      b         f32[4]   16 B  ...
      B  c = ct * b     f32[4]...
    """
    __tracebackhide__ = True
    rates = None if device is None else device_called(device)
    view = InteractivePrograms(trace(f, *args, **kwargs), rates)
    live(lambda: view)


class _Numbers:
    """A number for each distinguishable value; a slice shares the number of its array.

    Attributes:
      values: the values by number.
    """

    def __init__(self, passes: Trace):
        self.values: list[Value] = []
        self._arrays = dict(_scan_slices(passes.forward)) | dict(_scan_slices(passes.backward))
        self._numbers: dict[str, int] = {}

    def __getitem__(self, value: Value) -> int:
        while value in self._arrays:
            value = self._arrays[value]
        if value.name not in self._numbers:
            self._numbers[value.name] = len(self.values)
            self.values.append(value)
        return self._numbers[value.name]

    def of(self, names: Iterable[str]) -> str:
        """Return the numbers of these values as the text of an HTML attribute."""
        return " ".join(str(self._numbers[name]) for name in names)


def _scan_slices(program: Program) -> Iterator[tuple[Value, Value]]:
    """Yield (slice, array) for each array of which a scan's body reads one slice per iteration."""
    for equation in program.all_equations():
        for body in equation.bodies:
            yield from zip(body.inputs[equation.carries :], equation.stacked_inputs, strict=False)


def _program_html(title: str, header: str, rows: list[ProgramRow], numbers: _Numbers) -> str:
    lines = "".join(_line_html(row, numbers) for row in rows)
    return (
        f'<section><b>{title}</b><div class="rs-header">{escaped(header)}</div><div role="listbox" class="rs-lines" '
        f'aria-label="{title} program">{lines}</div></section>'
    )


def _line_html(row: ProgramRow, numbers: _Numbers) -> str:
    code = "".join(_piece_html(piece, numbers) for piece in row.pieces)
    mentioned = row.defines or [p for p in row.pieces if isinstance(p, Value) and not isinstance(p, Literal)]
    cells = [
        f'<span class="{row.style}">{row.gutter}</span>',
        f'<span class="rs-code {row.style}">{code}</span>',
        f'<span class="rs-type">{escaped(row.type)}</span>',
        f'<span class="rs-source">{escaped(row.source)}</span>',
        f'<span class="rs-bytes {row.style}">{row.saved}</span>',
    ]
    about = " ".join(str(numbers[value]) for value in mentioned)
    return f'<div role="option" aria-selected="false" tabindex="-1" data-about="{about}">{"".join(cells)}</div>'


def _piece_html(piece: str | Value, numbers: _Numbers) -> str:
    if isinstance(piece, str):
        return escaped(piece)
    if isinstance(piece, Literal):
        return escaped(piece.name)
    return f'<span class="rs-value" data-value="{numbers[piece]}">{escaped(piece.name)}</span>'


def _value_notes(programs: list[Listing], saved: dict[Value, Residual], numbers: _Numbers) -> list[str]:
    """Return a note about each value, by its number."""
    facts: list[list[str]] = [[] for _ in numbers.values]
    for title, _, rows in programs:
        for row in rows:
            for value in row.defines:
                known = facts[numbers[value]]
                if title == "forward":
                    known.append(_residual_text(saved.get(value)))
                else:
                    known.append(_IN_BACKWARD.get(row.gutter, ""))
                known.append(row.source)
    return [
        "  ·  ".join([value.name, type_text(value), *(dict.fromkeys(filter(None, known)) or ["constant, not saved"])])
        for value, known in zip(numbers.values, facts, strict=True)
    ]


def _residual_text(residual: Residual | None) -> str:
    if residual is None:
        return "not saved"
    return f"saved{' in host memory' * (residual.memory == 'host')}, {bytes_text(residual.device_bytes)}"


_IN_BACKWARD = {
    RECOMPUTED: "recomputed in the backward pass",
    DEFERRED: "deferred: computed once, in the backward pass",
    BACKWARD: "computed by the backward pass",
}
