"""`auto` on long chains: recomputed values may be freed and recomputed again."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from releases import since
from sampling import few
from zoo import normal

from rematscope import auto, load_schedule, measure, trace
from rematscope.choices.build import work
from rematscope.scheduling.captured import captured
from rematscope.scheduling.chain import Chain
from rematscope.scheduling.costs import cost_in
from rematscope.scheduling.linearize import linearize
from rematscope.scheduling.planned import scheduled_function
from rematscope.scheduling.revolve import ChainSegment, RevolveTable
from rematscope.scheduling.schedule import schedule


def forward_steps(links, slots):
    """Return the steps of Revolve's best schedule, without its first sweep (Griewank and Walther, 2000)."""
    repeats = next(r for r in range(links) if math.comb(slots + r, slots) >= links)
    return repeats * links - (math.comb(slots + repeats, repeats - 1) if repeats else 0) - (links - 1)


@pytest.mark.parametrize("links", [2, 5, 16, 23, 64])
def test_on_a_uniform_chain_the_recompute_is_that_of_revolve(links):
    tours = RevolveTable([ChainSegment(8 * (i > 0), 1, 0, 1, 0, 0) for i in range(links)], limit=256)
    for values in (1, 2, 3, 5, 8, 20):
        tour = tours.best(values * tours.slots // 32)
        assert tour.work == forward_steps(links, values)
        assert len(tour.saved) <= values
    assert tours.best(0) is None


def test_the_fewest_slots_for_less_work_are_found_at_once():
    tours = RevolveTable([ChainSegment(8 * (i > 0), 1, 0, 1, 0, 0) for i in range(16)], limit=256)
    for most in (20, 30, 60):
        fewest = tours.fewest(most)
        assert tours.best(fewest).work < most <= tours.best(fewest - 1).work
    assert tours.fewest(0) is None


def layer(x, w):
    return jnp.sin(x @ w)


def chain(ws, x):
    for w in ws:
        x = layer(x, w)
    return jnp.mean(x)


def in_halves(ws, x):
    """Return layers with a checkpoint around the first half, and recursively in each half."""

    def halves(ws, x):
        if len(ws) <= 2:
            for w in ws:
                x = layer(x, w)
            return x
        half = len(ws) // 2
        return halves(ws[half:], jax.checkpoint(halves)(ws[:half], x))

    return jnp.mean(halves(ws, x))


WIDTHS = {"alike": [32] * 12, "unlike": [32, 48, 16, 64, 32, 32, 24, 40, 80, 32, 16, 32, 56, 32, 32, 48, 16, 32]}


@pytest.mark.slow
@since("0.11", "XLA on a CPU recomputes what a checkpoint says")
@pytest.mark.parametrize("widths", few(WIDTHS.values()), ids=WIDTHS)
def test_within_the_peak_of_nested_checkpoints_the_chain_recomputes_less(widths, tmp_path):
    ws = [normal(320 + i, a, b) / a**0.5 for i, (a, b) in enumerate(itertools.pairwise(widths))]
    args = ws, normal(319, 512, 32)
    halves = measure(in_halves, *args)
    found = auto(chain, peak=halves.peak_bytes).plan(*args)
    assert found.measurement.peak_bytes <= halves.peak_bytes
    assert found.recomputed <= 0.6 * (halves.trace.recompute_cost.flops + halves.trace.recompute_cost.transcendentals)
    late, plain = trace(found.function, *args), trace(chain, *args)
    more = late.cost.flops + late.cost.transcendentals - plain.cost.flops - plain.cost.transcendentals
    assert found.recomputed == more
    assert sum(line.amount for line in found.recomputed_values) == more
    assert "dynamic program" in found.certificate
    if widths == WIDTHS["alike"]:  # cut after each matmul, so there is one more link
        states, products = found.saved_bytes // (512 * 32 * 4), late.recompute_cost.flops // (2 * 512 * 32 * 32)
        assert products == forward_steps(len(ws) + 1, states)
    gradients, expected = (jax.jit(jax.grad(f, (0, 1)))(*args) for f in (found.function, chain))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), gradients, expected)
    found.save(tmp_path / "choice.json")
    loaded = trace(load_schedule(tmp_path / "choice.json", chain), *args)
    assert loaded.recompute_cost == late.recompute_cost
    assert loaded.bytes_by_kind() == late.bytes_by_kind()


@pytest.mark.slow
def test_loops_and_random_numbers_in_a_chain_are_recomputed_exactly():
    def net(ws, x, key):
        for w in ws:
            last, steps = lax.scan(lambda c, _, w=w: (jnp.sin(c @ w), jnp.cos(c)), x, None, length=2)
            x = x + jnp.where(jax.random.bernoulli(key, 0.5, x.shape), jnp.tanh(last), 0) @ w + steps.sum(0)
        return jnp.mean(x**2)

    args = [normal(340 + i, 8, 8) / 4 for i in range(6)], normal(339, 16, 8), jax.random.key(0)
    linearized = linearize(trace(net, *args))
    chained = Chain(linearized, cost_in(linearized, work))
    tours = RevolveTable(chained.segments, limit=sum(link.input_bytes + link.peak_bytes for link in chained.segments))
    few = next(tour for tour in map(tours.best, range(tours.slots)) if tour)
    assert any(len(there) > 0 for _, there in few.snapshots)
    again = scheduled_function(captured(net, args, {}), schedule(linearized, *chained.choice(few)), None)
    gradients, expected = (jax.jit(jax.grad(f, (0, 1)))(*args) for f in (again, net))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), gradients, expected)
