"""`rewrite` inside a shard_map, and with explicit mesh axes: gradients as written, or a sentence."""

import functools

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding, reshard
from jax.sharding import PartitionSpec as P
from normal import normal
from sampling import sampled

import rematscope
from rematscope import PlanError, rewrite

WIDTH = 8
MESH = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,))
EVERYWHERE = [{"checkpoint": "layers"}, {"checkpoint": "whole"}, {"head_chunks": 2}]
DIVIDED = [
    {"chunks": 2, "in_axes": (None, 0)},
    {"checkpoint": "layers", "chunks": 2, "in_axes": (None, 0)},
    {"microbatches": 2, "in_axes": (None, 0)},
]


def loss(weights, x):
    h = x
    for _ in range(3):
        h = jnp.tanh(h @ weights["hidden"]) + h
    return ((h @ weights["out"]) ** 2).mean()


def across(loss, weights, x):
    return lax.pmean(loss(weights, x), "d")


def step(weights, x):
    value, gradient = jax.value_and_grad(loss)(weights, x)
    value, gradient = lax.pmean((value, gradient), "d")
    return value, jax.tree.map(jnp.subtract, weights, gradient)


def arguments():
    hidden, out, x = normal(0, (WIDTH, WIDTH), (WIDTH, WIDTH), (16, WIDTH), dtype=float)
    return {"hidden": hidden, "out": out}, x


def sharded(f, checks):
    return jax.jit(jax.shard_map(f, mesh=MESH, in_specs=(P(), P("d")), out_specs=P(), check_vma=checks))


def assert_same(found, expected):
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert jnp.allclose(one, other, rtol=1e-12, atol=1e-12)


# These are module-level, so that all tests share their compiled programs.
GRADIENT_OF_SHARDED = {
    checks: jax.jit(jax.value_and_grad(sharded(functools.partial(across, loss), checks))) for checks in (True, False)
}
SHARDED_STEP = sharded(step, False)


@pytest.mark.parametrize("checks", [True, False])
@pytest.mark.parametrize("options", EVERYWHERE, ids=str)
def test_checkpoints_in_a_loss_inside_a_shard_map(options, checks):
    with jax.enable_x64(True):
        inside = functools.partial(across, rewrite(loss, **options))
        found = jax.jit(jax.value_and_grad(sharded(inside, checks)))(*arguments())
        assert_same(found, GRADIENT_OF_SHARDED[checks](*arguments()))


@pytest.mark.parametrize("options", [*EVERYWHERE, *DIVIDED], ids=str)
def test_a_step_with_collectives_inside_a_shard_map(options):
    with jax.enable_x64(True):
        assert_same(sharded(rewrite(step, **options), False)(*arguments()), SHARDED_STEP(*arguments()))


@pytest.mark.parametrize("options", DIVIDED, ids=str)
def test_parts_of_a_batch_that_varies_over_devices_are_refused(options):
    with pytest.raises(PlanError, match=r"check_vma=True.*Rewrite the function that contains the shard_map"):
        sharded(rewrite(step, **options), True)(*arguments())


@pytest.mark.parametrize("checks", [True, False])
def test_auto_inside_a_shard_map_is_refused(checks):
    with pytest.raises(PlanError, match="auto= does not work inside a shard_map"):
        sharded(functools.partial(across, rewrite(loss, auto="1 GiB")), checks)(*arguments())


def gradient_step(weights, x):
    value, gradient = jax.value_and_grad(loss)(weights, x)
    return value, jax.tree.map(jnp.subtract, weights, gradient)


GRADIENT_STEP = jax.jit(gradient_step)


@pytest.mark.parametrize("spec", [P(), P("d")])
@pytest.mark.parametrize("options", [{"checkpoint": "layers"}, {"head_chunks": 2}, *DIVIDED], ids=str)
def test_explicit_axes_of_the_batch(options, spec):
    mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Explicit,))
    with jax.enable_x64(True), jax.set_mesh(mesh):
        weights, x = arguments()
        weights = jax.device_put(weights, NamedSharding(mesh, P()))
        x = jax.device_put(x, NamedSharding(mesh, spec))
        if spec == P("d") and not {"chunks", "head_chunks"}.isdisjoint(options):
            with pytest.raises(PlanError, match="it is sharded over explicit mesh axes along this axis"):
                rewrite(gradient_step, **options)(weights, x)
        else:
            assert_same(jax.jit(rewrite(gradient_step, **options))(weights, x), GRADIENT_STEP(weights, x))


