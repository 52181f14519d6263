"""The emitted programs are JAX's gradient program, reordered and recomputed: bit for bit, operation by operation."""

import os
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax._src import config  # private: a switch for one thread
from random_programs import arguments, array, dtypes, instructions, program_of, run_op_by_op, same_bits, vectors
from sampling import few
from zoo import normal

from rematscope import PlanError, auto, measure, trace, with_schedule
from rematscope.scheduling.backward_emitter import Snapshot
from rematscope.scheduling.divided import backward_of, divided, loops_of
from rematscope.scheduling.linearize import linearize
from rematscope.scheduling.schedule import schedule
from rematscope.scheduling.stored_choice import primal_values
from rematscope.scheduling.zeros import without_cotangents

EXAMPLES = int(os.environ.get("GRADIENT_EXAMPLES", "20"))  # more to explore


def of_jax(f, args, cotangents):
    """JAX's gradients and values, operation by operation; only the outputs with a cotangent are differentiated."""

    def divided(*leaves):
        outputs = f(*leaves)
        return [o for o, ct in zip(outputs, cotangents, strict=True) if ct is not None], outputs

    def both(leaves, cotangents):
        _, pullback, outputs = jax.vjp(divided, *leaves, has_aux=True)
        return pullback([ct for ct in cotangents if ct is not None]), outputs

    return run_op_by_op(jax.make_jaxpr(both)(args, cotangents), jax.tree.leaves((args, cotangents)))


def of_programs(made, args, cotangents):
    """The gradients and values of a schedule's two programs, operation by operation."""
    given = [*args]
    forward = run_op_by_op(jax.make_jaxpr(made.forward.__call__)(*given), given)
    outputs = forward[: len(forward) - len(made.saved)]
    inputs = made.backward.inputs[-len(cotangents) :]
    absent = [v for v, ct in zip(inputs, cotangents, strict=True) if ct is None]
    backward = without_cotangents(made.backward, inputs, set(absent)) if absent else made.backward
    given = [*forward[len(outputs) :], *args, *(ct for ct in cotangents if ct is not None)]
    return [*run_op_by_op(jax.make_jaxpr(backward.__call__)(*given), given), *outputs]


def choice(linearized, seed):
    """A random choice of values to keep, and of places where recomputed values are dropped."""
    draw = random.Random(seed)
    share = draw.choice([0, 0.1, 0.5, 0.9, 1])
    saved = [v for v in primal_values(linearized) if draw.random() < share]
    made = [v for e in linearized.primal.equations if e.primitive != "optimization_barrier" for v in e.outputs]
    places = sorted(draw.randrange(len(linearized.backward.equations) + 1) for _ in range(draw.choice([0, 0, 2])))
    snapshots = [Snapshot(place, tuple(draw.sample(made, min(2, len(made))))) for place in places]
    return saved, snapshots


def segments(linearized, seed):
    """Random segments for some of the loops."""
    draw, found = random.Random(seed), []
    for i, loop in enumerate(loops_of(linearized)):
        iterations = draw.randint(1, loop.length)
        rest = loop.length % iterations
        last = rest + iterations * draw.randrange(loop.length // iterations)
        if backward_of(linearized, loop) is not None and draw.random() < 0.7:
            found.append((i, iterations, last))
    return found


@pytest.mark.slow
@settings(max_examples=EXAMPLES, deadline=None)
@given(instructions, dtypes, vectors(15), vectors(4), st.integers(0, 2**16), st.sampled_from(["cpu", "tpu v5e"]))
def test_any_schedule_computes_jax_s_gradient_bit_for_bit(steps, dtype, numbers, cotangents, seed, target):
    f, args = program_of(steps), arguments(numbers, dtype)
    parts = array(cotangents, dtype)
    first, second = jnp.asarray(parts[0]), jnp.asarray(parts[1:])
    cotangents = *[(first, second), (first, None), (None, second)][seed % 3], np.zeros((), jax.dtypes.float0)
    expected = of_jax(f, args, cotangents)
    linearized = linearize(trace(f, *args))
    linearized = divided(linearized, segments(linearized, seed))
    saved, snapshots = choice(linearized, seed)
    made = schedule(linearized, saved, snapshots, target=target)
    for got, wanted in zip(of_programs(made, args, cotangents), expected, strict=True):
        assert same_bits(got, wanted), (got, wanted)


@pytest.mark.slow
def test_outputs_without_a_cotangent_add_nothing():
    """`0 * inf` is NaN where an auxiliary output is the square root of 0; JAX computes nothing for it."""

    def f(w, x):
        h = jnp.tanh(x @ w)
        total, roots = lax.scan(lambda c, row: (c * jnp.sin(row), jnp.sqrt(0 * row)), h[0], h)
        return jnp.sum(h * h) + jnp.sum(total), (jnp.sqrt(0 * h), roots, jnp.log(jnp.sum(h) - jnp.sum(h)))

    w, x = normal(600, 3, 3), normal(601, 4, 3)
    expected = jax.jit(jax.grad(f, (0, 1), has_aux=True))(w, x)
    for late in (with_schedule(f), with_schedule(f, jax.checkpoint_policies.everything_saveable)):
        got = jax.jit(jax.grad(late, (0, 1), has_aux=True))(w, x)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), got, expected)


@jax.custom_vjp
def with_auxiliary_loss(x, loss):
    return x


with_auxiliary_loss.defvjp(lambda x, _: (x, None), lambda _, ct: (ct, jnp.ones(())))


@jax.custom_vjp
def sines(x):
    return jnp.sin(x), jnp.cos(x)


sines.defvjp(lambda x: (sines(x), x), lambda x, cts: (jnp.exp(cts[0]) * x + cts[1],))


