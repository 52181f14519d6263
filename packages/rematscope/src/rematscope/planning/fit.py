"""`fit(f, *args, budget=…)`: the names to save so that the compiled program fits into a device's memory."""

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any

from rematscope.choices.build import recompute_graph
from rematscope.errors import PlanError, TooLargeError
from rematscope.memory.liveness import live_bytes
from rematscope.planning.budget import budget_bytes
from rematscope.planning.plan import Plan, best_plan
from rematscope.render.html import html_table
from rematscope.render.parts import Paragraph, TextTable
from rematscope.render.progress import progress
from rematscope.render.units import bytes_text
from rematscope.render.view import View
from rematscope.xla.measure import Measurement, measure


@dataclasses.dataclass(frozen=True)
class CompiledPlan:
    """A plan and what XLA made of it.

    Attributes:
      plan: the best names for some number of saved bytes.
      measurement: its planned function, compiled; None if the compiler finds no room for it.
    """

    plan: Plan
    measurement: Measurement | None

    @property
    def peak_bytes(self) -> float:
        """Bytes that the compiled program takes while it runs; infinite if there is no room for it."""
        return math.inf if self.measurement is None else self.measurement.peak_bytes

    @property
    def predicted_bytes(self) -> int:
        """Bytes that are live at the peak of the trace."""
        timeline = live_bytes(self.plan.passes) if self.measurement is None else self.measurement.predicted
        return timeline.peak_bytes


class Fit(View):
    """The largest plan that fits, and what was compiled to find it. Displays itself.

    Attributes:
      budget: bytes of the device that the program may take.
      target: what was compiled for.
      chosen: what fits.
      above: the next better plan, which does not fit; None if `chosen` saves all that is of use.
      trials: all that was compiled, by rising bytes saved.
    """

    def __init__(
        self, budget: int, target: str, chosen: CompiledPlan, above: CompiledPlan | None, trials: list[CompiledPlan]
    ):
        self.budget = budget
        self.target = target
        self.chosen = chosen
        self.above = above
        self.trials = sorted(trials, key=lambda trial: trial.plan.saved_bytes)

    @property
    def plan(self) -> Plan:
        """The largest plan that fits."""
        return self.chosen.plan

    @property
    def policy(self) -> Callable[..., Any]:
        """What to give to `jax.checkpoint`, as `policy=`."""
        return self.plan.policy

    @property
    def names(self) -> tuple[str, ...]:
        """The names to save, in the order of the program."""
        return self.plan.names

    def parts(self) -> Iterable[View]:
        cells = self._cells()
        return [Paragraph(self._headline()), TextTable(cells, "\n".join(self._notes()), numeric=cells[0][1:6])]

    def html(self) -> str:
        return html_table(self._cells(), " ".join([f"{self._headline()}.", *self._notes()]))

    def _headline(self) -> str:
        name = self.plan.graph.passes.function
        return f"{name}, compiled for {self.target}: {bytes_text(self.chosen.peak_bytes)} of {bytes_text(self.budget)}"

    def _cells(self) -> list[list[str]]:
        cells = [["", "names", "saved", "peak predicted", "compiled", "error", ""]]
        for trial in self.trials:
            plan, predicted = trial.plan, trial.predicted_bytes
            cells.append(
                [
                    "✓" if trial is self.chosen else "",
                    str(len(plan.names)),
                    bytes_text(plan.saved_bytes),
                    bytes_text(predicted),
                    *self._compiled(predicted, trial.measurement),
                ]
            )
        return cells

    def _compiled(self, predicted: int, measurement: Measurement | None) -> list[str]:
        if measurement is None:
            return ["–", "", "no room to compile it"]
        compiled = measurement.peak_bytes
        error = f"{100 * (predicted - compiled) / compiled:+.1f} %".replace("-", "−")
        fits = "fits" if compiled <= self.budget else f"{bytes_text(compiled - self.budget)} too much"
        return [bytes_text(compiled), error, fits]

    def _notes(self) -> list[str]:
        """What the figures are, and how far they can be trusted."""
        chosen = ", ".join(self.names) or "no name"
        notes = [f"Save {chosen}."]
        compiled = [trial for trial in self.trials if trial.measurement is not None]
        first, last = compiled[0], compiled[-1]
        if saved := last.plan.saved_bytes - first.plan.saved_bytes:
            slope = (last.peak_bytes - first.peak_bytes) / saved
            notes.append(f"A byte more that is saved made the compiled peak {slope:.2f} bytes larger.")
        if self.plan.graph.uncounted:
            notes.append(f"As {self.plan.graph.uncounted_text}, another choice may compute less again.")
        what = "both passes with their arguments, outputs and gradients, without what an optimizer keeps"
        if self.plan.passes.step is not None:
            what = "the step as it stands"
        notes.append(
            f"The peak predicted is that of the trace, in which nothing is fused or moved; the compiled one is {what}."
        )
        return notes


