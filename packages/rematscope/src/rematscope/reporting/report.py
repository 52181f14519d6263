"""`report(f, *args, memory=…)`: whether a training step fits, what fills its memory, and what to change."""

import functools
import importlib.util
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

import jax

from rematscope.errors import PlanError, TargetError
from rematscope.ir.gc_pause import gc_paused
from rematscope.jax_compat.policies import policy_name
from rematscope.memory.estimate_warning import estimate_warning
from rematscope.planning.budget import budget_bytes, check_count
from rematscope.render.files import write_whole
from rematscope.render.parts import Lines, Paragraph, Stack, TextTable
from rematscope.render.progress import progress
from rematscope.render.units import bar_text, bytes_text, count_text, counted, difference_text, seconds_text
from rematscope.render.view import View
from rematscope.reporting.averages import USE_CHUNKS
from rematscope.reporting.contents import Buffer, Contents, Module, Timeline, grouped
from rematscope.reporting.fixes import Fix, Search, described_changes
from rematscope.reporting.page import pictures, render_page
from rematscope.reporting.rewrite import Changes, blocks_of
from rematscope.reporting.subject import Subject, Traced
from rematscope.scheduling.checkpoint_placement import CheckpointPlacement, in_words
from rematscope.seconds.devices import DEVICES, GPU_SHARE, Device, device_called, is_gpu, is_tpu, usable_memory
from rematscope.tracing.checkpoints import jaxpr_of, loss_inside, without_checkpoints
from rematscope.tracing.entry_points import with_own_options
from rematscope.xla.compiling import check_target, usual_spelling
from rematscope.xla.measure import Measurement

COMPILES = 6
_ROWS = 10  # of a table in a terminal


class Proposal:
    """A function with changes that were applied and compiled.

    Attributes:
      changes: the changes, as keyword arguments of `rewrite`.
      function: the function with the changes, a drop-in replacement.
      measurement: what it was compiled to.
      extra_work: FLOPs and transcendentals in addition to those of the function as written.
      extra_share: the same as a share of those of the function as written.
      extra_link_bytes: the bytes that each device sends to other devices, and to host memory and back, in addition to
        those of the function as written.
    """

    def __init__(self, subject: Subject, found: Traced, base: Traced, measurement: Measurement):
        self._subject = subject
        self.changes = found.changes
        self.measurement = measurement
        self.extra_work = found.work - base.work
        self.extra_share = self.extra_work / base.work if base.work else 0.0
        self.extra_link_bytes = found.link_bytes - base.link_bytes

    @cached_property
    def function(self) -> Callable[..., Any]:
        return self._subject.changed(self.changes)

    @property
    def peak_bytes(self) -> float:
        """The compiled peak in bytes."""
        return self.measurement.peak_or_infinity

    @property
    def flops_text(self) -> str:
        """The extra FLOPs in words."""
        return f"{100 * self.extra_share:.1f} % more FLOPs" if self.extra_work > 0 else "no more FLOPs"

    @property
    def _snippet_name(self) -> str:
        """The name of the function in `snippet`."""
        return self._subject.name if self._subject.name.isidentifier() else "step"

    @property
    def snippet(self) -> str:
        """Python code to paste after the definition of the function."""
        return snippet_of(self._snippet_name, self.changes)

    @property
    def name_text(self) -> str:
        """A sentence that says what the function's name in `snippet` means; "" if it is a variable of its module.

        A method or a function that another function returned may have another name where the code is pasted.
        """
        f = self._subject.f
        module = sys.modules.get(getattr(f, "__module__", None) or "")
        if getattr(module, self._snippet_name, None) is f:
            return ""
        return f"In this code, {self._snippet_name} is the function that you passed to report."

    @cached_property
    def by_hand(self) -> str:
        """The lines of the user's code that the checkpoints are around, as a sentence; "" where there are none."""
        place, policy = self.changes.checkpoint, self.changes.policy
        if place not in ("layers", "all layers but the last", "segments"):
            return ""
        arguments = self._subject.arguments
        try:
            once, args, kwargs = loss_inside(arguments.bound(self._subject.f), arguments.args, arguments.kwargs)
            blocks = blocks_of(once, place, *args, **kwargs)
            found = in_words(jaxpr_of(without_checkpoints(once), *args, **kwargs), CheckpointPlacement(blocks))
        except Exception:  # the text is optional, and a library's function may not be traceable by itself
            return ""
        if len(found) >= 400:
            return ""
        with_policy = f" with policy=jax.checkpoint_policies.{policy_name(policy)}" if policy else ""
        is_all = self.changes == Changes(place, policy)
        start = "By hand" if is_all else "By hand, the checkpoints alone, without the other changes"
        return f"{start}: jax.checkpoint{with_policy}, {found}."

    def __repr__(self) -> str:
        return f"<rewrite({self._subject.name}, {self.changes}): {bytes_text(self.peak_bytes)}>"


