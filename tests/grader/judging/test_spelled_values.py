"""Verdicts do not depend on the spelling of shapes, sums and matmuls. Each run tests one in eight of these answers."""

import pytest
from sample_answers import named, slow_unless_sampled, verdict_on
from spelled_right import RIGHT
from spelled_wrong import WRONG

from grader.verdicts.verdict import Outcome


def some(answers):
    return pytest.mark.parametrize(
        ("slug", "name"), slow_unless_sampled([(slug, name) for slug in answers for name in answers[slug]], 8)
    )


@some(RIGHT)
def test_an_honest_spelling_passes(slug, name):
    verdict = verdict_on(RIGHT[slug][name].answer, slug)
    assert verdict.passed, verdict


@some(WRONG)
def test_a_recomputed_matmul_is_found_in_any_spelling(slug, name):
    answer = WRONG[slug][name]
    verdict = verdict_on(answer.answer, slug)
    assert verdict.outcome is Outcome.NOT_PASSED and named(answer, verdict.findings), verdict
