"""A function as written is the first candidate of every choice, and advice agrees with the figures next to it."""

import re

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from rematscope import PlanError, auto, fit, frontier, lint, measure, plan, trace
from rematscope.render.units import bytes_text, difference_text
from rematscope.render.view import plain_text
from rematscope.scheduling.result import Auto

X = jax.ShapeDtypeStruct((32, 32), jnp.float32)


def elementwise(x):
    """A function whose checkpoint prevents a fusion of XLA and takes more memory than it saves."""
    for _ in range(4):
        x = jnp.sin(checkpoint_name(x * 1.5, "h"))
    return x.sum()


def products(x, w):
    return jnp.sum(jnp.tanh(jnp.tanh(x @ w) @ w))


def solved(x, w):
    return jnp.sum(jnp.linalg.solve(x + 40 * jnp.eye(32), w) ** 2)


@pytest.mark.parametrize(("f", "count"), [(elementwise, 1), (products, 2), (solved, 2)])
def test_fit_accepts_a_budget_that_the_function_as_written_meets(f, count):
    args = [X] * count
    budget = measure(f, *args).peak_bytes
    found = fit(f, *args, peak=budget)
    assert found.chosen.peak_bytes <= budget
    assert found.plan.cost == 0
    assert "fits as written: change nothing" in plain_text(found)
    with pytest.raises(PlanError, match="fits as written, and a checkpoint"):
        _ = found.policy


def test_a_step_as_written_is_a_candidate_too():
    def step(w, x):
        return w - 0.1 * jax.grad(products, argnums=1)(x, w)

    found = fit(step, X, X, peak=measure(step, X, X).peak_bytes)
    assert found.chosen.peak_bytes <= found.limit and found.plan.cost == 0


def test_a_budget_for_all_residuals_changes_nothing():
    made = plan(products, X, X, saved="1 GiB")
    assert (made.saved_bytes, made.cost) == (trace(products, X, X).device_bytes_by_kind()["computed"], 0)
    text = " ".join(plain_text(made).split())
    assert "products: best as written" in text and "recomputes nothing" in text
    assert "Name a value" not in text  # which would avoid nothing
    assert made.certificate.verify(products, X, X) == 0
    kept = trace(jax.checkpoint(products, policy=made.policy), X, X)
    assert (kept.device_bytes_by_kind()["computed"], kept.recompute_cost.flops) == (made.saved_bytes, 0)


@pytest.mark.parametrize(("rows", "limit"), [(64, '"16 KiB"'), (65, "16640")])
def test_a_plan_names_the_limit_of_a_smaller_plan_that_recomputes_hardly_more(rows, limit):
    """65 rows take 16.25 KiB, which three digits round down."""

    def f(x, w, v):
        y = checkpoint_name(jnp.sin(x), "cheap")
        return jnp.sum(jnp.tanh(jnp.sin(checkpoint_name((y @ w) @ v, "dear")) @ v.T) * jnp.cos(y @ w))

    shapes = (rows, 64), (64, 64), (64, 64)
    args = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    planned = jax.checkpoint(f)
    least, most = plan(f, *args, saved=0).cost, plan(planned, *args, saved=1.0)
    assert least > most.cost
    text = " ".join(plain_text(plan(planned, *args, saved="40 KiB")).split())
    found = re.search(r"Nearly as good: a plan with saved=(.+?) recomputes (.*?) and saves (\S+ \w+) less", text)
    assert found[1] == limit
    advised = plan(planned, *args, saved=eval(found[1]))
    assert advised.graph.amount(advised.cost) == found[2]
    assert bytes_text(most.saved_bytes - advised.saved_bytes) == found[3]


def test_saved_layers_are_not_reported_as_recomputed():
    def net(ws, x):
        return lax.scan(lambda x, w: (jnp.sin(checkpoint_name(x @ w, "h")), None), x, ws)[0].sum()

    args = jax.ShapeDtypeStruct((8, 32, 32), jnp.float32), X
    around = jax.checkpoint(net)
    assert "recomputes all of them at once" in plain_text(plan(around, *args, saved=0))
    saving = jax.checkpoint(net, policy=jax.checkpoint_policies.everything_saveable)
    for text in (plain_text(plan(around, *args, saved=1e9 and "1 GiB")), plain_text(lint(saving, *args))):
        assert "all of them at once" not in text


def test_a_frontier_of_complex_values_has_those_policies_that_jax_can_differentiate():
    def f(x):
        h = jnp.fft.fft(jnp.sin(x))
        return jnp.sum(jnp.abs(jnp.sin(h) * h) ** 2)

    found = frontier(f, X)
    assert {point.label for point in found.presets} | set(found.refused) >= {"nothing_saveable", "everything_saveable"}
    assert found.refused == () or "JAX cannot differentiate the function under" in plain_text(found)
    assert found.points[-1].with_policy == "as written" and found.points[-1].cost == 0


@pytest.mark.parametrize(
    ("difference", "text"),
    [(23810.2, "× 23,811"), (9.0, "× 10"), (8.99, "+899.0 %"), (-0.31, "−31.0 %"), (0.0, "0.0 %"), (-1e-5, "0.0 %")],
)
def test_a_large_difference_is_a_factor(difference, text):
    assert difference_text(difference) == text


def test_a_bound_of_zero_proves_nothing(monkeypatch):
    made = auto(products, peak="64 KiB").plan(X, X)
    assert "no choice recomputes less than" in made.certificate or "nothing is recomputed" in made.certificate
    monkeypatch.setattr(Auto, "recomputed", property(lambda _: 1000))
    monkeypatch.setattr(made, "bound", 0)
    assert "gap" not in made.certificate and "the solver stopped before it proved a bound" in made.certificate
