"""Several ways to compute one thing in one table: what each keeps, computes again, and has live at its peak."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

from rematscope.errors import TraceError
from rematscope.ir import roles
from rematscope.ir.cost import Cost, program_cost
from rematscope.memory.liveness import live_bytes
from rematscope.memory.timeline import Timeline
from rematscope.render.parts import TextTable
from rematscope.render.units import bytes_text
from rematscope.render.view import View
from rematscope.seconds.devices import Device, device_called
from rematscope.seconds.roofline import Seconds, seconds_of
from rematscope.tracing.arguments import described, with_own_options
from rematscope.tracing.trace import Passes, trace
from rematscope.views.program_rows import work_text


@dataclasses.dataclass(frozen=True)
class ComparedWay:
    """One of the ways. On a mesh, bytes are those of each device.

    Attributes:
      label: what it is called.
      passes: its trace.
      device: where seconds are spent; None where none were asked for.
    """

    label: str
    passes: Passes
    device: Device | None = None

    @property
    def kept_bytes(self) -> int:
        """Bytes that the forward pass computes and keeps on the device; those of arguments are there in any case."""
        return self.passes.device_bytes_by_kind().get("computed", 0)

    @cached_property
    def recompute_cost(self) -> Cost:
        """What the backward pass computes again; of a training step all of them, one for each microbatch."""
        step = self.passes.step
        return self.passes.recompute_cost if step is None else program_cost(step.program, roles.RECOMPUTED)

    @cached_property
    def late_cost(self) -> Cost:
        """What these compute of the forward pass that this one never had."""
        step = self.passes.step
        return self.passes.late_cost if step is None else program_cost(step.program, roles.LATE)

    @cached_property
    def seconds(self) -> Seconds | None:
        """How long both passes take, and what of that is computed again; None where no device was given."""
        return None if self.device is None else seconds_of(self.passes, self.device)

    @cached_property
    def timeline(self) -> Timeline:
        """Bytes live after each equation."""
        return live_bytes(self.passes, self.device)

    @property
    def peak_bytes(self) -> int:
        """The most bytes live at once, as `liveness` counts them."""
        return self.timeline.peak_bytes


class Comparison(View):
    """A table of several ways, one below the other: displays itself, and gives its rows as data.

    Attributes:
      rows: the ways, in the order in which they were given.
    """

    def __init__(self, rows: Iterable[ComparedWay]):
        self.rows = tuple(rows)

    def __getitem__(self, label: str) -> ComparedWay:
        """The way that is called so. Raises KeyError if none is."""
        return {row.label: row for row in self.rows}[label]

    def parts(self) -> Iterable[View]:
        cells = self.cells()
        return [TextTable(cells, self._footer(), numeric=("kept", "again for", "of the step", "peak"))]

    def cells(self) -> list[list[str]]:
        """The header, and a list of texts for each of `rows`."""
        timed = ["again for", "of the step"] if self.rows[0].device else []
        cells = [["", "kept", "computed again", *timed, "late", "peak"]]
        for row in self.rows:
            again, late = (work_text(cost) or "nothing" for cost in (row.recompute_cost, row.late_cost))
            if row.seconds:
                timed = row.seconds.again_texts
            kept, moved = bytes_text(row.kept_bytes), row.passes.host_bytes()
            kept += f" + {bytes_text(moved)} on the host" if moved else ""
            cells.append([row.label, kept, again, *timed, late, bytes_text(row.peak_bytes)])
        return cells

    def _footer(self) -> str:
        where = self.rows[0].passes.where
        text = f"bytes{where} that the forward pass computes and keeps, and live at the peak where nothing is fused"
        device = self.rows[0].device
        return f"{text}; seconds are those of a roofline, {device.name}" if device else text


@with_own_options
def compare(ways: Mapping[str, Callable], *args, device: Device | str | None = None, **kwargs) -> Comparison:
    """Lays several ways to compute one thing beside each other: policies, or a layer with and without a checkpoint.

    Args:
      ways: functions that are differentiable in reverse mode, by what to call them. None is run.
      *args, **kwargs: the arguments of each, as for `trace`.
      device: adds how long computing again takes, in seconds and of both passes, or the step: the name of a device such
        as `"tpu v5e"`, a `Device`, or `calibrate()`; see `seconds_of`.

    Returns:
      A table that displays itself in a notebook or a terminal; `rows` holds its data.

    Raises:
      TraceError: as `trace` does, of the first way that cannot be traced; or if there is none, or something else
        than functions by their labels.
      TargetError: if there are no rates for the device.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from rematscope import compare
      >>> def f(w, x):
      ...     return jnp.sin(jnp.sin(w @ x))
      >>> found = compare({"plain": f, "checkpoint": jax.checkpoint(f)}, jnp.ones((5, 4)), jnp.ones(4))
      >>> print(found)
                  kept  computed again               late                 peak
      ────────────────────────────────────────────────────────────────────────
      plain       40 B  nothing                      nothing             192 B
      checkpoint   0 B  40 FLOPs, 5 transcendentals  10 transcendentals  192 B
      bytes that the forward pass computes and keeps, and live at the peak where nothing
      is fused
    """
    __tracebackhide__ = True
    if not isinstance(ways, Mapping):
        raise TraceError(f"compare is given {described(ways)}. Give functions by their labels, {{'plain': f, …}}.")
    if not ways:
        raise TraceError("there is nothing to compare: give functions by their labels, {'plain': f, …}.")
    for label, f in ways.items():
        if not isinstance(label, str):
            raise TraceError(
                f"the label {label!r} is {described(label)}. Give each function a text, {{'plain': f, …}}."
            )
        if not callable(f):
            raise TraceError(f"what is called {label!r} is {described(f)}, and no function. Give one to compare.")
    rates = None if device is None else device_called(device)
    return Comparison([ComparedWay(label, trace(f, *args, **kwargs), rates) for label, f in ways.items()])
