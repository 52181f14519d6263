"""Microbatches: what is proved to be an average gives the same gradient, and what is none is never proved."""

import contextlib
import functools
from unittest import mock

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax._src import config  # private: a switch for one thread
from jax.ad_checkpoint import checkpoint_name
from normal import normal
from sampling import few, sampled
from uncompiled import by_operation

from rematscope import PlanError, jax_compat, rewrite
from rematscope.reporting import rewrite as rewriting
from rematscope.reporting.averages import Proof, prove
from rematscope.reporting.flat_program import flat_program
from rematscope.reporting.flat_step import FlatStep
from rematscope.reporting.gradient_loops import mark_of
from rematscope.reporting.microbatches import Microbatches
from rematscope.reporting.rewrite import Changes, Rewritten
from rematscope.reporting.subject import Subject
from rematscope.reporting.traced_step import TracedStep
from rematscope.tracing.arguments import flattened

AXES, COUNT = (None, 0, 0), 4


@jax.custom_vjp
def clip_gradient(x):
    return x


clip_gradient.defvjp(lambda x: (x, None), lambda _, ct: (ct / jnp.maximum(1e-4, jnp.linalg.norm(ct)),))


def times_the_length(w, length):
    @jax.custom_jvp
    def same(w):
        return w

    same.defjvp(lambda primals, tangents: (primals[0], tangents[0] * length))
    return same(w)


@jax.custom_jvp
def product(w, x):
    return x @ w


def product_rule(primals, tangents):
    (w, x), (change, of_data) = primals, tangents
    mixes = isinstance(of_data, jax.custom_derivatives.SymbolicZero)
    return product(w, x), x @ change - mixes * jnp.mean(x, 0) @ change


product.defjvp(product_rule, symbolic_zeros=True)


def squares(w, x, y):
    return jnp.square(jnp.tanh(x @ w).sum(-1) - y)


def mean_in_a_scan(w, x, y):
    def iteration(total, row):
        return total + jnp.mean(jnp.tanh(x * row)) / 4, x @ row

    total, each = lax.scan(iteration, 0.0, w)
    return total + jnp.mean(each) + 0.01 * jnp.sum(w**2)


def two_means(w, x, y):
    half = jnp.tanh(x.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16))
    return half.mean(dtype=jnp.float32) + jnp.sum(squares(w, x, y)) / y.size + jnp.vdot(x @ w[0], y) / len(y)


def per_example_weights(w, x, y):
    return jnp.sum(squares(w, x, y) / y.size * jnp.where(y > 0, 1.0, 2.0))


def checkpointed(w, x, y):
    return jnp.mean(jax.checkpoint(squares)(w, x, y)) * 3 - 1


def positions_in_a_scan(w, x, y):
    layer = lambda h, _: (jnp.tanh(h @ w) * jnp.arange(len(x))[:, None], None)  # noqa: E731
    return squares(w, lax.scan(layer, x, None, length=2)[0], y).mean()


def dropped(x, key=0, kind="threefry2x32"):
    key = jax.random.key(key, impl=kind) if isinstance(key, int) else key
    return jnp.where(jax.random.bernoulli(key, 0.5, x.shape), x, 0.0)


def dropout_in_a_checkpoint(w, x, y):
    return jax.checkpoint(lambda w: squares(w, dropped(jnp.tanh(x @ w)), y).mean())(w)


def dropout_in_a_scan(w, x, y):
    layer = jax.checkpoint(lambda h, key: (dropped(jnp.tanh(h @ w), key), None))
    return squares(w, lax.scan(layer, x, jax.random.split(jax.random.key(0), 2))[0], y).mean()


def dropout_per_example(w, x, y, kind="threefry2x32"):
    keys = jax.random.split(jax.random.key(0, impl=kind), len(x))
    return squares(w, jax.vmap(dropped)(x, keys), y).mean()


def with_sharding_constraints(w, x, y):
    mesh = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    of = lambda *axes: jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))  # noqa: E731
    h = lax.with_sharding_constraint(jnp.tanh(x @ lax.with_sharding_constraint(w, of())), of("data"))
    return lax.with_sharding_constraint(squares(w, h, y).sum(), of()) / len(x)


def stacked_and_repeated(w, x, y):
    first, *others = jnp.unstack(jnp.tanh(x @ w), axis=1)
    token = jnp.tile(w[None, :1], (len(x), 1, 1))
    h = jnp.concatenate([token, jnp.tile(jnp.stack([first, *others], 1)[:, None], (1, 2, 1))], 1)
    return jnp.mean(jnp.square(h).sum((1, 2)) * y)


def stacked_losses(w, x, y):
    losses = jnp.stack([squares(w, x, y).mean(), jnp.abs(x @ w).mean(), jnp.sum(w**2)])
    first, *_ = losses
    return first + jnp.dot(jnp.arange(3.0), losses) + jnp.split(losses, [1])[1].sum()


def positions_by_binary_search(w, x, y):
    """JAX 0.12 traces searchsorted to a primitive with a body of its own."""
    place = jax.vmap(jnp.searchsorted)(jnp.sort(x, -1), y)
    return (squares(w, x, y) * (1 + place)).mean()


def checked_per_example(w, x, y):
    return jax.vmap(lambda x, y: eqx.error_if(squares(w, x, y), jnp.isnan(y), "not a number"))(x, y).mean()


def solved_per_example(w, x, y):
    """Each example has a number of iterations of its own, and a gradient that Equinox defines."""

    def one(x, y):
        carry = 0.0, eqx.error_if(x, jnp.isnan(y), "not a number")
        _, h = eqxi.while_loop(
            lambda carry: carry[0] < jnp.abs(y),
            lambda carry: (carry[0] + 0.5, jnp.tanh(carry[1] @ w)),
            carry,
            max_steps=8,
            kind="checkpointed",
        )
        return squares(w, h, y)

    return jax.vmap(one)(x, y).mean()


def filtered(w, x, y):
    h = jnp.fft.irfft(jnp.fft.rfft(jnp.tanh(x @ w), axis=-1)[:, :2] * (1 + 2j), n=x.shape[1], axis=-1)
    return squares(w, h, y).mean()


def whitened(w, x, y):
    """Solves for each example with a positive definite matrix of its own."""
    rows = jnp.tanh(x @ w)
    matrices = jnp.eye(x.shape[1]) + rows[:, :, None] * rows[:, None]
    factors = jnp.linalg.cholesky(matrices)
    solved = jax.scipy.linalg.solve_triangular(factors, rows[..., None], lower=True)[..., 0]
    q, r = jnp.linalg.qr(matrices)
    values, vectors = jnp.linalg.eigh(matrices + jnp.diag(jnp.arange(x.shape[1])))
    return squares(w, solved, y).mean() + jnp.mean(r[:, 0] + values + vectors[:, 0] ** 2 + q[:, 0])


def in_random_order(w, x, y):
    order = jnp.argsort(jax.random.uniform(jax.random.key(0), x.shape), axis=1)
    return squares(w, jnp.take_along_axis(jnp.tanh(x), order[:, ::-1], 1), y).mean()


def mean_of_squares(w, x, y):
    return squares(w, x, y).mean()


AVERAGES = [
    mean_of_squares, mean_in_a_scan, two_means, per_example_weights, checkpointed,
    positions_in_a_scan, with_sharding_constraints, stacked_and_repeated, stacked_losses,
    dropout_in_a_checkpoint, dropout_in_a_scan,
    dropout_per_example, positions_by_binary_search, filtered, whitened, in_random_order, checked_per_example,
    lambda w, x, y: squares(w, dropped(x, kind="rbg"), y).mean(),
    lambda w, x, y: jnp.square(x @ w)[jnp.arange(len(x)), jnp.int32(y > 0)].mean(),
]  # fmt: skip


def weighted_mean(w, x, y):
    weights = jax.nn.sigmoid((x @ w)[:, 0])
    return jnp.sum(squares(w, x, y) * weights) / jnp.sum(weights)


def normalized(w, x, y):
    z = x @ w
    return jnp.mean(jnp.square((z - z.mean(0)) / (1e-3 + z.std(0))) * y[:, None])


