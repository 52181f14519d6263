"""What is expected of an answer; only the judge reads this."""

from grader.catalog.backward_order.task import late, least_peak, peak
from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.plain_data import CostedAnswer, Impossible
from grader.exercises.requirements import Mistake


def reference(equations, residuals) -> CostedAnswer:
    return CostedAnswer("order", lambda order: _carried_out(order, equations), least_peak(equations), "bytes")


def _carried_out(order: list, equations) -> int:
    """An order's peak. Raises Impossible at the first name that breaks a rule."""
    reads_of, there = {name: reads for name, reads, _ in equations}, set()
    for place, name in enumerate(order, 1):
        where = f"place {place}, {str(name)[:60]!r}, "
        if not isinstance(name, str) or name not in reads_of:
            raise Impossible(f"{where}is none of the equations' names.", _FORM)
        if name in there:
            raise Impossible(f"{where}comes a second time.", _TWICE)
        for read in reads_of[name]:
            if read in reads_of and read not in there:
                raise Impossible(f"{where}reads {read!r}, which is not there yet.", _TOO_LATE)
        there.add(name)
    if missing := [name for name in reads_of if name not in there]:
        raise Impossible(f"it ends, and {missing[0]!r} has not run.", _MISSING)
    return peak(order, equations)


_FORM = "What is the first entry of an equation, and is your order a list of those alone?"
_TWICE = "Who reads that value first, and is it still there when the second one reads it?"
_TOO_LATE = (
    "Before an equation is put into the order, what has to be there of all that it reads, and of what that reads?"
)
_MISSING = "Which equations are read by nobody, and does your order have them all the same?"

# What is often done instead, by its peak.


def _ways(equations):
    """The names on the cotangent's way and beside it."""
    way: list[str] = []
    for name, reads, _ in equations:
        if {"ct", *way} & {*reads}:
            way.append(name)
    return way, [name for name, _, _ in equations if name not in way]


def _by(key):
    """Always the equation, among those that can run, for which `key(name, equations)` is smallest."""

    def count(equations, residuals):
        made, keys = {name for name, _, _ in equations}, key(equations)
        order: list[str] = []
        while len(order) < len(equations):
            ready = [n for n, reads, _ in equations if n not in order and not ({*reads} & made) - {*order}]
            order.append(min(ready, key=keys))
        return peak(order, equations)

    return count


def _as_they_come(equations, residuals):
    return peak([name for name, _, _ in equations], equations)


def _needed_first_but_all_before(equations, residuals):
    way, again = _ways(equations)
    order = late(equations)
    return peak([*(n for n in order if n in again), *way], equations)


def _levels(equations):
    level: dict[str, int] = {}
    for name, reads, _ in equations:
        level[name] = 1 + max((level.get(read, 0) for read in reads), default=0)
    return level.get


def _sizes(equations):
    return {name: nbytes for name, _, nbytes in equations}.get


def _gradients_last(equations, residuals):
    read = {read for _, reads, _ in equations for read in reads}
    way = sorted(_ways(equations)[0], key=lambda name: name not in read)
    return peak(_repaired(way, equations), equations)


def _repaired(order, equations):
    """An order with each equation behind what it reads, where it was not."""
    reads_of, done = {name: reads for name, reads, _ in equations}, []

    def put(name):
        if name in reads_of and name not in done:
            for read in reads_of[name]:
                put(read)
            done.append(name)

    for name in order:
        put(name)
    return done


def _only_direct_ones_late(equations, residuals):
    way, again = _ways(equations)
    reads_of = {name: reads for name, reads, _ in equations}
    direct = {read for name in way for read in reads_of[name]}
    return peak(_repaired([*(n for n in again if n not in direct), *way], equations), equations)


_FIRST = (
    "When the first equation on the cotangent's way runs, which values are there that nobody reads for a long time?"
)

