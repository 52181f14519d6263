"""Worked answer to exercise 21: look at every choice.

What a name spares depends on which others are saved. Where `"stream 2"` is saved, nothing before it has to be computed
again for its sake, and what `"out 2"` spared alone it spares no longer. So savings cannot be added up, as a knapsack
would, and whoever takes the best name, then the next best, may end with two that a third would have replaced.

With n names there are 2 to the n choices: 2048 for eleven. `block.evaluate` walks through a graph of a few dozen parts,
so all of them take a fraction of a second. `min` returns the first of several equally good choices, and the choices
come by rising number of names: so none of the chosen names is idle.

For many more names, `rematscope.plan` solves the same problem as a 0/1 program.
"""

import itertools


def best_policy(block, budget_bytes):
    """Chooses the names to save so that the backward pass computes as little as possible again.

    Args:
      block: what `rematscope.recompute_graph` returns.
      budget_bytes: how many bytes of computed values may be kept.

    Returns:
      A list of names.
    """
    numbers = range(len(block.names) + 1)
    choices = itertools.chain.from_iterable(itertools.combinations(block.names, r) for r in numbers)
    fitting = (names for names in choices if block.evaluate(names)[0] <= budget_bytes)
    return list(min(fitting, key=lambda names: block.evaluate(names)[1]))
