"""`rewrite`: every option leaves values and gradients as they are."""

import contextlib
import dataclasses
import functools
import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax import lax
from sampling import few
from steps import STEPS
from uncompiled import by_operation

import rematscope
from rematscope import PlanError, rewrite, trace

IN_AXES = {"low_rank_adapters": (None, None, None, 0, 0), "float16_with_a_loss_scale": (None, None, 0)}
NNX_AXES = (None, None, 0, 0)
OPTIONS = [
    {"checkpoint": "layers"},
    {"checkpoint": "segments", "saved": "1 MiB"},
    {"checkpoint": "whole", "policy": jax.checkpoint_policies.dots_saveable},
    {"donate_argnums": 0},
    {"microbatches": 4},
    {"checkpoint": "layers", "microbatches": 2, "donate_argnums": (0, 1)},
    {"checkpoint": "layers", "chunks": 4, "donate_argnums": (0, 1)},
    {"head_chunks": 4},
    {"checkpoint": "groups of layers"},
    {"checkpoint": "halves of layers"},
]
DIVIDED = {"microbatches", "chunks"}


def results(step, args):
    """Return the results of a step, and the leaves of its arguments after the call, which nnx changes in place."""
    returned = step(*args)
    return [np.float64(v) for v in jax.tree.leaves((returned, args)) if not getattr(v, "is_deleted", lambda: False)()]


def copied(args):
    return jax.tree.map(jnp.copy, args)


def written(options):
    """Options as the id of a test, in which a function has its name and no address."""
    return " ".join(f"{name}={getattr(value, '__name__', value)}" for name, value in options.items())


@pytest.mark.parametrize("options", OPTIONS, ids=written)
@pytest.mark.parametrize("name", few(["float16_with_a_loss_scale", "low_rank_adapters"]))
def test_the_results_stay(name, options):
    step, args, _ = STEPS[name]()
    options = {**options, **({"in_axes": IN_AXES[name]} if DIVIDED.intersection(options) else {})}
    expected, found = (by_operation(f)(*copied(args)) for f in (step, rewrite(step, **options)))
    for one, other in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
        np.testing.assert_allclose(np.float64(one), np.float64(other), rtol=1e-2, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("options", few([OPTIONS[0], OPTIONS[7], OPTIONS[5]]), ids=written)
def test_modules_of_nnx_are_changed_in_place(options):
    step, args, _ = STEPS["nnx_in_place"]()
    options = {**options, **({"in_axes": NNX_AXES} if DIVIDED.intersection(options) else {})}
    one, other = (nnx.clone(args[0]), nnx.clone(args[1])), (nnx.clone(args[0]), nnx.clone(args[1]))
    before = jax.tree.leaves(nnx.state(one[0]))
    losses = step(*one, *args[2:]), rewrite(step, **options)(*other, *args[2:])
    np.testing.assert_allclose(*losses, rtol=1e-4)
    for a, b, old in zip(*(jax.tree.leaves(nnx.state(m[0])) for m in (one, other)), before, strict=True):
        np.testing.assert_allclose(a, b, atol=3e-3)  # Adam divides by the gradient, which may be 0 up to rounding
        assert not np.array_equal(b, old) or not np.any(a != old)


@pytest.mark.parametrize(
    "options",
    [{"checkpoint": "whole"}, {"chunks": 2, "in_axes": (None, 0)}, {"checkpoint": "whole", "donate_argnums": 0}],
    ids=written,
)
def test_python_numbers_among_the_results_stay_python_numbers(options):
    def loss(w, x):
        return jnp.mean(jnp.sin(jnp.sin(x @ w) @ w)), {"count": x.shape[0], "rate": 0.5}

    def step(w, x):
        gradient, numbers = jax.grad(loss, has_aux=True)(w, x)
        return w - gradient, numbers

    args = jnp.eye(4), jnp.ones((8, 4))
    numbers = rewrite(step, **options)(*copied(args))[1]
    assert numbers == {"count": 8, "rate": 0.5} and [type(v) for v in numbers.values()] == [int, float]
    numbers = rewrite(jax.jit(step), **options)(*args)[1]
    assert all(isinstance(v, jax.Array) for v in numbers.values())


def test_a_jitted_step_is_compiled_once():
    traces = []

    @jax.jit
    def step(w, x):
        traces.append(1)
        return w - jax.grad(lambda w: jnp.mean(jnp.tanh(jnp.tanh(x @ w) @ w)))(w)

    rewritten = rewrite(step, checkpoint="whole")
    args = jnp.ones((4, 4)), jnp.ones((8, 4))
    rewritten(*args)
    count = len(traces)
    for _ in range(3):
        rewritten(*args)
    assert len(traces) == count
    assert "checkpoint" not in str(step.trace(*args).jaxpr), "the original is as it was"


@pytest.mark.slow
@pytest.mark.parametrize("around", few([jax.jit, jax.checkpoint, lambda layer: layer]))
def test_groups_of_layers_have_a_lower_peak_than_layers(around):
    @around
    def layer(w, x):
        return x + jnp.sin(x @ w) * jnp.tanh(x @ w)

    def loss(ws, x):
        for w in ws:
            x = layer(w, x)
        return jnp.mean(x * x)

    args = [jnp.eye(8) / (i + 1) for i in range(16)], jnp.ones((512, 8))
    layers, groups = (rewrite(jax.grad(loss), checkpoint=place) for place in ("layers", "groups of layers"))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), layers(*args), groups(*args))
    first, second = (jax.jit(f).lower(*args).compile().memory_analysis().temp_size_in_bytes for f in (layers, groups))
    assert second < 0.6 * first


