"""Seconds: the table of devices, the roofline's arithmetic, plans in seconds. No clock is asserted."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import meshes
import pytest
from blocks import BLOCKS
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from sampling import few

from rematscope import (
    Device,
    PlanError,
    SideBySide,
    TargetError,
    calibrate,
    compare,
    estimate_time,
    explore,
    frontier,
    interactive_programs,
    liveness,
    plan,
    print_fwd_bwd,
    residual_table,
    trace,
)
from rematscope.choices.build import FLOPS_PER_LINK_BYTE
from rematscope.seconds.devices import DEVICES, device_called
from rematscope.xla.aot_topology import ABSENT

F32 = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.float32)
X, W = F32((64, 32)), F32((32, 128))
SLOW = Device("slow", {"float32": 1e6}, bandwidth=1e9, arithmetic=1e3, transcendentals=1e2, link=1e3)
MOVES = Device("moves", {"float32": 1e30}, bandwidth=1.0)


def product(x, w):
    return jnp.sum(jnp.sin(checkpoint_name(x @ w, "h")))


FIGURES = ("bandwidth", "link", "links", "axes", "host", "memory", "matmul", "arithmetic")


@pytest.mark.parametrize("device", DEVICES.values(), ids=lambda device: device.name)
def test_every_figure_of_a_device_has_a_source_or_says_that_it_has_none(device):
    defaults = {field.name: field.default for field in dataclasses.fields(Device)}
    said = [name for part in device.source.split("; ") for name in part.partition(": ")[0].split(", ")]
    for name in FIGURES:
        if getattr(device, name) != defaults[name]:
            assert name in said, f"{name} of {device.name} has no source"
    assert device.host or ("host: " in device.source and "not confirmed" in device.source)


@pytest.mark.parametrize("device", DEVICES.values(), ids=lambda device: device.name)
def test_figures_of_a_device_agree_with_each_other(device):
    assert DEVICES[device.name] is device
    assert device.rate(jnp.bfloat16.dtype) >= device.rate(jnp.float32.dtype) > 1e13
    assert device.rate(jnp.int8.dtype) >= device.rate(jnp.dtype("float8_e5m2")) >= device.rate(jnp.bfloat16.dtype)
    assert device.rate(jnp.float32.dtype) > device.bandwidth > device.ring(device.axes) > device.host
    assert device.ring() > 5e10 and 10e9 < device.memory < 300e9


def test_every_target_of_measure_has_rates():
    assert set(ABSENT) == {name for name, device in DEVICES.items() if device.topology} and "tpu v5e" in ABSENT


@pytest.mark.parametrize(
    ("name", "axes", "sent"),
    [("tpu v4", 3, 2 * 45e9), ("tpu v5e", 2, 2 * 45e9), ("tpu v5p", 3, 2 * 90e9), ("tpu v6e", 2, 2 * 90e9)],
)
def test_a_ring_over_an_axis_of_a_torus_sends_both_ways_and_axes_add_up(name, axes, sent):
    device = DEVICES[name]
    assert device.axes == axes
    assert [device.ring(n) for n in range(1, axes + 1)] == [n * sent for n in range(1, axes + 1)]
    with pytest.raises(TargetError, match=rf"{name} has {axes} axes of links, so axes={axes + 1} is not valid"):
        device.ring(axes + 1)


def test_a_ring_of_gpus_uses_all_their_links_in_one_direction():
    """NVIDIA's sheets add up both directions of all links: 600, 900 and 1,800 GB/s."""
    totals = {"a100": 600e9, "h100": 900e9, "h200": 900e9, "b200": 1800e9, "gb200": 1800e9}
    assert {name: 2 * DEVICES[name].ring() for name in totals} == totals
    with pytest.raises(TargetError, match="h100 has 1 axis of links"):
        DEVICES["h100"].ring(2)


def test_a_collective_takes_its_bytes_over_the_ring():
    f, shapes = meshes.fsdp(meshes.under("nothing"))
    passes = trace(f, *shapes)
    device = dataclasses.replace(SLOW, links=2)
    found = estimate_time(passes, SLOW).step - estimate_time(passes, device).step
    assert found == pytest.approx(passes.cost.link_bytes / SLOW.ring() - passes.cost.link_bytes / device.ring())
    assert found == pytest.approx(passes.cost.link_bytes / 2e3)


def test_devices_are_spelled_as_targets_are():
    assert device_called("TPU v5e:2x4") == device_called("tpu v5e") == DEVICES["tpu v5e"]
    assert device_called(SLOW) is SLOW
    with pytest.raises(TargetError, match=r"device='tpu v9' is not known. Give one of tpu v4, .*, gb200; calibrate"):
        estimate_time(trace(product, X, W), "tpu v9")
    for name, meant in {"v5p": "tpu v5p", "tpu-v6e": "tpu v6e", "H100 SXM": "h100", "a100-80gb": "a100"}.items():
        with pytest.raises(TargetError, match=f"is not known. Did you mean {meant!r}?"):
            device_called(name)