mistakes = (
    Mistake("everything that is computed again comes first", _as_they_come, _FIRST),
    Mistake("everything that is computed again comes first", _needed_first_but_all_before, _FIRST),
    Mistake(
        "what is read by equations that compute again comes first, and only what the cotangent's way reads waits",
        _only_direct_ones_late,
        "A value that is read to compute another one again: when is the first of its readers to run?",
    ),
    Mistake(
        "each equation runs as early as it can",
        _by(_levels),
        "An equation could run now. Who reads what it makes, and when?",
    ),
    Mistake(
        "of all that can run, what makes the fewest bytes runs next",
        _by(_sizes),
        "A small value that nobody reads for a long time, or a large one that lets the next equation run: which of the "
        "two is gone sooner?",
    ),
    Mistake(
        "the gradients that nobody reads come last",
        _gradients_last,
        "A gradient is there until the end. What can go as soon as it has run?",
    ),
)

otherwise = "At the step at which your order has its peak, which value is there that could have been made later?"

error_questions = (
    (r"RecursionError", "Does every call of your function put something, or find that it is there already?"),
    (r"KeyError", "Which names are read that no equation makes?"),
    (r"unpack", "An equation has three entries. Which are they?"),
    (r"min\(\) |max\(\) ", "For which equations is there nothing to choose from?"),
    (
        r"concatenate|does not support item|has no attribute",
        "Which of the things that you are given are tuples, not lists?",
    ),
)

hints = (
    Hint("Two kinds of equations stand in the list. Which names does one read that computes something again?"),
    Hint(
        "Let the page's `peak` run over your order of the mini-example. At the name that breaks a rule, what is there "
        "already, and what does it read?",
        after=("impossible",),
    ),
    Hint(
        "The cotangent's way has its order. For each of the others, which equation is the first that reads it?",
        after=("costs more",),
    ),
    Hint(
        "When the cotangent's first equation runs, what lies there for the last one? Could that be made later?",
        after=("costs more",),
        says="comes first",
    ),
    Hint(
        "A value computed again may be read by another such value only. When does its reader run in your order, "
        "and what would be one place earlier?",
        after=("costs more",),
        says=("comes first", "only what the cotangent's way reads waits"),
    ),
    Hint(
        "Whoever runs as early as possible makes something that waits. What would the same rule from the other end be?",
        after=("costs more",),
        says="as early as it can",
    ),
    Hint(
        "Take two values, one of 4 bytes that is read at the very end, one of 40 that is read at once. Which first?",
        after=("costs more",),
        says="fewest bytes",
    ),
    Hint(
        "What does a gradient read that nobody else reads after it? Until when is that there, in your order?",
        after=("costs more",),
        says="nobody reads come last",
    ),
    Hint("What does the mini-example's `by_hand` look like? Is yours such a list, of names?", after=("wrong type",)),
    Hint(
        "The names that are read are of three kinds: another equation's, a residual, and `ct`. What does your "
        "answer do with each?",
        after=("raises",),
    ),
    Hint(
        "Could a function `put(name)` call itself? What has it to do before it appends the name, and when has it "
        "nothing to do at all?"
    ),
    Hint(
        "Nearly the answer: go through the equations in their order, and keep a set that begins as `{'ct'}`. One "
        "that reads something of the set joins it, and is put; to put a name is to put first what it reads that is not "
        "there yet. When does everything else get into the order?"
    ),
    Hint(
        "Print your order for the mini-example, and the page's `by_hand` below it. Which of its entries have another "
        "form, or are no equation's?",
        after=("impossible",),
        says="is none of the equations' names",
    ),
    Hint(
        "Print `equations[0]` and `residuals`. What kind of thing is each, which entries does it have, and which of "
        "them does your line change, or take apart?",
        after=("raises",),
        says="are tuples, not lists",
    ),
    Hint(
        "Print `equations[0]`. Which entries does it have, and for how many of them has your line a name?",
        after=("raises",),
        says="has three entries",
    ),
    *ABOUT_ERRORS,
)


def requirements(case):
    return ()  # its answers are data