@pytest.mark.slow
def test_nested_checkpoints_finish_one_call_of_a_model_before_the_other():
    def layer(w, x):
        return x + jnp.sin(x @ w) * jnp.tanh(x @ w)

    def twice(ws, x, y):  # a gradient is the sum of those of both calls, so XLA may run the calls side by side
        return sum(jnp.mean(functools.reduce(lambda x, w: layer(w, x), ws, z) ** 2) for z in (x, lax.stop_gradient(y)))

    args = [jnp.eye(8) / (i + 1) for i in range(8)], jnp.ones((4096, 8)), jnp.ones((4096, 8))
    places = "layers", "groups of layers", "halves of layers"
    steps = [rewrite(jax.grad(twice), checkpoint=place) for place in places]
    layers, *nested = (jax.jit(f).lower(*args).compile().memory_analysis().temp_size_in_bytes for f in steps)
    assert max(nested) < 0.6 * layers
    for step in steps:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), step(*args), jax.grad(twice)(*args))


def normalized_step(ws, state, x, y):
    """A step whose loss closes over its batch, normalizes over it, and returns more than its value."""

    def loss(ws):
        h, means = x, []
        for w in ws:
            h = h @ w
            means.append(h.mean(0))
            h = jnp.sin((h - means[-1]) / jnp.sqrt(h.var(0) + 1e-3)) * jnp.tanh(h)
        return jnp.mean((h - y) ** 2), (means, h)

    (value, (means, h)), grads = jax.value_and_grad(loss, has_aux=True)(ws)
    state = jax.tree.map(lambda m, g: 0.9 * m + g, state, grads)
    return jax.tree.map(lambda w, m: w - 0.1 * m, ws, state), state, value, means, h.max()


@pytest.mark.slow
def test_a_loss_with_a_plan_of_auto_stays_within_its_limit():
    ws = [jnp.eye(8) + 0.1 * jnp.sin(jnp.arange(64.0) + i).reshape(8, 8) for i in range(6)]
    args = ws, ws, jnp.cos(jnp.arange(4096.0)).reshape(512, 8), jnp.ones((512, 8))
    plain, planned = jax.jit(normalized_step), rewrite(normalized_step, auto="230 KiB", donate_argnums=(0, 1))
    first, second = (f.lower(*args).compile().memory_analysis().temp_size_in_bytes for f in (plain, planned))
    assert second < 0.6 * first
    expected, found = plain(*args), planned(*copied(args))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), expected, found)


def test_a_limit_that_no_plan_of_auto_meets_is_refused_by_the_name_of_the_step():
    def step(w):
        return w - jax.grad(lambda w: jnp.sum(jnp.sin(w)))(w)

    with pytest.raises(PlanError, match=r"^the loss of step needs .* for its arguments, outputs and gradients alone"):
        rewrite(step, auto="1 KiB").lower(jnp.ones(1024))


def test_a_gradient_with_respect_to_a_value_that_the_loss_closes_over_is_refused_by_its_name():
    def step(w, scale):
        settings = {"scale": scale}
        return jax.grad(lambda w: jnp.sum(jnp.sin(w)) * settings["scale"])(w)

    planned = rewrite(step, auto="1 MiB")
    np.testing.assert_allclose(planned(jnp.ones(8), 2.0), step(jnp.ones(8), 2.0))
    with pytest.raises(
        PlanError, match=r"the loss of step .* without a gradient for `settings.scale`, which it closes"
    ):
        jax.grad(lambda scale: planned(jnp.ones(8), scale).sum())(2.0)


