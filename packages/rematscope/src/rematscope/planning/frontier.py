"""`frontier(f, *args)`: the Pareto front of saved bytes and recompute, compared with JAX's policies."""

import dataclasses
import functools
import itertools
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax

from rematscope.choices.build import CostedCall, CostFunction, recompute_cost_of, work
from rematscope.choices.candidates import MATMUL_POLICIES, candidates
from rematscope.choices.enumeration import are_few
from rematscope.choices.recompute_graph import RecomputeGraph
from rematscope.errors import TraceError
from rematscope.planning.points import Point, greedy_point, pareto_front, points_of_all, spread_indices
from rematscope.render.html import escaped, page
from rematscope.render.parts import Lines, Pictured, Stack, TextTable
from rematscope.render.progress import progress
from rematscope.render.theme import COLOURS, KINDS, PLOT_INK
from rematscope.render.units import BYTES, SECONDS, THOUSANDS, bytes_text, counted, first_of
from rematscope.render.view import View
from rematscope.seconds.devices import Device, resolve_cost
from rematscope.tracing.checkpoints import called_once, with_policy
from rematscope.tracing.entry_points import with_own_options
from rematscope.tracing.trace import Trace, trace

_COLUMNS, _MOST_COLUMNS = 72, 500  # points that the matrix shows, as text and in a notebook


class SavedNamesMatrix(View):
    """The names that each point saves: one row per name, one column per point, by increasing bytes.

    Attributes:
      rows: maps each name, and each policy that names are combined with, to a tuple that says for each point whether
        the point saves the name or uses the policy.
    """

    def __init__(self, names: Sequence[str], points: Sequence[Point]):
        self.rows = {name: tuple(name in point.names for point in points) for name in names}
        for label in dict.fromkeys(point.with_policy for point in points if point.with_policy):
            self.rows[f"policy {label}"] = tuple(point.with_policy == label for point in points)
        self._count = len(points)

    def parts(self) -> Iterable[View]:
        return [Lines(self._matrix_lines())]

    def html(self) -> str:
        shown = spread_indices(self._count, _MOST_COLUMNS)
        style = 'style="white-space: pre; text-align: left"'
        (_, scale), *body = self._matrix_cells(shown)
        lines = [f'<tr><th scope="col">saved</th><th scope="col" {style}>{scale}</th></tr>']
        for names, marks in body:
            lines.append(f'<tr><th scope="row">{escaped(", ".join(names))}</th><td {style}>{marks}</td></tr>')
        table = f'<table class="rs-table"><tbody>{"".join(lines)}</tbody></table>'
        return page(f'<div style="overflow-x: auto">{table}</div><p>{escaped(self._matrix_caption(shown))}</p>')

    def _matrix_caption(self, shown: list[int]) -> str:
        if len(shown) == self._count:
            return f"■ saved; one column per choice ({self._count}), by increasing saved bytes"
        return f"■ saved; {len(shown)} of {self._count} choices, by increasing saved bytes; all are in .matrix.rows"

    def _matrix_cells(self, shown: list[int]) -> list[tuple[tuple[str, ...], str]]:
        """Return the numbers of the points, then a row for the names that are saved at the same points."""
        scale = ""
        for place, i in enumerate(shown):
            number = str(i + 1)
            if (place == 0 or (place + 1) % 10 == 0) and len(scale) <= place and place + len(number) <= len(shown):
                scale = scale.ljust(place) + number
        alike: dict[str, list[str]] = {}
        for name, saved in self.rows.items():
            alike.setdefault("".join("·■"[saved[i]] for i in shown), []).append(name)
        return [((), scale), *((tuple(names), marks) for marks, names in alike.items())]

    def _matrix_lines(self) -> list[str]:
        shown = spread_indices(self._count, _COLUMNS)
        cells = [(textwrap.wrap(", ".join(names), 24) or [""], marks) for names, marks in self._matrix_cells(shown)]
        width = max(len(line) for names, _ in cells for line in names)
        lines = []
        for (first, *rest), marks in cells:
            lines += [f"{first:{width}}  {marks}".rstrip(), *rest]
        return [*lines, self._matrix_caption(shown)]


