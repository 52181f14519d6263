"""Exercise 6: each wrong answer fails with the finding that names its mistake; a stub is no wrong answer."""

import jax
import jax.numpy as jnp
import pytest
from checkpoint_dot_policy.wrong import WRONG

from grader.grading import grade

NAME = "checkpoint_dot_policy"


def words_of(finding):
    return " ".join([finding.text, *(words for _, words in finding.details())])


@pytest.mark.parametrize("name", WRONG)
def test_wrong_answers_fail_with_the_finding_that_names_the_mistake(name, remat3, unpatched):
    answer, kind, words, cases = WRONG[name]
    verdict = grade(answer, NAME)
    assert verdict.outcome == "not passed", verdict
    findings = [finding for finding in verdict.findings if finding.kind == kind]
    named = [finding for finding in findings if all(word in words_of(finding) for word in words)]
    assert len(named) == 1, verdict
    assert cases is None or named[0].cases == cases, verdict
    assert verdict.findings[0].next
    assert not any(finding.advice for finding in verdict.findings)


def stub_of_the_page(w1, w2, x):
    """Say what it does."""
    raise NotImplementedError


def empty_body(w1, w2, x): ...


def returns_none(w1, w2, x):
    return None


def stub_with_a_start(w1, w2, x):
    y = x @ w1  # noqa: F841
    raise NotImplementedError("my turn")


@pytest.mark.parametrize("answer", [stub_of_the_page, empty_body, returns_none, stub_with_a_start])
def test_a_stub_is_not_attempted_rather_than_wrong(answer):
    verdict = grade(answer, NAME)
    assert verdict.outcome == "not attempted"
    assert "still the stub" in verdict.findings[0].text


def test_not_implemented_inside_jax_is_no_stub():
    def answer(w1, w2, x):
        return jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, jnp.sum(x)))[1]

    assert grade(answer, NAME).outcome == "not passed"
