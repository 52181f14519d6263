"""Compare heuristics for choosing names with the optimum, and time the solver: tables in Markdown.

    python benchmarks/plan.py

Six blocks have 99 budgets each, between saving nothing and saving every name. The regret of a choice is its recompute
in excess of the optimum, as a share of the range between the most and the least recompute: the mean over the budgets,
and the maximum. The optimum is exact, from an enumeration of all choices. Processor times are given for the block with
16 names, and for models of such blocks with one checkpoint per layer and separate names in each layer. The script fails
if HiGHS misses an optimum, or takes more than 20 ms for 16 names or 3 s for 400.
"""

import sys
from pathlib import Path

# The blocks are those of the tests.
sys.path.append(str(Path(__file__).parents[1] / "packages" / "rematscope" / "tests"))

import statistics
import time
from collections.abc import Iterator

import numpy as np
from blocks import BLOCKS, stack

from rematscope import recompute_graph
from rematscope.choices import enumeration
from rematscope.choices.chooser import Chooser
from rematscope.choices.enumeration import every_choice
from rematscope.choices.recompute_graph import RecomputeGraph

LAYERS = (4, 8, 16, 28)


class Choices:
    """All choices of a graph's names. A choice is a number; its bit i says that name i is saved."""

    def __init__(self, graph: RecomputeGraph):
        self.graph = graph
        self.chooser = Chooser(graph)
        self.nbytes, self.cost = every_choice(graph)
        self.bits = 1 << np.arange(len(graph.names))
        self.saved = (np.arange(len(self.cost))[:, None] & self.bits) > 0
        self.sizes = self.nbytes[self.bits] - self.nbytes[0]

    def knapsack(self, spared: np.ndarray, budget: int) -> int:
        fits = self.saved @ self.sizes <= budget - self.nbytes[0]
        return self.cost[np.where(fits, self.saved @ spared, -1).argmax()]

    def own_costs(self, budget: int) -> int:
        """Choose by PyTorch's memory budget: a name avoids its recompute from the names before it."""
        return self.knapsack(np.array([own_cost(self.graph, name) for name in self.graph.names]), budget)

    def alone(self, budget: int) -> int:
        """Choose by the recompute that each name avoids if no other name is saved."""
        return self.knapsack(self.cost[0] - self.cost[self.bits], budget)

    def greedy(self, budget: int) -> int:
        """Add one name at a time: the one that avoids most recompute per byte, given the names chosen so far."""
        taken = 0
        while True:
            more = np.array([taken | bit for bit in self.bits if not taken & bit], dtype=int)
            more = more[(self.nbytes[more] <= budget) & (self.cost[more] < self.cost[taken])]
            if not len(more):
                return self.cost[taken]
            bytes_more = np.maximum(1, self.nbytes[more] - self.nbytes[taken])
            taken = more[((self.cost[taken] - self.cost[more]) / bytes_more).argmax()]

    def highs(self, budget: int) -> int:
        return self.graph.evaluate(self.chooser.cheapest(budget)[0])[1]


def own_cost(graph: RecomputeGraph, name: str) -> int:
    """Return the cost of recomputing a name's value from the names before it."""
    found = set()
    pending = [read for part in graph.parts if part.name == name for read in part.reads]
    while pending:
        part = pending.pop()
        if part.name is None and part not in found:
            found.add(part)
            pending += part.reads
    return sum(part.cost for part in found)


def budgets(graph: RecomputeGraph, count: int) -> list[int]:
    least, most = graph.evaluate(())[0], graph.evaluate(graph.names)[0]
    return [least + (most - least) * i // (count + 1) for i in range(1, count + 1)]


def regrets() -> Iterator[tuple[str, int, dict[str, list[float]]]]:
    """Yield each block's name, number of names, and regrets in percent by heuristic and budget."""
    for name, block in BLOCKS.items():
        graph = recompute_graph(block.function, *block.args)
        choices = Choices(graph)
        heuristics = choices.own_costs, choices.alone, choices.greedy, choices.highs
        span = choices.cost.max() - choices.cost.min()
        lost: dict[str, list[float]] = {heuristic.__name__: [] for heuristic in heuristics}
        for budget in budgets(graph, 99):
            best = choices.cost[choices.nbytes <= budget].min()
            for heuristic in heuristics:
                lost[heuristic.__name__].append(100 * (heuristic(budget) - best) / span)
        yield name, len(graph.names), lost


def times() -> Iterator[tuple[int, float, list[float], bool]]:
    """Yield the number of names, the seconds to trace and to solve, and whether each choice is proven optimal."""
    functions = [(BLOCKS["resnet"].function, BLOCKS["resnet"].args, 99), *((*stack(layers), 9) for layers in LAYERS)]
    for function, args, count in functions:
        start = time.process_time()
        graph = recompute_graph(function, *args)
        traced = time.process_time() - start
        solved, proven = [], True
        for budget in budgets(graph, count):
            start = time.process_time()
            names, bound = Chooser(graph).cheapest(budget)
            solved.append(time.process_time() - start)
            proven &= graph.evaluate(names)[1] == bound
        yield len(graph.names), traced, solved, proven


def main() -> int:
    enumeration.FEW = 0  # HiGHS, even for few names
    missed = False
    print("| block | names | knapsack of own costs | knapsack of savings | greedy | plan |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, count, lost in regrets():
        cells = [f"{statistics.mean(regrets):.1f} %, {max(regrets):.1f} %" for regrets in lost.values()]
        print("|", " | ".join([name, str(count), *cells]), "|", flush=True)
        missed |= max(lost["highs"]) > 0
    print("\n| names | trace | HiGHS, median | slowest | median / trace | proven best |")
    print("|---:|---:|---:|---:|---:|---|")
    for count, traced, solved, proven in times():
        median = statistics.median(solved)
        cells = [f"{1000 * t:.0f} ms" for t in (traced, median, max(solved))]
        print(
            "|", " | ".join([str(count), *cells, f"{median / traced:.2f}", "yes" if proven else "no"]), "|", flush=True
        )
        missed |= not proven or median > (0.02 if count <= 16 else 3)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
