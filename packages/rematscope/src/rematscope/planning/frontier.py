"""`frontier(f, *args)`: every best trade of bytes kept for work done again, and the usual policies beside it."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax

from rematscope.choices.build import CostFunction, cost_again, work
from rematscope.choices.candidates import candidates
from rematscope.choices.enumeration import are_few
from rematscope.choices.recompute_graph import RecomputeGraph
from rematscope.errors import TraceError
from rematscope.ir import jax_internals
from rematscope.planning.points import Point, greedy_point, points_of_all, spread, unbeaten
from rematscope.planning.saved_names_matrix import SavedNamesMatrix
from rematscope.render.figure import INK
from rematscope.render.parts import Pictured, Stack, TextTable
from rematscope.render.progress import progress
from rematscope.render.theme import COLOURS
from rematscope.render.units import SECONDS, bytes_text, counted
from rematscope.render.view import View
from rematscope.seconds.devices import Device, cost_meant
from rematscope.tracing.arguments import with_own_options
from rematscope.tracing.checkpoints import called_once, with_policy
from rematscope.tracing.trace import Trace, trace

# JAX's policies without arguments, from keeping least to keeping most.
POLICIES = ("nothing_saveable", "dots_with_no_batch_dims_saveable", "dots_saveable", "everything_saveable")
_BYTES, _AMOUNTS = ("B", "KiB", "MiB", "GiB", "TiB"), ("", "k", "M", "G", "T", "P")


_SHOWN = 20  # points that the table shows


@with_own_options
def frontier(
    f: Callable[..., Any],
    *args: Any,
    cost: CostFunction | str = work,
    device: Device | str | None = None,
    **kwargs: Any,
) -> "Frontier":
    """Finds every choice that none beats: each other choice keeps more, or computes more again.

    Compared is what `plan` compares: all choices of names, alone and beside JAX's policies for products,
    `everything_saveable`, and the policy that `f` has now.

    Up to 16 names, all subsets are looked at. With more, a 0/1 program is solved for each point, which takes some
    hundredths of a second at 50 names and some tenths at 400. A bar shows how far it is. Interrupted, it returns what
    it has found.

    Beside them lie JAX's policies and the one that `f` has now, as real traces say, and greedy choice: one name after
    another, always that which spares most per byte beside those chosen, as long as it fits.

    Args:
      f: a function that is differentiable in reverse mode, and may give values names with `checkpoint_name`. It is not
        run. Its checkpoints stay where they are; if it has none, one is put around all of it.
      *args, **kwargs: its arguments, as for `trace`.
      cost: what computing an equation again takes: a function of an `Equation`. FLOPs, and one for each element that a
        transcendental function is applied to, by default. `"seconds"` for a roofline of `device`; see `estimate_time`.
      device: with `cost="seconds"`, the name of a device such as `"tpu v5e"`, a `Device`, or `calibrate()`.

    Returns:
      The points, with bytes of computed residuals that are kept and the cost of what is computed again.

    Raises:
      TraceError, PlanError: as `recompute_graph` does, and PlanError if only one of `cost="seconds"` and `device` is
        given.
      TargetError: if no device has that name.

    Example:
      >>> import jax.numpy as jnp
      >>> from jax.ad_checkpoint import checkpoint_name
      >>> from rematscope import frontier
      >>> def f(x, w, u):
      ...     return jnp.sin(checkpoint_name(x @ w, "h") @ u)
      >>> found = frontier(f, jnp.ones((8, 64)), jnp.ones((64, 256)), jnp.ones((256, 64)))
      >>> [(point.nbytes, point.names) for point in found.points]
      [(0, ()), (8192, ('h',)), (10240, ())]
      >>> found.points[-1].with_policy
      'dots_with_no_batch_dims_saveable'
    """
    __tracebackhide__ = True
    meant = cost_meant(cost, device)
    f = called_once(f, args, kwargs)
    compared = candidates(f, *args, cost=meant, **kwargs)
    graph = compared[0].graph

    def measured(label: str, planned: Callable[..., Any]) -> Point | None:
        try:
            with jax_internals.default_remat():
                return point_of(trace(planned, *args, **kwargs), label, meant)
        except (TypeError, NotImplementedError, TraceError):
            return None  # JAX cannot save some values under this policy, complex ones among them

    points_of = {label: measured(label, with_policy(f, getattr(jax.checkpoint_policies, label))) for label in POLICIES}
    presets = [point for point in points_of.values() if point is not None]
    refused = [label for label, point in points_of.items() if point is None]
    current = measured(f"{graph.trace.function} as it is", f) if graph.policies else None
    found: list[Point] = []
    greedy: dict[int, Point] = {}
    complete = False
    try:
        with progress(total=1, after=1) as tell:
            for point, share in points_of_all(compared):
                found.append(point)
                tell(f"{len(found)} points", share)
            points = tuple(unbeaten(found))
            budgets = [points[i].nbytes for i in spread(len(points), len(points) if are_few(graph) else _SHOWN)]
            evaluate = functools.cache(graph.evaluate)
            for budget in budgets if graph.names else ():
                greedy[budget] = greedy_point(graph, evaluate, budget)
                tell("greedy", len(greedy) / len(budgets))
            complete = True
    except KeyboardInterrupt:
        if not found:
            raise
    return Frontier(graph, list(unbeaten(found)), presets, greedy, current, complete, refused)


def point_of(passes: Trace, label: str, cost: CostFunction = work) -> Point:
    """What a trace keeps and computes again, under a label."""
    kept = {r.value: r for r in passes.residuals if r.kind == "computed" and r.memory == "device"}
    names = dict.fromkeys(r.name for r in kept.values() if r.name)
    again = cost_again(passes, cost)
    return Point(sum(r.device_bytes for r in kept.values()), again, tuple(names), label)


class Frontier(Pictured):
    """Every choice that none beats, by rising bytes. Displays itself as a picture with its numbers.

    Attributes:
      points: the choices; each keeps more and computes less again than the one before.
      presets: JAX's policies, each as a real trace with it says.
      greedy: bytes that a point keeps → what greedy choice makes of as many.
      current: `f` with the policies that it has, as a real trace says; None if it has none.
      complete: False if the search was interrupted: then there may be points between those found.
      refused: the policies under which JAX cannot differentiate the function, such as on complex values.
      graph: what the backward pass computes again for other choices; `graph.evaluate(names)` gives bytes and cost.
    """

    size = 8.5, 3.6

    def __init__(
        self,
        graph: RecomputeGraph,
        points: Sequence[Point],
        presets: Sequence[Point],
        greedy: dict[int, Point],
        current: Point | None,
        complete: bool,
        refused: Sequence[str] = (),
    ):
        self.graph = graph
        self.refused = tuple(refused)
        self.points = tuple(points)
        self.presets = tuple(presets)
        self.greedy = greedy
        self.current = current
        self.complete = complete

    @property
    def labelled(self) -> tuple[Point, ...]:
        """All that is no point of the frontier itself."""
        return (*self._policies, *self.greedy.values())

    @property
    def _policies(self) -> tuple[Point, ...]:
        return self.presets if self.current is None else (*self.presets, self.current)

    def within(self, nbytes: int) -> Point | None:
        """The point that computes least again among those that keep no more than `nbytes`; None if all keep more."""
        return next((point for point in reversed(self.points) if point.nbytes <= nbytes), None)

    @functools.cached_property
    def matrix(self) -> SavedNamesMatrix:
        """Which names each point saves."""
        return SavedNamesMatrix(self.graph.names, self.points)

    def plot(self, ax: Any) -> None:
        """Draws the frontier as steps on matplotlib axes, and the labelled points as marks."""
        everything = (*self.points, *self.labelled)
        most = max(point.nbytes for point in everything)
        worst = max(point.cost for point in everything) or 1
        unit, letter = bytes_text(most).split()[1], self.graph.amount(worst).partition(" ")[2]
        scale = 1024 ** _BYTES.index(unit)
        again = SECONDS[letter] if self.graph.device else 1000 ** _AMOUNTS.index(letter)

        def marks(points: Iterable[Point], style: str, **how: Any) -> None:
            ax.plot([p.nbytes / scale for p in points], [p.cost / again for p in points], style, **how)

        steps = [*self.points, dataclasses.replace(self.points[-1], nbytes=most)]
        ax.step([p.nbytes / scale for p in steps], [p.cost / again for p in steps], where="post", color=_BLUE)
        marks(self.points, "o", color=_BLUE, markersize=3.5, label="best choices")
        if self.greedy:
            marks(self.greedy.values(), "x", color=_PINK, markersize=6, label="greedy")
        for point, style in zip(self.presets, "vsD^", strict=False):
            marks([point], style, color=_ORANGE, markeredgecolor=INK, markersize=8, label=point.label)
        if self.current is not None:
            marks([self.current], "*", color="#f0e442", markeredgecolor=INK, markersize=15, label=self.current.label)
        ax.set(xlabel=f"saved ({unit})", ylabel=f"recomputed ({letter})".replace(" ()", ""))
        ax.set(title=f"{self.graph.trace.function}: recompute against saved bytes")
        ax.set(
            xlim=(-0.03 * most / scale, 1.03 * most / scale or 1), ylim=(-0.04 * worst / again, 1.06 * worst / again)
        )
        ax.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize="small")

    def parts(self) -> Iterable[View]:
        numeric = ("Names", "Saved", "Recomputed", "% of full recompute", "Best at these bytes")
        tables = [TextTable(rows, line, numeric) for rows, line in (self._rows(), self._labelled_rows())]
        return [Stack(*tables, self.matrix)]

    def caption(self) -> str:
        found, of = len(self.points), len(self.graph.names)
        what = f"its {counted(of, 'name')} and of policies" if of else "policies, as it has no names to choose,"
        text = f"{self.graph.trace.function}: {counted(found, 'choice')} of {what} that are Pareto-optimal"
        if self.graph.uncounted:
            text += f" by what is counted: {self.graph.uncounted_text}"
        text += f"; bytes{self.graph.trace.per_device_text}" if self.graph.trace.axes else ""
        text += self.graph.weighing
        return text if self.complete else f"{text}, before the search was interrupted: there may be more between"

    def _rows(self) -> tuple[list[list[str]], str]:
        rows = [["Point", "Names", "Policy", "Saved", "Recomputed", "% of full recompute"]]
        worst = self.points[0].cost or 1
        shown = spread(len(self.points), _SHOWN)
        for i in shown:
            point = self.points[i]
            amounts = bytes_text(point.nbytes), self.graph.amount(point.cost), f"{100 * point.cost / worst:.1f} %"
            rows.append([str(i + 1), str(len(point.names)), point.with_policy, *amounts])
        left_out = "" if len(shown) == len(self.points) else f"; {len(shown)} of them are shown, .points has all"
        return rows, self.caption() + left_out

    def _labelled_rows(self) -> tuple[list[list[str]], str]:
        rows, line = self._compared_rows()
        if self.refused:
            why = f"JAX cannot differentiate the function under {', '.join(self.refused)}"
            line = f"{line}; {why}" if line else why
        return rows, line

    def _compared_rows(self) -> tuple[list[list[str]], str]:
        rows = [["For comparison", "Names", "Saved", "Recomputed", "Best at these bytes"]]
        for point in self._policies:
            best = self.within(point.nbytes)
            other = "all save more" if best is None else self.graph.amount(best.cost)
            names = str(len(point.names)) if point is self.current else ""
            rows.append([point.label, names, bytes_text(point.nbytes), self.graph.amount(point.cost), other])
        if not self.greedy:
            return rows, ""
        best_of = {point.nbytes: point for point in self.points}
        behind = {budget: point.cost - best_of[budget].cost for budget, point in self.greedy.items()}
        budget = max(behind, key=behind.__getitem__)
        if behind[budget] <= 0:
            said = "as good ones, by what is counted," if self.graph.uncounted else "the best too,"
            return rows, f"greedy finds {said} within the bytes of each point"
        point, best = self.greedy[budget], best_of[budget]
        label, names = f"greedy within {bytes_text(budget)}", str(len(point.names))
        rows.append(
            [label, names, bytes_text(point.nbytes), self.graph.amount(point.cost), self.graph.amount(best.cost)]
        )
        return rows, "greedy is shown where it is farthest from the best; the rest is in .greedy"


_BLUE, _ORANGE, _PINK = (COLOURS[letter] for letter in "SRD")
