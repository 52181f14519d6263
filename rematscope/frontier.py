"""`frontier(f, *args)`: every best trade of bytes kept for work done again, and the usual policies beside it."""

import contextlib
import dataclasses
import functools
import itertools
import math
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence

import jax
from rich.console import Console, ConsoleOptions, RenderResult
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from rematscope import _jax
from rematscope.checkpoints import checkpoints, jaxpr_of, with_policy
from rematscope.display import COLOURS, SHEET, Stack, TextTable, escaped, plain_text, png
from rematscope.errors import PlanError
from rematscope.lint import no_names
from rematscope.plan import least_possible, recompute_graph
from rematscope.program import Equation
from rematscope.recompute import RecomputeGraph, work
from rematscope.solve import FEW, ZeroOne, best_points, every_choice, subset
from rematscope.trace import trace
from rematscope.units import amount_text, bytes_text

# From keeping least to keeping most.
PRESETS = ("nothing_saveable", "dots_with_no_batch_dims_saveable", "dots_saveable", "everything_saveable")
_BYTES, _AMOUNTS = ("B", "KiB", "MiB", "GiB", "TiB"), ("", "k", "M", "G", "T", "P")
_SPREAD = 16  # budgets that are looked at first, so that an interrupted search has seen the whole range
_SHOWN = 20  # points that the table shows
_COLUMNS, _MOST_COLUMNS = 72, 500  # points that the matrix shows, as text and in a notebook


@dataclasses.dataclass(frozen=True)
class Point:
    """What a choice keeps, and what it computes again.

    Attributes:
      nbytes: bytes of computed residuals that are kept.
      cost: what is computed again, in the unit of `frontier`'s `cost`.
      names: the names that are saved.
      label: the policy that it is, "" for a choice of names that none beats.
    """

    nbytes: int
    cost: float
    names: tuple[str, ...] = ()
    label: str = ""


def frontier(f: Callable, *args, cost: Callable[[Equation], float] = work, **kwargs) -> "Frontier":
    """Finds every choice of names that none beats: each other choice keeps more, or computes more again.

    Up to 16 names, all subsets are looked at. With more, a 0/1 program is solved for each point, which takes some
    hundredths of a second at 50 names and some tenths at 400. A bar shows how far it is. Interrupted, it returns what
    it has found.

    Beside them lie JAX's policies and the one that `f` has now, as real traces say, and greedy choice: one name after
    another, always that which spares most per byte beside those chosen, as long as it fits.

    Args:
      f: a function that is differentiable in reverse mode and gives values names with `checkpoint_name`. It is not run.
        Its checkpoints stay where they are; if it has none, one is put around all of it.
      *args, **kwargs: its arguments, as for `trace`.
      cost: what computing an equation again takes: a function of an `Equation`. FLOPs, and one for each element that a
        transcendental function is applied to, by default.

    Raises:
      PlanError: if `f` names nothing that could be saved.
      TraceError: as `trace` does.
    """
    __tracebackhide__ = True
    graph = recompute_graph(f, *args, cost=cost, **kwargs)
    if not graph.names:
        raise PlanError(no_names(f, *args, **kwargs))

    def measured(label: str, planned: Callable) -> Point:
        with _jax.default_remat():
            passes = trace(planned, *args, **kwargs)
        kept = {r.value: r for r in passes.residuals if r.kind == "computed" and r.memory == "device"}
        names = dict.fromkeys(r.name for r in kept.values() if r.name)
        again = RecomputeGraph(passes, cost).all_recomputed
        return Point(sum(r.nbytes for r in kept.values()), again, tuple(names), label)

    presets = [measured(label, with_policy(f, getattr(jax.checkpoint_policies, label))) for label in PRESETS]
    with _jax.default_remat():
        own = [_jax.policy_of(eqn) for eqn in checkpoints(jaxpr_of(f, *args, **kwargs))]
    has_policy = any(policy not in (None, jax.checkpoint_policies.nothing_saveable) for policy in own)
    current = measured(f"{graph.passes.function} as it is", f) if has_policy else None
    found: list[Point] = []
    greedy: dict[int, Point] = {}
    complete = False
    try:
        with _bar() as tell:
            for point, share in _all_points(graph):
                found.append(point)
                tell(f"{len(found)} points", share)
            points = tuple(_unbeaten(found))
            budgets = [
                points[i].nbytes for i in _spread(len(points), _SHOWN if len(graph.names) > FEW else len(points))
            ]
            evaluate = functools.cache(graph.evaluate)
            for budget in budgets:
                greedy[budget] = _greedy(graph, evaluate, budget)
                tell("greedy", len(greedy) / len(budgets))
            complete = True
    except KeyboardInterrupt:
        if not found:
            raise
    return Frontier(graph, tuple(_unbeaten(found)), presets, greedy, current, complete)