def snippet_of(name: str, changes: Changes) -> str:
    """Return Python code that applies changes to a function of some name."""
    imports = ["import jax"] * (changes.policy is not None) + ["import rematscope"]
    arguments = str(changes)
    line = f"{name} = rematscope.rewrite({name}, {arguments})"
    if len(line) > 78:
        parts = _split_arguments(arguments)
        line = "\n".join([f"{name} = rematscope.rewrite(", f"    {name},", *(f"    {part}," for part in parts), ")"])
    return "\n".join([*imports, line])


def _split_arguments(arguments: str) -> list[str]:
    return re.split(r", (?=[a-z_]+=)", arguments)


class Report(View):
    """A report on the memory of a training step or a loss.

    It is displayed as text in a terminal and as HTML in a notebook.

    It shows whether the function fits in memory, what fills the memory, and what you can change.

    Attributes:
      function: the name of the function.
      limit: the memory capacity in bytes.
      device: the device, if one was given; else None.
      target: the device that the programs were compiled for.
      measurement: the compiled program of the function as written.
      contents: the live buffers of the function as written, from the trace.
      best: the cheapest combination of changes that fits, compiled; None if the function fits as written, or if no
        change fits.
      fixes: all combinations of changes that were traced and lower the peak, by increasing cost.
      advice: sentences about further changes, which were not applied.
    """

    def __init__(self, subject: Subject, search: Search, found: Changes | None, device: Device | None):
        self._subject, self._search = subject, search
        self.function, self.limit, self.device, self.target = subject.name, search.limit, device, subject.target
        base = search.tried[Changes()]
        self.measurement = search.measured[Changes()]
        self.contents = Contents(base.passes, base.memory)
        self._more_devices = "more devices" if base.passes.devices > 1 else "devices"
        self.fixes: list[Fix] = search.fixes()
        self.best: Proposal | None = None
        if found is not None and found != Changes():
            self.best = Proposal(subject, search.tried[found], base, search.measured[found])
        self.advice = _further_advice(self)

    @property
    def fits(self) -> bool:
        """Whether the compiled peak of the function as written is within the limit."""
        return self.peak_bytes <= self.limit

    @property
    def predicted_bytes(self) -> int:
        """The predicted peak of the function as written, in bytes."""
        return self.contents.peak_bytes

    @property
    def peak_bytes(self) -> float:
        """The compiled peak of the function as written, in bytes; infinite if the target has too little memory."""
        return self.measurement.peak_or_infinity

    @property
    def bytes_by_kind(self) -> dict[str, int]:
        """The predicted bytes at the peak by kind of buffer; their sum is `predicted_bytes`."""
        return self.contents.bytes_by_kind

    @cached_property
    def timeline(self) -> Timeline:
        """The predicted live bytes over time, by kind and module."""
        return self.contents.timeline()

    @property
    def peak(self) -> list[Buffer]:
        """The buffers that are live at the predicted peak, by decreasing size."""
        return self.contents.peak

    @property
    def modules(self) -> list[Module]:
        """For each module, its FLOPs and its live bytes at the predicted peak."""
        return self.contents.modules

    def to_perfetto(self, path: str | os.PathLike[str]) -> None:
        """Write the live bytes and the operations over time to a Chrome trace, which you can open at ui.perfetto.dev.

        Args:
          path: the path of the file to write, such as `"step.json"`.

        Raises:
          OSError: if the file cannot be written.
        """
        write_whole(path, json.dumps(self.contents.trace_events()))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report to a self-contained HTML file with interactive pictures, which you can zoom and search.

        Args:
          path: the path of the file to write, such as `"report.html"`.

        Raises:
          OSError: if the file cannot be written.
        """
        write_whole(path, render_page(self))

    def html(self) -> str:
        return pictures(self) + super().html()

    # As text.

    def parts(self) -> Iterable[View]:
        return [Stack(*self._text_sections())]

    def _text_sections(self) -> list[View]:
        return [
            Lines([self.headline]),
            Stack(Lines(["1. Does it fit?"]), self._kinds_table()),
            Stack(Lines(["2. What fills it?"]), *self._peak_tables()),
            Stack(Lines(["3. What to change?"]), *self._change_views()),
            Stack(Lines(["4. What was assumed?"]), *map(Paragraph, self.assumptions)),
        ]

    @property
    def headline(self) -> str:
        """One sentence that says whether the function fits, and how much memory it needs."""
        of = f"{bytes_text(self.limit)}{f' ({self.device.name})' if self.device else ''}"
        if self.measurement.out_of_memory:
            return f"{self.function} does not fit into {of}: {usual_spelling(self.target)} has no memory for it."
        peak = f"{bytes_text(self.peak_bytes)}, compiled for {usual_spelling(self.target)}"
        if self.fits:
            return f"{self.function} fits into {of}: {peak}."
        return (
            f"{self.function} does not fit into {of}: it needs {peak} ({self.peak_bytes / self.limit:.1f} times that)."
        )

    def _kinds_table(self) -> TextTable:
        rows = self.kind_rows(lambda share: f"{bar_text(share, 16)} {100 * share:3.0f} %")
        return TextTable(rows, numeric=rows[0][1:3])

    def kind_rows(self, share_text: Callable[[float], str]) -> list[list[str]]:
        """Return the header and the rows of the table of bytes by kind.

        Args:
          share_text: returns the text for a share of the peak.
        """
        total = max(self.predicted_bytes, 1)
        rows = [["", "Predicted", "Compiled", "Share of the peak"]]
        rows += [[kind, bytes_text(n), "", share_text(n / total)] for kind, n in self.bytes_by_kind.items()]
        compiled = "does not fit" if self.measurement.out_of_memory else bytes_text(self.peak_bytes)
        error = ""
        if math.isfinite(self.peak_bytes):
            error = f"error {difference_text((self.predicted_bytes - self.peak_bytes) / self.peak_bytes)}"
        rows.append(["peak", bytes_text(self.predicted_bytes), compiled, error])
        return [*rows, ["capacity", bytes_text(self.limit), "", self.device.name if self.device else ""]]

    def _peak_tables(self) -> list[View]:
        step, last = self.contents.peak_step, len(self.contents.memory.steps)
        where = "backward" if step >= self.contents.backward[0] else "forward"
        rows = [["Bytes", "Array", "Kind", "Operation", "Made by", "Line"]]
        groups = grouped(self.peak)
        for group in groups[:_ROWS]:
            line = group.buffers[0].source
            line = line.rpartition(" → ")[0] or line
            operation = group.buffers[0].operation
            rows.append([bytes_text(group.nbytes), group.array, group.kind, operation, group.name(2), line])
        rest = [buffer for group in groups[_ROWS:] for buffer in group.buffers]
        more = f"and {counted(len(rest), 'more buffer')}: {bytes_text(sum(b.nbytes for b in rest))}" if rest else None
        table = TextTable(rows, more, numeric=("Bytes",))
        return [Lines([f"At the peak, operation {step:,} of {last:,} ({where} pass), the largest buffers are:"]), table]

    def _change_views(self) -> list[View]:
        if self.fits:
            return [Paragraph("Nothing: it fits as written.")]
        found: list[View] = []
        if self.best is not None:
            found.append(Paragraph(self.proposal_text))
            found.append(Lines(["", *(f"    {line}" for line in self.best.snippet.splitlines()), ""]))
            if self.best.by_hand:
                found.append(Paragraph(self.best.by_hand))
        else:
            found.append(Paragraph(self.nothing_fits))
        if self.fixes:
            found.append(self._fixes_table())
        return [*found, *map(Paragraph, self.advice)]

    @property
    def proposal_text(self) -> str:
        """Sentences about the cost of the proposed changes, and about the changes that the search prefers to them."""
        best = self.best
        assert best is not None, "there is a proposal"
        cost = best.flops_text
        if best.extra_link_bytes > 0:
            cost += f" and {bytes_text(best.extra_link_bytes)} more over the links of each device"
        cheaper = self._search.cost(best.changes)
        tried = [c for c in self._search.tried if self._search.cost(c) < cheaper and c != Changes()]
        text = (
            f"Paste this: the compiled peak is {bytes_text(best.peak_bytes)} of {bytes_text(self.limit)}, with {cost}."
        )
        unknown = sorted((c for c in tried if c not in self._search.measured), key=self._search.cost)
        expected = [described_changes(c) for c in unknown if self._search.peak_bytes(c) <= self.limit]
        if tried and best.changes.microbatches * best.changes.chunks > 1:  # these may have more FLOPs
            are = "change that splits" if len(tried) == 1 else "changes that split"
            text += (
                f" rematscope tried {len(tried)} {are} the batch into fewer parts, or into as many with fewer FLOPs: "
            )
            all_need = "it needs more memory." if len(tried) == 1 else "each of them needs more memory."
            text += _uncompiled_text(len(tried), expected) or all_need
        elif tried and expected:
            of = counted(len(tried), "cheaper change")
            text += f" Of {of} that rematscope tried, {_uncompiled_text(len(tried), expected)}"
        elif tried:
            others = "The only cheaper change" if len(tried) == 1 else f"Each of the {len(tried)} cheaper changes"
            text += f" {others} that rematscope tried needs more memory."
        if not self._search.is_complete:
            text += " Not all combinations were traced, so a cheaper one may exist."
        return f"{text} {best.name_text}".rstrip()

    @property
    def nothing_fits(self) -> str:
        """Sentences that say that no change fits, and what you can do instead."""
        fixed, gradients = self._search.least_fixed_bytes, self._search.gradient_bytes
        if fixed > self.limit:
            why = (
                f"No change of the step's computation can make it fit into {bytes_text(self.limit)}: the arguments and "
                f"results, which are live throughout the step, take {bytes_text(fixed)}, even if everything that can "
                "be donated is."
            )
        else:
            none = f"None of the changes that rematscope can apply fits into {bytes_text(self.limit)}."
            others = "" if self._search.is_complete else "Not all combinations were traced, so one of them may fit."
            why = " ".join(filter(None, (none, self._uncompiled_sentence, others, self._smallest_peak_sentence)))
        if fixed <= self.limit < fixed + gradients:
            why += (
                f" The arguments and results take {bytes_text(fixed)}, even if everything that can be donated is, and "
                f"the gradients take {bytes_text(gradients)}: together {bytes_text(fixed + gradients)}, if all "
                "gradients are live at once."
            )
        kinds = self.bytes_by_kind
        state = kinds.get("parameters", 0) + kinds.get("optimizer state", 0) + gradients
        if state > self.limit:
            return (
                f"{why} Parameters, optimizer state and gradients alone take {bytes_text(state)}, so a smaller batch "
                f"helps only if they depend on its size. Shard the step across {self._more_devices}, or choose a "
                "device with more memory."
            )
        return (
            f"{why} Shard the step across {self._more_devices}, reduce the batch size, or choose a device with more "
            "memory."
        )

    @property
    def _uncompiled_sentence(self) -> str:
        """A sentence that says how many changes were not compiled; "" if all were."""
        compiled = len([changes for changes in self._search.measured if changes != Changes()])
        rest = len(self._search.tried) - 1 - compiled
        if not rest:
            return ""
        peaks = (
            "the peak of the other change is a prediction"
            if rest == 1
            else f"the peaks of the other {rest} are predictions"
        )
        doubt = ", which may be far too high" if self._search.may_overestimate else ""
        return f"rematscope compiled {compiled} of them; {peaks}{doubt}."

    @property
    def _smallest_peak_sentence(self) -> str:
        """Sentences that say which changes have the smallest peak, and what their predicted peak consists of."""
        tried = self._search.tried
        least = min(tried, key=lambda changes: self._search.peak_bytes(changes))
        kinds = Contents(tried[least].passes, tried[least].memory).bytes_by_kind
        parts = " + ".join(f"{kind} {bytes_text(nbytes)}" for kind, nbytes in kinds.items())
        how = described_changes(least) or "the step as written"
        smallest = bytes_text(self._search.peak_bytes(least))
        if least not in self._search.measured:
            return f"The smallest peak, {smallest} (predicted, {how}), consists of {parts}."
        predicted = bytes_text(tried[least].memory.peak_bytes)
        return f"The smallest peak is {smallest} (compiled, {how}). Its prediction, {predicted}, consists of {parts}."

    def _fixes_table(self) -> TextTable:
        rows = self.fix_rows()
        return TextTable(rows, numeric=[title for title in rows[0] if title not in ("Change", "")])

    def fix_rows(self) -> list[list[str]]:
        """Return the header and the rows of the table of `shown_fixes`."""
        timed = self.device is not None  # without a device, there is no time to show
        linked = any(fix.extra_link_bytes > 0 for fix in self.shown_fixes)
        columns = [*["Extra link bytes"] * linked, *["Extra time"] * timed]
        rows = [["Change", "Peak", "", "Reduction", "Extra FLOPs", *columns]]
        for fix in self.shown_fixes:
            fits = "fits" if fix.best_bytes <= self.limit else ""
            how = "compiled" if fix.compiled_bytes is not None else "predicted"
            row = [
                described_changes(fix.changes),
                bytes_text(fix.best_bytes),
                f"{how}{', ' if fits else ''}{fits}",
                bytes_text(fix.reduction_bytes),
                count_text(max(fix.extra_work, 0)),
            ]
            row += [bytes_text(max(fix.extra_link_bytes, 0))] * linked
            rows.append(row + [seconds_text(max(fix.extra_seconds, 0.0))] * timed)
        return rows

    @property
    def shown_fixes(self) -> list[Fix]:
        """The fixes that the table lists: all compiled ones, and the cheapest of the others.

        Of several fixes with equal predicted peaks and FLOPs, it lists the compiled ones, or else the simplest one.
        """
        compiled = [fix for fix in self.fixes if fix.compiled_bytes is not None]
        seen = {(fix.peak_bytes, fix.extra_work) for fix in compiled}
        simplest = dict[tuple[int, int], Fix]()
        for fix in sorted(self.fixes, key=lambda fix: len(described_changes(fix.changes))):
            simplest.setdefault((fix.peak_bytes, fix.extra_work), fix)
        others = [fix for key, fix in simplest.items() if key not in seen]
        cheapest = [fix for fix in self.fixes if fix in others][: max(0, _ROWS - len(compiled))]
        return [fix for fix in self.fixes if fix in compiled or fix in cheapest]

    @property
    def assumptions(self) -> list[str]:
        """Sentences about the assumptions behind the figures."""
        base = self._search.tried[Changes()]
        found = [
            "The predicted peak follows from the trace and from rules of what XLA fuses. The compiled peak counts "
            "arguments, outputs and temporaries, less donated arguments that results overwrite.",
        ]
        if self.measurement.trace.axes:
            found.append(
                f"All bytes are those{self.measurement.trace.per_device_text}; the shapes are those of whole arrays."
            )
        if self.device is not None and self.target == "cpu":
            found.append(
                f"There is no {self.device.name} here, so the CPU is the stand-in: only a compile there shows its "
                "fusions and layouts, and whether XLA hides transfers."
            )
        if self.device is not None and is_gpu(self.device) and self.limit == usable_memory(self.device):
            found.append(
                f"The capacity is what JAX reserves by default: {100 * GPU_SHARE:.0f} % of the memory in the data "
                f"sheet of the {self.device.name}. If you set XLA_CLIENT_MEM_FRACTION=.95, pass "
                f"memory={bytes_text(0.95 * self.device.memory)!r}."
            )
        if self.measurement.trace.remat3:
            found.append("The checkpoints were traced and compiled with jax_remat3.")
        if self._subject.is_step:
            found.append("The step was compiled as written, with the arguments that it donates itself.")
        else:
            found.append(
                f"{self.function} is a loss: its value and the gradients of all floating-point arguments count."
            )
        found.append(
            "Checkpoints, chunks and donation change a gradient by no more than rounding errors. Microbatches are "
            "proposed only if the step's program proves that they give its gradient too."
        )
        if self.device is not None:
            found.append(f"Extra times are estimated with a roofline model of {self.device.name}.")
        found += [doubt] if (doubt := estimate_warning(base.passes, self.predicted_bytes)) else []
        if self.target == "gpu":
            found.append(
                "XLA's GPU compiler recomputes values by itself if a program does not fit into the GPU. The compiled "
                "peaks include this; the predicted peaks and the FLOPs do not."
            )
        options: dict[str, Any] = {"memory": self.limit}
        if self.device is not None and self.device.name in DEVICES:
            options["device"] = self.device.name
        if self.target != _target_for(self.device, None):
            options["target"] = self.target
        call = ", ".join([self.function, "…", *(f"{name}={value!r}" for name, value in options.items())])
        found.append(
            f"To reproduce: rematscope.report({call}), with JAX {jax.__version__}; rematscope.measure(…) compiles each "
            "row."
        )
        return found


def _uncompiled_text(tried: int, expected: Sequence[str]) -> str:
    """Return the end of a sentence about changes, of which some are predicted to fit; empty if there are none."""
    if not expected:
        return ""
    need = tried - len(expected)
    more = f"; and {len(expected) - 3} more" if len(expected) > 3 else ""
    others = f"{need} need{'s' if need == 1 else ''} more memory, and " if need else ""
    are = "is predicted to fit but was" if len(expected) == 1 else "are predicted to fit but were"
    them = "it" if len(expected) == 1 else "them"
    named = "; ".join(expected[:3])
    return f"{others}{len(expected)} {are} not compiled: {named}{more}. rematscope.measure compiles {them}."


def _further_advice(report: Report) -> list[str]:
    """Return sentences about further changes that may help, which were not applied."""
    found = []
    search, contents = report._search, report.contents
    if report.fits:
        return []
    if why := search.refused.get("microbatches"):
        found.append(f"No microbatches: {why.removesuffix(USE_CHUNKS)}")  # the search tries chunks by itself
    if report.best is None and (why := report._subject.why_other_axes):
        found.append(why)
    if why := search.refused.get("auto"):
        found.append(f"No plan of auto: {why} To make one, try rewrite({report.function}, auto=…).")
    largest = [b for b in report.peak if b.kind not in ("parameters", "optimizer state", "arguments", "outputs")][:1]
    for buffer in largest:
        share = buffer.nbytes / contents.peak_bytes
        if report.best is None and share > 0.2:
            found.append(
                f"One array, {buffer.type} ({buffer.source or buffer.operation}), is {100 * share:.0f} % of the peak. "
                "Computing it in chunks along an axis other than the batch may avoid it (an estimate; not applied)."
            )
    kinds = report.bytes_by_kind
    state = kinds.get("parameters", 0) + kinds.get("optimizer state", 0)
    if report.best is None and state > 0.5 * report.limit:
        found.append(
            f"Parameters and optimizer state take {bytes_text(state)}. Shard them across {report._more_devices} "
            "(FSDP), or use an optimizer with less state, such as optax.adafactor."
        )
    if offload := _offload_advice(report):
        found.append(offload)
    return found


def _offload_advice(report: Report) -> str:
    """Return a sentence about offloading, which was not applied; "" if it was tried, or if a change fits."""
    search = report._search
    if report.best is not None or report.target != "cpu" or Changes("loops") not in search.tried:
        return ""
    traced = search.traced_alone(Changes("offloaded loops"))
    moved = 0 if traced is None else traced.passes.host_bytes()
    if not moved:
        return ""
    where = "a CPU" if report.device is None else f"the CPU, the stand-in for a {report.device.name},"
    return (
        f"checkpoint='offloaded loops' would move {bytes_text(moved)} of loop carries to host memory (an estimate; not "
        f"applied: for {where} XLA ignores it, because device and host memory are the same)."
    )


def _target_for(device: Device | None, target: str | None) -> str:
    """Return the target to compile for: a TPU if JAX can compile for it ahead of time, else a local GPU or the CPU."""
    if target is not None:
        check_target(target)
        return target
    if device is not None and is_tpu(device.name):
        here = all(importlib.util.find_spec(name) is not None for name in ("libtpu", "flatbuffers"))
        return device.name if here and device.topology else "cpu"
    return "gpu" if jax.default_backend() == "gpu" else "cpu"


@functools.partial(with_own_options, divides=True)
def report(
    f: Callable[..., Any],
    *args: Any,
    device: Device | str | None = None,
    memory: int | str | None = None,
    target: str | None = None,
    compiles: int = COMPILES,
    **kwargs: Any,
) -> Report:
    """Report whether a training step fits in memory, what fills the memory, and what to change.

    `report` applies changes to the step, traces the results, and compiles the best of them. The changes are checkpoints
    around layers or loop iterations, JAX's policies, checkpoints that also save as many results of matmuls and
    convolutions as fit in memory, donated arguments, microbatches, loop carries in host memory, chunks of the batch for
    the loss or its head, and plans of `auto` for the loss. The cheapest combination that fits is `.best`, which
    includes code to paste.

    Args:
      f: a training step or a loss. For a loss, the report covers the program that computes its value and gradients. `f`
        is not run.
      *args, **kwargs: the arguments of `f`, as for `trace`.
      device: a name such as `"h100"` or `"tpu v5e"`, a `Device`, or the result of `calibrate()`. Its memory is the
        capacity, for a GPU's name the 75 % of it that JAX reserves by default, and its roofline gives the times.
      memory: the capacity, as an integer or a string such as `"16 GiB"`, instead of the device's memory.
      target: the device to compile for, as for `measure`. The default is `device` if it is a TPU that libtpu can
        compile for ahead of time; else this machine's GPU if JAX uses one; else the CPU.
      compiles: the approximate maximum number of programs to compile.

    Returns:
      The report, displayed as text in a terminal and as HTML in a notebook. `.save("report.html")` writes it to a
      self-contained page.

    Raises:
      PlanError: if neither `memory` nor `device` gives a capacity, or if an option is not valid.
      TraceError: as for `trace`.
      TargetError: if `device` or `target` is not known.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from rematscope import report
      >>> def loss(ws, x):
      ...     for w in ws:
      ...         x = jnp.sin(x @ w)
      ...     return jnp.mean(x)
      >>> @jax.jit
      ... def step(ws, x):
      ...     return jax.tree.map(lambda w, g: w - g, ws, jax.grad(loss)(ws, x))
      >>> found = report(step, [jnp.ones((16, 16))] * 8, jnp.ones((256, 16)), memory="160 KiB")
      >>> found.fits, found.best.peak_bytes <= found.limit
      (False, True)
    """
    __tracebackhide__ = True
    try:
        rates = None if device is None else device_called(device)
    except TargetError as error:
        raise TargetError(f"{error} Without device=, report needs only its memory: memory='24 GiB'.") from None
    if memory is None and (rates is None or not rates.memory):
        raise PlanError(
            "report needs a capacity: memory='16 GiB', or device= with the name of a device, such as 'h100'."
        )
    if isinstance(memory, int) and memory < 1024:
        raise PlanError(f"memory={memory} is {memory} bytes. Did you mean '{memory} GiB'?")
    limit = usable_memory(rates) if memory is None and rates is not None else budget_bytes(memory or 0, "memory")
    check_count(compiles, "compiles")
    with progress() as tell, gc_paused():
        tell("tracing", 0)
        subject = Subject(f, args, kwargs, rates, _target_for(rates, target))
        search = Search(subject, limit, compiles, tell)
        found = search.run()
    return Report(subject, search, found, rates)
