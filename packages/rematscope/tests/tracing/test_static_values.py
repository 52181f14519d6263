"""Arguments that are not arrays, such as an Equinox model's functions, are static values of a call."""

import dataclasses
import functools
import inspect
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from equinox_models import multilayer_perceptron
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from normal import normal

import rematscope
from rematscope import PlanError, TraceError, auto, lint, measure, plan, rewrite, trace, with_schedule
from rematscope.tracing.static_values import StaticRule

MODEL = multilayer_perceptron()
(X,) = normal(1, (4, 8))
PARAMETERS, STATIC = eqx.partition(MODEL, eqx.is_array)
ENTRIES = [
    name
    for name in rematscope.__all__
    if inspect.isfunction(entry := getattr(rematscope, name)) and "kwargs" in inspect.signature(entry).parameters
]
NEEDED = {"plan": {"saved": 1.0}, "fit": {"peak": "1 MiB"}, "report": {"memory": "1 MiB"}}


def loss(model, x, act=jnp.tanh):
    return jnp.mean(act(checkpoint_name(jax.vmap(model)(x), "out")) ** 2)


def step(model, x):
    value, gradient = eqx.filter_value_and_grad(loss)(model, x)
    return eqx.apply_updates(model, jax.tree.map(lambda g: -0.1 * g, gradient)), value


@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.parametrize("given", [loss, step])
def test_every_function_accepts_what_report_accepts(name, given, capsys):
    settings = {"act": jnp.sin} if given is loss else {}
    f = {"a": given} if name == "compare" else given
    getattr(rematscope, name)(f, MODEL, X, **NEEDED.get(name, {}), **settings)


@pytest.mark.parametrize("given", [loss, step, eqx.filter_jit(step)])
def test_the_figures_are_those_of_the_arrays_alone(given):
    bound = trace(lambda p, x: eqx.filter(given(eqx.combine(p, STATIC), x), eqx.is_array), PARAMETERS, X)
    passes = trace(given, MODEL, X)
    assert passes.function == "step" if passes.step else "loss"
    assert passes.bytes_by_kind() == bound.bytes_by_kind() and passes.cost == bound.cost
    assert [v.name for v in passes.forward.inputs[:2]] == ["model.layers.0.weight", "model.layers.0.bias"]
    if passes.step:
        assert len(passes.step.program.outputs) == len(bound.step.program.outputs)


def test_the_steps_of_the_page_on_memory_chain():
    smaller = rewrite(step, checkpoint="whole")
    assert measure(smaller, MODEL, X).trace.recompute_cost.flops > 0 == trace(step, MODEL, X).recompute_cost.flops
    arrays = lint(lambda p, x: eqx.filter(smaller(eqx.combine(p, STATIC), x), eqx.is_array), PARAMETERS, X)
    assert [str(finding) for finding in lint(smaller, MODEL, X).findings] == list(map(str, arrays.findings))


def test_a_plan_applies_to_the_same_arguments():
    made = plan(loss, MODEL, X, jnp.sin, saved=0.0)
    assert jnp.array_equal(made.planned(MODEL, X, jnp.sin), loss(MODEL, X, jnp.sin))
    assert made.certificate.verify(loss, MODEL, X, jnp.sin) == made.cost > 0
    made = plan(lambda model, x: (loss(model, x), "a mean"), MODEL, X, saved=0.0)
    assert made.planned(MODEL, X)[1] == "a mean"


class Normalized(nnx.Module):
    def __init__(self):
        self.norm, self.linear = nnx.BatchNorm(8, rngs=nnx.Rngs(0)), nnx.Linear(8, 8, rngs=nnx.Rngs(0))
        self.act = jax.nn.gelu


def nnx_step(model, batch):
    def nnx_loss(model):
        h = {"gelu": model.act, "tanh": jnp.tanh}[batch["act"]](model.linear(model.norm(batch["x"])))
        return jnp.mean(h**2)

    gradient = nnx.grad(nnx_loss)(model)
    nnx.update(model, jax.tree.map(lambda p, g: p - 0.1 * g, nnx.state(model, nnx.Param), gradient))


def test_the_state_that_an_nnx_module_gets_counts():
    model = nnx.eval_shape(Normalized)
    passes = trace(nnx_step, model, {"x": X, "act": "gelu"})
    # The weights, the moving averages and no others.
    assert len(passes.step.program.outputs) == len(jax.tree.leaves(model)) == 6
    assert passes.cost.transcendentals > 0


KINDS = {
    "bool": (True, lambda s, h: jnp.tanh(h) if s else h),
    "float": (0.5, lambda s, h: h * s),
    "float that is read": (0.5, lambda s, h: h if s > 0.1 else -h),
    "int": (2, lambda s, h: sum([h] * s)),
    "str": ("relu", lambda s, h: getattr(jax.nn, s)(h)),
    "function": (jnp.tanh, lambda s, h: s(h)),
}
AROUND = {"as written": lambda f: f, "jit": jax.jit, "filter_jit": eqx.filter_jit}


