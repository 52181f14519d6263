"""Wrong answers to revolve_schedule, each with the finding that must name its mistake."""

import functools
import itertools

from sample_answers import Answers

from solutions.revolve_schedule import revolve_schedule as best

WRONG = Answers()
fails_with = WRONG.fails_with


@functools.cache
def fewest(n, s):
    """The fewest steps, counted and not looked up: a sandbox that grades these answers too has nothing of `expect`."""
    if n == 1 or s == 1:
        return n * (n - 1) // 2
    return min(k + fewest(n - k, s - 1) + fewest(k, s) for k in range(1, n))


def go(start, end):
    return [("step", i) for i in range(start, end)]


def from_one_state(start, end):
    """Back through the steps from `start` to `end`, with state `start` in a slot and no other."""
    return [a for i in reversed(range(start, end)) for a in (("load", start), *go(start, i), ("back", i))]


def cut(n, s):
    """Return the starts of s segments of nearly equal length, and the end."""
    return [*sorted({n * i // s for i in range(s)}), n]


def in_segments(n, s, within):
    starts = cut(n, s)
    ahead = [a for start, end in itertools.pairwise(starts[:-1]) for a in (*go(start, end), ("save", end))]
    segments = list(enumerate(itertools.pairwise(starts)))
    return [*ahead, *(a for i, (start, end) in reversed(segments) for a in within(start, end, s - i))]


def by_splitting(n, s, where, start=0):
    if n == 1 or s == 1:
        return from_one_state(start, start + n)
    k = min(max(where(n, s), 1), n - 1)
    there = [("load", start), *go(start, start + k), ("save", start + k)]
    return [*there, *by_splitting(n - k, s - 1, where, start + k), *by_splitting(k, s, where, start)]


@fails_with(
    "costs more", "equal segments and saves no state inside", "slots become free", hint="saved_state_cuts_chain_two"
)
def equal_segments(n, s):
    return in_segments(n, s, lambda start, end, _: from_one_state(start, end))


@fails_with("costs more", "into equal segments.", "one step earlier or later", hint="saved_state_cuts_chain_two")
def equal_segments_with_the_best_inside(n, s):
    def within(start, end, slots):
        inside = [(action, start + i) for action, i in best(end - start, slots)]
        return [("load", start), *inside]

    return in_segments(n, s, within)


@fails_with("costs more", "in the middle of every part", "one step earlier or later", hint="10_steps_3_slots_fewest")
def halves(n, s):
    return by_splitting(n, s, lambda n, _: n // 2)


@functools.cache
def taken_with_slots_used_once(n, s):
    if n == 1 or s == 1:
        return n * (n - 1) // 2, None
    ways = (
        (k + taken_with_slots_used_once(n - k, s - 1)[0] + taken_with_slots_used_once(k, s - 1)[0], k)
        for k in range(1, n)
    )
    return min(ways)


@fails_with(
    "costs more", "no more slots than its back parts", "slots are free after", hint="saved_state_cuts_chain_two"
)
def slots_used_once(n, s, start=0):
    if n == 1 or s == 1:
        return from_one_state(start, start + n)
    k = taken_with_slots_used_once(n, s)[1]
    back = slots_used_once(n - k, s - 1, start + k)
    return [("load", start), *go(start, start + k), ("save", start + k), *back, *slots_used_once(k, s - 1, start)]


@fails_with("costs more", "as many equal segments as the part has slots", hint="saved_state_cuts_chain_two")
def equal_parts_of_parts(n, s):
    return by_splitting(n, s, lambda n, s: n // s)


@fails_with("costs more", "only the first states", "How many steps are between", hint="saved_state_cuts_chain_two")
def the_first_states(n, s):
    kept = min(s, n)
    ahead = [a for i in range(kept - 1) for a in (("step", i), ("save", i + 1))]
    back = [a for i in reversed(range(kept - 1)) for a in (("load", i), ("back", i))]
    return [*ahead, *from_one_state(kept - 1, n), *back]


@fails_with(
    "costs more",
    "to the end of the chain",
    "any action need the state after the last step",
    hint="slot_every_state_schedule_takes",
    where=lambda n, s: s > n > 1,
)
def the_end_as_well_if_there_is_a_slot(n, s):
    if s <= n or n == 1:
        return best(n, s)
    ahead = [a for i in range(n) for a in (("step", i), ("save", i + 1))]
    return [*ahead, *(a for i in reversed(range(n)) for a in (("load", i), ("back", i)))]


@fails_with(
    "impossible",
    "it ends before the backward pass of step 0",
    "state is at hand",
    hint="run_short_schedule_yours_through",
    where=lambda n, s: n == 1,
)
def nothing_for_one_step(n, s):
    return [] if n == 1 else best(n, s)


@fails_with(
    "impossible",
    "slots, but s is",
    "including state 0",
    hint="run_short_schedule_yours_through",
    where=lambda n, s: n > s,
)
def state_0_not_counted(n, s):
    return best(n, s + 1)


@fails_with(
    "impossible",
    "in a slot, but no slot holds it",
    "when did its slot become free",
    hint="run_short_schedule_yours_through",
)
def loads_what_is_free(n, s):
    return [a for action, i in best(n, s) for a in ([("back", i), ("load", i)] if action == "back" else [(action, i)])]


@fails_with(
    "impossible",
    "is out of order: the backward pass must run",
    "starting with the last step",
    hint="run_short_schedule_yours_through",
)
def forwards(n, s):
    return [a for i in range(n) for a in (("back", i), ("step", i))]


@fails_with(
    "impossible",
    "comes after the backward pass has finished",
    "once",
    hint="run_short_schedule_yours_through",
    where=lambda n, s: True,
)
def once_more_through_the_first(n, s):
    return [*best(n, s), ("back", 0)]


@fails_with(
    "impossible",
    "which does not exist: the last step",
    "states 0 to n",
    hint="run_short_schedule_yours_through",
    where=lambda n, s: True,
)
def back_from_the_end(n, s):
    return [*go(0, n), ("back", n)]


@fails_with(
    "impossible",
    "is not one of the actions",
    "of one of the four strings",
    hint="run_short_schedule_yours_through",
    where=lambda n, s: True,
)
def other_words(n, s):
    return [("advance", i) if action == "step" else (action, i) for action, i in [("step", 0), *best(n, s)]]


@fails_with(
    "impossible",
    "action 1, step, is not one of the actions",
    hint="run_short_schedule_yours_through",
    where=lambda n, s: True,
)
def one_list(n, s):
    return [word for action in [("step", 0), *best(n, s)] for word in action]


@fails_with(
    "wrong type",
    "returns 5 instead of a list of pairs such as ('step', 0)",
    hint="print_schedule_two_steps_next",
    where=lambda n, s: True,
)
def a_number(n, s):
    return 5


@fails_with(
    "wrong type",
    "a generator, not plain",
    "What should revolve_schedule(n, s) return?",
    hint="print_schedule_two_steps_next",
    where=lambda n, s: True,
)
def a_generator(n, s):
    yield from best(n, s)


@fails_with("raises", "RecursionError", "fewer steps or fewer slots", hint="write_function_one_subproblem_go")
def without_end(n, s):
    return without_end(n, s)


@fails_with(
    "raises",
    "ZeroDivisionError",
    "`n` or `s` is 1",
    hint="write_function_one_subproblem_go",
    where=lambda n, s: s == 1 < n,
)
def by_the_slots_that_are_left(n, s):
    return best(n, s) if n == 1 or n // (s - 1) < n * s else []


@fails_with("raises", "ValueError: min()", "is the argument of", hint="write_function_one_subproblem_go")
def no_last_case(n, s):
    @functools.cache
    def taken(n, s):
        return min(k + taken(n - k, s - 1) + taken(k, s) for k in range(1, n))

    return best(n, s) if taken(n, s) else []


@fails_with(
    "costs more",
    "than necessary",
    hint=("saved_state_cuts_chain_two", "let_schedule_save_one_more"),
    where=lambda n, s: s == 2 < n,
)
def two_slots_unused(n, s):
    return best(n, s) if s != 2 else from_one_state(0, n)


@fails_with(
    "costs more",
    "than necessary",
    hint="saved_state_cuts_chain_two",
    where=lambda n, s: s == 3 and fewest(n, s) < halves_take(n, s),
)
def three_slots_by_halves(n, s):
    return best(n, s) if s != 3 else by_splitting(n, s, lambda n, _: n // 2)


@fails_with(
    "impossible",
    "breaks a rule",
    "needs state",
    hint="run_short_schedule_yours_through",
    where=lambda n, s: s == 1 and n > 8,
)
def one_slot_for_eight_steps(n, s):
    return best(n, s) if s > 1 or n <= 8 else [("back", n - 1)]


@functools.cache
def halves_take(n, s):
    if n == 1 or s == 1:
        return n * (n - 1) // 2
    k = max(n // 2, 1)
    return k + halves_take(n - k, s - 1) + halves_take(k, s)
