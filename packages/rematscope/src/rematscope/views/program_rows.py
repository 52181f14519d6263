"""What stands on each line of the two programs: code, values, types, bytes, source and letters. Nothing is laid out."""

import dataclasses
import functools
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from rematscope.ir import roles
from rematscope.ir.cost import Cost
from rematscope.ir.pretty_print import Line, Pieces, lines, listed, text, types_text
from rematscope.ir.program import Value
from rematscope.render.units import bytes_text, count_text
from rematscope.tracing.residuals import Residual
from rematscope.tracing.trace import Passes


@dataclasses.dataclass(eq=False)
class ProgramRow:
    """One line of a view. Its words are put together where it is shown.

    Attributes:
      gutter: `S`, `R`, `L`, `B` or nothing.
      line: the line of the program, or what is said in its place.
      crossing: the residuals that it defines.
      origin: what an input is; nothing for what is computed.
      mark: `◀ here`, where the reader should look.
      heading: it computes nothing, and says which module those below it belong to.
      seconds: how long all runs of it take by a roofline; None where no device was given, or nothing is computed.
      returns: what it hands back, for an argument's gradient.
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
        """The values that it defines."""
        return self.line.defines

    @functools.cached_property
    def pieces(self) -> Pieces:
        """The code, and the values in it."""
        return self.line.pieces

    @functools.cached_property
    def type(self) -> str:
        """Dtype and shape of what it defines, or hands back."""
        return types_text(self.defines if self.returns is None else (self.returns,))

    @functools.cached_property
    def source(self) -> str:
        """The user's line, or what an input is."""
        return self.origin or str(self.line.source or "")

    @functools.cached_property  # asked for several times a line while it is laid out
    def code(self) -> str:
        return f"{text(self.pieces)}  {self.mark}".rstrip()

    @functools.cached_property
    def saved(self) -> str:
        """The bytes that cross, on a mesh those of a device: `20 B →`, `20 B → host`."""
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
      header: what it keeps, or computes again, all in all.
      rows: its inputs, its lines and what it returns.
    """

    title: str
    header: str
    rows: list[ProgramRow]


def forward(p: Passes, marked: Collection[Value], spent: Mapping[Value, float]) -> Listing:
    """Arguments and constants first, then the equations. Each residual's bytes stand on one line, and add up.

    `spent` are the seconds that it takes to make a value, where they are known; those of several by the first of them.
    """
    saved = {r.array: r for r in p.residuals}
    constants = [r.array for r in p.residuals if r.kind == "constant"]
    rows = []
    for value in dict.fromkeys([*p.forward.inputs, *constants]):
        residual = saved.pop(value, None)
        kind = residual.kind if residual else "argument"
        given = (residual,) if residual else ()
        rows.append(_row(_input(value), marked, spent, "S" if residual else "", given, kind))
    for heading, line in _with_headings(lines(p.forward), p.function):
        rows += heading
        crossing = tuple([saved.pop(v) for v in line.defines if v in saved])
        rows.append(_row(line, marked, spent, "S" if crossing else "", crossing))
    if p.outputs:
        rows.append(ProgramRow("", Line(f"return {listed(len(p.outputs))}", p.outputs)))
    return Listing("forward", f"{p.function} saves {saved_text(p)}", rows)


def backward(p: Passes, marked: Collection[Value], spent: Mapping[Value, float]) -> Listing:
    """Cotangents first, then the equations, each with its role, then the gradients."""
    rows = [_row(_input(v), marked, spent, origin="cotangent") for v in p.cotangents]
    for heading, line in _with_headings(lines(p.backward), p.function):
        rows += [*heading, _row(line, marked, spent, line.role)]
    for argument, value in p.gradients:
        rows.append(ProgramRow("", Line("return d{} = {}", (argument.name, value)), returns=value))
    recomputed = _work(p.times * p.backward.count(role=roles.RECOMPUTED), p.recompute_cost)
    late = _work(p.times * p.backward.count(role=roles.LATE), p.late_cost)
    microbatches = f"; all {p.times:,} microbatches" if p.times > 1 else ""
    unopened = f"; not looked into: {', '.join(p.unopened)}" if p.unopened else ""
    loops = f"{p.undecided} loop{'s' * (p.undecided > 1)}"
    undecided = f"; {loops} not compared, late where in doubt" if p.undecided else ""
    undivided = "; work counts as the compiler should divide it" if p.undivided else ""
    said = f"{microbatches}{unopened}{undecided}{undivided}"
    return Listing("backward", f"recomputes {recomputed}; late {late}{said}", rows)


def _input(value: Value) -> Line:
    return Line("{}", (value,), (value,))


def _with_headings(program: Iterable[Line], function: str) -> Iterator[tuple[list[ProgramRow], Line]]:
    """The lines, each with a row before it that says its module where that is another one than before."""
    module = ""
    for line in program:
        heading = []
        if line.equation and line.equation.module != module:
            module = line.equation.module
            heading = [ProgramRow("", Line(f"{line.indent}# {{}}", (module or function,)), heading=True)]
        yield heading, line


def _row(
    line: Line,
    marked: Collection[Value],
    spent: Mapping[Value, float],
    gutter: str = "",
    crossing: tuple[Residual, ...] = (),
    origin: str = "",
) -> ProgramRow:
    mark = _mark(line.defines, marked) if marked else ""
    seconds = spent.get(line.defines[0]) if spent and line.defines else None
    return ProgramRow(gutter, line, crossing, origin, mark, seconds=seconds)


def _mark(defines: Collection[Value], marked: Collection[Value]) -> str:
    """`◀ here`; where one of several values is meant, its name."""
    named = [v.name for v in defines if v in marked]
    if not named:
        return ""
    return "◀ here" if len(named) == len(defines) else f"◀ {', '.join(named)} here"


def _work(count: int, cost: Cost) -> str:
    return f"{count:,}" + (f" ({work})" if (work := work_text(cost)) else "")


def work_text(cost: Cost) -> str:
    """`40 FLOPs, 5 transcendentals`; nothing of what costs nothing."""
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


def saved_text(passes: Passes) -> str:
    """`456 B: computed 72 B + arguments 384 B; 64 B on the host`; on a mesh `57 B on each of 8 devices: …`."""
    kinds = {"computed": "computed", "constant": "constants", "argument": "arguments"}
    parts = [f"{kinds[kind]} {bytes_text(size)}" for kind, size in passes.device_bytes_by_kind().items()]
    count = len(passes.unplaced)
    unplaced = f"; foretold for {count} of them, which the compiler may divide otherwise" if count else ""
    host = f"; {bytes_text(passes.host_bytes())} on the host" if passes.host_bytes() else ""
    return f"{bytes_text(passes.saved_device_bytes())}{passes.where}: {' + '.join(parts)}{host}{unplaced}"
