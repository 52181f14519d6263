"""Worked answer to exercise 20: evaluate every choice of names.

The FLOPs that a name avoids depend on the other saved names. If `"stream 2"` is saved, the backward pass no longer
recomputes the values before it, and saving `"out 2"` as well may avoid nothing. So the problem is not a knapsack with
one fixed benefit per name. A greedy algorithm, which takes the best single name and then the next best, may choose two
names where one other name is better than both.

n names have 2**n choices, 2048 for eleven names. `block.evaluate` visits a graph with a few dozen nodes, so evaluating
all of them takes a fraction of a second. `min` returns the first of several equally good choices. The choices are
sorted by their number of names, so no name in the first one is idle.

For many more names, `rematscope.plan` solves the same problem as a 0/1 program.
"""

import itertools


def best_policy(block, budget_bytes):
    """Choose the names to save within a budget so that the recompute cost is the lowest possible.

    Args:
      block: a graph from `rematscope.recompute_graph`.
      budget_bytes: the bytes of computed values that may be saved.

    Returns:
      A list of names.
    """
    numbers = range(len(block.names) + 1)
    choices = itertools.chain.from_iterable(itertools.combinations(block.names, r) for r in numbers)
    fitting = (names for names in choices if block.evaluate(names)[0] <= budget_bytes)
    return list(min(fitting, key=lambda names: block.evaluate(names)[1]))
