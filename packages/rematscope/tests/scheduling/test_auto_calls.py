"""`auto` as a transformation: it plans as `jax.jit` compiles, and stays `f` under every transformation."""

import dataclasses
import functools
import inspect
import json
import threading
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P
from sampling import few, sampled
from test_other_calls import CASES, UNCHANGED, W, X, assert_same, expected_of, net, value_and_gradients
from uncompiled import by_operation

from rematscope import PlanError, TraceError, auto, load_schedule, measure, trace, with_schedule
from rematscope.scheduling import search as planning


def loss(w, x):
    return (net(w, x) ** 2).mean()


def with_state(w, x):
    h = net(w, x)
    return (h**2).mean(), {"mean": h.mean(0), "steps": jnp.arange(3)}


@pytest.fixture
def plans(monkeypatch):
    """The names of the functions that were planned, one for each search."""
    names = []

    class Counted(planning.ScheduleSearch):
        def __init__(self, f, *args):
            names.append(getattr(f, "__name__", ""))
            super().__init__(f, *args)

    monkeypatch.setattr(planning, "ScheduleSearch", Counted)
    return names


TRANSFORMATIONS = {
    "grad": lambda f: jax.grad(f, (0, 1))(W, X),
    "jit(grad)": lambda f: jax.jit(jax.grad(f, (0, 1)))(W, X),
    "grad(jit)": lambda f: jax.grad(jax.jit(f), (0, 1))(W, X),
    "value_and_grad": lambda f: jax.jit(jax.value_and_grad(f))(W, X),
    "jvp": lambda f: jax.jvp(f, (W, X), (W, X)),
    "linearize": lambda f: jax.linearize(f, W, X)[1](X[:8], X),
    "vjp": lambda f: jax.vjp(f, W, X)[1](jnp.float32(2)),
    "vmap": lambda f: jax.vmap(f, (None, 0))(W, X[:, None]),
    "vmap(grad)": lambda f: jax.jit(jax.vmap(jax.grad(f), (None, 0)))(W, X[:, None]),
    "grad(vmap)": lambda f: jax.grad(lambda w: jax.vmap(f, (None, 0))(w, X[:, None]).sum())(W),
    "hessian": lambda f: jax.hessian(lambda t: f(t * W, X))(1.0),
    "grad(grad)": lambda f: jax.grad(lambda w: (jax.grad(f)(w, X) ** 2).sum())(W),
    "checkpoint": lambda f: jax.grad(jax.checkpoint(f), (0, 1))(W, X),
    "scan": lambda f: jax.jit(jax.grad(lambda w: lax.scan(lambda c, x: (c + f(w, x), None), 0.0, X[:, None])[0]))(W),
    "gradient in a scan": lambda f: lax.scan(lambda w, x: (w - jax.grad(f)(w, x), f(w, x)), W, X[:, None]),
    "cond": lambda f: jax.grad(lambda w: lax.cond(w[0, 0] > 9, lambda w: 0.0, lambda w: f(w, X), w))(W),
    "donated": lambda f: jax.jit(lambda w, x: w - jax.grad(f)(w, x), donate_argnums=0)(jnp.array(W), X),
    "static": lambda f: jax.jit(lambda n, w, x: n * f(w, x), static_argnums=0)(3, W, X),
    "leaks": lambda f: jax.checking_leaks()(jax.jit(jax.grad(f)))(W, X),
}


@pytest.mark.parametrize("name", sampled(list(TRANSFORMATIONS), 4))
def test_transformations_of_auto_are_those_of_the_function_and_plan_once(name, plans):
    f, transform = auto(loss, saved="1 KiB"), TRANSFORMATIONS[name]
    assert_same(by_operation(lambda: transform(f))(), by_operation(lambda: transform(loss))())
    first = len(plans)
    assert first in (1, 2)  # of the whole batch, or of one row of it
    jax.eval_shape(lambda: transform(f))
    assert len(plans) == first


