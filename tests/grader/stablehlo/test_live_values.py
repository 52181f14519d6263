"""The bytes of values that are live at once, estimated from a program's text, in units of one array of 128 elements."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

from grader.stablehlo.liveness import Recorded

X = jax.ShapeDtypeStruct((128,), jnp.float32)


def live(function, *arguments) -> float:
    exported = jax.export.export(jax.jit(function, keep_unused=True), platforms=["cpu"])(*arguments or (X,))
    program = Recorded(exported.mlir_module())
    return program.peak(program.outputs, [*program.inputs, *program.outputs]) / (4 * X.size)


def scan(x, length, step=jnp.sin):
    return jax.lax.scan(lambda x, _: (step(x), None), x, length=length)[0]


def gradient(function):
    return jax.grad(lambda x: jnp.sum(function(x)))


def waits(x):
    first = jnp.sin(x)
    return first * jnp.cos(jnp.exp(jnp.tan(first)))


@pytest.mark.parametrize(
    ("function", "sizes"),
    [
        (lambda x: jnp.sin(jnp.cos(jnp.exp(x))), 1),
        (waits, 2),
        (lambda x: [jnp.sin(x), jnp.exp(jnp.cos(x))], 1),  # results are not counted
        (lambda x: jnp.cos(x + jnp.arange(128.0) * jnp.ones(128)), 1),
        (lambda x: jnp.sum(jnp.exp(jnp.sin(x)[:, None] * jnp.ones((1, 50)))), 50),
        (lambda x: jnp.sum(jnp.zeros((50, 128)).at[7].set(jnp.sin(x)).at[8].set(x)), 50),
    ],
)
def test_a_value_is_live_until_it_is_used_for_the_last_time(function, sizes):
    assert live(function) == pytest.approx(sizes, abs=0.1)


@pytest.mark.parametrize("wrap", [lambda step: step, jax.jit], ids=["plain", "called"])
def test_residuals_of_all_iterations_are_stacked_in_one_array(wrap):
    assert 40 <= live(gradient(lambda x: scan(x, 40, wrap(jnp.sin)))) <= 43


def test_a_carry_takes_the_same_memory_for_ten_and_a_hundred_iterations():
    assert live(lambda x: scan(x, 100)) == live(lambda x: scan(x, 10)) <= 2


def test_recomputed_values_are_live_for_one_segment_at_a_time():
    once = live(gradient(lambda x: scan(x, 6, jax.checkpoint(lambda x: scan(x, 7)))))
    assert 6 + 7 <= once <= 6 + 7 + 4
    around_all = live(gradient(jax.checkpoint(lambda x: scan(x, 42))))
    assert around_all >= 42


def test_a_value_computed_before_a_loop_is_live_in_every_iteration():
    def around(x):
        outside = jnp.exp(jnp.tan(x))
        return scan(x, 5, lambda x: jnp.sin(x) * outside)

    assert live(around) == live(lambda x: scan(x, 5)) + 1


def test_branches_are_not_live_together():
    def either(x):
        return jax.lax.cond(x[0] > 0, waits, lambda x: waits(x + 1), x)

    assert live(either) <= 3


def test_an_update_of_an_array_that_is_read_later_copies_it():
    def put(base, value):
        return jax.lax.dynamic_update_slice(base, value[:1], (0,))

    def all_live(x):
        base = jnp.tan(x)
        kept = [put(base, jnp.sin(x * i)) for i in range(10)]
        return sum(jnp.exp(value) for value in kept) + sum(kept)

    def one_after_the_other(x):
        base = jnp.tan(x)
        for i in range(10):
            base = put(base, jnp.sin(x * i))
        return jnp.exp(base)

    assert live(all_live) >= 10
    assert live(one_after_the_other) <= 3


def test_unused_values_take_no_memory():
    def idle(x):
        scan(jnp.outer(x, x), 5)
        return jnp.sin(jnp.cos(x))

    assert live(idle) == 1


def on_eight_devices(function):
    mesh = AbstractMesh((8,), ("a",), axis_types=(AxisType.Auto,))
    return jax.shard_map(function, mesh=mesh, in_specs=P("a"), out_specs=P("a"))


def gathered_once(x):
    return jnp.sin(jax.lax.all_gather(x, "a", tiled=True))[: x.size] * jnp.cos(x)


def test_a_shard_map_takes_the_memory_of_all_its_devices():
    for function in (lambda x: scan(x, 6), waits, gradient(lambda x: scan(x, 6))):
        # The values agree approximately, because each device also has scalars.
        assert live(on_eight_devices(function)) == pytest.approx(live(function), abs=0.1)
    # Each device has the whole gathered array: eight times the total size of the shards.
    assert 8 <= live(on_eight_devices(gathered_once)) <= 8 * 2 + 1


def test_a_shard_is_live_until_it_is_used_for_the_last_time():
    def chain(x):
        before = jnp.exp(x)
        return jnp.cos(jnp.sin(on_eight_devices(lambda x: jnp.tan(jnp.sin(x)))(before)))

    assert live(chain) == live(lambda x: jnp.cos(jnp.sin(jnp.tan(jnp.sin(jnp.exp(x))))))