def over_pairs(w, x, y):
    z = x @ w
    return jax.nn.logsumexp(z @ z.T, -1).mean()


def times_positions(w, x):
    return lax.scan(lambda h, _: (jnp.tanh(h @ w) * jnp.arange(len(x))[:, None], None), x, None, length=2)[0]


def positions_in_a_branch(w, x, y):
    return squares(w, lax.cond(w[0, 0] > -9, times_positions, lambda w, x: x @ w, w, x), y).mean()


with_positions = jax.custom_jvp(times_positions)
with_positions.defjvp(lambda given, changes: (with_positions(*given), changes[1] + given[1] @ changes[0]))


@jax.custom_vjp
def other_rule_for_data(w, x):
    return x @ w


def rule_for_data(w, x):
    return x.value @ w.value, (w.value, x.value, None if x.perturbed else 1)


def limit_without_gradient_of_data(saved, ct):
    w, x, is_data = saved
    return (x.T @ ct) / (1 if is_data is None else 1e-3 + jnp.abs(ct).max()), ct @ w.T


other_rule_for_data.defvjp(rule_for_data, limit_without_gradient_of_data, symbolic_zeros=True)


@jax.custom_vjp
def other_value_without_gradient(x):
    return x - x.mean(0)


other_value_without_gradient.defvjp(lambda x: (x, None), lambda _, ct: (ct,))


@jax.custom_vjp
def random_gradient(x):
    return x


random_gradient.defvjp(lambda x: (x, None), lambda _, ct: (dropped(ct, 1),))


def backwards_for_many(w, x, y):
    return squares(w, lax.scan(lambda h, row: (jnp.tanh(h + row), None), x, w, reverse=len(x) > 4)[0], y).mean()


def reduced_with_the_length(w, x, y):
    return jnp.square(lax.reduce(jnp.tanh(x @ w), 0.0, lambda a, b: a + b * len(x), (1,))).mean()


def wrapped_integers(w, x, y):
    return squares(w, x, y).mean() * (-jnp.uint8(len(x))).astype(float) / len(x)


def overflow_of_the_whole_sum(w, x, y):
    return (1e4 + 1e4 * jnp.tanh(squares(w, x, y))).sum().astype(jnp.float16).astype(float) / len(x)


@jax.custom_batching.custom_vmap
def plain_or_centered(x):
    return x


plain_or_centered.def_vmap(lambda size, _, x: (x - x.mean(0), True))


def mapped(f, **settings):
    """A mean of values that are computed for each example, from all examples too."""
    return lambda w, x, y: jax.vmap(lambda one, label: f(w, x, one, label), **settings)(x, y).mean()


MAPPED = [
    mapped(lambda w, x, one, y: squares(w, one - jnp.tanh(x @ w).mean(0), y)),
    mapped(lambda w, x, one, y: squares(times_the_length(w, len(x)), one, y)),
    mapped(lambda w, x, one, y: squares(w, one - lax.pmean(one @ w, "batch"), y), axis_name="batch"),
    mapped(lambda w, x, one, y: squares(w, plain_or_centered(one @ w), y)),
    mapped(lambda w, x, one, y: squares(w, one, y) * eqxi.unvmap_max(lax.stop_gradient(one @ w[0]))),
    mapped(
        lambda w, x, one, y: (
            squares(w, one, y) * jax.pure_callback(lambda v: np.float32(len(x)) * v, y, y, vmap_method="sequential")
        )
    ),
]
OF_DATA = [  # an average if the values that depend on the data only are those of the whole batch
    mapped(lambda w, x, one, y: squares(w, one - x.mean(0), y)),
    mapped(lambda w, x, one, y: squares(w, one, y) * jnp.float32(len(x))),
    mapped(lambda w, x, one, y: squares(w, one - lax.pmean(one, "batch"), y), axis_name="batch"),
    mapped(lambda w, x, one, y: squares(w, plain_or_centered(one), y)),
    mapped(lambda w, x, one, y: squares(w, one, y) * (eqxi.unvmap_max(y) == y)),
    lambda *args: squares(*args).sum(),
    lambda *args: jnp.mean(squares(*args)) / jnp.float32(len(args[1])),
    lambda w, x, y: jnp.mean(x @ w * jnp.sum(jnp.uint8(99 * abs(y)), dtype=jnp.uint8)) / len(x),
    lambda w, x, y: squares(w, x * x.mean(), y).mean(),
    lambda w, x, y: squares(w, x[::-1], y).mean(),
    lambda w, x, y: jnp.mean(x @ w * jnp.arange(len(x))[:, None]),
    lambda w, x, y: squares(w, other_value_without_gradient(x), y).mean(),
    lambda w, x, y: dropout_per_example(w, x, y, "rbg"),
    lambda w, x, y: jnp.mean(squares(w, jnp.tile(x, (2, 1)), jnp.tile(y, 2))[: len(x)] * y[::-1]),
    wrapped_integers,
]
OTHERS = [
    *MAPPED,
    lambda w, x, y: squares(w, jnp.fft.fft(jnp.tanh(x @ w), axis=0).real, y).mean(),
    lambda w, x, y: squares(w, jnp.fft.rfft2(jnp.tanh(x @ w))[:, :1].imag + x, y).mean(),
    lambda w, x, y: jnp.linalg.cholesky(jnp.eye(len(x)) + jnp.tanh(x @ w) @ jnp.tanh(x @ w).T)[:, 0].mean(),
    lambda *args: jnp.sqrt(squares(*args).mean()),
    lambda *args: squares(*args).mean() ** 2,
    lambda w, x, y: squares(clip_gradient(w), x, y).mean(),
    lambda w, x, y: jnp.mean(clip_gradient(jnp.tanh(x @ w)) @ jnp.ones(4) * y),
    lambda w, x, y: squares(w * len(x), x, y).mean(),
    lambda w, x, y: squares(times_the_length(w, len(x)), x, y).mean(),
    lambda w, x, y: squares(w * jax.pure_callback(functools.partial(np.multiply, len(x)), w[0, 0], 1.0), x, y).mean(),
    lambda w, x, y: jnp.mean(x @ w * jnp.sum(jnp.uint8(99 * abs(x @ w[0])), dtype=jnp.uint8)) / len(x),
    lambda w, x, y: jnp.mean(jnp.square(product(w, x)) * y[:, None]),
    lambda w, x, y: squares(w, x * jnp.tanh(x @ w).mean(), y).mean(),
    lambda w, x, y: squares(w, jnp.tanh(x @ w)[::-1], y).mean(),
    lambda w, x, y: jnp.mean(squares(w, jnp.tile(x, (2, 1)), jnp.tile(y, 2))[: len(x)] * (x @ w[0])[::-1]),
    lambda w, x, y: jnp.max(squares(w, x, y)),
    lambda w, x, y: jnp.square(x @ w)[len(x) - 1 - jnp.arange(len(x)), jnp.int32(y > 0)].mean(),
    lambda w, x, y: squares(w, with_positions(w, x), y).mean(),
    lambda w, x, y: jnp.square(other_rule_for_data(w, x).sum(-1) - y).mean(),
    lambda w, x, y: squares(w, other_value_without_gradient(lax.stop_gradient(x @ w)), y).mean(),
    lambda w, x, y: squares(jnp.eye(4), random_gradient(x @ w), y).mean(),
    weighted_mean, normalized, over_pairs, positions_in_a_branch, backwards_for_many, reduced_with_the_length,
    overflow_of_the_whole_sum,
]  # fmt: skip


@functools.cache
def arguments():
    return normal(0, (4, 4), (12, 4), (12,))


def step_of(loss):
    @jax.jit
    def step(w, x, y):
        value, gradient = jax.value_and_grad(loss)(w, x, y)
        return w - gradient, gradient, value

    return step


def proof(step, count=COUNT):
    flat, leaves = flattened(step, arguments(), {})
    try:
        proof = prove(TracedStep(FlatStep(flat.updating, leaves, AXES, "step")), count)
        assert proof.why or proof.microbatches  # the step that runs is proved, too
        return proof.why
    except PlanError as error:
        return str(error)


