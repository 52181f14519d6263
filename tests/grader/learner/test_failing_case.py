"""`failing_case` returns the case that a finding names, and running the answer in it shows what the finding says."""

import jax
import markupsafe
import numpy as np
import pytest
from sample_answers import wrong

import grader
import rematscope
from grader.exercises import registry
from grader.learner import session
from solutions.checkpoint_dot_policy import checkpoint_dot_policy as right

NAME = "checkpoint_dot_policy"


def failed(exercise, answer):
    """Check a wrong answer; return its first finding with a case, and the failing case."""
    bound = {exercise: answer}
    verdict = session.check(answer, bound).verdict
    return next(each for each in verdict.findings if each.cases), session.failing_case(None, bound)


@pytest.mark.slow
def test_the_table_of_a_failing_case_has_the_residuals_of_the_finding(new_session):
    finding, case = failed(NAME, wrong(NAME)["no_checkpoint"].answer)
    assert case.name == finding.cases[0] and f"Failing case: {case.name}" in str(case)
    assert str(rematscope.ResidualTable(finding.programs.trace)) in str(case)


@pytest.mark.slow
def test_the_arrays_of_a_failing_case_give_a_gradient(new_session):
    _, case = failed(NAME, wrong(NAME)["no_checkpoint"].answer)
    gradients = jax.grad(lambda *arguments: case.function(*arguments).sum(), argnums=(0, 1, 2))(*case.arguments)
    assert all(np.isfinite(np.asarray(gradient, "float32")).all() for gradient in gradients)
    assert any(np.asarray(gradient, "float32").any() for gradient in gradients)


def test_an_exception_is_reraised_and_named(new_session):
    def checkpoint_dot_policy(w1, w2, x):
        return x @ w1 @ no_such_name  # noqa: F821

    _, case = failed(NAME, checkpoint_dot_policy)
    assert "NameError: name 'no_such_name' is not defined" in str(case) and "no_such_name" in case.html()
    with pytest.raises(NameError, match="no_such_name"):
        case.function(*case.arguments)


@pytest.mark.slow
def test_a_question_shows_the_answers_result(new_session):
    def predict_residuals(op):
        return ["W @ x"]

    finding, case = failed("predict_residuals", predict_residuals)
    assert case.arguments == (finding.cases[0],) and case.function(*case.arguments) == ["W @ x"]
    assert "['W @ x']" in str(case) and "print_fwd_bwd" not in str(case)


@pytest.mark.slow
def test_the_printed_code_runs_the_case_of_the_page(new_session):
    _, case = failed(NAME, wrong(NAME)["no_checkpoint"].answer)
    page = {NAME: wrong(NAME)["no_checkpoint"].answer}
    code = "\n".join(line for line in case.code.splitlines() if "print_fwd_bwd" not in line)
    exec(code, page)
    assert page["case"].name == case.name
    assert all(np.array_equal(a, b) for a, b in zip(page["case"].arguments, case.arguments, strict=True))


@pytest.mark.slow
def test_a_mended_answer_is_run_in_the_case_that_the_earlier_one_failed(new_session):
    _, before = failed(NAME, wrong(NAME)["no_checkpoint"].answer)
    after = session.failing_case(NAME, {NAME: right})
    assert after.name == before.name and str(after) != str(before)


@pytest.mark.slow
def test_without_a_failed_check_there_is_no_failing_case(new_session):
    bound = {NAME: right}
    with pytest.raises(LookupError, match=f"Run check\\({NAME}\\)"):
        session.failing_case(None, bound)
    failed(NAME, wrong(NAME)["no_checkpoint"].answer)
    checked = session.check(right, bound)
    assert checked.passed
    with pytest.raises(LookupError, match="failed no case"):
        session.failing_case(None, bound)
    *_, below, _, _ = checked.widget().children
    button = next(each for each in checked.widget().children[1].children if each.description == "Failing case")
    button.click()
    assert "No failing case" in below.value
    with pytest.raises(LookupError, match="There is no exercise nothing"):
        grader.failing_case("nothing")


@pytest.mark.parametrize(
    "exercise", [pytest.param(each, marks=pytest.mark.slow) for each in registry.names() if each != NAME]
)
def test_every_exercise_has_failing_cases(exercise, new_session):
    finding, case = failed(exercise, next(iter(wrong(exercise).values())).answer)
    assert finding.cases[0].endswith(case.name) and callable(case.function) and isinstance(case.arguments, tuple)
    assert f"Failing case: {case.name}" in str(case) and str(markupsafe.escape(case.name)) in case.html()
