"""rematscope's figures are right with and without JAX's next rematerialization, `jax_remat3`.

The other tests run in JAX's default mode. To run a folder with the flag: `JAX_REMAT3=1 pytest
packages/rematscope/tests/tracing`. Some tests there have other expectations with the flag.
"""

import itertools
import random

import invariants
import jax
import jax.ad_checkpoint
import jax.numpy as jnp
import numpy as np
import pytest
from blocks import BLOCKS
from checkpointed import LITTLE
from choices.test_predicted_choices import measured, saving, subsets
from jax._src import config  # private: a switch for one thread
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import pallas as pl
from releases import since
from sampling import few
from zoo import CASES

from rematscope import (
    PlanError,
    TraceError,
    auto,
    compare,
    explore,
    fit,
    frontier,
    jax_compat,
    lint,
    liveness,
    measure,
    plan,
    print_fwd_bwd,
    recompute_graph,
    report,
    residual_table,
    trace,
    with_schedule,
)
from rematscope.render.view import plain_text
from rematscope.tracing.checkpoints import checkpoints

policies = jax.checkpoint_policies
X = np.float32(0.5)
MODES = [False, True]
pytestmark = since("0.12", "jax_remat3 saves names and obeys policies as these tests expect")


@pytest.fixture(params=MODES, ids=["default", "remat3"])
def remat3(request):
    with jax_compat.use_remat3(request.param):
        yield request.param


def drawn(seed: int, cases, count: int) -> list:
    return random.Random(seed).sample(sorted(cases), count)


def has_checkpoint(case) -> bool:
    with jax_compat.use_remat3(False):
        jaxpr = jax.make_jaxpr(case.function)(*case.args, **case.kwargs)
    return any(checkpoints(jaxpr))


# Traces.


@pytest.mark.slow
def test_traces_agree_with_jax(remat3, seed):
    """Residuals, gradients, and that what counts as recomputed equals the forward pass's value."""
    in_order = drawn(seed, CASES, len(CASES))
    for name in itertools.islice((name for name in in_order if has_checkpoint(CASES[name])), 3):
        case = CASES[name]
        passes = trace(case.function, *case.args, **case.kwargs)
        flat, leaves = invariants.flattened(case)
        invariants.assert_residuals_are_jax_saved_residuals(passes, flat, leaves)
        invariants.assert_residuals_are_the_leaves_of_vjp(passes, flat, leaves)
        invariants.assert_structure(passes)
        invariants.assert_same_numbers(passes, flat, leaves)
        invariants.assert_roles_are_true(passes, leaves)
        assert not passes.remat3 or remat3


@pytest.mark.slow
def test_every_view_says_in_which_mode_it_was_traced(remat3, capsys):
    f = jax.checkpoint(lambda w, x: jnp.sin(checkpoint_name(w @ x, "h")))
    args = np.ones((4, 4), np.float32), np.ones(4, np.float32)
    shown = [residual_table(f, *args), compare({"f": f}, *args), plan(f, *args, saved=1.0), frontier(f, *args)]
    shown += [lint(f, *args), liveness(f, *args), measure(f, *args), fit(f, *args, peak="1 GiB")]
    print_fwd_bwd(f, *args)
    printed = capsys.readouterr().out
    reported = plain_text(report(lambda w, x: jnp.sum(f(w, x)), *args, memory="1 GiB"))
    for text in (repr(trace(f, *args)), printed, reported, *map(plain_text, shown)):
        assert ("jax_remat3" in text) == remat3, text
    without_checkpoint = residual_table(jnp.sin, *args[1:])
    assert "jax_remat3" not in plain_text(without_checkpoint)


# Predictions and plans.


def cases_to_choose_for(seed: int):
    """Small functions with checkpoints, and one block of a real model."""
    for name in drawn(seed, LITTLE, 5):
        make, args, _ = LITTLE[name]
        yield name, make, args
    block = BLOCKS[drawn(seed, BLOCKS, 1)[0]]
    yield "block", lambda checkpoint: checkpoint(block.function), block.args


