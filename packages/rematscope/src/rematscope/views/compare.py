"""Several variants of a function in one table: saved bytes, recompute, deferred work and estimated peak."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

from rich.console import Console, ConsoleOptions, RenderResult

from rematscope.errors import TraceError
from rematscope.ir import roles
from rematscope.ir.cost import Cost, program_cost
from rematscope.memory.liveness import live_bytes
from rematscope.memory.timeline import Timeline
from rematscope.render.parts import Records, TextTable
from rematscope.render.units import bytes_text
from rematscope.render.view import View
from rematscope.seconds.devices import Device, device_called
from rematscope.seconds.roofline import TimeEstimate, estimate_time
from rematscope.tracing.arguments import type_description, with_own_options
from rematscope.tracing.trace import Trace, trace
from rematscope.views.program_rows import work_text


@dataclasses.dataclass(frozen=True)
class ComparisonRow:
    """One variant in a `Comparison`. On a mesh, bytes are per device.

    Attributes:
      label: the variant's label.
      trace: the variant's trace.
      device: the device of the time estimates; None if no device was given.
    """

    label: str
    trace: Trace
    device: Device | None = None

    @property
    def saved_bytes(self) -> int:
        """The bytes of the residuals that the forward pass computes and saves on the device, without arguments."""
        return self.trace.device_bytes_by_kind().get("computed", 0)

    @cached_property
    def recompute_cost(self) -> Cost:
        """The cost of recomputed operations; for a training step, the sum over all its backward passes."""
        step = self.trace.step
        return self.trace.recompute_cost if step is None else program_cost(step.program, roles.RECOMPUTED)

    @cached_property
    def deferred_cost(self) -> Cost:
        """The cost of deferred operations: moved from the forward to the backward pass, computed once."""
        step = self.trace.step
        return self.trace.deferred_cost if step is None else program_cost(step.program, roles.DEFERRED)

    @cached_property
    def seconds(self) -> TimeEstimate | None:
        """The estimated time of both passes and of the recompute; None if no device was given."""
        return None if self.device is None else estimate_time(self.trace, self.device)

    @cached_property
    def timeline(self) -> Timeline:
        """The live bytes after each equation."""
        return live_bytes(self.trace, self.device)

    @property
    def peak_bytes(self) -> int:
        """The peak of the live bytes, without fusion, as `liveness` counts them."""
        return self.timeline.peak_bytes


_PEAK = "Peak (estimated, no fusion)"

# Titles of the columns that are aligned to the right.
_NUMERIC = ("Saved", "Recompute time", "Share of time", _PEAK)


class Comparison(View):
    """A table of variants of a function. Displays itself.

    Attributes:
      rows: the variants, in the given order.
    """

    def __init__(self, rows: Iterable[ComparisonRow]):
        self.rows = tuple(rows)

    def __getitem__(self, label: str) -> ComparisonRow:
        """Return the row with this label. Raises KeyError if there is none."""
        return {row.label: row for row in self.rows}[label]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = self._table()
        yield table if table.fits(options.max_width) else Records(table.rows, table.footer)

    def html(self) -> str:
        return self._table().html()

    def _table(self) -> TextTable:
        peaks = [row.peak_bytes for row in self.rows]
        bars = {_PEAK: [peak / (max(peaks) or 1) for peak in peaks]}
        return TextTable(self.cells(), self._footer(), _NUMERIC, bars)

    def cells(self) -> list[list[str]]:
        """Return the header, and a list of texts per row."""
        timed = ["Recompute time", "Share of time"] if self.rows[0].device else []
        cells = [["", "Saved", "Recomputed", *timed, "Deferred", _PEAK]]
        saved = [bytes_text(row.saved_bytes) for row in self.rows]
        peaks = [bytes_text(row.peak_bytes) for row in self.rows]
        for row, kept, peak in zip(self.rows, saved, peaks, strict=True):
            again, late = (work_text(cost) or "0" for cost in (row.recompute_cost, row.deferred_cost))
            if row.seconds:
                timed = row.seconds.recompute_texts
            moved = row.trace.host_bytes()
            kept += f" + {bytes_text(moved)} in host memory" if moved else ""
            cells.append([row.label, kept, again, *timed, late, peak])
        return cells

    def _footer(self) -> str:
        where = self.rows[0].trace.per_device_text
        text = f"Saved: computed residuals{where}, without arguments. Peak: live bytes{where} if nothing is fused."
        text += " Traced with jax_remat3." if any(row.trace.remat3 for row in self.rows) else ""
        device = self.rows[0].device
        return f"{text} Times: estimated by a roofline of {device.name}, both passes." if device else text


@with_own_options
def compare(variants: Mapping[str, Callable], *args, device: Device | str | None = None, **kwargs) -> Comparison:
    """Compare variants of a function in one table: policies, or a layer with and without a checkpoint.

    Args:
      variants: functions that are differentiable in reverse mode, by label. They are not run.
      *args, **kwargs: the arguments of each, as for `trace`.
      device: adds the recompute's time, and its share of the time of both passes or of the step: the name of a device
        such as `"tpu v5e"`, a `Device`, or `calibrate()`; see `estimate_time`.

    Returns:
      A table that displays itself in a notebook or a terminal; `rows` is its data.

    Raises:
      TraceError: as for `trace`, for the first function that cannot be traced; or if `variants` is empty or is not a
        mapping from labels to functions.
      TargetError: if the device is not known.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from rematscope import compare
      >>> def f(w, x):
      ...     return jnp.sin(jnp.sin(w @ x))
      >>> found = compare({"plain": f, "checkpoint": jax.checkpoint(f)}, jnp.ones((5, 4)), jnp.ones(4))
      >>> print(found)
                  Saved  Recomputed                   Deferred            Peak (estimated, no fusion)
      ───────────────────────────────────────────────────────────────────────────────────────────────
      plain        40 B  0                            0                                  ██████ 192 B
      checkpoint    0 B  40 FLOPs, 5 transcendentals  10 transcendentals                 ██████ 192 B
      Saved: computed residuals, without arguments. Peak: live bytes if nothing is fused.
    """
    __tracebackhide__ = True
    if not isinstance(variants, Mapping):
        raise TraceError(
            f"compare needs a mapping from labels to functions, {{'plain': f, …}}, but got "
            f"{type_description(variants)}."
        )
    if not variants:
        raise TraceError("compare got an empty mapping. Give functions by label, {'plain': f, …}.")
    for label, f in variants.items():
        if not isinstance(label, str):
            raise TraceError(
                f"the label {label!r} is {type_description(label)}. Use strings as labels, {{'plain': f, …}}."
            )
        if not callable(f):
            raise TraceError(f"{label!r} is {type_description(f)}, not a function. Give a function to compare.")
    rates = None if device is None else device_called(device)
    return Comparison([ComparisonRow(label, trace(f, *args, **kwargs), rates) for label, f in variants.items()])
