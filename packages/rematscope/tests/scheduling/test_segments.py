"""Segmented loops take less memory than a checkpoint around each iteration, for no more recompute."""

from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from releases import since
from sampling import few
from zoo import normal

from rematscope import PlanError, auto, load_schedule, measure, trace
from rematscope.choices.build import work
from rematscope.scheduling.candidate import CandidatePool
from rematscope.scheduling.divided import divided
from rematscope.scheduling.linearize import linearize
from rematscope.scheduling.schedule import schedule
from rematscope.scheduling.segments import SegmentProposer, worth_dividing

P = {"x": normal(900, 8, 128) / 4, "h": normal(901, 64, 128) / 8}
XS = normal(902, 96, 128, 8)


def cell(p, h, x):
    gate, new = jnp.split(x @ p["x"] + h @ p["h"], 2, -1)
    gate = jax.nn.sigmoid(gate)
    h = gate * h + (1 - gate) * jnp.tanh(new)
    return h, jnp.mean(h * h)


def recurrent(p, xs, checkpoint=lambda step: step, reverse=False):
    step = checkpoint(lambda h, x: cell(p, h, x))
    return jnp.sum(lax.scan(step, jnp.zeros((128, 64)), xs, reverse=reverse)[1] ** 2)


def each_turn(p, xs):
    return recurrent(p, xs, jax.checkpoint)


def again(f):
    cost = trace(f, P, XS).recompute_cost
    return cost.flops + cost.transcendentals


@pytest.mark.slow
def test_a_segmented_loop_takes_less_memory_than_a_checkpoint_per_iteration_for_no_more_recompute(tmp_path):
    turns, work = measure(each_turn, P, XS), again(each_turn)
    fixed = turns.peak_bytes - turns.temp_bytes
    less = auto(recurrent, peak=fixed + int(0.7 * turns.temp_bytes)).plan(P, XS)
    assert less.recomputed <= 1.01 * work
    assert "segments" in less.certificate
    with pytest.raises(PlanError, match=r"a checkpoint around every 4 iterations of the loop at test_segments.py:\d+"):
        print(less.suggested_names)
    gradients, expected = (jax.jit(jax.grad(f, (0, 1)))(P, XS) for f in (less.function, recurrent))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), gradients, expected)
    more = auto(recurrent, peak=turns.peak_bytes).plan(P, XS)
    assert more.recomputed < 0.85 * work
    less.save(tmp_path / "less.json")
    loaded = load_schedule(tmp_path / "less.json", recurrent)
    assert measure(loaded, P, XS).temp_bytes == less.measurement.temp_bytes
    again_within = auto(recurrent, peak=less.limit).plan(P, XS)  # it is known
    assert again_within.measurement.peak_bytes == less.measurement.peak_bytes and len(again_within.trials) == 1


@pytest.mark.slow
def test_segments_of_a_function_with_checkpoints_are_loaded(tmp_path):
    layers = measure(each_turn, P, XS)
    found = auto(each_turn, peak=layers.peak_bytes - int(0.3 * layers.temp_bytes)).plan(P, XS)
    assert "segments" in found.certificate
    found.save(tmp_path / "found.json")
    assert measure(load_schedule(tmp_path / "found.json", each_turn), P, XS).temp_bytes == found.measurement.temp_bytes


@pytest.mark.slow
@pytest.mark.parametrize("loss", few([jnp.mean, lambda x: jnp.sum(x**2), lambda x: jnp.sum(jnp.sin(x)), jnp.max]))
@pytest.mark.parametrize("length", few([64, 48, 96]))
def test_a_loop_is_divided_whatever_the_loss_does_with_its_result(loss, length):
    def f(w, x):
        return loss(lax.fori_loop(0, length, lambda i, x: x + jnp.tanh(jnp.sin(x) @ w), x))

    args = normal(903, 16, 16), normal(904, 256, 16)
    carries = length * args[1].nbytes  # what a checkpoint around each iteration saves
    found = auto(f, peak=int(0.75 * carries)).plan(*args)
    assert found.measurement.peak_bytes <= 0.75 * carries
    gradients, expected = (jax.jit(jax.grad(g, (0, 1)))(*args) for g in (found.function, f))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), gradients, expected)


