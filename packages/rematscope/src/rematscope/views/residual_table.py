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
from rematscope.tracing.entry_points import with_own_options
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
    """One residual, or the corresponding residuals of repeated layers.

    Attributes:
      values: the names of the residuals in the two programs.
      type: the dtype and shape of each residual, such as `f32[5,4]`; `f32[5,4…64]` if the layers have different widths.
      nbytes: the total bytes of the residuals.
      device_bytes: the total bytes of each device's shards. On a mesh, the table shows these.
      share: the fraction of all bytes saved on a device, from 0 to 1.
      kind: `"argument"`, `"constant"` or `"computed"`.
      primitive: the primitive that computed the residuals; None for arguments and constants.
      name: the `checkpoint_name` of the residuals, or None.
      source: the user's source line that computed the residuals, followed by the line of a library if it did; else "".
      module: the module that computed the residuals, such as `layers_0…63/attention` for repeated layers; else "".
      needed_by: the first equation of the backward program that reads the first of the residuals, or `"nothing"`.
      is_output: whether the function also returns the residuals.
      memory: the memory that holds the residuals, `"device"` or `"host"`.
      seconds: the total time in seconds of the operations that computed the residuals, estimated by a roofline. To
        recompute the residuals, other operations may have to run first. None for arguments and constants, or if no
        device was given.
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
        """The operation or kind, with notes, such as `sin, also returned`."""
        notes = ["also returned"] * self.is_output + ["offloaded to the host"] * (self.memory == "host")
        return ", ".join([self.primitive or self.kind, *notes])


class ResidualTable(View):
    """A table of the residuals of a function.

    It is displayed as text in a terminal and as HTML in a notebook.

    Attributes:
      trace: the trace that the residuals come from.
      device: the device of the time estimates; None if no device was given.
      rows: the rows: first computed values, then constants, then arguments, each by decreasing size. Empty arrays have
        no row.
      nbytes: the total bytes of the residuals on the device.
    """

    def __init__(self, passes: Trace, device: Device | None = None):
        self.trace = passes
        self.device = device
        self.nbytes = passes.saved_bytes()
        self.rows = _list_rows(passes, device)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        cells = self._largest_cells(self.cells()) if len(self.rows) > _SHOWN else self.cells()
        if not self._make_table(cells).fits(options.max_width):
            line = cells[0].index("Line")
            for row in cells:  # the source line identifies the operation without the function's name
                row[line] = re.sub(r" \([^ ]+\)$", "", row[line])
        yield self._make_table(cells)

    def _largest_cells(self, cells: list[list[str]]) -> list[list[str]]:
        """Return the header, the largest rows, and one row for all others."""
        header, *texts = cells
        order = sorted(range(len(self.rows)), key=lambda i: -self.rows[i].device_bytes)
        rest = [self.rows[i] for i in order[_SHOWN:]]
        there = [row for row in rest if row.memory == "device"]
        merged = {
            "Residual": f"⋮ {counted(len(rest), 'smaller row')}",
            header[2]: bytes_text(sum(row.device_bytes for row in rest)),
            "Share": f"{100 * sum(row.share for row in there):.1f} %",
            "Line": "in .rows",
        }
        return [header, *(texts[i] for i in sorted(order[:_SHOWN])), [merged.get(title, "") for title in header]]

    def _make_table(self, cells: list[list[str]]) -> TextTable:
        shares = [row.share if row.memory == "device" else 0.0 for row in self.rows]
        bars = {"Share": shares} if len(cells) == len(shares) + 1 else {}
        return TextTable(cells, self._footer_text, NUMERIC, bars, ("Used by", "Module"), ("Share", _TIME, "Op"))

    def html(self) -> str:
        return self._make_table(self.cells()).html()

    def page(self) -> str:
        cells = self.cells()
        return html_table(cells, self._footer_text, NUMERIC, makes=[row.values for row in self.rows])

    @property
    def _footer_text(self) -> str:
        return self.total if self.device is None else f"{self.total}. {estimate_time(self.trace, self.device)}"

    @property
    def total(self) -> str:
        """The total as text, such as `f saves 456 B: computed 72 B + arguments 384 B`."""
        return f"{self.trace.function}{self.trace.mode_text} saves {saved_text(self.trace)}"

    def cells(self) -> list[list[str]]:
        """Return the table as lists of strings: the header, then one list per row."""
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

    Corresponding residuals of repeated layers share a row.

    Args:
      f: a function that is differentiable in reverse mode, or a training step. It is traced, not run.
      *args, **kwargs: the arguments of `f`, as for `trace`.
      device: the name of a device such as `"tpu v5e"`, a `Device`, or the result of `calibrate()`. If given, the table
        also shows the estimated time of computing each residual; see `estimate_time`.

    Returns:
      The table, which terminals and notebooks display. Its data is in `.rows`, with sizes in bytes.

    Raises:
      TraceError: as for `trace`.
      TargetError: if `device` is not known.

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


def _list_rows(passes: Trace, device: Device | None) -> tuple[ResidualRow, ...]:
    spent = {} if device is None else spent_by(passes, device)
    makers = {} if device is None else makers_of(passes.forward)

    def seconds(residual: Residual) -> float:
        maker = origin_of(residual.value, makers)[1]
        return 0.0 if maker is None else spent.get(maker, 0.0)

    total = passes.saved_device_bytes() or 1
    residuals = list({r.array: r for r in passes.residuals if r.nbytes}.values())  # cuDNN's rule saves empty arrays
    alike = _group_residuals(residuals, len(residuals) > _MANY, type_text)
    if len(alike) > _MANY:
        alike = _group_residuals(residuals, True, lambda value: (value.dtype, len(value.shape)))

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


def _group_residuals(
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
