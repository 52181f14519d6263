"""What is expected of an answer; only the judge reads this."""

from collections.abc import Callable

from grader.exercises.feedback import read_feedback
from grader.exercises.spec import CostedAnswer, Impossible
from rematscope.extend import best_points, every_choice, subset

feedback = read_feedback(__file__)
mistake = feedback.mistake


def reference(block, budget_bytes) -> CostedAnswer:
    nbytes, costs = every_choice(block)
    least = int(costs[nbytes <= budget_bytes].min())
    return CostedAnswer("choice", lambda names: recomputed(names, block, budget_bytes), least, "recomputed FLOPs")


def recomputed(names: list, block, budget_bytes: int) -> int:
    """Return the FLOPs that a choice recomputes. Raises Impossible if it breaks a rule."""
    for name in names:
        if name not in block.names:
            raise Impossible(f"{name!r:.60} is not one of the block's names.", _NAMES)
    if len(set(names)) < len(names):
        raise Impossible("it contains a name twice.", _TWICE)
    nbytes, cost = block.evaluate(names)
    if nbytes > budget_bytes:
        raise Impossible(f"it saves {nbytes:,} bytes, but the budget is {budget_bytes:,} bytes.", _OVER)
    for name in names:
        if block.evaluate(other for other in names if other != name)[1] == cost:
            raise Impossible(f"{name!r} is idle: without it, the choice recomputes the same number of FLOPs.", _IDLE)
    return cost


_NAMES = "What does `block.names` contain?"
_TWICE = "Where does your answer add a name that its list already contains?"
_OVER = "What does `block.evaluate` return for your choice, and which of the two numbers does the budget limit?"
_IDLE = (
    "Compare `block.evaluate` for your list with and without that name. Which of the two lists does the page ask for?"
)

# What common ways to choose recompute.


def _take_in_order(order: Callable) -> Callable:
    """Go through the names in an order, and take each name that still fits."""

    def cost(block, budget_bytes):
        chosen: tuple[str, ...] = ()
        for name in order(block):
            if block.evaluate((*chosen, name))[0] <= budget_bytes:
                chosen = (*chosen, name)
        return block.evaluate(chosen)[1]

    return cost


def _flops_avoided_alone(block) -> dict[str, int]:
    worst = block.evaluate(())[1]
    return {name: worst - block.evaluate((name,))[1] for name in block.names}


def _block_size(block) -> dict[str, int]:
    least = block.evaluate(())[0]
    return {name: max(1, block.evaluate((name,))[0] - least) for name in block.names}


def _sorted_by(key: Callable, reverse: bool) -> Callable:
    return lambda block: sorted(block.names, key=key(block), reverse=reverse)


def _per_byte(block) -> Callable:
    avoided, size = _flops_avoided_alone(block), _block_size(block)
    return lambda name: avoided[name] / size[name]


def _greedy_addition(per_byte: bool) -> Callable:
    """Take the name that avoids most given the names taken before, as long as one fits and avoids anything."""

    def cost(block, budget_bytes):
        chosen: tuple[str, ...] = ()
        while True:
            kept, now = block.evaluate(chosen)
            options = [(*chosen, name) for name in block.names if name not in chosen]
            fitting = [option for option in options if block.evaluate(option)[0] <= budget_bytes]
            gains = {o: (now - block.evaluate(o)[1], max(1, block.evaluate(o)[0] - kept)) for o in fitting}
            gains = {o: gain / size if per_byte else gain for o, (gain, size) in gains.items() if gain > 0}
            if not gains:
                return now
            chosen = max(gains, key=gains.__getitem__)

    return cost


def _knapsack_choice(block, budget_bytes):
    """Return the choice that is best if the savings of single names are assumed to be additive."""
    avoided = _flops_avoided_alone(block)
    nbytes, _ = every_choice(block)
    fitting = [subset(block, i) for i in range(len(nbytes)) if nbytes[i] <= budget_bytes]
    return block.evaluate(max(fitting, key=lambda names: sum(avoided[n] for n in names)))[1]


def _greedy_removal(per_byte: bool) -> Callable:
    """Start with all names, and drop the name that costs least to drop until the rest fits."""

    def cost(block, budget_bytes):
        chosen = tuple(block.names)
        while block.evaluate(chosen)[0] > budget_bytes:
            kept, now = block.evaluate(chosen)
            options = [tuple(n for n in chosen if n != name) for name in chosen]
            loss = {o: (block.evaluate(o)[1] - now, max(1, kept - block.evaluate(o)[0])) for o in options}
            chosen = min(options, key=lambda o: loss[o][0] / loss[o][1] if per_byte else loss[o][0])
        return block.evaluate(chosen)[1]

    return cost


def _best_single_name(block, budget_bytes):
    fitting = [names for names in ((), *((name,) for name in block.names)) if block.evaluate(names)[0] <= budget_bytes]
    return min(block.evaluate(names)[1] for names in fitting)


def _second_best(block, budget_bytes):
    """Return the cost of the best choice that saves fewer bytes than the best choice does."""
    nbytes, costs = every_choice(block)
    points = [i for i in best_points(nbytes, costs) if nbytes[i] <= budget_bytes]
    return int(costs[points[-2:][0]])


mistakes = (
    mistake("saves_nothing", lambda block, budget_bytes: block.evaluate(())[1]),
    mistake("largest_values_first", _take_in_order(_sorted_by(lambda b: _block_size(b).get, True))),
    mistake("smallest_values_first", _take_in_order(_sorted_by(lambda b: _block_size(b).get, False))),
    mistake("order_of_names", _take_in_order(lambda b: b.names)),
    mistake("reverse_order_of_names", _take_in_order(lambda b: b.names[::-1])),
    mistake("most_flops_alone_first", _take_in_order(_sorted_by(lambda b: _flops_avoided_alone(b).get, True))),
    mistake("most_flops_per_byte_alone_first", _take_in_order(_sorted_by(_per_byte, True))),
    mistake("greedy_by_flops", _greedy_addition(False)),
    mistake("greedy_by_flops_per_byte", _greedy_addition(True)),
    mistake("drops_fewest_flops", _greedy_removal(False)),
    mistake("drops_fewest_flops_per_byte", _greedy_removal(True)),
    mistake("one_name", _best_single_name),
    mistake("adds_up_flops_of_single_names", _knapsack_choice),
    mistake("below_budget", _second_best),
)
