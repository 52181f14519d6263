"""Programs that use `shard_map`: reading, interpreting without devices, and refusing them."""

import functools
import math
import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

import rematscope
from grader.stablehlo import interpreter, reader
from grader.stablehlo.execution import Execution, Function
from grader.stablehlo.float64 import promote_to_float64, widened_array
from grader.stablehlo.numpy_operations import Uninterpreted
from grader.stablehlo.types import ProgramError
from rematscope.extend import link_bytes
from rematscope.ir.collectives import collectives_of, tally_by_kind


def program(function, *arguments):
    exported = jax.export.export(jax.jit(function, keep_unused=True), platforms=["cpu"])(*arguments)
    return reader.read(exported.mlir_module())


def over(**mesh):
    return AbstractMesh(tuple(mesh.values()), tuple(mesh), axis_types=(AxisType.Auto,) * len(mesh))


def mapped(function, **mesh):
    """Apply a function to each device's rows, on a mesh that shards the first axis of the arguments and the result."""
    return jax.shard_map(function, mesh=over(**mesh), in_specs=P(tuple(mesh)), out_specs=P(tuple(mesh)))


def emulated(function, **mesh):
    """Emulate `mapped` with vmap, which supports collectives and needs no devices."""

    def run(*arguments):
        parts = [a.reshape(*mesh.values(), a.shape[0] // math.prod(mesh.values()), *a.shape[1:]) for a in arguments]
        everywhere = function
        for axis in reversed(mesh):
            everywhere = jax.vmap(everywhere, axis_name=axis)
        whole = everywhere(*parts)
        return whole.reshape(-1, *whole.shape[len(mesh) + 1 :])

    return run


def gathered(x):
    return jnp.sin(x @ lax.all_gather(x, "a", tiled=True).T)


def gathered_in_rows(x):
    return lax.all_gather(x, "a", axis=1, tiled=False).sum(1) * lax.axis_index("b")


def summed(x):
    return x - lax.pmean(x, ("b", "a")) + lax.pmax(x, "b") * lax.psum(1.0, "a")


def scattered(x):
    return lax.psum_scatter(x.T @ x, "a", scatter_dimension=0, tiled=True)


def exchanged(x):
    return lax.all_to_all(x, "a", 1, 0, tiled=True)


def sent_on(x):
    return x * lax.ppermute(x, "a", [(0, 1), (1, 2), (2, 3), (3, 0)])


def placed(x):
    return x * (10 * lax.axis_index("a") + lax.axis_index("b"))


def gathered_in_a_loop(x):
    def layer(carry, _):
        return jnp.tanh(carry @ lax.all_gather(carry, "a", tiled=True)[:4]), None

    return lax.scan(layer, x, None, length=3)[0]


def looped(x):
    def layer(carry, _):
        return jnp.tanh(carry @ lax.all_gather(x, "a", tiled=True)[:4]), None

    return lax.scan(jax.checkpoint(layer), x, None, length=3)[0]


def chosen(x):
    return lax.cond(lax.psum(x.sum(), ("a", "b")) > 0, jnp.sin, jnp.cos, x)


FUNCTIONS = gathered, gathered_in_rows, summed, scattered, exchanged, sent_on, placed, looped, chosen


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_collectives_agree_with_jax_under_vmap(function, seed):
    x = np.random.default_rng(seed).normal(size=(16, 4)).astype(np.float32)
    read = program(mapped(function, a=4, b=2), x)
    wanted = jax.jit(emulated(function, a=4, b=2))(x)
    assert wanted.std() > 0
    np.testing.assert_allclose(interpreter.run(read.text, [x])[0], wanted, rtol=2e-5, atol=2e-5)
    (shadow,) = interpreter.run(promote_to_float64(read).text, [widened_array(x)])
    np.testing.assert_allclose(shadow, wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    "function",
    [gathered, gathered_in_rows, scattered, exchanged, sent_on, gathered_in_a_loop],
    ids=lambda function: function.__name__,
)
def test_a_program_runs_the_collectives_of_the_jaxpr(function):
    on_mesh, x = mapped(function, a=4, b=2), jax.ShapeDtypeStruct((16, 4), jnp.float32)
    forward = rematscope.trace(on_mesh, x).forward  # counted by other code, from the jaxpr
    wanted = {kind: (s.count, s.link_bytes) for kind, s in tally_by_kind(collectives_of(forward)).items()}
    found = {
        each.kind: (
            each.trip_count,
            each.trip_count * link_bytes(each.kind, each.operand_bytes, each.result_bytes, each.devices),
        )
        for each in program(on_mesh, x).collectives
    }
    assert found == wanted and found


def test_a_collective_in_a_loop_of_unknown_length_is_refused():
    gather = mapped(lambda x: lax.psum_scatter(lax.all_gather(x, "a"), "a"), a=8)

    def until_large(x):
        return lax.while_loop(lambda x: x.sum() < 100, gather, x)

    exported = jax.export.export(jax.jit(until_large), platforms=["cpu"])(jax.ShapeDtypeStruct((8,), jnp.float32))
    with pytest.raises(ProgramError, match="a collective in a loop whose length is not a constant"):
        reader.read(exported.mlir_module(), max_trip_count=10)


def test_device_order_follows_the_mesh(seed):
    x = np.random.default_rng(seed).normal(size=(16, 4)).astype(np.float32)

    def whole(x):
        return jnp.arange(16, dtype=np.float32)[None] @ lax.all_gather(x, ("a", "b"), tiled=True)

    def some(x):
        return lax.ppermute(x, "a", [(0, 1), (1, 3)])

    (rows,) = interpreter.run(program(mapped(whole, a=4, b=2), x).text, [x])
    np.testing.assert_allclose(rows, np.tile(np.arange(16) @ x, (8, 1)), rtol=1e-4, atol=1e-4)
    (sent,) = interpreter.run(program(mapped(some, a=4, b=2), x).text, [x])
    np.testing.assert_array_equal(sent, np.concatenate([0 * x[:4], x[:4], 0 * x[:4], x[4:8]]))


def test_gradients_through_collectives_are_those_under_vmap(seed):
    x, ct = np.random.default_rng(seed).normal(size=(2, 16, 4)).astype(np.float32)

    @functools.partial(jax.jit, static_argnums=0)
    def backward(map_of, x, ct):
        return jax.vjp(map_of(lambda x: x * gathered(x)[:, :4], a=8), x)[1](ct)

    read = program(functools.partial(backward, mapped), x, ct)
    np.testing.assert_allclose(
        interpreter.run(read.text, [x, ct])[0], backward(emulated, x, ct)[0], rtol=1e-4, atol=1e-5
    )


def test_outputs_that_equal_inputs_are_recognized(seed):
    def both(x, y):
        whole = jax.shard_map(lambda x: x, mesh=over(a=8), in_specs=P(), out_specs=P("a"), check_vma=False)
        same = jax.shard_map(lambda x, y: (y, x), mesh=over(a=8), in_specs=(P("a"), P()), out_specs=(P(), P("a")))
        return *same(x, y), whole(y)

    shapes = [jax.ShapeDtypeStruct(shape, np.float32) for shape in ((8, 2), (3,))]
    read = program(both, *shapes)
    assert read.outputs[:2] == read.inputs[::-1]
    assert read.outputs[2] not in read.inputs  # eight concatenated copies
    assert read.needed_for(read.outputs[2:]) >= {read.inputs[1]}
    assert interpreter.run(read.text, [np.ones((8, 2), np.float32), np.arange(3, dtype=np.float32)])[2].size == 24


def test_residuals_are_the_gathered_weight_or_if_it_is_gathered_again_the_shard():
    def layer(w, x):
        return jnp.sin(x @ lax.all_gather(w, "a", tiled=True))

    def kept(of):
        function = jax.shard_map(of, mesh=over(a=8), in_specs=P("a"), out_specs=P("a"))
        read = program(lambda w, x: jax.vjp(function, w, x), *[jax.ShapeDtypeStruct((16, 16), np.float32)] * 2)
        handed = zip(read.outputs[1:], read.output_types[1:], strict=True)
        return {(value in read.inputs, kind.shape) for value, kind in handed}

    assert kept(layer) == {(True, (16, 16)), (False, (8 * 16, 16)), (False, (16, 16))}
    assert kept(jax.checkpoint(layer)) == {(True, (16, 16))}


def test_matmuls_count_once_for_all_devices():
    x = jax.ShapeDtypeStruct((16, 4), np.float32)
    (matmul,) = program(mapped(lambda x: x @ x.T, a=8), x).matmuls
    assert matmul.flops == 2 * 2 * 4 * 2


def test_operations_in_a_shard_map_count_per_device():
    x = np.ones((64, 2), np.float32)

    def long(x):
        return lax.fori_loop(0, 100, lambda _, x: jnp.sin(x), x)

    interpreter.run(program(long, x).text, [x])
    read = program(mapped(functools.partial(lax.fori_loop, 0, 2_000, lambda _, x: jnp.sin(x)), a=64), x)
    with pytest.raises(Uninterpreted, match="too much"):
        interpreter.run(read.text, [x])


def test_the_memory_of_all_devices_is_checked_before_it_is_allocated():
    x = np.ones(2**20, np.float32)
    whole = jax.shard_map(lambda x: x[:1], mesh=over(a=64), in_specs=P(), out_specs=P("a"), check_vma=False)
    text = program(whole, x).text
    tracemalloc.start()
    try:
        with pytest.raises(Uninterpreted, match="too much"):
            interpreter.run(text, [x])
        assert tracemalloc.get_traced_memory()[1] < x.nbytes
    finally:
        tracemalloc.stop()


def test_devices_that_go_different_ways_are_not_interpreted():
    x = np.ones((16, 4), np.float32)
    read = program(mapped(lambda x: lax.cond(lax.axis_index("a") > 0, jnp.sin, jnp.cos, x), a=8), x)
    with pytest.raises(Uninterpreted, match="different ways"):
        interpreter.run(read.text, [x])


def test_a_program_that_no_compiler_can_run_is_refused_with_its_reason():
    x = np.ones((16, 4), np.float32)
    text = program(mapped(lambda x: lax.cond(lax.axis_index("a") > 0, jnp.sin, jnp.cos, x), a=8), x).text
    execution = Execution(text, text, [1, 0, 0])
    with pytest.raises(ProgramError, match=r"different ways.*jax\.lax\.map"):
        execution.run([[x]], [[x]], Function(lambda x, _: x, [[x]], [[x]]))


TEXT = """
module {
  sdy.mesh @mesh = <["a"=2]>
  func.func public @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {
    %0 = sdy.manual_computation(%arg0) in_shardings=[<@mesh, [{"a"}]>] out_shardings=[<@mesh, [{"a"}]>]
        manual_axes={"a"} (%arg1: tensor<2xf32>) {
      %1 = stablehlo.negate %arg1 : tensor<2xf32>
      sdy.return %1 : tensor<2xf32>
    } : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
"""
_NEGATE = "stablehlo.negate %arg1 : tensor<2xf32>"
_PERMUTE = """"stablehlo.collective_permute"(%ARG) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>,
    source_target_pairs = dense<[[0, 7]]> : tensor<1x2xi64>}> : (tensor<SIZExf32>) -> tensor<SIZExf32>"""
_GATHER = """"stablehlo.all_gather"(%arg1) <{all_gather_dim = 0 : i64, channel_handle =
    #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh,
    axes = [#stablehlo.axis_ref<name = "a">]>, use_global_device_ids}> : (tensor<2xf32>) -> tensor<2xf32>"""


def test_the_text_that_is_changed_below_is_one_to_run():
    assert interpreter.run(reader.read(TEXT).text, [np.arange(4, dtype=np.float32)])[0].tolist() == [0, -1, -2, -3]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('<["a"=2]>', '<["a"=2], device_ids=[1, 0]>'),
        ('<["a"=2]>', '<["a"=2, "b"=2]>'),
        ("<@mesh,", '<mesh<["a"=2]>,'),
        ("%0 = sdy", "%0 = " + _PERMUTE.replace("ARG", "arg0").replace("SIZE", "4") + "\n%2 = sdy"),
    ],
    ids=["an order of its own", "an axis left to the compiler", "a mesh without a name", "outside"],
)
def test_programs_that_shard_map_does_not_generate_are_refused(old, new):
    with pytest.raises(ProgramError, match=r"shard_map|mesh"):
        reader.read(TEXT.replace(old, new))


