"""`measure(f, *args)`: the compiled program of both passes, compared with the predictions from the trace."""

import dataclasses
import math
import statistics
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from rematscope.ir.collectives import CollectiveStats, collectives_of, tally_by_kind
from rematscope.ir.program import Value
from rematscope.memory.estimate_warning import estimate_warning
from rematscope.memory.liveness import live_bytes
from rematscope.memory.timeline import Timeline
from rematscope.memory.xla_estimate.estimate import estimate_compiled_bytes, target_notes
from rematscope.memory.xla_estimate.loop_invariants import with_moved
from rematscope.render.html import html_table
from rematscope.render.parts import Lines, TextTable
from rematscope.render.progress import progress_message
from rematscope.render.units import bytes_text, count_text, difference_text
from rematscope.render.view import View
from rematscope.seconds.devices import Device, device_called, is_tpu
from rematscope.seconds.roofline import TimeEstimate, estimate_time
from rematscope.tracing.arguments import flattened
from rematscope.tracing.entry_points import with_own_options
from rematscope.tracing.trace import Trace, inputs_of, programs_of, results_of, trace_call, whole_cost
from rematscope.xla.buffers import allocation, given_bytes
from rematscope.xla.collectives import chains_not_counted, collectives_in
from rematscope.xla.compiling import Compiled, check_target, compile_both, out_of_memory_text, usual_spelling
from rematscope.xla.hlo import Module
from rematscope.xla.hlo_cost import cost, uncounted

_MESSAGE = "XLA's message"
_ESTIMATE = "values XLA stores"
_COUNTED = ("equations, with loops", "optimized HLO, with loops")


@dataclasses.dataclass(frozen=True)
class MeasuredRow:
    """One figure, as predicted and as compiled.

    Attributes:
      metric: the name of the figure, such as `"peak"`.
      predicted, compiled: the figure as predicted from the trace and as compiled; None if one is not available.
      unit: `"bytes"`, `"FLOPs"`, `"elements"` or `"runs"`.
      predicted_from, compiled_from: the source of each figure.
    """

    metric: str
    predicted: int | None
    compiled: int | None
    unit: str
    predicted_from: str
    compiled_from: str

    @property
    def error(self) -> float | None:
        """The relative error, (predicted − compiled) / compiled; None if a figure is missing or `compiled` is 0."""
        if self.predicted is None or not self.compiled:
            return None
        return (self.predicted - self.compiled) / self.compiled


@dataclasses.dataclass(frozen=True)
class CollectiveRow:
    """The collectives of one kind: as predicted from the trace, as lowered (before XLA optimizes), and as compiled.

    Attributes:
      kind: XLA's name of the collective, such as `all-gather`.
      predicted: the number of runs and the link bytes from the trace.
      lowered: the same for the program before XLA's optimization.
      compiled: the same for the optimized program.
    """

    kind: str
    predicted: CollectiveStats
    lowered: CollectiveStats
    compiled: CollectiveStats

    @property
    def rows(self) -> tuple[MeasuredRow, MeasuredRow]:
        """The number of runs and the link bytes, as rows of the table."""
        predicted, compiled = self.predicted, self.compiled
        count, size = f"{self.lowered.count:,}", bytes_text(self.lowered.link_bytes)
        runs = predicted.count, compiled.count, "runs", _COUNTED[0], f"optimized; {count} before"
        sent = predicted.link_bytes, compiled.link_bytes, "bytes", "in a ring", f"optimized; {size} before"
        return MeasuredRow(self.kind, *runs), MeasuredRow(f"{self.kind}, sent", *sent)


def _collective_rows(passes: Trace, made: Compiled, module: Module) -> tuple[CollectiveRow, ...]:
    if made.lowered is None:
        return ()
    tallies = passes.collectives(), *(collectives_in(m, passes.devices) for m in (made.lowered, module))
    kinds = sorted(set().union(*tallies))
    return tuple(CollectiveRow(kind, *(tally.get(kind, CollectiveStats()) for tally in tallies)) for kind in kinds)


def _moved_out(passes: Trace, target: str) -> list[str]:
    """Return sentences about collectives that XLA may move out of loops, which the predicted counts leave inside."""
    left = tally_by_kind(found for program in programs_of(passes) for found in collectives_of(with_moved(program)))
    sentences = []
    for kind, tally in passes.collectives().items():
        if (fewer := left[kind].count) < tally.count:
            peak = "has" if target == "cpu" else "does not have"
            sentences.append(
                f"Some {kind}s do not depend on their loop. XLA may run them once before the loop: {fewer:,} "
                f"instead of {tally.count:,} in total. Their results then stay in memory until the loop ends, "
                f"which the predicted peak {peak}."
            )
    return sentences


