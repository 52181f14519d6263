"""The points of a Pareto front, and the search for them."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

from rematscope.choices.candidates import PolicyCandidate
from rematscope.choices.choice_graph import ChoiceGraph
from rematscope.choices.chooser import Chooser
from rematscope.choices.enumeration import are_few, best_points, every_choice, subset
from rematscope.planning.budget import least_possible

_SPREAD = 16  # budgets that are looked at first, so that an interrupted search has seen the whole range


@dataclasses.dataclass(frozen=True)
class Point:
    """A choice of names and a policy: the bytes that it saves, and its recompute cost.

    Attributes:
      nbytes: the bytes of computed residuals that the choice saves.
      cost: the recompute cost, in the unit of `frontier`'s `cost`.
      names: the saved names.
      label: the name of one of JAX's policies, `f as written`, or `greedy`; "" for a Pareto-optimal choice.
      with_policy: the policy that the names are combined with; "" for names alone.
    """

    nbytes: int
    cost: float
    names: tuple[str, ...] = ()
    label: str = ""
    with_policy: str = ""


def points_of_all(found: Sequence[PolicyCandidate], is_coarse: bool = False) -> Iterator[tuple[Point, float]]:
    """Yield choices of all candidates, including all Pareto-optimal ones, each with the progress of the search.

    Args:
      found: the candidates.
      is_coarse: whether to yield only some of the Pareto-optimal choices of a candidate with many names, over the whole
        range of saved bytes, because each of them needs the solver.
    """
    for i, candidate in enumerate(found):
        limit = _SPREAD + 1 if is_coarse and not are_few(candidate.graph) else None
        for point, share in itertools.islice(_points_of(candidate.graph), limit):
            yield dataclasses.replace(point, with_policy=candidate.label), (i + share) / len(found)


def _points_of(graph: ChoiceGraph) -> Iterator[tuple[Point, float]]:
    """Yield choices of names, including all Pareto-optimal ones, each with the progress of the search.

    With many names, this is the ε-constraint method (Haimes, Lasdon and Wismer, 1971): minimize the cost under a limit
    of bytes, and lower the limit from point to point.
    """

    def point(names: Sequence[str]) -> Point:
        return Point(*graph.evaluate(names), tuple(names))

    if are_few(graph):
        for i in best_points(*every_choice(graph)):
            yield point(subset(graph, i)), 1
        return
    chooser = Chooser(graph)
    least, (most, _) = least_possible(graph), graph.evaluate(graph.names)

    def cheapest(budget: int) -> Point:
        return point(chooser.cheapest(budget)[0])

    spread: dict[tuple[int, float], Point] = {}
    for i in range(_SPREAD + 1):
        found = cheapest(least + (most - least) * i // _SPREAD)
        spread[found.nbytes, found.cost] = found
        yield found, 0
    ends = sorted(spread.values(), key=lambda p: p.nbytes)
    for low, high in itertools.pairwise(ends):
        # Downward from the upper end: the cheapest choice with one byte less is the next point.
        found = high
        while found.cost < low.cost and found.nbytes > low.nbytes:
            found = cheapest(found.nbytes - 1)
            yield found, (low.nbytes + high.nbytes - found.nbytes - least) / (most - least)


def pareto_front(points: Sequence[Point]) -> Iterator[Point]:
    """Yield the Pareto-optimal points, by increasing bytes; sums of floats that differ by rounding are equal."""
    span = max((point.cost for point in points), default=0)
    rounding = 0 if all(isinstance(point.cost, int) for point in points) else 1e-9 * span
    least = None
    for point in sorted(points, key=lambda p: (p.nbytes, p.cost)):
        if least is None or point.cost < least - rounding:
            least = point.cost
            yield point


def greedy_point(graph: ChoiceGraph, evaluate: Callable[[frozenset[str]], tuple[int, float]], budget: int) -> Point:
    """Return the greedy choice: repeatedly the name that avoids most recompute per byte, as long as it fits."""
    names: frozenset[str] = frozenset()
    nbytes, cost = evaluate(names)
    while True:
        best: tuple[float, float] = (0, 0)
        better = None
        for name in graph.names:
            more, less = evaluate(names | {name})
            added, spared = more - nbytes, cost - less
            worth = (spared / added if added > 0 else math.inf, spared)
            if more <= budget and spared > 0 and worth > best:
                best, better = worth, name
        if better is None:
            return Point(nbytes, cost, tuple(n for n in graph.names if n in names), "greedy")
        names |= {better}
        nbytes, cost = evaluate(names)


def spread_indices(count: int, most: int) -> list[int]:
    """Return indices among `count`, evenly spaced, the first and the last included; all if there are at most `most`."""
    return list(range(count)) if count <= most else [i * (count - 1) // (most - 1) for i in range(most)]
