"""Variants of a function in one table: saved bytes, recompute cost, deferred cost and estimated peak."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

from rematscope.errors import TraceError
from rematscope.ir import roles
from rematscope.ir.cost import Cost
from rematscope.memory.liveness import live_bytes
from rematscope.memory.timeline import MemorySample, Timeline
from rematscope.render.parts import TextTable
from rematscope.render.units import amount_texts, bytes_text
from rematscope.render.view import View
from rematscope.seconds.devices import Device, device_called
from rematscope.seconds.roofline import TimeEstimate, estimate_time
from rematscope.tracing.arguments import type_description
from rematscope.tracing.entry_points import with_own_options
from rematscope.tracing.trace import Trace, trace, whole_cost


@dataclasses.dataclass(frozen=True)
class ComparisonRow:
    """One variant in a `Comparison`. On a mesh, bytes and costs are per device.

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
        """The bytes of the computed residuals on the device, without arguments and constants."""
        return self.trace.device_bytes_by_kind().get("computed", 0)

    @cached_property
    def recompute_cost(self) -> Cost:
        """The cost of all recomputed operations; for a training step, the sum over all its backward passes."""
        return whole_cost(self.trace, roles.RECOMPUTED)

    @cached_property
    def deferred_cost(self) -> Cost:
        """The cost of all deferred operations, which moved from the forward to the backward pass and run once."""
        return whole_cost(self.trace, roles.DEFERRED)

    @cached_property
    def seconds(self) -> TimeEstimate | None:
        """The estimated time of both passes, of which the recompute is a part; None if no device was given."""
        return None if self.device is None else estimate_time(self.trace, self.device)

    @cached_property
    def timeline(self) -> Timeline:
        """The live bytes after each equation, as `liveness` counts them."""
        return live_bytes(self.trace, self.device)

    @property
    def peak_bytes(self) -> int:
        """The peak of `timeline` in bytes: an estimate of the peak memory without fusion."""
        return self.timeline.peak_bytes

    @property
    def _last_peak(self) -> MemorySample:
        """The last sample with the most live bytes."""
        return max(reversed(self.timeline.samples), key=lambda sample: sample.nbytes)


_SAVED = "Saved"
_PEAK = "Peak (est.)"
_TIMES = ("Recompute\ntime", "Share of\ntime")

# The columns of a cost: what it counts, by the attribute of `Cost`.
_COUNTS = {"flops": "FLOPs", "transcendentals": "transc.", "link_bytes": "links"}