def loss_and_step(kind, around):
    """Return a loss, a step and its parameters: a dictionary, or for filter_jit an Equinox module."""
    value, use = KINDS[kind]

    def own_loss(params, x):
        w, s = (params["w"], params["s"]) if isinstance(params, dict) else (params.layers, params.activation)
        return jnp.mean(use(s, x @ w) ** 2)

    def step(params, x):
        if isinstance(params, dict):
            g = jax.grad(lambda w: own_loss({**params, "w": w}, x))(params["w"])
            return {**params, "w": params["w"] - 0.1 * g}
        return eqx.apply_updates(params, jax.tree.map(lambda g: -0.1 * g, eqx.filter_grad(own_loss)(params, x)))

    params = {"w": jnp.ones((8, 8)), "s": value}
    if around == "filter_jit":
        params = eqx.tree_at(lambda m: (m.layers, m.activation), MODEL, (params["w"], value))
    return own_loss, AROUND[around](step), params


def is_refused_by_jax(kind, around):
    return around == "jit" and kind != "float"


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name", [n if n in ("trace", "report") else pytest.param(n, marks=pytest.mark.slow) for n in ENTRIES]
)
def test_every_function_accepts_the_arguments_that_the_step_accepts(name, kind, around, capsys):
    _, step, params = loss_and_step(kind, around)
    call = functools.partial(getattr(rematscope, name), {"a": step} if name == "compare" else step, params, X)
    if not is_refused_by_jax(kind, around):
        call(**NEEDED.get(name, {}))
        return
    with pytest.raises((TypeError, jax.errors.JAXTypeError)):
        step(params, X)
    with pytest.raises((TraceError, TypeError)) as raised:
        call(**NEEDED.get(name, {}))
    sentence = " ".join([str(raised.value), *getattr(raised.value, "__notes__", ())])
    assert "`params.s`" in sentence and repr(params["s"])[:4] in sentence.replace("tanh", "<PjitFunction")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("around", ["as written", "filter_jit"])
def test_changed_functions_return_what_the_function_returns(kind, around):
    own_loss, step, params = loss_and_step(kind, around)
    for options in ({"checkpoint": "whole"}, {"microbatches": 2, "in_axes": (None, 0)}):
        found, expected = rewrite(step, **options)(params, X), step(params, X)
        assert jax.tree.structure(found) == jax.tree.structure(expected)
        for one, other in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
            assert jnp.allclose(one, other, rtol=1e-5) if eqx.is_array(other) else one == other
    value, expected = eqx.filter_value_and_grad(own_loss)(params, X)
    planned = auto(own_loss, saved=0)
    others = rewrite(own_loss, checkpoint="whole"), rewrite(own_loss, chunks=2, in_axes=(None, 0))
    for f in (planned, planned.plan(params, X).function, with_schedule(own_loss), *others):
        again, gradient = eqx.filter_value_and_grad(f)(params, X)
        assert jnp.allclose(again, value, rtol=1e-5)
        for one, other in zip(*map(jax.tree.leaves, (gradient, expected)), strict=True):
            assert jnp.allclose(one, other, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("around", AROUND)
def test_a_number_is_traced_as_jit_does_and_static_as_filter_jit_does(around):
    _, step, params = loss_and_step("float", around)
    passes = trace(step, params, X)
    names = [v.name for v in passes.step.program.inputs]
    assert names == (["params.layers", "x"] if around == "filter_jit" else ["params.s", "params.w", "x"])
    assert len(passes.gradients) == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])  # the second is a subclass of Python's float
def test_a_scalar_of_numpy_is_traced_as_filter_jit_does(dtype):
    traces = []

    @eqx.filter_jit
    def step(model, x, rate):
        traces.append(rate)
        gradient = eqx.filter_grad(loss)(model, x)
        return eqx.apply_updates(model, jax.tree.map(lambda g: -rate * g, gradient))

    assert trace(step, MODEL, X, dtype(0.5)).step.program.inputs[-1].name == "rate"
    changed, counts = rewrite(step, microbatches=2, in_axes=(None, 0, None)), []
    for rate in map(dtype, (0.5, 0.25)):
        changed(MODEL, X, rate)
        counts.append(len(traces))
    assert counts[0] == counts[1], "a new value is not traced again"


def test_a_rule_with_the_same_static_values_as_another_is_not_tried():
    calls = []

    def f(x, times):
        calls.append(times)
        return sum([jnp.sin(x)] * times)

    assert StaticRule(f)((X, 2), {})(2)
    assert len(calls) == 1


