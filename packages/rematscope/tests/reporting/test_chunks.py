"""Losses in chunks: what may be divided, and that the results stay."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import sparse
from normal import normal
from sampling import few, sampled

from rematscope import PlanError, jax_compat, report, rewrite, trace
from rematscope.ir.program import nbytes
from rematscope.reporting.arrays import Arguments
from rematscope.reporting.batch_axis import NotPaired, axes_of, makes_batch, programs_commute, run_part
from rematscope.reporting.chunks import chunked_batch
from rematscope.reporting.rewrite import Changes, losses_of
from rematscope.reporting.subject import Subject
from rematscope.tracing.static_values import is_not_array

COUNT = 3


def equation(f, *args):
    (eqn,) = jax.make_jaxpr(f)(*args).eqns
    return eqn


@pytest.mark.parametrize("shape, axis", [((6, 5), 0), ((5, 6), 1), ((2, 9, 4), 1), ((3,), 0)])
@pytest.mark.parametrize("dtype", few([jnp.uint32, jnp.uint16, jnp.uint8]))
def test_the_random_bits_of_a_part_are_part_of_the_random_bits(shape, axis, dtype):
    def bits(shape):
        return jax.make_jaxpr(lambda key: jax.random.bits(key, shape, dtype))(jax.random.key(3))

    length = shape[axis] // COUNT
    whole, part = (bits(s).eqns[-1] for s in (shape, (*shape[:axis], length, *shape[axis + 1 :])))
    while whole.primitive.name != "random_bits":
        whole, part = (eqn.params["jaxpr"].jaxpr.eqns[-1] for eqn in (whole, part))
    assert makes_batch(whole, part, COUNT)
    expected = np.split(np.asarray(jax.random.bits(jax.random.key(3), shape, dtype)), COUNT, axis)
    for i, each in enumerate(expected):
        found = run_part(whole, [jax.random.key(3)], axis, jnp.asarray(i), length)
        np.testing.assert_array_equal(found, each)


def dropped(key, x):
    return jnp.where(jax.random.bernoulli(key, 0.8, x.shape), x / 0.8, 0)


def attention(x, w):
    weights = jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", x @ w, x) / 4, -1)
    return jnp.einsum("bqk,bkd->bqd", weights, x)


def scan_with_dropout(w, x, y):
    def layer(x, key):
        return x + dropped(key, jnp.tanh(attention(x, w))), None

    x, _ = lax.scan(layer, x, jax.random.split(jax.random.key(1), 3))
    return jnp.mean((x.sum((1, 2)) - y) ** 2)


def checkpointed_scan_with_dropout(w, x, y):
    @jax.checkpoint
    def layer(x, key):
        return x + dropped(key, jnp.tanh(x @ w)), jnp.sum(x, -1)

    x, sums = lax.scan(layer, x, jax.random.split(jax.random.key(1), 3))
    return jnp.mean((x.sum((1, 2)) - y) ** 2) + jnp.mean(sums)


def weighted_mean(w, x, y):
    errors = jnp.sum(jax.nn.relu(x @ w), (1, 2)) - y
    return jnp.sum(jnp.where(y > 0, errors**2, 0)) / jnp.sum(y > 0)


def batch_normalization(w, x, y):
    for _ in range(3):
        x = jnp.tanh(x @ w)
        x = (x - x.mean((0, 1))) * lax.rsqrt(x.var((0, 1)) + 1e-3)
        x = dropped(jax.random.key(4), x)
    return jnp.mean((x.sum((1, 2)) - y) ** 2)


def contrastive_loss(w, x, y):
    one, other = jnp.tanh(x @ w).sum(1), jnp.tanh(x @ w.T).mean(1) * y[:, None]
    return -jnp.mean(jnp.diag(jax.nn.log_softmax(one @ other.T)))


def merged_axes(w, x, y):
    rows = jnp.tanh(x.reshape(-1, x.shape[-1]) @ w).reshape(x.shape)
    positions = jnp.arange(x.shape[0])[:, None, None] + jnp.arange(x.shape[1])[:, None]
    return jnp.mean(jnp.take_along_axis(rows, positions % 8, -1)[..., 0] * y[:, None])


def reversed_batch(w, x, y):
    return jnp.mean(jnp.tanh(x @ w)[::-1].sum((1, 2)) * y + jnp.cumsum(jnp.tanh(x @ w), 0).sum((1, 2)))


def a_vmap(w, x, y):
    keys = jax.random.split(jax.random.key(0), x.shape[0])
    return jnp.mean(jax.vmap(lambda key, x, y: dropped(key, jnp.tanh(x @ w)).sum() * y)(keys, x, y))


def positions_in_a_branch(w, x, y):
    def layers(x):
        return lax.scan(lambda h, _: (jnp.tanh(h @ w) * jnp.arange(len(h))[:, None, None], None), x, None, length=2)[0]

    return jnp.mean(jnp.tanh(lax.cond(w[0, 0] > -9, layers, jnp.tanh, x) @ w).sum((1, 2)) * y)


def reduced_with_the_length(w, x, y):
    sums = lax.reduce(jnp.tanh(x @ w), 0.0, lambda a, b: a + b * len(x), (1, 2))
    return jnp.mean(sums * y)


def sparse_weights(w, x, y):
    weights = sparse.BCOO((w[0], jnp.arange(16).reshape(8, 2) % 8), shape=(8, 8))
    return jnp.mean(jnp.tanh(x @ weights).sum((1, 2)) * y)


def sums_per_class(w, x, y):
    """A soft assignment of all rows to classes, with the mean, the number and the sum of the rows of each class."""
    rows = jnp.tanh(x.reshape(-1, x.shape[-1]))
    shares = jax.nn.softmax(rows @ w, -1)
    assigned = shares > 0.2
    centers = shares.T @ rows / (1 + assigned.sum(0)[:, None])
    return jnp.sum(centers**2) + jnp.sum(jnp.log(shares.mean(0))) * jnp.mean(y)


LOSSES = [
    scan_with_dropout, checkpointed_scan_with_dropout, weighted_mean, batch_normalization, contrastive_loss,
    merged_axes, reversed_batch, a_vmap, positions_in_a_branch, reduced_with_the_length, sparse_weights,
    sums_per_class,
]  # fmt: skip


def step_of(loss):
    @jax.jit
    def step(w, x, y):
        value, gradient = jax.value_and_grad(loss)(w, x, y)
        return value, w - gradient, gradient

    return step


def assert_same_results(step, changed, args):
    expected, found = (jax.tree.leaves(jax.jit(f)(*args)) for f in (step, changed))
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-5 * max(abs(one).max(), 1e-30))


@functools.cache
def arguments():
    w, x, y = normal(9, (8, 8), (12, 5, 8), (12,))
    return w / 3, x, y


OPTIONS: list[dict[str, object]] = [
    {"chunks": 3},
    {"chunks": 2, "checkpoint": "whole"},
    {"chunks": 3, "checkpoint": "whole", "saved": "3 KiB"},
    {"chunks": 12},
]


@pytest.mark.parametrize("options", few(OPTIONS), ids=str)
@pytest.mark.parametrize("loss", sampled(LOSSES, 2), ids=lambda loss: loss.__name__)
def test_a_loss_in_chunks_has_the_same_value_and_gradient(loss, options):
    step = step_of(loss)
    assert_same_results(step, rewrite(step, **options, in_axes=(None, 0, 0)), arguments())


@pytest.mark.slow
def test_the_gradient_of_a_maximum_is_divided_among_all_equal_elements():
    def largest(w, x):
        return jnp.max(jnp.tanh(jnp.where(x > 0, 1.0, 0.0) * w))

    x = jnp.zeros((4, 3)).at[0, :2].set(1).at[1, 0].set(1)  # three elements of two examples are equal
    changed = rewrite(jax.grad(largest), chunks=2, in_axes=(None, 0))
    np.testing.assert_allclose(changed(jnp.ones(3), x), jax.grad(largest)(jnp.ones(3), x), rtol=1e-6)


@pytest.mark.slow
def test_a_loss_that_writes_to_a_mutable_array_is_refused():
    def through_an_array(loss):
        def written(*args):
            ref = jax.new_ref(jnp.zeros(()))
            ref[...] = loss(*args)
            return jnp.sqrt(ref[...])

        return written

    with pytest.raises(PlanError, match="uses mutable arrays"):
        rewrite(jax.grad(through_an_array(weighted_mean)), chunks=3, in_axes=(None, 0, 0))(*arguments())
    with pytest.raises(PlanError, match="uses mutable arrays"):
        rewrite(head_step(through_an_array(masked_loss)), head_chunks=4)(*head_arguments(4, 16, 8, 32))


def test_positions_of_16_bits_are_rounded_once():
    def shifted(w, x):
        return jnp.tanh(jnp.sin(x * w)) + jnp.arange(len(x), dtype=jnp.bfloat16)

    args = jnp.float32(1), jnp.ones(1040)
    np.testing.assert_array_equal(rewrite(shifted, chunks=16, in_axes=(None, 0))(*args), shifted(*args))


@jax.custom_vjp
def clip_gradient(w):
    return w


clip_gradient.defvjp(lambda w: (w, None), lambda _, ct: (ct / (1e-4 + jnp.linalg.norm(ct)),))


def clipped_in_a_scan(w, x, y):
    x, _ = lax.scan(lambda x, w: (jnp.tanh(x @ clip_gradient(w)), None), x, jnp.stack([w, 2 * w]))
    return jnp.mean(x.sum((1, 2)) * y)


def another_layer_for_fewer_examples(w, x, y):
    def layer(x, w):
        one, other = jnp.tanh(w), jnp.tanh(w.T)
        return jnp.tanh(x @ (one if len(x) > 6 else other)) * other.sum(), None

    return jnp.mean(lax.scan(layer, x, jnp.stack([w, 2 * w]))[0].sum((1, 2)) * y)


@pytest.mark.slow
@pytest.mark.parametrize("loss", [clipped_in_a_scan, another_layer_for_fewer_examples], ids=lambda loss: loss.__name__)
def test_a_loop_that_depends_on_the_length_of_the_batch_is_not_divided(loss):
    step = step_of(loss)
    try:
        assert_same_results(step, rewrite(step, chunks=3, in_axes=(None, 0, 0)), arguments())
    except PlanError as error:
        assert "cannot be computed in 3 chunks" in str(error)


@jax.custom_vjp
def clip_examples(x):
    return x


clip_examples.defvjp(lambda x: (x, None), lambda _, ct: (ct / jnp.linalg.norm(ct, axis=(1, 2), keepdims=True),))


def clipped_before_a_mean(w, x, y):
    x = clip_examples(jnp.tanh(x @ w))
    return jnp.mean(jnp.tanh(x - x.mean((0, 1))).sum((1, 2)) * y)


def clipped_in_a_scan_before_a_mean(w, x, y):
    x, _ = lax.scan(lambda x, _: (clip_examples(jnp.tanh(x @ w)), None), x, None, length=2)
    return jnp.mean(jnp.tanh(x - x.mean((0, 1))).sum((1, 2)) * y)


@pytest.mark.parametrize("loss", [clipped_before_a_mean, clipped_in_a_scan_before_a_mean], ids=lambda f: f.__name__)
def test_a_custom_gradient_gets_the_cotangents_of_all_loops_at_once(loss):
    step = step_of(loss)
    changed = rewrite(step, chunks=3, checkpoint="whole", in_axes=(None, 0, 0))
    assert_same_results(step, changed, arguments())


@pytest.mark.parametrize("checkpoint", few(["layers", "whole"]))
def test_loops_over_chunks_recompute_the_values_inside_of_checkpoints(checkpoint):
    step, args = (
        step_of(batch_normalization),
        [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((64, 64), (96, 50, 64), (96,))],
    )
    peaks = [
        rewrite(step, chunks=12, in_axes=(None, 0, 0), **more).lower(*args).compile().memory_analysis()
        for more in ({}, {"checkpoint": checkpoint})
    ]
    assert peaks[1].temp_size_in_bytes < 0.75 * peaks[0].temp_size_in_bytes


def test_sums_over_the_batch_are_computed_in_parts():
    args = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((16, 256), (64, 64, 16), (64,))]
    rows = 4 * 64 * 64 * 256
    changed = rewrite(step_of(sums_per_class), chunks=16, in_axes=(None, 0, 0))
    assert changed.lower(*args).compile().memory_analysis().temp_size_in_bytes < rows


def normalized_layer(x, w):
    h = x @ w
    return jnp.tanh((h - h.mean(0)) / jnp.sqrt(h.var(0) + 1e-3))


def normalized(ws, x):
    return jnp.sum(functools.reduce(normalized_layer, ws, x) ** 3)


def test_the_gradients_of_all_loops_are_added_up_in_one_array():
    loss = rewrite(normalized, chunks=4, checkpoint="whole", in_axes=(None, 0))
    ws = [jax.ShapeDtypeStruct((128, 128), jnp.float32)] * 6
    batch = jax.ShapeDtypeStruct((32, 128), jnp.float32)
    compiled = jax.jit(jax.grad(loss)).lower(ws, batch).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < sum(nbytes(w) for w in ws)


def test_loops_over_chunks_store_results_within_a_limit():
    ws = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((64, 256), (256, 64))] * 3
    batch = jax.ShapeDtypeStruct((32, 64), jnp.float32)

    def traced(**saved):
        changed = rewrite(normalized, chunks=4, checkpoint="whole", in_axes=(None, 0), **saved)
        found = trace(changed, ws, batch)
        return found.saved_bytes(), found.recompute_cost.flops

    least, most = traced()
    results = 32 * 64 * 4
    for limit in (results - 1, results, 3 * results, 100 * results):
        saved, recompute = traced(saved=limit)
        assert saved - least <= limit
        assert (recompute < most) == (limit >= results)
        most = recompute if limit >= results else most


DERIVATIVES = {
    "gradient of the batch": lambda loss: jax.grad(loss, 1),
    "gradient of one weight": lambda loss: lambda ws, x: jax.grad(lambda w: loss([w, *ws[1:]], x))(ws[0]),
    "forward mode": lambda loss: jax.jacfwd(loss),
    "of a vmap": lambda loss: jax.grad(lambda ws, x: jnp.sum(jax.vmap(loss, (0, None))(ws, x))),
    "vmapped": lambda loss: jax.vmap(jax.grad(loss), (0, None)),
    "linearized": lambda loss: lambda ws, x: jax.linearize(loss, ws, x)[1](jnp.cos(ws), jnp.cos(x)),
    "gradient of a gradient": lambda loss: jax.grad(lambda ws, x: sum(jnp.sum(g**2) for g in jax.grad(loss)(ws, x))),
    "hessian": lambda loss: jax.hessian(loss),
}


@pytest.mark.parametrize("name", few(DERIVATIVES, 4))
def test_a_loss_in_chunks_has_the_same_derivatives(name):
    changed = rewrite(normalized, chunks=3, checkpoint="whole", in_axes=(None, 0))
    ws, x = jnp.arange(27.0).reshape(3, 3, 3) / 9 - jnp.eye(3), jnp.sin(jnp.arange(18.0)).reshape(6, 3)
    args = (ws[None], x) if "vmap" in name else (ws, x)
    derivative = DERIVATIVES[name]
    for expected, found in zip(*(jax.tree.leaves(derivative(f)(*args)) for f in (normalized, changed)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=1e-4 * float(jnp.abs(expected).max()))


def compared_with_the_root_of_zero(w, x):
    h = x @ w
    zeros = jnp.sqrt(h * 0.0)  # its derivative is infinite, but no derivative reads it
    h -= h.mean(0)
    return jnp.mean(jnp.where(zeros >= 0, h, 2 * h) ** 2)


def with_a_while_loop_on_the_batch(w, x):
    h = jnp.tanh(x @ w)
    h -= h.mean(0)
    doubled = lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, 2 * c[1]), (0, x))[1]
    return jnp.mean((h * doubled.sum(1, keepdims=True)) ** 2)


@pytest.mark.parametrize("loss", [compared_with_the_root_of_zero, with_a_while_loop_on_the_batch])
@pytest.mark.parametrize("checkpoint", [None, "whole"])
def test_no_derivative_is_taken_of_what_jax_does_not_differentiate(loss, checkpoint):
    x, w = jnp.sin(jnp.arange(32.0)).reshape(8, 4), jnp.eye(4) + 0.5
    changed = rewrite(loss, chunks=4, checkpoint=checkpoint, in_axes=(None, 0))
    np.testing.assert_allclose(jax.grad(changed)(w, x), jax.grad(loss)(w, x), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_the_report_proposes_chunks_with_recompute_for_batch_normalization():
    step = step_of(batch_normalization)
    args = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((64, 64), (96, 50, 64), (96,))]
    whole = report(step, *args, memory="1 GiB").peak_bytes
    found = report(step, *args, memory=int(whole / 3))
    assert found.best is not None and found.best.changes.chunks > 1, found.nothing_fits
    assert found.best.changes.checkpoint == "whole"


def convolutions_with_batch_normalization(kernels, x):
    for kernel in kernels:
        x = lax.conv_general_dilated(x, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = jax.nn.relu((x - x.mean((0, 1, 2))) / jnp.sqrt(x.var((0, 1, 2)) + 1e-3))
    return jnp.sum(x**3)


@pytest.mark.slow
def test_the_report_stores_as_many_results_for_later_loops_as_fit():
    def step(kernels, x):
        gradient = jax.grad(convolutions_with_batch_normalization)(kernels, x)
        return jax.tree.map(jnp.subtract, kernels, gradient)

    kernels = [jax.ShapeDtypeStruct((3, 3, n, n + 8), jnp.float32) for n in (8, 16, 24, 32)]
    args = kernels, jax.ShapeDtypeStruct((128, 32, 32, 8), jnp.float32)
    peak = report(step, *args, memory="1 GiB").peak_bytes
    less, more = (report(step, *args, memory=int(peak / factor)) for factor in (3, 2.5))
    assert less.best is not None and more.best is not None
    assert 0 < less.best.changes.saved < more.best.changes.saved
    (without,) = (f for f in less.fixes if f.changes == dataclasses.replace(less.best.changes, saved=None))
    assert more.best.extra_work <= less.best.extra_work < without.extra_work


@pytest.mark.slow
@pytest.mark.parametrize("loss", few(LOSSES[:3]), ids=lambda loss: loss.__name__)
def test_chunks_lower_the_peak(loss):
    step, args = step_of(loss), [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((64, 64), (96, 50, 64), (96,))]
    peaks = [
        each.lower(*args).compile().memory_analysis().temp_size_in_bytes
        for each in (step, rewrite(step, chunks=12, in_axes=(None, 0, 0)))
    ]
    assert peaks[1] < 0.6 * peaks[0]


def test_a_derivative_that_mixes_examples_is_detected():
    @jax.custom_vjp
    def clipped(x):
        return x

    clipped.defvjp(lambda x: (x, None), lambda _, ct: (ct / (1 + jnp.linalg.norm(ct)),))
    programs = [jax.make_jaxpr(clipped)(jnp.ones((n, 4))) for n in (9, 3)]
    assert not programs_commute(*programs, COUNT)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x[::-1], lambda x: jnp.cumsum(x, 0), lambda x: jnp.sort(x, 0), lambda x: x @ x.T,
        lambda x: jnp.roll(x, 1, 0), lambda x: x - x.mean(0), lambda x: jax.nn.softmax(x, 0),
        lambda x: x.T.reshape(-1), lambda x: jnp.pad(x, ((1, 0), (0, 0)))[:-1], lambda x: x[jnp.argsort(x[:, 0])],
        lambda x: lax.scan(lambda c, x: (c + x, c), x[0], x)[1], lambda x: jnp.linalg.qr(x)[0],
        lambda x: x.reshape(3, -1, 4)[:, ::-1].reshape(-1, 4), lambda x: x * jnp.max(x),
    ],
)  # fmt: skip
def test_operations_that_mix_examples_do_not_commute_with_slicing(f):
    programs = [jax.make_jaxpr(f)(jnp.ones((n, 4))) for n in (9, 3)]
    assert not programs_commute(*programs, COUNT)


def test_the_loss_is_recorded_without_its_gradient():
    passes = []

    @jax.custom_vjp
    def sine(x):
        return jnp.sin(x)

    def forward(x):
        passes.append("forward")
        return jnp.sin(x), x

    sine.defvjp(forward, lambda x, ct: (jnp.cos(x) * ct,))
    step, args = step_of(lambda w, x, y: jnp.mean((sine(x @ w).sum((1, 2)) - y) ** 2)), arguments()
    (loss,) = losses_of(step, Arguments(args, {}, is_not_array), [None, 0, 0], Changes(chunks=3), True)
    assert [v.aval.shape for v in loss.jaxpr.outvars] == [()]
    assert not passes
    assert_same_results(step, rewrite(step, chunks=3, in_axes=(None, 0, 0)), args)


@pytest.mark.slow
def test_a_loss_may_depend_on_the_gradient_of_another_loss():
    def step(w, x, y):
        value, first = jax.value_and_grad(scan_with_dropout)(w, x, y)
        other, second = jax.value_and_grad(lambda v: weighted_mean(v, x, y * value) + jnp.sum(first * v))(w - first)
        return w - second, value, other

    losses = losses_of(step, Arguments(arguments(), {}, is_not_array), [None] * 3, Changes(), True)
    assert len(losses) == 2
    assert_same_results(step, rewrite(step, chunks=3, in_axes=(None, 0, 0)), arguments())


def test_operations_with_different_numbers_of_results_do_not_pair():
    variables = jax.make_jaxpr(lambda x, y: x + y)(jnp.ones(4), jnp.ones(4)).jaxpr.invars
    with pytest.raises(NotPaired):
        axes_of(variables, variables[:1], 2)

    @jax.checkpoint
    def sines(x):
        return [jnp.sin(x) for _ in range(len(x) // 2)]

    whole, part = (jax.make_jaxpr(lambda x: jnp.sum(sines(x)[0]))(jnp.ones(n)) for n in (4, 2))
    with pytest.raises(NotPaired):
        chunked_batch(whole, part, 2)


def test_a_batch_that_the_chunks_do_not_divide_is_refused():
    with pytest.raises(PlanError, match="chunks=5 does not divide the batch"):
        rewrite(step_of(weighted_mean), chunks=5, in_axes=(None, 0, 0))(*arguments())
    with pytest.raises(PlanError, match="does not match the arguments"):
        rewrite(step_of(weighted_mean), chunks=3, in_axes=(None, {"x": 0}, 0))(*arguments())


# Heads of language models: losses of the hidden values and targets of all tokens.


def hidden_values(params, tokens):
    """Values to which other tokens contribute, as attention does."""
    h = params["embedding"][tokens[:, :-1]]
    weights = jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", h, h) * jnp.tri(h.shape[1], dtype=h.dtype))
    return h + jnp.tanh(weights @ h @ params["square"])


def losses_of_tokens(logits, targets):
    logits = logits.astype(jnp.float32)
    return jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]


def mean_loss(params, h, targets, mask):
    return losses_of_tokens(h @ params["out"] + params["bias"], targets).mean()


def masked_loss(params, h, targets, mask):
    return (losses_of_tokens(h @ params["out"], targets) * mask).sum() / mask.sum()


def merged_tokens(params, h, targets, mask):
    rows = h.reshape(-1, h.shape[-1])
    return losses_of_tokens(rows @ params["out"], targets.reshape(-1)).mean()


def label_smoothing(params, h, targets, mask):
    log_p = jax.nn.log_softmax(h @ params["out"] + params["bias"])
    smooth = 0.9 * jax.nn.one_hot(targets, log_p.shape[-1], dtype=log_p.dtype) + 0.1 / log_p.shape[-1]
    return -(log_p * smooth).sum(-1).mean()


def z_loss(params, h, targets, mask):
    logits = h @ params["out"]
    return losses_of_tokens(logits, targets).mean() + 1e-2 * (jax.nn.logsumexp(logits, -1) ** 2).mean()


def rows_by_position(params, h, targets, mask):
    log_p = jax.nn.log_softmax(h @ params["out"])
    return -(log_p[jnp.arange(h.shape[0])[:, None], jnp.arange(h.shape[1]), targets] * mask).sum() / mask.sum()


def checkpointed_head(params, h, targets, mask):
    return jax.checkpoint(lambda w, h: losses_of_tokens(h @ w, targets))(params["out"], h).mean()


def relu_of_logits(params, h, targets, mask):
    return losses_of_tokens(jax.nn.relu(h @ params["out"] + params["bias"]), targets).mean()


def sigmoid_of_logits(params, h, targets, mask):
    logits, labels = h @ params["out"], jax.nn.one_hot(targets, params["out"].shape[1])
    return -(labels * jax.nn.log_sigmoid(logits) + (1 - labels) * jax.nn.log_sigmoid(-logits)).sum(-1).mean()


def tied_embeddings(params, h, targets, mask):
    return losses_of_tokens(jnp.einsum("btd,vd->btv", h, params["embedding"]), targets).mean()


def soft_cap_and_dropout(params, h, targets, mask):
    return losses_of_tokens(dropped(jax.random.key(1), 5 * jnp.tanh(h @ params["out"] / 5)), targets).mean()


def generated_positions(params, h, targets, mask):
    logits = h @ params["out"]
    positions = jnp.arange(logits[0].size).reshape(logits.shape[1:])
    return losses_of_tokens(logits * jnp.where(positions % 3 == 0, 0.5, 1), targets).mean()


def cumulative_sum(params, h, targets, mask):
    losses = losses_of_tokens(h @ params["out"], targets)
    return (losses * jnp.exp(-0.1 * jnp.cumsum(losses, 1))).mean()


def softmax_over_tokens(params, h, targets, mask):
    return -jnp.take_along_axis(jax.nn.log_softmax(h @ params["out"], 1), targets[..., None], -1).mean()


def shifted_logits(params, h, targets, mask):
    logits = h @ params["out"]
    return losses_of_tokens(logits, targets).mean() + ((logits[:, 1:] - logits[:, :-1]) ** 2).mean()


def contrast_of_tokens(params, h, targets, mask):
    scores = h[0] @ (h[0] @ params["square"]).T
    return -jnp.diag(jax.nn.log_softmax(scores, 0) + jax.nn.log_softmax(scores, 1)).mean()


HEADS = [
    masked_loss, label_smoothing, merged_tokens, z_loss, tied_embeddings, soft_cap_and_dropout, generated_positions,
    rows_by_position, checkpointed_head, relu_of_logits, sigmoid_of_logits, mean_loss, cumulative_sum,
    softmax_over_tokens, shifted_logits, contrast_of_tokens,
]  # fmt: skip
ALWAYS_DIVIDED = HEADS[:13]


def head_step(head):
    def loss(params, tokens, mask):
        return head(params, hidden_values(params, tokens), tokens[:, 1:], mask[:, 1:])

    return lambda *args: jax.value_and_grad(loss)(*args)


def head_arguments(batch, length, width, words, dtype=jnp.float32):
    shapes = {"embedding": (words, width), "square": (width, width), "out": (width, words), "bias": (words,)}
    keys = iter(jax.random.split(jax.random.key(5), 6))
    params = {name: (jax.random.normal(next(keys), shape) / width**0.5).astype(dtype) for name, shape in shapes.items()}
    tokens = jax.random.randint(next(keys), (batch, length + 1), 0, words)
    return params, tokens, (jax.random.uniform(next(keys), (batch, length + 1)) > 0.3).astype(jnp.float32)


@pytest.mark.slow
@pytest.mark.parametrize("batch", few([1, 3]))
@pytest.mark.parametrize("head", sampled(HEADS, 6), ids=lambda head: head.__name__)
def test_a_head_in_chunks_of_tokens_has_the_same_value_and_gradient(head, batch):
    step = head_step(head)
    try:
        assert_same_results(step, rewrite(step, head_chunks=4), head_arguments(batch, 16, 8, 32))
    except PlanError as error:
        assert head not in ALWAYS_DIVIDED
        assert "head_chunks=4" in str(error)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(jax.config, "jax_remat3"), reason="this JAX has no remat3")
def test_a_checkpointed_head_with_a_name_is_divided_with_remat3():
    @functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.nothing_saveable)
    def losses(w, h, targets):
        return losses_of_tokens(checkpoint_name(h @ w, "logits"), targets)

    step, args = head_step(lambda params, h, targets, _: losses(params["out"], h, targets).mean()), (1, 16, 8, 32)
    with jax_compat.use_remat3(True):
        assert_same_results(step, rewrite(step, head_chunks=4), head_arguments(*args))


@pytest.mark.slow
@pytest.mark.parametrize("head", few([masked_loss, mean_loss, z_loss, label_smoothing]), ids=lambda f: f.__name__)
def test_chunks_of_one_example_have_the_same_gradient_and_a_lower_peak(head):
    def loss(params, h, tokens, mask):
        return head(params, jnp.tanh(h @ params["square"]), tokens[:, 1:], mask[:, 1:])

    (params, *data), h = head_arguments(4, 16, 8, 128), jax.random.normal(jax.random.key(1), (4, 16, 8))
    args, step = (params, h, *data), jax.value_and_grad(loss)
    chunked = (rewrite(step, chunks=count, in_axes=(None, 0, 0, 0)) for count in (2, 4))
    two, four = chunked
    assert_same_results(step, four, args)
    peaks = [jax.jit(f).lower(*args).compile().memory_analysis().temp_size_in_bytes for f in (two, four)]
    assert peaks[1] < 0.85 * peaks[0]


def variance_of_tokens(params, h, targets, mask):
    """Reduces the hidden values over the tokens, outside of the head, also where the batch is divided."""
    return mean_loss(params, h, targets, mask) + ((h - h.mean(1, keepdims=True)) ** 2).mean()


@pytest.mark.slow
@pytest.mark.parametrize("head", [variance_of_tokens, *sampled(ALWAYS_DIVIDED, 4)], ids=lambda head: head.__name__)
def test_axes_of_one_length_are_not_confused(head):
    step = head_step(head)
    assert_same_results(step, rewrite(step, head_chunks=4), head_arguments(8, 8, 8, 8))


@pytest.mark.slow
@pytest.mark.parametrize("head", ALWAYS_DIVIDED, ids=lambda head: head.__name__)
def test_a_head_in_chunks_of_tokens_has_little_more_rounding_error_than_the_whole_head(head):
    step, (params, *data) = head_step(head), head_arguments(1, 16, 8, 32, jnp.bfloat16)
    exact = step(jax.tree.map(lambda v: v.astype(jnp.float32), params), *data)
    errors = []
    for each in (step, rewrite(step, head_chunks=4)):
        pairs = zip(*(jax.tree.leaves(found) for found in (exact, jax.jit(each)(params, *data))), strict=True)
        errors.append(np.linalg.norm([np.linalg.norm(np.float32(a) - np.float32(b)) for a, b in pairs]))
    assert errors[1] < 2 * errors[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "change", [{"head_chunks": 256}, {"chunks": 256, "in_axes": (None, 0, 0)}], ids=lambda change: next(iter(change))
)
def test_gradients_of_16_bit_weights_are_added_up_in_32_bits(change):
    """Few labels give coherent gradients: added up in bfloat16, they stop growing after some hundred chunks."""

    def loss(params, x, labels):
        h = jnp.tanh(x @ params["w"]).astype(x.dtype)
        logits = (h @ params["out"] + params["bias"]).astype(jnp.float32)
        return (jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, labels[:, None], -1)[:, 0]).mean()

    rng = np.random.default_rng(0)
    shapes = {"w": (16, 16), "out": (16, 32), "bias": (32,)}
    params = {name: jnp.asarray(rng.normal(size=shape) / 4, jnp.bfloat16) for name, shape in shapes.items()}
    x, labels = jnp.asarray(rng.normal(size=(2048, 16)) + 0.5, jnp.bfloat16), jnp.asarray(rng.integers(0, 4, 2048))
    widened = jax.tree.map(lambda v: v.astype(jnp.float32), (params, x))
    exact = jax.grad(loss)(*widened, labels)
    plain, chunked = (jax.jit(step)(params, x, labels) for step in (jax.grad(loss), rewrite(jax.grad(loss), **change)))
    for name, wanted in exact.items():
        assert chunked[name].dtype == jnp.bfloat16
        errors = [np.linalg.norm(np.float32(found[name]) - wanted) for found in (plain, chunked)]
        assert errors[1] < 1.5 * errors[0], (name, errors, np.linalg.norm(wanted))


@pytest.mark.slow
@pytest.mark.parametrize("head", sampled(ALWAYS_DIVIDED, 4), ids=lambda head: head.__name__)
def test_a_head_in_chunks_of_tokens_lowers_the_peak(head):
    def loss(params, h, tokens, mask):
        return head(params, h, tokens[:, 1:], mask[:, 1:])

    def step(*args):
        return jax.grad(loss, (0, 1))(*args)

    params, tokens, mask = jax.eval_shape(lambda: head_arguments(1, 2048, 64, 16384))
    args = params, jax.ShapeDtypeStruct((1, 2048, 64), jnp.float32), tokens, mask
    peaks = [
        jax.jit(each).lower(*args).compile().memory_analysis().temp_size_in_bytes
        for each in (step, rewrite(step, head_chunks=16))
    ]
    assert peaks[1] < 0.3 * peaks[0]


@pytest.mark.slow
def test_logits_that_the_loss_returns_are_not_computed_in_chunks():
    def loss(params, tokens, mask):
        logits = hidden_values(params, tokens) @ params["out"]
        return losses_of_tokens(logits, tokens[:, 1:]).mean(), logits

    step = rewrite(lambda *args: jax.grad(loss, has_aux=True)(*args), head_chunks=4)
    with pytest.raises(PlanError, match="must not return the result of this matmul"):
        step(*head_arguments(2, 16, 8, 32))


@pytest.mark.slow
def test_the_report_proposes_the_head_in_chunks_of_an_odd_number_of_tokens():
    step, args = head_step(masked_loss), head_arguments(1, 511, 16, 4096)
    found = report(step, *args, memory="6 MiB")
    assert found.best is not None
    assert "head_chunks=7" in found.best.snippet


@pytest.mark.slow
@pytest.mark.parametrize("dtype", few([jnp.bfloat16, jnp.float16]))
def test_chunks_have_no_more_rounding_error_than_the_whole_batch(dtype):
    def gradient(w, x, y):
        return jax.grad(contrastive_loss)(w, x, y)

    args = [argument.astype(dtype) for argument in arguments()]
    exact = gradient(*(argument.astype(jnp.float32) for argument in args))
    whole = jax.jit(gradient)(*args)
    found = rewrite(gradient, chunks=4, in_axes=(None, 0, 0))(*args)
    errors = [float(jnp.linalg.norm(each.astype(jnp.float32) - exact)) for each in (whole, found)]
    assert errors[1] < 2 * errors[0]


def mean_first(w, x, y):
    return jnp.sum(x.mean(0) @ w)


def another_function_for_few_examples(w, x, y):
    return jnp.mean(jnp.tanh(x @ w) if len(x) > 6 else jnp.sin(x @ w))


def no_examples(w, x, y):
    return jnp.mean(jnp.tanh(w) @ w)


@pytest.mark.parametrize(
    ("loss", "why"),
    [
        (mean_first, r"reduce_sum in .*test_chunks.py:\d+ \(mean_first\) needs the whole batch"),
        (
            another_function_for_few_examples,
            r"differs at .*test_chunks.py:\d+ \(another_fun.*, with sin in place of tanh",
        ),
        (no_examples, r"the loss that starts with .*test_chunks.py:\d+ \(no_examples\) does not read the batch"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_an_error_names_the_operation_and_the_line_that_keep_a_loss_from_chunks(loss, why):
    with pytest.raises(PlanError, match=why):
        rewrite(step_of(loss), chunks=3, in_axes=(None, 0, 0))(*arguments())


WEAK = jnp.full((8, 8), 0.3), jnp.full((256, 8), 0.07)
WEAK_LOSSES = {
    "Gram matrix": lambda h, w: (jnp.sum(h), h.T @ h),
    "maximum": lambda h, w: (jnp.max(h), h[0]),
    "normalized": lambda h, w: (jnp.sum(jnp.sin(h - h.mean(0)) @ w), h),
}


@pytest.mark.parametrize("options", [{"chunks": 4, "in_axes": (None, 0)}, {"head_chunks": 4}])
@pytest.mark.parametrize("weak", few([(True, False), (True, True), (False, True)]))
@pytest.mark.parametrize("name", WEAK_LOSSES)
def test_results_and_gradients_in_chunks_have_weak_types_where_those_of_jax_have(name, weak, options):
    args = [v if is_weak else jnp.asarray(v, v.dtype) * jnp.float32(1) for v, is_weak in zip(WEAK, weak, strict=True)]
    assert [v.weak_type for v in args] == [*weak]

    def step(w, x):
        (value, other), gradients = jax.value_and_grad(
            lambda w, x: WEAK_LOSSES[name](jnp.sin(x @ w), w), argnums=(0, 1), has_aux=True
        )(w, x)
        # A weak type decides the dtype of the sum.
        return value, other, gradients, jax.tree.map(lambda g: g + jnp.ones((), jnp.bfloat16), gradients)

    found, expected = rewrite(step, **options)(*args), step(*args)
    assert jax.tree.map(jax.typeof, found) == jax.tree.map(jax.typeof, expected)
    for one, other in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        np.testing.assert_allclose(np.float32(one), np.float32(other), rtol=1e-2, atol=1e-3)


def test_a_step_that_is_not_jitted_may_call_its_loss_with_numbers():
    def step(w, x, scale, rate):
        value, gradient = jax.value_and_grad(lambda w: jnp.mean(jnp.sin(jnp.sin(x @ w * scale) @ w)))(w)
        return w - rate * gradient, value

    w, x = jnp.eye(8) / 2, jnp.linspace(-1, 2, 128).reshape(16, 8)
    changed = rewrite(step, chunks=2, in_axes=(None, 0, None, None))
    for numbers in ((2.0, 0.1), (3, 0.1), (np.float32(3), 1)):
        for one, other in zip(changed(w, x, *numbers), step(w, x, *numbers), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_the_statistics_of_batch_normalization_change_in_chunks_without_jit():
    def step(model, x):
        value, gradient = nnx.value_and_grad(lambda model: jnp.mean(jnp.sin(model(jnp.sin(x))) ** 2))(model)
        nnx.update(model, jax.tree.map(lambda p, g: p - 0.1 * g, nnx.state(model, nnx.Param), gradient))
        return value

    models = [nnx.BatchNorm(8, rngs=nnx.Rngs(0)) for _ in range(2)]
    x = jnp.linspace(-1, 2, 128).reshape(16, 8)
    np.testing.assert_allclose(
        rewrite(step, chunks=2, in_axes=(None, 0))(models[0], x), step(models[1], x), rtol=1e-4, atol=1e-6
    )
    for one, other in zip(*(jax.tree.leaves(nnx.state(model)) for model in models), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_a_loss_that_does_not_read_the_batch_stays_if_another_one_is_divided():
    def step(w, scale, x):
        def loss(w):
            hidden = jnp.sin(
                x @ w
            )  # centered, so that microbatches along an axis do not prove that it is that of the batch
            return jnp.mean(jnp.sin((hidden - hidden.mean(0)) @ w) ** 2) * jnp.exp(scale)

        values, gradient = jax.value_and_grad(loss)(w)
        return w - gradient, scale - jax.grad(lambda s: jnp.exp(s) * (values + 1))(scale)

    args = jnp.eye(8) / 2, jnp.float32(0.5), jnp.linspace(-1, 2, 128).reshape(16, 8)
    assert_same_results(step, rewrite(step, chunks=4, in_axes=(None, None, 0)), args)
    assert Subject(step, args, {}, None, "cpu").in_axes == (None, None, 0)


@pytest.mark.parametrize("wrap", [lambda step: step, jax.jit])
def test_a_jitted_loss_that_reads_no_batch_is_refused_at_each_call(wrap):
    gradient = jax.jit(jax.grad(lambda w: jnp.sum(jnp.tanh(w @ w))))
    step = rewrite(wrap(lambda w, x: w - gradient(w) * x.mean()), chunks=2, in_axes=(None, 0))
    for _ in range(2):
        with pytest.raises(PlanError, match="does not read the batch"):
            step(jnp.eye(4), jnp.ones((8, 4)))


@pytest.mark.parametrize("place", ["segments", "halves of layers"])
def test_checkpoints_may_include_other_operations_for_a_part_of_the_batch(place):
    widths = [64, 4, 2, 4, 2, 4, 16]  # the weights are larger than the activations of some layers for a part only

    def loss(ws, x):
        total = x.sum(0)
        for w in ws:
            x = jnp.tanh(x @ w)
        return jnp.mean(x**2) + total.sum()

    ws = [jnp.linspace(-1, 1, a * b).reshape(a, b) for a, b in itertools.pairwise(widths)]
    args = ws, jax.random.normal(jax.random.key(0), (8, 64))
    changed = rewrite(jax.grad(loss), chunks=8, checkpoint=place, in_axes=(None, 0))
    if place == "segments":
        assert_same_results(jax.grad(loss), changed, args)
    else:
        with pytest.raises(PlanError, match="checkpoints for a part of the batch include other operations"):
            changed(*args)
