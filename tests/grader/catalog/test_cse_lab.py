"""Exercise 13 expects the counts of the programs compiled here, not remembered ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grader.catalog.cse_lab import expect, task
from solutions.cse_lab import cse_lab


@pytest.fixture(autouse=True)
def measured_anew():
    expect.Program.cache_clear()
    yield
    expect.Program.cache_clear()


def questions(seed):
    return [question.arguments for question in task.cases(np.random.default_rng(seed))]


def page(n):
    _, w, x, _ = questions(0)[0]
    return expect.layer_of_the_page, w, x, n


@pytest.mark.parametrize("asked", [page(1), *questions(1)])
def test_the_reference_equals_the_worked_answers_counts(asked, remat3):
    assert {key: tuple(pair) for key, pair in cse_lab(*asked).items()} == expect.reference(*asked)


def test_without_barriers_xla_compiles_the_same_program_as_without_checkpoints(remat3):
    without = expect.Counts(expect.of_layers(expect.without_checkpoints), *page(3))
    expected = expect.reference(*page(3))
    assert expected["compiled"][1] == without["compiled"][0] < expected["compiled"][0]


def test_the_page_and_its_worked_answer_state_the_counts_for_two_layers():
    n = 2
    assert expect.reference(*page(n))["lowered"] == (4 * n - 1,) * 2
    assert expect.reference(*page(n))["compiled"] == (4 * n - 1, 3 * n - 1)
    other = (lambda w, x: jnp.sin(x) @ w, *page(n)[1:])
    assert expect.reference(*other) == {"barriers": (n, 0), **dict.fromkeys(("lowered", "compiled"), (3 * n - 1,) * 2)}


def test_no_simple_rule_for_the_number_of_matmuls_passes():
    """The tested rule: a fixed number of times that each matmul is computed, except for the first gradient of x."""
    times = set()
    for layer, w, x, n in questions(0):
        lowered, _ = expect.reference(layer, w, x, n)["lowered"]
        times.add((lowered + 1) / (n * str(jax.make_jaxpr(layer)(w, x)).count("dot_general")))
    assert len(times) == 2


def test_counts_before_lowering_are_named_in_todays_mode():
    """The mistake counts in a jaxpr's text. With `jax_remat3`, this equals the count in the lowered program."""
    counts = [mistake.wrong_reference(*page(3)) for mistake in expect.mistakes if "jaxpr" in mistake.description]
    assert jaxprs(3) in [found["lowered"] for found in counts] and expect.reference(*page(3)) not in counts


def jaxprs(n):
    layer, w, x, _ = page(n)
    made = (jax.make_jaxpr(expect.asked_for(layer, n, p))([w] * n, x) for p in (True, False))
    return tuple(str(jaxpr).count("dot_general") for jaxpr in made)