def test_a_dtype_that_is_not_listed_takes_the_rate_of_one_as_wide():
    gpu = DEVICES["a100"]
    assert gpu.rate(jnp.dtype("float16")) == gpu.rate(jnp.dtype("bfloat16"))
    assert gpu.rate(jnp.dtype("float8_e5m2")) == gpu.matmul["bfloat16"], "an A100 has no FP8 units"
    assert DEVICES["h100"].rate(jnp.dtype("float8_e5m2")) == DEVICES["h100"].matmul["float8_e4m3fn"]
    assert gpu.rate(jnp.dtype("int4")) == gpu.matmul["int8"]
    assert DEVICES["tpu v4"].rate(jnp.dtype("float64")) == DEVICES["tpu v4"].matmul["float32"]


def test_arithmetic_counts_if_it_takes_longer_than_the_transfers():
    found = estimate_time(trace(product, X, W), SLOW)
    products, sines, sums = 2 * 64 * 32 * 128 / 1e6, 64 * 128 / 1e2, 64 * 128 / 1e3
    cosines = 64 * 128 / 1e2  # saved for the backward pass
    assert found.forward == pytest.approx(products + sines + cosines + sums)
    assert (found.recompute, found.deferred_forward, found.recompute_fraction) == (0, 0, 0)


def test_a_fusion_reads_materialized_values_and_writes_operands_of_matmuls():
    def chain(x, w):
        return jnp.exp(jnp.sin(jnp.tanh(x)) + 1) @ w

    forward = trace(jax.checkpoint(chain), X, W)
    x, w, out = 64 * 32 * 4, 32 * 128 * 4, 64 * 128 * 4
    assert estimate_time(forward, MOVES).forward == (x + x) + (x + w + out)  # a chain reads and writes once


def test_a_reduction_reads_the_inputs_of_its_fused_operations():
    passes = trace(jax.checkpoint(lambda x: jnp.sum(jnp.sin(x) * 2, axis=1)), X)
    assert estimate_time(passes, MOVES).forward == X.size * 4 + 64 * 4


def test_a_gather_reads_the_gathered_rows_and_not_the_table():
    passes = trace(jax.checkpoint(lambda table, i: table[i]), F32((10_000, 8)), jax.ShapeDtypeStruct((3,), jnp.int32))
    assert estimate_time(passes, MOVES).forward < 10_000


def test_a_scan_takes_as_long_as_all_its_iterations():
    def f(x, ws):
        return lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, ws)[0]

    one, nine = (estimate_time(trace(f, F32((64, 32)), F32((n, 32, 32))), "h100").forward for n in (1, 9))
    assert nine == pytest.approx(9 * one)


def test_a_recomputed_operation_takes_the_time_of_its_first_run():
    """This holds even if the backward pass has readers that the forward pass does not have."""
    found = estimate_time(trace(jax.checkpoint(product), X, W), SLOW)
    assert found.recompute == pytest.approx(2 * 64 * 32 * 128 / 1e6)
    assert found.deferred_forward == pytest.approx(64 * 128 / 1e2) and 0 < found.recompute_fraction < 1
    assert found.step == found.forward + found.backward


@pytest.mark.slow
@pytest.mark.parametrize("device", few(["tpu v5e", "h100", SLOW], 1))
def test_planned_seconds_are_traced_seconds(device):
    block = BLOCKS["gpt"]
    made = plan(block.function, *block.args, saved=0.4, cost="seconds", device=device)
    assert made.cost == pytest.approx(estimate_time(made.trace, device).recompute) and made.cost > 0
    assert made.certificate.verify(block.function, *block.args, cost="seconds", device=device) == pytest.approx(
        made.cost
    )
    assert f"if nothing is saved, on {device_called(device).name}" in " ".join(str(made).split())


def test_a_frontier_in_seconds_has_units():
    found = frontier(product, X, W, cost="seconds", device="tpu v5e")
    assert found.points[0].cost > found.points[-1].cost and " ns " in str(found) and "on tpu v5e" in str(found)


def test_a_device_without_seconds_and_seconds_without_a_device_are_refused():
    with pytest.raises(PlanError, match='cost="seconds" needs a device: device='):
        plan(product, X, W, saved=1.0, cost="seconds")
    with pytest.raises(PlanError, match='Add cost="seconds", or remove device='):
        plan(product, X, W, saved=1.0, device="h100")


def test_variants_are_compared_in_seconds_if_a_device_is_given():
    ways = {"plain": product, "checkpoint": jax.checkpoint(product)}
    plain, checkpointed = compare(ways, X, W, device="tpu v5e").rows
    assert plain.seconds.recompute == 0 and checkpointed.seconds.recompute_fraction > 0
    found = compare(ways, X, W, device="tpu v5e")
    header, without, _ = found.cells()
    times = header.index("Recompute\ntime"), header.index("Share of\ntime")
    assert [without[i] for i in times] == ["0 s", "0 %"]
    assert " ns" in str(found) and "tpu v5e" in " ".join(str(found).split())
    assert str(estimate_time(plain.trace, "tpu v5e")).endswith(", without recompute.")
    assert compare(ways, X, W).rows[0].seconds is None and "Recompute\ntime" not in compare(ways, X, W).cells()[0]


