"""`auto` with a host: stacked residuals are offloaded if that is faster than recomputing them."""

import contextlib
import functools

import jax
import jax.numpy as jnp
import jaxlib.version
import numpy as np
import pytest
from jax import lax
from sampling import few
from zoo import normal

from rematscope import Device, HostOffload, PlanError, auto, load_schedule, trace
from rematscope.scheduling.host import HostPeakProgram, Moves
from rematscope.scheduling.linearize import linearize
from rematscope.scheduling.peak_program import PeakProgram

SLOW = Device("slow", {"float32": 1e9, "bfloat16": 1e9}, bandwidth=1e10)  # its matmuls take long
KIB = 2**10
pytestmark = pytest.mark.skipif(not hasattr(jax, "memory"), reason="this JAX has no jax.memory")


def body(x, w):
    return x + jnp.tanh(x @ w["up"]) @ w["down"]


def looped(ws, x):
    return jnp.mean(lax.scan(lambda x, w: (body(x, w), None), x, ws)[0] ** 2)


def deep(ws, x):
    for i in range(8):
        x = body(x, jax.tree.map(lambda w, i=i: w[i], ws))
    return jnp.mean(x**2)


WS, X = {"up": normal(700, 8, 32, 128) / 8, "down": normal(701, 8, 128, 32) / 8}, normal(702, 2048, 32)
BUDGET = 300 * KIB  # what a layer makes is 256 KiB: the last result, and next to nothing


def found(host, budget=BUDGET, f=looped, args=(WS, X), device=SLOW, **more):
    return auto(f, saved=budget, cost="seconds", device=device, host=host, **more).plan(*args)


@functools.cache
def fast(dtype):
    """Return the plan for a very fast link."""
    return found(HostOffload(bandwidth=1e12), args=jax.tree.map(lambda a: a.astype(dtype), (WS, X)))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", few(["bfloat16", "float32"]))
def test_offloaded_residuals_do_not_count_and_give_the_same_gradients(dtype, tmp_path):
    args = jax.tree.map(lambda a: a.astype(dtype), (WS, X))
    chosen = fast(dtype)
    assert chosen.host_bytes
    assert chosen.recomputed == pytest.approx(chosen.host_bytes / 1e12)  # everything was offloaded, and is only fetched
    passes = trace(chosen.function, *args)
    assert passes.bytes_by_kind()["computed"] == chosen.saved_bytes <= BUDGET
    assert passes.host_bytes() == chosen.host_bytes == sum(line.amount for line in chosen.offloaded_values)
    chosen.save(tmp_path / "choice.json")
    again = load_schedule(tmp_path / "choice.json", looped)
    assert trace(again, *args).host_bytes() == chosen.host_bytes
    expected = jax.jit(jax.grad(looped, (0, 1)))(*args)
    rounding = {"rtol": 2e-2, "atol": 2e-3} if dtype == "bfloat16" else {"rtol": 1e-5, "atol": 1e-7}
    for gradient in (jax.grad(chosen.function, (0, 1)), jax.jit(jax.grad(again, (0, 1)))):
        check = lambda a, b: np.testing.assert_allclose(np.float32(a), np.float32(b), **rounding)  # noqa: E731
        jax.tree.map(check, gradient(*args), expected)