def is_same(step, count=COUNT, is_checked=False):
    """Whether microbatches give the same results, by default where nothing checks that."""
    divided = Rewritten(step, Changes(microbatches=count, in_axes=AXES))
    expected = by_operation(step)(*arguments())
    unchecked = mock.patch.object(
        rewriting, "prove_or_explain", lambda step, count: Proof("", Microbatches(step, count))
    )
    with contextlib.nullcontext() if is_checked else unchecked:
        found = by_operation(divided)(*arguments())
    return all(
        np.allclose(one, other, rtol=2e-2, atol=2e-3)
        for one, other in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True)
    )


@pytest.mark.parametrize("loss", AVERAGES, ids=range(len(AVERAGES)))
def test_an_average_is_proved(loss):
    for count in (2, 3):
        assert not proof(step_of(loss), count)


@pytest.mark.slow
@pytest.mark.parametrize("loss", sampled(AVERAGES, 3), ids=range(len(AVERAGES)))
def test_the_gradient_of_an_average_stays(loss):
    assert is_same(step_of(loss), 3)


def test_a_function_of_the_loss_is_computed_once():
    """The perplexity of a batch is not the mean of those of its microbatches; the gradient may depend on the loss."""

    def measured(w, x, y):
        value, gradient = jax.value_and_grad(mean_of_squares)(w, x, y)
        return w - gradient, {"perplexity": jnp.exp(value), "is_finite": jnp.isfinite(value), "twice": 2 * value}

    def scaled_by_the_loss(w, x, y):
        value, pullback = jax.vjp(lambda w: mean_of_squares(w, x, y), w)
        return w - pullback(jnp.exp(value))[0]

    assert not proof(jax.jit(measured), 3) and is_same(jax.jit(measured), 3)
    assert proof(jax.jit(scaled_by_the_loss), 3)


def with_auxiliary_results(w, x, y):
    """Return the loss, and of its terms means, weighted sums, the largest one and one value per example."""
    errors, size, weights = squares(w, x, y), jnp.abs(x @ w).mean(), jnp.float32(y > 0)
    sums = jnp.sum(errors * weights), jnp.sum(weights)
    aux = {"means": (errors.mean(), size), "sums": sums, "largest": errors.max(), "each": errors}
    return errors.mean() + size, aux


def test_a_function_of_auxiliary_results_is_computed_once():
    """A quotient of two means is not the mean of the quotients; the loss may return these means besides its value."""
    gradient_of = jax.value_and_grad(with_auxiliary_results, has_aux=True)

    def measured(w, x, y):
        (_, aux), gradient = gradient_of(w, x, y)
        (error, size), (total, count) = aux["means"], aux["sums"]
        return w - gradient, error / size, jnp.exp(error), total / count, aux["each"] / 2, aux["each"].mean()

    def scaled_by_the_quotient(w, x, y):
        (_, aux), gradient = gradient_of(w, x, y)
        quotient = aux["means"][0] / aux["means"][1]
        return w - jax.grad(lambda w: quotient * mean_of_squares(w, x, y))(w - gradient), quotient

    def of_the_largest(w, x, y):
        (_, aux), gradient = gradient_of(w, x, y)
        return w - gradient, jnp.exp(aux["largest"])

    for step in map(jax.jit, (measured, scaled_by_the_quotient)):
        assert not proof(step, 3) and is_same(step, 3, is_checked=True)
    assert proof(jax.jit(of_the_largest), 3)


def checkpointed_with_a_name(w, x, y):
    policy = jax.checkpoint_policies.save_only_these_names("h")
    return jax.checkpoint(lambda w: squares(w, checkpoint_name(jnp.tanh(x @ w), "h"), y).mean(), policy=policy)(w)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(jax.config, "jax_remat3"), reason="this JAX has no remat3")
@pytest.mark.parametrize("loss", [checkpointed_with_a_name, dropout_in_a_checkpoint, dropout_in_a_scan])
def test_checkpoints_and_names_of_remat3_are_opened_and_stay(loss):
    step, options = step_of(loss), {"microbatches": 3, "in_axes": AXES}
    with jax_compat.use_remat3(True):
        assert not proof(step, 3) and is_same(step, 3)
        assert str(jax.make_jaxpr(rewrite(step, **options))(*arguments())).count("RematTraced") == 1
        assert "not proved to be an average" in proof(step_of(jax.checkpoint(weighted_mean)))


def clipped_in_a_scan(w, x, y):
    return squares(lax.scan(lambda w, _: (clip_gradient(w), None), w, None, length=2)[0], x, y).mean()


