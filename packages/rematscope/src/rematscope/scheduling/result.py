"""A plan of `auto`: the planned function, its saved and recomputed values, and what is proven about it."""

import dataclasses
import json
import operator
import os
import pickle
import sys
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, NamedTuple

from rematscope.choices.build import work
from rematscope.errors import PlanError
from rematscope.ir.program import Equation, Program, Value, type_text
from rematscope.ir.source import Source, each_of_common_path, numberless
from rematscope.jax_compat.vjp_hook import outside_traces
from rematscope.memory.liveness import live_bytes
from rematscope.memory.timeline import Timeline
from rematscope.render.files import write_whole
from rematscope.render.parts import Lines, Paragraph, Pictured, TextTable
from rematscope.render.units import bytes_text, count_text, first_of, seconds_text
from rematscope.render.view import View
from rematscope.scheduling import divided
from rematscope.scheduling.argnums import ArgNums
from rematscope.scheduling.candidate import Candidate
from rematscope.scheduling.checkpoint_placement import CheckpointPlacement, in_words
from rematscope.scheduling.per_call import GradientCall
from rematscope.scheduling.planned import Constant
from rematscope.scheduling.search import ScheduleSearch, SearchOptions
from rematscope.scheduling.stored_choice import StoredChoice, digest
from rematscope.scheduling.suggested_names import SuggestedNames, save_everything_names, suggested_names
from rematscope.seconds.devices import Device, is_tpu
from rematscope.tracing.static_values import FunctionOfStatic, has_static
from rematscope.xla.compiling import Compiled
from rematscope.xla.measure import Measurement

