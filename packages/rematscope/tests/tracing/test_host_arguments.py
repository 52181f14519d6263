"""Arguments in host memory: arrays and shapes are traced and compiled alike."""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding

from rematscope import auto, liveness, measure, trace

SIZE = 256
HOST, DEVICE = jax.memory.Space.Host, jax.memory.Space.Device


@jax.jit
def step(w, moments, x):
    gradient = jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)
    moments = 0.9 * jax.device_put(moments, DEVICE) + gradient
    return w - moments, jax.device_put(moments, HOST)


def arguments(home, kind):
    shape = jax.ShapeDtypeStruct((SIZE, SIZE), jnp.float32)
    if kind == "array":
        return jnp.ones((SIZE, SIZE)), jax.device_put(jnp.zeros((SIZE, SIZE)), home), jnp.ones((SIZE, SIZE))
    return shape, jax.ShapeDtypeStruct((SIZE, SIZE), jnp.float32, sharding=home), shape


HOMES = [
    SingleDeviceSharding(jax.devices()[0], memory_kind="pinned_host"),
    NamedSharding(jax.make_mesh((1,), ("d",)), PartitionSpec(), memory_kind="pinned_host"),
]


@pytest.mark.parametrize("home", HOMES, ids=lambda home: type(home).__name__)
@pytest.mark.parametrize("kind", ["array", "shape"])
def test_an_argument_in_host_memory_takes_no_device_memory(kind, home):
    args = arguments(home, kind)
    assert [value.memory for value in trace(step, *args).step.program.inputs] == ["device", "host", "device"]
    on_device = arguments(home.with_memory_kind("device"), kind)
    assert liveness(step, *args).peak_bytes < liveness(step, *on_device).peak_bytes


@pytest.mark.parametrize("kind", ["array", "shape"])
def test_a_step_with_an_argument_in_host_memory_can_be_compiled(kind):
    metrics = {row.metric: row for row in measure(step, *arguments(HOMES[0], kind)).rows}
    assert metrics["arguments"].predicted == 2 * 4 * SIZE**2
    assert metrics["arguments"].compiled == 3 * 4 * SIZE**2, "for a CPU, host and device memory are the same"


@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs the extra tpu")
@pytest.mark.parametrize("kind", ["array", "shape"])
def test_libtpu_compiles_an_argument_in_host_memory(kind):
    found = measure(step, *arguments(HOMES[0], kind), target="tpu v5e")
    assert found.argument_bytes == 2 * 4 * SIZE**2
    assert "includes the program's host memory" in " ".join(found.warnings)


def offloaded_loss(w, x):
    w, x = jax.device_put(w, DEVICE), jax.device_put(x, DEVICE)
    return jnp.mean(jnp.tanh(jnp.tanh(x @ w) @ w) ** 2)


@pytest.mark.parametrize("argnums", [0, (0, 1)])
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["plain", "jitted"])
def test_auto_plans_a_loss_of_arguments_in_host_memory(wrap, argnums):
    args = jax.device_put((jnp.eye(8) / 2, jnp.ones((16, 8))), HOMES[0])
    expected = jax.grad(offloaded_loss, argnums)(*args)
    found = wrap(jax.grad(auto(peak="1 MiB")(offloaded_loss), argnums))(*args)
    assert jax.tree.map(jax.typeof, found) == jax.tree.map(jax.typeof, expected)
    for one, other in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_a_plan_for_shapes_in_host_memory_is_for_arrays_in_host_memory():
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32, sharding=HOMES[0]) for shape in ((8, 8), (16, 8))]
    planned = auto(peak="1 MiB")(offloaded_loss).plan(*shapes).function
    args = jax.device_put((jnp.eye(8) / 2, jnp.ones((16, 8))), HOMES[0])
    np.testing.assert_allclose(jax.grad(planned)(*args), jax.grad(offloaded_loss)(*args), rtol=1e-5)