@pytest.mark.skipif(not hasattr(jax.config, "jax_custom_vjp3"), reason="this JAX has no jax_custom_vjp3")
@pytest.mark.parametrize("loss", [lambda w, x, y: squares(clip_gradient(w), x, y).mean(), clipped_in_a_scan])
def test_custom_gradients_are_refused_with_custom_vjp3(loss):
    with config.custom_vjp3(True):
        assert "no rule covers the custom gradient" in proof(step_of(loss))


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"checkpoint": "whole"}, {"checkpoint": "whole", "microbatches": 12}], ids=str)
def test_rows_read_by_position_in_a_checkpoint_are_unchanged(options):
    def loss(w, x, y):
        rows = jax.checkpoint(lambda w: jnp.square(x @ w)[jnp.arange(len(x)), jnp.int32(y > 0)])
        layers = jax.checkpoint(lambda w: positions_in_a_scan(w, x, y))
        return dropped(rows(w)).mean() + layers(w)

    step = step_of(loss)
    changed = rewrite(step, **{"microbatches": 3, "in_axes": AXES} | options)
    for one, other in zip(changed(*arguments()), step(*arguments()), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("loss", sampled(OF_DATA, 3), ids=range(len(OF_DATA)))
def test_values_that_depend_on_the_data_only_are_those_of_the_whole_batch(loss):
    assert not proof(step_of(loss), 3) and is_same(step_of(loss), 3, is_checked=True)


@pytest.mark.slow
@pytest.mark.parametrize("loss", sampled(OTHERS, 4), ids=range(len(OTHERS)))
def test_the_microbatches_of_the_other_losses_have_another_mean(loss):
    """Otherwise nothing would have to be refused."""
    assert not is_same(step_of(loss))


@pytest.mark.parametrize("loss", sampled(OTHERS, 2), ids=range(len(OTHERS)))
def test_a_loss_whose_microbatches_have_another_mean_is_refused(loss):
    refused = r"average over the examples|differs from that for the whole batch"
    with pytest.raises(PlanError, match=refused):
        rewrite(step_of(loss), microbatches=COUNT, in_axes=AXES)(*arguments())


def read_before_and_after(w, x, y):
    ref = jax.new_ref(jnp.ones(()))
    first = ref[...]
    ref[...] = jnp.sum(w)
    return squares(w, x, y).mean() * (first + ref[...])


def with_a_later_write(w, x, y):
    ref, gradient = jax.new_ref(jnp.zeros(())), jax.grad(mean_of_squares)(w, x, y)
    ref[...] = gradient.sum()
    return w - gradient, ref[...]


@pytest.mark.parametrize("step", [step_of(read_before_and_after), with_a_later_write], ids=["loss", "step"])
def test_a_step_that_writes_to_a_mutable_array_is_refused(step):
    with pytest.raises(PlanError, match="uses mutable arrays"):
        rewrite(step, microbatches=COUNT, in_axes=AXES)(*arguments())


def some_positions(values, ids):
    return values[jnp.arange(len(ids)) * 1, ids]  # no rule proves that this gather divides along the batch


@pytest.mark.parametrize("chosen", [lambda errors, ids: errors[:, 0], some_positions], ids=["slice", "gather"])
def test_a_mask_that_selects_equally_many_random_examples_is_refused(chosen):
    def step(w, x, ids):
        def loss(w):
            mask = jnp.round(ids + 0 * w[0, 0]) != -100
            errors = chosen(jnp.square(x @ w), jnp.maximum(ids, 0) % 4)
            return (errors * mask).sum() / mask.sum()

        return w - jax.grad(loss)(w)

    w, x, _ = arguments()
    for ids in (jnp.arange(12), jnp.where(jnp.arange(12) < 5, -100, 3)):
        with pytest.raises(PlanError, match="average over the examples"):
            rewrite(step, microbatches=2, in_axes=AXES)(w, x, ids)


def with_gradient(rule):
    """The identity whose gradient is a rule of the cotangent."""

    @jax.custom_vjp
    def same(x):
        return x

    same.defvjp(lambda x: (x, x), lambda x, ct: (rule(x, ct),))
    return same


def running_maximum(w, x, y):
    def iteration(carry, row):
        return (jnp.maximum(carry[0], row[1]), carry[1] + jnp.tanh(row[0] @ w).sum()), None

    (highest, total), _ = lax.scan(iteration, (0.0, 0.0), (x, y))
    return jnp.where(highest > 1e4, 0.0, total / len(x))


def in_layers(rule):
    layer = jax.checkpoint(lambda h, w: (with_gradient(rule)(jnp.tanh(h * w)), None))
    return lambda w, x, y: (lax.scan(layer, x, w)[0].sum(-1) * y).mean()


def per_class(errors, y):
    classes = jnp.int32(y > 1e4)
    counts = jnp.zeros(2).at[classes].add(1.0)
    return jnp.sum(jnp.zeros(2).at[classes].add(errors) / jnp.maximum(counts, 1))


LIMIT = lambda _, ct: jnp.clip(ct, -1e3, 1e3)  # noqa: E731
RARELY_ANOTHER_PART = {
    "any": lambda y, errors: jnp.where((y > 1e4).any(), 0.0, errors).mean(),
    "maximum": lambda y, errors: (errors * (jnp.max(y) < 1e4)).mean(),
    "branch": lambda y, errors: lax.cond(jnp.min(y) < -1e4, jnp.zeros_like, lambda v: v, errors).mean(),
    "sorted": lambda y, errors: jnp.where(jnp.sort(y)[-1] > 1e4, 0.0, errors).mean(),
    "first example": lambda y, errors: jnp.where(y[0] > 1e4, 0.0, errors).mean(),
    "count as an integer": lambda y, errors: errors.sum() / jnp.sum(y < 1e4, dtype=float).astype(int),
    "classes": lambda y, errors: errors.mean() / jnp.zeros(2).at[jnp.int32(y > 1e4)].set(1.0).sum(),
    "means of classes": lambda y, errors: per_class(errors, y),
}
RARELY_OTHERS = {
    name: lambda w, x, y, value=value: value(x @ w[0], squares(w, x, y)) for name, value in RARELY_ANOTHER_PART.items()
} | {
    "running maximum": running_maximum,
    "pairs": lambda w, x, y: squares(w, x, y).mean() + 1e-9 * over_pairs(w, x, y),
    "limited gradient of weights": lambda w, x, y: squares(with_gradient(LIMIT)(w), x, y).mean(),
    "limited norm": in_layers(lambda _, ct: ct / jnp.maximum(1e3, jnp.linalg.norm(ct))),
    "limited in a scan": in_layers(lambda _, ct: lax.scan(lambda c, row: (jnp.maximum(c, row), c), ct[0], ct)[1]),
    "maximum in the gradient": in_layers(lambda x, ct: jnp.where(jnp.abs(ct).max() > 1e3, 0.0, ct)),
}


@pytest.mark.parametrize("name", RARELY_OTHERS)
def test_a_nonlinear_function_of_all_examples_is_refused_although_random_data_do_not_show_it(name):
    with pytest.raises(PlanError, match="average over the examples"):
        rewrite(step_of(RARELY_OTHERS[name]), microbatches=COUNT, in_axes=AXES)(*arguments())


def large_values(value):
    """The same function of data, some of which are large."""
    return lambda w, x, y: value(jnp.where(y > 1, 2e4, y), squares(w, x, y))


@pytest.mark.parametrize("name", sampled([*RARELY_ANOTHER_PART], 4))
def test_a_function_of_the_data_of_all_examples_is_that_of_the_whole_batch(name):
    step = step_of(large_values(RARELY_ANOTHER_PART[name]))
    assert not proof(step) and is_same(step, is_checked=True)


def test_a_mask_of_positions_counts_the_examples_of_the_whole_batch():
    def step(w, x, valid):
        return w - jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w).sum(1) * (jnp.arange(len(x)) < valid)))(w)

    w, x, _ = arguments()
    for valid in (5, 12):
        found = rewrite(step, microbatches=COUNT, in_axes=(None, 0, None))(w, x, jnp.int32(valid))
        np.testing.assert_allclose(found, step(w, x, jnp.int32(valid)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("weight", [jnp.zeros(()), jnp.zeros((4, 4))], ids=["scalar", "matrix"])
def test_a_part_of_the_loss_with_weight_zero_is_checked(weight):
    def step(w, x, y, weight):
        def loss(w):
            z = jnp.tanh(x @ w)
            return jnp.mean(z) + jnp.mean(jnp.square(jnp.dot(z, weight))[::-1] * y[:, None])

        return w - jax.grad(loss)(w)

    with pytest.raises(PlanError, match="average over the examples"):
        rewrite(step, microbatches=COUNT, in_axes=(None, 0, 0, None))(*arguments(), weight)


@pytest.mark.parametrize("late", [jnp.bool_(False), jnp.int32(0)], ids=["flag", "counter"])
def test_a_part_of_the_loss_that_is_selected_later_is_checked(late):
    def step(w, x, y, late):
        def loss(w):
            z = jnp.tanh(x @ w)
            return jnp.mean(z) + jnp.where(late if late.dtype == bool else late > 1000, 1, 0) * jnp.mean(z[::-1] * x)

        return w - jax.grad(loss)(w)

    with pytest.raises(PlanError, match="average over the examples"):
        rewrite(step, microbatches=COUNT, in_axes=(None, 0, 0, None))(*arguments(), late)


def layers_with_a_counter(w, x, y):
    def layer(carry, row):
        h, total, count = carry
        h = with_gradient(lambda x, ct: ct * jnp.cos(x))(jnp.tanh(h * row))
        return (h, total + h.mean() * jnp.exp(-row[0]), count + 1), None

    (h, total, _), _ = lax.scan(layer, (x, 0.0, 0), w)
    return squares(w, h, y).mean() + 0.1 * total


REORDERED = {
    "sum per class": lambda w, x, y: jnp.zeros(2).at[jnp.int32(y > 0)].add(squares(w, x, y)).sum() / len(x),
    "custom gradients in layers": layers_with_a_counter,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REORDERED)
def test_an_average_that_is_computed_in_another_order_is_accepted(name):
    step = step_of(REORDERED[name])
    for one, other in zip(
        step(*arguments()), rewrite(step, microbatches=COUNT, in_axes=AXES)(*arguments()), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("is_mapped", "lengths"), [(True, [12, 3]), (False, [])])
def test_a_step_is_traced_in_loops_only_if_it_maps_over_the_batch(is_mapped, lengths, monkeypatch):
    found, as_loops = [], jax_compat.maps_as_loops

    def recorded(length):
        found.append(length)
        return as_loops(length)

    def step(w, x):
        layer = jax.vmap(lambda one: jnp.tanh(one @ w)) if is_mapped else lambda x: jnp.tanh(x @ w)
        return w - jax.grad(lambda w: jnp.max(layer(x) @ w))(w)

    monkeypatch.setattr(jax_compat, "maps_as_loops", recorded)
    with pytest.raises(PlanError):
        rewrite(step, microbatches=COUNT, in_axes=(None, 0))(jnp.ones((4, 4)), jnp.ones((12, 4)))
    assert found == lengths


@pytest.mark.slow
def test_the_examples_of_a_vmap_are_independent_whatever_it_contains():
    step = step_of(solved_per_example)
    assert not proof(step) and is_same(step)
    assert proof(step, 3)  # the cotangents of a third of the batch differ, and the custom gradient is not proved linear


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1e-2, 1e3], ids=["reached", "rarely reached"])
def test_a_limit_on_the_cotangent_of_each_example_needs_cotangents_of_the_same_size(limit):
    """Those of 4 microbatches are those of the batch. Those of 3 are divided by 4, and cannot be divided exactly."""
    rule = lambda _, ct: jnp.clip(ct, -limit, limit)  # noqa: E731
    for loss in (lambda w, x, y: squares(w, with_gradient(rule)(x @ w), y).mean(), in_layers(rule)):
        step = step_of(loss)
        divided = rewrite(step, microbatches=4, in_axes=AXES)(*arguments())
        for one, other in zip(step(*arguments()), divided, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
        with pytest.raises(PlanError, match="average over the examples"):
            rewrite(step, microbatches=3, in_axes=AXES)(*arguments())


@pytest.mark.slow
@pytest.mark.parametrize("dtype", few([jnp.float16, jnp.bfloat16]))
@pytest.mark.parametrize("count", few([4, 3, 2, 12]))
def test_cotangents_overflow_and_underflow_like_those_of_the_whole_batch(count, dtype):
    """Each example's cotangent is the scale divided by 12, and all products with it are positive."""

    def step(w, x, y, scale):
        def loss(w):
            h = x.astype(dtype) @ w.astype(dtype)
            h = h * jnp.asarray(2.0**-12, dtype) @ jnp.full((4, 4), 0.25, dtype)
            return (h.astype(jnp.float32).sum(1) * scale).mean() + jnp.mean(scale * w[0])

        return jax.grad(loss)(w)

    w, x, y = [jnp.abs(each) for each in arguments()]
    changed = rewrite(step, microbatches=count, in_axes=(*AXES, None))
    exact = count in (2, 4)  # the cotangents of 3 and of 12 microbatches are a little smaller
    kinds = set()
    for exponent in [*([-20, -12] if exact else []), -4, *range(6, 24), 40]:
        scale = jnp.float32(12 * 2.0**exponent)
        expected, found = (np.float32(f(w, x, y, scale)) for f in (by_operation(step), changed))
        finite = np.isfinite(expected)
        assert (np.isfinite(found) == finite)[finite | exact].all(), exponent
        kinds.add((bool(finite.all()), bool(expected.any())))
        least = float(jnp.finfo(dtype).smallest_subnormal)
        np.testing.assert_allclose(found[finite], expected[finite], rtol=2e-2, atol=count * least)
    assert kinds == ({(True, True), (False, True)} if dtype == jnp.float16 else {(True, True)})


LINEAR_RULES = [
    lambda x, ct: jnp.where(x > 0, ct, 0.1 * ct),
    lambda x, ct: -ct / (1 + x * x),
    lambda x, ct: (ct.astype(jnp.bfloat16) @ jnp.eye(4, dtype=jnp.bfloat16)).astype(jnp.float32),
    lambda x, ct: ct * 0,
    lambda x, ct: jnp.zeros_like(ct),
]


@pytest.mark.slow
@pytest.mark.parametrize("rule", sampled(LINEAR_RULES, 2), ids=range(len(LINEAR_RULES)))
def test_a_custom_gradient_that_is_linear_in_the_cotangent_is_accepted(rule):
    for loss in (lambda w, x, y: squares(w, with_gradient(rule)(x @ w), y).mean(), in_layers(rule)):
        divided = rewrite(step_of(loss), microbatches=COUNT, in_axes=AXES)(*arguments())
        for one, other in zip(step_of(loss)(*arguments()), divided, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-2, atol=1e-3)


@pytest.mark.slow
def test_a_custom_gradient_beside_an_integer_is_accepted():
    @jax.custom_vjp
    def with_largest(h):
        return h, jnp.argmax(h, -1)

    with_largest.defvjp(lambda h: (with_largest(h), h), lambda h, cts: (cts[0] * jnp.cos(h),))

    def loss(w, x, y):
        h, largest = with_largest(x @ w)
        return jnp.mean(h.sum(1) * jnp.where(largest > 1, y, 1))

    assert is_same(step_of(loss))
    rewrite(step_of(loss), microbatches=COUNT, in_axes=AXES)(*arguments())


def test_a_custom_derivative_that_raises_an_error_is_named():
    @jax.custom_jvp
    def not_differentiated(y):
        return y + 0

    @not_differentiated.defjvp
    def rule(primals, tangents):
        raise RuntimeError("a derivative with respect to the data")

    why = proof(step_of(lambda w, x, y: squares(w, x, not_differentiated(lax.stop_gradient(x @ w[0]))).mean()))
    assert "no rule covers custom_jvp_call" in why


def test_an_operation_in_a_jitted_function_of_jax_is_named_by_the_line_of_the_call():
    why = proof(step_of(lambda w, x, y: jax.nn.softplus(squares(w, x, y).mean())))
    assert "no rule covers custom_jvp_call in test_averages.py" in why


def test_the_rest_of_the_step_is_proved_too():
    def of_data(w, x, y):
        return jax.grad(lambda x: squares(w, x, y).mean())(x)

    def scaled(w, x, y):
        value, pullback = jax.vjp(lambda w: squares(w, x, y).mean(), w)
        return pullback(value)

    assert "not proved to be an average" in proof(of_data)
    assert "scales its gradient" in proof(scaled)


def with_auxiliary(auxiliary):
    def step(w, x, y):
        (value, aux), gradient = jax.value_and_grad(
            lambda w: (squares(w, x, y).mean(), auxiliary(w, x, y)), has_aux=True
        )(w)
        return w - gradient, aux, value, len(x)

    return step


@pytest.mark.slow
@pytest.mark.parametrize("count", few([3, 12, 2]))  # with 3, as many examples as features; with 12, one example
@pytest.mark.parametrize(
    "auxiliary",
    [
        squares,
        lambda w, x, y: jnp.mean(x @ w, 0),
        lambda w, x, y: jnp.mean(x @ w, 0, keepdims=True),
        lambda w, x, y: jnp.tanh(w @ x.T) * y,
        lambda w, x, y: {"wrong": (jnp.argmax(x @ w, -1) != 1), "mean": jnp.mean(x @ w)},
        lambda w, x, y: jnp.full((3, len(x)), w.sum() * len(x)) / len(x),
    ],
    ids=range(6),
)
def test_what_is_returned_keeps_its_shape(auxiliary, count):
    step = with_auxiliary(auxiliary)
    assert not proof(step, count)
    expected, found = step(*arguments()), rewrite(step, microbatches=count, in_axes=AXES)(*arguments())
    for one, other in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("count", [5, 24])
def test_a_number_of_microbatches_that_does_not_divide_the_batch_is_named(count):
    with pytest.raises(PlanError, match=f"microbatches={count} does not divide the batch of step"):
        rewrite(step_of(mean_of_squares), microbatches=count, in_axes=AXES)(*arguments())


def gradients_in_a_loop(w, x, y):
    return jax.lax.scan(lambda w, _: (w - jax.grad(mean_of_squares)(w, x, y), None), w, length=2)[0]


@pytest.mark.parametrize("step", [mean_of_squares, gradients_in_a_loop])
def test_a_step_without_a_gradient_at_its_top_level_is_refused(step):
    with pytest.raises(PlanError, match=f"^{step.__name__} takes no gradient outside loops and transformations"):
        rewrite(step, microbatches=COUNT, in_axes=AXES)(*arguments())


def independent_losses(w, x, y):
    return w - jax.grad(mean_of_squares)(w, x, y) - jax.grad(mean_of_squares)(2 * w, x, y)


def alternating(w, x, y):
    """Two players: the second loss reads the weights that the first gradient updated, and averages of both."""
    noise = jax.random.normal(jax.random.key(3), x.shape)

    def first(v):
        return mean_of_squares(v, x + noise, y), jnp.mean(x @ v)

    (value, mean), gradient = jax.value_and_grad(first, has_aux=True)(w)
    updated = w - 0.1 * gradient / jnp.linalg.norm(gradient)
    later = jax.random.normal(jax.random.key(4), x.shape)
    targets = jnp.tanh(x @ updated).sum(1)

    def second(v):
        hidden = jnp.sin((x + later) @ v) @ updated.T
        return jnp.mean(jnp.square(hidden.sum(1) - targets)) + mean, {"largest": jnp.argmax(hidden, 1) == 0}

    (other, aux), second_gradient = jax.value_and_grad(second, has_aux=True)(w)
    scale = jax.grad(lambda s: s * other + s**2 * mean)(jnp.float32(0.5))
    return updated, w - second_gradient, scale, value, other, aux, x


def with_dropout_in_both(w, x, y):
    def loss(v, key):
        return mean_of_squares(v, jnp.where(jax.random.bernoulli(key, 0.5, x.shape), x, 0), y)

    updated = w - jax.grad(loss)(w, jax.random.key(1))
    return updated, jax.value_and_grad(loss)(updated * w, jax.random.key(2))


def generator(w, x, y):
    """The second loss reads the batch's random numbers alone, and not the batch."""
    updated = w - jax.grad(mean_of_squares)(w, x, y)

    def loss(v):
        return -jnp.mean(jnp.tanh(jnp.sin(jax.random.normal(jax.random.key(6), x.shape) @ v) @ updated))

    return updated, jax.value_and_grad(loss)(w)


def actor_and_critic(w, x, y, actor_loss=lambda v, hidden: jnp.mean(jnp.tanh(dropped(hidden, 8) @ v))):
    """The second loss draws random numbers, and reads values of the first loss and weights that it updated."""

    def critic(v):
        features = jnp.sin(jnp.tanh(x @ v) @ v.T)
        return jnp.mean(jnp.square(features.sum(1) - y)), features

    (value, features), gradient = jax.value_and_grad(critic, has_aux=True)(w)
    updated = w - 0.1 * gradient

    def actor(v):
        hidden = jnp.tanh(features @ v) @ updated.T
        return actor_loss(v, hidden + jnp.broadcast_to(updated[:, 0], hidden.shape))

    return updated, value, jax.value_and_grad(actor)(w)


def actor_with_a_checkpoint(w, x, y):
    """The random numbers are inside of a checkpoint, and each trace makes a constant."""

    def loss(v, hidden):
        scales = jnp.asarray(np.linspace(1, 2, 4, dtype=np.float32))
        return jnp.mean(jax.checkpoint(lambda v: jnp.tanh(dropped(hidden, 8) @ v))(v) * scales)

    return actor_and_critic(w, x, y, loss)


def measured_after_the_gradient(w, x, y):
    """The metrics have random numbers, keys and positions of their own."""
    value, gradient = jax.value_and_grad(dropout_in_a_checkpoint)(w, x, y)
    noisy = jnp.abs(x + jax.random.normal(jax.random.key(9), x.shape)).mean()
    layer = lambda h, _: (jnp.tanh(h) * jnp.arange(len(x))[:, None], None)  # noqa: E731
    of_positions = lax.scan(layer, x, None, length=2)[0]
    return w - gradient, value, noisy, of_positions, jax.vmap(dropped)(x, jax.random.split(jax.random.key(8), len(x)))


def measured_between_the_passes(w, x, y):
    value, pullback = jax.vjp(lambda w: mean_of_squares(w, x, y), w)
    noisy = jnp.abs(x + jax.random.normal(jax.random.key(9), x.shape)).mean()
    return pullback(jnp.ones(())), value, noisy


def data_in_a_checkpoint(w, x, y):
    return jax.value_and_grad(lambda w: squares(w, jax.checkpoint(dropped)(x), y).mean())(w)


def gradient_in_a_checkpoint(w, x, y):
    value, gradient = jax.value_and_grad(mean_of_squares)(w, x, y)
    nested = jax.checkpoint(lambda w: jax.checkpoint(jax.grad(mean_of_squares))(w, jnp.sin(x), y))(w)
    return w - gradient, value, nested


def perplexity_in_a_checkpoint(w, x, y):
    value, gradient = jax.value_and_grad(mean_of_squares)(w, x, y)
    return w - gradient, jax.checkpoint(lambda value, x: (jnp.exp(value), jnp.mean(x)))(value, x)


def scaled_by_the_value_of_another_loss(w, x, y):
    value, gradient = jax.value_and_grad(mean_of_squares)(w, x, y)
    return jax.grad(lambda w: mean_of_squares(w, x, y) * value)(w - gradient)


def scaled_by_a_mean_at_other_weights(w, x, y):
    baseline = mean_of_squares(w, x, y)
    w = w - jax.grad(mean_of_squares)(w, jnp.sin(x), y)
    return jax.grad(lambda w: mean_of_squares(w, x, y) * baseline)(w)


def of_examples(w, x, y):
    return jax.vmap(jax.value_and_grad(lambda w, x, y: squares(w, x[None], y[None])[0]), (None, 0, 0))(w, x, y)


def clipped(w, x, y):
    values, each = of_examples(w, x, y)
    norms = jnp.linalg.norm(each, axis=(1, 2))
    total = jnp.einsum("bij,b->ij", each, jnp.minimum(1, 1 / norms))
    noise = jax.random.normal(jax.random.key(5), w.shape)
    return w - (total + noise) / len(x), values.mean(), norms.mean(), jnp.mean(norms > 1), jnp.sum(norms > 1), norms


def norm_of_the_sum_in_a_checkpoint(w, x, y):
    return jax.checkpoint(lambda each: jnp.sum(each, 0) / jnp.linalg.norm(jnp.sum(each, 0)))(of_examples(w, x, y)[1])


def of_checkpointed_examples(w, x, y):
    loss = jax.checkpoint(lambda w, x, y: squares(w, x[None], y[None])[0])
    each = jax.vmap(jax.grad(loss), (None, 0, 0))(w, x, y)
    return jnp.tensordot(1 / jnp.linalg.norm(each, axis=(1, 2)), each, 1)


def clipped_inside(w, x, y):
    def one(x, y):
        gradient = jax.grad(lambda w: jnp.log1p(squares(w, x[None], y[None])[0]))(w)
        return gradient / jnp.maximum(1, jnp.linalg.norm(gradient))

    return w - jax.vmap(one)(x, y).mean(0)


def of_words(w, x, y):
    """The gradients of rows that each example reads, which are scattered."""

    def loss(w, x):
        words = jnp.argsort(x)[:2]
        return jnp.sum(jnp.sin(w[words % len(w)])) + jax.nn.log_softmax(x @ w)[words[0] % w.shape[1]]

    each = jax.vmap(jax.grad(loss), (None, 0))(w, x)
    return w - jnp.sum(jnp.tanh(each), 0)


def of_convolutions(w, x, y):
    def loss(w, x):
        kernel = jnp.broadcast_to(w[:3, None, :3], (3, 1, 3))
        image = jax.lax.conv_general_dilated(
            x[None, :, None], kernel, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")
        )
        return jnp.sum(jnp.sin(image))

    each = jax.vmap(jax.grad(loss), (None, 0))(w, x)
    return w - jnp.sum(each / (1 + jnp.abs(each).max((1, 2), keepdims=True)), 0)


def normalized(w, x, y):
    """All examples' gradients are divided by a sum over these gradients."""
    _, each = of_examples(w, x, y)
    return w - (jnp.tanh(each) / jnp.linalg.norm(each, axis=0)).sum(0)


def adversarial(w, x, y):
    """Each example is moved along the sign of the gradient of its own loss."""
    moved = x + 0.1 * jnp.sign(jax.grad(lambda x: squares(w, x, y).sum())(x))
    return w - jax.grad(mean_of_squares)(w, moved, y)


def runs_of_one_jitted_gradient(w, x, y):
    gradient = jax.jit(jax.grad(mean_of_squares))
    return w - gradient(w, x, y) - gradient(2 * w, x, y)


def jitted_gradient_at_updated_weights(w, x, y):
    gradient = jax.jit(jax.value_and_grad(mean_of_squares))
    _, first = gradient(w, x, y)
    value, second = gradient(w - 0.1 * first, x, y)
    return w - second, value


def test_each_run_of_a_jitted_gradient_is_proved():
    def step(w, x, y):
        gradient = jax.jit(jax.grad(mean_of_squares))
        return w - gradient(w, x, y) - gradient(w, x[::-1], y)

    with pytest.raises(PlanError, match="no rule covers rev"):
        rewrite(step, microbatches=COUNT, in_axes=AXES)(*arguments())


SEVERAL = [
    runs_of_one_jitted_gradient,
    jitted_gradient_at_updated_weights,
    independent_losses,
    alternating,
    with_dropout_in_both,
    generator,
]
SEVERAL += [actor_and_critic, actor_with_a_checkpoint]
SEVERAL += [measured_after_the_gradient, measured_between_the_passes, data_in_a_checkpoint]
SEVERAL += [scaled_by_the_value_of_another_loss, scaled_by_a_mean_at_other_weights]
SEVERAL += [gradient_in_a_checkpoint, perplexity_in_a_checkpoint]
PER_EXAMPLE = [norm_of_the_sum_in_a_checkpoint, of_checkpointed_examples]
PER_EXAMPLE += [clipped, clipped_inside, of_words, of_convolutions, normalized, adversarial]


@pytest.mark.parametrize("count", few([3, COUNT]))
@pytest.mark.parametrize("step", sampled([*SEVERAL, *PER_EXAMPLE], 3))
def test_several_gradients_and_gradients_per_example_stay(step, count):
    assert not proof(step, count)
    expected, found = step(*arguments()), rewrite(step, microbatches=count, in_axes=AXES)(*arguments())
    for one, other in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("around", [lambda loss: loss, jax.checkpoint])
def test_a_value_of_the_length_of_the_batch_and_of_another_gradient_is_refused_inside_of_a_loss(around):
    def step(w, x, y, is_inside):
        norm = jnp.sum(jax.grad(mean_of_squares)(w, x, y) ** 2)
        scale = norm / len(x)
        loss = lambda w: jnp.sum(squares(w, x, y) * (norm / len(x) if is_inside else scale))  # noqa: E731
        return jax.grad(around(loss))(w) * (1 if is_inside else 2)

    changed = rewrite(step, microbatches=COUNT, in_axes=(*AXES, None))
    np.testing.assert_allclose(changed(*arguments(), False), step(*arguments(), False), rtol=1e-4)
    with pytest.raises(PlanError, match="from the length of the batch and from another gradient"):
        changed(*arguments(), True)


@pytest.mark.parametrize("step", [alternating, clipped])
def test_no_array_of_both_passes_is_as_long_as_the_batch(step):
    """With one example per microbatch, all matmuls of a step are as long as one example."""
    shapes = [(8, 4), (64, 8), (64,)]
    args = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    divided = jax.make_jaxpr(rewrite(step, microbatches=32, in_axes=AXES))(*args)
    lengths = [v.aval.shape for eqn in equations(divided) if eqn.primitive.name == "dot_general" for v in eqn.outvars]
    assert lengths and all(64 not in shape for shape in lengths)


def test_a_bias_that_is_broadcast_after_a_gradient_is_broadcast_for_each_microbatch():
    """The only array of the length of the batch is that of the features, which one loss passes to another."""
    args = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((4, 4), (2**16, 4), (2**16,))]
    compiled = rewrite(actor_and_critic, microbatches=32, in_axes=AXES).lower(*args).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 1.5 * 4 * 2**18


