"""Each wrong answer fails with the finding that names its mistake; a stub is no wrong answer."""

import jax
import jax.numpy as jnp
import pytest
from answers import named, wrong

from grader import exercise
from grader.grading import grade

NAME = "checkpoint_dot_policy"


ALL = [(slug, name) for slug in exercise.names() for name in wrong(slug)]
# Evidence of the next rematerialization is most often the same text; a third of the answers shows that the rest is
# judged alike, and keeps the suite short.
BOTH = [(*answer, mode) for mode in (False, True) for answer in (ALL[::3] if mode else ALL)]


@pytest.mark.parametrize(("slug", "name", "remat3"), BOTH, indirect=["remat3"])
def test_wrong_answers_fail_with_the_finding_that_names_the_mistake(slug, name, remat3, unpatched, judged_once):
    answer = wrong(slug)[name]
    # One seed: whether a wrong value differs by more than bfloat16's tolerance, and so which cases show it, is chance.
    verdict = grade(answer.answer, slug, seed=0)
    assert verdict.outcome == "not passed", verdict
    found = named(answer, verdict.findings)
    assert len(found) == 1, verdict
    assert answer.cases is None or found[0].cases == answer.cases, verdict
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
