"""What is expected of an answer; only the judge reads this."""

import functools
from math import comb

from grader.exercises.feedback import read_feedback
from grader.exercises.spec import CostedAnswer, Impossible

feedback = read_feedback(__file__)
mistake = feedback.mistake


def reference(n, s) -> CostedAnswer:
    return CostedAnswer("schedule", lambda schedule: steps(schedule, n, s), fewest(n, s), "steps")


def fewest(n, s) -> int:
    """Return the fewest steps that any schedule takes: Griewank and Walther, "Algorithm 799: revolve" (2000),
    t(n, s)."""
    repeats = 0
    while comb(s + repeats, s) < n:
        repeats += 1
    return repeats * n - (comb(s + repeats, repeats - 1) if repeats else 0)


def steps(schedule: list, n: int, s: int) -> int:
    """Carry out a schedule and count its steps. Raises Impossible at the first action that breaks a rule."""
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
            raise Impossible(f"{where}is out of order: the backward pass must run step {back_at - 1} next.", _ORDER)
        else:
            back_at = i
            slots = {state for state in slots if state < back_at}
    if back_at:
        raise Impossible(f"it ends before the backward pass of step {back_at - 1}.", _UNFINISHED)
    return taken


_FORM = "Is every action a pair of one of the four strings and an integer from 0 to n?"
_AT_HAND = "Which state is at hand after the previous actions? `step` moves to the next state; `back` does not move."
_NO_STATE = "When did you save that state, and when did its slot become free?"
_SLOTS = "Which states, including state 0, are in slots after that action?"
_ORDER = "Does your schedule run the backward pass of every step exactly once, starting with the last step?"
_LAST = "A chain of n steps has the states 0 to n. What is the number of its last step?"
_UNFINISHED = "Which state is at hand after your last action, and which actions are still missing?"

# The number of steps of common schedules that are not optimal, for recognizing them.


def _steps_from_first(n) -> int:
    """Return the number of steps for reversing n steps from their first state alone: n - 1, then n - 2, and so on."""
    return n * (n - 1) // 2


def _steps_inside(n, _) -> int:
    return _steps_from_first(n)


def _equal_segments(n, s):
    """Return the ways to divide n steps into s segments of nearly equal length, by the positions of the longer ones."""
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


def _schedule_of_segments(way, within):
    """Save the state at the beginning of each segment; `within(n, free)` returns the steps for one segment."""

    def count(n, s):
        parts = _equal_segments(n, s)[way]
        return n - parts[-1] + sum(within(part, s - i) for i, part in enumerate(parts))

    return count


def _schedule_by_splitting(where):
    """Save one state of every part, after `where(n, s)` of its n steps, as long as there is a slot."""

    @functools.cache
    def count(n, s):
        if n == 1 or s == 1:
            return _steps_from_first(n)
        first = min(max(where(n, s), 1), n - 1)
        return first + count(n - first, s - 1) + count(first, s)

    return count


@functools.cache
def _slots_used_once(n, s):
    """Return the best splits if the front part may only use the slots of the back part."""
    if n == 1 or s == 1:
        return _steps_from_first(n)
    return min(k + _slots_used_once(n - k, s - 1) + _slots_used_once(k, s - 1) for k in range(1, n))


def _first_states(n, s):
    kept = min(s, n)
    return kept - 1 + _steps_from_first(n - kept + 1)


mistakes = (
    mistake("saves_no_other_state", lambda n, s: _steps_from_first(n)),
    mistake("saves_first_states", _first_states),
    *(mistake("equal_segments_without_states_inside", _schedule_of_segments(i, _steps_inside)) for i in range(6)),
    *(mistake("equal_segments", _schedule_of_segments(i, fewest)) for i in range(6)),
    *(
        mistake("middle_of_every_part", _schedule_by_splitting(half))
        for half in (lambda n, _: n // 2, lambda n, _: -(-n // 2))
    ),
    *(
        mistake("equal_segments_of_every_part", _schedule_by_splitting(equal))
        for equal in (lambda n, s: n // s, lambda n, s: -(-n // s))
    ),
    mistake("front_parts_get_slots_of_back_parts", _slots_used_once),
    mistake("runs_last_step", lambda n, s: fewest(n, s) + 1),
)