LINEAR = eqx.nn.Linear(8, 8, key=jax.random.key(2))


@pytest.mark.parametrize(
    ("around", "model", "is_static"),
    [
        (eqx.filter_jit, X, True),
        (lambda f: functools.partial(eqx.filter_jit(f)), X, True),
        (lambda f: f, LINEAR, True),
        (jax.jit, LINEAR, False),
        (lambda f: f, X, False),
    ],
    ids=["filter_jit", "partial of filter_jit", "module", "module in jit", "neither"],
)
def test_a_number_is_static_in_functions_of_equinox_and_next_to_its_modules(around, model, is_static):
    f = around(lambda model, x, scale: jnp.sum(x) * scale)
    assert StaticRule(f)((model, X, 2.0), {})(2.0) is is_static


def test_a_call_with_numbers_of_other_types_has_a_rule_of_its_own():
    rule = StaticRule(lambda x, on: jnp.sin(x) if on else x)
    assert rule((X, True), {})(True)
    assert rule((X, 2), {})(2)


def test_static_values_that_cannot_be_compared_get_a_rule():
    settings = dataclasses.make_dataclass("Settings", ["rate"])
    rule = StaticRule(lambda x, settings, training: x if training else settings.rate * x)
    for rate in (X, X + 1):
        assert rule((X, settings(rate), True), {})(True)


def test_only_the_booleans_are_static_if_that_is_enough():
    passes = trace(lambda x, scale, act, training: act(x) * scale if training else x, X, 2.0, jnp.sin, True)
    assert [v.name for v in passes.forward.inputs] == ["x", "scale"]
    both = trace(lambda x, on: jnp.where(on, jnp.sin(x), x), X, True)
    assert [v.name for v in both.forward.inputs] == ["x", "on"]


def test_numbers_that_differ_in_sign_or_type_have_separate_plans():
    def f(x, by):
        return jnp.sum(jnp.sin(x)) * (1 if math.copysign(1, by) > 0 else -1) * (2 if isinstance(by, int) else 1)

    planned = auto(f, saved=0)
    for by in (0.0, -0.0, 0, math.nan, 0.0, np.float32(0.0), np.float32(-0.0)):
        assert jnp.allclose(planned(X, by), f(X, by))
    with pytest.raises(PlanError, match=r"`by` was 0\.0, a float then, and is -0\.0, a float now"):
        planned.plan(X, 0.0).function(X, -0.0)


def test_a_static_value_that_could_change_unnoticed_is_refused():
    settings = dataclasses.make_dataclass("Settings", ["rate"])(2.0)
    with pytest.raises(PlanError, match="a value of type Settings, a static value that cannot be hashed"):
        auto(lambda x, settings: jnp.sum(jnp.sin(x)) * settings.rate, saved=0)(X, settings)


def test_an_error_about_the_type_of_a_value_names_the_value():
    with pytest.raises(TraceError) as raised:
        trace(lambda x, y: x @ y, X, "relu")
    assert str(raised.value).startswith(
        "`y` is 'relu', a str, and only arrays, numbers and jax.ShapeDtypeStructs can be traced. <lambda> "
        "got it unchanged, and raised TypeError: unsupported operand type(s) for @: "
    )
    assert isinstance(raised.value.__cause__, TypeError)


def test_other_errors_of_the_function_get_a_note():
    def f(x, act):
        raise error

    error = ValueError("mine")
    with pytest.raises(ValueError, match="mine") as raised:
        trace(f, X, jnp.tanh)
    assert raised.value is error
    assert error.__notes__[0].startswith("rematscope passed static values to f, unchanged: `act`, tanh, a ")


class Stateful:
    """A pytree that a function may change, with its activation function among its children."""

    def __init__(self, w, act):
        self.w, self.act = w, act


jax.tree_util.register_pytree_node(Stateful, lambda s: ((s.w, s.act), None), lambda _, both: Stateful(*both))


def test_a_change_that_would_be_lost_is_refused():
    def changes(model, x):
        model.w = model.w * 2
        return model.act(x @ model.w).sum()

    with pytest.raises(TraceError, match=r"changes changes an argument, a value of type Stateful, that also holds"):
        trace(changes, Stateful(jnp.ones((8, 8)), jnp.tanh), X)
    assert trace(lambda m, x: m.act(x @ m.w).sum(), Stateful(jnp.ones((8, 8)), jnp.tanh), X).saved_bytes() > 0


@pytest.mark.parametrize("value", [np.array(["a"]), np.array([None])])
def test_an_array_that_jax_cannot_trace_is_not_static(value):
    with pytest.raises(TraceError, match=r"`y` is an array of .*, and only arrays, numbers"):
        trace(lambda x, y: x, X, value)