@pytest.mark.slow
def test_transformations_go_through_moves():
    f = fast("float32").function
    batch = jnp.stack([X, 2 * X])
    each = jax.vmap(jax.grad(f, 1), (None, 0)), jax.vmap(jax.grad(looped, 1), (None, 0))
    tangents = WS, X
    pairs = [(jax.jit(g)(WS, batch) for g in each)]
    pairs.append(jax.jvp(g, (WS, X), tangents)[1] for g in (f, looped))

    def microbatches(g):
        return lambda ws: lax.scan(lambda total, x: (total + g(ws, x), None), 0.0, batch)[0]

    pairs.append(jax.jit(jax.grad(microbatches(g)))(WS)["up"] for g in (f, looped))
    for ours, plain in pairs:
        np.testing.assert_allclose(ours, plain, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_a_transfer_is_weighed_against_recompute():
    """A layer's matmul takes 17 ms here. Its input, 2 MiB for all layers, takes 2 ms at 1 GB/s."""
    alone = found(None, budget="4 MiB")
    beside = found(HostOffload(bandwidth=1e9), budget="4 MiB")
    waiting = found(HostOffload(bandwidth=1e9, overlap=0), budget="4 MiB")
    crawling = found(HostOffload(bandwidth=1e6, overlap=0), budget="4 MiB")
    # The transfer to the host overlaps with other computation.
    assert beside.recomputed == pytest.approx(beside.host_bytes / 1e9, rel=1e-6)
    assert waiting.recomputed == pytest.approx(2 * waiting.host_bytes / 1e9, rel=1e-6)
    assert waiting.recomputed < alone.recomputed == crawling.recomputed
    assert not crawling.host_bytes
    assert all(one.bound == pytest.approx(one.recomputed, rel=0.02) for one in (alone, waiting, crawling))
    with pytest.raises(
        PlanError, match=r"the smallest choice for looped saves .* such as the carry of each iteration of a loop"
    ):
        found(None)
    assert found(HostOffload(bandwidth=1e6)).host_bytes  # where nothing else fits, however long it takes


def test_offloaded_bytes_stay_within_the_hosts_capacity():
    room = found(HostOffload(bandwidth=1e12, capacity="3 MiB"))
    assert 0 < room.host_bytes <= 3 * 2**20
    assert room.recomputed > 1e-3  # for the rest there was none


@pytest.mark.slow
def test_the_plan_states_the_offloaded_bytes_and_the_assumptions():
    chosen = found(HostOffload(bandwidth=2e9, overlap=0.5))
    text = repr(chosen)
    assert "in host memory" in text.splitlines()[0]
    assert "2 GB/s in each direction" in chosen.certificate
    assert "overlap with 50 % of the forward pass" in chosen.certificate
    assert "Compiled for cpu, all of it stays on the device." in chosen.certificate
    with pytest.raises(PlanError, match="which suggested names cannot express"):
        chosen.suggested_names  # noqa: B018
    still = found(HostOffload(bandwidth=2e9), budget="64 MiB")
    assert "Nothing is offloaded" in still.certificate


@pytest.mark.parametrize(
    "given",
    [{"bandwidth": b} for b in (0, -1e9, "16e9", True, None, float("nan"), float("inf"))]
    + [{"bandwidth": 1e9, "overlap": o} for o in (-0.1, 2, "half", float("nan"))]
    + [{"bandwidth": 1e9, "capacity": c} for c in (-1, 1.5, "much", True)],
)
def test_an_invalid_host_is_refused(given):
    with pytest.raises(PlanError, match=f"{[*given][-1]}.*Give|capacity='much' cannot be read"):
        HostOffload(**given)


def test_a_function_without_offloadable_residuals_is_refused():
    host = HostOffload(bandwidth=1e9)
    with pytest.raises(PlanError, match="deep has no loop"):
        found(host, f=deep)
    with pytest.raises(PlanError, match="host= has no effect on the peak of a CPU"):
        auto(looped, peak="1 GiB", host=host).plan(WS, X)
    with pytest.raises(PlanError, match="is not a HostOffload"):
        found(16e9)
    for cost in ({}, {"cost": lambda equation: 1.0}):
        with pytest.raises(PlanError, match="host= needs a cost in seconds"):
            auto(looped, saved=BUDGET, host=host, **cost).plan(WS, X)

    policy = jax.checkpoint_policies.offload_dot_with_no_batch_dims("device", "pinned_host")

    def offloading(ws, x):
        layer = jax.checkpoint(body, policy=policy)
        return jnp.mean(lax.scan(lambda x, w: (layer(x, w), None), x, ws)[0] ** 2)

    with pytest.raises(PlanError, match="offloading already offloads values"):
        found(host, f=offloading)


def test_offloading_is_refused_where_xla_reads_the_offloaded_stacks_in_the_wrong_order(monkeypatch, tmp_path):
    fast("float32").save(tmp_path / "choice.json")
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    for version, is_wrong in (("0.11.0", True), ("0.11.1", False)):
        monkeypatch.setattr(jaxlib.version, "__version__", version)
        with pytest.raises(PlanError, match="XLA of JAX") if is_wrong else contextlib.nullcontext():
            jax.eval_shape(jax.grad(load_schedule(tmp_path / "choice.json", looped)), WS, X)


def test_peak_rows_are_smaller_if_values_are_offloaded():
    linearized = linearize(trace(looped, WS, X))
    alone = PeakProgram(linearized, cost=SLOW)
    beside = HostPeakProgram(Moves.of(linearized, None, HostOffload(bandwidth=1e12), SLOW), (), SLOW)
    assert alone.best(peak=5e6) is None
    assert beside.best(peak=5e6)[1]
    for peak in (1e7, 2e7, 3e7):  # more choices never cost more, and nothing is offloaded if everything fits
        assert beside.best(peak=peak)[2] <= alone.best(peak=peak)[2]
    assert not beside.best(peak=3e7)[1]