def normalized(weights, x):
    h = jnp.tanh(x @ weights["hidden"])
    h = h - lax.pmean(h.mean(0), "d")
    return lax.pmean(loss(weights, h / jnp.sqrt(lax.pmean((h * h).mean(0), "d"))), "d")


def normalized_step(weights, x):
    value, gradient = jax.value_and_grad(normalized)(weights, x)
    return value, jax.tree.map(jnp.subtract, weights, lax.psum(gradient, "d"))


SHARDED_NORMALIZED_STEP = sharded(normalized_step, False)


@pytest.mark.parametrize("options", [*EVERYWHERE, *DIVIDED], ids=str)
def test_a_loss_with_collectives_inside_a_shard_map(options):
    with jax.enable_x64(True):
        if "microbatches" in options:
            with pytest.raises(PlanError, match="not proved to be an average"):
                sharded(rewrite(normalized_step, **options), False)(*arguments())
        else:
            found = sharded(rewrite(normalized_step, **options), False)(*arguments())
            assert_same(found, SHARDED_NORMALIZED_STEP(*arguments()))


def language_model(weights, tokens, key=None):
    hidden, out = (reshard(weights[name], P()) for name in ("hidden", "out"))
    (rows, *_) = jax.typeof(tokens).sharding.spec
    h = hidden.at[tokens % WIDTH].get(out_sharding=P(rows))
    h, _ = lax.scan(jax.checkpoint(lambda h, _: (h + jnp.tanh(h @ hidden), None)), h, None, length=2)
    if key is not None:
        h = jnp.where(jax.random.bernoulli(key, 0.7, h.shape), h, 0.0)
    chosen = jax.nn.one_hot(tokens % WIDTH, WIDTH)
    return -(jax.nn.log_softmax(h @ out) * chosen).sum(-1).mean()


def train(weights, x):
    value, gradient = jax.value_and_grad(language_model)(weights, jnp.argsort(x))
    return value, jax.tree.map(jnp.subtract, weights, gradient)


def dropout(weights, x):
    gradient = jax.grad(language_model)(weights, jnp.argsort(x), jax.random.key(3))
    return jax.tree.map(jnp.subtract, weights, gradient)


def each_example(weights, x):
    def both(weights):
        h = jnp.tanh(x @ reshard(weights["hidden"], P()))
        return (h @ reshard(weights["out"], P())).mean(), h

    (value, h), gradient = jax.value_and_grad(both, has_aux=True)(weights)
    return value, h, h.sum(-1), gradient


def two_gradients(weights, x):
    hidden, out = (reshard(weights[name], P()) for name in ("hidden", "out"))
    hidden -= jax.grad(lambda w: (jnp.tanh(x @ w) ** 2).mean())(hidden)
    h = jnp.tanh(x @ hidden)
    return hidden, h, out - jax.grad(lambda w: ((h @ w) ** 2).mean())(out)


def noise(weights, x):
    z = jax.random.normal(jax.random.key(1), x.shape, out_sharding=jax.typeof(x).sharding)
    return jax.grad(lambda w: (jnp.tanh((x + z) @ w) ** 2).mean())(reshard(weights["hidden"], P()))


def clipped(weights, x):
    of_one = jax.grad(lambda w, row: (jnp.tanh(row @ w) ** 2).sum())
    each = jax.vmap(of_one, (None, 0))(reshard(weights["hidden"], P()), x)
    return (each / jnp.maximum(1, jnp.sqrt((each**2).sum((1, 2), keepdims=True)))).sum(0) / len(x)


