"""Every answer is also tried on structures that are drawn from the ranges on its page."""

import importlib

import numpy as np
import pytest

from grader.exercises import registry
from grader.exercises.registry import draw_structure, is_allowed, takes_any_structure
from grader.exercises.spec import Question
from grader.isolation.in_process import grade
from solutions.best_placement import best_placement

SLUGS = [slug for slug in registry.names() if takes_any_structure(registry.task(slug))]


@pytest.mark.parametrize("slug", SLUGS)
def test_any_structure_within_the_ranges_makes_a_case_of_that_structure(slug, seed):
    task, rng = registry.task(slug), np.random.default_rng(seed)
    for _ in range(5):
        structure = draw_structure(task, rng)
        assert is_allowed(structure, task)
        made = task.case(rng, **structure).structure
        assert made.items() >= {s: v for s, v in structure.items() if s in made}.items()


@pytest.mark.parametrize("slug", registry.names())
def test_a_task_s_own_cases_come_first_and_no_two_have_one_name(slug, seed):
    own = [
        each.name for each in importlib.import_module(f"grader.catalog.{slug}.task").cases(np.random.default_rng(seed))
    ]
    every = registry.cases(slug, seed)
    names = [each.name for each in every]
    assert [name for name in names if name in own] == own
    assert len({*names}) == len(names)
    assert [isinstance(each, Question) for each in every] == sorted(isinstance(each, Question) for each in every)


@pytest.mark.parametrize("slug", SLUGS)
def test_cases_are_random_and_a_structure_occurs_twice(slug, seed):
    task = registry.task(slug)
    own = task.cases(np.random.default_rng(seed))
    more = [each for each in registry.cases(slug, seed) if each.name not in {case.name for case in own}]
    assert more
    known = [structure for each in own if is_allowed(structure := of_ranges(each, task), task)]
    assert not known or any(of_ranges(each, task) in known for each in more)


def of_ranges(each, task):
    return {symbol: each.structure.get(symbol) for symbol in task.ranges}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "outcome"),
    [(lambda stages: len(stages), "not passed"), (lambda stages: tuple(map(id, stages)), "passed")],
    ids=["by numbers", "by functions"],
)
def test_an_answer_that_caches_by_numbers_only_does_not_pass(key, outcome, seed):
    known = {}

    def remembers(stages):
        return known.setdefault(key(stages), (best_placement(stages), stages))[0]

    assert grade(remembers, "best_placement", seed=seed).outcome == outcome