def equations(jaxpr):
    for eqn in jaxpr.eqns:
        yield eqn
        for value in eqn.params.values():
            if hasattr(value, "jaxpr"):
                yield from equations(value.jaxpr)


def test_gradients_per_example_that_are_not_added_up_are_refused():
    def largest(w, x, y):
        return w - of_examples(w, x, y)[1].max(0)

    def of_mean(w, x, y):  # each gradient is divided by the length of the batch
        moved = x + jnp.sin(jax.grad(lambda x: squares(w, x, y).mean())(x))
        return w - jax.grad(mean_of_squares)(w, moved, y)

    def of_wrong_mean(w, x, y):
        updated = w - jax.grad(mean_of_squares)(w, x, y)
        return updated, jax.grad(lambda v: jnp.mean(squares(v @ updated.T @ w, x, y)) ** 2)(w)

    for step in (largest, of_mean, of_wrong_mean):
        assert proof(step)
        with pytest.raises(PlanError, match="not proved"):
            rewrite(step, microbatches=COUNT, in_axes=AXES)(*arguments())


@pytest.mark.slow
def test_each_new_length_of_the_batch_is_checked_also_under_jit():
    def loss(w, x, y):  # a mean for the shorter batch only
        return jnp.mean(squares(w, x, y)) if len(x) <= 12 else jnp.sum(squares(w, x, y))

    divided = rewrite(step_of(loss), microbatches=COUNT, in_axes=AXES)
    w, x, y = arguments()
    for call in (divided, jax.jit(divided)):
        np.testing.assert_allclose(call(w, x, y)[0], step_of(loss)(w, x, y)[0], rtol=1e-4, atol=1e-5)
        with pytest.raises(PlanError, match=r"average|differs from that for the whole batch"):
            call(w, jnp.tile(x, (2, 1)), jnp.tile(y, 2))


