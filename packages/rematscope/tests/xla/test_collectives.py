"""Collectives and bytes of functions for many devices, in the trace and in what XLA is given and makes of it."""

import functools
import importlib.util
import os
import subprocess

import jax
import jax.numpy as jnp
import meshes
import pytest
from jax import lax
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from releases import since

from rematscope import TargetError, fit, measure, trace
from rematscope.ir.collectives import link_bytes
from rematscope.xla.collectives import collectives_in
from rematscope.xla.elsewhere import generation, topology
from rematscope.xla.hlo import read


@pytest.mark.parametrize("policy", ["plain", "nothing", "names"])
@pytest.mark.parametrize("program", meshes.PROGRAMS, ids=lambda program: program.__name__)
def test_collectives_and_their_bytes_are_those_of_unoptimised_hlo(program, policy):
    f, shapes = program(meshes.under(policy))
    passes = trace(f, *shapes)
    lowered = jax.jit(jax.value_and_grad(f, argnums=tuple(range(len(shapes))))).lower(*shapes)
    module = read(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())
    found = passes.collectives()
    assert found == collectives_in(module, passes.devices)
    assert sum(tally.link_bytes for tally in found.values()) == passes.cost.link_bytes > 0


@pytest.mark.parametrize(
    "kind, operand, result, sent",
    [
        ("all-gather", 100, 800, 700),
        ("reduce-scatter", 800, 100, 700),
        ("all-reduce", 800, 800, 1400),
        ("all-to-all", 800, 800, 700),
        ("collective-permute", 800, 800, 800),
    ],
)
def test_in_a_ring_of_eight(kind, operand, result, sent):
    """Each device sends its hundred bytes, or what has come of them, seven times; in an all-reduce twice as often."""
    assert link_bytes(kind, operand, result, 8) == sent


@functools.cache
def measured(policy):
    f, shapes = meshes.fsdp_layers(meshes.under(policy), layers=8, width=128, batch=8 * 256)
    return measure(f, *shapes)


@since("0.11", "XLA's peak on the CPU is nearer to what is live after an equation")
def test_on_a_stack_of_layers_what_is_compiled_follows_what_is_predicted():
    plain, names, nothing = found = [measured(policy) for policy in ("plain", "names", "nothing")]
    for one in found:
        rows = {row.what: row for row in one.rows}
        assert rows["arguments"].error == 0
        assert 0 <= rows["outputs"].compiled - rows["outputs"].predicted < 64  # XLA's table of what it returns
        assert one.predicted.peak_bytes == pytest.approx(one.peak_bytes, rel=0.2)
        assert {e.kind for e in one.exchanges} == {"all-gather", "all-reduce", "reduce-scatter"}
        assert all(e.predicted == e.lowered == e.compiled for e in one.exchanges)
    for more, less in ((plain, names), (names, nothing)):
        kept = [m.passes.device_bytes_by_kind()["computed"] for m in (more, less)]
        assert more.temp_bytes - less.temp_bytes == pytest.approx(kept[0] - kept[1], rel=0.05)
    assert names.time(runs=1).median > 0
    assert "compiled for cpu on each of 8 devices" in str(names) and "all-gather, sent" in str(names)


def test_fit_is_about_the_memory_of_a_device():
    f, shapes = meshes.fsdp_layers(meshes.under("nothing"), layers=8, width=128, batch=8 * 256)
    least, most = (measured(policy).peak_bytes for policy in ("nothing", "names"))
    found = fit(f, *shapes, budget=(least + most) // 2)
    assert len(found.names) == 1 and least < found.chosen.peak_bytes < (least + most) // 2


def gathered_product(over):
    def body(w, x):
        return lax.pmean(jnp.mean(jnp.sin(x @ lax.all_gather(w, "d", tiled=True)) ** 2), "d")

    return jax.shard_map(body, mesh=over, in_specs=P("d"), out_specs=P())


def abstract(devices, kind=AxisType.Auto):
    return AbstractMesh((devices,), ("d",), axis_types=(kind,))


@pytest.mark.parametrize("carry", [True, False], ids=["arguments that say how they lie", "arguments that do not"])
def test_an_abstract_mesh_is_compiled_for_devices_that_are_here(carry):
    over = abstract(8)
    sharding = NamedSharding(over, P("d")) if carry else None
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding) for shape in ((16, 64), (8, 16))]
    found = measure(gathered_product(over), *shapes)
    assert found.argument_bytes == (16 * 64 + 8 * 16) * 4 // 8 + 4
    assert {e.kind: e.compiled.count for e in found.exchanges}["all-gather"] == 1


