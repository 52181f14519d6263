"""The value of an answer called without jax.grad is also judged: a custom rule may compute another value."""

import jax
import jax.numpy as jnp
import pytest
from sampling import few

from grader.isolation.in_process import grade
from solutions.two_checkpoints import two_checkpoints as right


def with_rules(primal):
    function = jax.custom_vjp(primal)
    function.defvjp(lambda *arguments: jax.vjp(right, *arguments), lambda pullback, ct: pullback(ct))
    return function


def with_a_jvp(primal):
    function = jax.custom_jvp(primal)
    function.defjvp(lambda primals, tangents: jax.jvp(right, primals, tangents))
    return function


def doubled(*arguments):
    return 2 * right(*arguments)


def left_for_later(*arguments):
    raise NotImplementedError


def not_there(*arguments):
    return right(*arguments[::-1])


def in_half_precision(*arguments):
    return right(*arguments).astype(jnp.float16)


def told_by_its_tracers(*arguments):
    return right(*arguments) if "Linearize" in type(arguments[0]).__name__ else doubled(*arguments)


WRONG = {
    "a rule for the way back": (
        with_rules(doubled),
        "wrong value",
        "value is wrong when it is called without jax.grad",
    ),
    "a rule for tangents": (with_a_jvp(doubled), "wrong value", "value is wrong when it is called without jax.grad"),
    "a stub": (with_rules(left_for_later), "wrong type", "still a stub when it is called without jax.grad"),
    "an error": (with_rules(not_there), "raises", "TypeError"),
    "another dtype": (with_rules(in_half_precision), "wrong type", "] when it is called without jax.grad"),
    "without a rule": (told_by_its_tracers, "wrong value", "value is wrong"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", few(WRONG, 2))
def test_a_value_that_only_differentiating_makes_right_is_wrong(name, seed):
    answer, kind, words = WRONG[name]
    verdict = grade(answer, "two_checkpoints", seed)
    assert verdict.outcome == "not passed", verdict
    assert verdict.findings[0].kind == kind and words in verdict.findings[0].text, verdict


@pytest.mark.parametrize("made_with", [with_rules, with_a_jvp])
def test_a_custom_rule_with_the_right_value_is_judged_by_its_residuals(made_with, seed):
    verdict = grade(made_with(right), "two_checkpoints", seed)
    assert not any("without jax.grad" in finding.text for finding in verdict.findings), verdict