@pytest.mark.slow
def test_random_numbers_that_the_step_generates_before_its_loss_are_unchanged():
    @jax.jit
    def step(w, x, y):
        key, own = jax.random.split(jax.random.key(7))
        noisy = x + jax.random.normal(own, x.shape)
        value, gradient = jax.value_and_grad(dropout_in_a_checkpoint)(w, noisy, y)
        return w - gradient, value, jax.random.key_data(key)

    assert not proof(step) and is_same(step)


def test_a_sum_may_be_divided_after_the_gradient():
    def step(w, x, y):
        def loss(w):
            errors, weights = squares(w, x, y), jnp.where(y > 0, 1, 2)
            return (errors * weights).sum(), weights.sum()

        (value, count), gradient = jax.value_and_grad(loss, has_aux=True)(w)
        return w - gradient / count, value / count, count

    assert not proof(step, 3) and is_same(step, 3, is_checked=True)
    without_gradient = step_of(lambda w, x, y: jnp.square((x @ w).mean()) + 0 * w.sum())  # 0 is a sum and an average
    with pytest.raises(PlanError, match="not proved to be an average over the examples"):
        rewrite(without_gradient, microbatches=2, in_axes=AXES)(*arguments())


@pytest.mark.slow
def test_a_step_that_ran_before_gets_checkpoints_and_microbatches():
    step = eqx.filter_jit(step_of(dropout_per_example).__wrapped__)
    expected = step(*arguments())
    found = rewrite(step, checkpoint="whole", microbatches=2, in_axes=AXES)(*arguments())
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"microbatches": 2, "in_axes": (None, 0, None)}, {"donate_argnums": 0}])
def test_settings_of_a_returned_model_are_preserved(changes):
    class Model(eqx.Module):
        w: jax.Array
        dropout: eqx.nn.Dropout

    @eqx.filter_jit
    def step(model, x, key):
        def loss(model):
            return jnp.mean(jnp.square(model.dropout(jnp.tanh(x @ model.w), key=key)))

        return eqx.apply_updates(model, eqx.filter_grad(loss)(model)), len(x)

    expected = found = Model(arguments()[0], eqx.nn.Dropout(0.5))
    rewritten = rewrite(step, **changes)
    for i in range(2):
        expected, _ = step(expected, arguments()[1], jax.random.key(i))
        own = jax.tree.map(lambda v: jnp.copy(v) if eqx.is_array(v) else v, found)
        found, length = rewritten(own, arguments()[1], jax.random.key(i))
    assert found.dropout.inference is False and length == 12 and isinstance(length, int)
    np.testing.assert_allclose(found.w, expected.w, rtol=1e-5, atol=1e-6)


