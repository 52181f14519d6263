"""Answers that are spelled in ways a whole module allows, and ways in which a name comes by its value."""

import jax
import jax.numpy as jnp
import pytest

from grader import check
from grader.answers import find

ANSWER = """
def checkpoint_dot_policy(w1, w2, x) -> Array:
    return total
"""


def answer_in(tmp_path, text):
    file = tmp_path / "answer.py"
    file.write_text(text)
    return find.read(file).answer()


def test_a_future_import_holds_for_every_statement(tmp_path):
    text = "from __future__ import annotations\ntotal = 1\n" + ANSWER  # Array is defined nowhere
    assert answer_in(tmp_path, text)(0, 0, 0) == 1


@pytest.mark.parametrize(
    "statement",
    [
        "match (1, 2):\n    case (first, total): pass",
        "match [1, 2]:\n    case [first, *total]: pass",
        'match {"a": 1, "b": 2}:\n    case {"a": first, **total}: pass',
    ],
)
def test_what_a_pattern_captures_is_a_name_of_the_page(tmp_path, statement):
    answer = answer_in(tmp_path, statement + ANSWER.replace(" -> Array", ""))
    assert answer(0, 0, 0) in (2, [2], {"b": 2})


def pipeline(w1, w2, x):
    return jnp.sum((jax.nn.relu(x @ w1) @ w2) ** 2)


checkpoint_dot_policy = jax.checkpoint(pipeline, policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable)


def test_an_answer_may_be_assigned_to_the_name():
    assert checkpoint_dot_policy.__name__ == "pipeline"
    assert check(checkpoint_dot_policy).passed
