"""Verdicts hold for any spelling: of a value's shape, of sums and of products."""

import pytest
from sample_answers import named, verdict_on
from spelled_right import RIGHT
from spelled_wrong import WRONG

from grader.verdicts.kinds import Outcome


@pytest.mark.parametrize(("slug", "name"), [(slug, name) for slug, answers in RIGHT.items() for name in answers])
def test_an_honest_spelling_passes(slug, name):
    verdict = verdict_on(RIGHT[slug][name].answer, slug)
    assert verdict.passed, verdict


@pytest.mark.parametrize(("slug", "name"), [(slug, name) for slug, answers in WRONG.items() for name in answers])
def test_a_product_that_is_computed_again_is_found_however_it_is_spelled(slug, name):
    answer = WRONG[slug][name]
    verdict = verdict_on(answer.answer, slug)
    assert verdict.outcome is Outcome.NOT_PASSED and named(answer, verdict.findings), verdict