@pytest.mark.slow
@pytest.mark.parametrize("name", few(["grad", "hessian", "scan", "vmap(grad)", "donated", "leaks"], 2))
def test_transformations_are_those_of_the_function_within_a_peak_and_compiled(name, plans):
    assert_same(TRANSFORMATIONS[name](auto(loss, peak="6 KiB")), TRANSFORMATIONS[name](loss))
    assert plans


@pytest.mark.parametrize("name", sampled(list(CASES), 12))
def test_a_call_that_jit_would_retrace_is_planned_separately(name, plans):
    case = CASES[name]
    f = auto(case.f, saved="1 KiB")
    assert_same(value_and_gradients(f, case.before, case.keywords), expected_of(name, now=False))
    assert len(plans) == 1
    now = case.keywords if case.keywords_now is None else case.keywords_now
    with case.around():
        assert_same(value_and_gradients(f, case.now, now), expected_of(name, now=True))
    assert len(plans) == 1 + (name not in UNCHANGED)
    jax.eval_shape(f, *case.before, **case.keywords)
    assert len(plans) == 1 + (name not in UNCHANGED)


@pytest.mark.slow
def test_a_smaller_last_batch_is_planned_for_itself(plans):
    @jax.jit
    def step(w, x):
        return w - 0.1 * jax.grad(f)(w, x)

    f, w, expected = auto(loss, peak="6 KiB", argnums=0), W, W
    for batch in (X, 2 * X, X[:5], X, X[:5]):
        w, expected = step(w, batch), expected - 0.1 * jax.grad(loss)(expected, batch)
    assert_same(w, expected)
    assert len(plans) == 2


def test_a_plan_for_shapes_is_the_plan_of_calls_with_such_arrays(plans):
    f = auto(loss, peak="6 KiB")
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in (W, X)]
    plan = f.plan(*shapes)
    assert plan is f.plan(W, X) is f.plan(*shapes)
    jax.jit(jax.grad(f))(W, X)
    assert len(plans) == 1
    assert plan.measurement.peak_bytes <= plan.limit
    assert f.plan(W, x=X) is not plan  # another call, for jit too


@pytest.mark.slow
def test_auxiliary_results_are_those_of_f():
    for how in (lambda f: jax.value_and_grad(f, has_aux=True), lambda f: jax.jit(jax.grad(f, has_aux=True))):
        assert_same(how(auto(with_state, saved="1 KiB"))(W, X), how(with_state)(W, X))


OPTIONS = [name for name in inspect.signature(auto).parameters if name != "f"]
NAMES = [*OPTIONS, "budget", "differentiate", "self", "f", "args", "kwargs", "blocks", "fun", "finest", "instance"]


@pytest.mark.slow
def test_arguments_of_a_function_may_have_the_names_of_options():
    scope = {"net": net}
    exec(f"def named(w, *, {', '.join(NAMES)}):\n    return (net(w, {' + '.join(NAMES)}) ** 2).sum()", scope)
    f, named = auto(scope["named"], peak="1 MiB"), {name: X[:2] + i for i, name in enumerate(NAMES)}
    assert_same(jax.grad(f)(W, **named), jax.grad(scope["named"])(W, **named))
    plan = f.plan(W, **named)
    assert plan.measurement.peak_bytes <= plan.limit and repr(plan) and repr(plan.suggested_names)
    assert_same(jax.grad(with_schedule(scope["named"]))(W, **named), jax.grad(scope["named"])(W, **named))


def test_it_has_the_name_the_signature_and_a_repr():
    f = auto(loss, peak="1 MiB", argnums=0)
    assert (f.__name__, f.__doc__, f.__module__, f.__wrapped__) == ("loss", loss.__doc__, loss.__module__, loss)
    assert inspect.signature(f) == inspect.signature(loss)
    assert repr(f) == "<auto(loss, peak='1 MiB', argnums=(0,))>"
    assert repr(auto(functools.partial(loss, x=X), saved=0)) == "<auto(loss, saved='0 B')>"