# JAX's policies without arguments, by increasing saved bytes.
POLICIES = ("nothing_saveable", *MATMUL_POLICIES, "everything_saveable")


_SHOWN = 20  # points that the table shows
_LISTED = 8  # names of a point that the table lists; the matrix has all
_PART = "% of full recompute"


@with_own_options
def frontier(
    f: Callable[..., Any],
    *args: Any,
    cost: CostFunction | str = work,
    device: Device | str | None = None,
    **kwargs: Any,
) -> "Frontier":
    """Find the Pareto front of saved bytes and recompute cost over all choices of names and policies.

    The choices are the same as for `plan`: all choices of names, alone and combined with `dots_saveable` or
    `dots_with_no_batch_dims_saveable`; `everything_saveable`; and `f` as written. For comparison, the view also shows
    JAX's policies and `f` as written, each from a trace, and a greedy choice, which repeatedly adds the name that
    avoids the most recompute per byte.

    With up to 16 names, `frontier` enumerates all subsets. With more, it solves one 0/1 program per point, which takes
    a few hundredths of a second for 50 names and a few tenths for 400. A progress bar is shown. If you interrupt the
    search, `frontier` returns the points found so far.

    Args:
      f: a function that is differentiable in reverse mode, or a training step, as for `plan`. It is traced, not run.
        Its checkpoints stay where they are; if it has none, the choices are for one checkpoint around the whole
        function.
      *args, **kwargs: the arguments of `f`, as for `trace`.
      cost: the cost of recomputing an equation, as for `plan`.
      device: the device for `cost="seconds"`: a name such as `"tpu v5e"`, a `Device`, or `calibrate()`.

    Returns:
      The points of the Pareto front (`.points`), each with its saved bytes, its recompute cost and one choice.

    Raises:
      TraceError, PlanError: as for `recompute_graph`; PlanError also if only one of `cost="seconds"` and `device` is
        given.
      TargetError: if `device` is not known.

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
    meant = resolve_cost(cost, device)
    f = called_once(f, args, kwargs)
    compared = candidates(CostedCall(f, args, kwargs, meant))
    graph = compared[0].graph

    def measured(label: str, planned: Callable[..., Any]) -> Point | None:
        try:
            return point_of(trace(planned, *args, **kwargs), label, meant)
        except (TypeError, NotImplementedError, TraceError):
            return None  # JAX cannot save some values under this policy, complex ones among them

    points_of = {label: measured(label, with_policy(f, getattr(jax.checkpoint_policies, label))) for label in POLICIES}
    presets = [point for point in points_of.values() if point is not None]
    refused = [label for label, point in points_of.items() if point is None]
    current = measured(f"{graph.trace.function} as written", f) if graph.policies else None
    found: list[Point] = []
    greedy: dict[int, Point] = {}
    complete = False
    try:
        with progress(total=1, after=1) as tell:
            for point, share in points_of_all(compared):
                found.append(point)
                tell(f"{len(found)} points", share)
            points = tuple(pareto_front(found))
            budgets = [points[i].nbytes for i in spread_indices(len(points), len(points) if are_few(graph) else _SHOWN)]
            evaluate = functools.cache(graph.evaluate)
            for budget in budgets if graph.names else ():
                greedy[budget] = greedy_point(graph, evaluate, budget)
                tell("greedy", len(greedy) / len(budgets))
            complete = True
    except KeyboardInterrupt:
        if not found:
            raise
    return Frontier(graph, list(pareto_front(found)), presets, greedy, current, complete, refused)


def point_of(passes: Trace, label: str, cost: CostFunction = work) -> Point:
    """Return the saved bytes and the recompute cost of a trace as a point with a label."""
    kept = {r.value: r for r in passes.residuals if r.kind == "computed" and r.memory == "device"}
    names = dict.fromkeys(r.name for r in kept.values() if r.name)
    again = recompute_cost_of(passes, cost)
    return Point(sum(r.device_bytes for r in kept.values()), again, tuple(names), label)


class Frontier(Pictured):
    """The points of the Pareto front, by increasing saved bytes, displayed as a plot with a table of its values.

    Attributes:
      points: the points of the Pareto front. Each saves more bytes and recomputes less than the previous point.
      presets: the points of JAX's policies, each from a trace.
      greedy: maps the saved bytes of a point to the greedy choice within these bytes.
      current: the point of `f` as written, from a trace; None if `f` has no policies.
      complete: False if the search was interrupted; then `points` may lack some points of the front.
      refused: the names of the policies under which JAX cannot differentiate `f`, for example because they save complex
        values.
      graph: the recompute graph; `graph.evaluate(names)` returns the saved bytes and the recompute cost of any choice
        of names.
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
        """The points of JAX's policies, of `f` as written, and of the greedy choices."""
        return (*self._all_policies, *self.greedy.values())

    @property
    def _all_policies(self) -> tuple[Point, ...]:
        return self.presets if self.current is None else (*self.presets, self.current)

    def within(self, nbytes: int) -> Point | None:
        """Return the choice with the least recompute that saves at most `nbytes`, or None if all save more."""
        return next((point for point in reversed(self.points) if point.nbytes <= nbytes), None)

    @functools.cached_property
    def matrix(self) -> SavedNamesMatrix:
        """The names that each Pareto-optimal choice saves, as a table."""
        return SavedNamesMatrix(self.graph.names, self.points)

    def plot(self, ax: Any) -> None:
        """Plot the Pareto front as a step line on matplotlib axes, and the labelled points as markers."""
        points = (*self.points, *self.labelled)
        most = max(point.nbytes for point in points)
        worst = max(point.cost for point in points) or 1
        unit, letter = bytes_text(most).split()[1], self.graph.amount(worst).partition(" ")[2]
        scale = BYTES[unit]
        again = SECONDS[letter] if self.graph.device else 1000 ** THOUSANDS.index(letter)

        def marks(points: Iterable[Point], style: str, **how: Any) -> None:
            ax.plot([p.nbytes / scale for p in points], [p.cost / again for p in points], style, **how)

        steps = [*self.points, dataclasses.replace(self.points[-1], nbytes=most)]
        ax.step([p.nbytes / scale for p in steps], [p.cost / again for p in steps], where="post", color=_BLUE)
        marks(self.points, "o", color=_BLUE, markersize=3.5, label="best choices")
        if self.greedy:
            marks(self.greedy.values(), "x", color=_PINK, markersize=6, label="greedy")
        for point, style in zip(self.presets, itertools.cycle("vsD^"), strict=False):
            marks([point], style, color=_ORANGE, markeredgecolor=PLOT_INK, markersize=8, label=point.label)
        if self.current is not None:
            marks(
                [self.current],
                "*",
                color=KINDS["temporaries"],
                markeredgecolor=PLOT_INK,
                markersize=15,
                label=self.current.label,
            )
        ax.set(xlabel=f"saved ({unit})", ylabel=f"recomputed ({letter})".replace(" ()", ""))
        ax.set(title=f"{self.graph.trace.function}: recompute against saved bytes")
        ax.set(
            xlim=(-0.03 * most / scale, 1.03 * most / scale or 1), ylim=(-0.04 * worst / again, 1.06 * worst / again)
        )
        ax.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize="small")

    def parts(self) -> Iterable[View]:
        numeric = ("Saved", "Recomputed", _PART, "Best at these bytes")
        rows, line = self._table_rows()
        parts = [self.points[i].cost / (self.points[0].cost or 1) for i in spread_indices(len(self.points), _SHOWN)]
        tables = [TextTable(rows, line, numeric, {_PART: parts}), TextTable(*self._labelled_rows(), numeric)]
        return [Stack(*tables, self.matrix)]

    def caption(self) -> str:
        found, of = len(self.points), len(self.graph.names)
        what = f"its {counted(of, 'name')} and of policies" if of else "policies (it has no names to choose)"
        mode = " under jax_remat3" if self.graph.remat3 else ""
        text = f"{self.graph.trace.function}{mode}: {counted(found, 'point')} on the Pareto front of {what}"
        if self.graph.uncounted:
            text += f", by known costs only, since {self.graph.uncounted_text}"
        text += f"; bytes{self.graph.trace.per_device_text}" if self.graph.trace.axes else ""
        text += self.graph.weighing
        return text if self.complete else f"{text}; the search was interrupted, and there may be more in between"

    def _table_rows(self) -> tuple[list[list[str]], str]:
        rows = [["Point", "Saved", "Recomputed", _PART, "Policy and names"]]
        worst = self.points[0].cost or 1
        shown = spread_indices(len(self.points), _SHOWN)
        points = [self.points[i] for i in shown]
        saved = [bytes_text(point.nbytes) for point in points]
        recomputed = self.graph.amounts([point.cost for point in points])
        for i, point, *amounts in zip(shown, points, saved, recomputed, strict=True):
            part = f"{100 * point.cost / worst:.1f} %"
            saves = " + ".join(filter(None, (point.with_policy, self._names_text(point)))) or "nothing"
            rows.append([str(i + 1), *amounts, part, saves])
        left_out = "" if len(shown) == len(self.points) else f"; {len(shown)} are shown, .points has all"
        return rows, self.caption() + left_out

    def _names_text(self, point: Point) -> str:
        """Return the names that a point saves, or those that it does not save if these are fewer."""
        others = [name for name in self.graph.names if name not in point.names]
        if len(point.names) <= _LISTED or len(others) > _LISTED:
            return first_of(point.names, _LISTED)
        return f"all names but {', '.join(others)}" if others else "all names"

    def _labelled_rows(self) -> tuple[list[list[str]], str]:
        rows, line = self._compared_rows()
        if self.refused:
            why = f"JAX cannot differentiate the function under {', '.join(self.refused)}"
            line = f"{line}; {why}" if line else why
        return rows, line

    def _compared_rows(self) -> tuple[list[list[str]], str]:
        shown = [
            (point.label, self._names_text(point) if point is self.current else "", point, self.within(point.nbytes))
            for point in self._all_policies
        ]
        footer = ""
        if self.greedy:
            best_of = {point.nbytes: point for point in self.points}
            behind = {budget: point.cost - best_of[budget].cost for budget, point in self.greedy.items()}
            budget = max(behind, key=behind.__getitem__)
            if behind[budget] <= 0:
                found = "equally good choices, by known costs," if self.graph.uncounted else "the best choices, too,"
                footer = f"greedy finds {found} within the bytes of each point"
            else:
                point = self.greedy[budget]
                label = f"greedy within {bytes_text(budget)}"
                shown.append((label, self._names_text(point), point, best_of[budget]))
                footer = "the greedy choice is shown where it is farthest from the best; .greedy has all"
        saved = [bytes_text(point.nbytes) for _, _, point, _ in shown]
        costs = [point.cost for _, _, point, _ in shown]
        texts = self.graph.amounts([*costs, *(0 if best is None else best.cost for *_, best in shown)])
        rows = [["For comparison", "Saved names", "Saved", "Recomputed", "Best at these bytes"]]
        for (label, names, _, best), nbytes, own, least in zip(
            shown, saved, texts[: len(costs)], texts[len(costs) :], strict=True
        ):
            rows.append([label, names, nbytes, own, "all save more" if best is None else least])
        return rows, footer


_BLUE, _ORANGE, _PINK = (COLOURS[letter] for letter in "SRD")
