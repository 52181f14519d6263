"""Compare the recompute of `auto`'s 0/1 program with that of a min cut and a knapsack, for the same saved bytes.

    python benchmarks/min_cut.py

PyTorch's partitioner cuts the joint graph where the fewest bytes are saved, and never recomputes matmuls. Within a
memory budget, a knapsack chooses matmuls to recompute, and the graph is cut once more (`torch._functorch.partitioners`,
`activation_memory_budget`). This script does the same for JAX, on the operations that `auto` chooses among: the cut
with OR-tools, the knapsack by dynamic programming for 200 budgets, of which the best result within the saved bytes
counts. One function computes the recompute of both choices. Nothing is compiled.
"""

import numpy as np
from auto import MODELS
from ortools.graph.python import max_flow

from rematscope import trace
from rematscope.choices.build import work
from rematscope.ir.program import reading
from rematscope.scheduling.costs import cost_in
from rematscope.scheduling.fusion import HEAVY
from rematscope.scheduling.linearize import linearize
from rematscope.scheduling.peak_program import PeakProgram

_NEVER = 2**52  # the capacity of edges that must not be cut


class Graph:
    """Return the values that the backward pass reads and the forward pass computes."""

    def __init__(self, f, *args):
        self.linearized = linearize(trace(f, *args))
        primal, backward = self.linearized.primal, self.linearized.backward
        cost, late = cost_in(self.linearized, work), self.linearized.deferred
        self.cost = lambda equation: (
            0.0 if equation in late else cost(equation)
        )  # deferred, as JAX does, and computed once
        self.maker = {v: e for e in primal.equations for v in e.outputs}
        read = {v for e in backward.equations for v in reading(e)} | set(backward.outputs)
        self.asked = [v for v in self.maker if v in read]
        self.everything = sum(v.nbytes for v in self.asked)

    def recompute(self, saved):
        """Return the FLOPs and transcendentals that are recomputed if these values are saved."""
        run, pending = set(), [v for v in self.asked if v not in saved]
        while pending:
            equation = self.maker[pending.pop()]
            if equation not in run:
                run.add(equation)
                pending += [v for v in reading(equation) if v in self.maker and v not in saved]
        return sum(map(self.cost, run))

    def cut(self, never):
        """Return the values that a min cut saves, if some operations are never recomputed."""
        number = {
            v: 2 + 2 * i for i, v in enumerate(self.maker)
        }  # two nodes per value: its demand and its availability
        tails, heads, capacities = [], [], []

        def edge(tail, head, capacity):
            tails.append(tail)
            heads.append(head)
            capacities.append(capacity)

        for value, equation in self.maker.items():
            edge(number[value], number[value] + 1, value.nbytes)
            if equation in never:
                edge(0, number[value], _NEVER)
            for read in reading(equation):
                if read in self.maker:
                    edge(number[read] + 1, number[value], _NEVER)
        for value in self.asked:
            edge(number[value] + 1, 1, _NEVER)
        flow = max_flow.SimpleMaxFlow()
        flow.add_arcs_with_capacity(np.array(tails), np.array(heads), np.array(capacities))
        assert flow.solve(0, 1) == flow.OPTIMAL
        side = set(flow.get_source_side_min_cut())
        return {v for v, n in number.items() if n in side and n + 1 not in side}

    def by_knapsack(self, budget):
        """Return the least recompute that cuts and knapsacks find within a number of bytes."""
        heavy = {e for e in self.maker.values() if e.primitive in HEAVY}
        first = self.cut(heavy)
        items = [v for v in first if self.maker[v] in heavy]
        tried = [first, self.cut(set())]
        total = sum(v.nbytes for v in items)
        for room in np.linspace(0, total, 200):
            stay = _solve_knapsack([v.nbytes for v in items], [self.cost(self.maker[v]) for v in items], room)
            gone = {self.maker[v] for v, stays in zip(items, stay, strict=True) if not stays}
            tried.append(self.cut(heavy - gone))
        fit = [kept for kept in tried if sum(v.nbytes for v in kept) <= budget]
        return min(map(self.recompute, fit), default=None)


def _solve_knapsack(sizes, worths, capacity, steps=500):
    """Return the items with the largest total worth within a capacity, which is divided into this many steps."""
    unit = max(capacity / steps, 1)
    weights = [int(np.ceil(size / unit)) for size in sizes]
    best, taken = np.zeros(steps + 1), []
    for weight, worth in zip(weights, worths, strict=True):
        with_it = np.full(steps + 1, -1.0)
        if weight <= steps:
            with_it[weight:] = best[: steps + 1 - weight] + worth
        taken.append(with_it > best)
        best = np.maximum(best, with_it)
    left, stay = steps, []
    for take, weight in zip(reversed(taken), reversed(weights), strict=True):
        stay.append(bool(take[left]))
        left -= weight if take[left] else 0
    return stay[::-1]


def main():
    print("| | of all bytes | saved at most | `auto`'s program | min cut and knapsack |\n|---|---:|---:|---:|---:|")
    for name, (make, args) in MODELS.items():
        graph = Graph(make(False), *args)
        if graph.linearized.loops:
            continue  # a min cut has no such values
        rows = PeakProgram(graph.linearized)
        for share in (0.1, 0.2, 0.4):
            budget = int(share * graph.everything)
            kept = rows.best(saved=budget).saved
            cells = [graph.recompute(kept), graph.by_knapsack(budget)]
            texts = ["none fits" if cell is None else f"{cell / 1e6:,.1f} M" for cell in cells]
            print(f"| {name} | {share:.0%} | {budget / 2**20:.1f} MiB | {texts[0]} | {texts[1]} |", flush=True)


if __name__ == "__main__":
    main()
