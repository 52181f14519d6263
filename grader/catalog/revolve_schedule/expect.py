"""What is expected of an answer; only the judge reads this."""

import functools
from math import comb

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.plain_data import CostedAnswer, Impossible
from grader.exercises.requirements import Mistake


def reference(n, s) -> CostedAnswer:
    return CostedAnswer("schedule", lambda schedule: steps(schedule, n, s), fewest(n, s), "steps")


def fewest(n, s) -> int:
    """The fewest steps that any schedule takes: Griewank and Walther, "Algorithm 799: revolve" (2000), t(n, s)."""
    repeats = 0
    while comb(s + repeats, s) < n:
        repeats += 1
    return repeats * n - (comb(s + repeats, repeats - 1) if repeats else 0)


def steps(schedule: list, n: int, s: int) -> int:
    """Carries out a schedule and counts its steps. Raises Impossible at the first action that breaks a rule."""
    slots, at_hand, back_at, taken = {0}, 0, n, 0
    for number, action in enumerate(schedule, 1):
        match action:
            case ["step" | "save" | "load" | "back" as verb, int(i)] if type(i) is int and 0 <= i <= n:
                where = f"action {number}, ({verb!r}, {i}), "
            case _:
                written = str(tuple(action) if isinstance(action, list) else action)[:60]
                raise Impossible(f"action {number}, {written}, is none of the page's.", _FORM)
        if verb == "load":
            if i not in slots:
                raise Impossible(f"{where}needs state {i} in a slot, and there it is not.", _NO_STATE)
            at_hand = i
        elif i != at_hand:
            raise Impossible(f"{where}needs state {i} at hand, and state {at_hand} is.", _AT_HAND)
        elif verb == "save":
            slots.add(i)
            if len(slots) > s:
                raise Impossible(f"{where}needs {len(slots)} slots, and there are {s}.", _SLOTS)
        elif i == n:
            raise Impossible(f"{where}has no step to go through: the last one is step {n - 1}.", _LAST)
        elif verb == "step":
            at_hand = i + 1
            taken += 1
        elif back_at == 0:
            raise Impossible(f"{where}comes where every step has been gone back through.", _ORDER)
        elif i != back_at - 1:
            raise Impossible(f"{where}comes where step {back_at - 1} is next to go back through.", _ORDER)
        else:
            back_at = i
            slots = {state for state in slots if state < back_at}
    if back_at:
        raise Impossible(f"it ends, and has not gone back through step {back_at - 1}.", _UNFINISHED)
    return taken


_FORM = "Is each of your actions a pair, of one of the four words and a number from 0 to n?"
_AT_HAND = "After a step, which state is at hand? After going back through a step, do you have the state before it?"
_NO_STATE = "When was that state saved, and when did its slot become free?"
_SLOTS = "Which states are in slots at that point, and is state 0 among those that you count?"
_ORDER = "Is every step gone back through once, the last one first?"
_LAST = "A chain of n steps has the states 0 to n. Which steps does it have?"
_UNFINISHED = "What is at hand after your last action, and what would the next ones be?"

# What the usual schedules take, counted by what they do.


def _pairs(n) -> int:
    """Steps to go back through n steps from their first state alone: n - 1, then n - 2, and so on."""
    return n * (n - 1) // 2