@pytest.mark.slow
def test_choices_are_predicted_in_both_modes_and_save_the_same(seed):
    """A choice of names saves and recomputes what the graph predicts, and the same in both modes.

    Names that the graph bars under remat3 are the only ones whose effect differs.
    """
    for name, make, args in cases_to_choose_for(seed):
        f = make(saving(()))
        graphs = {}
        for mode in MODES:
            with jax_compat.use_remat3(mode):
                graphs[mode] = recompute_graph(f, *args)
        assert {*graphs[True].names} <= {*graphs[False].names}
        for chosen in subsets(graphs[True].names, 4, seed):
            for mode in MODES:
                with jax_compat.use_remat3(mode):
                    found = measured(make(saving(chosen)), args)
                assert found == graphs[mode].evaluate(chosen) == graphs[False].evaluate(chosen), (name, chosen, mode)


@pytest.mark.parametrize("which", few(["custom_vjp_with_a_name", "values_that_do_not_change_in_a_loop", "attention"]))
def test_a_plan_saves_the_stated_bytes(remat3, which):
    """Also where remat3 saves a name differently: no plan under it chooses that name."""
    make, args, _ = LITTLE[which]
    f = make(jax.checkpoint)
    chosen = plan(f, *args, saved=1.0)
    real = trace(chosen.planned, *args)
    assert real.bytes_by_kind()["computed"] == chosen.saved_bytes == chosen.trace.bytes_by_kind()["computed"]
    assert real.recompute_cost == chosen.trace.recompute_cost
    chosen.certificate.verify(f, *args)
    points = frontier(f, *args).points
    for point in [p for p in points if not p.with_policy]:
        saved = trace(make(saving(point.names)), *args)
        assert saved.bytes_by_kind().get("computed", 0) == point.nbytes


@pytest.mark.slow
@pytest.mark.parametrize("operation", few([jnp.sort, jnp.cumprod, jnp.prod]), ids=lambda each: each.__name__)
def test_results_that_a_derivative_computes_differently_cost_the_same_in_both_modes(operation):
    """Under remat3 the forward pass is not differentiated, so that it computes them in another way."""

    @jax.checkpoint
    def f(x, w):
        return jnp.sum(jnp.sin(checkpoint_name(operation(jnp.tanh(x @ w)), "v")) ** 2)

    args = jax.ShapeDtypeStruct((8,), jnp.float32), jax.ShapeDtypeStruct((8, 8), jnp.float32)
    found = []
    for mode in MODES:
        with jax_compat.use_remat3(mode):
            points = frontier(f, *args).points
            assert trace(f, *args).backward.count("tanh", "R") == 1
            plan(f, *args, saved=1.0).certificate.verify(f, *args)
        found.append([(point.nbytes, point.cost, point.names, point.with_policy) for point in points])
    assert found[0] == found[1] and found[0][0][1]


@pytest.mark.slow
def test_names_that_remat3_saves_differently_are_left_out_and_explained():
    for which, name, reason in (
        ("custom_vjp_with_a_name", "inner", "PR 40309"),
        ("values_that_do_not_change_in_a_loop", "k", "once per iteration"),
    ):
        make, args, _ = LITTLE[which]
        f = make(jax.checkpoint)
        assert not [found for found in lint(f, *args).findings if found.kind == "jax_remat3"]
        assert name in plan(f, *args, saved=1.0).graph.names
        with jax_compat.use_remat3(True):
            chosen = plan(f, *args, saved=1.0)
            (found,) = (found for found in lint(f, *args).findings if found.kind == "jax_remat3")
        assert name not in chosen.graph.names and f"Left out: '{name}'" in plain_text(chosen)
        assert found.name == name and reason in found.text


def test_a_certificate_of_the_other_rematerialization_is_refused_if_the_results_differ():
    make, args, _ = LITTLE["custom_vjp_with_a_name"]
    f = make(jax.checkpoint)
    certificate = plan(f, *args, saved=1.0).certificate
    with jax_compat.use_remat3(True), pytest.raises(PlanError, match="the same jax_remat3"):
        certificate.verify(f, *args)


def layers(ws, x):
    def layer(x, w):
        h = checkpoint_name(jnp.sin(x @ w), "h")
        return checkpoint_name(jnp.sin(h @ w), "out"), None

    return jnp.sum(jax.lax.scan(jax.checkpoint(layer), x, ws)[0])


LAYERS = jax.ShapeDtypeStruct((6, 32, 32), jnp.float32), jax.ShapeDtypeStruct((64, 32), jnp.float32)


