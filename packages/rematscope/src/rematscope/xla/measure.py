"""`measure(f, *args)`: what XLA makes of both passes, beside what the trace predicts."""

import dataclasses
import functools
import importlib.util
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from rematscope.errors import TargetError
from rematscope.memory.liveness import live_bytes
from rematscope.render.html import html_table
from rematscope.render.parts import Lines, TextTable
from rematscope.render.units import bytes_text, count_text
from rematscope.render.view import View
from rematscope.tracing.arguments import flattened
from rematscope.tracing.trace import Passes, trace
from rematscope.xla.buffers import allocation
from rematscope.xla.hlo import Module, read
from rematscope.xla.hlo_cost import cost, uncounted
from rematscope.xla.tpu_process import ABSENT, environment

PRESENT = ("cpu", "gpu", "tpu")


@dataclasses.dataclass(frozen=True)
class MeasuredRow:
    """One figure, predicted and compiled.

    Attributes:
      what: what is counted.
      predicted, compiled: bytes, FLOPs or elements; None where there is no such figure.
      unit: `"bytes"`, `"FLOPs"` or `"elements"`.
      predicted_from, compiled_from: what was counted for each.
    """

    what: str
    predicted: int | None
    compiled: int | None
    unit: str
    predicted_from: str
    compiled_from: str

    @property
    def error(self) -> float | None:
        """How far the prediction is off, as a part of what was compiled; None where there is nothing to compare."""
        if self.predicted is None or not self.compiled:
            return None
        return (self.predicted - self.compiled) / self.compiled


@dataclasses.dataclass(frozen=True)
class Seconds:
    """How long both passes took, run after run.

    Attributes:
      runs: seconds of each run, in order, without a first one to warm up.
    """

    runs: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.runs)

    def __repr__(self):
        median, fastest, slowest = (f"{1000 * s:.3g}" for s in (self.median, min(self.runs), max(self.runs)))
        return f"{median} ms, the median of {len(self.runs)} runs of {fastest} to {slowest} ms"


class Measurement(View):
    """Both passes of a function, compiled as one program. Displays itself as a table.

    Attributes:
      function: the name of the function.
      target: what it was compiled for.
      passes: the trace that the predictions come from.
      predicted: bytes live after each equation of the trace; see `rematscope.liveness`.
      compiled: bytes live over XLA's schedule, from its allocation record; None where XLA gives none (for a TPU).
      argument_bytes, output_bytes: what goes in (arguments, cotangents) and comes out (outputs, gradients).
      temp_bytes: what XLA sets aside for everything between; for a TPU in its main memory, HBM.
      host_bytes: what XLA sets aside in the host's memory, for what is offloaded.
      peak_bytes: what the program takes while it runs, arguments, constants and outputs included: the sum, since all
        is set aside before it runs, gradients too, which the prediction counts only from where they are made.
      peak_with_vmem_bytes: XLA's own peak for a TPU, which adds the memory of the cores, VMEM, to HBM; None elsewhere.
      cost: FLOPs and transcendentals of the optimised program, its loops multiplied out; see `rematscope.xla.hlo_cost`.
      notes: what the figures leave out, in sentences.
    """

    def __init__(
        self, passes: Passes, target: str, memory: dict[str, int], module: Module, record: bytes, run: Callable
    ):
        self.function = passes.function
        self.target = target
        self.passes = passes
        self.predicted = live_bytes(passes)
        self.compiled = allocation(module, record, f"{passes.function}: bytes live, compiled for {target}")
        self.argument_bytes = memory["argument_size_in_bytes"]
        self.output_bytes = memory["output_size_in_bytes"]
        self.temp_bytes = memory["temp_size_in_bytes"]
        self.host_bytes = memory.get("host_temp_size_in_bytes", 0)
        given = self.compiled.moments[0].arguments if self.compiled else self.argument_bytes  # constants too
        self.peak_bytes = given + self.output_bytes - memory["alias_size_in_bytes"] + self.temp_bytes
        self.peak_with_vmem_bytes = memory["peak_memory_in_bytes"] if target.startswith("tpu") else None
        self.cost = cost(module)
        self.notes = uncounted(module)
        if passes.cost.uncounted:
            self.notes.append(f"Of the operations predicted, some are {passes.cost.uncounted_text}.")
        if self.peak_with_vmem_bytes is not None:
            self.notes.append("XLA's own peak of a TPU has the memory of the cores, VMEM, in it: temporaries that fit.")
        if passes.host_bytes() and not self.host_bytes:
            moved = bytes_text(passes.host_bytes())
            ignored = f"Offloading is ignored for {_spelled(target)}"
            self.notes.append(f"{ignored}: {moved} that the trace moves to the host stay on the device.")
        self._run = run

    def time(self, runs: int = 10) -> Seconds:
        """Runs both passes on the target, once to warm up and then `runs` times.

        Arguments that were given as shapes are drawn: normal numbers for floats, zeros for all else.

        Raises:
          TargetError: if the target is not here.
        """
        self._run()
        return Seconds(tuple(self._run() for _ in range(runs)))

    @property
    def rows(self) -> tuple[MeasuredRow, ...]:
        """The figures of the table."""
        passes, program = self.passes, self.passes.forward
        given = sum(v.nbytes for v in (*program.inputs, *passes.cotangents))
        returned = sum(v.nbytes for v in (*program.outputs[: len(passes.cotangents)], *passes.backward.outputs))
        kept = self.compiled.moments[self.compiled.turn].residuals if self.compiled else None
        host = self.host_bytes if self.host_bytes or passes.host_bytes() else None
        saved, cost = passes.bytes_by_kind()["computed"], passes.cost
        rows = [
            MeasuredRow("arguments", given, self.argument_bytes, "bytes", "with cotangents", "memory_analysis"),
            MeasuredRow("outputs", returned, self.output_bytes, "bytes", "with gradients", "memory_analysis"),
            MeasuredRow("saved", saved, kept, "bytes", "computed residuals", "buffers between the passes"),
            MeasuredRow("temporaries", None, self.temp_bytes, "bytes", "", "memory_analysis"),
            MeasuredRow("on the host", passes.host_bytes(), host, "bytes", "offloaded residuals", "memory_analysis"),
            MeasuredRow("peak", self.predicted.peak_bytes, self.peak_bytes, "bytes", _LIVE, "all that is set aside"),
            MeasuredRow("peak with VMEM", None, self.peak_with_vmem_bytes, "bytes", "", "XLA's own"),
            MeasuredRow("FLOPs", cost.flops, self.cost.flops, "FLOPs", *_COUNTED),
            MeasuredRow("transcendentals", cost.transcendentals, self.cost.transcendentals, "elements", *_COUNTED),
        ]
        return tuple(row for row in rows if row.compiled is not None)

    def parts(self) -> Iterable[View]:
        cells = self._cells()
        return [Lines([self._title]), TextTable(cells, numeric=cells[0][1:4]), Lines(self.notes)]

    def html(self) -> str:
        return html_table(self._cells(), "; ".join([self._title, *self.notes]))

    @property
    def _title(self) -> str:
        return f"{self.function}: both passes, traced and compiled for {self.target}"

    def _cells(self) -> list[list[str]]:
        cells = [["", "predicted", "compiled", "error", "predicted from", "compiled from"]]
        for row in self.rows:
            figures = ["–" if n is None else _figure(n, row.unit) for n in (row.predicted, row.compiled)]
            cells.append([row.what, *figures, _percent(row.error), row.predicted_from, row.compiled_from])
        return cells