@pytest.mark.slow
def test_keyword_arguments_have_axes_by_name():
    def step(w, x, *, y):
        return w - jax.grad(lambda w: jnp.mean((jnp.tanh(x @ w) - y) ** 2))(w)

    w, x, y = jnp.eye(4), jnp.cos(jnp.arange(32.0)).reshape(8, 4), jnp.sin(jnp.arange(32.0)).reshape(4, 8)
    axes = None, {"x": 0, "y": 0}
    for option in ({"microbatches": 4}, {"chunks": 4}):
        found = rewrite(step, **option, in_axes=axes)(w, y=y.T, x=x)
        np.testing.assert_allclose(found, step(w, x, y=y.T), rtol=1e-5)
        with pytest.raises(PlanError, match="does not match the arguments: there are 2 positional arguments"):
            rewrite(step, **option, in_axes=(*axes, 0))(w, x, y=y.T)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"checkpoint": "layer"}, "checkpoint='layer' is not known"),
        ({"policy": jax.checkpoint_policies.dots_saveable}, "need checkpoints"),
        ({"microbatches": 0}, "microbatches=0 is not valid"),
        ({"microbatches": 2}, "needs in_axes="),
        ({"microbatches": 2, "chunks": 2, "in_axes": (0,)}, "do not combine"),
        ({"checkpoint": "loops", "saved": 1}, "saved= is for"),
        ({"checkpoint": "offloaded loops", "policy": jax.checkpoint_policies.dots_saveable}, "a policy of its own"),
        ({"checkpoint": "layers", "auto": 1}, "auto= combines with donate_argnums= only"),
    ],
    ids=lambda each: written(each) if isinstance(each, dict) else "",
)
def test_options_are_checked(options, words):
    with pytest.raises(PlanError, match=words):
        rewrite(jnp.sin, **options)


class SharingVariables(nnx.Module):
    """One layer twice, and two dropouts that read one `Rngs`."""

    def __init__(self):
        self.rngs = nnx.Rngs(0)
        self.first = self.second = nnx.Linear(8, 8, rngs=self.rngs)
        self.dropouts = nnx.List([Dropout(self.rngs), Dropout(self.rngs)])

    def __call__(self, x, training):
        for layer, dropout in zip((self.first, self.second), self.dropouts, strict=True):
            x = dropout(jnp.tanh(layer(x)), training)
        return x


class Dropout(nnx.Module):
    def __init__(self, rngs):
        self.rngs = rngs

    def __call__(self, x, training):
        return jnp.where(jax.random.bernoulli(self.rngs.dropout(), 0.8, x.shape), x, 0) if training else x


def step_of_nnx(model, optimizer, x, training):
    def loss(model):
        return jnp.mean((model(x, training) - 1) ** 2)

    value, gradients = nnx.value_and_grad(loss)(model)
    optimizer.update(model, gradients)
    return model, value


JITTED_STEP_OF_NNX = nnx.jit(step_of_nnx, static_argnums=3)  # all tests share its compiled program


def shared_arguments():
    model = SharingVariables()
    return model, nnx.Optimizer(model, optax.adam(0.01, eps=1.0), wrt=nnx.Param)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {"microbatches": 4},
        {"donate_argnums": (0, 1)},
        {"checkpoint": "whole", "microbatches": 2, "donate_argnums": (0, 1)},
        {"chunks": 2, "donate_argnums": (1,)},
    ],
    ids=written,
)
def test_modules_of_nnx_may_share_variables(options, training):
    step = JITTED_STEP_OF_NNX
    options = {**options, **({"in_axes": (None, None, 0)} if DIVIDED.intersection(options) else {})}
    new, one, other = rewrite(step, **options), shared_arguments(), shared_arguments()
    for i in range(2):  # the second call reads what the first has changed
        x = jax.random.normal(jax.random.key(i), (16, 8))
        (_, expected), (model, found) = step(*one, x, training), new(*other, x, training)
        np.testing.assert_allclose(expected, found, rtol=1e-5)
        assert model is other[0]
    for a, b in zip(*(jax.tree.leaves(nnx.state(each)) for each in (one, other)), strict=True):
        is_key = jnp.issubdtype(a.dtype, jax.dtypes.prng_key)
        np.testing.assert_allclose(*(jax.random.key_data(v) if is_key else v for v in (a, b)), rtol=1e-4, atol=1e-6)
    assert int(model.rngs.default.count[...]) == int(one[0].rngs.default.count[...]) == 2 + 4 * training


