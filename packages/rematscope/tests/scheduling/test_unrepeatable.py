"""Operations whose second run may give another result run once: their results are saved, never recomputed."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import pallas
from releases import since
from sampling import few
from zoo import normal

from rematscope import PlanError, auto, fit, frontier, lint, measure, plan, trace, with_schedule
from rematscope.jax_compat import is_repeatable
from rematscope.tracing.checkpoints import jaxpr_of

WS, X = normal(960, 4, 32, 32) * 0.3, normal(961, 64, 32)


def drawn(x):
    """The next numbers of the device's generator, which no key decides."""
    return lax.rng_uniform(jnp.float32(0.5), jnp.float32(1.5), x.shape)


LINE = drawn.__code__.co_firstlineno + 2


def from_python(x):
    generator = np.random.default_rng()
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return jax.pure_callback(lambda: generator.uniform(0.5, 1.5, x.shape).astype(np.float32), shape)


def layer(x, w, noise):
    x = jnp.tanh(x @ w) * noise
    return jax.nn.gelu(x) * x


def unrolled(draw, checkpoint=lambda f: f):
    @checkpoint
    def drawing(x, w):
        noise = draw(x)
        return layer(x, w, noise), noise

    def f(ws, x):
        noises = []
        for w in ws:
            x, noise = drawing(x, w)
            noises.append(noise)
        return jnp.sum(x), jnp.stack(noises)

    return f


def in_a_scan(draw, checkpoint=lambda f: f):
    def f(ws, x):
        def step(x, w):
            noise = draw(x)
            return layer(x, w, noise), noise

        x, noises = lax.scan(checkpoint(step), x, ws)
        return jnp.sum(x), noises

    return f


def in_a_custom_rule(draw):
    @jax.custom_jvp
    def drawing(x):
        return draw(x)

    @drawing.defjvp
    def rule(primals, tangents):
        return drawing(*primals), jnp.zeros_like(tangents[0])

    return unrolled(drawing)


def in_a_branch(draw):
    return unrolled(lambda x: lax.cond(x[0, 0] > -100, draw, jnp.ones_like, x))


FUNCTIONS = {
    "unrolled": unrolled(drawn),
    "checkpointed": unrolled(drawn, jax.checkpoint),
    "scan": in_a_scan(drawn),
    "checkpointed scan": in_a_scan(drawn, jax.checkpoint),
    "branch": in_a_branch(drawn),
    "custom rule": in_a_custom_rule(drawn),
    "callback": unrolled(from_python),
    "callback in a checkpointed scan": in_a_scan(from_python, jax.checkpoint),
}


def assert_gradient_of_the_numbers_drawn(f):
    """The gradient of `f` is for the same random numbers that `f` returns."""
    gradients, noises = jax.jit(jax.grad(f, (0, 1), has_aux=True))(WS, X)

    def known(ws, x):
        for w, noise in zip(ws, noises, strict=True):
            x = layer(x, w, noise)
        return jnp.sum(x)

    expected = jax.jit(jax.grad(known, (0, 1)))(WS, X)
    # An element may be a small sum of large terms, so its rounding errors grow with the largest elements. Other numbers
    # drawn would change some elements by a third of the largest.
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4 * np.abs(b).max()), gradients, expected)


@pytest.mark.slow
def test_a_checkpoint_of_jax_s_draws_twice():
    """This shows that these tests can fail."""
    with pytest.raises(AssertionError):
        assert_gradient_of_the_numbers_drawn(jax.checkpoint(FUNCTIONS["unrolled"]))


@pytest.mark.slow
@pytest.mark.parametrize("name", few(FUNCTIONS, 3))
def test_scheduled_draws_once(name):
    assert_gradient_of_the_numbers_drawn(with_schedule(FUNCTIONS[name]))


