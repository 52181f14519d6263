"""`with_schedule`: values are recomputed just before their use, and derivatives of every kind are unchanged."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from releases import since
from sampling import few, sampled
from zoo import CASES, normal

from rematscope import PlanError, TargetError, TraceError, liveness, measure, trace, with_schedule
from rematscope.tracing.arguments import flattened
from rematscope.tracing.checkpoints import with_policy

policies = jax.checkpoint_policies

KINDS = [
    "checkpoint_of_scan_of_checkpoint",
    "scan_of_many_carries",
    "nested_scans_of_slices",
    "branch_in_scan",
    "dropout_in_scan",
    "scatter",
    "while_loop_beside",
]


def gradients(f, args, kwargs):
    flat, leaves = flattened(f, args, kwargs)

    def both(*leaves):
        outputs, pullback = jax.vjp(lambda *leaves: jax.tree.leaves(flat(*leaves)), *leaves)
        ones = [
            jnp.ones(o.shape, o.dtype) if jnp.issubdtype(o.dtype, jnp.inexact) else np.zeros(o.shape, jax.dtypes.float0)
            for o in map(jnp.asarray, outputs)
        ]
        return outputs, [g for g in pullback(ones) if g.dtype != jax.dtypes.float0]

    return jax.jit(both)(*leaves)


def assert_same(got, expected):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6), got, expected)


@pytest.mark.parametrize("name", sampled(KINDS, 2))
def test_values_and_gradients_are_those_of_the_function(name):
    case = CASES[name]
    found = gradients(with_schedule(case.function, policies.dots_saveable), case.args, case.kwargs)
    assert_same(found, gradients(case.function, case.args, case.kwargs))


@pytest.mark.parametrize(
    "name", ["nested_checkpoints", "scan_of_many_carries", "dropout_in_scan", "attention_dots_saveable"]
)
@pytest.mark.parametrize("policy", ["nothing_saveable", "dots_saveable"])
def test_the_saved_and_recomputed_values_are_those_of_the_policy(name, policy):
    case = CASES[name]
    plain = trace(with_policy(case.function, getattr(policies, policy)), *case.args, **case.kwargs)
    late = trace(with_schedule(case.function, getattr(policies, policy)), *case.args, **case.kwargs)
    assert late.bytes_by_kind().get("computed", 0) <= plain.bytes_by_kind().get("computed", 0)
    assert late.recompute_cost.flops <= plain.recompute_cost.flops


def net(ws, x):
    x, sums = lax.scan(lambda x, w: (jnp.tanh(x @ w) * jnp.exp(-x), x.sum()), x, ws)
    x = jnp.tanh(x @ ws[0]) * jnp.exp(-x)
    return {"loss": jnp.mean(x**2) + sums.sum(), "steps": jnp.int32(len(ws))}


WS, X = 0.5 * normal(200, 3, 4, 4), normal(201, 2, 4)
XS = np.stack([X, 2 * X])


def loss(f):
    return lambda ws, x: f(ws, x)["loss"]


TRANSFORMED = {
    "forward mode": lambda f: jax.jvp(loss(f), (WS, X), (WS, X)),
    "gradients of a batch": lambda f: jax.vmap(jax.grad(loss(f), (0, 1)), (None, 0))(WS, XS),
    "the gradient of a batch": lambda f: jax.grad(lambda ws: jax.vmap(loss(f), (None, 0))(ws, XS).sum())(WS),
    "forward over reverse": lambda f: jax.jvp(jax.grad(loss(f)), (WS, X), (WS, X)),
    "reverse over reverse": lambda f: jax.grad(lambda ws: (jax.grad(loss(f))(ws, X) ** 2).sum())(WS),
    "reverse over forward": lambda f: jax.grad(lambda x: jax.jvp(loss(f), (WS, x), (WS, x))[1])(X),
    "microbatches in a scan": lambda f: lax.scan(lambda g, x: (g + jax.grad(loss(f))(WS, x), None), WS, XS)[0],
    "a checkpoint around it": lambda f: jax.grad(jax.checkpoint(loss(f)))(WS, X),
    "what it closes over": lambda f: jax.grad(lambda ws: with_schedule(lambda x: loss(f)(ws, x))(X))(WS),
}


@pytest.mark.parametrize("how", few(TRANSFORMED, 3))
def test_a_scheduled_function_can_be_transformed_like_the_function(how):
    found, expected = (jax.jit(TRANSFORMED[how], static_argnums=0)(g) for g in (with_schedule(net), net))
    assert_same(found, expected)


@jax.custom_jvp
def safe_root(x):
    return jnp.sqrt(x)


safe_root.defjvp(lambda xs, ts: (safe_root(xs[0]), ts[0] * 0.5 / jnp.maximum(safe_root(xs[0]), 1e-2)))

OF_DERIVATIVES = {
    "a value and its gradient": lambda f: jax.grad(lambda x: sum(jax.tree.map(jnp.sum, jax.value_and_grad(f)(x)))),
    "a gradient": lambda f: jax.grad(lambda x: (jax.grad(f)(x) ** 2).sum()),
    "a value and its tangent": lambda f: jax.grad(lambda x: sum(jax.jvp(f, (x,), (x + 1,)))),
    "forward over reverse": lambda f: lambda x: jax.jvp(jax.value_and_grad(f), (x,), (x + 1,))[1],
}


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["nothing_saveable", "everything_saveable"])
@pytest.mark.parametrize("how", few(OF_DERIVATIVES, 2))
def test_second_derivatives_use_the_custom_rules_that_jax_uses(how, policy):
    """At 0, the derivatives of both functions differ from those of their operations."""

    def f(x):
        return jnp.sum(jax.nn.relu(x) * jnp.cos(x)) + jnp.sum(safe_root(x**2)) * jnp.mean(jnp.sin(x))

    x, derivative = jnp.array([0.0, 1.0, -1.0]), OF_DERIVATIVES[how]
    found, expected = derivative(with_schedule(f, getattr(policies, policy)))(x), derivative(f)(x)
    assert all(map(np.all, map(np.isfinite, jax.tree.leaves(expected))))
    assert_same(found, expected)


def collective(ws, x):
    total = lax.psum(jnp.sin(x @ ws[0]), "batch")
    return jnp.sin(total @ ws[1]).sum() * (1 + lax.axis_index("batch")) + lax.pmean(jnp.sin(x).sum(), "batch")


OVER_BATCH = {
    "gradients": lambda f: jax.vmap(jax.grad(f, (0, 1)), (None, 0), axis_name="batch")(WS, XS),
    "the gradient": lambda f: jax.grad(lambda ws: jax.vmap(f, (None, 0), axis_name="batch")(ws, XS).sum())(WS),
    "forward mode": lambda f: jax.vmap(lambda x: jax.jvp(f, (WS, x), (WS, x)), axis_name="batch")(XS),
    "second order": lambda f: jax.vmap(lambda x: jax.hessian(f, 1)(WS, x), axis_name="batch")(XS),
    "two axes": lambda f: jax.grad(
        lambda ws: jax.vmap(jax.vmap(f, (None, 0), axis_name="batch"), (0, None))(ws, XS).sum()
    )(np.stack([WS, 2 * WS])),
    "a batch of equals": lambda f: jax.grad(
        lambda ws: jax.vmap(lambda x: x.sum() * f(ws, X), axis_name="batch")(XS).sum()
    )(WS),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", few(OVER_BATCH, 2))
def test_collectives_run_over_the_axis_of_an_outer_vmap(how):
    assert_same(OVER_BATCH[how](with_schedule(collective)), OVER_BATCH[how](collective))


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "far"), [("bfloat16", 2e-2), ("float64", 1e-13)])
def test_gradients_agree_to_rounding_in_each_precision(dtype, far):
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        ws, x = jnp.asarray(WS, dtype), jnp.asarray(X, dtype)
        found, expected = (jax.jit(jax.grad(loss(g)))(ws, x) for g in (with_schedule(net), net))
        assert found.dtype == dtype
        np.testing.assert_allclose(*(np.asarray(g, np.float64) for g in (found, expected)), rtol=far, atol=far)


def test_a_schedule_has_a_smaller_peak_than_one_checkpoint():
    def layers(ws, x):
        for w in ws:
            x = jnp.sin(jnp.sin(jnp.sin(x @ w)))
        return x.sum()

    args = [jnp.ones((8, 8))] * 6, jnp.ones((64, 8))
    dots = policies.dots_saveable
    late, early = liveness(with_schedule(layers, dots), *args), liveness(jax.checkpoint(layers, policy=dots), *args)
    assert late.peak_bytes < 0.8 * early.peak_bytes


@pytest.mark.slow
@since("0.11", "XLA on a CPU recomputes what a checkpoint says")
def test_a_compiled_schedule_takes_no_more_memory_than_its_checkpoints():
    """XLA would keep each layer's summand of a cotangent until the end, and materialize cheap values."""

    def layer(x, w):
        y = x - x.mean(-1, keepdims=True)
        return x + jax.nn.gelu(y * lax.rsqrt(jnp.mean(y * y, -1, keepdims=True)) @ w[0] + w[1]) @ w[2]

    def layers(ws, x):
        for w in ws:
            x = jax.checkpoint(layer)(x, w)
        return x.sum()

    args = [(jnp.ones((16, 64)), jnp.ones(64), jnp.ones((64, 16)))] * 4, jnp.ones((256, 16))
    assert measure(with_schedule(layers), *args).temp_bytes <= measure(layers, *args).temp_bytes