def test_every_view_shows_seconds_if_a_device_is_given(capsys):
    """One spelling, `device=`, and figures that add up to those of `estimate_time`."""
    checkpointed = jax.checkpoint(product)
    passes = trace(checkpointed, X, W)
    found = estimate_time(passes, SLOW)
    sentence = " ".join(str(found).split())
    rows = [
        row for listing in SideBySide(passes, device=SLOW).programs() for row in listing.rows if row.seconds is not None
    ]
    assert sum(row.seconds for row in rows) == pytest.approx(found.step)
    assert sum(row.seconds for row in rows if row.gutter == "R") == pytest.approx(found.recompute)
    timeline = liveness(checkpointed, X, W, device=SLOW)
    assert sum(moment.seconds for moment in timeline.samples) == pytest.approx(timeline.roofline.step) == found.step
    table = residual_table(product, X, W, device=SLOW)
    (cosine,) = [row for row in table.rows if row.kind == "computed"]
    assert cosine.seconds == pytest.approx(64 * 128 / 1e2) and table.rows[-1].seconds is None
    for show in (print_fwd_bwd, explore, interactive_programs):
        show(checkpointed, X, W, device=SLOW)
        assert "Estimated by a roofline of slow: both passes take" in " ".join(capsys.readouterr().out.split())
    views = SideBySide(passes, device=SLOW), timeline, residual_table(checkpointed, X, W, device=SLOW)
    assert all(sentence in " ".join(str(view).split()) and sentence in view.html() for view in views)
    assert liveness(checkpointed, X, W).roofline is None and "roofline" not in str(SideBySide(passes))


def test_a_timeline_is_plotted_over_seconds_if_a_device_is_given():
    from matplotlib.figure import Figure

    ax = Figure().subplots()
    timeline = liveness(product, X, W, device=SLOW)
    timeline.plot(ax)
    assert ax.get_xlabel().startswith("s: ") and ax.get_xlim()[1] == pytest.approx(timeline.roofline.step)


def test_a_steps_seconds_are_those_of_every_microbatch_and_of_its_update():
    def step_of(parts):
        def step(w, x):
            def add(total, part):
                loss, gradient = jax.value_and_grad(jax.checkpoint(lambda w: product(part, w)))(w)
                return (total[0] + loss, total[1] + gradient), None

            (loss, gradient), _ = lax.scan(add, (0.0, jnp.zeros_like(w)), x.reshape(parts, -1, 32))
            return loss, w - 0.1 * gradient

        return step

    one, four = compare({"one": step_of(1), "four": step_of(4)}, W, X, device=SLOW).rows
    assert four.recompute_cost == four.trace.recompute_cost and four.trace.times == 4
    assert four.recompute_cost.flops == one.recompute_cost.flops == 2 * 64 * 32 * 128
    assert four.deferred_cost.transcendentals == one.deferred_cost.transcendentals == 64 * 128
    assert four.seconds.recompute == pytest.approx(one.seconds.recompute) and four.seconds.update > 0
    assert four.seconds.step == pytest.approx(sum(moment.seconds for moment in four.timeline.samples))
    assert str(four.seconds).startswith("Estimated by a roofline of slow: the step takes")


def test_calibration_gives_a_device(monkeypatch):
    monkeypatch.setattr("rematscope.seconds.calibrate.fastest_seconds", lambda f, argument: 1.0)
    here = calibrate()
    assert here.bandwidth == 2 * 8 * 2**28 and here.rate(jnp.float32.dtype) == 2 * 1024**3
    assert here.arithmetic > here.transcendentals > 0 and "calibrate()" in here.source
    assert dataclasses.replace(here, name="mine").name == "mine"


@pytest.mark.slow
@pytest.mark.parametrize("cost", ["FLOPs", "seconds"])
def test_a_plan_of_a_step_costs_the_recompute_of_all_microbatches(cost):
    f, shapes = meshes.microbatches(*meshes.fsdp_unrolled(meshes.under("nothing")))
    device = "tpu v5e" if cost == "seconds" else None
    asked = {"cost": "seconds", "device": device} if device else {}
    made = plan(f, *shapes, saved=0.0, **asked)
    again = made.trace.recompute_cost
    assert again == compare({"": f}, *shapes).rows[0].recompute_cost
    assert made.trace.collectives("R")["all-gather"].count == 4 * 6
    if device:
        assert made.cost == pytest.approx(estimate_time(made.trace, device).recompute)
    else:
        assert made.cost == again.flops + again.transcendentals + FLOPS_PER_LINK_BYTE * again.link_bytes
    assert made.certificate.verify(f, *shapes, **asked) == pytest.approx(made.cost)


def test_a_page_of_a_step_says_that_its_figures_are_of_all_microbatches(capsys):
    f, shapes = meshes.microbatches(*meshes.fsdp_unrolled(meshes.under("nothing")))
    print_fwd_bwd(f, *shapes)
    passes, shown = trace(f, *shapes), " ".join(capsys.readouterr().out.split())
    assert (
        f"recomputes {4 * passes.backward.count(role='R')} equations (" in shown
        and "; total of 4 microbatches" in shown
    )
