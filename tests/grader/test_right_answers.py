"""Right answers pass, however they are spelled and for every seed."""

import importlib
import itertools

import jax
import numpy as np
import pytest
from answers import named, right, wrong

from grader import exercise, judge
from grader.grading import grade


@pytest.mark.parametrize(("slug", "name"), [(slug, name) for slug in exercise.names() for name in right(slug)])
def test_right_answers_pass(slug, name, remat3, judged_once):
    answer = right(slug)[name]
    verdict = grade(answer.answer, slug)
    assert verdict.passed, verdict
    assert [finding.kind for finding in verdict.findings] == ["no barrier"] * answer.advised
    assert verdict.shown


@pytest.mark.parametrize("slug", exercise.names())
def test_the_verdict_is_the_same_for_every_seed(slug):
    solution = getattr(importlib.import_module(f"solutions.{slug}"), slug)
    answers = list(wrong(slug).values())
    for seed in range(2):
        assert grade(solution, slug, seed).passed, seed
        answer = answers[seed * len(answers) // 2]
        assert named(answer, grade(answer.answer, slug, seed).findings), (answer, seed)


@pytest.mark.parametrize("slug", exercise.names())
def test_named_values_differ_by_a_hundred_tolerances_in_every_case(slug):
    task, expect = exercise.task(slug), exercise.expect(slug)
    far = {dtype: 100 * tolerance for dtype, tolerance in judge.NAMING_TOLERANCE.items()}
    for seed in range(2):
        rng = np.random.default_rng(seed)
        for case in task.cases(rng):
            if isinstance(case, exercise.Question):
                continue
            arguments = [expect.draw(rng, argument) for argument in case.arguments]
            values = jax.jit(judge.right(case, expect))(*arguments)[1] | dict(enumerate(arguments))
            arrays = {name: np.asarray(value) for name, value in values.items()}
            for (name, value), (other_name, other) in itertools.permutations(arrays.items(), 2):
                for axes in itertools.permutations(range(value.ndim)) if value.ndim == other.ndim else ():
                    close = judge._close(value.transpose(axes), other, far)
                    assert not close, (case.name, name, other_name, seed)
