"""Right answers pass in every spelling and for every seed."""

import itertools

import numpy as np
import pytest
from sample_answers import named, right, slow_unless_sampled, verdict_on, wrong

from grader.exercises import registry, spec
from grader.isolation.in_process import grade
from grader.judging import comparison, identity
from grader.judging.reference import reference_of
from grader.stablehlo.execution import Function

ALL = [(slug, name) for slug in registry.names() for name in right(slug)]
WAYS = [
    *slow_unless_sampled([(slug, name, False) for slug, name in ALL], 100),
    *slow_unless_sampled([(slug, name, True) for slug, name in ALL], 200),
]


@pytest.mark.parametrize(("slug", "name", "remat3"), WAYS, indirect=["remat3"])
def test_right_answers_pass(slug, name, remat3, seed):
    # Shapes and inputs are the same in both modes of rematerialization. If the traced programs are also the same, the
    # cached verdict is reused.
    answer = right(slug)[name]
    verdict = verdict_on(answer.answer, slug, seed)
    assert verdict.passed, (verdict, seed)
    assert [finding.kind for finding in verdict.findings] == ["no barrier"] * answer.advised
    assert verdict.shown


@pytest.mark.slow
@pytest.mark.parametrize("slug", slow_unless_sampled(list(registry.names()), 20))
def test_a_wrong_answer_s_finding_is_the_same_for_another_seed(slug):
    answers = list(wrong(slug).values())
    answer = answers[len(answers) // 2]
    assert named(answer, grade(answer.answer, slug, 1).findings), answer  # other tests use seed 0


# Differences, relative to a value's largest element, that rounding in the dtype cannot explain.
FAR = {"float16": 0.1, "bfloat16": 0.4, "float32": 2e-4}


@pytest.mark.parametrize("slug", slow_unless_sampled(list(registry.names()), 10))
def test_named_values_differ_far_beyond_rounding_or_are_one_value_in_two_shapes(slug):
    task, expect = registry.task(slug), registry.expect(slug)
    for seed in range(2):
        rng = np.random.default_rng(seed)
        for case in task.cases(rng):
            if isinstance(case, spec.Question):
                continue
            arguments = [expect.sample_input(rng, argument) for argument in case.arguments]
            named = Function(reference_of(case, expect), *arguments)(*arguments)[1]
            arrays = named | dict(enumerate(arguments))
            for (name, value), (other_name, other) in itertools.permutations(arrays.items(), 2):
                if value.size == other.size:
                    one_in_two_shapes = value.shape != other.shape and np.array_equal(value.ravel(), other.ravel())
                    assert one_in_two_shapes or far(value, other), (case.name, name, other_name, seed)


def far(value, other):
    """Return whether two values differ in every arrangement of their elements."""
    allowed = FAR.get(str(other.dtype), 0.0) * abs(comparison.as_float(other)).max(initial=0.0)
    value, other = comparison.as_float(value), comparison.as_float(other)
    if max(abs(value.min() - other.min()), abs(value.max() - other.max())) > allowed:
        return True
    return all(abs(other - like).max() > allowed for like in identity.arrangements(value, other.shape))
