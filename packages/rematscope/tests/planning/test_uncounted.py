"""Operations of unknown cost: every view with totals reports them, and no plan with them is called optimal."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name as named

from rematscope import (
    PlanError,
    SideBySide,
    cost_of,
    explore,
    fit,
    frontier,
    lint,
    measure,
    plan,
    recompute_graph,
    trace,
)
from rematscope.views.interactive_programs import InteractivePrograms

X = jax.ShapeDtypeStruct((64, 64), np.float32)


@jax.custom_vjp
def unknown(x):
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


unknown.defvjp(lambda x: (unknown(x), x), lambda x, ct: (ct * x,))


@jax.custom_vjp
def unknown_length(x):
    return lax.while_loop(lambda x: x[0, 0] < 9.0, lambda x: x * 2.0, x)


unknown_length.defvjp(lambda x: (unknown_length(x), x), lambda x, ct: (ct * x,))


def block(operation, x, w):
    h = named(x @ w, "h")
    return jnp.sum(jnp.sin(named(operation(h), "g") @ w))


CASES = {"pure_callback": lambda x, w: block(unknown, x, w), "while": lambda x, w: block(unknown_length, x, w)}


@pytest.fixture(params=CASES)
def primitive(request):
    return request.param


@pytest.fixture
def f(primitive):
    return CASES[primitive]


def texts(view):
    return repr(view), view.html()


def test_costs_and_both_programs_name_it(f, primitive):
    passes = trace(jax.checkpoint(f), X, X)
    for cost in (passes.cost, passes.recompute_cost):
        assert cost.uncounted == {primitive} and f"uncounted=['{primitive}']" in repr(cost)
    assert passes.deferred_cost.uncounted == frozenset() and primitive in repr(passes)
    said = f"not counted: {primitive}"
    for page in (
        *texts(SideBySide(passes)),
        InteractivePrograms(passes).pane()["html"],
        *texts(InteractivePrograms(passes)),
    ):
        assert said in page.replace("\n", " ")


def test_explore_names_it(f, primitive, capsys):
    explore(jax.checkpoint(f), X, X)  # which saves both names and recomputes nothing
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("recomputed, not counted")]
    assert row.split() == ["recomputed,", "not", "counted", "none", primitive]


def test_a_plan_is_not_called_the_best(f, primitive):
    made = plan(f, X, X, saved=X.size * 4)
    for text in texts(made):
        assert "no choice of these names" not in text
        assert f"the cost of {primitive} is not known, so another choice may recompute less" in text.replace("\n", " ")
    assert made.gap == math.inf and made.graph.uncounted == {primitive}
    with pytest.raises(PlanError, match=f"can be proven to be the best: the cost of {primitive} is not known"):
        _ = made.certificate


def test_the_uncounted_operations_that_a_name_avoids_are_shown(f, primitive):
    made = plan(f, X, X, saved=X.size * 4)
    assert f" + {primitive} " in repr(made)


def test_a_frontier_compares_counted_costs_only(f, primitive):
    for text in texts(found := frontier(f, X, X)):
        assert f"by known costs only, since the cost of {primitive} is not known" in text.replace("\n", " ")
        assert "the best choices, too" not in text
    assert found.graph.uncounted == {primitive}


def test_a_name_behind_it_is_no_finding(f, primitive):
    found = lint(f, X, X)
    assert found.findings == ()
    for text in texts(found):
        assert f"the cost of {primitive} is not known" in text


def test_measure_and_fit_say_it(f, primitive):
    assert f"not counted: {primitive}" in repr(measure(f, X, X))
    assert f"As the cost of {primitive} is not known" in repr(fit(jax.checkpoint(f), X, X, peak="1 GiB")).replace(
        "\n", " "
    )


def test_a_cost_of_the_users_own_knows_operations_but_not_how_long_a_loop_is():
    def cost(equation):
        return 5

    known = plan(CASES["pure_callback"], X, X, saved=X.size * 4, cost=cost)
    assert known.gap == 0 and known.certificate.verify(CASES["pure_callback"], X, X, cost=cost) == known.cost
    assert plan(CASES["while"], X, X, saved=X.size * 4, cost=cost).graph.uncounted == {"while"}


def test_a_cost_that_is_made_of_ours_knows_no_more():
    made = plan(CASES["pure_callback"], X, X, saved=X.size * 4, cost=lambda e: cost_of(e).flops / 1e12)
    assert made.graph.uncounted == {"pure_callback"} and made.gap == math.inf


def test_a_certificate_is_not_verified_if_a_cost_is_unknown():
    certificate = plan(CASES["pure_callback"], X, X, saved=X.size * 4, cost=lambda e: 5).certificate
    with pytest.raises(PlanError, match="the cost of pure_callback is not known"):
        certificate.verify(CASES["pure_callback"], X, X)


def test_uncounted_operations_that_are_not_recomputed_do_not_matter():
    """Outside of the checkpoint the callback runs once, whatever is chosen."""

    def f(x, w):
        return jnp.sum(unknown(jax.checkpoint(lambda x, w: jnp.sin(named(x @ w, "h")) @ w)(x, w)))

    made = plan(f, X, X, saved=X.size * 4)
    assert made.gap == 0 and made.certificate.verify(f, X, X) == made.cost
    assert trace(f, X, X).cost.uncounted == {"pure_callback"}


def test_experts_are_saved_before_values_with_less_recompute_per_byte():
    """A ragged dot takes 2mkn FLOPs, more than a dense matmul of the same size with a shorter contraction."""

    def experts(x, w, groups, v):
        dense = named(x @ v, "dense")
        routed = named(lax.ragged_dot(jnp.tile(jnp.sin(dense), 4), w, groups), "routed")
        return jnp.sum(jnp.sin(routed) ** 2)

    m, k, n, g = 128, 32, 32, 8
    args = (
        jax.ShapeDtypeStruct((m, k), np.float32),
        jax.ShapeDtypeStruct((g, 4 * n, n), np.float32),
        jax.ShapeDtypeStruct((g,), np.int32),
        jax.ShapeDtypeStruct((k, n), np.float32),
    )
    made = plan(experts, *args, saved=4 * m * n)
    assert made.names == ("routed",)
    without = recompute_graph(experts, *args).evaluate(())[1]
    assert without - made.cost >= 2 * m * 4 * n * n and made.certificate.verify(experts, *args) == made.cost
