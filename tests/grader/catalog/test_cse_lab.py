"""What exercise 13 expects is what is compiled here, not what we know by heart."""

import jax
import jax.numpy as jnp
import pytest

from grader.catalog.cse_lab import expect
from solutions.cse_lab import cse_lab


@pytest.fixture(autouse=True)
def measured_anew():
    expect.compiled_texts.cache_clear()
    yield
    expect.compiled_texts.cache_clear()


def test_expected_is_what_the_worked_answer_counts(remat3):
    for n in (1, 4):
        assert {key: tuple(pair) for key, pair in cse_lab(n).items()} == expect.reference(n)


def test_without_barriers_xla_compiles_what_it_compiles_without_checkpoints(remat3):
    without = expect.counts_of(expect.of_layers(expect.without_checkpoints), 3)
    assert expect.reference(3)["compiled"][1] == without["compiled"][0] < expect.reference(3)["compiled"][0]


def test_another_layer_is_another_answer(monkeypatch):
    monkeypatch.setattr(expect, "layer_of_the_page", lambda w, x: jnp.sin(jnp.sin(x @ w) @ w.T))
    assert expect.reference(2)["lowered"] != tuple(cse_lab(2)["lowered"])


def test_what_is_counted_before_lowering_is_named_in_todays_mode():
    """The text of a jaxpr: with `jax_remat3` it holds what the lowered program holds, and then there is no mistake."""
    counts = [mistake.function(3) for mistake in expect.mistakes if "jaxpr" in mistake.says]
    assert jaxprs(3) in [found["lowered"] for found in counts] and expect.reference(3) not in counts


def jaxprs(n):
    made = (jax.make_jaxpr(expect.asked_for(n, p))(*expect.arguments_for(n)) for p in (True, False))
    return tuple(str(jaxpr).count("dot_general") for jaxpr in made)
