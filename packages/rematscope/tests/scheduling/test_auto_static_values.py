"""Functions with a plan accept arguments that are not arrays, and have one plan per combination of these."""

import functools
import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from equinox_models import multilayer_perceptron
from normal import normal

from rematscope import PlanError, auto, fit, load_schedule, trace, with_schedule

MODEL = multilayer_perceptron()
(X,) = normal(1, (4, 8))


def loss(model, x):
    return jnp.mean(jax.vmap(model)(x) ** 2)


def by_name(w, x, act):
    return jnp.mean(getattr(jnp, act)(jnp.sin(x @ w)) ** 2)


def assert_same_gradient(planned):
    found, expected = (jax.tree.leaves(eqx.filter_grad(f)(MODEL, X)) for f in (planned, loss))
    assert len(found) == len(expected) == 6
    for one, other in zip(found, expected, strict=True):
        assert jnp.allclose(one, other, rtol=1e-5, atol=1e-7)


def test_the_gradient_with_respect_to_the_arrays_is_that_of_jax(tmp_path):
    planned = auto(loss, saved=0)
    made = planned.plan(MODEL, jax.ShapeDtypeStruct(X.shape, X.dtype))
    made.save(tmp_path / "schedule.json")
    for f in (planned, made.function, load_schedule(tmp_path / "schedule.json", loss), with_schedule(loss)):
        assert_same_gradient(f)
    assert trace(planned, MODEL, X).recompute_cost.flops > 0
    assert planned.plan(MODEL, X) is made


def test_the_arrays_of_a_model_alone_have_the_same_gradient():
    parameters, static = eqx.partition(MODEL, eqx.is_array)
    planned = auto(lambda parameters, x: loss(eqx.combine(parameters, static), x), saved=0)
    found, expected = jax.grad(planned)(parameters, X), eqx.filter_grad(loss)(MODEL, X)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    assert all(map(functools.partial(jnp.allclose, rtol=1e-5, atol=1e-7), *map(jax.tree.leaves, (found, expected))))


def test_another_function_in_the_model_is_another_plan():
    planned = auto(loss, saved="1 MiB")
    made = planned.plan(MODEL, X)
    other = eqx.tree_at(lambda m: m.activation, MODEL, jnp.sin)
    assert jnp.allclose(planned(other, X), loss(other, X)) and planned.plan(other, X) is not made
    with pytest.raises(PlanError, match=r"`model\.activation` was gelu, a function then, and is sin, a .* now"):
        made.function(other, X)


@pytest.mark.parametrize(
    "plan",
    [
        lambda f: auto(f, saved=0),
        lambda f: auto(f, saved=0).plan(MODEL, X).function,
        with_schedule,
        lambda f: fit(f, MODEL, X, peak="1 GiB").plan.planned,
    ],
)
def test_results_that_are_not_arrays_are_returned(plan):
    def f(model, x):
        return loss(model, x), {"loss": "mean square", "activation": jax.nn.gelu}

    value, others = plan(f)(MODEL, X)
    assert jnp.allclose(value, loss(MODEL, X)) and others == {"loss": "mean square", "activation": jax.nn.gelu}


def test_argnums_count_arguments_that_are_not_arrays():
    f = auto(lambda act, w, x: by_name(w, x, act), saved="1 MiB", argnums=1)
    w = jnp.ones((8, 8))
    assert jnp.allclose(jax.grad(f, 1)("tanh", w, X), jax.grad(by_name)(w, X, "tanh"))
    with pytest.raises(PlanError, match="planned without a gradient for `x`"):
        jax.grad(f, 2)("tanh", w, X)
    with pytest.raises(PlanError, match="argnums includes 'act', an argument of <lambda> without floating-point"):
        auto(lambda act, w, x: by_name(w, x, act), saved="1 MiB", argnums=0)("tanh", w, X)
    assert trace(f, "tanh", w, X).saved_bytes() > 0  # of the planned gradient


def test_a_plan_can_be_pickled():
    made = auto(by_name, saved="1 MiB").plan(jnp.ones((8, 8)), X, "tanh")
    again = pickle.loads(pickle.dumps(made))
    assert jnp.array_equal(again.function(jnp.ones((8, 8)), X, "tanh"), by_name(jnp.ones((8, 8)), X, "tanh"))


@pytest.mark.parametrize(
    "plan", [lambda f: auto(f, saved=0), with_schedule, lambda f: auto(f, saved=0).plan(X).function]
)
def test_numbers_among_the_results_are_arrays_as_with_jit(plan):
    def f(x):
        return jnp.sum(jnp.sin(jnp.sin(x))), {"count": x.shape[0], "rate": 0.5, "is_sum": True}

    found, expected = (function(X)[1] for function in (plan(f), jax.jit(f)))
    assert found == expected
    assert {k: jax.typeof(v) for k, v in found.items()} == {k: jax.typeof(v) for k, v in expected.items()}
    assert all(isinstance(v, jax.Array) for v in found.values())
