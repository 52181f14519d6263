"""Enumeration of all choices of a few names."""

from collections.abc import Iterator

import numpy as np

from rematscope.choices.choice_graph import ChoiceGraph

FEW = 16  # the maximum number of names for which all subsets are enumerated


def least_place(first: np.ndarray, second: np.ndarray, allowed: np.ndarray) -> int:
    """Return the allowed index with the smallest `first`; of several such indices, the one with the smallest `second`.

    All arguments have the shape (n,). `allowed` contains booleans, at least one of which is True.
    """
    places = np.flatnonzero(allowed)
    places = places[first[places] == first[places].min()]
    return int(places[second[places].argmin()])


def are_few(graph: ChoiceGraph) -> bool:
    """Return whether a graph has at most `FEW` names, so that all subsets are enumerated."""
    return len(graph.names) <= FEW


def every_choice(graph: ChoiceGraph) -> tuple[np.ndarray, np.ndarray]:
    """Return the saved bytes and the recompute cost of every subset of `graph.names`.

    In the subset at index k, name i is saved if bit i of k is set. Use this for at most `FEW` names (16, so 65,536
    subsets).

    Returns:
      Two arrays of shape (2 ** len(graph.names),): the bytes as int64, and the costs in the unit of `graph.least_cost`,
      as int64 if all costs are integers and their sum fits, else as float64.
    """
    subsets = np.arange(2 ** len(graph.names))
    chosen = {name: (subsets >> i & 1).astype(bool) for i, name in enumerate(graph.names)}
    everywhere = np.ones(len(subsets), bool)
    reached = {part: everywhere if part.entry else ~everywhere for part in graph.parts}
    changed = True
    while changed:  # repeated, because a loop's carries make the graph cyclic
        changed = False
        for part in graph.parts:
            now = reached[part]
            for reader in part.readers:
                passed = reached[reader]
                now = now | (passed if reader.name is None else passed & ~chosen[reader.name])
            if not np.array_equal(now, reached[part]):
                reached[part] = now
                changed = True

    costs = [graph.least_cost, *(part.cost for part in graph.parts)]
    whole = all(isinstance(c, int) for c in costs) and sum(costs) < 2**63
    cost = np.full(len(subsets), graph.least_cost, np.int64 if whole else float)
    kept: dict[object, np.ndarray] = {}
    sizes: dict[object, int] = {}
    for part in graph.parts:
        cost += np.where(reached[part], part.cost, 0)
        saved = reached[part] if part.name is None else reached[part] & chosen[part.name]
        for array, size in part.arrays.items():
            kept[array] = kept[array] | saved if array in kept else saved
            sizes[array] = size
    nbytes = np.full(len(subsets), graph.least_bytes, np.int64)
    for array, mask in kept.items():
        nbytes += np.where(mask, sizes[array], 0)
    return nbytes, cost


def subset(graph: ChoiceGraph, index: int) -> tuple[str, ...]:
    """Return the names that are saved in the subset at `index` of `every_choice`."""
    return tuple(name for i, name in enumerate(graph.names) if index >> i & 1)


def best_points(nbytes: np.ndarray, cost: np.ndarray) -> Iterator[int]:
    """Yield the indices of the Pareto-optimal choices, by increasing bytes."""
    least = None
    for i in np.lexsort((cost, nbytes)):
        if least is None or cost[i] < least:
            least = cost[i]
            yield int(i)
