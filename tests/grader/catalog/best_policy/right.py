"""Right answers to best_policy, spelled in many ways."""

import dataclasses
import functools
import itertools
from typing import Any

import numpy as np
from sample_answers import Answers

from rematscope.choices.chooser import Chooser
from rematscope.choices.enumeration import every_choice, subset

RIGHT = Answers()
passes = RIGHT.passes


@passes
def by_leaving_names_out(block, budget_bytes):
    """Branch and bound: begins with all names, branches on the name to drop, and prunes the search tree."""
    best = [float("inf"), None]

    def go(kept, rest):
        if block.evaluate((*kept, *rest))[1] >= best[0]:
            return  # all of the rest too would not be better
        if block.evaluate(kept)[0] <= budget_bytes and block.evaluate(kept)[1] < best[0]:
            best[:] = block.evaluate(kept)[1], kept
        for i, name in enumerate(rest):
            go((*kept, name), rest[i + 1 :])

    go((), block.names)
    names = best[1]
    for name in names:
        others = tuple(n for n in names if n != name)
        if block.evaluate(others)[1] == best[0]:
            names = others
    return names


@passes
def with_a_solver(block, budget_bytes):
    names, _ = Chooser(block).cheapest(budget_bytes)
    return list(names)


@passes
def the_last_of_the_best(block, budget_bytes):
    def choices(names):
        if not names:
            yield ()
            return
        for rest in choices(names[1:]):
            yield (names[0], *rest)
            yield rest

    fitting = [c for c in choices(block.names) if block.evaluate(c)[0] <= budget_bytes]
    least = min(block.evaluate(c)[1] for c in fitting)
    return sorted(min((c for c in reversed(fitting) if block.evaluate(c)[1] == least), key=len))


@dataclasses.dataclass(order=True)
class Option:
    cost: float
    count: int
    names: Any = dataclasses.field(compare=False)


@passes
def as_records(block, budget_bytes):
    best = None
    for saved in itertools.product((False, True), repeat=len(block.names)):
        names = [*itertools.compress(block.names, saved)]
        kept, cost = block.evaluate(names)
        option = Option(cost, len(names), names)
        if kept <= budget_bytes and (best is None or option < best):
            best = option
    return best.names


@passes
def by_recursion(block, budget_bytes):
    @functools.cache
    def go(i, chosen):
        if i == len(block.names):
            kept, cost = block.evaluate(chosen)
            return (cost, len(chosen), chosen) if kept <= budget_bytes else (float("inf"), 0, ())
        return min(go(i + 1, chosen), go(i + 1, (*chosen, block.names[i])))

    return go(0, ())[2]


class OfSets:
    def __call__(self, block, budget_bytes):
        sets = functools.reduce(lambda sets, name: [*sets, *(s | {name} for s in sets)], block.names, [frozenset()])
        table = [(block.evaluate(s), s) for s in sets]
        return sorted(min((cost, len(s), sorted(s)) for (kept, cost), s in table if kept <= budget_bytes)[2])


of_sets = OfSets()
of_sets.__name__ = "of_sets"
passes(of_sets)


@passes
def all_at_once(block, budget_bytes):
    nbytes, costs = every_choice(block)
    count = np.array([int(i).bit_count() for i in range(len(costs))])
    order = np.lexsort((count, costs, nbytes > budget_bytes))
    return list(subset(block, order[0]))
