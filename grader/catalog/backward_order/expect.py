"""What is expected of an answer; only the judge reads this."""

from grader.catalog.backward_order.task import late, least_peak, peak
from grader.exercises.feedback import read_feedback
from grader.exercises.spec import CostedAnswer, Impossible

feedback = read_feedback(__file__)
mistake = feedback.mistake


def reference(equations, residuals) -> CostedAnswer:
    return CostedAnswer("order", lambda order: _check_order(order, equations), least_peak(equations), "bytes")


def _check_order(order: list, equations) -> int:
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
                raise Impossible(f"{where}reads {read!r}, which has not been computed yet.", _TOO_LATE)
        there.add(name)
    if missing := [name for name in reads_of if name not in there]:
        raise Impossible(f"it does not contain {missing[0]!r}.", _MISSING)
    return peak(order, equations)


_FORM = "What is the first entry of an equation? Your order should be a list of these names only."
_TWICE = "Which equation reads that value first, and is the value still in memory for its next reader?"
_TOO_LATE = "Before you append an equation, which of the values that it reads must already be in the order?"
_MISSING = "Which results does no other equation read? Their equations belong in the order too."

# The peaks of common orders that are not optimal.


def _split_by_cotangent(equations):
    """Return the names of the equations that depend on `ct`, and those of the others."""
    dependent: list[str] = []
    for name, reads, _ in equations:
        if {"ct", *dependent} & {*reads}:
            dependent.append(name)
    return dependent, [name for name, _, _ in equations if name not in dependent]


def _greedy_order(key):
    """Run, of the equations that can run, always the one with the smallest key."""

    def count(equations, residuals):
        made, keys = {name for name, _, _ in equations}, key(equations)
        order: list[str] = []
        while len(order) < len(equations):
            ready = [n for n, reads, _ in equations if n not in order and not ({*reads} & made) - {*order}]
            order.append(min(ready, key=keys))
        return peak(order, equations)

    return count


def _all_recompute_in_late_order(equations, residuals):
    dependent, recomputed = _split_by_cotangent(equations)
    order = late(equations)
    return peak([*(n for n in order if n in recomputed), *dependent], equations)


def _levels_of(equations):
    level: dict[str, int] = {}
    for name, reads, _ in equations:
        level[name] = 1 + max((level.get(read, 0) for read in reads), default=0)
    return level.get


def _gradients_last(equations, residuals):
    read = {read for _, reads, _ in equations for read in reads}
    dependent = sorted(_split_by_cotangent(equations)[0], key=lambda name: name not in read)
    return peak(_repair_order(dependent, equations), equations)


def _repair_order(order, equations):
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


def _defer_direct_operands(equations, residuals):
    dependent, recomputed = _split_by_cotangent(equations)
    reads_of = {name: reads for name, reads, _ in equations}
    direct = {read for name in dependent for read in reads_of[name]}
    return peak(_repair_order([*(n for n in recomputed if n not in direct), *dependent], equations), equations)


mistakes = (
    mistake("all_recompute_first", lambda equations, _: peak([name for name, _, _ in equations], equations)),
    mistake("all_recompute_first", _all_recompute_in_late_order),
    mistake("defers_direct_operands_only", _defer_direct_operands),
    mistake("as_early_as_possible", _greedy_order(_levels_of)),
    mistake(
        "fewest_bytes_next",
        _greedy_order(lambda equations: {name: nbytes for name, _, nbytes in equations}.get),
    ),
    mistake("gradients_last", _gradients_last),
)