@pytest.mark.slow
@since("0.11", "XLA on a CPU recomputes what a checkpoint says")
def test_the_operands_of_a_weights_gradient_are_freed_before_the_end():
    """XLA would compute the gradients of all weights last."""

    def layer(x, w):
        x = x + jax.nn.softmax((x @ w[0]) @ x.T) @ x
        return x + jnp.tanh(x @ w[1]) @ w[2]

    def layers(ws, x):
        for w in ws:
            x = jax.checkpoint(layer)(x, w)
        return x.sum()

    args = [(jnp.ones((16, 16)), jnp.ones((16, 64)), jnp.ones((64, 16)))] * 4, jnp.ones((256, 16))
    assert measure(with_schedule(layers), *args).temp_bytes < 0.95 * measure(layers, *args).temp_bytes


@since("0.11", "XLA on a CPU recomputes what a checkpoint says")
def test_a_saved_mask_is_not_replaced_by_its_operand():
    """XLA would recompute the mask where it is read and keep its operand: four bytes per element instead of one."""

    def layers(ws, x):
        for up, down in ws:
            x = jax.nn.relu(x @ up) @ down
        return x.sum()

    def masks_and_layers(primitive, *avals, **_):
        return primitive.name == "gt" or (primitive.name == "dot_general" and avals[0].shape == (256, 128))

    ws, x = [(jnp.ones((16, 128)), jnp.ones((128, 16)))] * 6, jnp.ones((256, 16))
    measured = measure(with_schedule(layers, masks_and_layers), ws, x)
    assert measured.trace.bytes_by_kind()["computed"] == 6 * 256 * 128 + 5 * 4 * 256 * 16
    assert measured.temp_bytes < 6 * 4 * 256 * 128  # elements of all six