@pytest.mark.slow
@since("0.11", "XLA on a CPU recomputes what a checkpoint says")
@pytest.mark.parametrize("name", few(["unrolled", "checkpointed", "checkpointed scan", "callback"]))
def test_auto_draws_once(name):
    f = FUNCTIONS[name]
    plain = measure(unrolled(drawn), WS, X)
    found = auto(f, peak=plain.peak_bytes - plain.temp_bytes // 5, compiles=3).plan(WS, X)
    assert found.recomputed
    assert_gradient_of_the_numbers_drawn(found.function)


def test_an_operation_that_a_checkpoint_cannot_save_is_refused_with_a_sentence():
    """JAX asks a policy about no operation in a while_loop."""

    def f(w, x):
        noise = lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, drawn(c[1])), (0, lax.stop_gradient(x)))[1]
        return jnp.sum(jnp.sin(x @ w) * noise)

    with pytest.raises(PlanError, match="rng_uniform where a checkpoint cannot save the result"):
        jax.grad(with_schedule(f))(WS[0], X)


@pytest.mark.parametrize("make", [unrolled, in_a_scan])
def test_lint_finds_a_checkpoint_that_draws_again(make):
    def kinds(checkpoint):
        return [finding.kind for finding in lint(make(drawn, checkpoint), WS, X).findings]

    (again,) = lint(make(drawn, jax.checkpoint), WS, X).findings
    assert again.kind == "drawn again" and "the gradient is wrong" in again.text and again.source.users.line == LINE
    saving = jax.checkpoint_policies.save_only_these_names("noise")
    assert "drawn again" not in kinds(lambda f: f)
    named = make(lambda x: checkpoint_name(drawn(x), "noise"), functools.partial(jax.checkpoint, policy=saving))
    assert lint(named, WS, X).findings == ()


@pytest.mark.parametrize(
    "choose", [functools.partial(plan, saved="1 GiB"), frontier, functools.partial(fit, peak="1 GiB")]
)
def test_a_choice_of_names_for_a_function_that_draws_without_a_key_is_refused(choose):
    """Its policy would be applied to a checkpoint, which runs each operation again that no name saves."""
    for make in (unrolled, in_a_scan):
        with pytest.raises(PlanError, match=rf"runs rng_uniform on test_unrepeatable\.py:{LINE}, which gives"):
            choose(make(drawn), WS, X)


def test_two_draws_are_no_equal_values():
    passes = trace(jax.checkpoint(lambda x: jnp.sin(x * drawn(x))), X)
    (again,) = (e.outputs[0] for e in passes.backward.equations if e.primitive == "rng_uniform")
    assert again not in passes.forward_value_of


def test_numbers_drawn_with_a_key_are_repeatable():
    def f(key, x):
        return x * jax.random.normal(key, x.shape)

    assert all(map(is_repeatable, jaxpr_of(f, jax.random.key(0), X).eqns))
    assert all(map(is_repeatable, jaxpr_of(f, jax.random.key(0, impl="rbg"), X).eqns))
    assert not all(map(is_repeatable, jaxpr_of(FUNCTIONS["scan"], WS, X).eqns))


def test_a_kernel_is_repeatable_and_reading_a_mutable_array_is_not():
    def kernel(x, out):
        out[...] = jnp.sin(x[...])

    def f(x):
        return pallas.pallas_call(kernel, jax.ShapeDtypeStruct(x.shape, x.dtype), interpret=True)(x)

    def reading(x):
        array = jax.new_ref(x)
        return jnp.sin(array[...])

    assert all(map(is_repeatable, jaxpr_of(f, X).eqns))
    repeatable = {eqn.primitive.name: is_repeatable(eqn) for eqn in jaxpr_of(reading, X).eqns}
    assert repeatable["sin"] and not repeatable["get"]


def test_derivatives_that_would_run_an_unrepeatable_operation_twice_are_refused():
    """A tangent, or a second derivative, would be of other numbers than the value."""

    def f(x):
        noise = from_python(x)
        return jnp.sum(jnp.sin(x) * noise), noise

    planned, x = auto(f, saved="1 MiB"), X[0]
    gradient, noise = jax.grad(planned, has_aux=True)(x)
    np.testing.assert_allclose(gradient, jnp.cos(x) * noise, rtol=1e-5)
    with pytest.raises(PlanError, match="would run it twice"):
        jax.jvp(planned, (x,), (x,))
    for of in (jax.jacfwd, jax.jacrev):
        with pytest.raises(PlanError, match="would run it twice"):
            of(jax.grad(lambda x: planned(x)[0]))(x)