_SCATTER = """"stablehlo.reduce_scatter"(%arg1) <{scatter_dimension = 0 : i64, channel_handle =
    #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh,
    axes = [#stablehlo.axis_ref<name = "a">]>, use_global_device_ids}> ({ ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %s = stablehlo.add %x, %y : tensor<f32>
      stablehlo.return %s : tensor<f32> }) : (tensor<2xf32>) -> tensor<2xf32>"""
# split_count is 3, but the mesh has only two devices.
_EXCHANGE = """stablehlo.concatenate %arg1, %arg1, %arg1, dim = 0 : (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>)
        -> tensor<6xf32>
      %w = stablehlo.reshape %t : (tensor<6xf32>) -> tensor<6x1xf32>
      %q = "stablehlo.all_to_all"(%w) <{split_dimension = 0 : i64, concat_dimension = 1 : i64, split_count = 3 : i64,
    channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups =
    #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "a">]>}>
        : (tensor<6x1xf32>) -> tensor<2x3xf32>
      %p = stablehlo.slice %q [0:2, 0:1] : (tensor<2x3xf32>) -> tensor<2x1xf32>
      %1 = stablehlo.reshape %p : (tensor<2x1xf32>) -> tensor<2xf32>"""


@pytest.mark.parametrize(
    "made",
    [_PERMUTE.replace("ARG", "arg1").replace("SIZE", "2"), _GATHER, _SCATTER, _EXCHANGE],
    ids=["sent to nobody", "gathered", "scattered", "exchanged"],
)
def test_a_collective_that_does_not_fit_its_mesh_is_not_interpreted(made):
    read = reader.read(TEXT.replace("%1 = " + _NEGATE, f"{'%t' if made is _EXCHANGE else '%1'} = {made}"))
    with pytest.raises(Uninterpreted):
        interpreter.run(read.text, [np.arange(4, dtype=np.float32)])