@pytest.mark.slow
def test_for_a_tpu_no_barrier_holds_fused_operands_of_matmuls():
    def f(ws, x):
        for up, down in ws:
            x = x + jax.nn.gelu(x @ up) @ down
        return x.sum()

    ws, x = [(normal(0, 8, 32), normal(1, 32, 8))] * 3, normal(2, 4, 8)
    held = {}
    for target in ("cpu", "tpu v5e"):
        late = with_schedule(f, target=target)
        equations = trace(late, ws, x).backward.equations
        makers = {v: e.primitive for e in equations for v in e.outputs if e.primitive != "optimization_barrier"}
        barriers = [e for e in equations if e.primitive == "optimization_barrier"]
        held[target] = [makers.get(v) for e in barriers for v in e.inputs if v.shape == (4, 32)]
        assert_same(gradients(late, (ws, x), {}), gradients(f, (ws, x), {}))
    # A recomputed value and the cotangent that it is multiplied by; for a TPU, the barrier holds neither.
    assert len(held["cpu"]) > len(held["tpu v5e"])
    assert "tanh" in held["cpu"]
    assert "tanh" not in held["tpu v5e"]


def test_a_target_that_is_not_available_is_refused():
    with pytest.raises(TargetError, match="target='abacus' is not known"):
        with_schedule(jnp.sin, target="abacus")


def test_a_function_without_a_backward_pass_is_refused_with_a_sentence():
    with pytest.raises(TraceError, match="returns no floating-point value"):
        jax.grad(with_schedule(lambda x: x > 0))(1.0)


def test_a_gradient_is_not_reassociated():
    """`exp(h) * (exp(h) * ct)` is 0 where `jnp.where` takes the constant; `(exp(h) * exp(h)) * ct` is inf * 0."""

    def masked(w, x):
        h = 80 * jnp.tanh(x @ w)
        return jnp.mean(jnp.where(h < 3, jnp.exp(h) * jnp.exp(h), 403.0))

    w, x = normal(203, 8, 4), normal(204, 5, 8)
    expected = jax.jit(jax.grad(masked, (0, 1)))(w, x)
    assert jnp.isinf(jnp.exp(80 * jnp.tanh(x @ w)) ** 2).any()
    assert all(jnp.isfinite(gradient).all() for gradient in expected)
    for late in (with_schedule(masked), with_schedule(masked, policies.everything_saveable)):
        assert_same(jax.jit(jax.grad(late, (0, 1)))(w, x), expected)


def test_a_policy_that_moves_values_to_the_host_is_refused():
    offload = policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=["h"],
        offload_src="device",
        offload_dst="pinned_host",
    )
    late = with_schedule(lambda w, x: jnp.sin(checkpoint_name(jnp.sin(x @ w), "h") @ w).sum(), offload)
    with pytest.raises(PlanError, match=r"the policy offloads 32 B of .*, which with_schedule does not support"):
        jax.eval_shape(jax.grad(late), WS[0], X)


def test_a_policy_that_saves_complex_values_is_refused():
    late = with_schedule(lambda w, x: jnp.abs(jnp.sin(jnp.sin(x @ w) @ w)).sum(), policies.dots_saveable)
    with pytest.raises(PlanError, match=r"saves a complex value of .*, which no policy of JAX can save"):
        jax.eval_shape(jax.grad(late), WS[0], 1j * X)