@pytest.mark.parametrize("options", [{"microbatches": 2}, {"chunks": 2}, {"checkpoint": "whole"}], ids=written)
def test_a_loss_of_nnx_may_have_a_parameter_of_a_weak_type(options):
    class Scaled(nnx.Module):
        def __init__(self):
            self.layer, self.scale = nnx.Linear(4, 4, rngs=nnx.Rngs(0)), nnx.Param(jnp.log(1 / 0.07))

        def __call__(self, x):
            return jnp.tanh(self.layer(x)) * jnp.exp(self.scale[...])

    def step(model, x):
        gradients = nnx.grad(lambda model: jnp.mean(model(x) ** 2))(model)
        nnx.update(model, jax.tree.map(lambda w, g: w - g, nnx.state(model), gradients))

    options = {**options, **({"in_axes": (None, 0)} if DIVIDED.intersection(options) else {})}
    models = Scaled(), Scaled()
    assert models[0].scale[...].weak_type
    for model, f in zip(models, (step, rewrite(step, **options)), strict=True):
        f(model, jnp.linspace(-1, 1, 32).reshape(8, 4))
    for a, b in zip(*map(jax.tree.leaves, map(nnx.state, models)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
        assert a.weak_type == b.weak_type


def test_two_patterns_of_shared_variables_are_two_programs():
    def step(models, x):
        gradients = nnx.grad(lambda models: jnp.mean((models[0](models[1](models[2](x)))) ** 2))(models)
        nnx.update(models, jax.tree.map(lambda w, g: w - g, nnx.state(models), gradients))

    new = rewrite(step, donate_argnums=0)
    for pattern in ([0, 1, 0], [0, 1, 1]):
        made = [[nnx.Linear(4, 4, rngs=nnx.Rngs(i)) for i in range(2)] for _ in range(2)]
        one, other = (nnx.List([each[i] for i in pattern]) for each in made)
        step(one, jnp.ones((4, 4)))
        new(other, jnp.ones((4, 4)))
        for a, b in zip(*map(jax.tree.leaves, (one, other)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)


def test_a_module_of_nnx_whose_variable_would_be_copied_is_refused():
    def step(model, optimizer, x, training):
        return step_of_nnx(model, optimizer, x, training)[0].first

    with pytest.raises(PlanError, match=r"returns a module whose nnx variable .* also belongs to"):
        rewrite(step, donate_argnums=0)(*shared_arguments(), jnp.ones((4, 8)), False)


def test_the_report_counts_a_shared_variable_once():
    step, args = JITTED_STEP_OF_NNX, (*shared_arguments(), jnp.ones((2048, 8)), True)
    report = rematscope.report(step, *args, memory="300 KiB")
    assert report.bytes_by_kind["parameters"] < 500  # 8 × 9 weights, a key and counts
    assert report.best is not None
    report.best.function(*args)


@pytest.mark.parametrize("donated", [(0,), (1,), (0, 1)])
def test_an_array_that_a_call_uses_twice_is_donated_once(donated):
    """The average of weights, or a target network, often starts as the same arrays as the weights."""

    def step(state, target, x):
        weights, average = state
        gradient = jax.grad(lambda w: jnp.mean((x @ w - x @ target) ** 2))(weights)
        weights = weights - gradient
        return (weights, 0.9 * average + 0.1 * weights), 0.5 * target + 0.5 * weights

    def called_twice(step):
        weights = jax.random.normal(jax.random.key(1), (4, 4))
        state, target, x = (weights, weights), weights, jnp.ones((8, 4))
        for _ in range(2):
            state, target = step(state, target, x)
        return state, target

    expected, found = called_twice(step), called_twice(rewrite(step, donate_argnums=donated))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), expected, found)


def test_arguments_are_not_held_after_the_call():
    step = rewrite(lambda w, x: w - jax.grad(lambda w: jnp.mean(x @ w))(w), microbatches=2, in_axes=(None, 0))
    w = jnp.ones((8, 8))
    held = weakref.ref(w)
    w = step(w, jnp.ones((4, 8)))
    gc.collect()
    assert held() is None


@pytest.mark.parametrize("width", [128, 512])
@pytest.mark.parametrize("around", [lambda f: f, jax.jit], ids=["plain", "jit"])
def test_large_carries_are_offloaded_and_the_results_stay(around, width):
    """A carry of 1 MiB or more for all iterations is in host memory; smaller carries and keys are not."""

    def body(carry, w):
        x, small, key = carry
        key, use = jax.random.split(key)
        x = x + jnp.tanh(x @ w) * jax.random.bernoulli(use, 0.9, x.shape)
        return (x, small + jnp.sin(x[:, :1]), key), x[0]

    @around
    def loss(ws, x):
        (x, small, _), rows = jax.lax.scan(body, (x, x[:, :1], jax.random.key(0)), ws)
        return jnp.mean(x**2) + jnp.mean(small * rows.sum())

    step = jax.jit(lambda ws, x: jax.value_and_grad(loss)(ws, x))
    args = jnp.sin(jnp.arange(8.0 * width * width)).reshape(8, width, width) / width, jnp.ones((64, width))
    changed = rewrite(step, checkpoint="offloaded loops")
    stack = 8 * args[1].nbytes
    assert trace(changed, *args).host_bytes() == (stack if stack >= 2**20 else 0)
    for one, other in zip(jax.tree.leaves(step(*args)), jax.tree.leaves(changed(*args)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


def test_carries_are_not_offloaded_where_xla_reads_them_in_the_wrong_order(monkeypatch):
    monkeypatch.setattr("rematscope.scheduling.schedule.misreads_offloaded_stacks", lambda target: True)
    loss = jax.grad(lambda w, x: jnp.sum(jax.lax.scan(lambda x, _: (jnp.sin(x @ w), None), x, length=3)[0]))
    with pytest.raises(PlanError, match=r"wrong gradients: .* Install JAX 0\.11\.1 or later, or use 'loops'"):
        rewrite(loss, checkpoint="offloaded loops")(jnp.ones((4, 4)), jnp.ones((2, 4)))


@pytest.mark.parametrize("called_before", [False, True])
def test_a_step_in_microbatches_is_traced_as_a_step(called_before):
    def step(w, x):
        return w - 0.1 * jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)

    changed = rewrite(step, microbatches=2, in_axes=(None, 0))
    if called_before:
        changed(jnp.ones((16, 16)), jnp.ones((8, 16)))
    traced = trace(changed, jax.ShapeDtypeStruct((16, 16), jnp.float32), jax.ShapeDtypeStruct((8, 16), jnp.float32))
    assert traced.step is not None and traced.step.times == 2


def sgd(params, batch, scale=1.0):
    loss = lambda params: jnp.mean((jnp.sin(batch["x"] @ params["w"]) @ params["u"] - batch["y"]) ** 2)  # noqa: E731
    return jax.tree.map(lambda p, g: p - scale * g, params, jax.grad(loss)(params))


COMPILED = [
    {"donate_argnums": 0},
    {"microbatches": 2, "in_axes": (None, 0)},
    {"checkpoint": "whole", "microbatches": 2, "in_axes": (None, 0), "donate_argnums": (0,)},
    {"checkpoint": "whole"},
]


@pytest.mark.slow
@pytest.mark.parametrize("options", COMPILED, ids=written)
def test_an_ahead_of_time_compiled_step_is_called_like_the_step(options):
    draw = lambda seed, *shape: jax.random.normal(jax.random.key(seed), shape)  # noqa: E731
    params = {"w": draw(0, 8, 8), "u": draw(1, 8, 1)}
    batch = {"x": draw(2, 4, 8), "y": draw(3, 4, 1)}
    lowered = rewrite(sgd, **options).lower(*jax.eval_shape(lambda *args: args, params, batch))
    compiled = lowered.compile()
    assert "stablehlo" in lowered.as_text() and compiled.memory_analysis().argument_size_in_bytes > 0
    expected = sgd(params, batch)
    found = compiled(copied(params), batch)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, 1e-5, 1e-6)
    with pytest.raises(TypeError):
        compiled(params, {**batch, "z": batch["x"]})


@pytest.mark.parametrize(
    "options",
    [{"donate_argnums": 0}, {"chunks": 2, "in_axes": (None, 0)}, {"microbatches": 2, "in_axes": (None, 0)}],
    ids=written,
)
def test_a_returned_string_belongs_to_the_shapes_of_the_call(options):
    def step(w, x):
        return jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w)))(w), f"{len(x)} examples"

    changed = rewrite(step, **options)
    compiled = changed.lower(jnp.ones((4, 4)), jnp.ones((8, 4))).compile()
    for length in (8, 4, 8):
        assert changed(jnp.ones((4, 4)), jnp.ones((length, 4)))[1] == f"{length} examples"
    assert changed(jnp.ones((4, 4)), jnp.ones((4, 4)))[1] == "4 examples"
    assert compiled(jnp.ones((4, 4)), jnp.ones((8, 4)))[1] == "8 examples"


