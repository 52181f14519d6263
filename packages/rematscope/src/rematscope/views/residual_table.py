"""The table of residuals, one row per residual or group of repeated residuals."""

import dataclasses
import re
from collections.abc import Callable, Sequence

from rich.console import Console, ConsoleOptions, RenderResult

from rematscope.ir.pretty_print import code
from rematscope.ir.program import Value, type_text
from rematscope.ir.source import common_path, numberless
from rematscope.render.html import html_table
from rematscope.render.parts import TextTable
from rematscope.render.units import bytes_text, counted, seconds_text
from rematscope.render.view import View
from rematscope.seconds.devices import Device, device_called
from rematscope.seconds.roofline import estimate_time, spent_by
from rematscope.tracing.arguments import with_own_options
from rematscope.tracing.residuals import Residual, makers_of, origin_of
from rematscope.tracing.trace import Trace, trace
from rematscope.views.program_rows import saved_text

# Above this number of residuals, arguments and constants share rows too; above this number of rows, other lengths do.
_MANY = 40
_SHOWN = 60  # the most rows of a text; the smallest rows are merged above it
_TIME = "Time"
NUMERIC = ("Bytes", "Bytes per device", "Share", _TIME)  # titles of columns


@dataclasses.dataclass(frozen=True)
class ResidualRow:
    """One residual, or the same residual of several identical layers.

    Attributes:
      values: their names in the two programs.
      type: dtype and shape of each, `f32[5,4]`; `f32[5,4…64]` if the layers have different widths.
      nbytes: their total bytes.
      device_bytes: the bytes of each device's shards; the table shows them on a mesh.
      share: the share of all bytes saved on a device, from 0 to 1.
      kind: `"argument"`, `"constant"` or `"computed"`.
      primitive: the primitive that computed them; None unless computed.
      name: their `checkpoint_name`, or None.
      source: the user's source line, or ""; inside a library, the library's line too.
      module: the module, `layers_0…63/attention` for repeated layers; else "".
      needed_by: the first equation of the backward program that uses the first of them; `"nothing"` if none does.
      is_output: whether the function also returns them.
      memory: `"device"` or `"host"`.
      seconds: the total time of the operations that computed them, by a roofline; None without a device, and unless
        computed. Recomputing them may require other operations first.
    """

    values: tuple[str, ...]
    type: str
    nbytes: int
    device_bytes: int
    share: float
    kind: str
    primitive: str | None
    name: str | None
    source: str
    module: str
    needed_by: str
    is_output: bool
    memory: str
    seconds: float | None = None

    @property
    def origin(self) -> str:
        """`sin, also returned`."""
        notes = ["also returned"] * self.is_output + ["offloaded to the host"] * (self.memory == "host")
        return ", ".join([self.primitive or self.kind, *notes])


class ResidualTable(View):
    """A table of residuals. Displays itself.

    Attributes:
      trace: the trace.
      device: the device of the time estimates; None if no device was given.
      rows: computed values, then constants, then arguments, each by decreasing size.
      nbytes: the total bytes of the residuals on the device.
    """

    def __init__(self, passes: Trace, device: Device | None = None):
        self.trace = passes
        self.device = device
        self.nbytes = passes.saved_bytes()
        self.rows = _rows(passes, device)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        cells = self._largest(self.cells()) if len(self.rows) > _SHOWN else self.cells()
        if not self._table(cells).fits(options.max_width):
            line = cells[0].index("Line")
            for row in cells:  # a line is clear without the function's name
                row[line] = re.sub(r" \([^ ]+\)$", "", row[line])
        yield self._table(cells)

    def _largest(self, cells: list[list[str]]) -> list[list[str]]:
        """Return the header, the largest rows, and one row for all others."""
        header, *texts = cells
        order = sorted(range(len(self.rows)), key=lambda i: -self.rows[i].device_bytes)
        rest = [self.rows[i] for i in order[_SHOWN:]]
        there = [row for row in rest if row.memory == "device"]
        said = {
            "Residual": f"⋮ {counted(len(rest), 'smaller row')}",
            header[2]: bytes_text(sum(row.device_bytes for row in rest)),
            "Share": f"{100 * sum(row.share for row in there):.1f} %",
            "Line": "in .rows",
        }
        return [header, *(texts[i] for i in sorted(order[:_SHOWN])), [said.get(title, "") for title in header]]

    def _table(self, cells: list[list[str]]) -> TextTable:
        shares = [row.share if row.memory == "device" else 0.0 for row in self.rows]
        bars = {"Share": shares} if len(cells) == len(shares) + 1 else {}
        return TextTable(cells, self._footer, NUMERIC, bars, ("Used by", "Module"), ("Share", _TIME, "Op"))

    def html(self) -> str:
        return self._table(self.cells()).html()

    def page(self) -> str:
        cells = self.cells()
        return html_table(cells, self._footer, NUMERIC, makes=[row.values for row in self.rows])

    @property
    def _footer(self) -> str:
        return self.total if self.device is None else f"{self.total}. {estimate_time(self.trace, self.device)}"

    @property
    def total(self) -> str:
        """`f saves 456 B: computed 72 B + arguments 384 B`."""
        return f"{self.trace.function}{self.trace.mode_text} saves {saved_text(self.trace)}"

    def cells(self) -> list[list[str]]:
        """The header, and a list of texts for each of `rows`."""
        named = any(row.name for row in self.rows)
        nested = any(row.module for row in self.rows)
        size = "Bytes per device" if self.trace.axes else "Bytes"
        timed = self.device is not None
        header = [
            "Residual",
            "Type",
            size,
            "Share",
            "Op",
            *[_TIME] * timed,
            *["Name"] * named,
            "Line",
            *["Module"] * nested,
            "Used by",
        ]
        cells = [header]
        sizes = [bytes_text(row.device_bytes) for row in self.rows]
        for row, nbytes in zip(self.rows, sizes, strict=True):
            count = len(row.values)
            saved = common_path(row.values) if row.kind == "argument" else row.values[0] if count == 1 else ""
            kind = row.type if count == 1 else f"{count} × {row.type}"
            name, module = [row.name or ""] * named, [row.module] * nested
            share = f"{100 * row.share:.1f} %" if row.memory == "device" else ""
            spent = ["" if row.seconds is None else seconds_text(row.seconds)] * timed
            cells.append([saved, kind, nbytes, share, row.origin, *spent, *name, row.source, *module, row.needed_by])
        return cells