def fit(f: Callable[..., Any], *args: Any, budget: int | str, target: str = "cpu", **kwargs: Any) -> Fit:
    """Chooses the names to save so that the compiled program fits into `budget` and computes least again.

    Bytes saved are not bytes taken: the compiled peak has arguments, outputs, gradients and temporaries in it as well.
    So plans are compiled: the smallest, the largest, and then the one that lies where a line through the nearest two
    peaks meets the budget, until one fits and the next better one does not. What a compiler finds no room for at all
    does not fit.

    Args:
      f: a function, as for `plan`. It is compiled, and not run.
      *args, **kwargs: its arguments, as for `trace`.
      budget: bytes of the device that the program may take: a whole number, or a text like `"16 GB"`.
      target: what to compile for, as for `measure`.

    Returns:
      The best plan that fits, with every one that was compiled on the way.

    Raises:
      PlanError: if even the smallest plan does not fit, or there is nothing to choose.
      TraceError, TargetError: as `measure` does.

    Example:
      >>> import jax.numpy as jnp
      >>> from jax.ad_checkpoint import checkpoint_name
      >>> from rematscope import fit
      >>> def f(x, w, u):
      ...     return jnp.sin(checkpoint_name(x @ w, "h") @ u)
      >>> found = fit(f, jnp.ones((8, 64)), jnp.ones((64, 256)), jnp.ones((256, 64)), budget="1 MiB")
      >>> found.names, found.chosen.peak_bytes <= found.budget
      (('h',), True)
    """
    __tracebackhide__ = True
    limit = budget_bytes(budget)
    graph = recompute_graph(f, *args, **kwargs)
    trials: dict[int, CompiledPlan] = {}

    def attempt(saved: int) -> CompiledPlan:
        made = best_plan(f, graph, saved, args, kwargs)
        if made.saved_bytes not in trials:
            with progress() as tell:
                tell(f"compiling with {bytes_text(made.saved_bytes)} saved", 0)
                try:
                    measurement = measure(made.planned, *args, target=target, **kwargs)
                except TooLargeError:
                    if made.saved_bytes == graph.least_bytes:
                        raise
                    measurement = None
                trials[made.saved_bytes] = CompiledPlan(made, measurement)
        return trials[made.saved_bytes]

    fits = attempt(graph.least_bytes)
    if fits.peak_bytes > limit:
        raise PlanError(
            f"{graph.passes.function} takes {bytes_text(fits.peak_bytes)} for {target} even with as little saved as "
            f"can be, {bytes_text(fits.peak_bytes - limit)} more than {bytes_text(limit)}. Put checkpoints around "
            "smaller parts, or make the batch smaller."
        )
    above = attempt(graph.evaluate(graph.names)[0])
    if above.peak_bytes <= limit:
        return Fit(limit, target, above, None, list(trials.values()))
    while True:
        least, most = fits.plan.saved_bytes, above.plan.saved_bytes
        part = (limit - fits.peak_bytes) / (above.peak_bytes - fits.peak_bytes) if above.measurement else 0.5
        trial = attempt(min(int(least + part * (most - least)), most - 1))
        if trial is fits:  # no other plan lies below the line's guess; one may lie above
            trial = attempt(most - 1)
            if trial is fits:
                return Fit(limit, target, fits, above, list(trials.values()))
        if trial.peak_bytes <= limit:
            fits = trial
        else:
            above = trial
