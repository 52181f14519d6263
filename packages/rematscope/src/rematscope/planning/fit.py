"""`fit(f, *args, peak=…)`: the names to save so that the compiled program fits in a device's memory."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rematscope.choices.build import CostedCall, CostFunction, work
from rematscope.choices.candidates import AS_IT_IS, PolicyCandidate, candidates, is_left_out
from rematscope.errors import PlanError
from rematscope.memory.estimate_warning import estimate_warning
from rematscope.memory.xla_estimate.estimate import estimate_compiled_bytes
from rematscope.planning.budget import budget_bytes, least_of, most_of
from rematscope.planning.plan import Plan, best_plan, plan_as_written
from rematscope.render.html import html_table
from rematscope.render.parts import Paragraph, TextTable
from rematscope.render.progress import progress
from rematscope.render.units import bytes_text, counted, difference_text
from rematscope.render.view import View
from rematscope.seconds.devices import Device, device_called, resolve_cost
from rematscope.seconds.roofline import TimeEstimate, estimate_time
from rematscope.tracing.entry_points import with_own_options
from rematscope.xla.compiling import check_target, usual_spelling
from rematscope.xla.measure import Measurement, measure


@dataclasses.dataclass(frozen=True)
class CompiledPlan:
    """A plan and its compiled program.

    Attributes:
      plan: the best names for some number of saved bytes.
      measurement: the compiled program of the planned function, or the compiler's message that it does not fit.
      seconds: the time of both passes, or of the step, by a roofline; None without a device.
    """

    plan: Plan
    measurement: Measurement
    seconds: TimeEstimate | None = None

    @property
    def peak_bytes(self) -> float:
        """The peak memory of the compiled program in bytes; infinite if it does not fit on the device."""
        return self.measurement.peak_or_infinity

    @property
    def predicted_bytes(self) -> int:
        """The peak memory in bytes, estimated from the trace."""
        return self.measurement.predicted_peak_bytes


class Fit(View):
    """The best plan that fits in memory, and all plans that were compiled to find it.

    It is displayed as text in a terminal and as HTML in a notebook.

    Attributes:
      limit: the limit on the compiled peak, in bytes.
      target: the device that the plans were compiled for.
      chosen: the best compiled plan that fits; None if no plan fits in the target's memory.
      above: the next better plan, which does not fit; None if `chosen` saves everything useful.
      trials: all compiled plans, by increasing saved bytes.
    """

    def __init__(
        self,
        limit: int,
        target: str,
        chosen: CompiledPlan | None,
        above: CompiledPlan | None,
        trials: Iterable[CompiledPlan],
    ):
        self.limit = limit
        self.target = target
        self.chosen = chosen
        self.above = above
        self.trials = sorted(trials, key=lambda trial: trial.plan.saved_bytes)

    @property
    def plan(self) -> Plan:
        """The best plan that fits.

        Raises:
          PlanError: if no plan fits.
        """
        if self.chosen is None:
            raise PlanError(f"{self._headline_text()}. {self._advice_text()}")
        return self.chosen.plan

    @property
    def policy(self) -> Callable[..., Any]:
        """The policy to pass to `jax.checkpoint`.

        Raises:
          PlanError: if no plan fits; or if the function fits as written without checkpoints, since a checkpoint around
            it could need more memory.
        """
        if self.plan.needs_no_checkpoint:
            raise PlanError(
                f"{self._function_name} fits as written, and a checkpoint with a policy may take more memory. Use it "
                "as written: .plan.planned."
            )
        return self.plan.policy

    @property
    def names(self) -> tuple[str, ...]:
        """The names to save, in program order."""
        return self.plan.names

    def parts(self) -> Iterable[View]:
        cells = self._table_cells()
        return [
            Paragraph(self._headline_text()),
            TextTable(cells, "\n".join(self._list_notes()), numeric=cells[0][1:-1]),
        ]

    def html(self) -> str:
        cells = self._table_cells()
        return html_table(cells, " ".join([f"{self._headline_text()}.", *self._list_notes()]), numeric=cells[0][1:-1])

    @property
    def _function_name(self) -> str:
        return self.trials[0].plan.graph.trace.function

    @staticmethod
    def _is_as_written(plan: Plan) -> bool:
        return plan.with_policy == AS_IT_IS

    def _headline_text(self) -> str:
        name = f"{self._function_name}{self.trials[0].plan.trace.mode_text}"
        if self.chosen is None:
            return f"{name} does not fit into the memory of a {usual_spelling(self.target)} with any plan"
        return f"{name}, compiled for {self.target}: {bytes_text(self.chosen.peak_bytes)} of {bytes_text(self.limit)}"

    def _table_cells(self) -> list[list[str]]:
        timed = ["Recompute time", "Share of time"] if self.trials[0].seconds else []
        cells = [["", "Names", "Saved", *timed, "Peak predicted", "Peak compiled", "Error", ""]]
        saved = [bytes_text(trial.plan.saved_bytes) for trial in self.trials]
        for trial, nbytes in zip(self.trials, saved, strict=True):
            plan, predicted = trial.plan, trial.predicted_bytes
            if trial.seconds:
                timed = trial.seconds.recompute_texts
            cells.append(
                [
                    "✓" if trial is self.chosen else "",
                    "as written" if self._is_as_written(plan) else str(len(plan.names)),
                    nbytes,
                    *timed,
                    bytes_text(predicted),
                    *self._compiled_cells(predicted, trial.measurement),
                ]
            )
        return cells

    def _advice_text(self) -> str:
        words = [full for trial in self.trials if (full := trial.measurement.out_of_memory) is not None]
        smallest = min(words, key=lambda full: full.needed_bytes or math.inf)
        return f"{smallest.text}. Put checkpoints around smaller parts, or reduce the batch size."

    def _compiled_cells(self, predicted: int, measurement: Measurement) -> list[str]:
        if (full := measurement.out_of_memory) is not None:
            needed = "" if full.needed_bytes is None else f": needs {bytes_text(full.needed_bytes)}"
            of = "" if full.available_bytes is None else f" of {bytes_text(full.available_bytes)}"
            return ["–", "", f"does not fit{needed}{of}"]
        compiled = measurement.peak_or_infinity
        error = difference_text((predicted - compiled) / compiled) if compiled else ""
        fits = "fits" if compiled <= self.limit else f"{bytes_text(compiled - self.limit)} over"
        return [bytes_text(compiled), error, fits]

    def _list_notes(self) -> list[str]:
        """Return what the figures are, and how accurate they are."""
        if self.chosen is None:
            return [self._advice_text()]
        if self._is_as_written(self.plan):
            notes = [f"{self._function_name} fits as written: change nothing."]
        elif self.names or not self.plan.with_policy:
            policy = self.plan.with_policy
            more = f", in addition to what the policy {policy} saves" if policy else ""
            notes = [f"Save {', '.join(self.names) or 'no name'}{more}."]
        else:
            notes = [f"Save what the policy {self.plan.with_policy} saves."]
        compiled = [trial for trial in self.trials if not trial.measurement.out_of_memory]
        planned = [trial for trial in compiled if not self._is_as_written(trial.plan)] or compiled
        first, last = planned[0], planned[-1]
        if saved := last.plan.saved_bytes - first.plan.saved_bytes:
            slope = (last.peak_bytes - first.peak_bytes) / saved
            way = "larger" if slope >= 0 else "smaller"
            notes.append(f"Per additional saved byte, the compiled peak is {abs(slope):.2f} bytes {way}.")
        if self.plan.graph.uncounted:
            notes.append(f"As {self.plan.graph.uncounted_text}, another choice may recompute less.")
        what = "both passes with their arguments, outputs and gradients, without optimizer state"
        if self.plan.trace.step is not None:
            what = "the step as written"
        if compiled[0].seconds:
            notes.append(f"Times are estimated by a roofline of {compiled[0].seconds.device}.")
        notes += [doubt] if (doubt := estimate_warning(self.plan.trace, self.chosen.predicted_bytes)) else []
        notes.append(
            f"The predicted peak is an estimate from the trace and from what XLA fuses; the compiled peak is of {what}."
        )
        return notes


@with_own_options
def fit(
    f: Callable[..., Any],
    *args: Any,
    peak: int | str,
    target: str = "cpu",
    cost: CostFunction | str = work,
    device: Device | str | None = None,
    **kwargs: Any,
) -> Fit:
    """Choose what to save so that the compiled program fits in memory and recomputes as little as possible.

    The limit applies to the peak memory of the compiled program, which also includes arguments, outputs, gradients and
    temporaries. This peak can even fall if more is saved. So `fit` compiles:

    * `f` as written, unless one of the plans is the same. `fit` chooses `f` as written if it fits and no plan that fits
      recomputes noticeably less (by more than 1 % of the recompute with nothing saved).
    * the plans that save the most and the least, then plans in between, by linear interpolation of the peak (regula
      falsi), until one plan fits and the next better one does not. If the plan that saves the least does not fit, `fit`
      tries plans in between by increasing predicted peak. Finally, `fit` compiles plans that save more than the best
      one so far but have no larger predicted peak, by decreasing saved bytes, until one fits.

    For a training step, `fit` compiles the whole step.

    Args:
      f: a function that is differentiable in reverse mode, as for `plan`, or a training step. It is compiled, not run.
      *args, **kwargs: the arguments of `f`, as for `trace`.
      peak: the limit on the compiled peak in bytes: an integer, or a string such as `"16 GB"`.
      target: the device to compile for, as for `measure`.
      cost: the recompute cost to minimize, as for `plan`.
      device: the name of a device such as `"tpu v5e"`, a `Device`, or the result of `calibrate()`. Whatever the `cost`,
        the view also shows the recompute time of each plan; see `estimate_time`.

    Returns:
      The best plan that fits, and all plans that were compiled. If the compiler reports that none of the plans fits in
      the target's memory, `.chosen` is None.

    Raises:
      PlanError: if the peak of every compiled plan exceeds the limit, or if `peak` or `cost` is not valid.
      TraceError, TargetError: as for `measure`.

    Example:
      >>> import jax.numpy as jnp
      >>> from jax.ad_checkpoint import checkpoint_name
      >>> from rematscope import fit
      >>> def f(x, w, u):
      ...     return jnp.sin(checkpoint_name(x @ w, "h") @ u)
      >>> found = fit(f, jnp.ones((8, 64)), jnp.ones((64, 256)), jnp.ones((256, 64)), peak="1 MiB")
      >>> found.plan.with_policy, found.chosen.peak_bytes <= found.limit
      ('as written', True)
    """
    __tracebackhide__ = True
    limit = budget_bytes(peak, "peak")
    check_target(target)
    rates = None if device is None else device_called(device)
    # A device without cost="seconds" only adds times to the view.
    meant = resolve_cost(cost, device if isinstance(cost, str) and cost == "seconds" else None)
    call = CostedCall(f, args, kwargs, meant)
    compared = candidates(call)
    planned = tuple(candidate for candidate in compared if candidate.label != AS_IT_IS)
    search = _Search(call, planned, limit, target, rates)
    written: CompiledPlan | None = None
    # Checkpoints that save nothing, or names alone, are among the plans.
    if len(planned) < len(compared) or is_left_out(compared):
        written = search.compile(plan_as_written(call, compared), "it as written")
    # A lower recompute than this is not noticed, and is not worth a change.
    slack = _UNNOTICED * compared[0].graph.evaluate(())[1]
    fits_as_written = written is not None and written.peak_bytes <= limit
    if written and fits_as_written and written.plan.cost <= slack:
        return Fit(limit, target, written, None, [written])
    found = search.run()
    plans = [*search.compiled.values()]
    tried = [*([written] if written else []), *plans]
    if found is None:
        if fits_as_written:
            return Fit(limit, target, written, min(plans, key=_saved_bytes), tried)
        return _nothing_fits(compared[0].graph.trace.function, limit, target, tried)
    fits, above = found
    if written and fits_as_written and written.plan.cost <= fits.plan.cost + slack:
        fits = written
    return Fit(limit, target, fits, above, tried)


class _Search:
    """Compiles plans until one fits.

    Attributes:
      compiled: the compiled plans, by their saved bytes.
    """

    def __init__(
        self, call: CostedCall, planned: Sequence[PolicyCandidate], limit: int, target: str, rates: Device | None
    ):
        self._call, self._planned = call, planned
        self._limit, self._target, self._rates = limit, target, rates
        self.compiled: dict[int, CompiledPlan] = {}

    def run(self) -> tuple[CompiledPlan, CompiledPlan | None] | None:
        """Return the best plan that fits, and the next better one, which does not; None if none fits."""
        least, most = least_of(self._planned), most_of(self._planned)
        above = self._compile_within(most)
        if self._does_fit(above):
            return above, None
        fits = self._compile_within(least)
        if not self._does_fit(fits):
            tried = (self._compile_within(made.saved_bytes) for made in self._plans_between(least, most))
            fits = next(filter(self._does_fit, tried), fits)
        if not self._does_fit(fits):
            return None
        fits, above = _search_boundary(self._compile_within, fits, above, self._limit)
        return self._search_beyond(fits, above, most) or (fits, above)

    def compile(self, made: Plan, what: str) -> CompiledPlan:
        """Compile a plan; `what` names it while it is compiled."""
        with progress() as tell:
            tell(f"compiling {what}", 0)
            measured = measure(made.planned, *self._call.args, target=self._target, **self._call.kwargs)
            seconds = None if self._rates is None else estimate_time(measured.trace, self._rates)
            return CompiledPlan(made, measured, seconds)

    def _does_fit(self, plan: CompiledPlan) -> bool:
        return plan.peak_bytes <= self._limit

    def _best_plan(self, saved: int) -> Plan:
        return best_plan(self._call, self._planned, saved)

    def _compile_within(self, saved: int) -> CompiledPlan:
        """Return the best plan within so many saved bytes, compiled."""
        made = self._best_plan(saved)
        if made.saved_bytes not in self.compiled:
            self.compiled[made.saved_bytes] = self.compile(made, f"with {bytes_text(made.saved_bytes)} saved")
        return self.compiled[made.saved_bytes]

    def _plans_between(self, least: int, most: int) -> list[Plan]:
        """Return a few plans that save more than `least` and less than `most`, the smallest estimated peak first."""
        found: list[Plan] = []
        for look in range(_LOOKS, 0, -1):
            saved = least + (most - least) * look // (_LOOKS + 1)
            # The best plan of a larger budget that fits into this one is the best plan here too.
            if not found or found[-1].saved_bytes > saved:
                found.append(self._best_plan(saved))
        plans = {made.saved_bytes: made for made in found if least < made.saved_bytes < most}
        return sorted(plans.values(), key=self._estimated_bytes)

    def _estimated_bytes(self, made: Plan) -> int:
        return estimate_compiled_bytes(made.trace, self._target)

    def _search_beyond(
        self, fits: CompiledPlan, above: CompiledPlan, most: int
    ) -> tuple[CompiledPlan, CompiledPlan] | None:
        """Return the boundary above a larger plan that fits too: the peak need not rise with the saved bytes."""
        estimated = fits.predicted_bytes
        for made in sorted(self._plans_between(_saved_bytes(above), most), key=lambda made: -made.saved_bytes):
            if self._estimated_bytes(made) <= estimated and self._does_fit(self._compile_within(made.saved_bytes)):
                better = [one for one in self.compiled.values() if one.plan.saved_bytes > made.saved_bytes]
                larger = min(better, key=_saved_bytes)
                return _search_boundary(
                    self._compile_within, self._compile_within(made.saved_bytes), larger, self._limit
                )
        return None


_UNNOTICED = 0.01  # a negligible share of the recompute with nothing saved: run times vary by as much
_LOOKS = 6  # the number of plans to try between two plans, because the peak need not rise with the saved bytes


def _saved_bytes(trial: CompiledPlan) -> int:
    return trial.plan.saved_bytes


def _search_boundary(
    attempt: Callable[[int], CompiledPlan], fits: CompiledPlan, above: CompiledPlan, limit: int
) -> tuple[CompiledPlan, CompiledPlan]:
    """Return the best plan that fits and the next larger one, which does not, with no plan in between."""
    while True:
        least, most = _saved_bytes(fits), _saved_bytes(above)
        rise = above.peak_bytes - fits.peak_bytes
        part = (limit - fits.peak_bytes) / rise if math.isfinite(rise) else 0.5
        trial = attempt(min(int(least + part * (most - least)), most - 1))
        if _saved_bytes(trial) <= least:  # no other plan lies below the line's guess; one may lie above
            trial = attempt(most - 1)
            if _saved_bytes(trial) <= least:
                return fits, above
        if trial.peak_bytes <= limit:
            fits = trial
        else:
            above = trial


def _nothing_fits(function: str, limit: int, target: str, trials: list[CompiledPlan]) -> Fit:
    least = min(trials, key=lambda trial: trial.peak_bytes)
    if math.isinf(least.peak_bytes):
        return Fit(limit, target, None, None, trials)
    raise PlanError(
        f"{function} does not fit into {bytes_text(limit)} on {target}. Of "
        f"{counted(len(trials), 'compiled program')}, the smallest peak is {bytes_text(least.peak_bytes)}, "
        f"{bytes_text(least.peak_bytes - limit)} too much. Put checkpoints around smaller parts, or reduce the "
        "batch size."
    )
