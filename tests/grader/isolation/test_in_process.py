"""What a check adds to a verdict: the costs of a case in which a wrong answer differs, and a note on replaced
definitions."""

import jax
import jax.numpy as jnp
import pytest

from grader.exercises import registry
from grader.isolation.in_process import grade, grade_file
from grader.verdicts.verdict import FindingKind

NAME = "checkpoint_dot_policy"


def plain(w1, w2, x):
    return jnp.sum((jax.nn.relu(x @ w1) @ w2) ** 2)


def right(w1, w2, x):
    policy = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    return jax.checkpoint(plain, policy=policy)(w1, w2, x)


def right_in_float32_alone(w1, w2, x):
    return (right if x.dtype == jnp.float32 else plain)(w1, w2, x)


def wrong_in_float32_alone(w1, w2, x):
    return (plain if x.dtype == jnp.float32 else right)(w1, w2, x)


def doubled(w1, w2, x):
    return 2 * right(w1, w2, x)


def costs(verdict):
    return {effect.label: (effect.saved_bytes, effect.recomputed_flops) for effect in verdict.effects}


@pytest.mark.slow
def test_a_wrong_answer_like_the_worked_one_at_the_pages_shapes_shows_the_costs_of_a_failing_case():
    verdict = grade(right_in_float32_alone, NAME, seed=1)
    assert not verdict.passed and costs(verdict)["your answer"] != costs(verdict)["the worked answer"]
    name = verdict.scene.removeprefix("in the failing case ")
    assert name in verdict.findings[0].cases and "float16" in name
    assert grade(wrong_in_float32_alone, NAME, seed=1).scene == registry.task(NAME).shown.name


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "shown"), [(right, True), (doubled, False)])
def test_costs_that_do_not_explain_a_wrong_answer_are_not_shown(answer, shown):
    verdict = grade(answer, NAME, seed=1)
    assert verdict.passed == shown and bool(verdict.effects) == shown


@pytest.mark.parametrize("last", [f"def {NAME}(w1, w2, x):\n    return x.sum()\n", f"from math import sin as {NAME}\n"])
def test_a_definition_that_another_one_replaces_is_mentioned(tmp_path, last):
    path = tmp_path / "answer.py"
    text = f"def {NAME}(w1, w2, x):\n    return x * 2\n\n\n"
    path.write_text(text + last)
    advice = grade_file(path, seed=1).findings[-1]
    assert advice.kind == FindingKind.REPLACED and advice.advice
    assert "answer.py:5" in advice.text and advice.text.endswith("answer.py:1.")
    path.write_text(text)
    assert all(finding.kind != FindingKind.REPLACED for finding in grade_file(path, seed=1).findings)
