"""What an answer is asked besides is within the page's ranges, asks what its numbers call for, and is right to pass."""

import importlib

import numpy as np
import pytest
import sample_answers

from grader.answers.capture import traced
from grader.exercises import registry
from grader.exercises.besides import MOST_CASES, MOST_QUESTIONS, asks_anything, drawn, for_what_is_written, together
from grader.exercises.spec import Integers, Question
from grader.judging.judge import judge_text

SLUGS = [slug for slug in registry.names() if asks_anything(registry.task(slug))]


def numbers_of(task):
    return {symbol: range_ for symbol, range_ in task.ranges.items() if isinstance(range_, Integers)}


@pytest.mark.parametrize("slug", SLUGS)
def test_any_structure_within_the_ranges_makes_a_case_of_that_structure(slug, seed):
    task, rng = registry.task(slug), np.random.default_rng(seed)
    for _ in range(5):
        structure = drawn(task, rng)
        for symbol, range_ in task.ranges.items():
            assert structure[symbol] in range_.within(structure)
        made = task.case(rng, **structure).structure
        assert made.items() >= {s: v for s, v in structure.items() if s in made}.items()


@pytest.mark.parametrize("slug", sample_answers.drawn(SLUGS, 3))
def test_the_worked_answer_is_right_about_whatever_may_be_asked(slug, seed):
    task, rng = registry.task(slug), np.random.default_rng(seed)
    solution = getattr(importlib.import_module(f"solutions.{slug}"), slug)
    besides = [drawn(task, rng) for _ in range(2)]
    cases = registry.cases(slug, seed, besides)
    assert len({case.name for case in cases}) == len(cases)
    verdict = judge_text(traced(solution, slug, cases, seed, besides).to_json(), cases, slug, seed)
    assert verdict.passed, (besides, verdict, seed)


@pytest.mark.parametrize("slug", SLUGS)
def test_a_number_that_is_written_is_asked_about(slug, seed):
    task = registry.task(slug)
    asked = registry.cases(slug, seed)
    for symbol in numbers_of(task):
        rng = np.random.default_rng(seed)
        number = drawn(task, rng)[symbol]
        besides = for_what_is_written(task, asked, {number}, rng)
        everything = [*(case.structure for case in asked), *besides]
        assert number < 2 or any(structure.get(symbol) == number for structure in everything), (symbol, number, seed)


@pytest.mark.parametrize("slug", SLUGS)
def test_who_writes_many_numbers_is_asked_no_more_than_some(slug):
    task, asked = registry.task(slug), registry.cases(slug, 0)
    most = MOST_QUESTIONS if isinstance(asked[0], Question) else MOST_CASES
    for written in (set(range(200)), {"float16", "bfloat16", "float32", *range(60)}):
        assert len(for_what_is_written(task, asked, written, np.random.default_rng(0))) <= most
    assert isinstance(asked[0], Question) or not for_what_is_written(task, asked, {0}, np.random.default_rng(0))


@pytest.mark.parametrize(
    "structure",
    [
        {"n": 37, "outer": 1},
        {"n": 6, "outer": 4},
        {"n": 10**12, "outer": 10**6},
        {"n": True, "outer": 1},
        {"n": 6.0, "outer": 3},
        {"n": [6], "outer": 3},
        {"dtype": "float64"},
        {"elements": "(n, d, e)"},  # and carries of one axis
        {"more": 1},
    ],
    ids=str,
)
def test_what_an_answers_process_says_it_was_asked_is_believed_within_the_ranges_alone(structure):
    right = {"carry": "(d,)", "dtype": "float32", "n": 6, "elements": "(n,)", "outer": 3, "called": "as it is"}
    assert len(registry.cases("nested_scan", 0, [right])) == len(registry.cases("nested_scan", 0)) + 1
    with pytest.raises(ValueError, match="may be asked"):
        registry.cases("nested_scan", 0, [right | structure])


def test_too_many_structures_are_refused_and_so_are_those_of_an_exercise_that_asks_the_same_of_everybody():
    structure = {"L": 3, "d": 2, "dtype": "float32", "called": "as it is"}
    with pytest.raises(ValueError, match="may be asked"):
        registry.cases("scan_layers", 0, [structure] * 100)
    with pytest.raises(ValueError, match="may be asked"):
        registry.cases("predict_residuals", 0, [{"op": "sin"}])


@pytest.mark.parametrize("slug", SLUGS)
def test_of_any_question_structures_are_made_that_bring_two_numbers_together(slug, seed):
    task, rng = registry.task(slug), np.random.default_rng(seed)
    for asked in registry.cases(slug, seed):
        for made in together(task, asked.structure, 3, 7, rng):
            assert made.keys() == task.ranges.keys()
            break