def test_as_many_iterations_as_fit_are_not_recomputed(monkeypatch):
    """The first stacked residual adds copies, so fewer iterations fit than linear interpolation predicts."""
    linearized = linearize(trace(recurrent, P, XS))
    segmented = SegmentProposer(mock.Mock(cost=work), mock.Mock(linearized=linearized))
    monkeypatch.setattr(
        segmented,
        "_keep_share_of_iterations",
        lambda share: mock.Mock(estimated_bytes=100 + 400 * share + 60 * bool(share)),
    )
    assert (
        max(t.estimated_bytes for t in segmented.propose(230, CandidatePool()) if t.estimated_bytes <= 230)
        > 230 - 400 / 24
    )


@pytest.mark.slow
@pytest.mark.parametrize("reverse", few([True, False]))
def test_iterations_and_their_sums_are_in_the_same_order(reverse):
    """In float16, another order of adding up 96 gradients of the same weights gives another result."""

    def f(p, xs):
        def step(h, x):
            return cell(p, h, x)[0], h[:, :3]

        h, ys = lax.scan(step, jnp.zeros((128, 64), jnp.float16), xs, reverse=reverse)
        return jnp.sum(h) + jnp.sum(ys)

    p, xs = jax.tree.map(lambda a: jnp.asarray(a, jnp.float16), (P, XS))
    linearized = linearize(trace(f, p, xs))
    leaves = jax.tree.leaves((p, xs))

    def gradients_of(linearized):
        made = schedule(linearized, linearized.saved)
        saved = jax.jit(made.forward.__call__)(*leaves)[1:]
        return jax.jit(made.backward.__call__)(*saved, *leaves, jnp.float16(1))

    expected = gradients_of(linearized)
    for iterations, last in [(6, 0), (1, 95)] if reverse else [(8, 16), (96, 0)]:
        found = gradients_of(divided(linearized, [(0, iterations, last)]))
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("segments", [(1, 2, 0), (0, 5, 0), (0, 0, 0), (0, 2, 97)])
def test_segments_that_a_loop_does_not_have_are_refused(segments):
    with pytest.raises(IndexError):
        divided(linearize(trace(recurrent, P, XS)), [segments])


def test_loops_with_few_or_large_iterations_are_not_divided():
    def layers(ws, x):
        return jnp.mean(lax.scan(lambda x, w: (x + jnp.tanh(x @ w) @ w.T, None), x, ws)[0])

    assert not worth_dividing(linearize(trace(layers, jnp.ones((8, 16, 256)), jnp.ones((32, 16)))))
    assert worth_dividing(linearize(trace(recurrent, P, XS)))


@pytest.mark.slow
def test_a_loop_in_a_shard_map_has_a_checkpoint_around_each_iteration():
    mesh = jax.make_mesh((4,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    whole, parts = jax.sharding.PartitionSpec(), jax.sharding.PartitionSpec(None, "data")

    def mapped(p, xs, checkpoint=lambda f: f):
        def loss(p, xs):
            start = jnp.zeros_like(xs[0] @ p["x"][:, :64])
            steps = lax.scan(checkpoint(lambda h, x: cell(p, h, x)), start, xs)[1]
            return lax.pmean(jnp.sum(steps**2), "data")

        return jax.shard_map(loss, mesh=mesh, in_specs=(whole, parts), out_specs=whole)(p, xs)

    found = auto(mapped, peak=measure(lambda p, xs: mapped(p, xs, jax.checkpoint), P, XS).peak_bytes).plan(P, XS)
    gradients, expected = (jax.jit(jax.grad(f))(P, XS) for f in (found.function, mapped))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), gradients, expected)


@pytest.mark.slow
@since("0.11", "XLA on a CPU recomputes what a checkpoint says")
def test_a_loop_without_iterations_is_planned():
    def f(ws, x):
        x = lax.scan(lambda x, w: (jnp.sin(x @ w), x), x, ws[:0])[0]
        for w in ws:
            x = jnp.sin(x @ w)
        return jnp.mean(x * x)

    args = normal(903, 4, 16, 16) / 4, normal(904, 256, 16)
    plain = measure(f, *args)
    found = auto(f, peak=plain.peak_bytes - plain.temp_bytes // 3).plan(*args)
    assert found.recomputed and jnp.allclose(jax.grad(found.function)(*args), jax.grad(f)(*args), rtol=1e-5, atol=1e-6)