def test_equal_settings_of_two_types_are_distinguished():
    def step(w, x, power):
        scale = (3.0 if power is True else 1.0) * len(range(power))
        return scale * jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w)))(w)

    changed = rewrite(step, microbatches=2, in_axes=(None, 0, None))
    w, x = jnp.ones((4, 4)), jnp.ones((8, 4))
    np.testing.assert_allclose(3 * changed(w, x, 1), changed(w, x, True), rtol=1e-6)


def test_a_number_is_a_setting_after_a_call_that_traces_it():
    def step(w, steps):
        return w - jax.grad(lambda w: sum(jnp.sin(w).sum() for _ in range(steps)))(w)

    changed = rewrite(step, checkpoint="whole", donate_argnums=(0,))
    with pytest.raises(jax.errors.TracerIntegerConversionError):
        jax.eval_shape(changed, jnp.ones(4), 2)
    np.testing.assert_allclose(changed(jnp.ones(4), 2), step(jnp.ones(4), 2), rtol=1e-6)


@pytest.mark.slow
def test_each_setting_is_traced_with_its_own_part_of_the_batch():
    def step(w, x, layers):
        def loss(w):
            h = x
            for _ in layers:
                h = jnp.sin(h @ w)
            return jnp.mean(h)

        return jax.grad(loss)(w)

    changed = rewrite(step, chunks=2, in_axes=(None, 0, None))
    for layers in ("two", "four"):
        args = jnp.eye(4), jnp.ones((8, 4)), layers
        np.testing.assert_allclose(changed(*args), step(*args), rtol=1e-6)