@with_own_options
def residual_table(f: Callable, *args, device: Device | str | None = None, **kwargs) -> ResidualTable:
    """List the residuals of `f`: the values that its forward pass saves for its backward pass, with their bytes.

    Residuals of identical layers (one operation of one source line) share a row.

    Args:
      f: a function that is differentiable in reverse mode. It is not run.
      *args, **kwargs: its arguments, as for `trace`.
      device: the name of a device such as `"tpu v5e"`, a `Device`, or the result of `calibrate()`. If given, the table
        also shows how long computing each residual took; see `estimate_time`.

    Returns:
      A table that displays itself in a notebook or a terminal; `rows` is its data, with sizes in bytes.

    Raises:
      TraceError: as `trace` does.
      TargetError: if the device is not known.

    Example:
      >>> import jax.numpy as jnp
      >>> from rematscope import residual_table
      >>> table = residual_table(lambda w, x: jnp.sin(w @ x), jnp.ones((5, 4)), jnp.ones(4))
      >>> print(table.total)
      <lambda> saves 116 B: computed 20 B + arguments 96 B
      >>> [(row.origin, row.type, row.nbytes) for row in table.rows]
      [('cos', 'f32[5]', 20), ('argument', 'f32[5,4]', 80), ('argument', 'f32[4]', 16)]
    """
    __tracebackhide__ = True
    rates = None if device is None else device_called(device)
    return ResidualTable(trace(f, *args, **kwargs), rates)


def _rows(passes: Trace, device: Device | None) -> tuple[ResidualRow, ...]:
    spent = {} if device is None else spent_by(passes, device)
    makers = {} if device is None else makers_of(passes.forward)

    def seconds(residual: Residual) -> float:
        maker = origin_of(residual.value, makers)[1]
        return 0.0 if maker is None else spent.get(maker, 0.0)

    total = passes.saved_device_bytes() or 1
    residuals = list({r.array: r for r in passes.residuals}.values())
    alike = _alike(residuals, len(residuals) > _MANY, type_text)
    if len(alike) > _MANY:
        alike = _alike(residuals, True, lambda value: (value.dtype, len(value.shape)))

    rows = []
    for group in alike.values():
        first, here = group[0], sum(r.device_bytes for r in group)
        rows.append(
            ResidualRow(
                values=tuple(r.array.name for r in group),
                type=common_path(type_text(r.array) for r in group),
                nbytes=sum(r.nbytes for r in group),
                device_bytes=here,
                share=here / total if first.memory == "device" else 0.0,
                kind=first.kind,
                primitive=first.primitive,
                name=first.name,
                source=str(first.source or ""),
                module=common_path(r.module for r in group),
                needed_by=code(first.needed_by) if first.needed_by else "nothing",
                is_output=first.is_output,
                memory=first.memory,
                seconds=None if device is None or first.kind != "computed" else sum(map(seconds, group)),
            )
        )
    kinds = ("computed", "constant", "argument")
    return tuple(sorted(rows, key=lambda row: (kinds.index(row.kind), -row.device_bytes)))


def _alike(
    residuals: Sequence[Residual], many: bool, type_of: Callable[[Value], object]
) -> dict[tuple[object, ...], list[Residual]]:
    """Group the residuals that share a row."""
    alike: dict[tuple[object, ...], list[Residual]] = {}
    for residual in residuals:
        # Arguments and constants have individual names. If there are many, those of repeated layers share a row too.
        own: object = residual.array
        if residual.kind == "computed" or (many and residual.kind == "constant"):
            own = residual.kind
        elif many:
            own = numberless(residual.array.name)
        reader = residual.needed_by
        key = (
            own, type_of(residual.array), residual.primitive, residual.name, residual.source,
            numberless(residual.module), residual.is_output, residual.memory,
            reader and (reader.primitive, reader.source),
        )  # fmt: skip
        alike.setdefault(key, []).append(residual)
    return alike