class Frontier:
    """Every choice of names that none beats, by rising bytes. Displays itself as a picture with its numbers.

    Attributes:
      points: the choices; each keeps more and computes less again than the one before.
      presets: JAX's policies, each as a real trace with it says.
      greedy: bytes that may be kept → what greedy choice makes of them.
      current: `f` with the policies that it has, as a real trace says; None if it has none.
      complete: False if the search was interrupted: then there may be points between those found.
      graph: what the backward pass computes again for other choices; `graph.evaluate(names)` gives bytes and cost.
    """

    def __init__(self, graph: RecomputeGraph, points, presets, greedy, current: Point | None, complete: bool):
        self.graph = graph
        self.points: tuple[Point, ...] = points
        self.presets: tuple[Point, ...] = tuple(presets)
        self.greedy: dict[int, Point] = greedy
        self.current = current
        self.complete = complete

    @property
    def labelled(self) -> tuple[Point, ...]:
        """All that is no point of the frontier itself."""
        return (*self.presets, *[self.current] * (self.current is not None), *self.greedy.values())

    def within(self, nbytes: int) -> Point | None:
        """The point that computes least again among those that keep no more than `nbytes`; None if all keep more."""
        return next((point for point in reversed(self.points) if point.nbytes <= nbytes), None)

    @functools.cached_property
    def matrix(self) -> "Matrix":
        """Which names each point saves."""
        return Matrix(self.graph.names, self.points)

    def plot(self, ax) -> None:
        """Draws the frontier as steps on matplotlib axes, and the labelled points as marks."""
        everything = (*self.points, *self.labelled)
        most = max(point.nbytes for point in everything)
        worst = max(point.cost for point in everything) or 1
        unit, letter = bytes_text(most).split()[1], amount_text(worst).partition(" ")[2]
        scale, again = 1024 ** _BYTES.index(unit), 1000 ** _AMOUNTS.index(letter)

        def marks(points, style, **how):
            ax.plot([p.nbytes / scale for p in points], [p.cost / again for p in points], style, **how)

        steps = [*self.points, dataclasses.replace(self.points[-1], nbytes=most)]
        ax.step([p.nbytes / scale for p in steps], [p.cost / again for p in steps], where="post", color=_BLUE)
        marks(self.points, "o", color=_BLUE, markersize=3.5, label="best choices of names")
        if self.greedy:
            marks(self.greedy.values(), "x", color=_PINK, markersize=6, label="greedy")
        for point, style in zip(self.presets, "vsD^", strict=True):
            marks([point], style, color=_ORANGE, markeredgecolor="black", markersize=8, label=point.label)
        if self.current is not None:
            marks(
                [self.current], "*", color="#f0e442", markeredgecolor="black", markersize=15, label=self.current.label
            )
        ax.set(xlabel=f"kept ({unit})", ylabel=f"computed again ({letter})".replace(" ()", ""))
        ax.set(title=f"{self.graph.passes.function}: what is kept, and what is computed again")
        ax.set(
            xlim=(-0.03 * most / scale, 1.03 * most / scale or 1), ylim=(-0.04 * worst / again, 1.06 * worst / again)
        )
        ax.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize="small")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._numbers()

    def __repr__(self):
        return plain_text(self)

    def _ipython_display_(self) -> None:
        # Two outputs, since a front end shows only one form of each: the picture, and its numbers.
        from IPython.display import display

        display({"image/png": png(self.plot, (8.5, 3.6)), "text/plain": self._headline()}, raw=True)
        display(self._numbers())

    def _numbers(self) -> Stack:
        numeric = ("names", "keeps", "computes again", "best within its bytes")
        tables = [TextTable(rows, line, numeric) for rows, line in (self._rows(), self._labelled_rows())]
        return Stack(*tables, self.matrix)

    def _headline(self) -> str:
        found, of = len(self.points), len(self.graph.names)
        text = (
            f"{self.graph.passes.function}: {_counted(found, 'choice')} of its {_counted(of, 'name')} that none beats"
        )
        return text if self.complete else f"{text}, before the search was interrupted: there may be more between"

    def _rows(self) -> tuple[list[list[str]], str]:
        rows = [["point", "names", "keeps", "computes again", "of the most"]]
        worst = self.points[0].cost or 1
        shown = _spread(len(self.points), _SHOWN)
        for i in shown:
            point = self.points[i]
            amounts = bytes_text(point.nbytes), amount_text(point.cost), f"{100 * point.cost / worst:.1f} %"
            rows.append([str(i + 1), str(len(point.names)), *amounts])
        left_out = "" if len(shown) == len(self.points) else f"; {len(shown)} of them here, all in .points"
        return rows, self._headline() + left_out

    def _labelled_rows(self) -> tuple[list[list[str]], str]:
        rows = [["beside them", "names", "keeps", "computes again", "best within its bytes"]]
        for point in (*self.presets, *[self.current] * (self.current is not None)):
            best = self.within(point.nbytes)
            other = "all keep more" if best is None else amount_text(best.cost)
            names = str(len(point.names)) if point is self.current else ""
            rows.append([point.label, names, bytes_text(point.nbytes), amount_text(point.cost), other])
        if not self.greedy:
            return rows, ""
        budget = max(self.greedy, key=lambda budget: self.greedy[budget].cost - self.within(budget).cost)
        point, best = self.greedy[budget], self.within(budget)
        if point.cost <= best.cost:
            return rows, "greedy finds the best too, within the bytes of each point"
        label, names = f"greedy within {bytes_text(budget)}", str(len(point.names))
        rows.append([label, names, bytes_text(point.nbytes), amount_text(point.cost), amount_text(best.cost)])
        return rows, "greedy is shown where it is farthest from the best; the rest is in .greedy"