@pytest.mark.parametrize("options", [{"microbatches": 2, "in_axes": (None, None, 0)}, {"donate_argnums": 1}])
def test_a_setting_that_could_change_unnoticed_is_refused(options):
    @dataclasses.dataclass
    class Settings:
        rate: float

    def step(settings, w, x):
        return w - settings.rate * jax.grad(lambda w: jnp.mean(jnp.sin(x @ w)))(w)

    w, x = jnp.eye(4), jnp.ones((8, 4))
    with pytest.raises(PlanError, match="a value of type Settings, a static value that cannot be hashed"):
        rewrite(step, **options)(Settings(0.1), w, x)
    frozen_class = dataclasses.make_dataclass("Frozen", ["rate"], frozen=True)
    for rate in (0.1, 5.0):
        frozen = frozen_class(rate)
        np.testing.assert_allclose(rewrite(step, **options)(frozen, w + 0, x), step(frozen, w, x), rtol=1e-5)


@pytest.mark.parametrize("own", [lambda loss: loss, jax.checkpoint], ids=["no checkpoint", "a checkpoint of its own"])
@pytest.mark.parametrize("policy", [None, jax.checkpoint_policies.dots_saveable], ids=["no policy", "dots_saveable"])
def test_no_checkpoint_reruns_an_operation_whose_second_result_may_differ(own, policy):
    @own
    def loss(w, x):
        return jnp.sum(jnp.sin(jnp.sin(x * jax.lax.rng_uniform(0.0, 1.0, x.shape)) @ w))

    with pytest.raises(PlanError, match=r"such as lax\.rng_uniform .* Use 'layers'"):
        trace(rewrite(loss, checkpoint="whole", policy=policy), jnp.eye(4), jnp.ones((8, 4)))


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("option", ["microbatches", "chunks"])
def test_random_numbers_stay_in_parts_of_the_batch(option, x64):
    def loss(w, x, key):
        return jnp.mean((jnp.tanh(x @ w) * jax.random.uniform(key, x.shape)) ** 2)

    def step(w, x, key):
        return w - jax.grad(loss)(w, x, key)

    with jax.enable_x64(x64) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64(x64):
        args = jnp.ones((4, 4)) / 4, jnp.arange(24.0).reshape(6, 4) / 24, jax.random.key(0)
        found = rewrite(step, in_axes=(None, 0, None), **{option: 3})(*args)
        np.testing.assert_allclose(found, step(*args), rtol=1e-6)
        assert found.dtype == args[0].dtype