@pytest.mark.slow  # it clears JAX's caches, which all tests share
def test_a_step_may_trace_its_loss_more_often_for_the_whole_batch():
    once = step_of(dropout_in_a_checkpoint)

    def step(w, x, y):
        if len(x) == len(arguments()[1]):
            jax.eval_shape(once, w, x, y)
            jax.clear_caches()
        return once(w, x, y)

    assert not proof(step) and is_same(step)


def test_keys_per_example_are_refused_if_fewer_keys_give_other_random_numbers():
    def loss(w, x, y):
        keys = jax.random.split(jax.random.key(0, impl="rbg"), len(x))
        layer = lambda h, row: (jax.vmap(dropped)(jnp.tanh(h * row), keys), None)  # noqa: E731
        return squares(w, lax.scan(layer, x, w)[0], y).mean()

    with pytest.raises(PlanError, match="no rule covers random_bits"):
        rewrite(step_of(loss), microbatches=2, in_axes=AXES)(*arguments())


def test_a_step_that_refuses_a_shorter_batch_without_a_message_is_named():
    def fixed(w, x, y):
        if len(x) != 12:
            raise ValueError
        return squares(w, x, y).mean()

    for how in ("microbatches", "chunks"):
        with pytest.raises(PlanError, match=r"step raises an error with another batch size.*: ValueError"):
            rewrite(step_of(fixed), **{how: COUNT}, in_axes=AXES)(*arguments())