@pytest.mark.slow
def test_returned_policies_save_the_same_in_both_modes():
    """`plan`, `fit` and `frontier` hand out policies about names."""
    handed_out = [plan(layers, *LAYERS, saved=0.6).names, fit(layers, *LAYERS, peak="1 GiB").names]
    handed_out += [point.names for point in frontier(layers, *LAYERS).points if not point.with_policy]
    assert any(handed_out)

    def saved(names):
        named = jax_compat.names_in_policy(policies.save_only_these_names(*names))
        assert named == set(names)
        policy = policies.save_only_these_names(*names)
        f = jax.checkpoint(lambda ws, x: layers(ws, x), policy=policy)
        return trace(f, *LAYERS).bytes_by_kind()

    for names in handed_out:
        both = []
        for mode in MODES:
            with jax_compat.use_remat3(mode):
                both.append(saved(names))
        assert both[0] == both[1]


def test_suggested_names_save_the_same_in_both_modes(remat3):
    """Whatever the mode in which `auto` chose them; `.named` gives its names in each."""

    def f(u, d, x):
        return jnp.sum(jnp.sin(jnp.tanh(x @ u) @ d))

    args = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((8, 16), (16, 8), (4, 8))]
    suggested = auto(f, saved="300 B").plan(*args).suggested_names
    assert suggested.names
    for mode in MODES:
        with jax_compat.use_remat3(mode):
            again = trace(jax.checkpoint(suggested.named, policy=suggested.policy), *args)
        assert again.bytes_by_kind()["computed"] == suggested.saved_bytes
        assert again.recompute_cost == suggested.trace.recompute_cost


@pytest.mark.slow
@pytest.mark.parametrize("remat3", [True], indirect=True)
def test_auto_measure_and_explore_work(remat3):
    """The scheduled function has JAX's gradient, and `measure` compiles what was traced."""
    ws, x = (np.asarray(np.random.default_rng(i).standard_normal(s.shape), np.float32) for i, s in enumerate(LAYERS))
    found = auto(layers, saved="100 KiB").plan(ws, x)
    invariants.assert_equal_trees(jax.grad(found.function)(ws, x), jax.grad(layers)(ws, x))
    suggested = found.suggested_names
    assert suggested is None or jax_compat.names_in_policy(found.policy)
    assert measure(layers, *LAYERS).trace.saved_bytes() == trace(layers, *LAYERS).saved_bytes()
    explore(layers, *LAYERS)


# Policies: the default path asks about every operation; remat3 about names, matmuls and convolutions only.


def asks_about(*primitives):
    return lambda primitive, *_, **__: primitive.name in primitives


def sine_kernel(x_ref, out_ref):
    out_ref[...] = jnp.sin(x_ref[...])


def call_kernel(x):
    return pl.pallas_call(sine_kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


@jax.custom_vjp
def with_kernel(x):
    return call_kernel(x)


def forward_rule(x):
    out = call_kernel(x)
    return out, (x, out)


with_kernel.defvjp(forward_rule, lambda saved, ct: (ct * jnp.cos(saved[0]) + 0 * saved[1],))


@pytest.mark.parametrize(
    ("f", "primitives", "is_asked"),
    [
        (lambda x: jnp.sin(jnp.sin(x @ x)), ("sin",), False),
        (lambda x: jnp.sin(jnp.sin(x @ x)), ("dot_general",), True),
        (lambda x: jnp.sin(with_kernel(x @ x)), ("pallas_call",), False),
        (lambda x: jnp.sin(with_kernel(x @ x)), ("dot_general", "pallas_call"), False),
    ],
    ids=["sin", "dot_general", "kernel", "dot_general and kernel"],
)
def test_lint_finds_operations_for_which_remat3_does_not_call_the_policy(remat3, f, primitives, is_asked):
    args = (np.ones((4, 4), np.float32),)
    checkpointed = jax.checkpoint(f, policy=asks_about(*primitives))
    found = [each for each in lint(checkpointed, *args).findings if each.kind == "jax_remat3"]
    assert bool(found) == (remat3 and not is_asked)
    for each in found:
        assert set(primitives) - {"dot_general"} <= {word.strip(",") for word in each.text.split()}
    with jax_compat.use_remat3(False):
        by_default = trace(checkpointed, *args).bytes_by_kind()["computed"]
    now = trace(checkpointed, *args).bytes_by_kind()["computed"]
    assert (now < by_default) == (remat3 and not is_asked)


def test_lint_finds_a_policy_that_saves_as_many_bytes_but_recomputes_more(remat3):
    f = jax.checkpoint(lambda x: jnp.sum(jnp.tanh(x @ x)), policy=asks_about("tanh", "dot_general"))
    texts = [each.text for each in lint(f, np.ones((4, 4), np.float32)).findings]
    assert len(texts) == remat3
    assert all("recomputes 16 operations instead of 0" in text for text in texts)


@pytest.mark.parametrize("custom_vjp3", [False, True])
def test_lint_proposes_the_switch_only_while_it_is_off(custom_vjp3):
    f = jax.checkpoint(lambda x: jnp.sin(with_kernel(x)), policy=asks_about("pallas_call"))
    with jax_compat.use_remat3(True), config.custom_vjp3(custom_vjp3):
        (found,) = lint(f, np.ones((4, 4), np.float32)).findings
    assert ("jax_custom_vjp3" in found.text) != custom_vjp3


@jax.custom_vjp
def with_an_inner_name(x):
    return checkpoint_name(jnp.sin(x), "inside")


with_an_inner_name.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (ct * jnp.cos(x),))