_BLUE, _ORANGE, _PINK = (COLOURS[style].split()[-1] for style in ("rs-S", "rs-R", "rs-L"))


class Matrix:
    """Which names each point saves: a row for each name, a column for each point, from fewest to most bytes.

    Attributes:
      rows: name → for each point, whether it saves the name.
    """

    def __init__(self, names: Sequence[str], points: Sequence[Point]):
        self.rows = {name: tuple(name in point.names for point in points) for name in names}
        self._count = len(points)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from map(Text, self._lines())

    def __repr__(self):
        return plain_text(self)

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        shown = _spread(self._count, _MOST_COLUMNS)
        style = 'style="white-space: pre; text-align: left"'
        (_, scale), *body = self._cells(shown)
        lines = [f'<tr><th scope="col">saved</th><th scope="col" {style}>{scale}</th></tr>']
        for names, marks in body:
            lines.append(f'<tr><th scope="row">{escaped(", ".join(names))}</th><td {style}>{marks}</td></tr>')
        table = f'<table class="rs-table"><tbody>{"".join(lines)}</tbody></table>'
        page = f'<div style="overflow-x: auto">{table}</div><p>{escaped(self._caption(shown))}</p>'
        return {"text/plain": plain_text(self), "text/html": f'{SHEET}\n<div class="rematscope">{page}</div>'}

    def _caption(self, shown: list[int]) -> str:
        if len(shown) == self._count:
            return f"■ saved; a column for each of the {_counted(self._count, 'point')}, from fewest bytes to most"
        return f"■ saved; {len(shown)} of the {self._count} points, from fewest bytes to most; all are in .matrix.rows"

    def _cells(self, shown: list[int]) -> list[tuple[tuple[str, ...], str]]:
        """(names, marks): the numbers of the points, then a row for all names that are saved at the same points."""
        scale = ""
        for place, i in enumerate(shown):
            number = str(i + 1)
            if (place == 0 or (place + 1) % 10 == 0) and len(scale) <= place and place + len(number) <= len(shown):
                scale = scale.ljust(place) + number
        alike: dict[str, list[str]] = {}
        for name, saved in self.rows.items():
            alike.setdefault("".join("·■"[saved[i]] for i in shown), []).append(name)
        return [((), scale), *((tuple(names), marks) for marks, names in alike.items())]

    def _lines(self) -> list[str]:
        shown = _spread(self._count, _COLUMNS)
        cells = [(textwrap.wrap(", ".join(names), 24) or [""], marks) for names, marks in self._cells(shown)]
        width = max(len(line) for names, _ in cells for line in names)
        lines = []
        for (first, *rest), marks in cells:
            lines += [f"{first:{width}}  {marks}".rstrip(), *rest]
        return [*lines, self._caption(shown)]


