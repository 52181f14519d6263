"""Training steps, which take gradients themselves, are traced as written."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from compiled_programs import array
from flax import nnx
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from sampling import few

import rematscope
from rematscope import TraceError, explore, fit, frontier, lint, liveness, measure, plan, trace
from rematscope.tracing.checkpoints import loss_inside
from rematscope.tracing.trace import Trace

D, ROWS, LAYERS = 8, 16, 3
OPTIMIZER = optax.adam(1e-3)
PARAMETERS = [array(D, D)] * LAYERS
STATE = jax.eval_shape(OPTIMIZER.init, PARAMETERS)
BATCH = array(ROWS, D)
MIB = 2**20


def loss(parameters, x):
    for w in parameters:
        x = jax.checkpoint(lambda x, w: jnp.sin(checkpoint_name(x @ w, "h") @ w))(x, w)
    return jnp.mean(x**2)


def updated(parameters, state, gradients):
    updates, state = OPTIMIZER.update(gradients, state, parameters)
    return optax.apply_updates(parameters, updates), state


# Ways to take the gradient of the loss; each returns it.


def by_grad(parameters, x):
    return jax.grad(loss)(parameters, x)


def by_value_and_grad_with_more(parameters, x):
    (_, steepest), gradients = jax.value_and_grad(lambda p: (loss(p, x), jnp.max(x)), has_aux=True)(parameters)
    return jax.tree.map(lambda g: g / steepest, gradients)


def by_vjp(parameters, x):
    value, pullback = jax.vjp(lambda p: loss(p, x), parameters)
    return pullback(jnp.ones_like(value))[0]


def by_equinox(parameters, x):
    return eqx.filter_value_and_grad(loss)(parameters, x)[1]


def by_nnx(parameters, x):
    return nnx.value_and_grad(loss)(parameters, x)[1]


WAYS = [by_grad, by_value_and_grad_with_more, by_vjp, by_equinox, by_nnx]


def stepping(gradient):
    def step(parameters, state, x):
        return updated(parameters, state, gradient(parameters, x))

    return step


def with_scan(parameters, state, batches):
    def add(total, x):
        value, gradients = jax.value_and_grad(loss)(parameters, x)
        return jax.tree.map(jnp.add, total, gradients), value

    gradients, values = lax.scan(add, jax.tree.map(jnp.zeros_like, parameters), batches)
    return *updated(parameters, state, gradients), values.mean()


def with_fori_loop(parameters, state, batches):
    def add(i, total):
        return jax.tree.map(jnp.add, total, by_grad(parameters, batches[i]))

    start = jax.tree.map(jnp.zeros_like, parameters)
    return updated(parameters, state, lax.fori_loop(0, batches.shape[0], add, start))


def figures(passes: Trace):
    """Return the figures that depend neither on the positions of the passes nor on a gradient of the batch."""
    counts = [passes.backward.count(primitive, role) for primitive in ("dot_general", "sin", "cos") for role in "RD"]
    return passes.device_bytes_by_kind()["computed"], passes.recompute_cost.flops, counts


@functools.cache
def expected():
    return figures(trace(loss, PARAMETERS, BATCH))


@pytest.mark.parametrize("gradient", WAYS, ids=lambda way: way.__name__)
def test_the_passes_are_those_of_the_loss_however_its_gradient_is_taken(gradient):
    passes = trace(stepping(gradient), PARAMETERS, STATE, BATCH)
    assert figures(passes) == expected()
    assert {v.name for v in passes.step.parameters} == {f"parameters.{i}" for i in range(LAYERS)}
    assert {v.name for v in passes.step.state} == {
        "state.0.count", *(f"state.0.{moment}.{i}" for moment in ("mu", "nu") for i in range(LAYERS))
    }  # fmt: skip


def gradients(passes):
    """Return the results of both programs for random arguments, and the arguments."""
    rng = np.random.default_rng(0)
    given = {v.name: jnp.asarray(rng.standard_normal(v.shape), v.dtype) for v in passes.forward.inputs}
    residuals = passes.forward(*(given[v.name] for v in passes.forward.inputs))[len(passes.outputs) :]
    return passes.backward(*residuals, *(jnp.ones(ct.shape, ct.dtype) for ct in passes.cotangents)), given


def test_the_programs_give_the_gradient():
    found, given = gradients(trace(stepping(by_value_and_grad_with_more), PARAMETERS, STATE, BATCH))
    parameters = [given[f"parameters.{i}"] for i in range(LAYERS)]
    for one, other in zip(found, jax.grad(loss)(parameters, given["x"]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("before", [False, True], ids=["anew", "traced_before"])
def test_a_jitted_step_is_recognized_and_jaxs_cache_is_unchanged(before):
    step = jax.jit(stepping(by_grad), donate_argnums=(0, 1))
    if before:
        step.trace(PARAMETERS, STATE, BATCH)
    passes = trace(step, PARAMETERS, STATE, BATCH)
    assert figures(passes) == expected()
    assert {v.name for v in passes.step.donated} == {v.name for v in passes.step.parameters | passes.step.state}
    assert "rematscope" not in str(step.trace(PARAMETERS, STATE, BATCH).jaxpr)


def test_outputs_of_a_step_that_are_not_differentiated_may_have_no_derivative():
    @jax.custom_jvp
    def rounded(w):
        return jnp.round(w)

    @rounded.defjvp
    def refuse(*_):
        raise RuntimeError("there is no derivative of rounding")

    @jax.jit
    def step(parameters, state, x):
        parameters, state = updated(parameters, state, by_grad(parameters, x))
        return jax.tree.map(rounded, parameters), state

    step.trace(PARAMETERS, STATE, BATCH)  # so that its gradient is not seen while it is traced once more
    assert figures(trace(step, PARAMETERS, STATE, BATCH)) == expected()
    with pytest.raises(RuntimeError, match="no derivative of rounding"):
        trace(lambda x: rounded(x).sum(), BATCH)


@pytest.mark.parametrize("step", [with_scan, with_fori_loop], ids=lambda step: step.__name__)
def test_of_microbatches_the_passes_of_one_are_shown(step):
    passes = trace(step, PARAMETERS, STATE, array(4, ROWS, D))
    kept, flops, counts = figures(passes)
    taken = 4 * ROWS * D if step is with_fori_loop else 0  # the microbatch, which it cuts out itself
    assert passes.step.times == 4 and flops % 4 == 0, "recompute costs are of all microbatches"
    assert (kept - taken, flops // 4, counts) == expected()
    assert len(passes.step.parameters) == LAYERS and len(passes.step.state) == 2 * LAYERS + 1


@pytest.mark.parametrize("batches", [(), (4,)], ids=["one_batch", "microbatches"])
def test_for_the_gradient_of_a_loss_in_one_checkpoint_everything_is_in_the_backward_pass(batches):
    """The step does not use the loss itself, so the forward pass runs once, in the backward pass: deferred."""
    gradient = jax.grad(jax.checkpoint(lambda w, x: jnp.sin(x @ w).sum()))

    def step(w, x):
        if not batches:
            return w - gradient(w, x)
        return w - lax.scan(lambda total, x: (total + gradient(w, x), None), jnp.zeros_like(w), x)[0]

    passes = trace(step, array(D, D), array(*batches, ROWS, D))
    counts = {role: passes.backward.count("dot_general", role) for role in "RDB"}
    assert passes.step.times == (4 if batches else 1) and counts == {"R": 0, "D": 1, "B": 1}


def test_per_example_gradients_count_every_example():
    def step(parameters, xs):
        gradients = jax.vmap(jax.grad(loss), (None, 0))(parameters, xs)
        return jax.tree.map(lambda w, g: w - g.mean(0), parameters, gradients)

    assert trace(step, PARAMETERS, array(4, ROWS, D)).bytes_by_kind()["computed"] == 4 * expected()[0]


def test_of_several_losses_the_one_that_computes_most_is_shown():
    def step(parameters, critic, x):
        gradients = jax.grad(loss)(parameters, x)
        return jax.tree.map(jnp.subtract, parameters, gradients), critic - jax.grad(lambda w: jnp.sum(jnp.tanh(w)))(
            critic
        )

    passes = trace(step, PARAMETERS, array(D), BATCH)
    assert figures(passes) == expected()
    assert len(passes.step.gradients) == 2 and len(passes.step.parameters) == LAYERS + 1


def test_for_nested_gradients_the_outer_gradient_is_traced():
    def penalized(w, x):
        return jnp.sum(jax.grad(lambda x: jnp.sum(jnp.sin(x @ w)))(x) ** 2)

    def step(w, x):
        return w - jax.grad(penalized)(w, x)

    passes = trace(step, array(D, D), BATCH)
    assert len(passes.step.gradients) == 1
    found, given = gradients(passes)
    np.testing.assert_allclose(found[0], jax.grad(penalized)(given["w"], given["x"]), rtol=1e-4, atol=1e-5)


def energy(x):
    return jnp.sum(jnp.sin(x))


def test_a_loss_that_takes_a_gradient_inside_is_differentiated():
    f = lambda x: jnp.sum(jax.grad(energy)(x) ** 2)  # noqa: E731
    assert trace(f, BATCH).step is None
    assert trace(f, BATCH, differentiate=False).step is not None


def test_a_keyword_says_whether_to_differentiate():
    forces = jax.grad(energy)
    assert trace(forces, BATCH).backward.count("mul") == 1
    twice = trace(forces, BATCH, differentiate=True)
    assert twice.step is None and twice.backward.count("sin") == 0 and twice.forward.count("sin") == 1
    with pytest.raises(TraceError, match="energy takes no gradient"):
        trace(energy, BATCH, differentiate=False)


# Bytes.


class Layer(nnx.Module):
    def __init__(self, rngs):
        self.up, self.down = nnx.Linear(D, 2 * D, rngs=rngs), nnx.Linear(2 * D, D, rngs=rngs)

    def __call__(self, x):
        return self.down(jnp.sin(self.up(x)))


def in_place(model, optimizer, x):
    value, gradients = nnx.value_and_grad(lambda model, x: jnp.mean(model(x) ** 2))(model, x)
    optimizer.update(model, gradients)
    return value


def model_and_optimizer():
    model = Layer(nnx.Rngs(0))
    return model, nnx.Optimizer(model, OPTIMIZER, wrt=nnx.Param)


@pytest.mark.slow
@pytest.mark.parametrize("step", few([in_place, nnx.jit(in_place)]), ids=["plain", "jitted"])
def test_a_step_that_updates_its_modules_in_place_is_one(step):
    """It returns its loss alone: what it leaves in what it was given is a result too, and is compiled."""
    given = *model_and_optimizer(), BATCH
    graph, state = nnx.split(given[:2])

    def pure(state, x):
        modules = nnx.merge(graph, state)
        return in_place(*modules, x), nnx.state(modules)

    same = trace(pure, state, BATCH)
    passes = trace(step, *given)
    assert figures(passes) == figures(same)
    assert sorted(v.shape for v in passes.step.parameters) == sorted(v.shape for v in same.step.parameters)
    assert len(passes.step.state) == len(same.step.state) > 8  # two moments of four arrays, and the count
    assert liveness(step, *given).peak_bytes == liveness(pure, state, BATCH).peak_bytes
    assert measure(step, *given).peak_bytes >= 3 * sum(v.nbytes for v in passes.step.parameters)
    assert plan(step, *given, saved=0.5).saved_bytes == plan(pure, state, BATCH, saved=0.5).saved_bytes
    assert not lint(step, *given).findings


@pytest.mark.slow
def test_a_module_that_is_no_argument_of_the_step_is_requested():
    model, optimizer = model_and_optimizer()
    with pytest.raises(TraceError, match="Make it an argument"):
        trace(lambda x: in_place(model, optimizer, x), BATCH)


def test_a_steps_parameters_state_and_gradients_are_counted_separately():
    found = liveness(jax.jit(stepping(by_grad)), PARAMETERS, STATE, BATCH)
    weights = 4 * LAYERS * D * D
    start, turn, end = found.samples[0], found.samples[found.boundary], found.samples[-1]
    assert (start.parameters, start.optimizer_state, start.arguments) == (weights, 2 * weights + 4, 4 * ROWS * D)
    assert turn.residuals == expected()[0] and max(m.gradients for m in found.samples) == weights
    assert end.nbytes == start.nbytes + 3 * weights + 4, "new parameters and moments beside the old ones"


def test_donated_arguments_are_counted_once():
    found = liveness(jax.jit(stepping(by_grad), donate_argnums=(0, 1)), PARAMETERS, STATE, BATCH)
    assert found.samples[-1].nbytes == found.samples[0].nbytes


@pytest.mark.parametrize("donate", [(), (0, 1)], ids=["kept", "donated"])
def test_a_step_is_compiled_as_written(donate):
    step = jax.jit(stepping(by_grad), donate_argnums=donate)
    found = measure(step, PARAMETERS, STATE, BATCH)
    analysis = step.lower(PARAMETERS, STATE, BATCH).compile().memory_analysis()
    assert found.argument_bytes == analysis.argument_size_in_bytes
    assert found.overwritten_bytes == analysis.alias_size_in_bytes == (donate != ()) * 4 * (9 * D * D + 1)
    assert found.temp_bytes == pytest.approx(analysis.temp_size_in_bytes, rel=0.1)
    rows = {row.metric: row for row in found.rows}
    assert rows["arguments"].error == 0 and ("overwritten" in rows) == bool(donate)
    assert len(found.time(runs=2).runs) == 2


def test_time_leaves_the_caller_s_arrays_to_the_caller():
    given = jnp.ones((D, D)), jnp.ones((ROWS, D))
    step = jax.jit(lambda w, x: w - jax.grad(lambda w: jnp.sum(jnp.sin(x @ w)))(w), donate_argnums=0)
    measure(step, *given).time(runs=2)
    assert not given[0].is_deleted()


def test_a_step_that_each_device_runs_has_a_device_s_bytes():
    auto = (jax.sharding.AxisType.Auto,)
    mesh = jax.sharding.AbstractMesh((4,), ("d",), axis_types=auto)
    spec = jax.sharding.PartitionSpec

    def step(parameters, x):
        gradients = jax.grad(lambda p: lax.psum(loss(p, x), "d"))(parameters)
        return jax.tree.map(jnp.subtract, parameters, gradients)

    mapped = jax.shard_map(step, mesh=mesh, in_specs=(spec(), spec("d")), out_specs=spec())
    passes = trace(mapped, PARAMETERS, array(4 * ROWS, D))
    assert figures(passes)[1] == expected()[1] and passes.devices == 4
    assert 0 <= figures(passes)[0] - expected()[0] <= 8, "and a number"
    assert len(passes.step.parameters) == LAYERS
    start = liveness(mapped, PARAMETERS, array(4 * ROWS, D)).samples[0]
    assert (start.parameters, start.arguments) == (4 * LAYERS * D * D, 4 * ROWS * D)


# Plans.


@pytest.mark.slow
def test_plans_are_those_of_the_loss():
    whole = functools.partial(loss)
    for step in (stepping(by_grad), jax.jit(stepping(by_value_and_grad_with_more)), with_scan):
        batch = array(4, ROWS, D) if step is with_scan else BATCH
        found, alone = plan(step, PARAMETERS, STATE, batch, saved=1.0), plan(whole, PARAMETERS, BATCH, saved=1.0)
        cost = alone.cost * found.trace.times
        assert (found.names, found.saved_bytes, found.cost) == (alone.names, alone.saved_bytes, cost)
        assert found.trace.step is not None
    points = [(p.nbytes, p.cost) for p in frontier(stepping(by_grad), PARAMETERS, STATE, BATCH).points]
    assert points == [(p.nbytes, p.cost) for p in frontier(whole, PARAMETERS, BATCH).points]


def test_lint_and_explore_look_at_the_loss(capsys):
    def step(w, x):
        return w - jax.grad(lambda w: jnp.sum(jax.checkpoint(jnp.tanh)(checkpoint_name(w, "w") * x)))(w)

    assert [finding.name for finding in lint(step, BATCH, BATCH).findings if finding.name] == ["w"]
    explore(step, BATCH, BATCH)
    assert "no checkpoint" in capsys.readouterr().out


@pytest.mark.slow
def test_fit_compiles_the_step():
    sizes = [array(64, 64)] * 2, jax.eval_shape(OPTIMIZER.init, [array(64, 64)] * 2), array(512, 64)
    found = fit(stepping(by_grad), *sizes, peak="100 MB")
    assert found.names == ("h",)
    compiled = jax.jit(found.plan.planned).lower(*sizes).compile().memory_analysis()
    assert found.chosen.measurement.temp_bytes == pytest.approx(compiled.temp_size_in_bytes, rel=0.1)
    assert "the step as written" in " ".join(str(found).split())


def on_two_devices(check_vma, make_mesh):
    """A step that takes its gradient inside a shard_map, for divided weights; it reads a scalar that is everywhere."""
    mesh = make_mesh((2,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    P = jax.sharding.PartitionSpec

    def on_each_device(w, scale, x):
        def loss(w):
            h = checkpoint_name(x @ lax.all_gather(w, "d", tiled=True), "h")
            return lax.pmean(jnp.mean(jnp.sin(scale * jnp.sin(h))), "d")

        value, gradient = jax.value_and_grad(jax.checkpoint(loss))(w)
        return w - gradient, value

    specs = {"in_specs": (P("d"), P(), P("d")), "out_specs": (P("d"), P())}
    step = jax.shard_map(on_each_device, mesh=mesh, check_vma=check_vma, **specs)
    return step, [array(4, 4), array(), array(16, 4)]


@pytest.mark.parametrize("check_vma, make_mesh", [(True, jax.make_mesh), (False, jax.sharding.AbstractMesh)])
def test_a_loss_inside_a_shard_map_is_traced_with_the_shards_of_one_device(check_vma, make_mesh, capsys):
    step, shapes = on_two_devices(check_vma, make_mesh)
    passes = trace(step, *shapes)
    assert passes.step is not None
    loss, given, _ = loss_inside(step, shapes, {})
    own = trace(loss, *given)
    assert own.recompute_cost.flops == passes.recompute_cost.flops == 2 * 8 * 4 * 4 + 8 * 4
    assert own.collectives("R") == passes.collectives("R")
    assert own.saved_device_bytes() == passes.saved_device_bytes()
    (found,) = (finding for finding in lint(step, *shapes).findings if finding.name == "h")
    assert found.kind == "too late" and "all_gather" in found.text
    explore(step, *shapes)
    assert "link bytes recomputed" in capsys.readouterr().out


def test_a_step_with_sharded_parameters_is_recognized_if_the_compiler_shards_its_results():
    mesh = jax.sharding.AbstractMesh((2,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    lies = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))
    weights = jax.ShapeDtypeStruct((8, 4), jnp.float32, sharding=lies)
    assert trace(jax.jit(lambda w, x: w - jax.grad(lambda w: jnp.sum(jnp.sin(w * x)))(w)), weights, weights).step


def test_a_step_is_compiled_from_its_trace():
    calls = []

    def step(w, x):
        calls.append(w)
        return w - jax.grad(lambda w: jnp.sum(jnp.sin(x @ w)))(w)

    trace(step, array(4, 4), array(8, 4))
    of_trace = len(calls)
    measure(step, array(4, 4), array(8, 4))
    assert len(calls) == 2 * of_trace


def test_a_jitted_function_inside_a_loss_is_traced_once_for_all_changes_of_the_step():
    calls = []

    @jax.jit
    def layer(w, x):
        calls.append(w)
        return jnp.sin(x @ w)

    def step(w, x):
        return w - jax.grad(lambda w: jnp.mean(layer(w, x)))(w)

    for changed in (step, rematscope.rewrite(step, checkpoint="whole"), rematscope.rewrite(step, donate_argnums=0)):
        trace(changed, array(4, 4), array(8, 4))
    assert len(calls) == 1


def test_a_jitted_gradient_keeps_no_marks_outside_of_a_trace():
    @jax.jit
    def gradient(w, x):
        return jax.grad(lambda w: jnp.sum(jnp.sin(x @ w)))(w)

    def nested(w, x):
        return w - jax.grad(lambda w: jnp.sum(gradient(w, x) ** 2))(w)

    arguments = array(4, 4), array(8, 4)
    assert trace(nested, *arguments).step  # the jitted gradient is inside of a loss, and not marked
    assert trace(lambda w, x: w - gradient(w, x), *arguments).step  # here, it is that of the step
    assert "rematscope" not in str(jax.make_jaxpr(gradient)(*arguments))
