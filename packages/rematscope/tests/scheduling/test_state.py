"""State outside of a function's results: closures are captured, changes of state are refused, plans are pickled."""

import copy
import dataclasses
import functools
import itertools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from releases import since
from sampling import few
from test_other_calls import MAKES, W, X, assert_same, net, value_and_gradients
from uncompiled import by_operation

from rematscope import PlanError, TraceError, auto, load_schedule, measure, plan, rewrite, trace, with_schedule
from rematscope.scheduling.captured import traced_for_a_plan


class Normalized(nnx.Module):
    def __init__(self, rngs):
        self.linear = nnx.Linear(8, 8, rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.dropout(self.norm(self.linear(x)))


MODEL = Normalized(nnx.Rngs(0))


def stateful(model, x):
    return (model(x) ** 2).mean()


def closed_over(x):
    return (MODEL(x) ** 2).mean()


@functools.partial(jax.tree_util.register_dataclass, data_fields=["w", "mean"], meta_fields=[])
@dataclasses.dataclass
class Running:
    w: jax.Array
    mean: jax.Array


def running(layer, x):
    h = net(layer.w, x)
    layer.mean = 0.9 * layer.mean + 0.1 * h.mean(0)
    return (h**2).sum()


class Logger:
    def __init__(self):
        self.last = None
        self.seen = []


LOGGER, LOG, CACHE = Logger(), [], {}


def logs_in_an_object(w, x):
    LOGGER.last = net(w, x)
    return LOGGER.last.sum()


def logs_in_a_list(w, x):
    LOG.append(h := net(w, x))
    return h.sum()


def caches(w, x, cache=CACHE):
    cache["h"] = net(w, x)
    return cache["h"].sum()


class Method:
    def loss(self, w, x):
        self.h = net(w, x)
        return self.h.sum()


COUNT = jax.new_ref(jnp.zeros(()))


def counts(w, x):
    COUNT[...] += 1.0
    return net(w, x).sum()


JITTED = []


@jax.jit
def jitted(w, x):
    JITTED.append(net(w, x))
    return JITTED[-1].sum()


OBJECT = Method()
PARTIAL = functools.partial(lambda log, w, x: (log.append(net(w, x)), log[-1].sum())[1], [])

STATEFUL = {
    "a module of nnx": (stateful, MODEL, X),
    "a module of nnx that is closed over": (closed_over, X),
    "a dataclass": (running, Running(W, jnp.zeros(8)), X),
    "a global object": (logs_in_an_object, W, X),
    "a global list": (logs_in_a_list, W, X),
    "a default": (caches, W, X),
    "its own object": (OBJECT.loss, W, X),
    "in a partial": (PARTIAL, W, X),
    "in a jit": (jitted, W, X),
    "a mutable array": (counts, W, X),
}


@pytest.mark.parametrize("name", STATEFUL)
def test_a_function_that_changes_state_is_refused(name, tmp_path):
    f, *args = STATEFUL[name]
    (tmp_path / "choice.json").write_text('{"structure": "", "kept": []}')
    tries = (
        lambda: auto(f, peak="1 GiB").plan(*args),
        lambda: with_schedule(f)(*args),
        lambda: jax.grad(with_schedule(f), allow_int=True)(*args),
        lambda: load_schedule(tmp_path / "choice.json", f)(*args),
    )
    for each in tries:
        with pytest.raises(PlanError, match="Return the new state as a second result"):
            each()
        LOGGER.last = None
        for held in (LOG, CACHE, JITTED, vars(OBJECT), PARTIAL.args[0]):
            held.clear()
        jitted.clear_cache()


@pytest.mark.slow
def test_the_state_of_nnx_that_is_split_off_is_returned():
    """This is the advice of the error message."""
    graph, params, state = nnx.split(Normalized(nnx.Rngs(1)), nnx.Param, ...)

    def loss(params, state, x):
        model = nnx.merge(graph, params, state, copy=True)
        return (model(x) ** 2).mean(), nnx.split(model, nnx.Param, ...)[2]

    found = auto(lambda *args: loss(*args), saved="1 MiB").plan(params, state, X)
    for _ in range(2):
        # In a jit of its own, for nnx lets nothing outside of a transformation change in it.
        expected = jax.jit(jax.value_and_grad(loss, has_aux=True, allow_int=True))(params, state, X)
        (value, new), gradients = jax.value_and_grad(found.function, has_aux=True, allow_int=True)(params, state, X)
        assert_same(((value, new), gradients), expected)
        assert not jnp.array_equal(jax.tree.leaves(new)[0], jax.tree.leaves(state)[0])
        state = new


def test_a_dictionary_is_the_function_s_own_to_change():
    def loss(batch, w):
        batch["x"] = batch["x"] * 2
        return net(w, batch.pop("x")).sum()

    for make in MAKES.values():
        assert_same(
            value_and_gradients(make(loss, {"x": X}, W), ({"x": X}, W), {}),
            value_and_gradients(loss, ({"x": X}, W), {}),
        )


@pytest.mark.parametrize("make", MAKES)
def test_closed_over_variables_keep_their_values_from_planning_in_derivatives_too(make):
    held = {"scale": 2.0, "w": W, "act": jnp.sin}

    def loss(x):
        return (held["act"](net(held["w"], x)) * held["scale"]).sum()

    made, before = MAKES[make](loss, X), value_and_gradients(loss, (X,), {})
    held.update(scale=5.0, w=2 * W, act=jnp.exp)
    assert_same(value_and_gradients(made, (X,), {}), before)
    assert_same(jax.jit(jax.vmap(made))(X[None]), before[0][None])
    found, expected = (
        by_operation(jax.hessian(lambda t, f=f: f(t * X)))(1.0)
        for f in (made, lambda x: (jnp.sin(net(W, x)) * 2).sum())
    )
    assert_same(found, expected)


@pytest.mark.slow
def test_a_traced_value_that_is_closed_over_is_refused_for_a_plan_and_not_by_scheduled():
    with pytest.raises(PlanError, match="closes over a traced value of an outer transformation"):
        jax.grad(lambda w: auto(lambda x: net(w, x).sum(), saved="1 MiB").plan(X).function(X))(W)

    def outer(make):
        def f(w, index):
            inner = make(lambda x: net(w, x)[index].sum() * index)
            return jax.jvp(inner, (X,), (X,))[1] + jax.grad(inner)(X).sum()

        value = by_operation(jax.value_and_grad(f))(W, jnp.int32(3))
        return value, by_operation(jax.vmap(jax.grad(f), (None, 0)))(W, jnp.arange(3))

    assert_same(outer(with_schedule), outer(lambda f: f))


def test_a_plan_is_copied_as_itself():
    f = auto(net_sum, saved="1 MiB")
    for each in (f, f.plan(W, X), f.plan(W, X).function):
        assert copy.deepcopy(each) is each
        assert copy.copy(each) is each


@auto(saved="1 KiB", argnums=0)
def decorated(w, x):
    return net(w, x).sum()


PICKLED = {
    "what fits": lambda: auto(net_sum, saved="1 MiB"),
    "a schedule": lambda: auto(net_sum, saved=600),
    "a peak": lambda: auto(net_sum, peak=4000),
    "a decorated function": lambda: decorated,
    "another cost": lambda: auto(net_sum, saved=600, cost="seconds", device="tpu v5e", argnums=1),
}


@pytest.mark.slow
@since("0.10", "the call stacks of operations start in the traced function")
@pytest.mark.parametrize("name", few(PICKLED, 1))
def test_a_pickled_plan_shows_the_same_view_and_is_retraced_when_loaded(name):
    f = PICKLED[name]()
    plan = f.plan(W, X)
    read = pickle.loads(pickle.dumps(plan))
    assert repr(read) == repr(plan) and read.certificate == plan.certificate
    assert read.measurement.peak_bytes == plan.measurement.peak_bytes and read.saved_bytes == plan.saved_bytes
    argnums = (0, 1) if f.argnums is None else f.argnums
    assert_same(jax.grad(read.function, argnums)(W, X), jax.grad(net_sum, argnums)(W, X))
    assert (f.argnums is None) or raises_for(read.function, 1 - argnums[0])
    again = pickle.loads(pickle.dumps(f))
    assert (again is f) == (name == "a decorated function")
    assert repr(again) == repr(f) and repr(again.plan(W, X)) == repr(plan)


def raises_for(f, argnum):
    with pytest.raises(PlanError, match="was planned without a gradient for"):
        jax.grad(f, argnum)(W, X)
    return True


@pytest.mark.parametrize("made", ["rewrite", "load_schedule"])
def test_other_functions_are_copied_as_themselves_and_pickled(made, tmp_path):
    if made == "rewrite":
        f = rewrite(net_sum, checkpoint="whole")
    else:
        auto(net_sum, saved=600).plan(W, X).save(tmp_path / "schedule.json")
        f = load_schedule(tmp_path / "schedule.json", net_sum)
    assert copy.copy(f) is copy.deepcopy(f) is f
    again = pickle.loads(pickle.dumps(f))
    assert repr(again) == repr(f)
    assert_same(jax.grad(again)(W, X), jax.grad(net_sum)(W, X))


def test_a_plan_of_an_unpicklable_function_is_refused_with_advice():
    plan = auto(lambda w, x: net_sum(w, x), saved="1 MiB").plan(W, X)
    for each in (plan, plan.function):
        with pytest.raises(PlanError, match=r"cannot be pickled.*plan\.save\('schedule\.json'\)"):
            pickle.dumps(each)


def test_a_plan_that_was_pickled_for_another_function_is_refused(monkeypatch):
    pickled = pickle.dumps(auto(net_sum, saved="1 MiB").plan(W, X))
    monkeypatch.setitem(globals(), "net_sum", lambda w, x: net(w, x).mean())
    with pytest.raises(PlanError, match="another version of"):
        pickle.loads(pickled)


def net_sum(w, x):
    return net(w, x).sum()


planned = functools.partial(auto, peak="1 MiB")


def meshes():
    if len(jax.devices()) < 2:
        pytest.skip("one device")
    return [jax.make_mesh((2,), ("d",), axis_types=(kind,)) for kind in (AxisType.Auto, AxisType.Explicit)]


@pytest.mark.slow
def test_on_a_mesh_a_planned_function_agrees_with_f_or_refuses():
    auto_mesh, explicit = meshes()
    made = MAKES["a schedule"](net_sum, W, X)
    part = MAKES["a schedule"](net_sum, W, X[:8])
    sharded = jax.device_put(X, NamedSharding(auto_mesh, P("d")))
    assert_same(jax.jit(jax.grad(made))(W, sharded), jax.grad(net_sum)(W, X))
    with pytest.raises(PlanError, match="explicit mesh axes"):
        jax.jit(jax.grad(made))(W, jax.device_put(X, NamedSharding(explicit, P("d"))))

    def over(f, check, inside):
        mapped = functools.partial(jax.shard_map, mesh=auto_mesh, in_specs=(P(), P("d")), check_vma=check)
        if inside:
            return mapped(jax.grad(f), out_specs=P("d"))(W, X)
        return jax.grad(lambda w: mapped(lambda w, x: jax.lax.psum(f(w, x), "d"), out_specs=P())(w, X))(W)

    for f, check, inside in itertools.product((part, with_schedule(net_sum)), (True, False), (True, False)):
        if check:
            with pytest.raises(PlanError, match="check_vma=False"):
                over(f, check, inside)
        else:
            assert_same(over(f, check, inside), over(net_sum, check, inside))
    for look in (trace, measure, lambda f, *args: planned(f)(*args), lambda f, *args: with_schedule(f)(*args)):
        with pytest.raises(TraceError, match="uses the axis d, which only the shard_map"):
            look(lambda w, x: jax.lax.psum(net_sum(w, x), "d"), W, X)
    assert np.isfinite(
        jax.vmap(with_schedule(lambda x: jax.lax.psum(net_sum(W, x), "i")), axis_name="i")(X[None])
    ).all()


@pytest.mark.parametrize("copied", [pickle.dumps, copy.deepcopy])
def test_results_that_hold_programs_of_jax_say_that_they_cannot_be_copied(copied):
    for result in (trace(net, W, X), measure(net, W, X), plan(net, W, X, saved="1 KiB")):
        with pytest.raises(TraceError, match="cannot be pickled or copied"):
            copied(result)


@pytest.mark.slow
@pytest.mark.parametrize("norm", [nnx.LayerNorm, nnx.BatchNorm])
@pytest.mark.parametrize(
    "make", [lambda f: auto(f, peak="1 MiB", compiles=1), with_schedule], ids=["auto", "scheduled"]
)
def test_a_module_of_nnx_under_nnx_remat_is_refused_only_if_its_state_changes(make, norm):
    def loss(model, x):
        return jnp.sin(nnx.remat(lambda model, x: model(x))(model, x) @ W).sum()

    model = norm(8, rngs=nnx.Rngs(0))
    x = jnp.arange(16.0).reshape(2, 8)
    if norm is nnx.BatchNorm:
        with pytest.raises(PlanError, match="changes its argument, a value of type BatchNorm"):
            nnx.grad(make(loss))(model, x)
    else:
        assert_same(nnx.grad(make(loss))(model, x), nnx.grad(loss)(model, x))


@pytest.mark.parametrize("norm", [nnx.LayerNorm, nnx.BatchNorm])
def test_layers_of_nnx_in_a_scan_are_refused_only_if_their_state_changes(norm):
    @nnx.split_rngs(splits=3)
    @nnx.vmap
    def layers_of(rngs):
        return norm(8, rngs=rngs)

    def loss(layers, x):
        @nnx.remat
        @nnx.scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
        def run(x, layer):
            return nnx.remat(lambda layer, x: jnp.sin(layer(x)))(layer, x)

        return run(x, layers).sum()

    args = layers_of(nnx.Rngs(0)), jnp.arange(16.0).reshape(2, 8)
    if norm is nnx.BatchNorm:
        with pytest.raises(PlanError, match="changes its argument, a value of type BatchNorm"):
            traced_for_a_plan(loss, args, {})
    else:
        assert traced_for_a_plan(loss, args, {}).function is loss


@pytest.mark.parametrize("make", [lambda f: auto(f, peak="1 MiB"), with_schedule], ids=["auto", "scheduled"])
def test_a_result_that_is_no_array_is_named(make):
    with pytest.raises(PlanError, match="returns 'done', a str, and a planned function returns arrays and numbers"):
        jax.grad(make(lambda w: (jnp.sin(w).sum(), "done")), has_aux=True)(W)
