"""What is expected of an answer; only the judge reads this."""

from collections.abc import Callable

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.plain_data import CostedAnswer, Impossible
from grader.exercises.requirements import KnownMistake
from rematscope.choices.enumeration import best_points, every_choice, subset


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
        raise Impossible("it contains a name twice.", "Can a value be saved more than once?")
    nbytes, cost = block.evaluate(names)
    if nbytes > budget_bytes:
        raise Impossible(f"it saves {nbytes:,} bytes, but the budget is {budget_bytes:,} bytes.", _OVER)
    for name in names:
        if block.evaluate(other for other in names if other != name)[1] == cost:
            raise Impossible(f"{name!r} is idle: the choice without it recomputes no more FLOPs.", _IDLE)
    return cost


_NAMES = "What does `block.names` contain?"
_OVER = "What does `block.evaluate` return for your choice, and which of the two numbers does the budget limit?"
_IDLE = (
    "Compare `block.evaluate` for your list with and without that name. Which of the two lists does the page ask for?"
)

# What common ways to choose recompute.


def _none(block, budget_bytes):
    return block.evaluate(())[1]


def _one_after_another(order: Callable) -> Callable:
    """Go through the names in an order, and take each name that still fits."""

    def cost(block, budget_bytes):
        chosen: tuple[str, ...] = ()
        for name in order(block):
            if block.evaluate((*chosen, name))[0] <= budget_bytes:
                chosen = (*chosen, name)
        return block.evaluate(chosen)[1]

    return cost


def _spared_alone(block) -> dict[str, int]:
    worst = block.evaluate(())[1]
    return {name: worst - block.evaluate((name,))[1] for name in block.names}


def _size(block) -> dict[str, int]:
    least = block.evaluate(())[0]
    return {name: max(1, block.evaluate((name,))[0] - least) for name in block.names}


def _by(key: Callable, reverse: bool) -> Callable:
    return lambda block: sorted(block.names, key=key(block), reverse=reverse)


def _per_byte(block) -> Callable:
    spared, size = _spared_alone(block), _size(block)
    return lambda name: spared[name] / size[name]


def _best_next(per_byte: bool) -> Callable:
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


def _knapsack(block, budget_bytes):
    """Choose as if the savings of single names added up."""
    spared = _spared_alone(block)
    nbytes, _ = every_choice(block)
    fitting = [subset(block, i) for i in range(len(nbytes)) if nbytes[i] <= budget_bytes]
    return block.evaluate(max(fitting, key=lambda names: sum(spared[n] for n in names)))[1]


def _leaving_out(per_byte: bool) -> Callable:
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


def _best_one(block, budget_bytes):
    fitting = [names for names in ((), *((name,) for name in block.names)) if block.evaluate(names)[0] <= budget_bytes]
    return min(block.evaluate(names)[1] for names in fitting)


def _next_to_best(block, budget_bytes):
    """Return the cost of the best choice that saves fewer bytes than the best choice does."""
    nbytes, costs = every_choice(block)
    points = [i for i in best_points(nbytes, costs) if nbytes[i] <= budget_bytes]
    return int(costs[points[-2:][0]])


_JOINT = "How many FLOPs does a name avoid once another name is saved? Is it as many as it avoids alone?"
_TRADE = "Replace one of your names by two others. Does such a choice fit in the budget and recompute less?"
_BACK = "Which name did your answer drop early that would cost less to drop once other names are dropped too?"