@pytest.mark.slow
def test_it_decorates_functions_and_methods():
    class Model:
        scale = 3.0

        @auto(saved="1 KiB")
        def loss(self, w):
            return self.scale * loss(w, X)

    model = Model()
    jax.tree_util.register_pytree_node(Model, lambda m: ((), None), lambda *_: model)
    assert_same(jax.grad(model.loss)(W), jax.grad(lambda w: 3 * loss(w, X))(W))
    assert_same(functools.partial(auto, saved=0)(loss)(W, X), loss(W, X))
    with pytest.raises(TraceError, match="of type int, not a function"):
        auto(3, peak="1 GiB")


class Scaled(eqx.Module):
    w: jax.Array
    bias: jax.Array | None
    power: int = eqx.field(static=True)

    @eqx.filter_jit
    @eqx.filter_grad
    @auto(saved="1 KiB")
    def gradient(self, x):
        h = net(self.w, x) ** self.power
        return h.sum() if self.bias is None else (h + self.bias).sum()


@pytest.mark.slow
def test_modules_of_equinox_are_arguments(plans):
    for module in (Scaled(W, None, 2), Scaled(W, X[0], 2), Scaled(W, None, 3)):
        plain = eqx.filter_grad(lambda m, x: type(m).gradient.__wrapped__.__wrapped__.__wrapped__(m, x))
        assert_same(jax.tree.leaves(module.gradient(X)), jax.tree.leaves(plain(module, X)))
    assert len(plans) == 3


def alone(value, i):
    """The arguments, with another one at a place."""
    return tuple(value if n == i else a for n, a in enumerate((W, X)))


def carried(f, w, x):
    """The function in a loop that hands its arguments from one iteration to the next."""
    return lax.fori_loop(0, 2, lambda _, c: (c[0], c[1], f(*c[:2])), (w, x, 0.0))[2]


ARGNUMS = {"1": 1, "-2": -2, "a list": [1, 0], "twice": (0, 0), "all": None}
DIFFERENTIATED = {
    "grad": lambda f, i: jax.grad(f, i)(W, X),
    "jit(grad)": lambda f, i: jax.jit(jax.grad(f, i))(W, X),
    "grad(jit)": lambda f, i: jax.grad(jax.jit(f), i)(W, X),
    "vmap(grad)": lambda f, i: jax.vmap(jax.grad(f, i), (None, 0))(W, X[:, None]),
    "grad(vmap)": lambda f, i: jax.grad(lambda *a: jax.vmap(f, (None, 0))(a[0], a[1][:, None]).sum(), i)(W, X),
    "hessian": lambda f, i: jax.hessian(lambda t: f(*alone(t * (W, X)[i], i)))(1.0),
    "jvp": lambda f, i: jax.jvp(lambda a: f(*alone(a, i)), [(W, X)[i]], [(W, X)[i]]),
    "linearize": lambda f, i: jax.linearize(lambda a: f(*alone(a, i)), (W, X)[i])[0],
    "jacfwd": lambda f, i: jax.jacfwd(f, i)(W, X),
    "checkpoint": lambda f, i: jax.grad(jax.checkpoint(f), i)(W, X),
    "scan": lambda f, i: jax.grad(lambda *a: lax.scan(lambda c, _: (c + f(*a), None), 0.0, None, 2)[0], i)(W, X),
    "carried": lambda f, i: jax.grad(lambda *a: carried(f, *a), i)(W, X),
    "grad of grad": lambda f, i: jax.grad(lambda *a: (jax.grad(f, i)(*a) ** 2).sum(), i)(W, X),
    "mixed": lambda f, i: jax.grad(lambda *a: (jax.grad(f, i)(*a) ** 2).sum(), 1 - i)(W, X),
}  # fmt: skip
MADE = {
    "a schedule": {"saved": "1 KiB"},
    "everything saved": {"peak": "1 MiB"},
}