_CLOSED = "nested loops, branches and shard_maps count as one operation each"
_LINES = 12  # of a table


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of the user's code in a module, or in repeated modules, with what the plan does there.

    Attributes:
      source: the line; None for values without one.
      module: its module in JAX's name stack, `layers_0…63/attention` for repeated layers; else "".
      what: the types of saved values, or the operations that are recomputed, each once.
      amount: the saved bytes, or the recomputed FLOPs and transcendentals.
      when: for recomputed operations, the shares of the backward pass before the first and before the last; else None.
    """

    source: Source | None
    module: str
    what: tuple[str, ...]
    amount: int
    when: tuple[float, float] | None = None


class Auto(Constant, Pictured):
    """A plan of `auto` for a memory limit, displayed as a plot with a table of its values.

    Attributes:
      function: the planned function, a drop-in replacement for the original one.
      limit: the limit in bytes.
      limits_peak: True if the limit applies to the compiled peak, False if it applies to the saved bytes.
      target: the device that the plan was compiled for.
      trials: all compiled candidates, in the order of compilation.
      bound: a lower bound on the recompute cost of every choice within the limit. The proof is for the 0/1 program,
        whose memory figures are estimates, and not for compiled programs.
    """

    size = Timeline.size

    def __init__(
        self, search: ScheduleSearch, chosen: Candidate, options: SearchOptions, bound: float, argnums: ArgNums = None
    ):
        self._own, self._structure, self._options = search.own, search.key[:2], options
        self._linearized = search.linearized
        self._chosen = chosen
        self.function = chosen.function
        self.trials = tuple(search.compiled)
        self.limit, self.limits_peak, self.target = options.limit, options.limits_peak, options.target
        self.bound = min(bound, chosen.recompute_cost)
        self._argnums = argnums
        self._call, self._cost, self._host = search.call, options.cost, options.host

    def __reduce__(self) -> tuple[Callable[[bytes], "Auto"], tuple[bytes]]:
        return _load_pickle, (_dump_pickle(self._pickle_state()),)

    def _pickle_state(self) -> "_State":
        f = self._call.f
        call = self._call._replace(f=picklable_reference(f.function if isinstance(f, FunctionOfStatic) else f))
        choices = [StoredChoice.of(candidate, self._own) for candidate in self.trials]
        compiled = [one.measurement.made for one in self.trials if one.measurement is not None]
        chosen = self.trials.index(self._chosen)
        return _State(call, self._options, self._argnums, self._structure, choices, compiled, chosen, self.bound)

    @cached_property
    def suggested_names(self) -> SuggestedNames:
        """The names (with their source lines) and the policy that together express this plan in the model's code.

        Raises:
          PlanError: if names cannot express the plan, for example if it consists of plain checkpoints.
        """
        chosen, function = self._chosen, self._linearized.trace.function
        if chosen.moved:
            raise PlanError(
                f"the plan for {function} offloads values to host memory, which suggested names cannot express. "
                "Use .function, or remove host=."
            )
        if (
            not chosen.recompute_cost
            and chosen.placement in (None, CheckpointPlacement())
            and chosen.saved == chosen.linearized.saved
        ):
            return save_everything_names(self._call)
        if chosen.placement is not None:
            whole = chosen.problem.once.without_checkpoints.jaxpr
            raise PlanError(
                f"the plan for {function} consists of plain checkpoints, which names cannot express: "
                f"{in_words(whole, chosen.placement)}. Write these checkpoints, or use .function."
            )
        if chosen.segments:
            raise PlanError(
                f"the plan for {function} divides loops into segments, which names cannot express: "
                f"{divided.in_words(self._linearized, chosen.segments)}. Use .function."
            )
        return suggested_names(self._call, chosen.linearized, chosen.schedule, self.limits_peak, self._cost)

    @property
    def policy(self) -> Callable[..., Any]:
        """The policy to pass to `jax.checkpoint` or `with_schedule`, for a model with the suggested names.

        Raises:
          PlanError: as for `suggested_names`.
        """
        return self.suggested_names.policy

    @property
    def measurement(self) -> Measurement:
        """The compiled program of both passes, with the predictions from the trace."""
        assert self._chosen.measurement is not None, "what is returned was compiled"
        return self._chosen.measurement

    @property
    def recomputed(self) -> float:
        """The recompute cost of the plan, in the unit of the argument `cost` of `auto`.

        This is the cost of both passes, minus the cost of both passes if everything is saved. With offloading, it is a
        time in seconds, which includes the time spent waiting for transfers.
        """
        return self._chosen.recompute_cost

    @property
    def saved_bytes(self) -> int:
        """The bytes of computed residuals that the forward pass saves on the device."""
        return self._chosen.schedule.saved_bytes

    @property
    def host_bytes(self) -> int:
        """The bytes of residuals that are offloaded to host memory."""
        return self._chosen.schedule.host_bytes

    @cached_property
    def timeline_baseline(self) -> Timeline:
        """The live bytes in both passes if everything is saved, from the trace."""
        return live_bytes(self._linearized.trace)

    @cached_property
    def timeline(self) -> Timeline:
        """The live bytes in both passes of the planned function, from the trace."""
        return self.measurement.predicted

    @cached_property
    def saved_values(self) -> tuple[Line, ...]:
        """The values saved on the device, grouped by source line and module, by decreasing bytes."""
        return self._kept_in("device")

    @cached_property
    def offloaded_values(self) -> tuple[Line, ...]:
        """The values offloaded to host memory, grouped by source line and module, by decreasing bytes."""
        return self._kept_in("host")

    def _kept_in(self, memory: str) -> tuple[Line, ...]:
        made = _makers_of_values(self._chosen.schedule.forward)
        saved = (v for v in self._chosen.schedule.saved if v.memory == memory)
        return _by_line((made.get(v), type_text(v), v.nbytes, None) for v in saved)

    @cached_property
    def recomputed_values(self) -> tuple[Line, ...]:
        """The recomputed values, grouped by source line and module, by decreasing cost."""
        made = self._chosen.schedule
        forward = {v for e, _ in made.forward.walk() for v in e.outputs}
        equations = made.backward.equations
        again = (
            (e, e.primitive, times * int(work(e)), i / len(equations))
            for i, whole in enumerate(equations)
            for e, times in whole.walk()
            if e.outputs and e.primitive != "device_put"  # which fetches an offloaded value
            if forward.issuperset(made.copies.get(v, v) for v in e.outputs)
        )
        return _by_line(again)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the schedule to a `.json` file for `load_schedule`, or the view to a self-contained HTML file.

        Args:
          path: the path of the file to write. If the path ends in `.json`, the file contains the schedule; otherwise,
            it contains the view.

        Raises:
          OSError: if the file cannot be written.
        """
        if not os.fspath(path).endswith(".json"):
            super().save(path)
            return
        linearized, choice = self._chosen.linearized, StoredChoice.of(self._chosen, self._own)
        stored = {
            "function": linearized.trace.function,
            "structure": digest(linearized),
            "checkpoints": choice.of_own,
            "plain": dataclasses.asdict(choice.placement) if choice.placement else None,
            "kept": choice.saved,
            "moved": choice.moved,
            "stops": choice.snapshots,
            "segments": choice.segments,
            "target": self._chosen.problem.target,
            "argnums": self._argnums,
        }
        write_whole(path, json.dumps(stored))

    @property
    def certificate(self) -> str:
        """A description of what is proven about the plan, what was compiled, and what is assumed."""
        measured = self.measurement
        if self._chosen.snapshots and not is_tpu(self._chosen.problem.target):
            proven = (
                "A dynamic program over the narrow points of this chain chose the order: no other order "
                "recomputes less with as many bytes of these values, rounded up. The memory between them is an "
                "estimate."
            )
        elif self._chosen.snapshots:
            proven = (
                "Values between narrow points of the model are recomputed together, since a TPU's compiler "
                "keeps them close together. Optimality is not proven: the most expensive matmuls per byte are "
                "saved, the last ones first."
            )
        elif self._chosen.segments:
            proven = (
                "Loops are divided into segments, with one checkpoint around each. Optimality is not proven: in "
                "the 0/1 program, all iterations of a loop save the same values."
            )
        elif self._linearized.closed and self._chosen.placement is not None:
            proven = (
                "JAX's plain checkpoints, the cheapest of those tried. Optimality is not proven: in the 0/1 "
                f"program, {_CLOSED}, and these checkpoints reach into them."
            )
        else:
            where = f", where {_CLOSED}" if self._linearized.closed else ""
            proven = f"The 0/1 program{where} recomputes each value at most once, in this order, and predicts fusion: "
            least = self._cost_text(self.bound, "operations")
            if not self.recomputed:
                proven += "nothing is recomputed."
            elif self.bound <= 0:  # every choice recomputes at least nothing: that proves nothing
                proven += "the solver stopped before it proved a bound on the recompute."
            else:
                gap = 100 * (self.recomputed - self.bound) / self.recomputed
                proven += f"no choice recomputes less than {least}, a gap of {gap:.1f} %."
        rates = f" Times are estimated by a roofline of {self._cost.name}." if isinstance(self._cost, Device) else ""
        return (
            f"Compiled for {self.target}: {bytes_text(measured.peak_or_infinity)} with arguments, outputs and "
            f"gradients, {count_text(measured.cost.flops, 'FLOPs')}. {proven} Assumed: the same shapes, and the same "
            f"compiler.{rates}{self._moved_text}"
        )

    @property
    def _moved_text(self) -> str:
        """The offloaded bytes, and the assumptions about their transfer; empty without a host."""
        if self._host is None:
            return ""
        link = f"{self._host.bandwidth / 1e9:.4g} GB/s in each direction"
        if not self.host_bytes:
            return f" Nothing is offloaded, with a link of {link}."
        took = seconds_text(self.host_bytes / self._host.bandwidth)
        stays = f" Compiled for {self.target}, all of it stays on the device."
        return (
            f" Offloaded: {bytes_text(self.host_bytes)}. A link of {link} takes {took} to transfer them to the host, "
            f"and {took} back. Assumed: transfers to the host overlap with {100 * self._host.overlap:g} % of the "
            "forward pass. The rest, and transfers back, count as recompute time. These times are estimates."
            f"{'' if self.measurement.host_bytes else stays}"
        )

    def _cost_text(self, number: float, of: str = "") -> str:
        """The recompute cost as text: `1.2 G operations`, or `3.4 ms` where seconds are counted."""
        if isinstance(self._cost, Device):
            return seconds_text(number)
        return count_text(int(number), of)

    def caption(self) -> str:
        return f"{self._linearized.trace.function}: live bytes of the plan, and with everything saved"

    def plot(self, ax) -> None:
        """Plot the live bytes of the plan on matplotlib axes, with a line for the live bytes if everything is saved."""
        self.timeline.plot(ax)
        self.timeline_baseline.outline(ax, self.timeline, "everything saved")
        ax.set(title=self.caption())

    def parts(self) -> Iterable[View]:
        yield Paragraph(self._headline_text())
        yield TextTable(
            self._table_cells(), self.certificate, numeric=("Saved", "Recomputed", "Peak predicted", "Peak compiled")
        )
        for lines, titles, text in (
            (self.saved_values, ["Saved", "Type", "Line"], bytes_text),
            (self.offloaded_values, ["Host memory", "Type", "Line"], bytes_text),
            (self.recomputed_values, ["Recomputed", "Op", "Position in backward", "Line"], count_text),
        ):
            if lines:
                yield TextTable(_line_table(lines, titles, text), numeric=titles[:1])
        yield Lines(["Live bytes with everything saved, then of the plan:"])
        yield from self.timeline_baseline.parts()
        yield from self.timeline.parts()

    def _headline_text(self) -> str:
        peak = self.measurement.peak_or_infinity
        of = f" of {bytes_text(self.limit)}" if self.limits_peak else ""
        saved = f"{bytes_text(self.saved_bytes)} saved"
        again = f"{self._cost_text(self.recomputed)} recomputed"
        if self._host is not None:
            saved += f", {bytes_text(self.host_bytes)} in host memory"
            again += " or waited for"
        return f"{self._linearized.trace.function}: {bytes_text(peak)}{of}, {saved}, {again}"

    def _table_cells(self) -> list[list[str]]:
        cells = [["", "Saved", "Recomputed", "Peak predicted", "Peak compiled"]]
        for candidate in self.trials:
            memory = candidate.measurement.memory if candidate.measurement else None
            fixed = memory.peak_bytes - memory.temp_bytes if memory else 0
            cells.append(
                [
                    "✓" if candidate is self._chosen else "",
                    bytes_text(candidate.schedule.saved_bytes),
                    self._cost_text(candidate.recompute_cost),
                    bytes_text(candidate.estimated_bytes + fixed),
                    bytes_text(candidate.peak_bytes) if memory else "does not fit",
                ]
            )
        return cells