def test_for_a_name_inside_a_rule_lint_names_the_switch_that_remat3_needs(remat3):
    f = jax.checkpoint(
        lambda x: jnp.sin(with_an_inner_name(x)), policy=jax.checkpoint_policies.save_only_these_names("inside")
    )
    (text,) = (each.text for each in lint(f, np.ones((4, 4), np.float32)).findings if each.kind == "custom rule")
    assert ("jax_custom_vjp3" in text) == remat3


def matmul_in(scope):
    """Return a function that names a matmul's result, in a loop or in a function with a derivative rule."""
    return lambda x: jnp.sum(jnp.sin(scope(lambda y: jax.ad_checkpoint.checkpoint_name_fwd(y @ y, "h"), x)))


def in_a_loop(f, x):
    return jax.lax.scan(lambda x, _: (jnp.sin(f(x)), None), x, length=2)[0]


def in_a_forward_rule(f, x):
    rule = jax.custom_vjp(lambda x: x @ x)
    rule.defvjp(lambda x: (f(x), x), lambda x, ct: (ct @ x.T + x.T @ ct,))
    return rule(x)


@pytest.mark.parametrize("custom_vjp3", [False, True])
@pytest.mark.parametrize(
    "f",
    [
        matmul_in(lambda f, x: f(x)),
        matmul_in(lambda f, x: jax.jit(f)(x)),
        matmul_in(in_a_loop),
        matmul_in(in_a_forward_rule),
        lambda x: jnp.sum(jnp.sin(x) + jax.ad_checkpoint.checkpoint_name_fwd(2 * x, "h")),
        lambda x: jnp.sum(jnp.sin(checkpoint_name(x @ x, "h"))),
    ],
    ids=["matmul", "jit", "loop", "forward rule", "linear", "checkpoint_name"],
)
def test_a_name_whose_saved_value_has_no_gradient_is_found_and_refused(remat3, custom_vjp3, f):
    x = np.linspace(0.1, 0.9, 16, dtype=np.float32).reshape(4, 4)
    policy = policies.save_only_these_names("h")
    with jax_compat.use_remat3(False):
        expected = jax.grad(jax.checkpoint(f))(x)
    with config.custom_vjp3(custom_vjp3):
        is_right = np.allclose(jax.grad(jax.checkpoint(f, policy=policy))(x), expected, rtol=1e-5)
        assert is_right or remat3
        found = [each for each in lint(jax.checkpoint(f, policy=policy), x).findings if "_fwd" in each.text]
        assert len(found) == (not is_right)

        def planned(x):
            shape = jax.ShapeDtypeStruct((4, 4), jnp.float32)
            return jax.checkpoint(f, policy=plan(f, shape, saved=1.0).policy)(x)

        for changed in (with_schedule(f, policy), planned):
            if is_right:
                np.testing.assert_allclose(jax.grad(changed)(x), expected, rtol=1e-5)
            else:
                with pytest.raises(PlanError, match=r"checkpoint_name_fwd names 'h' on test_remat3\.py"):
                    jax.grad(changed)(x)


