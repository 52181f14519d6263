"""Choose results to store for several loops that would otherwise recompute them."""

import heapq
import itertools
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import TypeVar

Step = TypeVar("Step", bound=Hashable)


def results_to_store(
    loops: Mapping[int, Collection[Step]],
    loop_of: Callable[[Step], int],
    operands: Callable[[Step], Collection[Step]],
    cost: Callable[[Step], float],
    size: Callable[[Step], int],
    limit: int,
) -> set[Step]:
    """Return steps whose stored results avoid the most recompute per byte, within a limit on their bytes.

    A loop that reads the result of an earlier loop's step recomputes this step and, in turn, the steps that compute its
    operands. The value of each further choice is the recompute that it avoids if the earlier choices are stored.

    Args:
      loops: the own steps of each loop, by the number of the loop; earlier loops have lower numbers.
      loop_of: returns the number of a step's own loop.
      operands: returns the steps whose results a step reads, and which a later loop recomputes in order to run it.
      cost: returns the FLOPs of a step.
      size: returns the bytes of a step's results.
      limit: the maximum of the bytes.
    """
    above: dict[Step, frozenset[Step]] = {}  # for each step, the nearest steps with FLOPs that its operands depend on

    def nearest(step: Step) -> frozenset[Step]:
        remaining = [step]
        while remaining:
            missing = [each for each in operands(remaining[-1]) if each not in above]
            if missing:
                remaining += missing
                continue
            last = remaining.pop()
            above[last] = frozenset().union(*({each} if cost(each) else above[each] for each in operands(last)))
        return above[step]

    sources = {loop: frozenset[Step]().union(*map(nearest, own)) for loop, own in loops.items()}
    stored = set[Step]()

    def recomputed(loop: int) -> set[Step]:
        found, remaining = set[Step](), [*sources[loop]]
        while remaining:
            step = remaining.pop()
            if step not in found and not (step in stored and loop_of(step) < loop):
                found.add(step)
                remaining += above[step]
        return {step for step in found if loop_of(step) < loop}

    costs = {loop: sum(map(cost, recomputed(loop))) for loop in loops}
    readers: dict[Step, list[int]] = {}
    for loop in loops:
        for step in recomputed(loop):
            readers.setdefault(step, []).append(loop)

    def avoided(step: Step) -> float:
        stored.add(step)
        found = sum(costs[loop] - sum(map(cost, recomputed(loop))) for loop in readers[step])
        stored.discard(step)
        return found / max(size(step), 1)

    order = itertools.count()  # so that no two steps are compared
    queue = [(-avoided(step), next(order), step) for step in readers]
    heapq.heapify(queue)
    left = limit
    while queue:
        _, number, step = heapq.heappop(queue)
        if size(step) > left:
            continue
        value = avoided(step)
        if queue and value < -queue[0][0]:
            heapq.heappush(queue, (-value, number, step))
        elif value > 0:
            stored.add(step)
            left -= size(step)
            costs.update((loop, sum(map(cost, recomputed(loop)))) for loop in readers[step])
    return stored