class Comparison(View):
    """A table of variants of a function.

    It is displayed as text in a terminal and as HTML in a notebook. If all rows have the same text in a column other
    than the saved bytes, the line below the table states this text, and the table does not have this column.

    Attributes:
      rows: the variants, in the given order.
    """

    def __init__(self, rows: Iterable[ComparisonRow]):
        self.rows = tuple(rows)

    def __getitem__(self, label: str) -> ComparisonRow:
        """Return the row of the variant `label`, or raise KeyError."""
        return {row.label: row for row in self.rows}[label]

    def parts(self) -> Iterable[View]:
        peaks = [row.peak_bytes for row in self.rows]
        bars = {_PEAK: [peak / (max(peaks) or 1) for peak in peaks]}
        header, *_ = cells = self.cells()
        deferred = [title for title in header if title.startswith("Deferred")]
        return [TextTable(cells, self._footer_text(), header[1:], bars, optional=[*deferred[::-1], _TIMES[1]])]

    def cells(self) -> list[list[str]]:
        """Return the table as lists of strings: the header, then one list per row."""
        equal = self._equal_columns()
        columns = {title: texts for title, texts in self._columns_of_rows.items() if title not in equal}
        return [[*columns], *map(list, zip(*columns.values(), strict=True))]

    @cached_property
    def _columns_of_rows(self) -> dict[str, list[str]]:
        """Return the texts of all columns by title."""
        columns: dict[str, list[str]] = {"": [row.label for row in self.rows]}
        columns[_SAVED] = [bytes_text(row.saved_bytes) for row in self.rows]
        if any(row.trace.host_bytes() for row in self.rows):
            columns["In host\nmemory"] = [bytes_text(row.trace.host_bytes()) for row in self.rows]
        columns |= _cost_columns("Recomputed", [row.recompute_cost for row in self.rows])
        if self.rows[0].device:
            spent = [row.seconds.recompute_texts for row in self.rows if row.seconds]
            columns |= dict(zip(_TIMES, map(list, zip(*spent, strict=True)), strict=True))
        columns |= _cost_columns("Deferred", [row.deferred_cost for row in self.rows])
        columns[_PEAK] = [bytes_text(row.peak_bytes) for row in self.rows]
        return columns

    def _equal_columns(self) -> dict[str, str]:
        """Return the text of each column that all rows have in common, if there is more than one row."""
        found = {title: {*texts} for title, texts in self._columns_of_rows.items() if title not in ("", _SAVED)}
        return {title: texts.pop() for title, texts in found.items() if len(texts) == 1 < len(self.rows)}

    def _footer_text(self) -> str:
        where = self.rows[0].trace.per_device_text
        text = f"Saved: computed residuals{where}, without arguments. {_PEAK}: live bytes{where} if nothing is fused."
        if equal := self._equal_columns():
            pairs = [f"{' '.join(title.split())} = {value}" for title, value in equal.items()]
            text = f"Equal in every row: {', '.join(pairs)}. {text}"
        if _PEAK in equal and self._recompute_fills_peak():
            text += " At the peak, recomputed and deferred values take the place of unsaved residuals."
        if any(title.endswith(_COUNTS["transcendentals"]) for title in self._columns_of_rows):
            text += " transc.: transcendental evaluations, one per element."
        if any(row.trace.unresolved_shardings for row in self.rows):
            text += " The sharding of some residuals is an estimate, the compiler decides."
        text += " Traced with jax_remat3." if any(row.trace.remat3 for row in self.rows) else ""
        device = self.rows[0].device
        return f"{text} Times: roofline estimates of both passes for {device.name}." if device else text

    def _recompute_fills_peak(self) -> bool:
        """Return whether residuals and recomputed values together take the same bytes at the peaks of all rows."""
        peaks = [row._last_peak for row in self.rows]
        together = {peak.residuals + peak.recomputed for peak in peaks}
        return len(together) == 1 and len({peak.recomputed for peak in peaks}) > 1


def _cost_columns(title: str, costs: list[Cost]) -> dict[str, list[str]]:
    """Return the columns of costs: FLOPs, and each other figure that is not 0 for all costs."""
    columns = {}
    for count, unit in _COUNTS.items():
        amounts = [getattr(cost, count) for cost in costs]
        if count == "flops" or any(amounts):
            texts = [*map(bytes_text, amounts)] if count == "link_bytes" else amount_texts(amounts)
            columns[f"{title}\n{unit}"] = texts
    if any(cost.uncounted for cost in costs):
        columns[f"{title},\nnot counted"] = [", ".join(sorted(cost.uncounted)) for cost in costs]
    return columns


@with_own_options
def compare(variants: Mapping[str, Callable], *args, device: Device | str | None = None, **kwargs) -> Comparison:
    """Compare variants of a function, such as checkpoint policies, in one table.

    Args:
      variants: maps labels to functions that are differentiable in reverse mode, or to training steps. They are traced,
        not run.
      *args, **kwargs: the arguments of every variant, as for `trace`.
      device: the name of a device such as `"tpu v5e"`, a `Device`, or the result of `calibrate()`. If given, the table
        also shows the time of the recompute and its share of the time of both passes, or of a training step; see
        `estimate_time`.

    Returns:
      The table, which terminals and notebooks display. Its data is in `.rows`.

    Raises:
      TraceError: as for `trace`; or if `variants` is empty or is not a mapping from strings to functions.
      TargetError: if `device` is not known.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from rematscope import compare
      >>> def model(layer):
      ...     return lambda w, x: layer(w, layer(w, layer(w, x)))
      >>> def layer(w, x):
      ...     return jnp.sin(jnp.sin(x @ w))
      >>> variants = {"no checkpoint": model(layer), "one per layer": model(jax.checkpoint(layer))}
      >>> print(compare(variants, jnp.ones((4, 4)), jnp.ones((64, 4))))
                            Recomputed  Recomputed  Deferred
                     Saved       FLOPs     transc.   transc.      Peak (est.)
      ───────────────────────────────────────────────────────────────────────
      no checkpoint  8 KiB           0           0         0  ██████ 10.1 KiB
      one per layer  2 KiB       6,144         768     1,536  ███▋   6.06 KiB
      Equal in every row: Deferred FLOPs = 0. Saved: computed residuals, without arguments. Peak (est.):
      live bytes if nothing is fused. transc.: transcendental evaluations, one per element.
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