@pytest.mark.parametrize("how", sampled(list(DIFFERENTIATED), 7))
@pytest.mark.parametrize(("limit", "argnum"), [("a schedule", 0), ("everything saved", 1)])
def test_argnums_have_gradients_and_the_others_raise(how, limit, argnum):
    f = auto(loss, argnums=argnum, **MADE[limit])
    if how != "mixed":
        found, expected = (by_operation(lambda g=g: DIFFERENTIATED[how](g, argnum))() for g in (f, loss))
        assert_same(found, expected)
    other = argnum if how == "mixed" else 1 - argnum
    path = "wx"[1 - argnum]
    with pytest.raises(
        PlanError, match=f"loss was planned without a gradient for `{path}`.*Add the argument to argnums"
    ):
        DIFFERENTIATED[how](f, other)


@pytest.mark.parametrize("given", few(ARGNUMS, 3))
def test_the_peak_is_that_of_the_requested_gradients(given):
    f = auto(loss, argnums=ARGNUMS[given], peak="1 MiB")
    argnums = {"all": (0, 1), "twice": 0}.get(given, ARGNUMS[given])
    assert_same(jax.grad(f, argnums)(W, X), jax.grad(loss, argnums)(W, X))
    made = jax.jit(jax.value_and_grad(f, argnums)).lower(W, X).compile().memory_analysis()
    measured = f.plan(W, X).measurement
    assert measured.output_bytes == made.output_size_in_bytes
    assert measured.temp_bytes == made.temp_size_in_bytes


def many(w, /, x, *rest, scale, shift=None):
    h = net(w, x) * scale if shift is None else net(w, x) * scale + shift
    return sum(((r * h).sum() for r in rest), h.sum())


@pytest.mark.slow
def test_argnums_count_positional_parameters_also_by_keyword():
    f = auto(many, argnums=1, saved="1 KiB")
    for call in (
        lambda g, x: g(W, x, scale=2.0),
        lambda g, x: g(W, x=x, scale=2.0),
        lambda g, x: g(W, x, X, X, scale=1.0),
    ):
        found, expected = (by_operation(jax.grad(functools.partial(call, g)))(X) for g in (f, many))
        assert_same(found, expected)
    f = auto(many, argnums=-1, saved="1 KiB")
    assert_same(jax.grad(f, 3)(W, X, X, 2 * X, scale=1.0), jax.grad(many, 3)(W, X, X, 2 * X, scale=1.0))
    by_keyword = lambda g: jax.grad(lambda s: g(W, X, scale=s))(2.0)  # noqa: E731
    assert_same(by_keyword(auto(many, saved="1 KiB")), by_keyword(many))
    with pytest.raises(PlanError, match="many was planned without a gradient for `scale`"):
        by_keyword(f)


WRONG = {
    "a name": ("w", "argnums='w' does not say which arguments get a gradient"),
    "a float": (0.0, "argnums=0.0 does not say"),
    "a truth": (True, "argnums=True does not say"),
    "none of them": ((), r"argnums=\(\) does not say"),
    "a name among others": ((0, "x"), "does not say"),
    "beyond the last": (2, r"argnums includes index 2, but this call of loss has 2 positional arguments"),
    "before the first": (-3, r"argnums includes index -3"),
}


@pytest.mark.parametrize("name", WRONG)
def test_invalid_argnums_are_refused(name):
    argnums, sentence = WRONG[name]
    with pytest.raises(PlanError, match=sentence):
        auto(loss, peak="1 MiB", argnums=argnums)(W, X)


def test_argnums_of_integers_are_refused():
    f = auto(lambda w, n: (net(w, X) * n).sum(), peak="1 MiB", argnums=1)
    with pytest.raises(PlanError, match="argnums includes 'n', an argument of <lambda> without floating-point values"):
        f(W, 3)