@pytest.mark.parametrize(
    "options", few([{"chunks": 2, "in_axes": (None, 0)}, {"head_chunks": 2}, {"auto": "1 MiB"}]), ids=written
)
def test_a_jitted_loss_can_be_lowered_for_shapes(options):
    loss = jax.jit(lambda w, x: jnp.mean(jnp.sin(jnp.sin(x @ w) @ w)))
    w, x = jnp.eye(8) / 2, jnp.ones((16, 8))
    compiled = rewrite(loss, **options).lower(*jax.eval_shape(lambda *args: args, w, x)).compile()
    np.testing.assert_allclose(compiled(w, x), loss(w, x), rtol=1e-5)


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["plain", "jitted"])
@pytest.mark.parametrize("option", ["microbatches", "chunks"])
def test_results_have_weak_types_where_those_of_jax_have_also_if_the_types_change_between_calls(option, wrap):
    @wrap
    def step(params, x):
        loss = lambda params, x: jnp.sum(jnp.tanh(jnp.tanh(x * params["scale"]) @ params["w"]))  # noqa: E731
        value, gradients = jax.value_and_grad(loss)(params, x)
        return value, gradients, jax.tree.map(lambda v: v * jnp.ones((), jnp.bfloat16), gradients)

    changed = rewrite(step, in_axes=(None, 0), **{option: 2})
    x = jnp.ones((4, 8), jnp.bfloat16)
    for scale in (jnp.asarray(2.0), jnp.float32(2.0), jnp.asarray(2.0)):
        params = {"scale": scale, "w": jnp.eye(8, dtype=jnp.bfloat16)}
        found, expected = changed(params, x), step(params, x)
        assert jax.tree.map(jax.typeof, found) == jax.tree.map(jax.typeof, expected)
        for one, other in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
            np.testing.assert_allclose(np.float32(one), np.float32(other), rtol=2e-2)


@pytest.mark.parametrize("options", [{"checkpoint": "layers"}, {"chunks": 4, "in_axes": (None, 0, None)}], ids=written)
@pytest.mark.parametrize("first", [False, True], ids=["evaluation first", "training first"])
def test_a_step_whose_flag_turns_the_gradient_off_keeps_its_changes_when_it_is_on(options, first):
    def loss(weights, x):
        return (lax.scan(lambda x, w: (jnp.tanh(jnp.tanh(x @ w) @ w), None), x, weights)[0] ** 2).mean()

    @functools.partial(jax.jit, static_argnums=2)
    def step(weights, x, train):
        if not train:
            return weights, loss(weights, x)
        value, gradient = jax.value_and_grad(loss)(weights, x)
        return weights - gradient, value

    weights, x = jnp.full((4, 32, 32), 0.01), jnp.ones((2048, 32))
    rewritten = rewrite(step, **options)
    for train in (first, not first):
        for one, other in zip(rewritten(weights, x, train), step(weights, x, train), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6)
    peaks = [f.lower(weights, x, True).compile().memory_analysis().temp_size_in_bytes for f in (rewritten, step)]
    assert peaks[0] < 0.6 * peaks[1]


@pytest.mark.parametrize("change", ["matmul precision", "clear_caches"])
def test_microbatches_are_proved_in_each_trace_of_a_step_that_reads_a_setting_outside_of_its_arguments(change):
    normalizes = False

    def loss(w, x):
        hidden = x @ w
        return jnp.mean(jnp.tanh((hidden - hidden.mean(0)) / hidden.std(0) if normalizes else hidden))

    rewritten = rewrite(jax.jit(jax.grad(loss)), microbatches=2, in_axes=(None, 0))
    w, x = jnp.eye(4), jax.random.normal(jax.random.key(0), (8, 4))
    rewritten(w, x)
    normalizes = True
    if change == "clear_caches":
        jax.clear_caches()
    precision = "highest" if change == "matmul precision" else None
    with jax.default_matmul_precision(precision), pytest.raises(PlanError, match="not proved to be an average"):
        rewritten(w, x)


def test_microbatches_with_random_numbers_have_the_constants_of_the_traces_that_prove_them():
    """The program of a microbatch with its part of the random numbers is the last trace of the step."""
    traces, changes_at = 0, None

    def step(w, x):
        nonlocal traces
        traces += 1
        scales = np.full(4, 2 if traces == changes_at else 1, np.float32)

        def loss(w):
            masked = jax.checkpoint(
                lambda w: jnp.where(jax.random.bernoulli(jax.random.key(0), 0.5, (len(x), 4)), jnp.tanh(x @ w), 0)
            )
            return jnp.mean(masked(w) * scales)

        return jax.grad(loss)(w)

    args = jnp.eye(4), jax.random.normal(jax.random.key(0), (8, 4))
    np.testing.assert_allclose(rewrite(step, microbatches=2, in_axes=(None, 0))(*args), step(*args), rtol=1e-5)
    traces, changes_at = 0, traces - 1  # without the trace of `step` itself
    with pytest.raises(PlanError, match="differs with its part of the random numbers"):
        rewrite(step, microbatches=2, in_axes=(None, 0))(*args)


