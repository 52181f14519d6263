"""The plan is the best choice of names: against every choice, another solver, and what is known by hand."""

import dataclasses
import functools
import importlib
import os
from fractions import Fraction

import blocks
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blocks import BLOCKS
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.ad_checkpoint import checkpoint_name

from rematscope import PlanError, cost_of, plan, recompute_graph, solve, trace
from rematscope.solve import ZeroOne, every_choice

policies = jax.checkpoint_policies


def f32(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def kept_and_again(f, args):
    """Computed residuals of the trace, checked against the leaves of a real vjp, and what is computed again."""
    passes = trace(f, *args)
    leaves = jax.tree.leaves(jax.eval_shape(lambda *args: jax.vjp(f, *args)[1], *args))
    assert len(leaves) == len(passes.residuals)
    assert sum(leaf.size * leaf.dtype.itemsize for leaf in leaves) == sum(r.nbytes for r in passes.residuals)
    again = passes.recompute_cost
    return passes.bytes_by_kind()["computed"], again.flops + again.transcendentals


# EVERY_SUBSET=1 pytest -n 0 tests/rematscope/test_plan.py -k subsets: all 2^n of them, which takes hours
@pytest.mark.parametrize("which", BLOCKS)
def test_subsets_of_names_are_predicted(which):
    block = BLOCKS[which]
    graph = recompute_graph(block.function, *block.args)
    everything = range(2 ** len(graph.names))
    some = np.random.default_rng(0).choice(everything, 5, replace=False)
    for index in everything if os.environ.get("EVERY_SUBSET") else [0, everything[-1], *some]:
        names = solve.subset(graph, int(index))
        f = jax.checkpoint(block.function, policy=policies.save_only_these_names(*names))
        assert kept_and_again(f, block.args) == graph.evaluate(names), names


@pytest.mark.parametrize("which", BLOCKS)
def test_the_solver_finds_what_every_choice_shows(which, monkeypatch):
    monkeypatch.setattr(solve, "FEW", 0)
    graph = recompute_graph(BLOCKS[which].function, *BLOCKS[which].args)
    program, (nbytes, cost) = ZeroOne(graph), every_choice(graph)
    for i in range(1, 100):
        budget = int(nbytes.min() + (nbytes.max() - nbytes.min()) * i / 100)
        names, bound = program.cheapest(budget)
        best = cost[nbytes <= budget].min()
        assert graph.evaluate(names) <= (budget, np.inf)
        assert graph.evaluate(names)[1] == best == bound, budget


def tower(layers):
    """SwiGLU layers, each in a checkpoint and with names of its own."""
    parameters, x = BLOCKS["swiglu"].args

    def f(stack, x):
        with pytest.MonkeyPatch.context() as patch:
            for i, p in enumerate(stack):
                patch.setattr(blocks, "name", lambda value, name, i=i: checkpoint_name(value, f"{i} {name}"))
                # A function of its own, or JAX takes the trace of the layer before.
                x = x + jax.checkpoint(lambda p, x: blocks.swiglu(p, x))(p, x)
        return x.mean()

    return f, ([parameters] * layers, x)


def by_cp_sat(graph, budget):
    """The cost of the best choice, written down anew for OR-tools."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    saved = {name: model.new_bool_var(name) for name in graph.names}
    reached = {part: model.new_bool_var("") for part in graph.parts}
    sizes = {array: size for part in graph.parts for array, size in part.arrays.items()}
    kept = {array: model.new_bool_var("") for array in sizes}
    for part in graph.parts:
        stop = [saved[part.name]] if part.name else []
        model.add_bool_or(reached[part]) if part.entry else None
        for read in part.reads:
            model.add_bool_or(reached[read], reached[part].negated(), *stop)
        for array in part.arrays:
            model.add_bool_or(kept[array], reached[part].negated(), *(s.negated() for s in stop))
    model.add(sum(size * kept[array] for array, size in sizes.items()) <= budget - graph.least_bytes)
    model.minimize(sum(int(part.cost) * reached[part] for part in graph.parts))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.linearization_level = 2
    solver.parameters.max_time_in_seconds = 60
    assert solver.solve(model) == cp_model.OPTIMAL, solver.status_name()
    return int(solver.objective_value) + graph.least_cost


@pytest.mark.parametrize(("layers", "share"), [(1, 0.3), (3, 0.5), (27, 0.6)])
def test_another_solver_finds_the_same(layers, share):
    f, args = tower(layers)
    graph = recompute_graph(f, *args)
    assert len(graph.names) == 15 * layers
    budget = int(graph.least_bytes + share * (graph.evaluate(graph.names)[0] - graph.least_bytes))
    names, bound = ZeroOne(graph).cheapest(budget)
    assert graph.evaluate(names)[1] == bound == by_cp_sat(graph, budget)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=2, max_size=8), st.floats(0, 1))
def test_chains_whose_best_choice_is_known(widths, share):
    """Sines of products: each product spares itself alone and takes its own bytes, so that chains are a knapsack."""
    rows = 4

    def chain(x, ws):
        for i, w in enumerate(ws):
            x = jnp.sin(checkpoint_name(x @ w, str(i)))
        return x

    ws = [f32(a, b) for a, b in zip([3, *widths], widths, strict=False)]
    sizes = [4 * rows * b for b in widths]
    spared = [2 * rows * w.shape[0] * w.shape[1] for w in ws]
    budget = int(share * sum(sizes))
    most = [0] * (budget + 1)
    for size, gain in zip(sizes, spared, strict=True):
        most = [max(m, most[b - size] + gain if b >= size else 0) for b, m in enumerate(most)]
    found = plan(chain, f32(rows, 3), ws, budget=budget)
    sines = sum(rows * b for b in widths[:-1])  # the last sine is not computed again
    assert found.cost == sines + sum(spared) - most[budget]
    assert found.gap == 0 and found.slack >= 0


def test_the_planned_function_has_the_same_gradient():
    block = BLOCKS["swiglu"]
    draw = np.random.default_rng(0)
    args = jax.tree.map(lambda a: jnp.asarray(draw.standard_normal(a.shape) / 4, a.dtype), block.args)
    want = jax.jit(jax.value_and_grad(block.function))(*args)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
    found = plan(block.function, *args, budget=0.5)
    for f in (found.planned, jax.checkpoint(block.function, policy=found.policy)):
        jax.tree.map(close, jax.jit(jax.value_and_grad(f))(*args), want)


def test_every_budget_next_to_a_point_of_the_frontier():
    block = BLOCKS["gpt"]
    graph = recompute_graph(block.function, *block.args)
    nbytes, cost = every_choice(graph)
    points = list(solve.best_points(nbytes, cost))
    program = ZeroOne(graph)
    for before, point in zip([None, *points], points, strict=False):
        for extra in (0, 1):
            assert graph.evaluate(program.cheapest(int(nbytes[point]) + extra)[0])[1] == cost[point]
        if before is not None:
            assert graph.evaluate(program.cheapest(int(nbytes[point]) - 1)[0])[1] == cost[before]


def test_costs_of_the_users_own():
    block = BLOCKS["gpt"]
    graph = recompute_graph(block.function, *block.args, cost=lambda e: cost_of(e).bytes)
    moved = plan(block.function, *block.args, budget=0.4, cost=lambda e: cost_of(e).bytes)
    nbytes, cost = every_choice(graph)
    assert moved.cost == cost[nbytes <= moved.budget].min() == moved.passes.recompute_cost.bytes
    seconds = plan(block.function, *block.args, budget=0.4, cost=lambda e: cost_of(e).bytes / 3e9)
    assert seconds.cost == pytest.approx(moved.cost / 3e9)


class TestCertificate:
    block = BLOCKS["cross_attention"]
    made = plan(block.function, *block.args, budget=0.4).certificate

    def test_holds(self):
        assert self.made.verify(self.block.function, *self.block.args) == self.made.objective

    @pytest.mark.parametrize(
        "change",
        [
            {"program": "0" * 64},
            {"budget": 1},
            {"names": ()},
            {"saved_bytes": 0},
            {"objective": 0},
            {"bound": 10**12},
        ],
        ids=lambda change: next(iter(change)),
    )
    def test_a_changed_one_does_not(self, change):
        with pytest.raises(PlanError):
            dataclasses.replace(self.made, **change).verify(self.block.function, *self.block.args)

    def test_is_about_one_program(self):
        p, x, _ = self.block.args
        with pytest.raises(PlanError, match="another program"):
            self.made.verify(self.block.function, p, x, f32(2, 25, 16))

    def test_of_many_names_proves_a_bound_below_the_best(self, monkeypatch):
        graph = recompute_graph(self.block.function, *self.block.args)
        nbytes, cost = every_choice(graph)
        # The package has the function under the module's name.
        monkeypatch.setattr(importlib.import_module("rematscope.plan"), "FEW", 0)
        monkeypatch.setattr(solve, "FEW", 0)
        for share in (0.2, 0.5, 0.8):
            made = plan(self.block.function, *self.block.args, budget=share).certificate
            proven = made.verify(self.block.function, *self.block.args)
            best = cost[nbytes <= made.budget].min()
            assert isinstance(proven, Fraction) and best * 0.7 <= proven <= best == made.objective


def nameless(x, w):
    return jnp.sin(jnp.sin(x @ w) @ w)


def stages(x, w):
    for _ in range(2):
        x = jax.checkpoint(lambda x: jnp.sin(checkpoint_name(jnp.sin(x @ w), "a") @ w))(x)
    return x


@pytest.mark.parametrize(
    ("f", "budget", "words"),
    [
        (nameless, 0.5, "checkpoint_name"),
        (stages, 10, "at least 128 bytes"),
        (stages, "lots", "cannot be read"),
        (stages, -1, "no number of bytes"),
        (stages, True, "no number of bytes"),
        (stages, 1.5, "no fraction"),
        (stages, float("nan"), "no fraction"),
        (stages, None, "no number of bytes"),
    ],
)
def test_what_cannot_be_planned_says_why(f, budget, words):
    with pytest.raises(PlanError, match=words):
        plan(f, f32(4, 8), f32(8, 8), budget=budget)


@pytest.mark.parametrize("text", ["1 KiB", "1KiB", "1024", "1024 B", "1.024 kB", "1,024 bytes"])
def test_budgets_as_people_write_them(text):
    assert plan(stages, f32(4, 8), f32(8, 8), budget=text).budget == 1024


@pytest.mark.parametrize("cost", [-1, float("nan"), float("inf"), None])
def test_a_cost_that_is_none(cost):
    with pytest.raises(PlanError, match="cost"):
        plan(stages, f32(4, 8), f32(8, 8), budget=0.5, cost=lambda e: cost)
