"""What is expected of an answer; only the judge reads this."""

from collections.abc import Callable

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.plain_data import CostedAnswer, Impossible
from grader.exercises.requirements import Mistake
from rematscope.choices.enumeration import best_points, every_choice, subset


def reference(block, budget_bytes) -> CostedAnswer:
    nbytes, costs = every_choice(block)
    least = int(costs[nbytes <= budget_bytes].min())
    return CostedAnswer("choice", lambda names: recomputed(names, block, budget_bytes), least, "FLOPs again")


def recomputed(names: list, block, budget_bytes: int) -> int:
    """What a choice computes again. Raises Impossible if it breaks a rule."""
    for name in names:
        if name not in block.names:
            raise Impossible(f"{name!r:.60} is none of the block's names.", _NAMES)
    if len(set(names)) < len(names):
        raise Impossible("a name is in it twice.", "Can a value be saved more than once?")
    nbytes, cost = block.evaluate(names)
    if nbytes > budget_bytes:
        raise Impossible(f"it keeps {nbytes:,} bytes, and the budget is {budget_bytes:,}.", _OVER)
    for name in names:
        if block.evaluate(other for other in names if other != name)[1] == cost:
            raise Impossible(f"{name!r} is idle in it: without that name, as little is computed again.", _IDLE)
    return cost


_NAMES = "What does block.names hold?"
_OVER = "What does block.evaluate say of your choice, and which of the two numbers must stay within the budget?"
_IDLE = "What does block.evaluate say of your list without that name, and which of the two lists is asked for?"

# What the usual ways to choose end with.


def _none(block, budget_bytes):
    return block.evaluate(())[1]


def _one_after_another(order: Callable) -> Callable:
    """Goes through the names in an order, and takes each that still fits."""

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
    """Takes the name that spares most beside those taken before, as long as one fits and spares anything."""

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
    """As if what names spare alone could be added up."""
    spared = _spared_alone(block)
    nbytes, _ = every_choice(block)
    fitting = [subset(block, i) for i in range(len(nbytes)) if nbytes[i] <= budget_bytes]
    return block.evaluate(max(fitting, key=lambda names: sum(spared[n] for n in names)))[1]


def _leaving_out(per_byte: bool) -> Callable:
    """Begins with all names, and leaves out the one that is missed least, until the rest fits."""

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
    """The best of the choices that keep fewer bytes than the best one."""
    nbytes, costs = every_choice(block)
    points = [i for i in best_points(nbytes, costs) if nbytes[i] <= budget_bytes]
    return int(costs[points[-2:][0]])


_JOINT = "What does a name spare when another one is saved already? Is that as much as it spares alone?"
_TRADE = "Is there a choice with two other names in place of one of yours, that fits and computes less again?"
_BACK = "Was a name left out early that would be missed less once others are left out too?"

mistakes = (
    Mistake("it saves nothing", _none, "What does a name spare that fits into the budget?"),
    Mistake("it takes the largest values first", _one_after_another(_by(lambda b: _size(b).get, True)), _TRADE),
    Mistake("it takes the smallest values first", _one_after_another(_by(lambda b: _size(b).get, False)), _TRADE),
    Mistake("it takes names in the block's order", _one_after_another(lambda b: b.names), _TRADE),
    Mistake("it takes names from the last to the first", _one_after_another(lambda b: b.names[::-1]), _TRADE),
    Mistake(
        "it takes those first that spare most",
        _one_after_another(_by(lambda b: _spared_alone(b).get, True)),
        _JOINT,
    ),
    Mistake("it takes those first that spare most for a byte", _one_after_another(_by(_per_byte, True)), _JOINT),
    Mistake("it takes those first that spare most", _best_next(False), _TRADE),
    Mistake("it takes those first that spare most for a byte", _best_next(True), _TRADE),
    Mistake("it leaves out the name that is missed least, until the rest fits", _leaving_out(False), _BACK),
    Mistake("it leaves out the name that is missed least for a byte, until the rest fits", _leaving_out(True), _BACK),
    Mistake("it saves one name alone", _best_one, "What does a second name spare beside the one that you save?"),
    Mistake("it adds up what each name spares alone", _knapsack, _JOINT),
    Mistake(
        "it is the best for less than the budget", _next_to_best, "May a choice keep exactly as many bytes as allowed?"
    ),
)

otherwise = "How many choices are there for eleven names, and did your answer look at every one?"

error_questions = (
    (r"unhashable|not iterable", "What does block.evaluate take: one name, or several in a tuple or list?"),
    (r"RecursionError", "Does every call of your function have fewer names left than the one before?"),
    (
        r"min\(\) |max\(\) ",
        "Is the choice of no names at all among those that you look at, and is it the bytes that you compare with the "
        "budget?",
    ),
)

hints = (
    Hint("Could you look at every choice that there is? How many are there for the eleven names of a block?"),
    Hint(
        "Which of the two numbers that `block.evaluate(names)` returns must stay within the budget, and which is to be "
        "as small as can be?",
        after=("impossible",),
    ),
    Hint(
        "On the page, what does `'down'` spare when nothing else is saved, and what once `'mid'` is?",
        after=("costs more",),
    ),
    Hint(
        "Two choices compute as little again. One of them has a name more. Which of the two does your answer meet "
        "first, and which does it return?",
        after=("impossible",),
        says="idle",
    ),
    Hint(
        "`itertools.combinations(block.names, r)` gives all choices of `r` names. Which `r` are there, from the "
        "smallest to the largest?"
    ),
    Hint(
        "Nearly the answer: from every choice of 0, 1, 2, … names, keep those that fit. Which has the smallest cost, "
        "and among several of that cost the fewest names? `min` takes a `key`."
    ),
    Hint(
        "Which of `block.names` fits into the budget alone, and what does `block.evaluate` say that it leaves to "
        "compute again, beside `block.evaluate([])`?",
        after=("costs more",),
        says="saves nothing",
    ),
    Hint(
        "Give `block.evaluate` two names that fit together. How many choices of two are there, and of three?",
        after=("costs more",),
        says="one name alone",
    ),
    Hint(
        "A choice keeps exactly as many bytes as the budget has. Does your comparison let it through?",
        after=("costs more",),
        says="less than the budget",
    ),
    Hint(
        "Print `block.names` beside what your answer returns. Which of its elements is not there, or is there more "
        "than once?",
        after=("impossible",),
        says="block.names",
    ),
    Hint(
        "Go through your answer by hand, for three names. Does a name come in again that has been taken before?",
        after=("impossible",),
        says="twice",
    ),
    Hint(
        "`block.evaluate(names)` takes what your answer is to return. What does it say of that?",
        after=("wrong type",),
    ),
    Hint(
        "Sometimes no name fits. Which choice is left then, and is it among those that you go through? Which of "
        "the two numbers that `block.evaluate` returns for it is 0, and which of them does your line compare?",
        after=("raises",),
        says="no names at all",
    ),
    *ABOUT_ERRORS,
)


def requirements(case):
    return ()  # its answers are data