mistakes = (
    KnownMistake(
        "it saves nothing", _none, "Which names fit in the budget, and how many FLOPs does each of them avoid?"
    ),
    KnownMistake("it takes the largest values first", _one_after_another(_by(lambda b: _size(b).get, True)), _TRADE),
    KnownMistake("it takes the smallest values first", _one_after_another(_by(lambda b: _size(b).get, False)), _TRADE),
    KnownMistake("it takes names in the order of `block.names`", _one_after_another(lambda b: b.names), _TRADE),
    KnownMistake(
        "it takes names in the reverse order of `block.names`", _one_after_another(lambda b: b.names[::-1]), _TRADE
    ),
    KnownMistake(
        "it takes the names that avoid the most FLOPs first",
        _one_after_another(_by(lambda b: _spared_alone(b).get, True)),
        _JOINT,
    ),
    KnownMistake(
        "it takes the names that avoid the most FLOPs per byte first", _one_after_another(_by(_per_byte, True)), _JOINT
    ),
    KnownMistake("it takes the names that avoid the most FLOPs first", _best_next(False), _TRADE),
    KnownMistake("it takes the names that avoid the most FLOPs per byte first", _best_next(True), _TRADE),
    KnownMistake("it drops the name that avoids the fewest FLOPs, until the rest fits", _leaving_out(False), _BACK),
    KnownMistake(
        "it drops the name that avoids the fewest FLOPs per byte, until the rest fits", _leaving_out(True), _BACK
    ),
    KnownMistake("it saves only one name", _best_one, "How many more FLOPs does a second name avoid?"),
    KnownMistake("it adds up the FLOPs that each name avoids alone", _knapsack, _JOINT),
    KnownMistake(
        "it stays below the budget, where a better choice uses it exactly",
        _next_to_best,
        "May a choice save exactly as many bytes as the budget allows?",
    ),
)

otherwise = "How many choices are there for eleven names, and does your answer look at every one of them?"

error_questions = (
    (r"unhashable|not iterable", "block.evaluate takes a tuple or list of names. Do you pass it a single name?"),
    (r"RecursionError", "Does every recursive call of your function get fewer remaining names than its caller?"),
    (
        r"min\(\) |max\(\) ",
        "Is the empty choice, with no names at all, among the choices that you look at? And do you compare its bytes "
        "with the budget, not its FLOPs?",
    ),
)

hints = (
    Hint(
        "How many choices of names are there for a block with eleven names? Could your answer call `block.evaluate` on "
        "every one of them?"
    ),
    Hint(
        "`block.evaluate(names)` returns saved bytes and recomputed FLOPs. Which of the two numbers does the budget "
        "limit, and which should be as small as possible?",
        on_kinds=("impossible",),
    ),
    Hint(
        "On the page, how many FLOPs does `'down'` avoid alone, and how many once `'mid'` is saved? Savings of single "
        "names do not add up.",
        on_kinds=("costs more",),
    ),
    Hint(
        "Two choices recompute the same number of FLOPs, but one of them has one more name. Which of the two does your "
        "answer return? Prefer the choice with fewer names.",
        on_kinds=("impossible",),
        on_text="idle",
    ),
    Hint(
        "`itertools.combinations(block.names, r)` yields all choices of `r` names. Which values of `r` do you need, "
        "from the smallest to the largest?"
    ),
    Hint(
        "Nearly the answer: list all choices of 0, 1, 2, … names in this order, and keep those whose bytes are within "
        "the budget. Return the first one with the fewest recomputed FLOPs: `min` with a `key` does that."
    ),
    Hint(
        "Call `block.evaluate([name])` for each name. Which names fit in the budget, and how many fewer FLOPs are "
        "recomputed than with `block.evaluate([])`?",
        on_kinds=("costs more",),
        on_text="saves nothing",
    ),
    Hint(
        "Call `block.evaluate` with two names that fit together. Your answer should also look at all pairs, at all "
        "choices of three names, and so on.",
        on_kinds=("costs more",),
        on_text="only one name",
    ),
    Hint(
        "A choice may save exactly as many bytes as the budget allows. Does your comparison accept such a choice?",
        on_kinds=("costs more",),
        on_text="stays below the budget",
    ),
    Hint(
        "Print `block.names` next to the list that your answer returns. Which element of the list is not a name of the "
        "block?",
        on_kinds=("impossible",),
        on_text="block.names",
    ),
    Hint(
        "Run your answer step by step for three names. Where does it add a name that is already in the list?",
        on_kinds=("impossible",),
        on_text="twice",
    ),
    Hint(
        "Your answer should return a list of names that you can pass to `block.evaluate`. What does it return now?",
        on_kinds=("wrong type",),
    ),
    Hint(
        "If the budget has space for no name, only the empty choice is left: call `block.evaluate([])`. Do you "
        "consider it, and do you compare the first of the two numbers with the budget?",
        on_kinds=("raises",),
        on_text="with no names at all",
    ),
    *ABOUT_ERRORS,
)


def requirements(case):
    return ()  # its answers are data
