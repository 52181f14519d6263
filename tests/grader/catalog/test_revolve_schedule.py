"""Exercise 15 expects the formula's numbers, enforces every rule, and its page applies the same rules."""

import heapq
import importlib
import json
import re
from pathlib import Path

import nbformat
import numpy as np
import pytest
from sample_answers import right, wrong

from grader.catalog.revolve_schedule import expect, task
from grader.exercises.spec import Impossible
from grader.isolation.in_process import grade
from solutions.revolve_schedule import revolve_schedule

PAGE = Path(__file__).parents[3] / "exercises" / "15_revolve_schedule.ipynb"


def carried_out(schedule, n, s) -> int:
    """Return the number of steps of a schedule, which the judge receives as JSON."""
    return expect.steps(json.loads(json.dumps(schedule)), n, s)


def of_the_page(name):
    cells = [cell.source for cell in nbformat.read(PAGE, as_version=4).cells if cell.cell_type == "code"]
    (source,) = [cell for cell in cells if f"def {name}(" in cell]
    exec(source, namespace := {})
    return namespace[name]


def shortest(n, s) -> int:
    """Return the smallest number of steps of all schedules, found by exhaustive search (Dijkstra)."""
    seen, queue = set(), [(0, 0, (0,), n)]
    while queue:
        taken, at_hand, slots, back_at = heapq.heappop(queue)
        if back_at == 0:
            return taken
        if (at_hand, slots, back_at) in seen:
            continue
        seen.add((at_hand, slots, back_at))
        for state in slots:
            heapq.heappush(queue, (taken, state, slots, back_at))
        if len(slots) < s and at_hand not in slots:
            heapq.heappush(queue, (taken, at_hand, tuple(sorted((*slots, at_hand))), back_at))
        if at_hand == back_at - 1:
            left = tuple(state for state in slots if state < at_hand)
            heapq.heappush(queue, (taken, at_hand, left, at_hand))
        if at_hand < n:
            heapq.heappush(queue, (taken + 1, at_hand + 1, slots, back_at))


@pytest.mark.parametrize(("n", "s"), [(n, s) for n in range(1, 9) for s in range(1, 5)])
def test_no_schedule_at_all_takes_fewer(n, s):
    assert shortest(n, s) == expect.fewest(n, s) == carried_out(revolve_schedule(n, s), n, s)


# The numbers of Griewank and Walther's paper, which revolve itself prints.
@pytest.mark.parametrize(
    ("n", "s", "taken"), [(10, 3, 15), (16, 4, 27), (64, 4, 200), (100, 5, 316), (100, 10, 222), (200, 10, 522)]
)
def test_the_formula_and_the_worked_answer_agree(n, s, taken):
    assert expect.fewest(n, s) == carried_out(revolve_schedule(n, s), n, s) == taken


def test_the_formula_knows_griewanks_number_for_a_thousand_steps():
    assert expect.fewest(1000, 10) == 3636


def test_the_page_counts_as_the_judge_does():
    fewest = of_the_page("fewest")
    assert all(fewest(n, s) == expect.fewest(n, s) for n in range(1, 40) for s in range(1, 12))


@pytest.mark.parametrize(("n", "s"), [(1, 2), (5, 1), (5, 7), (23, 3)])
def test_the_page_plays_by_the_same_rules(n, s):
    """The page and the judge refuse the same schedules."""
    simulate = of_the_page("simulate")
    for answers in (right, wrong):
        for answer in answers("revolve_schedule").values():
            try:
                schedule = list(answer.answer(n, s))
            except (TypeError, ValueError, ArithmeticError, RecursionError):
                continue
            schedule = [(word, int(i)) for word, i in schedule if len((word, i)) == 2] if _pairs(schedule) else ["?"]
            for version in (schedule, schedule[:-1], schedule[::-1], [*schedule, ("save", 0)]):
                assert allowed(carried_out, version, n, s) == allowed(simulate, version, n, s), version


def _pairs(schedule) -> bool:
    return all(isinstance(action, tuple | list) and len(action) == 2 for action in schedule)


def allowed(simulate, schedule, n, s) -> bool:
    try:
        simulate(schedule, n, s)
    except (AssertionError, ValueError, Impossible):
        return False
    return True


@pytest.mark.parametrize(
    "schedule", [[["step", True]], [["step", 0.0]], [["step"]], [[[], 0]], ["step"], [None], [["back", 10**400]], [[]]]
)
def test_every_invalid_action_is_refused_with_a_reason(schedule):
    with pytest.raises(Impossible) as refused:
        expect.steps(schedule, 3, 2)
    reason, question = refused.value.args
    assert reason.startswith("action 1, ") and len(reason) < 200 and question.endswith("?")


def test_a_finding_names_the_question_and_both_numbers():
    answer = importlib.import_module("revolve_schedule.wrong").equal_segments
    (finding,) = grade(answer, "revolve_schedule", seed=0).findings
    n, s = map(int, re.search(r"n = (\d+), s = (\d+)$", *finding.cases).groups())
    assert finding.text.startswith(f"Your schedule for n = {n} and s = {s} needs more steps")
    assert finding.expected == f"{expect.fewest(n, s)} steps"
    assert finding.got == f"{carried_out(answer(n, s), n, s)} steps"


def test_every_number_of_slots_is_asked_for_and_lengths_of_all_kinds():
    for seed in range(20):
        asked = [question.arguments for question in task.cases(np.random.default_rng(seed))]
        assert {s for _, s in asked} == set(range(1, 21)) and 40 <= len(asked) <= 60
        assert sum(n < 13 for n, _ in asked) >= 5 and sum(n > 30 for n, _ in asked) >= 20
        assert sorted(asked) == asked