def test_more_devices_than_there_are_get_a_process_of_their_own(monkeypatch):
    over = abstract(16)
    shapes = [meshes.like(over, "d", shape=shape) for shape in ((16, 64), (16, 16))]
    before = dict(os.environ)
    found = measure(gathered_product(over), *shapes)
    assert found.argument_bytes == (16 * 64 + 16 * 16) * 4 // 16 + 4
    assert found.compiled.peak_bytes > 0 and found.exchanges[0].compiled.count == 1
    assert os.environ == before
    with pytest.raises(TargetError, match="XLA_FLAGS=--xla_force_host_platform_device_count=16"):
        found.time()
    failed = subprocess.CompletedProcess([], 1, stderr="Traceback\nno room.\n")
    monkeypatch.setattr("subprocess.run", lambda *_, **__: failed)
    with pytest.raises(TargetError, match=r"XLA did not compile body for cpu: no room\. "):
        measure(gathered_product(over), *shapes)


def test_a_sharding_constraint_and_an_explicit_mesh_are_compiled_for_their_devices():
    over = meshes.mesh(d=8)
    shape = meshes.like(over, "d", shape=(64, 4))

    def constrained(x, w):
        return lax.with_sharding_constraint(jnp.sin(x @ w), NamedSharding(over, P("d")))

    found = measure(constrained, shape, jax.ShapeDtypeStruct((4, 4), jnp.float32))
    assert found.argument_bytes < 64 * 4 * 4 + 200  # an eighth of x, w, and an eighth of the cotangent, or all of it
    typed = meshes.mesh(AxisType.Explicit, d=8)
    shape = meshes.like(typed, "d", shape=(64, 4))
    found = measure(lambda x: jnp.sin(jnp.sin(x)), shape)
    assert found.argument_bytes == found.output_bytes - found.output_bytes % 128 == 2 * 64 * 4 * 4 // 8
    sharded = jax.device_put(jnp.ones((64, 4)), NamedSharding(over, P("d")))
    assert measure(lambda x: jnp.sum(jnp.sin(x)), sharded).argument_bytes == 64 * 4 * 4 // 8 + 4


def test_a_gpu_that_is_not_here_for_each_device_is_refused(monkeypatch):
    f, shapes = meshes.fsdp(meshes.under("nothing"))
    monkeypatch.setattr(jax, "devices", lambda target: [object()])
    with pytest.raises(TargetError, match="body is for 8 devices, and JAX sees 1 of GPU here"):
        measure(f, *shapes, target="gpu")


@pytest.mark.parametrize(
    "target, chips, name",
    [
        ("tpu v5e", 1, "v5e:2x2"),
        ("tpu v5e", 8, "v5e:2x4"),
        ("tpu v6e", 256, "v6e:16x16"),
        ("tpu v4", 4, "v4:2x2x1"),
        ("tpu v5p", 8, "v5p:2x2x2"),
        ("tpu v5p", 32, "v5p:2x4x4"),
        ("tpu v5e:4x4", 8, "v5e:4x4"),
    ],
)
def test_a_tpu_that_is_not_here_has_as_many_chips_as_the_mesh(target, chips, name):
    assert topology(target, chips) == name and generation(target) == target.partition(":")[0]


def test_a_topology_with_too_few_chips_is_refused(monkeypatch):
    f, shapes = meshes.fsdp(meshes.under("nothing"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: True)
    with pytest.raises(TargetError, match="v5e:2x2 has 4 chips, and body is for 8 devices"):
        measure(f, *shapes, target="tpu v5e:2x2")


@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs the extra tpu")
def test_libtpu_compiles_for_a_topology_that_is_not_here():
    f, shapes = meshes.fsdp_layers(meshes.under("nothing"), layers=8, width=256, batch=8 * 256)
    found = measure(f, *shapes, target="tpu v5e:2x4")
    predicted = next(row.predicted for row in found.rows if row.what == "arguments")
    assert 0 <= found.argument_bytes - predicted <= 512  # a scalar takes so much
    assert {e.kind: e.lowered for e in found.exchanges} == found.passes.collectives()