_LIVE = "live after an equation"
_COUNTED = ("equations, with loops", "optimised HLO, with loops")


def _percent(error: float | None) -> str:
    text = "" if error is None else f"{100 * error:+.1f} %"
    return "0.0 %" if text[1:] == "0.0 %" else text.replace("-", "−")


def _figure(count: int, unit: str) -> str:
    return bytes_text(count) if unit == "bytes" else count_text(count, "").rstrip()


def measure(f: Callable, *args, target: str = "cpu", **kwargs) -> Measurement:
    """Compiles both passes of `f`, and puts what XLA made of them beside what the trace predicts.

    It compiles the forward and the backward pass as one program that returns `f`'s outputs and all gradients. Nothing
    is run and no array is made, unless `.time()` is asked for.

    Args:
      f: a function that is differentiable in reverse mode.
      *args, **kwargs: its arguments, as for `trace`.
      target: `"cpu"`, `"gpu"` or `"tpu"` for a device that is here; `"tpu v5e"`, `"tpu v6e"`, … for a TPU that is not:
        then libtpu compiles for it, in a process of its own.

    Returns:
      Bytes, FLOPs, and the memory over the compiled program, as a table and as data.

    Raises:
      TraceError: as `trace` does.
      TargetError: if the target is unknown or not here, or if libtpu is missing.

    Example:
      >>> import jax.numpy as jnp
      >>> from rematscope import measure
      >>> measured = measure(lambda x: jnp.sin(x), jnp.ones(1024), target="cpu")
      >>> measured.argument_bytes, measured.rows[0].what, measured.rows[0].predicted
      (8192, 'arguments', 8192)
      >>> measured.time(runs=3).runs  # doctest: +SKIP
      (8.2e-06, 7.9e-06, 8e-06)
    """
    __tracebackhide__ = True
    passes = trace(f, *args, **kwargs)
    flat, leaves = flattened(f, args, kwargs)
    inexact = [c.dtype != jax.dtypes.float0 for c in passes.cotangents]

    def both(leaves, cotangents):
        outputs, pullback = jax.vjp(lambda *leaves: jax.tree.leaves(flat(*leaves)), *leaves)
        given = iter(cotangents)
        nothing = (np.zeros(jnp.shape(out), jax.dtypes.float0) for out in outputs)
        gradients = pullback([next(given) if ok else zero for ok, zero in zip(inexact, nothing, strict=True)])
        return outputs, [g for g in gradients if g.dtype != jax.dtypes.float0]

    arguments = leaves, [_shape(c.aval) for c, ok in zip(passes.cotangents, inexact, strict=True) if ok]
    if target in PRESENT:
        return _compiled_here(passes, target, both, arguments)
    if target in ABSENT:
        return _compiled_for_absent_tpu(passes, target, both, arguments)
    raise TargetError(f"{target!r} is nothing to compile for. Choose one of {', '.join([*PRESENT, *ABSENT])}.")


