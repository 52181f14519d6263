"""`auto`, `plan` and `with_schedule` of functions that print, call back to Python or change an array in place."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback
from releases import since
from sampling import few
from zoo import normal

from rematscope import PlanError, auto, lint, measure, plan, with_schedule

WS, X = [*normal(962, 4, 64, 64) / 10], normal(963, 256, 64)


def net(ws, x, between=lambda x: x):
    for w in ws:
        x = between(x + jnp.tanh(jax.nn.gelu(x @ w)))
    return jnp.mean(x**2)


def printing(x):
    jax.debug.print("{}", jnp.linalg.norm(x))
    return x


def printing_in_a_branch(x):
    jax.lax.cond(jnp.sin(x @ x.T)[0, 0] > 2, lambda: jax.debug.print("large"), lambda: None)
    return x


def calling_back(x):
    one = io_callback(np.ones_like, jax.ShapeDtypeStruct((), x.dtype), jax.lax.stop_gradient(x[0, 0]))
    return x * one


def with_a_counter(ws, x):
    seen = jax.new_ref(jnp.zeros(()))

    def count(x):
        seen[...] += jax.lax.stop_gradient(x[0, 0])
        return x

    return net(ws, x, count) + jax.lax.stop_gradient(seen[...])


FUNCTIONS = {
    "prints": lambda ws, x: net(ws, x, printing),
    "prints in a branch": lambda ws, x: net(ws, x, printing_in_a_branch),
    "calls back": lambda ws, x: net(ws, x, calling_back),
    "a mutable array": with_a_counter,
}


@pytest.mark.slow
@since("0.11", "XLA on a CPU recomputes what a checkpoint says")
@pytest.mark.parametrize("name", few(FUNCTIONS, 2))
def test_auto_preserves_effects_and_values_within_the_limit(name):
    part = 0.5 if name in ("prints", "calls back") else 0.8
    f = FUNCTIONS[name]
    plain = measure(f, WS, X)
    limit = plain.peak_bytes - int((1 - part) * plain.temp_bytes)
    found = auto(f, peak=limit).plan(WS, X)
    compiled = jax.jit(jax.value_and_grad(found.function, (0, 1))).lower(WS, X).compile()
    made = compiled.memory_analysis()
    assert made.argument_size_in_bytes + made.output_size_in_bytes + made.temp_size_in_bytes <= limit
    expected, actual = jax.jit(jax.value_and_grad(f, (0, 1)))(WS, X), compiled(WS, X)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), expected, actual)


@pytest.mark.slow
@since("0.8", "mutable arrays")
@pytest.mark.parametrize(
    "transform",
    few(
        [
            jax.jit,
            jax.grad,
            lambda f: lambda ws, x: jax.vmap(f, (None, 0))(ws, x[None]),
            lambda f: lambda ws, x: jax.jit(lambda x: jax.jvp(lambda x: f(ws, x), [x], [x]))(x),
            lambda f: jax.jit(jax.grad(lambda ws, x: jnp.sum(jax.grad(f, 1)(ws, x) ** 2))),
        ],
        2,
    ),
    ids=["jit", "grad", "vmap", "forward mode", "second derivative"],
)
def test_a_function_with_its_own_mutable_array_can_be_transformed(transform):
    found = auto(with_a_counter, peak="1 GiB").plan(WS, X)
    expected, actual = transform(with_a_counter)(WS, X), transform(found.function)(WS, X)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-7), expected, actual)


@since("0.8", "mutable arrays")
@pytest.mark.parametrize("between", [printing, calling_back])
def test_a_mutable_array_and_another_effect_are_refused(between):
    with pytest.raises(PlanError, match="Its gradient would do so twice"):
        auto(lambda ws, x: with_a_counter(ws, between(x)), peak="1 GiB").plan(WS, X)


@pytest.mark.slow
@since("0.11", "XLA on a CPU recomputes what a checkpoint says")
def test_callbacks_run_as_often_as_in_the_function():
    called = []

    def f(ws, x):
        def counted(x):
            io_callback(lambda _: called.append(1), None, jax.lax.stop_gradient(x[0, 0]))
            return x

        return net(ws, x, counted)

    plain = measure(f, WS, X)
    found = auto(f, peak=plain.peak_bytes - plain.temp_bytes // 2).plan(WS, X)
    jax.block_until_ready(jax.grad(found.function)(WS, X))
    jax.effects_barrier()
    assert len(called) == len(WS)


@pytest.mark.slow
def test_a_branch_that_prints_is_planned():
    """The condition of a print is recomputed only for the print."""
    made = plan(FUNCTIONS["prints in a branch"], WS, X, saved=0)
    assert made.saved_bytes == 0 and made.cost > plan(net, WS, X, saved=0).cost


@pytest.mark.parametrize("ask", [lint, lambda f, *args: jax.grad(with_schedule(f))(*args)], ids=["lint", "scheduled"])
def test_an_operation_that_must_not_run_twice_is_refused_with_a_sentence(ask):
    with pytest.raises(PlanError, match="a callback that must not run twice, such as io_callback"):
        ask(FUNCTIONS["calls back"], WS, X)


W = WS[0][:8, :8]


def written_and_read(w):
    array = jax.new_ref(jnp.zeros_like(w))
    array[...] += jnp.sin(w)
    first = array[...] @ w
    array[...] = jnp.cos(first)
    array[...] += first
    return (array[...] @ first).sum()


def written_in_a_loop(w):
    array = jax.new_ref(w)

    def step(i, _):
        array[...] = jnp.sin(array[...] @ w) + i

    jax.lax.fori_loop(0, 3, step, None)
    return jnp.sin(array[...] @ w).sum()


def scaled_by_a_statistic(w):
    array = jax.new_ref(jnp.zeros(()))
    x = jnp.sin(w @ w)
    array[...] = jax.lax.stop_gradient(x.sum())
    x = jnp.sin(x @ w)
    array[...] += jax.lax.stop_gradient(x.sum())
    return x.sum() * array[...]


@since("0.8", "mutable arrays")
@pytest.mark.parametrize(
    "f",
    [
        written_and_read,
        written_in_a_loop,
        pytest.param(scaled_by_a_statistic, marks=since("0.11", "differentiates reads of constants in mutable arrays")),
    ],
)
def test_auto_refuses_to_differentiate_values_of_a_mutable_array(f):
    with pytest.raises(PlanError, match=r"differentiates values in a mutable array \(jax.new_ref\)"):
        auto(f, peak="1 MiB").plan(W)


@since("0.12", "refuses checkpoints around mutable arrays with a message, instead of a KeyError")
@pytest.mark.parametrize("ask", [lint, lambda f, w: jax.grad(with_schedule(f))(w)], ids=["lint", "scheduled"])
def test_a_checkpoint_around_a_mutable_array_is_refused_in_a_sentence(ask):
    with pytest.raises(PlanError, match=r"writes values that it differentiates to a mutable array \(jax.new_ref\)"):
        ask(written_and_read, W)