@dataclasses.dataclass(frozen=True)
class RunTimes:
    """The run times of both passes.

    Attributes:
      runs: the time of each run in seconds, in order, without the warm-up run.
    """

    runs: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median time in seconds."""
        return statistics.median(self.runs)

    def __repr__(self):
        median, fastest, slowest = (f"{1000 * s:.3g}" for s in (self.median, min(self.runs), max(self.runs)))
        return f"{median} ms, the median of {len(self.runs)} runs of {fastest} to {slowest} ms"


@dataclasses.dataclass(frozen=True)
class CompiledMemory:
    """The memory of a compiled program that fits on its device. See `Measurement` for the attributes."""

    argument_bytes: int
    output_bytes: int
    overwritten_bytes: int
    temp_bytes: int
    peak_bytes: int
    host_bytes: int = 0
    xla_peak_bytes: int | None = None

    @classmethod
    def of(cls, made: Compiled, target: str) -> "CompiledMemory":
        analysis = made.memory
        sizes = (analysis[f"{kind}_size_in_bytes"] for kind in ("argument", "output", "alias", "temp"))
        arguments, outputs, overwritten, temporaries = sizes
        given = given_bytes(made.record)
        given = arguments if given is None else given
        peak = given + outputs - overwritten + temporaries
        host = analysis.get("host_temp_size_in_bytes", 0)
        reported = analysis["peak_memory_in_bytes"] if is_tpu(target) else None
        return cls(arguments, outputs, overwritten, temporaries, peak, host, reported)


class Measurement(View):
    """Both passes of a function, compiled as one program. It is displayed as a table.

    Attributes:
      function: the name of the function.
      target: the device that the program was compiled for.
      trace: the trace that the predictions come from.
      predicted: the live bytes after each equation of the trace, without fusion; see `liveness`.
      predicted_peak_bytes: the estimate of `peak_bytes` from the trace, which models XLA's fusion and buffers.
      compiled: the live bytes over XLA's schedule, from its buffer assignment; None if XLA returns no buffer
        assignment, as for TPUs.
      argument_bytes: the bytes of the inputs, which are the arguments and the cotangents.
      output_bytes: the bytes of the outputs and gradients.
      overwritten_bytes: the bytes of donated arguments whose buffers XLA reuses for results.
      temp_bytes: the bytes of XLA's temporary buffers; for a TPU, those in HBM.
      host_bytes: the bytes that XLA allocates in host memory for offloaded values.
      peak_bytes: the memory that the program needs in bytes: the sum of arguments, constants, outputs and temporaries,
        less overwritten arguments. XLA allocates all of it, including the gradients, before the program runs;
        `predicted` counts a gradient only after the equation that computes it. For a TPU, this sum is an upper bound:
        XLA may write a result where temporaries were.
      xla_peak_bytes: the peak that XLA reports for a TPU; None for other targets. If the program uses no host memory,
        XLA refuses to compile it if this figure and the program's code, a few MiB, exceed the memory of the device. The
        figure includes the VMEM of the cores, where a small program has its temporaries, and host memory, of arguments
        too. So with offloading, it can exceed the memory of a device on which the program fits.
      cost: the FLOPs and transcendentals of the optimized program, with loops multiplied by their trip counts.
      collectives: on a mesh, the collectives, one row per kind. All other figures are then per device.
      memory: XLA's memory figures in bytes if the program fits on the device; else None.
      out_of_memory: XLA's message and its figures if the program does not fit in the target's memory; else None. If it
        does not fit, `peak_bytes` are the bytes that XLA reports as needed, and the other compiled figures are None, 0
        or empty.
      made: the compiled program.
      roofline: the time of both passes, estimated by `estimate_time`; None if no device was given.
      warnings: sentences about what the figures do not include, and about the limits of the predictions.
    """

    def __init__(self, passes: Trace, target: str, made: Compiled, roofline: TimeEstimate | None = None):
        self.function = passes.function
        self.target = target
        self.trace = passes
        self.out_of_memory = made.full
        self.roofline = roofline
        self.made = made
        self.memory = None if made.full is not None else CompiledMemory.of(made, target)
        memory, needed = self.memory, made.full.needed_bytes if made.full is not None else None
        self.argument_bytes = memory.argument_bytes if memory else None
        self.output_bytes = memory.output_bytes if memory else None
        self.overwritten_bytes = memory.overwritten_bytes if memory else None
        self.host_bytes = memory.host_bytes if memory else 0
        self.temp_bytes = memory.temp_bytes if memory else None
        self.peak_bytes = memory.peak_bytes if memory else needed
        self.xla_peak_bytes = memory.xla_peak_bytes if memory else None

    @property
    def peak_or_infinity(self) -> float:
        """The value of `peak_bytes` if the program fits on the device; else infinity."""
        return math.inf if self.memory is None else self.memory.peak_bytes

    # These take a while for a long program, so they are computed only when they are read.

    @cached_property
    def predicted(self) -> Timeline:
        return live_bytes(self.trace)

    @cached_property
    def predicted_peak_bytes(self) -> int:
        return estimate_compiled_bytes(self.trace, self.target)

    @cached_property
    def compiled(self) -> Timeline | None:
        if self.out_of_memory is not None:
            return None
        title = f"{self.function}: bytes live, compiled for {self.target}"
        return allocation(self.made.module, self.made.record, title)

    @cached_property
    def cost(self) -> Any:
        return None if self.out_of_memory is not None else cost(self.made.module)

    @cached_property
    def collectives(self) -> tuple[CollectiveRow, ...]:
        return () if self.out_of_memory is not None else _collective_rows(self.trace, self.made, self.made.module)

    @cached_property
    def warnings(self) -> list[str]:
        passes, target, full = self.trace, self.target, self.out_of_memory
        notes = [] if self.roofline is None else [str(self.roofline)]
        if full is None:
            notes += uncounted(self.made.module)
            notes += chains_not_counted(self.made.module)
        else:
            notes.append(out_of_memory_text("It", target, full))
        if uncounted_text := whole_cost(passes).uncounted_text:
            notes.append(f"Some predicted operations are {uncounted_text}.")
        notes += [doubt] if (doubt := estimate_warning(passes, self.predicted_peak_bytes)) else []
        notes += target_notes(passes, target)
        notes += _moved_out(passes, target)
        if self.xla_peak_bytes is not None:
            uses_host = any(size for kind, size in self.made.memory.items() if kind.startswith("host_"))
            notes.append(
                "XLA's own peak for a TPU includes the program's host memory, so it may exceed the device's memory."
                if uses_host
                else "XLA's own peak for a TPU decides whether XLA compiles the program. It includes the cores' VMEM, "
                "and results that overwrite temporaries count once."
            )
        if passes.host_bytes() and not self.host_bytes and full is None:
            moved = bytes_text(passes.host_bytes())
            ignored = f"Offloading is ignored for {usual_spelling(target)}"
            notes.append(f"{ignored}: {moved} that the trace offloads to host memory stay on the device.")
        if passes.has_auto_sharded_work:
            notes.append(
                "Over automatic axes, the compiler chooses the shardings and the collectives. The prediction "
                "shards each result as its operands, gathers an operand where a matmul cannot use its shards, "
                "and counts only the collectives that sharding constraints ask for."
            )
        return notes

    def time(self, runs: int = 10) -> RunTimes:
        """Run both passes on the target, once to warm up and then `runs` times, and return the times.

        `jax.ShapeDtypeStruct` arguments are replaced by random normal values if they are floating-point, and by zeros
        otherwise.

        Raises:
          TargetError: if the target is not on this machine.
        """
        self.made.run()
        return RunTimes(tuple(self.made.run() for _ in range(runs)))

    @property
    def rows(self) -> tuple[MeasuredRow, ...]:
        """The rows of the table."""
        passes, step = self.trace, self.trace.step
        given, returned = inputs_of(passes), results_of(passes)
        what = ("with cotangents", "with gradients") if step is None else ("the whole step", "the whole step")
        kept = self.compiled.samples[self.compiled.boundary].residuals if self.compiled else None
        host = self.host_bytes if self.host_bytes or passes.host_bytes() else None
        saved, cost = passes.device_bytes_by_kind()["computed"], whole_cost(passes)
        fits = self.out_of_memory is None
        note = "all allocations" if fits else _MESSAGE
        available = None if self.out_of_memory is None else self.out_of_memory.available_bytes
        made = self.cost or types.SimpleNamespace(flops=None, transcendentals=None)
        rows = [
            MeasuredRow("arguments", _device_bytes(given), self.argument_bytes, "bytes", what[0], "memory_analysis"),
            MeasuredRow("outputs", _device_bytes(returned), self.output_bytes, "bytes", what[1], "memory_analysis"),
            MeasuredRow("overwritten", *self._overwritten_bytes, "bytes", "donated and used", "memory_analysis"),
            MeasuredRow("saved", saved, kept, "bytes", "computed residuals", "live at the boundary"),
            MeasuredRow("temporaries", None, self.temp_bytes, "bytes", "", "memory_analysis"),
            MeasuredRow("available", None, available, "bytes", "", _MESSAGE),
            MeasuredRow("host memory", passes.host_bytes(), host, "bytes", "offloaded residuals", "memory_analysis"),
            MeasuredRow("peak", self.predicted_peak_bytes, self.peak_bytes, "bytes", _ESTIMATE, note),
            MeasuredRow("XLA's own peak", None, self.xla_peak_bytes, "bytes", "", "memory_analysis"),
            MeasuredRow("FLOPs", cost.flops, made.flops, "FLOPs", *_COUNTED),
            MeasuredRow("transcendentals", cost.transcendentals, made.transcendentals, "elements", *_COUNTED),
            *(row for exchange in self.collectives for row in exchange.rows),
        ]
        return tuple(row for row in rows if row.compiled is not None)

    @property
    def _overwritten_bytes(self) -> tuple[int, int | None]:
        """The bytes of overwritten arguments, predicted and compiled; the second is None if no argument is donated."""
        step = self.trace.step
        if step is None or not (step.donated or self.overwritten_bytes):
            return 0, None
        return _device_bytes(step.aliased.values()), self.overwritten_bytes

    def parts(self) -> Iterable[View]:
        cells = self._table_cells()
        return [Lines([self._title_text]), TextTable(cells, numeric=cells[0][1:4]), Lines(self.warnings)]

    def html(self) -> str:
        cells = self._table_cells()
        return html_table(cells, "; ".join([self._title_text, *self.warnings]), numeric=cells[0][1:4])

    @property
    def _title_text(self) -> str:
        what = "both passes" if self.trace.step is None else "a training step as written"
        where = f"{self.target}{self.trace.per_device_text}"
        return f"{self.function}{self.trace.mode_text}: {what}, traced and compiled for {where}"

    def _table_cells(self) -> list[list[str]]:
        cells = [["", "predicted", "compiled", "error", "predicted from", "compiled from"]]
        for row in self.rows:
            text = bytes_text if row.unit == "bytes" else count_text
            figures = ["–" if n is None else text(n) for n in (row.predicted, row.compiled)]
            error = "" if row.error is None else difference_text(row.error)
            cells.append([row.metric, *figures, error, row.predicted_from, row.compiled_from])
        return cells


def _device_bytes(values: Iterable[Value]) -> int:
    return sum(v.device_bytes for v in values if v.memory == "device")


@with_own_options
def measure(
    f: Callable,
    *args,
    target: str = "cpu",
    differentiate: bool | None = None,
    device: Device | str | None = None,
    **kwargs,
) -> Measurement:
    """Compile both passes of `f`, and compare the memory and FLOPs of the result with the predictions from the trace.

    The forward and the backward pass are compiled as one program that returns the outputs of `f` and all gradients. A
    training step, which takes its own gradient, is compiled as written, including its donated arguments. The program
    does not run, and no array is allocated, until you call `.time()`.

    Args:
      f: a function that is differentiable in reverse mode, or a training step.
      *args, differentiate, **kwargs: the arguments of `f` and the option `differentiate`, as for `trace`.
      target: `"cpu"`, `"gpu"` or `"tpu"` for a device of this machine. `"tpu v5e"`, `"tpu v6e"`, … compile ahead of
        time without a TPU, with libtpu in a separate process; `"tpu v5e:2x4"` also sets the topology. A function on a
        mesh is compiled for as many devices as the mesh has. If JAX has fewer CPU devices, a separate process with
        virtual CPU devices compiles the function.
      device: the name of a device such as `"tpu v5e"`, a `Device`, or the result of `calibrate()`. If given, the view
        also shows the estimated time of both passes and of the recompute; see `estimate_time`.

    Returns:
      The memory, the FLOPs and the live bytes over time of the compiled program, as a table and as data.

    Raises:
      TraceError: as for `trace`.
      TargetError: if `target` is not known or not on this machine, if libtpu is missing, or if `device` is not known.

    Example:
      >>> import jax.numpy as jnp
      >>> from rematscope import measure
      >>> measured = measure(lambda x: jnp.sin(x), jnp.ones(1024), target="cpu")
      >>> measured.argument_bytes, measured.rows[0].metric, measured.rows[0].predicted
      (8192, 'arguments', 8192)
      >>> measured.time(runs=3).runs  # doctest: +SKIP
      (8.2e-06, 7.9e-06, 8e-06)
    """
    __tracebackhide__ = True
    check_target(target)
    rates = None if device is None else device_called(device)
    return measure_call(f, args, kwargs, target, None, differentiate, rates)


def measure_call(
    f: Callable,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    target: str,
    grad_mask: Sequence[bool] | None,
    differentiate: bool | None = None,
    rates: Device | None = None,
) -> Measurement:
    """Measure a call like `measure`, without restrictions on the names of the keyword arguments of `f`."""
    __tracebackhide__ = True
    with progress_message(f"compiling for {target}"):
        passes = trace_call(f, args, kwargs, differentiate, grad_mask)
        roofline = None if rates is None else estimate_time(passes, rates)
        return Measurement(passes, target, compile_both(passes, *flattened(f, args, kwargs), target), roofline)
