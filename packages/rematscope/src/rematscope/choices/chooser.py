"""The best choice of names: by enumeration for few names, by a 0/1 program for many."""

from functools import cached_property

import numpy as np

from rematscope.choices import highs
from rematscope.choices.choice_graph import ChoiceGraph
from rematscope.choices.enumeration import are_few, every_choice, least_place, subset
from rematscope.choices.zero_one import ZeroOneProgram, zero_one_program


class Chooser:
    """Finds the best choices of a graph's names, for many budgets."""

    def __init__(self, graph: ChoiceGraph):
        self.graph = graph

    def cheapest(self, budget: int) -> tuple[tuple[str, ...], float]:
        """Return the names that are best to save within `budget` bytes, and a lower bound of the cost of every choice.

        Up to `enumeration.FEW` names that is the cost of the choice itself. For more it is what HiGHS proves, in
        floating point: the same, unless its time limit stopped it or the costs differ by more than a factor of a
        million.

        Args:
          budget: the limit of the bytes of computed residuals; some choice must be within it.

        Returns:
          The names in the order of the program, and the bound in the unit of the graph's cost.
        """
        if are_few(self.graph):
            nbytes, cost = self._every_choice
            best = subset(self.graph, least_place(cost, nbytes, nbytes <= budget))
            return _without_idle(self.graph, best), self.graph.evaluate(best)[1]
        program, graph = self._zero_one_program, self.graph
        names, bound = highs.minimise(
            program,
            objective=program.cost,
            limited=program.nbytes,
            limit=budget - graph.least_bytes,
            holds=lambda names: graph.evaluate(names)[0] <= budget,
        )
        return _without_idle(graph, graph.helpful(names)), bound + graph.least_cost

    def smallest(self, cost: float) -> tuple[str, ...]:
        """Return the names that save the fewest bytes among all choices that recompute no more than `cost`."""
        if are_few(self.graph):
            nbytes, costs = self._every_choice
            return subset(self.graph, least_place(nbytes, costs, costs <= cost))
        program, graph = self._zero_one_program, self.graph
        names, _ = highs.minimise(
            program,
            objective=program.nbytes,
            limited=program.cost,
            limit=cost - graph.least_cost,
            holds=lambda names: graph.evaluate(names)[1] <= cost,
        )
        return graph.helpful(names)

    @cached_property
    def _every_choice(self) -> tuple[np.ndarray, np.ndarray]:
        return every_choice(self.graph)

    @cached_property
    def _zero_one_program(self) -> ZeroOneProgram:
        return zero_one_program(self.graph)


def _without_idle(graph: ChoiceGraph, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return names without the names that avoid no recompute in addition to the others; the largest go first."""
    alone = {name: sum(sum(part.arrays.values()) for part in graph.parts if part.name == name) for name in names}
    nbytes, cost = graph.evaluate(names)
    for name in sorted(names, key=alone.__getitem__, reverse=True):
        rest = tuple(n for n in names if n != name)
        less, again = graph.evaluate(rest)
        if less <= nbytes and again <= cost:  # without the name, its operands may have to be saved
            names, nbytes = rest, less
    return names