class _State(NamedTuple):
    """The part of a result that is pickled. The programs are traced again."""

    call: GradientCall
    options: SearchOptions
    argnums: ArgNums
    structure: tuple[str, str]
    choices: list[StoredChoice]
    compiled: list[Compiled]
    chosen: int
    bound: float


class Decorated(NamedTuple):
    """Stand for a function whose name in its module means what a decorator made of it."""

    by: Any


def picklable_reference(f: Callable[..., Any]) -> Any:
    """Return a function, or `Decorated` in its place, which pickle finds by its name."""
    module = sys.modules.get(getattr(f, "__module__", None) or "")
    try:
        found = operator.attrgetter(getattr(f, "__qualname__", ""))(module)
    except AttributeError:
        return f
    return Decorated(found) if found is not f and getattr(found, "__wrapped__", None) is f else f


def reduce_wrapper(wrapper: Any, *arguments: Any) -> Any:
    """Return what `__reduce__` of a wrapper returns: its name, if its module has it in place of the function that it
    wraps, or else its type and the arguments to make it with.
    """
    found = picklable_reference(wrapper.__wrapped__)
    if isinstance(found, Decorated) and found.by is wrapper:
        return str(vars(wrapper)["__qualname__"])
    return type(wrapper), arguments


def _dump_pickle(state: _State) -> bytes:
    try:
        return pickle.dumps(state)
    except Exception as error:  # of the function, its static arguments, its cost or its devices
        raise PlanError(
            f"this plan cannot be pickled: {error}. Write its schedule with plan.save('schedule.json'), and load it "
            "with load_schedule('schedule.json', f)."
        ) from None


