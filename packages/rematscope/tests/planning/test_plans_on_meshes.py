"""Choices of names for functions on many devices: bytes of one device, and links in the cost."""

import itertools

import jax
import jax.numpy as jnp
import meshes
import pytest

from rematscope import explore, frontier, lint, liveness, plan, recompute_graph, trace
from rematscope.choices.build import FLOPS_PER_LINK_BYTE, recompute_cost_of
from rematscope.seconds.devices import REFERENCE_DEVICE
from rematscope.tracing.checkpoints import with_policy

PLANNED = [
    meshes.fsdp, meshes.fsdp_layers, meshes.tensor_parallel, meshes.expert_parallel, meshes.pipeline,
    meshes.two_axes, meshes.mapped_layers, meshes.unchecked,
]  # fmt: skip


@pytest.mark.parametrize("program", PLANNED, ids=lambda program: program.__name__)
def test_every_choice_of_names_saves_and_recomputes_the_predicted_amounts(program):
    f, shapes = program(meshes.under("nothing"))
    graph = recompute_graph(f, *shapes)
    assert graph.names
    for names in itertools.chain.from_iterable(itertools.combinations(graph.names, k) for k in range(4)):
        passes = trace(with_policy(f, jax.checkpoint_policies.save_only_these_names(*names)), *shapes)
        traced = passes.device_bytes_by_kind()["computed"], recompute_cost_of(passes)
        assert graph.evaluate(names) == traced, names


def test_a_byte_over_links_costs_the_flops_of_its_transfer_time():
    f, shapes = meshes.fsdp(meshes.under("nothing"))
    cost = trace(f, *shapes).recompute_cost
    graph = recompute_graph(f, *shapes)
    assert cost.link_bytes == 2 * 16 * 64 * 4 * 7 // 8
    assert graph.evaluate(())[1] == cost.flops + cost.transcendentals + FLOPS_PER_LINK_BYTE * cost.link_bytes


def test_the_price_of_a_byte_follows_from_the_table_of_devices():
    device = REFERENCE_DEVICE
    assert pytest.approx(device.matmul["bfloat16"] / device.ring(), abs=0.5) == FLOPS_PER_LINK_BYTE


def test_a_plan_is_for_the_bytes_of_a_device():
    f, shapes = meshes.tensor_parallel(meshes.under("nothing"))
    made = plan(f, *shapes, saved=1.0)
    assert made.saved_bytes == made.trace.device_bytes_by_kind()["computed"]
    assert made.certificate.verify(f, *shapes) == made.cost
    assert "2.5 KiB of 2.5 KiB on each of 8 devices" in str(made)
    assert f"saved, each link byte weighed as {FLOPS_PER_LINK_BYTE:,} operations;" in " ".join(str(made).split())


@pytest.mark.slow
def test_frontier_lint_and_liveness_speak_of_one_device():
    f, shapes = meshes.fsdp_layers(meshes.under("names"))
    points = frontier(f, *shapes).points
    assert points[-1].nbytes <= trace(meshes.fsdp_layers(meshes.under("plain"))[0], *shapes).saved_device_bytes()
    (finding,) = lint(f, *shapes).findings
    assert "names 'summed', but no value inside the checkpoint has that name" in finding.text
    timeline = liveness(f, *shapes)
    assert "on each of 8 devices" in timeline.title
    assert timeline.samples[0].arguments == sum(v.nbytes for v in trace(f, *shapes).forward.inputs) // 8


def test_explore_shows_the_figures_per_device_of_a_sharded_step(capsys):
    over = meshes.mesh(d=8)

    def step(w, x):
        return w - jax.grad(lambda w: jnp.sum(jnp.sin(jnp.sin(x @ w))))(w)

    shapes = meshes.like(over, "d", shape=(64, 32)), meshes.like(over, "d", shape=(256, 64))
    explore(step, *shapes)
    (shown,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("saved per device")]
    assert "9 KiB" in shown and "17 KiB" in shown  # an eighth of x and w, and without a checkpoint of two cosines