def test_an_error_of_the_step_as_written_is_raised_as_it_is():
    def step(w, x, y):
        raise RuntimeError("no file with weights")

    with pytest.raises(RuntimeError, match="no file with weights"):
        rewrite(step, microbatches=COUNT, in_axes=AXES)(*arguments())


@pytest.mark.slow
def test_axes_count_from_the_end_too():
    for axes in ((None, -2, -1), (None, 0, -1)):
        found = rewrite(step_of(AVERAGES[0]), microbatches=COUNT, in_axes=axes)(*arguments())
        np.testing.assert_allclose(found[0], step_of(AVERAGES[0])(*arguments())[0], rtol=1e-5, atol=1e-6)


def test_another_program_for_another_length_is_detected():
    def chosen(w, x, y):
        one, other = jnp.tanh(w), jnp.tanh(w.T)
        return squares(one if len(x) > 6 else other, x, y).mean() + other.sum() - one.sum()

    def chosen_in_a_loop(w, x, y):
        def layer(x, v):
            one, other = jnp.tanh(v), v + 1
            return x * (one if len(x) > 6 else other) + (one + other).sum(), None

        return squares(w, lax.scan(layer, x, w)[0], y).mean()

    def chosen_after(w, x, y):
        value, gradient = jax.value_and_grad(lambda w: squares(w, x, y).mean())(w)
        mean = jnp.mean(y)
        return w - gradient, (mean, value) if len(x) > 6 else (value, mean)

    for loss in (chosen, chosen_in_a_loop):
        assert proof(step_of(loss))
        with pytest.raises(PlanError, match=r"differs from that for the whole batch|average over the examples"):
            rewrite(step_of(loss), microbatches=COUNT, in_axes=AXES)(*arguments())
    with pytest.raises(PlanError, match="differs from that for the whole batch"):
        rewrite(chosen_after, microbatches=COUNT, in_axes=AXES)(*arguments())


@pytest.mark.slow
def test_the_length_of_the_batch_after_the_gradient_is_that_of_the_whole():
    def step(w, x, y):
        rate = 0.1 * len(x)
        scale = jnp.ones(()) / len(x)
        gradient = jax.grad(lambda w: jnp.sum(squares(w, x, y)) * scale)(w)
        return w - rate * scale * gradient

    assert not proof(step)
    assert is_same(step)


def test_the_proof_does_not_depend_on_the_size_of_the_model():
    large = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((2**16, 2**14), (2**16, 2**16), (2**16,))]

    def why(loss):
        return Subject(step_of(loss), large, {}, None, "cpu").why_no_microbatches(COUNT)

    assert not why(AVERAGES[0])
    assert "no rule covers div in test_averages.py" in why(weighted_mean)
    assert "no rule covers rev" in why(lambda w, x, y: (squares(w, x, y)[::-1] * y).mean())


@pytest.mark.parametrize(("shape", "length"), [((8, -1), 8), ((8 * 3, -1), 24)])
def test_a_batch_size_that_is_a_number_in_the_model_is_named(shape, length):
    def refusal(shape_of):
        def step(w, x):
            return w - jax.grad(lambda w: jnp.square((x * w).reshape(shape_of(x))).mean())(w)

        args = jnp.float32(1), jnp.ones((8, 3, 4))
        return prove(TracedStep(FlatStep(step, args, (None, 0), "step")), 2).why

    assert f"because axis 0 of its result has length {length} for the whole batch and for a microbatch" in refusal(
        lambda _: shape
    )
    assert not refusal(lambda x: (shape[0] * len(x) // 8, -1))
    assert "batch size" not in refusal(lambda x: (4, 3, len(x)))


ALMOST_MEANS = {
    "length plus a small number": lambda w, x: jnp.sin(w * x).sum() / (x.size + 1e-6),
    "length minus a small number": lambda w, x: jnp.sin(w * x).sum() / (x.size - 1e-6),
    "zero times a sum": lambda w, x: jnp.where(
        jnp.isnan(0.0 * jnp.log(w * (x - 0.1)).sum()), 1.0, jnp.sin(w * x).mean()
    ),
}


@pytest.mark.parametrize("loss", ALMOST_MEANS.values(), ids=ALMOST_MEANS)
def test_a_loss_that_is_almost_a_mean_is_refused(loss):
    """The length differs in the eighth digit, and only one part has a NaN."""

    def step(w, x):
        return jax.grad(loss)(w, x)

    with jax.enable_x64(True), pytest.raises(PlanError, match="not proved to be an average"):
        rewrite(step, microbatches=2, in_axes=(None, 0))(jnp.float64(0.5), jnp.linspace(0.0, 1.0, 8))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_an_average_does_not_overflow_while_it_is_added_up(dtype):
    def step(w, x):
        def loss(w):
            return jnp.sin(w * x).mean(), (jnp.abs(w * x) * dtype(1e38)).astype(dtype).sum()

        return jax.value_and_grad(loss, has_aux=True)(w)

    args = dtype(0.3), jnp.ones(8, dtype)
    (_, expected), _ = step(*args)
    (_, found), _ = rewrite(step, microbatches=2, in_axes=(None, 0))(*args)
    assert jnp.isfinite(expected)
    np.testing.assert_allclose(np.float32(found), np.float32(expected), rtol=0.02)


def big(x):
    return (x > -9).astype(jnp.int32) * jnp.int32(3 * 2**27)


OVERFLOWING = {
    "integers in a float": lambda w, x: w * (big(w * x).sum(dtype=jnp.int32) / x.size) + jnp.sin(w * x).mean(),
    "loss in float16": lambda w, x: (jnp.abs(w * x).astype(jnp.float16).mean() * jnp.float16(2**14)).astype(float),
    "mean cast to float8": lambda w, x: (100 * jnp.abs(w * x)).mean().astype(jnp.float8_e4m3fn).astype(float),
}


@pytest.mark.parametrize("loss", OVERFLOWING.values(), ids=OVERFLOWING)
def test_a_loss_that_may_overflow_in_one_microbatch_only_is_refused(loss):
    args = jnp.float32(0.3), jnp.array([0.01] * 4 + [20.0] * 4)
    with pytest.raises(PlanError, match="not proved to be an average"):
        rewrite(jax.value_and_grad(loss), microbatches=2, in_axes=(None, 0))(*args)


def test_an_accuracy_is_an_average():
    """A sum of booleans cannot wrap around."""

    def step(w, x):
        def loss(w):
            return jnp.sin(w * x).mean(), (jnp.sin(w * x) > 0.1).sum() / len(x)

        return jax.value_and_grad(loss, has_aux=True)(w)

    args = jnp.float32(0.3), jnp.linspace(-1.0, 2.0, 8)
    (_, found), _ = rewrite(step, microbatches=2, in_axes=(None, 0))(*args)
    assert found == step(*args)[0][1]


def test_the_name_of_a_value_is_read_once_for_each_operation(monkeypatch):
    read, equations = jax_compat.checkpoint_name, []
    monkeypatch.setattr(jax_compat, "checkpoint_name", lambda eqn: equations.append(eqn) or read(eqn))
    found = flat_program(jax.make_jaxpr(lambda x: checkpoint_name(x, "a") + x)(1.0)).operations
    assert [mark_of(op) for op in (*found, *found)] == [None] * 4
    assert [op.value_name for op in found] == ["a", ""]
    assert equations == [op.eqn for op in found]
