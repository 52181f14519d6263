"""Right answers pass, however they are spelled and for every seed."""

import importlib
import itertools

import numpy as np
import pytest
from sample_answers import named, right, verdict_on, wrong

from grader.exercises import registry, spec
from grader.exercises.reference import reference_of
from grader.isolation.in_process import grade
from grader.judging import compare
from grader.stablehlo.execution import Function


@pytest.mark.parametrize(("slug", "name"), [(slug, name) for slug in registry.names() for name in right(slug)])
def test_right_answers_pass(slug, name, remat3, seed):
    # Shapes and inputs are the same for both rematerializations: where these trace the same programs, one verdict is
    # the other.
    answer = right(slug)[name]
    verdict = verdict_on(answer.answer, slug, seed)
    assert verdict.passed, (verdict, seed)
    assert [finding.kind for finding in verdict.findings] == ["no barrier"] * answer.advised
    assert verdict.shown


@pytest.mark.parametrize("slug", registry.names())
def test_the_verdict_is_the_same_for_every_seed(slug):
    solution = getattr(importlib.import_module(f"solutions.{slug}"), slug)
    answers = list(wrong(slug).values())
    for seed in range(2):
        assert grade(solution, slug, seed).passed, seed
        answer = answers[seed * len(answers) // 2]
        assert named(answer, grade(answer.answer, slug, seed).findings), (answer, seed)


@pytest.mark.parametrize("slug", registry.names())
def test_named_values_differ_by_a_hundred_tolerances_in_every_case(slug):
    task, expect = registry.task(slug), registry.expect(slug)
    far = {dtype: 100 * tolerance for dtype, tolerance in compare.NAMING_TOLERANCE.items()}
    for seed in range(2):
        rng = np.random.default_rng(seed)
        for case in task.cases(rng):
            if isinstance(case, spec.Question):
                continue
            arguments = [expect.draw(rng, argument) for argument in case.arguments]
            named = Function(reference_of(case, expect), *arguments)(*arguments)[1]
            arrays = named | dict(enumerate(arguments))
            for (name, value), (other_name, other) in itertools.permutations(arrays.items(), 2):
                for axes in itertools.permutations(range(value.ndim)) if value.ndim == other.ndim else ():
                    close = compare.close(value.transpose(axes), other, far)
                    assert not close, (case.name, name, other_name, seed)
