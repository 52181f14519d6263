"""What is expected of an answer; only the judge reads this."""

import functools
from math import comb

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.plain_data import CostedAnswer, Impossible
from grader.exercises.requirements import KnownMistake


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
                raise Impossible(f"action {number}, {written}, is not one of the actions that the page defines.", _FORM)
        if verb == "load":
            if i not in slots:
                raise Impossible(f"{where}needs state {i} in a slot, but no slot holds it.", _NO_STATE)
            at_hand = i
        elif i != at_hand:
            raise Impossible(f"{where}needs state {i} at hand, but state {at_hand} is at hand.", _AT_HAND)
        elif verb == "save":
            slots.add(i)
            if len(slots) > s:
                raise Impossible(f"{where}needs {len(slots)} slots, but s is {s}.", _SLOTS)
        elif i == n:
            raise Impossible(f"{where}uses step {n}, which does not exist: the last step is step {n - 1}.", _LAST)
        elif verb == "step":
            at_hand = i + 1
            taken += 1
        elif back_at == 0:
            raise Impossible(f"{where}comes after the backward pass has finished.", _ORDER)
        elif i != back_at - 1:
            raise Impossible(f"{where}comes when step {back_at - 1} is the next step of the backward pass.", _ORDER)
        else:
            back_at = i
            slots = {state for state in slots if state < back_at}
    if back_at:
        raise Impossible(f"it ends before the backward pass has been through step {back_at - 1}.", _UNFINISHED)
    return taken


_FORM = "Is each of your actions a pair of one of the four words and an integer from 0 to n?"
_AT_HAND = "Which state is at hand after the previous actions? `step` moves to the next state; `back` does not move."
_NO_STATE = "When did you save that state, and when did its slot become free?"
_SLOTS = "Which states are in slots at that action? Count state 0 too."
_ORDER = "Does your schedule go back through every step exactly once, the last step first?"
_LAST = "A chain of n steps has the states 0 to n. What is the number of its last step?"
_UNFINISHED = "Which state is at hand after your last action, and which actions are still missing?"

# The number of steps of common schedules that are not optimal, for recognizing them.


def _pairs(n) -> int:
    """Steps to go back through n steps from their first state alone: n - 1, then n - 2, and so on."""
    return n * (n - 1) // 2


def _inside(n, _) -> int:
    return _pairs(n)


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


_FREE = (
    "Which slots become free when the backward pass has finished a segment? The segments before it could use these "
    "slots to save more states."
)
_WHERE = (
    "Save the first state one step earlier or later and count again: which of the two parts takes fewer steps, and "
    "which takes more? How many slots does each part have?"
)

mistakes = (
    KnownMistake(
        "it saves no state except state 0",
        lambda n, s: _pairs(n),
        "How many slots are there, and how many of them hold a state while your schedule runs?",
    ),
    KnownMistake(
        "it saves only the first states of the chain, and none of the later states",
        _first_states,
        "From which saved state does your schedule recompute each of the last steps, and how far is it from there?",
    ),
    *(
        KnownMistake("it cuts the chain into equal segments and saves no state inside them", _equal(i, _inside), _FREE)
        for i in range(6)
    ),
    *(KnownMistake("it cuts the chain into equal segments", _equal(i, fewest), _WHERE) for i in range(6)),
    *(
        KnownMistake("it saves the state in the middle of every part", _splitting(half), _WHERE)
        for half in (lambda n, _: n // 2, lambda n, _: -(-n // 2))
    ),
    *(
        KnownMistake("it cuts every part into as many equal pieces as there are slots", _splitting(equal), _WHERE)
        for equal in (lambda n, s: n // s, lambda n, s: -(-n // s))
    ),
    KnownMistake(
        "its front parts use no more slots than its back parts",
        _slots_used_once,
        "Which slots are free after the backward pass has finished the back part, and how many does that leave for "
        "the front part?",
    ),
    KnownMistake(
        "it runs the last step to the end of the chain",
        lambda n, s: fewest(n, s) + 1,
        "Which state does going back through the last step need? Does any action need the state after it?",
    ),
)

otherwise = (
    "After how many steps does your schedule save its first state, and how many steps would it take if it saved that "
    "state one step earlier or later?"
)

error_questions = (
    (r"RecursionError", "Does every recursive call of your function get fewer steps or fewer slots than its caller?"),
    (r"min\(\) |max\(\) ", "For which n or s does that line have no candidates to choose from?"),
    (r"ZeroDivisionError", "What does that line divide by when n or s is 1?"),
)

hints = (
    Hint(
        "Suppose that your schedule saves only one state in addition to state 0. That state cuts the chain into two "
        "smaller chains. How many steps and slots does each of them have?"
    ),
    Hint(
        "Run a short schedule of yours through the page's `simulate`. Which state is at hand, and which states are in "
        "slots, when an action breaks a rule?",
        on_kinds=("impossible",),
    ),
    Hint(
        "Write a function for one subproblem: go back through the steps `start` to `end - 1`, with state `start` at "
        "hand and in a slot, using a given number of slots. How can it call itself for a smaller subproblem?",
        on_kinds=("impossible", "raises"),
    ),
    Hint(
        "A saved state cuts the chain in two parts. Which part does the backward pass go through first, and how many "
        "slots are free for the other part afterwards?",
        on_kinds=("costs more",),
    ),
    Hint(
        "Draw your schedule for 10 steps and 3 slots. `fewest(10, 3)` is 15. How many steps does it take if you move "
        "the first saved state by one step in either direction?",
        on_kinds=("costs more",),
    ),
    Hint(
        "Suppose that the first saved state comes after `k` steps. Add up the `k` steps to get there, the steps of the "
        "back part and those of the front part. Write a function that tries every `k`."
    ),
    Hint(
        "Nearly the answer: `best(n, s)` is 0 for one step and `n * (n - 1) // 2` for one slot. Otherwise it is the "
        "minimum of `k + best(n - k, s - 1) + best(k, s)` over `k` from 1 to `n - 1`; `functools.cache` makes that "
        "fast. Emit the actions for the `k` that attains the minimum."
    ),
    Hint(
        "Print your schedule for two steps next to the page's `keep_one`. Is it a list of pairs, each a word and an "
        "integer?",
        on_kinds=("wrong type",),
    ),
    Hint(
        "Let your schedule save one more state, anywhere in the chain. From which state does it then recompute the "
        "steps after it, and how many steps does that avoid?",
        on_kinds=("costs more",),
        on_text="no state except state 0",
    ),
    Hint(
        "With a slot for every state, a schedule takes only the steps up to the last state that it needs. Which state "
        "is that, in a chain of two steps?",
        on_kinds=("costs more",),
        on_text="end of the chain",
    ),
    Hint(
        "For 10 steps and 3 slots, `fewest` returns 15. Count the steps of your schedule, then move its first saved "
        "state one step earlier and one step later, and count again. Is the middle the best place?",
        on_kinds=("costs more",),
        on_text="in the middle",
    ),
    *ABOUT_ERRORS,
)


def requirements(case):
    return ()  # its answers are data