@jax.custom_vjp
def ignoring_cotangent(x):
    return jnp.sin(x)


ignoring_cotangent.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (2 * x,))


def with_gradient(of_second):
    """A function of two outputs whose custom gradient is that of the first plus `of_second(ct, x)` of the second's."""

    @jax.custom_vjp
    def both(x):
        return jnp.sin(x), jnp.cos(x)

    both.defvjp(lambda x: (both(x), x), lambda x, cts: (cts[0] * x + of_second(cts[1], x),))
    return lambda x: tuple(each.sum() for each in both(jnp.tanh(x)))


# Gradients that are not 0 for a cotangent of 0, by an operation that is not elementwise.
OTHER_GRADIENTS = {
    "ranks": lambda ct, x: jnp.argsort(ct).astype(ct.dtype),
    "logarithms of sums": lambda ct, x: lax.cumlogsumexp(ct),
    "a branch": lambda ct, x: lax.cond(ct.astype(bool).any(), lambda x: 0 * x, lambda x: x, x),
    "a constant result of a branch": lambda ct, x: lax.cond(x[0] > -9, lambda ct: x, lambda ct: ct, ct),
    "the first value of a carry": lambda ct, x: lax.scan(lambda c, row: (c + row, None), x[0], ct)[0] * jnp.ones(3),
    "a loop of unknown length": lambda ct, x: lax.fori_loop(0, x.argmax() + 1, lambda _, c: c + ct, x),
    "an index": lambda ct, x: lax.dynamic_slice(x, (ct[0].astype(int),), (3,)),
    "a value for indices out of bounds": lambda ct, x: ct.at[x.astype(int) + 5].get(mode="fill", fill_value=2.0),
    "a row of a stack": lambda ct, x: jnp.stack([ct, x]).sum(0),
    "an infinite factor": lambda ct, x: ct * jnp.inf,
    "an infinite element": lambda ct, x: jnp.sqrt(0 * x) / (0 * x) * ct,
    "a matrix with NaN": lambda ct, x: ct @ jnp.full((3, 3), jnp.nan),
}

# Functions of two outputs. The gradient of one of them depends on the rule of the other.
NOT_ZERO_AT_ZERO = {
    "a constant gradient": lambda x: (with_auxiliary_loss(jnp.sin(x), jnp.sum(x**2)).sum(), jnp.tanh(x).sum()),
    "no cotangent": lambda x: (ignoring_cotangent(x).sum(), jnp.tanh(x).sum()),
    "a nonlinear gradient": lambda x: tuple(each.sum() for each in sines(jnp.tanh(x))),
} | {name: with_gradient(of_second) for name, of_second in OTHER_GRADIENTS.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", NOT_ZERO_AT_ZERO)
def test_a_custom_gradient_that_is_not_zero_for_an_absent_cotangent_is_jaxs_or_refused(name):
    f, x = NOT_ZERO_AT_ZERO[name], normal(602, 3)
    late = with_schedule(f)
    for which in (0, 1):
        try:
            got = jax.grad(lambda x, which=which: late(x)[which])(x)
        except PlanError as error:
            assert name in ("a constant gradient", "no cotangent"), "not refused, but computed as JAX does"
            assert "a custom gradient in it may depend on that" in str(error)
        else:
            np.testing.assert_allclose(got, jax.grad(lambda x, which=which: f(x)[which])(x), rtol=1e-5)
    both, expected = (jax.grad(lambda x, g=g: sum(g(x)))(x) for g in (late, f))
    np.testing.assert_allclose(both, expected, rtol=1e-5)

    def stopped(x):
        return f(x)[0], jax.lax.stop_gradient(f(x)[1])

    got, wanted = (jax.grad(g, has_aux=True)(x)[0] for g in (with_schedule(stopped), stopped))
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


@pytest.mark.skipif(not hasattr(jax.config, "jax_custom_vjp3"), reason="this JAX has no jax_custom_vjp3")
def test_such_a_custom_gradient_is_jaxs_with_custom_vjp3():
    with config.custom_vjp3(True):
        f, x = with_gradient(lambda ct, x: jnp.exp(ct)), normal(602, 3)
        got, wanted = (jax.grad(g, has_aux=True)(x)[0] for g in (with_schedule(f), f))
        np.testing.assert_allclose(got, wanted, rtol=1e-5)


WHOLE = {
    "overflow": (["matmul", "masked overflow", "scan", "softmax", "mul"], "float32"),
    "branches": (["matmul", "switch", "branch", "custom VJP", "dropout", "NaN branch"], "bfloat16"),
    "checkpoints": (["matmul", "checkpointed scan", "checkpoint with a policy", "loss scale", "sin"], "float16"),
}


@pytest.mark.parametrize("name", few(WHOLE))
def test_auto_and_scheduled_give_jax_s_gradient_bit_for_bit(name):
    names, dtype = WHOLE[name]
    f, args = program_of([(each, 0, 1 + i) for i, each in enumerate(names)]), arguments([0.5, -1.0, 4.0] * 5, dtype)
    one = jnp.asarray(array([1.0, 2.0, -1.0], dtype))
    cotangents = one[0], one, np.zeros((), jax.dtypes.float0)
    expected = of_jax(f, args, cotangents)
    found = [
        auto(f, peak=int(1.1 * measure(f, *args).peak_bytes), compiles=1).plan(*args),
        auto(f, saved=trace(f, *args).saved_bytes() // 2).plan(*args),
    ]
    for g in (
        with_schedule(f),
        with_schedule(f, jax.checkpoint_policies.dots_saveable),
        *(each.function for each in found),
    ):
        for got, wanted in zip(of_jax(g, args, cotangents), expected, strict=True):
            assert same_bits(got, wanted), (got, wanted)