def _segments(n, s):
    """The ways to cut n steps into s segments as equal as can be, by where the longer and the shorter ones are."""
    short, longer = divmod(n, s)
    full = -(-n // s)
    cuts = (
        [short + 1] * longer + [short] * (s - longer),
        [short] * (s - longer) + [short + 1] * longer,
        [short or 1] * (min(s, n) - 1) + [n - (short or 1) * (min(s, n) - 1)],
        [min(full, n - start) for start in range(0, n, full)],
        [n * (i + 1) // s - n * i // s for i in range(s)],
        [-(-n * (i + 1) // s) + (-n * i // s) for i in range(s)],
    )
    return [[part for part in cut if part] for cut in cuts]


def _equal(way, within):
    """Saves at the beginning of each segment; `within(n, free)` are the steps that a segment takes by itself."""

    def count(n, s):
        parts = _segments(n, s)[way]
        return n - parts[-1] + sum(within(part, s - i) for i, part in enumerate(parts))

    return count


def _splitting(where):
    """Saves one state of every part, after `where(n, s)` of its n steps, as long as there is a slot."""

    @functools.cache
    def count(n, s):
        if n == 1 or s == 1:
            return _pairs(n)
        first = min(max(where(n, s), 1), n - 1)
        return first + count(n - first, s - 1) + count(first, s)

    return count


@functools.cache
def _slots_used_once(n, s):
    """The best splits, for one who gives the front part the slots that the back part has, and no more."""
    if n == 1 or s == 1:
        return _pairs(n)
    return min(k + _slots_used_once(n - k, s - 1) + _slots_used_once(k, s - 1) for k in range(1, n))


def _first_states(n, s):
    kept = min(s, n)
    return kept - 1 + _pairs(n - kept + 1)


_FREE = "When the backward pass is through with a segment, which slots are free, and which steps are still to go back "
_FREE += "through? Could these use them?"
_WHERE = (
    "Save the first state one step earlier, or one later: which of the two parts takes fewer steps then, and which "
)
_WHERE += "more? Has each as many slots as the other?"

mistakes = (
    Mistake(
        "it keeps no state but the first",
        lambda n, s: _pairs(n),
        "How many slots are there, and how many hold a state while your schedule runs?",
    ),
    Mistake(
        "it keeps the states that come first, and none of the later ones",
        _first_states,
        "From which state do you begin anew, for each of the last steps? How far is it to there?",
    ),
    *(
        Mistake(
            "it cuts the chain into equal segments, with no other state saved",
            _equal(way, lambda n, _: _pairs(n)),
            _FREE,
        )
        for way in range(6)
    ),
    *(
        Mistake("it cuts the chain into equal segments", _equal(way, fewest), _WHERE)
        for way in range(6)
    ),
    *(
        Mistake("it saves half-way through every part", _splitting(half), _WHERE)
        for half in (lambda n, _: n // 2, lambda n, _: -(-n // 2))
    ),
    *(
        Mistake("it cuts every part into as many equal ones as there are slots", _splitting(equal), _WHERE)
        for equal in (lambda n, s: n // s, lambda n, s: -(-n // s))
    ),
    Mistake(
        "its front parts get no more slots than its back parts",
        _slots_used_once,
        "When the backward pass is through with the back part, which slots are free? How many has the front part then?",
    ),
    Mistake(
        "it takes the last step to the end of the chain",
        lambda n, s: fewest(n, s) + 1,
        "Which state does going back through the last step need, and does anything need the state after it?",
    ),
)  # fmt: skip

otherwise = "Where does your schedule save its first state, and what would it take with that one step earlier or later?"

error_questions = (
    (r"RecursionError", "Does every call of your function go through fewer steps than the one before, or fewer slots?"),
    (r"min\(\) |max\(\) ", "For which n or s is there nothing to choose from?"),
    (r"ZeroDivisionError", "What does that line divide by when there is one slot, or one step?"),
)

hints = (
    Hint(
        "Suppose that you save one state of the chain, and no other. Into which two smaller tasks does that cut yours, "
        "and how many slots has each?"
    ),
    Hint(
        "Give a short schedule of yours to the page's `simulate`. At the action that breaks a rule, what is at hand, "
        "and what lies in the slots?",
        after=("impossible",),
    ),
    Hint(
        "A task is: go back through the steps `start` to `end - 1`, with state `start` at hand and in a slot, and so "
        "many slots for it and others. Can a function call itself with such a task?",
        after=("impossible", "raises"),
    ),
    Hint(
        "A saved state cuts the chain in two. Through which part does the backward pass go first, and which slots are "
        "free for the other part, when that is done?",
        after=("costs more",),
    ),
    Hint(
        "Draw your schedule of 10 steps with 3 slots. `fewest(10, 3)` is 15. Move the first saved state by one step, "
        "to either side: how many steps are that?",
        after=("costs more",),
    ),
    Hint(
        "Say that the first saved state comes after `k` steps. Add up the `k` steps to get there, the steps of the one "
        "task, and those of the other. Can a function try every `k`?"
    ),
    Hint(
        "Nearly the answer: one step takes 0, one slot takes `n * (n - 1) // 2`. Else the smallest number is the "
        "smallest `k + best(n - k, s - 1) + best(k, s)`, for `k` from 1 to `n - 1`; `functools.cache` makes that "
        "quick. What are the actions for the `k` that it comes from?"
    ),
    Hint(
        "What does the page's `keep_one` look like for a chain of two steps? Is yours such a list, of such pairs?",
        after=("wrong type",),
    ),
    Hint(
        "Save one state more, wherever you like. From where does each of the steps behind it begin anew then, and how "
        "many steps does that spare?",
        after=("costs more",),
        says="no state but the first",
    ),
    Hint(
        "With a slot for each state there are no steps but those to the last state that anything needs. Which state is "
        "that, in a chain of two steps?",
        after=("costs more",),
        says="end of the chain",
    ),
    Hint(
        "For 10 steps and 3 slots `fewest` says 15. Count yours, then move the first saved state by one step, to "
        "either side, and count again. What does that say about the middle?",
        after=("costs more",),
        says="half-way",
    ),
    *ABOUT_ERRORS,
)


def requirements(case):
    return ()  # its answers are data
