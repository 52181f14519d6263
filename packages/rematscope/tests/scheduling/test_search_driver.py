"""Invariants of every search, for any compiled peaks of the candidates."""

import math
import random

import jax.numpy as jnp
import pytest
from jax import lax
from measurements import measurement_of
from sampling import few
from zoo import normal

from rematscope.scheduling.per_call import GradientCall
from rematscope.scheduling.search import ScheduleSearch
from rematscope.scheduling.settings import SETTINGS
from rematscope.scheduling.stored_choice import StoredChoice

WS, X = [normal(700 + i, 8, 8) / 3 for i in range(6)], normal(710, 64, 8)


def layers(ws, x):
    for w in ws:
        x = x + jnp.tanh(x @ w) * jnp.exp(-(x @ w))
    return jnp.mean(x**2)


def loop(ws, x):
    return jnp.mean(lax.scan(lambda x, w: (x + jnp.tanh(x @ w) * jnp.exp(x), None), x, jnp.stack(ws))[0] ** 2)


def searched(monkeypatch, f, share, compiles, seed, spread=(0.85, 1.2), target="cpu"):
    """A search whose compiled candidates need a random multiple of their estimate, the same one in every search."""

    def compiled(search, candidate):
        saved = StoredChoice.of(candidate, search.own).saved
        same = f"{seed} {candidate.placement} {saved} {len(candidate.snapshots)}"
        temporaries = int(random.Random(same).uniform(*spread) * candidate.estimated_bytes)
        candidate.measurement = measurement_of(search.fixed_bytes + temporaries, temporaries)
        search.compiled.append(candidate)
        return candidate

    monkeypatch.setattr(ScheduleSearch, "_compile_candidate", compiled)
    search = ScheduleSearch(GradientCall(f, (WS, X), {}), target, compiles)
    limit = search.fixed_bytes + int(share * search._saves_everything.estimated_bytes)
    search._compile_candidates(limit)
    return search, limit


@pytest.mark.parametrize("f", few([layers, loop]))
@pytest.mark.parametrize("seed", few(range(4)))
def test_more_compiles_never_find_worse(monkeypatch, f, seed):
    share = random.Random(seed).uniform(0.6, 0.85)
    costs = []
    for compiles in (1, 2, 3, 4, 8):
        search, limit = searched(monkeypatch, f, share, compiles, seed)
        assert len(search.compiled) <= compiles
        costs.append(search._best_cost(limit))
    assert costs == sorted(costs, reverse=True)
    assert math.isfinite(costs[-1])


@pytest.mark.slow
@pytest.mark.parametrize("f", [layers, loop])
@pytest.mark.parametrize("seed", few(range(3)))
def test_no_candidate_that_was_left_out_beats_the_bound(monkeypatch, f, seed):
    """The early stop costs no more than the gap that a plan prints."""
    search, limit = searched(monkeypatch, f, random.Random(seed).uniform(0.35, 0.8), 12, seed)
    assert len(search.compiled) < 12  # it stopped early
    left = [*search._fixed_candidates, *search.pool.candidates]
    expected = [one for one in left if one.estimated_bytes <= search._estimate_target(limit) and search._is_new(one)]
    cost, bound = search._best_cost(limit), search._lower_bound(limit)
    assert all(one.recompute_cost >= min(cost, bound) for one in expected)


@pytest.mark.slow
@pytest.mark.parametrize("seed", few(range(3)))
def test_worse_estimates_find_nothing_better(monkeypatch, seed):
    share = random.Random(seed).uniform(0.35, 0.8)
    exact, limit = searched(monkeypatch, layers, share, 4, seed, spread=(1, 1))
    rough, _ = searched(monkeypatch, layers, share, 4, seed, spread=(1, 1.2))
    assert (1 - SETTINGS.min_improvement) * exact._best_cost(limit) <= rough._best_cost(limit)


@pytest.mark.slow
@pytest.mark.parametrize("f", [layers, loop])
@pytest.mark.parametrize("seed", few(range(4)))
def test_where_estimates_are_rough_nothing_better_is_left_below_the_smallest_failure(monkeypatch, f, seed):
    """The target between a success and a failure is a guess: a candidate above it, but below the failure, may fit."""
    share = random.Random(seed).uniform(0.4, 0.8)
    search, limit = searched(monkeypatch, f, share, 24, seed, spread=(0.8, 1.5), target="tpu v5e")
    assert len(search.compiled) < 24
    schedules = [one for one in search.compiled if one.placement is None]
    failure = search._smallest_failure(schedules, limit)
    if failure is None or not any(one.fits(limit) for one in schedules):
        return
    ceiling = (1 - SETTINGS.min_improvement) * search._best_cost(limit)
    below = (one for one in search.pool.candidates if one.estimated_bytes < failure and search._is_new(one))
    assert all(one.recompute_cost >= ceiling for one in below)
