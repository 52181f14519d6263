"""What is expected of an answer; only the judge reads this."""

from grader.catalog.backward_order.task import late, least_peak, peak
from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.plain_data import CostedAnswer, Impossible
from grader.exercises.requirements import KnownMistake


def reference(equations, residuals) -> CostedAnswer:
    return CostedAnswer("order", lambda order: _carried_out(order, equations), least_peak(equations), "bytes")


def _carried_out(order: list, equations) -> int:
    """Return an order's peak. Raises Impossible at the first name that breaks a rule."""
    reads_of, there = {name: reads for name, reads, _ in equations}, set()
    for place, name in enumerate(order, 1):
        where = f"entry {place}, {str(name)[:60]!r}, "
        if not isinstance(name, str) or name not in reads_of:
            raise Impossible(f"{where}is not the name of an equation.", _FORM)
        if name in there:
            raise Impossible(f"{where}appears a second time.", _TWICE)
        for read in reads_of[name]:
            if read in reads_of and read not in there:
                raise Impossible(f"{where}reads {read!r}, which has not run yet.", _TOO_LATE)
        there.add(name)
    if missing := [name for name in reads_of if name not in there]:
        raise Impossible(f"it ends before {missing[0]!r} has run.", _MISSING)
    return peak(order, equations)


_FORM = "What is the first entry of an equation? Your order should be a list of these names only."
_TWICE = "Which equation reads that value first, and is the value still in memory for its next reader?"
_TOO_LATE = "Before you append an equation, which of the values that it reads must already be in the order?"
_MISSING = "Which equations does no other equation read? They belong in the order too."

# The peaks of common orders that are not optimal.


def _ways(equations):
    """Return the names of the equations that depend on `ct`, and those of the others."""
    way: list[str] = []
    for name, reads, _ in equations:
        if {"ct", *way} & {*reads}:
            way.append(name)
    return way, [name for name, _, _ in equations if name not in way]


def _by(key):
    """Run, of the equations that can run, always the one with the smallest key."""

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
    """Return the order, with each equation moved after those that it reads."""
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
    "Which recomputed values are in memory when the first equation that reads `ct` runs, although only later equations "
    "read them?"
)

mistakes = (
    KnownMistake("all recomputation comes first", _as_they_come, _FIRST),
    KnownMistake("all recomputation comes first", _needed_first_but_all_before, _FIRST),
    KnownMistake(
        "only the recomputed values that an equation depending on `ct` reads directly are deferred",
        _only_direct_ones_late,
        "A recomputed value may be read only by other recomputations. When does its first reader run?",
    ),
    KnownMistake(
        "each equation runs as early as it can",
        _by(_levels),
        "For each value, when does the first equation that reads it run? Until then the value only takes memory.",
    ),
    KnownMistake(
        "among the equations that can run, it always picks the one with the fewest bytes",
        _by(_sizes),
        "Which is freed sooner: a small value that is read much later, or a large one that the next equation reads?",
    ),
    KnownMistake(
        "the gradients, which no equation reads, come last",
        _gradients_last,
        "A gradient stays in memory until the end, whenever it runs. Which of the values that it reads can be freed as "
        "soon as it has run?",
    ),
)

otherwise = "Which values are in memory at the peak of your order, and which of them could be computed later?"

error_questions = (
    (r"RecursionError", "Does every call of your function either append a name or return because the name is there?"),
    (r"KeyError", "Which of the names that are read are no equation's, such as `ct` and the other residuals?"),
    (r"unpack", "Each equation has three entries. Which are they?"),
    (r"min\(\) |max\(\) ", "For which input does that line have no equations to choose from?"),
    (
        r"concatenate|does not support item|has no attribute",
        "Which of your arguments are tuples, not lists?",
    ),
)

hints = (
    Hint(
        "The list contains recomputations and equations of the backward pass. How can you tell from the names that an "
        "equation reads which of the two it is?"
    ),
    Hint(
        "Call the page's `peak` with your order for the mini-example. Which equation breaks a rule, what does it read, "
        "and which of these values are already there?",
        on_kinds=("impossible",),
    ),
    Hint(
        "The equations that depend on `ct` can keep their order. For each of the others, find the first equation that "
        "reads it.",
        on_kinds=("costs more",),
    ),
    Hint(
        "When the first equation that reads `ct` runs, which values are in memory that only the last equations read? "
        "Could your order compute them later?",
        on_kinds=("costs more",),
        on_text="all recomputation comes first",
    ),
    Hint(
        "A recomputed value may be read only by another recomputed value. When does this reader run in your order? "
        "Place the value directly before it.",
        on_kinds=("costs more",),
        on_text="directly are deferred",
    ),
    Hint(
        "An equation that runs as early as it can makes a value that waits in memory for its reader. What happens if "
        "every recomputation runs as late as it can instead?",
        on_kinds=("costs more",),
        on_text="as early as it can",
    ),
    Hint(
        "Compare a value of 4 bytes that is read at the very end with one of 40 bytes that is read at once. Which of "
        "the two should be computed first?",
        on_kinds=("costs more",),
        on_text="fewest bytes",
    ),
    Hint(
        "Find a gradient that reads a value which no later equation reads. Until when is that value in memory in your "
        "order?",
        on_kinds=("costs more",),
        on_text="gradients, which no equation reads",
    ),
    Hint("Print your order next to the mini-example's `by_hand`. Is it a list of names?", on_kinds=("wrong type",)),
    Hint(
        "An equation can read another equation's value, a residual, or `ct`. What does your answer do with each of "
        "these?",
        on_kinds=("raises",),
    ),
    Hint(
        "Write a recursive function `put(name)` that appends a name to the order. What must be in the order before it "
        "appends the name, and when does it have nothing to do?"
    ),
    Hint(
        "Nearly the answer: go through the equations in order, with a set that starts as `{'ct'}`. If an equation "
        "reads something in the set, add its name to the set and call `put(name)`, which first puts the missing "
        "equations that it reads. Skip all other equations: `put` adds them when they are needed."
    ),
    Hint(
        "Print your order for the mini-example next to the page's `by_hand`. Which of its entries is not the name of "
        "an equation?",
        on_kinds=("impossible",),
        on_text="is not the name of an equation",
    ),
    Hint(
        "Print `equations[0]` and `residuals`. Both are tuples, which cannot be changed. Which line of yours tries to "
        "change one, or uses it as a list?",
        on_kinds=("raises",),
        on_text="are tuples, not lists",
    ),
    Hint(
        "Print `equations[0]`. How many entries does it have, and how many names does your line unpack it into?",
        on_kinds=("raises",),
        on_text="has three entries",
    ),
    *ABOUT_ERRORS,
)


def requirements(case):
    return ()  # its answers are data