def _load_pickle(pickled: bytes) -> Auto:
    state: _State = pickle.loads(pickled)
    call, f = state.call, state.call.f
    f = f.by.__wrapped__ if isinstance(f, Decorated) else f
    call = call._replace(f=FunctionOfStatic(f) if has_static((call.args, call.kwargs)) else f)
    with outside_traces():
        search = state.options.search(call)
        if search.key[:2] != state.structure:
            raise PlanError(
                f"this plan was pickled for another version of {search.name}: its operations or shapes differ now, or "
                "JAX traces it differently. Let auto plan again."
            )
        for choice, made in zip(state.choices, state.compiled, strict=True):
            search.recall(choice, made)
    return Auto(search, search.compiled[state.chosen], state.options, state.bound, state.argnums)


def _makers_of_values(program: Program) -> dict[Value, Equation]:
    """Return the operation that computes each value; for a stack, the operation that computes its slices."""
    made = {v: e for e in program.equations for v in e.defines}
    for equation in program.equations:
        if equation.primitive == "scan":
            inside = _makers_of_values(equation.bodies[0])
            pairs = zip(equation.outputs, equation.bodies[0].outputs, strict=True)
            made.update((stack, inside[part]) for stack, part in pairs if part in inside)
    return made


def _by_line(found: Iterable[tuple[Equation | None, str, int, float | None]]) -> tuple[Line, ...]:
    """Return lines of equations with their texts, amounts and times; repeated modules of a line are merged."""
    alike: dict[tuple[Source | None, str], list[tuple[str, str, int, float | None]]] = {}
    for equation, text, amount, when in found:
        source, module = (equation.source, equation.module) if equation is not None else (None, "")
        alike.setdefault((source, numberless(module)), []).append((module, text, amount, when))
    lines = []
    for (source, _), group in alike.items():
        modules, texts, amounts, times = zip(*group, strict=True)
        known = [when for when in times if when is not None]
        span = (min(known), max(known)) if known else None
        lines.append(Line(source, each_of_common_path(modules), tuple(dict.fromkeys(texts)), sum(amounts), span))
    return tuple(sorted(lines, key=lambda line: -line.amount))


def _line_table(lines: tuple[Line, ...], titles: list[str], text: Callable[[int], str]) -> list[list[str]]:
    rows = [titles]
    for line in lines[:_LINES]:
        what = first_of(line.what, 4)
        when = [] if line.when is None else [_span_text(*line.when)]
        where = "\n".join(filter(None, [line.module, str(line.source or "input of a loop")]))
        rows.append([text(line.amount), what, *when, where])
    if len(lines) > _LINES:
        rest = text(sum(line.amount for line in lines[_LINES:])), f"{len(lines) - _LINES} more lines"
        rows.append([*rest, *[""] * (len(titles) - 2)])
    return rows


def _span_text(first: float, last: float) -> str:
    """`at 40 %`, or `at 3…88 %`, of a pass."""
    ends = dict.fromkeys(f"{100 * share:.0f}" for share in (first, last))
    return f"at {'…'.join(ends)} %"
