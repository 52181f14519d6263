"""A sharding constraint that gathers an array makes a new value, and marks what consists of it as whole."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from grader.stablehlo import reader
from grader.stablehlo.program import Gather
from grader.stablehlo.types import ProgramError

MESH = AbstractMesh((8,), ("devices",), axis_types=(AxisType.Auto,))


def constrained(x, *axes, mesh=MESH):
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*axes)))


def program(function, shape=(8, 8)):
    exported = jax.export.export(jax.jit(function), platforms=["cpu"])(jax.ShapeDtypeStruct(shape, jnp.float32))
    return reader.read(exported.mlir_module(), max_trip_count=100)


@pytest.mark.parametrize(
    "unchanged",
    [
        lambda x: constrained(x, "devices"),
        lambda x: constrained(x, P.UNCONSTRAINED, None),
        lambda x: constrained(x, mesh=AbstractMesh((1,), ("devices",), axis_types=(AxisType.Auto,))),
        lambda x: jax.lax.with_sharding_constraint(x, SingleDeviceSharding(jax.devices()[0])),
    ],
)
def test_a_constraint_that_does_not_gather_returns_the_same_value(unchanged):
    found = program(unchanged)
    assert found.outputs == found.inputs and not found.gathers and not found.whole


def test_a_constraint_on_a_scalar_returns_the_same_value():
    found = program(constrained, shape=())
    assert found.outputs == found.inputs and not found.gathers


def test_a_gathered_array_is_a_new_value_until_it_is_sharded_again():
    found = program(lambda x: (constrained(x), constrained(constrained(x)), constrained(constrained(x), "devices")))
    whole, twice, sharded = found.outputs
    assert len({*found.inputs, whole, twice, sharded}) == 4
    assert {whole, twice} <= {*found.whole} and sharded not in found.whole
    assert [gather.nbytes for gather in found.gathers] == [256, 256, 256]
    assert found.needed_for([sharded]) == {sharded, *found.inputs}


@pytest.mark.parametrize(
    "arranged",
    [
        lambda whole: whole.T,
        lambda whole: whole.reshape(4, 16),
        lambda whole: whole[2:4].astype(jnp.float16),
        lambda whole: 2 * whole,
        lambda whole: jnp.zeros((3, 8, 8)).at[1].set(whole),
        lambda whole: jnp.concatenate([whole, whole]),
        lambda whole: jax.lax.scan(lambda _, row: (None, row), None, whole)[1],
    ],
)
def test_parts_of_a_whole_array_are_whole(arranged):
    for array, is_whole in [(constrained, True), (lambda x: x, False)]:
        found = program(lambda x, array=array: arranged(array(x)))
        assert (found.outputs[0] in found.whole) == is_whole


def test_a_matmul_of_whole_arrays_is_not_whole():
    found = program(lambda x: constrained(x) @ x)
    assert found.outputs[0] not in found.whole


def test_gathers_in_loops_are_counted_once_per_iteration():
    def layers(x):
        def layer(x, w):
            return jax.lax.scan(lambda x, w: (x + constrained(w).sum(), None), x, w)[0], constrained(w)

        return jax.lax.scan(layer, x[0, 0], x)

    found = program(layers, shape=(3, 5, 8))
    assert sorted((gather.trip_count, gather.nbytes) for gather in found.gathers) == [(3, 160), (15, 32)]
    assert all(isinstance(gather, Gather) for gather in found.gathers)
    assert [output in found.whole for output in found.outputs] == [False, True]


def test_a_gather_in_a_loop_of_unknown_length_is_refused():
    with pytest.raises(ProgramError, match="gathers an array in a loop"):
        program(lambda x: jax.lax.while_loop(lambda x: x.sum() < 9, lambda x: constrained(x) + 1, x))