@pytest.mark.slow
def test_integers_and_arguments_with_some_are_passed_on():
    def picked(params, key, n):
        return (net(params["w"], X) * jax.random.bernoulli(key, 0.5, X.shape) * n).sum() + params["steps"]

    f, args = auto(picked, saved="1 KiB", argnums=0), ({"w": W, "steps": jnp.int32(3)}, jax.random.key(0), 3)
    assert_same(jax.grad(f, allow_int=True)(*args), jax.grad(picked, allow_int=True)(*args))


@pytest.mark.slow
def test_a_schedule_is_saved_with_its_argnums_and_loaded_without_a_search(tmp_path, plans, monkeypatch):
    plan = auto(loss, saved="1 KiB", argnums=0).plan(W, X)
    plan.save(tmp_path / "schedule.json")
    plans.clear()
    loaded = load_schedule(tmp_path / "schedule.json", loss)
    assert repr(loaded) == f"<load_schedule({str(tmp_path / 'schedule.json')!r}, loss)>"
    for how in ("grad", "jit(grad)", "hessian", "scan"):
        assert_same(DIFFERENTIATED[how](loaded, 0), DIFFERENTIATED[how](loss, 0))
    with pytest.raises(PlanError, match="without a gradient for `x`"):
        jax.grad(loaded, 1)(W, X)
    with pytest.raises(PlanError, match="is for another function than loss with these arguments"):
        loaded(W, X[:3])
    with pytest.raises(PlanError, match="is for another function than net"):
        load_schedule(tmp_path / "schedule.json", net)(W, X)
    assert not plans


@pytest.mark.slow
def test_static_values_that_cannot_be_compared_are_refused():
    @functools.partial(jax.tree_util.register_dataclass, data_fields=["w"], meta_fields=["factors"])
    @dataclasses.dataclass
    class Params:
        w: Any
        factors: Any

    def scaled(params, x):
        return net(params.w, x).sum() * params.factors[1]

    f = auto(scaled, saved="1 KiB")
    for factors in ((1.0, 2.0), (1.0, 3.0)):
        assert_same(jax.grad(f)(Params(W, factors), X), jax.grad(scaled)(Params(W, factors), X))
    with pytest.raises(PlanError, match="static values cannot be compared"):
        jax.grad(f)(Params(W, np.array([1.0, 2.0])), X)


def test_a_schedule_file_with_an_unknown_target_is_refused(tmp_path):
    file = tmp_path / "schedule.json"
    auto(loss, saved="1 KiB").plan(W, X).save(file)
    file.write_text(json.dumps(json.loads(file.read_text()) | {"target": "abacus"}))
    with pytest.raises(PlanError, match=r"schedule.json is for another device: target='abacus' is not known. Choose"):
        load_schedule(file, loss)


@pytest.mark.slow
def test_a_failed_plan_is_retried(monkeypatch):
    calls = []

    def fails_once(w, x):
        calls.append(len(calls))
        if not calls[-1]:
            raise KeyboardInterrupt
        return loss(w, x)

    f = auto(fails_once, saved="1 KiB")
    with pytest.raises(KeyboardInterrupt):
        f(W, X)
    assert_same(jax.grad(f)(W, X), jax.grad(loss)(W, X))
    small = auto(loss, peak=10)
    for _ in range(2):
        with pytest.raises(PlanError, match="The smallest peak found is"):
            jax.jit(jax.grad(small))(W, X)


