"""`rewrite` inside a shard_map, and with explicit mesh axes: gradients as written, or a sentence."""

import functools

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

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
    keys = jax.random.split(jax.random.key(0), 3)
    weights = {name: jax.random.normal(k, (WIDTH, WIDTH)) for name, k in zip(("hidden", "out"), keys[1:], strict=True)}
    return weights, jax.random.normal(keys[0], (16, WIDTH))


def sharded(f, checks):
    return jax.jit(jax.shard_map(f, mesh=MESH, in_specs=(P(), P("d")), out_specs=P(), check_vma=checks))


def assert_same(found, expected):
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert jnp.allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("checks", [True, False])
@pytest.mark.parametrize("options", EVERYWHERE, ids=str)
def test_checkpoints_in_a_loss_inside_a_shard_map(options, checks):
    with jax.enable_x64(True):
        inside = functools.partial(across, rewrite(loss, **options))
        found, expected = (
            jax.jit(jax.value_and_grad(sharded(f, checks)))(*arguments())
            for f in (inside, functools.partial(across, loss))
        )
        assert_same(found, expected)


@pytest.mark.parametrize("options", [*EVERYWHERE, *DIVIDED], ids=str)
def test_a_step_with_collectives_inside_a_shard_map(options):
    with jax.enable_x64(True):
        assert_same(sharded(rewrite(step, **options), False)(*arguments()), sharded(step, False)(*arguments()))


@pytest.mark.parametrize("options", DIVIDED, ids=str)
def test_parts_of_a_batch_that_varies_over_devices_are_refused(options):
    with pytest.raises(PlanError, match=r"check_vma=True.*Rewrite the function that contains the shard_map"):
        sharded(rewrite(step, **options), True)(*arguments())


@pytest.mark.parametrize("checks", [True, False])
def test_auto_inside_a_shard_map_is_refused(checks):
    with pytest.raises(PlanError, match="auto= does not work inside a shard_map"):
        sharded(functools.partial(across, rewrite(loss, auto="1 GiB")), checks)(*arguments())


@pytest.mark.parametrize("spec", [P(), P("d")])
@pytest.mark.parametrize("options", [{"checkpoint": "layers"}, {"head_chunks": 2}, *DIVIDED], ids=str)
def test_explicit_axes_of_the_batch(options, spec):
    mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Explicit,))

    def take_step(weights, x):
        value, gradient = jax.value_and_grad(loss)(weights, x)
        return value, jax.tree.map(jnp.subtract, weights, gradient)

    with jax.enable_x64(True), jax.set_mesh(mesh):
        weights, x = arguments()
        weights = jax.device_put(weights, NamedSharding(mesh, P()))
        x = jax.device_put(x, NamedSharding(mesh, spec))
        if spec == P("d") and options != {"checkpoint": "layers"}:
            with pytest.raises(PlanError, match="it is sharded over explicit mesh axes along this axis"):
                rewrite(take_step, **options)(weights, x)
        else:
            assert_same(jax.jit(rewrite(take_step, **options))(weights, x), jax.jit(take_step)(weights, x))


@pytest.mark.parametrize("options", [*EVERYWHERE, *DIVIDED], ids=str)
def test_a_loss_with_collectives_inside_a_shard_map(options):
    def normalized(weights, x):
        h = jnp.tanh(x @ weights["hidden"])
        h = h - lax.pmean(h.mean(0), "d")
        return lax.pmean(loss(weights, h / jnp.sqrt(lax.pmean((h * h).mean(0), "d"))), "d")

    def take_step(weights, x):
        value, gradient = jax.value_and_grad(normalized)(weights, x)
        return value, jax.tree.map(jnp.subtract, weights, lax.psum(gradient, "d"))

    with jax.enable_x64(True):
        if "microbatches" in options:
            with pytest.raises(PlanError, match="not proved to be an average"):
                sharded(rewrite(take_step, **options), False)(*arguments())
        else:
            found, expected = (sharded(f, False)(*arguments()) for f in (rewrite(take_step, **options), take_step))
            assert_same(found, expected)


def test_a_report_says_why_an_explicitly_sharded_batch_has_no_microbatches():
    mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Explicit,))

    def take_step(weights, x):
        value, gradient = jax.value_and_grad(loss)(weights, x)
        return value, jax.tree.map(jnp.subtract, weights, gradient)

    with jax.set_mesh(mesh):
        weights, _ = arguments()
        weights = jax.device_put(weights, NamedSharding(mesh, P()))
        x = jax.ShapeDtypeStruct((2**12, WIDTH), jnp.float32, sharding=NamedSharding(mesh, P("d")))
        report = rematscope.report(take_step, weights, x, memory="150 KiB")
    assert any(text.startswith("No microbatches: An array of type f32[4096,8] cannot be") for text in report.advice)
