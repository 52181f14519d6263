"""Arguments that are not arrays, such as an Equinox model's functions, are static values of a call."""

import inspect

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

import rematscope
from rematscope import TraceError, lint, measure, plan, rewrite, trace

MODEL = eqx.nn.MLP(8, 8, 16, 2, activation=jax.nn.gelu, key=jax.random.key(0))
X = jax.random.normal(jax.random.key(1), (4, 8))
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


def test_numbers_are_arrays_as_before():
    passes = trace(lambda x, scale, act: act(x) * scale, X, 2.0, jnp.sin)
    assert [v.name for v in passes.forward.inputs] == ["x", "scale"]
    with pytest.raises(TraceError, match=r"reads the value of an argument.*functools\.partial"):
        trace(lambda x, act, training: act(x) if training else x, X, jnp.sin, True)


def test_an_error_about_the_type_of_a_value_names_the_value():
    with pytest.raises(TraceError) as raised:
        trace(lambda x, y: x @ y, X, "relu")
    assert str(raised.value).startswith(
        "an argument holds 'relu', a str, and only arrays, numbers and jax.ShapeDtypeStructs can be traced. <lambda> "
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
    assert error.__notes__[0].startswith("rematscope passed values that are not arrays to f, unchanged: tanh, a ")


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
    with pytest.raises(TraceError, match=r"an argument holds an array of .*, and only arrays, numbers"):
        trace(lambda x, y: x, X, value)