def test_threads_that_call_at_once_plan_once(plans):
    f, found = auto(loss, saved="1 KiB"), []
    threads = [threading.Thread(target=lambda: found.append(jax.jit(jax.grad(f))(W, X))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(plans) == 1 and len(found) == 4
    assert_same(found, [jax.grad(loss)(W, X)] * 4)


@pytest.mark.slow
def test_rematscope_looks_at_it_as_at_f():
    """Also where it is planned while it is traced to be looked at."""
    f, plain = auto(loss, saved="1 KiB"), auto(loss, peak="1 MiB")
    assert trace(f, W, X).saved_bytes() - trace(loss, W, X).bytes_by_kind()["argument"] <= 1024
    assert trace(plain, W, X).bytes_by_kind() == trace(loss, W, X).bytes_by_kind()
    assert measure(f, W, X).temp_bytes == f.plan(W, X).measurement.temp_bytes

    some = auto(loss, saved="1 KiB", argnums=0)
    for each in (some, some.plan(W, X).function):
        assert measure(each, W, X).output_bytes == some.plan(W, X).measurement.output_bytes

    def step(w, x):
        return w - 0.1 * jax.grad(auto(loss, saved="1 KiB"))(w, x)

    assert trace(step, W, X).step is not None
    assert trace(step, W, X).saved_bytes() == trace(lambda w, x: w - 0.1 * jax.grad(f)(w, x), W, X).saved_bytes()


def test_a_function_keeps_a_limited_number_of_plans(monkeypatch, plans):
    monkeypatch.setattr("rematscope.scheduling.per_call._MOST_PLANS", 2)
    f = auto(lambda x: jnp.sin(x).sum(), saved="1 KiB")
    for size in (1, 2, 1, 3, 1, 2):
        f(jnp.ones(size))
    assert len(plans) == 4  # 1, 2, 3, and 2 once more


def test_a_traced_value_that_is_closed_over_is_refused():
    def outer(scale):
        return jax.grad(auto(lambda w: loss(w, X) * scale, saved="1 KiB"))(W).sum()

    for how in (jax.jit, jax.grad, lambda f: jax.vmap(f) if f else f):
        with pytest.raises(PlanError, match="closes over a traced value of an outer transformation"):
            how(outer)(jnp.ones(() if how in (jax.jit, jax.grad) else 3))


def test_inside_a_shard_map_the_part_of_one_device_is_planned():
    if len(jax.devices()) < 2:
        pytest.skip("one device")
    mesh = jax.make_mesh((2,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))

    def over(f, **how):
        mapped = jax.shard_map(jax.grad(f), mesh=mesh, in_specs=(P(), P("d")), out_specs=P("d"), **how)
        return jax.jit(mapped)(W, X)

    f = auto(loss, saved="1 KiB")
    assert_same(over(f, check_vma=False), over(loss, check_vma=False))
    assert f.plan(W, X[:8]) is f.plan(W, 2 * X[:8])
    with pytest.raises(PlanError, match=r"inside a shard_map over 'd' with check_vma=True.*check_vma=False"):
        over(f)
    with pytest.raises(PlanError, match=r"check_vma=True, which with_schedule does not support.*pass to with_schedule"):
        over(with_schedule(loss))
    summed = auto(lambda w, x: lax.psum(loss(w, x), "d"), saved="1 KiB")
    with pytest.raises(TraceError, match="uses the axis d, which only the shard_map"):
        over(summed, check_vma=False)


@pytest.mark.parametrize("transform", [with_schedule, auto(saved="1 GiB", compiles=1)])
@pytest.mark.parametrize("call", [lambda f, *args: f(*args), lambda f, *args: jax.grad(f)(*args)])
def test_a_call_with_a_shape_names_the_argument(transform, call):
    function = transform(lambda x, params: jnp.sin(params["w"] * x).sum())
    x, shapes = jnp.ones(3), {"w": jax.ShapeDtypeStruct((3,), jnp.float32)}
    assert jax.eval_shape(function, x, shapes).shape == ()
    with pytest.raises(TraceError, match=r"`params\.w` is a jax\.ShapeDtypeStruct"):
        call(function, x, shapes)


@pytest.mark.parametrize("transform", [with_schedule, auto(saved="1 GiB", compiles=1)])
def test_a_symbolic_shape_is_refused_with_its_argument(transform):
    (rows,) = jax.export.symbolic_shape("rows")
    gradient = jax.jit(jax.grad(transform(lambda x: jnp.sin(x).sum())))
    with pytest.raises(TraceError, match=r"`x` has the shape \(rows, 3\)"):
        jax.export.export(gradient)(jax.ShapeDtypeStruct((rows, 3), jnp.float32))
