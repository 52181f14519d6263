"""The rows of the two programs as data: code, values, types, bytes, source lines and roles, without layout."""

import dataclasses
import functools
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from rematscope.ir import roles
from rematscope.ir.cost import Cost
from rematscope.ir.pretty_print import Line, Pieces, lines, listed, text, types_text
from rematscope.ir.program import Value
from rematscope.render.units import bytes_text, count_text, counted
from rematscope.tracing.residuals import Residual
from rematscope.tracing.trace import Trace

LEGEND = {"S": "saved", "R": "recomputed", "D": "deferred", "B": "backward"}  # the letters of the gutter


@dataclasses.dataclass(eq=False)
class ProgramRow:
    """One row of a view; the text is formatted where it is displayed.

    Attributes:
      gutter: `S`, `R`, `D`, `B` or "".
      line: the line of the program, or a summary in its place.
      crossing: the residuals that it defines.
      origin: `"argument"`, `"constant"` or `"cotangent"` for an input; "" for a computed value.
      mark: `◀ here` on a marked row.
      heading: whether the row is a heading with the module of the rows below it.
      seconds: the time of all runs of the equation by a roofline; None without a device, or if nothing is computed.
      returns: the returned value, in the row of an argument's gradient.
    """

    gutter: str
    line: Line
    crossing: tuple[Residual, ...] = ()
    origin: str = ""
    mark: str = ""
    heading: bool = False
    seconds: float | None = None
    returns: Value | None = None

    @property
    def defines(self) -> tuple[Value, ...]:
        """The values that the row defines."""
        return self.line.defines

    @functools.cached_property
    def pieces(self) -> Pieces:
        """The code, with its values."""
        return self.line.pieces

    @functools.cached_property
    def type(self) -> str:
        """Dtype and shape of the values that the row defines or returns."""
        return types_text(self.defines if self.returns is None else (self.returns,))

    @functools.cached_property
    def source(self) -> str:
        """The user's source line; for an input, its origin."""
        return self.origin or str(self.line.source or "")

    @functools.cached_property  # read several times per row during layout
    def code(self) -> str:
        return f"{text(self.pieces)}  {self.mark}".rstrip()

    @functools.cached_property
    def saved(self) -> str:
        """The saved bytes (per device on a mesh) as text: `20 B →`, `20 B → host`."""
        if not self.crossing:
            return ""
        ways = {"device": "→", "host": "→ host"}
        sizes = {memory: [r.device_bytes for r in self.crossing if r.memory == memory] for memory in ways}
        return ", ".join(f"{bytes_text(sum(sizes[memory]))} {way}" for memory, way in ways.items() if sizes[memory])

    @property
    def style(self) -> str:
        if self.heading:
            return "rs-type"
        return " ".join([f"rs-{self.gutter}"] * bool(self.gutter) + ["rs-marked"] * bool(self.mark))


class Listing(NamedTuple):
    """One program, line by line.

    Attributes:
      title: `"forward"` or `"backward"`.
      header: the totals: bytes saved, or equations and FLOPs recomputed.
      rows: the inputs, the equations and the returned values.
    """

    title: str
    header: str
    rows: list[ProgramRow]


def forward(p: Trace, marked: Collection[Value], spent: Mapping[Value, float]) -> Listing:
    """Return the rows of the forward program: arguments and constants, then equations. Each residual is in one row.

    `spent` maps the first value that an equation defines to the equation's time in seconds, where it is known.
    """
    saved = {r.array: r for r in p.residuals}
    constants = [r.array for r in p.residuals if r.kind == "constant"]
    rows = []
    for value in dict.fromkeys([*p.forward.inputs, *constants]):
        residual = saved.pop(value, None)
        kind = residual.kind if residual else "argument"
        given = (residual,) if residual else ()
        rows.append(_make_row(_input_line(value), marked, spent, "S" if residual else "", given, kind))
    for heading, line in _with_headings(lines(p.forward), p.function):
        rows += heading
        crossing = tuple([saved.pop(v) for v in line.defines if v in saved])
        rows.append(_make_row(line, marked, spent, "S" if crossing else "", crossing))
    if p.outputs:
        rows.append(ProgramRow("", Line(f"return {listed(len(p.outputs))}", p.outputs)))
    return Listing("forward", f"{p.function}{p.mode_text} saves {saved_text(p)}", rows)


