"""How far from the best three ways to choose names end, and how long a plan takes: README's tables, in Markdown.

    python benchmarks/plan.py

Six blocks, at 99 budgets each between keeping as little as possible and keeping every name. Regret is what a choice
computes again above the best one, as a share of what choosing can change at all; the best is known, since every choice
is looked at. The times are those of a tower of SwiGLU layers, each in a checkpoint and with names of its own; in
milliseconds, and as multiples of the time that tracing the tower takes.
"""

import sys
from pathlib import Path

# Python looks for modules in a script's folder first, and `inspect.py` there is not the standard library's.
sys.path.pop(0)
sys.path.append(str(Path(__file__).parents[1] / "tests" / "rematscope"))

import statistics
import time
from collections.abc import Callable, Iterator

import blocks
import jax
import numpy as np
from blocks import BLOCKS
from jax.ad_checkpoint import checkpoint_name

from rematscope import recompute_graph, solve
from rematscope.recompute import RecomputeGraph
from rematscope.solve import ZeroOne, every_choice

BUDGETS = 99
LAYERS = (1, 2, 4, 8, 16, 27)
ROUNDS = 5


class Choices:
    """All choices of a graph's names; a choice is a number, whose bit i says that name i is saved."""

    def __init__(self, graph: RecomputeGraph):
        self.nbytes, self.cost = every_choice(graph)
        self.bits = 1 << np.arange(len(graph.names))
        # What each name takes and spares alone.
        self.sizes, self.spared = self.nbytes[self.bits] - self.nbytes[0], self.cost[0] - self.cost[self.bits]

    def best(self, budget: int) -> int:
        return self.cost[self.nbytes <= budget].min()

    def knapsack(self, budget: int) -> int:
        """As PyTorch's memory budget chooses: as if savings could be added up."""
        saved = (np.arange(len(self.cost))[:, None] & self.bits) > 0
        fits = saved @ self.sizes <= budget - self.nbytes[0]
        packed = np.where(fits, saved @ self.spared, -1)
        return self.cost[packed.argmax()]

    def greedy(self, budget: int) -> int:
        """One name after another, the one that spares most for a byte beside those taken before."""
        taken = 0
        while True:
            more = np.array([taken | bit for bit in self.bits if not taken & bit], dtype=int)
            more = more[(self.nbytes[more] <= budget) & (self.cost[more] < self.cost[taken])]
            if not len(more):
                return self.cost[taken]
            per_byte = (self.cost[taken] - self.cost[more]) / np.maximum(1, self.nbytes[more] - self.nbytes[taken])
            taken = more[per_byte.argmax()]


def regrets() -> Iterator[list[str]]:
    """A row for each block: mean and largest regret of each way, in percent."""
    for name, block in BLOCKS.items():
        graph = recompute_graph(block.function, *block.args)
        choices, program = Choices(graph), ZeroOne(graph)
        least, most = choices.nbytes.min(), choices.nbytes.max()
        span = choices.cost.max() - choices.cost.min()
        budgets = [int(least + (most - least) * i / (BUDGETS + 1)) for i in range(1, BUDGETS + 1)]

        def ours(budget: int, program=program, graph=graph) -> int:
            return graph.evaluate(program.cheapest(budget)[0])[1]

        ways: list[Callable[[int], int]] = [choices.knapsack, choices.greedy, ours]
        row = [name, str(len(graph.names))]
        seconds = []
        for way in ways:
            start = time.perf_counter()
            lost = [100 * (way(budget) - choices.best(budget)) / span for budget in budgets]
            seconds.append((time.perf_counter() - start) / BUDGETS)
            row.append(f"{statistics.mean(lost):.1f} % ({max(lost):.1f} %)")
        yield [*row, f"{1000 * seconds[-1]:.1f} ms"]


def tower(layers: int):
    """A function of so many SwiGLU layers, each with a checkpoint and names of its own, and its arguments."""
    parameters, x = BLOCKS["swiglu"].args

    def f(stack, x):
        plain = blocks.name
        try:
            for i, p in enumerate(stack):
                blocks.name = lambda value, name, i=i: checkpoint_name(value, f"{i} {name}")
                # A function of its own, or JAX takes the trace of the layer before, names and all.
                x = x + jax.checkpoint(lambda p, x: blocks.swiglu(p, x))(p, x)
        finally:
            blocks.name = plain
        return x.mean()

    return f, ([parameters] * layers, x)


def times() -> Iterator[list[str]]:
    """A row for each number of names: how long HiGHS takes, over budgets, beside the trace."""
    solve.FEW = 0  # HiGHS for few names too
    for layers in LAYERS:
        f, args = tower(layers)
        start = time.perf_counter()
        graph = recompute_graph(f, *args)
        traced = time.perf_counter() - start
        program = ZeroOne(graph)
        most, _ = graph.evaluate(graph.names)
        solved, gaps = [], []
        for i in range(1, ROUNDS + 1):
            budget = int(graph.least_bytes + (most - graph.least_bytes) * i / (ROUNDS + 1))
            start = time.perf_counter()
            names, bound = program.cheapest(budget)
            solved.append(time.perf_counter() - start)
            gaps.append(graph.evaluate(names)[1] - bound)
        median, slowest = statistics.median(solved), max(solved)
        yield [
            str(len(graph.names)),
            f"{1000 * median:.1f} ms",
            f"{1000 * slowest:.1f} ms",
            f"{median / traced:.2f}",
            "yes" if max(gaps) <= 0 else f"to {max(gaps):,.0f}",
        ]


def main():
    print("| block | names | knapsack | greedy | plan | time of a plan |")
    print("|---|---:|---:|---:|---:|---:|")
    for row in regrets():
        print("|", " | ".join(row), "|", flush=True)
    print("\n| names | median | slowest | median, of a trace | proven best |")
    print("|---:|---:|---:|---:|---|")
    for row in times():
        print("|", " | ".join(row), "|", flush=True)


if __name__ == "__main__":
    main()