@jax.custom_jvp
def exponential(x):
    return jnp.exp(x)


@exponential.defjvp
def exponential_rule(primals, tangents):
    result = checkpoint_name(jnp.exp(primals[0]), "y")
    return result, result * tangents[0]


def test_lint_does_not_propose_the_switch_for_a_name_inside_a_custom_jvp():
    """The switch does not change what JAX saves there."""
    f = jax.checkpoint(lambda x, w: exponential(x @ w) @ w, policy=policies.save_only_these_names("y"))
    args = np.ones((4, 4), np.float32), np.ones((4, 4), np.float32)
    assert "y" in [residual.name for residual in trace(f, *args).residuals]
    with jax_compat.use_remat3(True):
        (text,) = (each.text for each in lint(f, *args).findings if each.kind == "jax_remat3")
        assert "custom_jvp" in text and "jax_custom_vjp3" not in text
        with config.custom_vjp3(True):
            assert "y" not in [residual.name for residual in trace(f, *args).residuals]


def test_a_policy_that_saves_all(remat3):
    """sin(sin x) needs cos x and cos(sin x). Saving everything saves sin x too if the policy sees every operation."""
    f = jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)), policy=lambda *_, **__: True)
    passes = trace(f, X)
    assert (len(passes.residuals), passes.backward.count("cos", "D")) == ((1, 2) if remat3 else (2, 0))


def test_static_argument_names(remat3):
    f = jax.checkpoint(lambda x, twice: jnp.sin(jnp.sin(x)) if twice else x, static_argnames=("twice",))

    def traced():
        return trace(lambda x: f(x, twice=True), X).backward.count("sin", "R")

    if remat3:
        assert traced() == 1
    else:
        with pytest.raises(jax.errors.TracerBoolConversionError):
            traced()


# Rules for rematerialization.


@jax.custom_vjp
def doubled_sine(x):
    return jnp.sin(jnp.sin(x))


def saving_forward(x):
    once = jnp.sin(x)
    return jnp.sin(once), once


def recomputing(once, x):
    return jnp.sin(once), (x, once)


def test_a_custom_rematerialization_rule_saves_its_residuals(remat3):
    """`defremat` in a checkpoint saves the inner sine; by default, the checkpoint's policy saves nothing."""
    doubled_sine.defremat(saving_forward, recomputing, lambda res, ct: (ct * jnp.cos(res[1]) * jnp.cos(res[0]),))
    f = jax.checkpoint(lambda x: jnp.sin(doubled_sine(x)))
    with config.custom_vjp3(True):
        case = type("Case", (), {"function": staticmethod(f), "args": (X,), "kwargs": {}})
        passes = trace(f, X)
        flat, leaves = invariants.flattened(case)
        invariants.check(case, passes)
        invariants.assert_residuals_are_jax_saved_residuals(passes, flat, leaves)
        plain = jax.grad(lambda x: jnp.sin(jnp.sin(jnp.sin(x))))(X)
        np.testing.assert_allclose(jax.grad(f)(X), plain, rtol=1e-6)
    computed = [(r.primitive, r.kind) for r in passes.residuals if r.kind == "computed"]
    assert computed == ([("sin", "computed")] if remat3 else [])
    assert passes.backward.count("sin", "R") == (1 if remat3 else 2)


def test_a_rule_that_refuses_some_perturbed_operands_is_refused_with_a_sentence(remat3):
    def forward(x, scale):
        assert not scale.perturbed
        return x.value * scale.value, scale.value

    scaled = jax.custom_vjp(lambda x, scale: x * scale)
    scaled.defvjp(forward, lambda scale, cotangent: (cotangent * scale, None), symbolic_zeros=True)

    @jax.checkpoint
    def f(x):
        return scaled(x, jnp.full(4, 3.0)).sum()

    x = jnp.arange(4.0)
    np.testing.assert_array_equal(jax.grad(f)(x), jnp.full(4, 3.0))
    if remat3:
        with pytest.raises(TraceError, match=r"test_remat3\.py:\d+ .*without jax_remat3"):
            trace(f, x)
    else:
        assert trace(f, x).backward.count("mul", role="R") == 0