def _all_points(graph: RecomputeGraph) -> Iterator[tuple[Point, float]]:
    """Choices among which all unbeaten ones are, and with each the part of the search that is done."""

    def point(names):
        return Point(*graph.evaluate(names), tuple(names))

    if len(graph.names) <= FEW:
        for i in best_points(*every_choice(graph)):
            yield point(subset(graph, i)), 1
        return
    program = ZeroOne(graph)
    least, (most, _) = least_possible(graph), graph.evaluate(graph.names)

    def cheapest(budget):
        return point(program.cheapest(budget)[0])

    spread: dict[tuple, Point] = {}
    for i in range(_SPREAD + 1):
        found = cheapest(least + (most - least) * i // _SPREAD)
        spread[found.nbytes, found.cost] = found
        yield found, 0
    ends = sorted(spread.values(), key=lambda p: p.nbytes)
    for low, high in itertools.pairwise(ends):
        # Down from the end above: what is cheapest for a byte less than a point keeps is the next point.
        found = high
        while found.cost < low.cost and found.nbytes > low.nbytes:
            found = cheapest(found.nbytes - 1)
            yield found, (low.nbytes + high.nbytes - found.nbytes - least) / (most - least)


def _unbeaten(points: Sequence[Point]) -> Iterator[Point]:
    """The points that no other one beats, by rising bytes; sums of floats that differ by rounding only are equal."""
    span = max((point.cost for point in points), default=0)
    rounding = 0 if all(isinstance(point.cost, int) for point in points) else 1e-9 * span
    least = None
    for point in sorted(points, key=lambda p: (p.nbytes, p.cost)):
        if least is None or point.cost < least - rounding:
            least = point.cost
            yield point


def _greedy(graph: RecomputeGraph, evaluate: Callable, budget: int) -> Point:
    """Saves one name after another: of those that fit, always that which spares most for each byte that it adds."""
    names: frozenset[str] = frozenset()
    nbytes, cost = evaluate(names)
    while True:
        best = (0, 0)
        for name in graph.names:
            then = evaluate(names | {name})
            added, spared = then[0] - nbytes, cost - then[1]
            worth = (spared / added if added > 0 else math.inf, spared)
            if then[0] <= budget and spared > 0 and worth > best:
                best, better = worth, (names | {name}, *then)
        if best == (0, 0):
            return Point(nbytes, cost, tuple(n for n in graph.names if n in names), "greedy")
        names, nbytes, cost = better


@contextlib.contextmanager
def _bar() -> Iterator[Callable[[str, float], None]]:
    """Gives a function to tell what is done and which part of it, on a bar that appears after a second."""
    begun = time.monotonic()
    progress = Progress(TextColumn("{task.description}"), BarColumn(), transient=True)
    task = progress.add_task("", total=1)

    def tell(text: str, share: float) -> None:
        if not progress.live.is_started and time.monotonic() - begun > 1:
            progress.start()
        progress.update(task, description=text, completed=share)

    try:
        yield tell
    finally:
        progress.stop()


def _spread(count: int, most: int) -> list[int]:
    """Places among `count`, evenly spaced, first and last included; all of them if there are no more than `most`."""
    return list(range(count)) if count <= most else [i * (count - 1) // (most - 1) for i in range(most)]


def _counted(count: int, word: str) -> str:
    return f"{count:,} {word}{'s' * (count != 1)}"