def two_rows(weights, x):
    def of_rows(w):
        both = lax.reshape(jnp.tanh(x @ w), (len(x) // 2, 2, WIDTH), out_sharding=P(jax.typeof(x).sharding.spec[0]))
        return both.max(1).mean()

    return jax.grad(of_rows)(reshard(weights["hidden"], P()))


def of_pairs(weights, x):
    def pairs(w):
        one, other = jnp.split(jnp.tanh(jnp.concatenate([x, -2 * x]) @ w).sum(-1), 2)
        return -jax.nn.log_sigmoid(one - other).mean()

    return jax.grad(pairs)(reshard(weights["hidden"], P()))


def weighted(weights, x):
    mask = (x[:, 0] > 0).astype(x.dtype) + jnp.abs(x[:, 1] / x[:, 1].sum())

    def mean(w):
        return ((jnp.tanh(x @ w) ** 2).sum(-1) * mask).sum() / mask.sum()

    return jax.grad(mean)(reshard(weights["hidden"], P()))


STEPS = [gradient_step, train, dropout, each_example, two_gradients, noise, clipped, two_rows, of_pairs, weighted]
GRID = jax.make_mesh((2, 2), ("d", "m"), axis_types=(AxisType.Explicit,) * 2)


def on_grid(spec, weights_spec, rows=32):
    weights, _ = arguments()
    weights = jax.device_put(weights, NamedSharding(GRID, weights_spec))
    return weights, jax.device_put(*normal(2, (rows, WIDTH), dtype=float), NamedSharding(GRID, spec))


SHARDINGS = [pytest.param(step, P(("d", "m")), P()) for step in STEPS]
SHARDINGS += [pytest.param(step, P("d"), P("d")) for step in STEPS[1:4]]


@pytest.mark.parametrize(("step", "spec", "weights_spec"), sampled(SHARDINGS, 4))
def test_microbatches_of_an_explicitly_sharded_batch_keep_results_and_shardings(step, spec, weights_spec):
    count = 4
    with jax.enable_x64(True), jax.set_mesh(GRID):
        given = on_grid(spec, weights_spec)
        found, expected = rewrite(step, microbatches=count, in_axes=(None, 0))(*given), jax.jit(step)(*given)
        assert_same(found, expected)
        assert [v.sharding for v in jax.tree.leaves(found)] == [v.sharding for v in jax.tree.leaves(expected)]


def test_microbatches_of_an_explicitly_sharded_batch_move_no_rows_and_lower_the_peak():
    with jax.set_mesh(GRID):
        given = on_grid(P("d"), P(), rows=2**12)
        changed = rewrite(gradient_step, microbatches=4, in_axes=(None, 0)).lower(*given).compile()
        written = jax.jit(gradient_step).lower(*given).compile()
    assert changed.memory_analysis().temp_size_in_bytes < 0.5 * written.memory_analysis().temp_size_in_bytes
    assert all(name not in changed.as_text() for name in ("all-to-all(", "all-gather(", "collective-permute("))


def test_devices_without_equal_rows_in_each_microbatch_are_refused():
    with jax.set_mesh(GRID), pytest.raises(PlanError, match=r"on 4 devices.*the length of the batch, 24, must be"):
        rewrite(gradient_step, microbatches=4, in_axes=(None, 0))(*on_grid(P(("d", "m")), P(), rows=24))


def four_rows(weights, x):
    def of_rows(w):
        return reshard(jnp.tanh(x @ w), P()).reshape(-1, 4, WIDTH).max(1).mean()

    return jax.grad(of_rows)(weights["hidden"])


@pytest.mark.parametrize("rows", [16, 32])
def test_a_microbatch_has_rows_of_each_device_so_that_a_loss_may_combine_only_these(rows):
    with jax.enable_x64(True), jax.set_mesh(GRID):
        given, changed = on_grid(P(("d", "m")), P(), rows), rewrite(four_rows, microbatches=2, in_axes=(None, 0))
        if rows == 32:
            assert_same(changed(*given), four_rows(*given))
        else:
            with pytest.raises(PlanError, match="no rule covers reshape"):
                changed(*given)


def test_a_report_proposes_microbatches_of_an_explicitly_sharded_batch():
    with jax.set_mesh(GRID):
        report = rematscope.report(gradient_step, *on_grid(P("d"), P(), rows=2**12), memory="300 KiB")
    assert report.best.changes.microbatches > 1
