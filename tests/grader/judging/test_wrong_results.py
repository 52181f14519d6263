"""A finding about wrong results names a mistake only if it leads to the same results in every failing case."""

import jax
import jax.numpy as jnp
import pytest

from grader.exercises import registry
from grader.isolation.in_process import grade
from grader.verdicts.verdict import FindingKind

NAME = "checkpoint_dot_policy"


def right(w1, w2, x):
    saved = jax.checkpoint_policies.checkpoint_dots
    return jax.checkpoint(lambda w1, w2, x: jnp.sum((jax.nn.relu(x @ w1) @ w2) ** 2), policy=saved)(w1, w2, x)


@pytest.mark.slow
def test_a_mistake_that_explains_only_one_failing_case_is_not_named():
    mistake = next(each for each in registry.expect(NAME).mistakes if not each.check_gradient)

    def always(w1, w2, x):
        return mistake.wrong_reference(w1, w2, x)

    def sometimes(w1, w2, x):
        return mistake.wrong_reference(w1, w2, x) if x.dtype == jnp.float32 else 3 * right(w1, w2, x)

    (finding,) = grade(always, NAME, seed=1).findings
    assert finding.kind == FindingKind.WRONG_VALUE and mistake.description in finding.text and len(finding.cases) > 1
    (finding,) = grade(sometimes, NAME, seed=1).findings
    assert finding.text == "Your answer's value is wrong." and finding.next and finding.next != mistake.hint


@pytest.mark.slow
def test_gradients_that_are_wrong_in_one_way_are_one_finding():
    def answer(w1, w2, x):
        return right(jax.lax.stop_gradient(w1), w2, jax.lax.stop_gradient(x))

    (finding,) = grade(answer, NAME, seed=1).findings
    assert "gradients with respect to w1 and x are zero everywhere" in finding.text
    assert finding.expected.startswith("w1: ") and finding.got.startswith("w1: ")


@pytest.mark.slow
@pytest.mark.parametrize("check_gradient", [False, True])
def test_a_rounding_error_gets_a_question_about_dtypes(check_gradient):
    def short(x):
        return x.astype(jnp.bfloat16).astype(x.dtype)

    def answer(w1, w2, x):
        @jax.custom_vjp
        def changed(x):
            return x if check_gradient else short(x)

        changed.defvjp(lambda x: (changed(x), None), lambda _, ct: (short(ct),))
        return right(w1, w2, changed(x))

    (finding,) = [each for each in grade(answer, NAME, seed=1).findings if "float32" in each.cases]
    assert "less than 3 %" in finding.text and "lower precision" in finding.next