def test_a_loss_in_chunks_that_reads_a_setting_outside_of_its_arguments_is_traced_with_its_part():
    normalizes = False

    def loss(w, x):
        hidden = x @ w
        return jnp.mean(jnp.tanh((hidden - hidden.mean(0)) / hidden.std(0) if normalizes else hidden) ** 2)

    rewritten = rewrite(loss, chunks=2, in_axes=(None, 0))
    w, x = jnp.eye(4), jax.random.normal(jax.random.key(0), (8, 4))
    for setting in (False, True, False):
        normalizes = setting
        expected, found = (jax.value_and_grad(f)(w, x) for f in (loss, rewritten))
        for one, other in zip(expected, found, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


def test_a_jitted_gradient_that_was_traced_before_does_not_change_the_parts_of_others():
    @jax.jit
    @jax.grad
    def first(w, x):
        return jnp.mean(jnp.tanh(x @ w))

    @functools.partial(jax.jit, static_argnums=2)
    @jax.grad
    def second(w, x, power):
        return jnp.sum((x @ w) ** power)

    def step(w, x, power):
        return first(w, x) + second(w, x, power)

    step = jax.jit(step, static_argnums=2)
    rewritten = rewrite(step, chunks=2, in_axes=(None, 0, None))
    w, x = jnp.eye(4), jax.random.normal(jax.random.key(0), (8, 4))
    for power in (2, 3):
        np.testing.assert_allclose(rewritten(w, x, power), step(w, x, power), rtol=1e-5, atol=1e-6)


def test_a_jitted_gradient_that_was_traced_for_a_strong_type_does_not_change_the_parts_of_others():
    @jax.jit
    @jax.grad
    def first(w, x):
        return jnp.mean(jnp.tanh(x @ w))

    @jax.jit
    @jax.grad
    def second(w, x, scale):
        return jnp.sum(jnp.sin(x @ w) * scale)

    step = jax.jit(lambda w, x, scale: first(w, x) + second(w, x, scale))
    rewritten = rewrite(step, chunks=2, in_axes=(None, 0, None))
    w, x = jnp.eye(4), jax.random.normal(jax.random.key(0), (8, 4))
    for scale in (jnp.float32(2), jnp.asarray(2.0)):
        np.testing.assert_allclose(rewritten(w, x, scale), step(w, x, scale), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("options", [{"donate_argnums": 1}, {"microbatches": 2, "in_axes": (None, 0)}], ids=written)
def test_python_numbers_belong_to_the_trace_of_the_call(options):
    def step(w, x):
        return jax.grad(lambda w: jnp.mean(x @ w))(w), 64 if jax.config.jax_enable_x64 else 32

    rewritten = rewrite(step, **options)
    for x64 in (False, True, False):
        with jax.enable_x64(x64):
            w, x = np.eye(8, dtype=np.float32), np.ones((8, 8), np.float32)
            assert rewritten(w, x)[1] == step(w, x)[1]


def test_chunks_do_not_count_a_loss_that_raises_an_error_which_the_step_catches():
    def failing(w):
        raise ValueError

    def step(w, x):
        with contextlib.suppress(ValueError):
            jax.grad(failing)(w)
        return jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w)))(w)

    w, x = jnp.eye(4), jax.random.normal(jax.random.key(0), (8, 4))
    np.testing.assert_allclose(rewrite(step, chunks=2, in_axes=(None, 0))(w, x), step(w, x), rtol=1e-5)


def test_a_step_that_takes_fewer_gradients_for_a_part_of_its_batch_is_refused_in_chunks():
    def step(w, x):
        gradient = jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w)))
        return gradient(w) + gradient(2 * w) if x.shape[0] > 4 else gradient(w)

    with pytest.raises(PlanError, match="fewer gradients"):
        rewrite(step, chunks=2, in_axes=(None, 0))(jnp.eye(4), jnp.ones((8, 4)))


def test_a_step_in_chunks_is_traced_once_to_find_its_gradient_once_for_its_program_and_once_for_a_part():
    lengths = []

    def step(w, x):
        lengths.append(len(x))
        return w - jax.grad(lambda w: jnp.mean(jnp.tanh(jnp.tanh(x @ w) @ w)))(w)

    rewritten = rewrite(step, chunks=2, in_axes=(None, 0))
    for _ in range(2):
        rewritten(jnp.eye(4), jnp.ones((8, 4)))
    assert lengths == [8, 8, 4]
