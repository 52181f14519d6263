"""`auto`'s candidates for a TPU recompute whole blocks. The tests need neither a TPU nor its compiler."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from measurements import measurement_of
from zoo import normal

from rematscope import auto, load_schedule, trace
from rematscope.memory.xla_estimate.estimate import estimate_temporary_bytes
from rematscope.scheduling.candidate import CandidatePool
from rematscope.scheduling.per_call import GradientCall
from rematscope.scheduling.search import ScheduleSearch

TPU = "tpu v5e"
D, TOKENS = 32, (2, 16)


def norm(x):
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def layer(x, w):
    q, k, v = (norm(x) @ w[n] for n in "qkv")
    x = x + jax.nn.softmax(q @ k.swapaxes(-1, -2)) @ v
    return x + jax.nn.gelu(norm(x) @ w["up"]) @ w["down"]


def model(checkpoint, ws, x):
    for w in ws:
        x = (jax.checkpoint(layer) if checkpoint else layer)(x, w)
    return jnp.mean(x**2)


net, checkpoints = functools.partial(model, False), functools.partial(model, True)
SIZES = dict.fromkeys("qkv", (D, D)) | {"up": (D, 4 * D), "down": (4 * D, D)}
WS = [{n: normal(20 * i + j, *size) / 6 for j, (n, size) in enumerate(SIZES.items())} for i in range(3)]
X = normal(99, *TOKENS, D)


@functools.cache
def looked_at():
    """A search that has compiled nothing yet."""
    return ScheduleSearch(GradientCall(net, (WS, X), {}), TPU, 4)


@functools.cache
def within(aim):
    """Return the candidate that saves the most bytes among those with an estimate within a target."""
    return min(looked_at().blocks.propose(aim, CandidatePool()), key=lambda candidate: candidate.recompute_cost)


def barriers(candidate):
    equations = candidate.schedule.backward.equations
    return [(at, e) for at, e in enumerate(equations) if e.primitive == "optimization_barrier"]


def same(f, g):
    for a, b in zip(*(jax.tree.leaves(jax.jit(jax.grad(each, (0, 1)))(WS, X)) for each in (f, g)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_a_block_is_recomputed_after_one_barrier_without_recomputed_values():
    candidate = within(0)
    held = barriers(candidate)
    assert 2 < len(held) <= len(candidate.snapshots)
    given = {
        *candidate.schedule.backward.inputs,
        *candidate.linearized.primal.inputs,
        *candidate.linearized.primal.constants,
    }
    flown = {v for e in candidate.linearized.backward.equations for v in e.outputs} | {
        *candidate.linearized.backward.inputs
    }
    for _, barrier in held:
        *before, newest = barrier.inputs
        assert given.issuperset(before)
        assert newest in flown


@pytest.mark.slow
def test_results_of_reductions_are_saved_for_the_elementwise_operations_between_them():
    candidate = within(0)
    assert candidate.schedule.forward.count("reduce_max") == len(WS)
    assert candidate.schedule.backward.count("reduce_max") == 0
    plain = trace(checkpoints, WS, X).backward
    assert plain.count("reduce_max") == len(WS)


@pytest.mark.slow
def test_matmuls_of_the_last_block_are_saved_first_if_that_takes_no_more_memory():
    least = min(looked_at().blocks.propose(0, CandidatePool()), key=lambda candidate: candidate.estimated_bytes)
    products = [e.outputs[0] for e in least.linearized.primal.equations if e.primitive == "dot_general"]
    of_last = products[-len(products) // len(WS) :]
    kept = [v for v in least.schedule.values if v in products]
    assert kept
    assert {*of_last}.issuperset(kept)
    again = trace(checkpoints, WS, X).recompute_cost
    assert least.recompute_cost < 0.8 * (again.flops + again.transcendentals)


def test_for_a_cpu_no_blocks_are_proposed():
    assert not [*ScheduleSearch(GradientCall(net, (WS, X), {}), "cpu", 4).blocks.propose(1e9, CandidatePool())]


def predicted(f, *args):
    passes = trace(f, *args)
    return estimate_temporary_bytes([passes.forward, passes.backward], [*passes.outputs, *passes.backward.outputs], TPU)


@pytest.mark.slow
def test_at_the_peak_of_checkpoints_less_is_recomputed_and_the_schedule_can_be_loaded(monkeypatch, tmp_path):
    fixed = looked_at().linearized.fixed_bytes
    compiled = []

    def measured(f, args, kwargs, target, grad_mask):
        compiled.append(target)
        taken = predicted(f, *args)
        return measurement_of(fixed + taken, taken)

    monkeypatch.setattr("rematscope.scheduling.search.measure_call", measured)
    plain = trace(checkpoints, WS, X)
    found = auto(net, peak=fixed + 2 * predicted(checkpoints, WS, X), target=TPU).plan(WS, X)
    assert found.recomputed < 0.5 * (plain.recompute_cost.flops + plain.recompute_cost.transcendentals)
    assert {*compiled} == {TPU}
    assert len(compiled) <= 4
    found.save(tmp_path / "choice.json")
    same(load_schedule(tmp_path / "choice.json", net), net)


@pytest.mark.slow
def test_of_checkpoints_with_similar_estimates_the_smallest_saves_the_fewest_bytes():
    """A TPU's compiler may take a fifth more or less than is predicted."""
    of = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.bfloat16)
    sizes = dict.fromkeys("qkv", (1024, 1024)) | {"up": (1024, 4096), "down": (4096, 1024)}
    args = [{n: of(size) for n, size in sizes.items()}] * 3, of((16, 512, 1024))
    smallest = ScheduleSearch(GradientCall(net, args, {}), TPU, 4).checkpoints.smallest
    assert smallest.schedule.saved_bytes <= trace(checkpoints, *args).bytes_by_kind()["computed"]
