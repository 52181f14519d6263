"""Differences that rounding explains are accepted; differences that it does not explain are not."""

import jax.numpy as jnp
import numpy as np
import pytest
import sample_answers
from sampling import few
from spelled_right import with_layer

from grader.exercises import registry
from grader.judging.answer_run import AnswerRun
from grader.judging.comparison import agree, close
from grader.tracing.capture import evidence_of
from solutions.two_checkpoints import two_checkpoints as right

NAME = "two_checkpoints"
# In the exercise's second case, the gradient of x is a single element, the sum of 32 terms.


def multiplied_and_summed(W1, W2, W3, x):
    return with_layer(lambda W, x: jnp.sin((W * x).sum(axis=-1)))(W1, W2, W3, x)


def half_of_it_in_float16(W1, W2, W3, x):
    def layer(W, x):
        half = jnp.float16 if x.dtype == jnp.float32 else x.dtype
        return jnp.sin((W.astype(half) @ x.astype(half)).astype(x.dtype))

    return with_layer(layer)(W1, W2, W3, x)


@pytest.mark.slow
@pytest.mark.parametrize("seed", few(range(3), 1))
def test_the_order_of_a_sum_is_an_honest_reason_for_a_difference(seed):
    assert sample_answers.verdict_on(multiplied_and_summed, NAME, seed).passed


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_fewer_bits_than_asked_for_are_none(seed):
    verdict = sample_answers.verdict_on(half_of_it_in_float16, NAME, seed)
    assert [finding.kind for finding in verdict.findings] == ["wrong value"]


def a_little_too_large(W1, W2, W3, x):
    """Wrong by four times float32's tolerance, more than the order of a sum can explain."""
    return right(W1, W2, W3, x) * np.asarray(1 + 4e-5, x.dtype)


@pytest.mark.slow
def test_a_difference_that_no_order_of_summation_explains_is_wrong(seed):
    finding, *_ = sample_answers.verdict_on(a_little_too_large, NAME, seed).findings
    assert finding.kind == "wrong value"


@pytest.mark.parametrize("seed", range(3))
def test_rounding_takes_results_about_as_far_as_a_change_in_the_inputs_last_place(seed):
    evidence = sample_answers.traced(multiplied_and_summed, NAME, seed)
    cases, task, expect = sample_answers.cases(NAME, seed), registry.task(NAME), registry.expect(NAME)
    run = AnswerRun(evidence, cases, task, expect, sample_answers.seed_of_inputs(seed))
    for case, exact, *perturbed in zip(run.cases, run.shadow.cases, *run.perturbed, strict=True):
        for place, (got, want) in enumerate(zip(case.gradients, case.wanted_gradients, strict=True)):
            change = max(
                abs(moved.wanted_gradients[place] - exact.wanted_gradients[place]).max() for moved in perturbed
            )
            assert abs(np.float64(got) - np.float64(want)).max() <= 8 * change


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_gradients_that_almost_cancel_agree_if_rounding_alone_sets_them_apart(dtype):
    """The answer divides by the norm of two numbers, so most of the gradient through their direction cancels.

    The constant in it is rounded too. At these seeds, the difference is larger than the tolerance allows, and some
    perturbations of the inputs hardly change the gradient.
    """
    slug = "name_preactivation"
    task, expect = registry.task(slug), registry.expect(slug)
    far = 0
    for columns, seeds in ((1, (10, 55, 64)), (3, (11, 21))):
        cases = [task.case(None, n=2 if columns == 1 else 1, a=2, b=2, c=columns, dtype=dtype, called="directly")]
        evidence = evidence_of(sample_answers.shipped(slug, "right")["divided_by_the_norm"], slug, cases)
        for seed in seeds:
            run = AnswerRun(evidence, cases, task, expect, seed)
            for place in range(3):
                got, want = run.cases[0].gradients[place], run.cases[0].wanted_gradients[place]
                far += not close(got, want, times=8)
                assert agree(
                    run, 0, lambda case_run, at=place: (case_run.gradients[at], case_run.wanted_gradients[at])
                ), seed
    assert far


def test_an_infinite_result_agrees_only_with_itself():
    finite, infinite = np.float32([1, 2]), np.float32([1, np.inf])
    assert close(infinite, infinite)
    assert not close(finite, infinite)
    assert not close(infinite, finite)
    assert not close(-infinite, infinite)


@pytest.mark.slow
def test_a_constant_that_is_rounded_to_the_dtype_of_the_case_is_honest():
    """The answer divides by the square root of 2 in bfloat16, and the reference multiplies by its inverse.

    So their results differ in float64 too.
    """
    slug = "attention_block"
    task, expect = registry.task(slug), registry.expect(slug)
    cases = [task.case(None, a=2, d=2, s=4, dtype="bfloat16", called="directly")]
    evidence = evidence_of(sample_answers.shipped(slug, "right")["heads_first"], slug, cases)
    far = 0
    for seed in range(60):
        run = AnswerRun(evidence, cases, task, expect, seed)
        for place in range(len(run.cases[0].gradients)):
            got, want = run.cases[0].gradients[place], run.cases[0].wanted_gradients[place]
            far += not close(got, want)
            assert agree(run, 0, lambda case_run, at=place: (case_run.gradients[at], case_run.wanted_gradients[at])), (
                seed
            )
    assert far, "rounding errors beyond the tolerance that a run in float64 explains"