def _compiled_here(passes: Passes, target: str, both: Callable, arguments) -> Measurement:
    try:
        device = jax.devices(target)[0]
    except RuntimeError:
        extra = {"gpu": "cuda13"}.get(target, target)
        raise TargetError(
            f"JAX sees no {target.upper()} here. Choose target='cpu', or install JAX for it where there is one: "
            f"pip install 'jax[{extra}]'."
        ) from None
    sharding = jax.sharding.SingleDeviceSharding(device)
    shapes = jax.tree.map(lambda leaf: _shape(jax.typeof(leaf), sharding), arguments)
    program = jax.jit(both).lower(*shapes).compile()
    drawn = functools.cache(lambda: jax.device_put(jax.tree.map(_array, arguments), sharding))

    def run() -> float:
        given = drawn()
        start = time.perf_counter()
        jax.block_until_ready(program(*given))
        return time.perf_counter() - start

    # Both are None on a back end that keeps no such record; there is none among those that can be chosen.
    analysis: Any = program.memory_analysis()
    executable: Any = program.runtime_executable()
    (module,) = executable.hlo_modules()
    serialized, record = module.as_serialized_hlo_module_proto(), analysis.serialized_buffer_assignment_proto
    memory = {name: getattr(analysis, name, 0) for name in _SIZES}
    return Measurement(passes, target, memory, read(serialized), record, run)


_SIZES = [
    f"{what}_in_bytes"
    for what in ("argument_size", "output_size", "alias_size", "temp_size", "host_temp_size", "peak_memory")
]


def _shape(aval, sharding=None) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding, weak_type=getattr(aval, "weak_type", False))


def _array(given):
    """The argument itself, or one to run with in its place."""
    if not isinstance(given, jax.ShapeDtypeStruct):
        return jnp.asarray(given)
    if jnp.issubdtype(given.dtype, jax.dtypes.prng_key):
        return jax.random.split(jax.random.key(0), given.shape)
    if jnp.issubdtype(given.dtype, np.inexact):
        return jnp.asarray(np.random.default_rng(0).standard_normal(given.shape), given.dtype)
    return jnp.zeros(given.shape, given.dtype)


def _spelled(target: str) -> str:
    return target.replace("tpu", "TPU")


def _compiled_for_absent_tpu(passes: Passes, target: str, both: Callable, arguments) -> Measurement:
    # JAX writes a program down with flatbuffers, and does not require it.
    missing = [name for name in ("libtpu", "flatbuffers") if importlib.util.find_spec(name) is None]
    if missing:
        raise TargetError(
            f"To compile for a {_spelled(target)} that is not here takes {missing[0]}, which is not installed: "
            "pip install 'rematscope[tpu]' (about 500 MB, and only for Linux on x86-64)."
        )
    shapes = jax.tree.map(lambda leaf: _shape(jax.typeof(leaf)), arguments)
    try:
        exported = jax.export.export(jax.jit(both), platforms=["tpu"])(*shapes).serialize()
    except (NotImplementedError, ValueError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise TargetError(
            f"{passes.function} cannot be handed to libtpu: {reason}. Leave that out, or choose target='cpu'."
        ) from None
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "exported").write_bytes(exported)
        command = [
            sys.executable,
            "-c",
            "import sys; from rematscope.xla.tpu_process import main; main(*sys.argv[1:])",
            target,
            name,
        ]
        child = subprocess.run(command, env=os.environ | environment(target), capture_output=True, text=True)
        if child.returncode:
            *_, reason = child.stderr.strip().splitlines() or ["it said nothing"]
            if full := re.search(r"RESOURCE_EXHAUSTED:\s*(?:E\d+:\s*)?(?:\w+:\s*)?(.*?)\.(?:\s|$)", child.stderr):
                raise TargetError(
                    f"{passes.function} does not fit into a {_spelled(target)}: {full[1]}. Save less, make the batch "
                    "smaller, or divide it over several chips."
                )
            raise TargetError(
                f"libtpu did not compile {passes.function} for {_spelled(target)}: {reason.rstrip('.')}. "
                "It must be the version that this JAX asks for: pip install 'rematscope[tpu]'."
            )
        memory = json.loads((folder / "memory").read_text())
        module = read((folder / "module").read_bytes())

    def run():
        raise TargetError(
            f"There is no {_spelled(target)} here to run on. Measure the time with target='cpu' or 'gpu'."
        )

    return Measurement(passes, target, memory, module, b"", run)