def backward(p: Trace, marked: Collection[Value], spent: Mapping[Value, float]) -> Listing:
    """Return the rows of the backward program: cotangents, then equations with their roles, then gradients."""
    rows = [_make_row(_input_line(v), marked, spent, origin="cotangent") for v in p.cotangents]
    for heading, line in _with_headings(lines(p.backward), p.function):
        rows += [*heading, _make_row(line, marked, spent, line.role)]
    for argument, value in p.gradients:
        rows.append(ProgramRow("", Line("return d{} = {}", (argument.name, value)), returns=value))
    recomputed = _work_text(p.times * p.backward.count(role=roles.RECOMPUTED), p.recompute_cost)
    deferred = _work_text(p.times * p.backward.count(role=roles.DEFERRED), p.deferred_cost)
    microbatches = f"; total of {p.times:,} microbatches" if p.times > 1 else ""
    opaque = f"; not counted: {', '.join(p.opaque_primitives)}" if p.opaque_primitives else ""
    loops = p.unproven_equalities
    unproven = f"; {counted(loops, 'loop')} not compared, counted as deferred" if loops else ""
    auto_sharded = "; FLOPs assume how the compiler shards them" if p.has_auto_sharded_work else ""
    notes = f"{microbatches}{opaque}{unproven}{auto_sharded}"
    return Listing("backward", f"recomputes {recomputed}; defers {deferred}{notes}", rows)


def _input_line(value: Value) -> Line:
    return Line("{}", (value,), (value,))


def _with_headings(program: Iterable[Line], function: str) -> Iterator[tuple[list[ProgramRow], Line]]:
    """Yield each line, preceded by a heading if its module differs from that of the line before."""
    module = ""
    for line in program:
        heading = []
        if line.equation and line.equation.module != module:
            module = line.equation.module
            heading = [ProgramRow("", Line(f"{line.indent}# {{}}", (module or function,)), heading=True)]
        yield heading, line


def _make_row(
    line: Line,
    marked: Collection[Value],
    spent: Mapping[Value, float],
    gutter: str = "",
    crossing: tuple[Residual, ...] = (),
    origin: str = "",
) -> ProgramRow:
    mark = _mark_text(line.defines, marked) if marked else ""
    seconds = spent.get(line.defines[0]) if spent and line.defines else None
    return ProgramRow(gutter, line, crossing, origin, mark, seconds=seconds)


def _mark_text(defines: Collection[Value], marked: Collection[Value]) -> str:
    """Return `◀ here`, with the names of the marked values if the row defines others too."""
    named = [v.name for v in defines if v in marked]
    if not named:
        return ""
    return "◀ here" if len(named) == len(defines) else f"◀ {', '.join(named)} here"


def _work_text(count: int, cost: Cost) -> str:
    return counted(count, "equation") + (f" ({work})" if (work := work_text(cost)) else "")


def work_text(cost: Cost) -> str:
    """Return a cost as text, `40 FLOPs, 5 transcendentals`; "" if it is zero."""
    parts = []
    if cost.flops:
        parts.append(count_text(cost.flops, "FLOPs"))
    if cost.transcendentals:
        parts.append(count_text(cost.transcendentals, "transcendentals"))
    if cost.link_bytes:
        parts.append(f"{bytes_text(cost.link_bytes)} over links")
    if cost.uncounted:
        parts.append(cost.uncounted_text)
    return ", ".join(parts)


def saved_text(passes: Trace) -> str:
    """Return `456 B: computed 72 B + arguments 384 B; 64 B in host memory`, or `57 B on each of 8 devices: …`."""
    kinds = {"computed": "computed", "constant": "constants", "argument": "arguments"}
    parts = [f"{kinds[kind]} {bytes_text(size)}" for kind, size in passes.device_bytes_by_kind().items()]
    count = len(passes.unresolved_shardings)
    estimated = f"; the sharding of {counted(count, 'residual')} is an estimate, the compiler decides" if count else ""
    host = f"; {bytes_text(passes.host_bytes())} in host memory" if passes.host_bytes() else ""
    total = f"{bytes_text(passes.saved_device_bytes())}{passes.per_device_text}"
    return f"{total}: {' + '.join(parts)}{host}{estimated}"
