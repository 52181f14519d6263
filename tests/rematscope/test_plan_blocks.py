"""Choices of names on six real blocks: each is predicted, and the best is found.

A sample of choices is tried. All of them, hours of them:

    REMATSCOPE_SUBSETS=all pytest -n 6 --dist load tests/rematscope/test_plan_blocks.py -k predicted
"""

import functools
import os
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blocks import BLOCKS, stack
from ortools.sat.python import cp_model
from test_recompute import bytes_of_vjp, measured, names_of, saving, subsets

from rematscope import recompute_graph, solve
from rematscope.solve import ZeroOne, best_points, every_choice

pytestmark = pytest.mark.skipif(
    jax.config.jax_remat3, reason="choices are predicted without it; test_recompute.py tries it on little functions"
)
SUBSETS = os.environ.get("REMATSCOPE_SUBSETS", "12")
every_block = pytest.mark.parametrize("which", BLOCKS)


@functools.cache
def graph_of(which):
    return recompute_graph(BLOCKS[which].function, *BLOCKS[which].args)


@every_block
def test_what_a_choice_keeps_and_computes_again_is_predicted(which):
    block, graph = BLOCKS[which], graph_of(which)
    assert 12 <= len(graph.names) <= 16
    names = names_of(lambda checkpoint: checkpoint(block.function), block.args)
    assert set(graph.names) <= set(names) and not graph.barred
    most = 2 ** len(graph.names) if SUBSETS == "all" else int(SUBSETS)
    for chosen in subsets(graph.names if SUBSETS == "all" else names, most):
        f = saving(chosen)(block.function)
        real = measured(f, block.args)
        assert graph.evaluate(chosen) == real, chosen
        assert bytes_of_vjp(f, block.args) == real[0], chosen


def test_the_leaves_of_a_real_pullback():
    """What crosses when the function is run, and not only traced: each array once, however often it is handed over."""
    block, graph = BLOCKS["swiglu"], graph_of("swiglu")
    rng = np.random.default_rng(0)
    args = jax.tree.map(lambda s: jnp.asarray(rng.standard_normal(s.shape), s.dtype), block.args)
    given = {id(a) for a in jax.tree.leaves(args)}
    for chosen in subsets(graph.names, 4):
        _, pullback = jax.vjp(saving(chosen)(block.function), *args)
        kept = {id(a): a for a in jax.tree.leaves(pullback) if id(a) not in given}
        assert sum(a.nbytes for a in kept.values()) == graph.evaluate(chosen)[0]


@pytest.fixture
def highs(monkeypatch):
    """The 0/1 program is solved, however few the names."""
    monkeypatch.setattr(solve, "FEW", 0)


@every_block
def test_highs_finds_what_a_look_at_every_choice_finds(which, highs):
    graph = graph_of(which)
    nbytes, cost = every_choice(graph)
    for i in random.Random(0).sample(range(len(nbytes)), 20):
        assert (nbytes[i], cost[i]) == graph.evaluate(solve.subset(graph, i))
    program = ZeroOne(graph)
    least, most = graph.evaluate(())[0], graph.evaluate(graph.names)[0]
    assert nbytes.min() == least
    for part in range(1, 100):
        budget = least + (most - least) * part // 100
        best = cost[nbytes <= budget].min()
        names, bound = program.cheapest(budget)
        kept, again = graph.evaluate(names)
        assert kept <= budget and again == best == bound


@every_block
def test_at_each_best_point_and_a_byte_beside_it(which, highs):
    """At a point's bytes the solver finds that point; a byte less is too little for it, a byte more no use."""
    graph = graph_of(which)
    nbytes, cost = every_choice(graph)
    program = ZeroOne(graph)
    points = list(best_points(nbytes, cost))
    for i in random.Random(which).sample(range(1, len(points)), 5):
        here, before = points[i], points[i - 1]
        for byte, point in ((-1, before), (0, here), (1, here)):
            names, bound = program.cheapest(int(nbytes[here]) + byte)
            assert graph.evaluate(names)[1] == bound == cost[point]
        smallest = program.smallest(int(cost[here]))
        assert graph.evaluate(smallest) == (nbytes[here], cost[here])


@every_block
def test_multipliers_prove_no_more_than_is_true(which):
    graph = graph_of(which)
    nbytes, cost = every_choice(graph)
    program = ZeroOne(graph)
    rng = random.Random(which)
    for _ in range(10):
        budget = rng.randrange(int(nbytes.min()), int(nbytes.max()) + 1)
        best = cost[nbytes <= budget].min()
        multipliers = program.multipliers(budget)
        proven = program.proven(budget, multipliers)
        assert graph.least_cost <= proven <= best
        worse = [rng.randrange(2 * max(multipliers)) if rng.random() < 0.3 else m for m in multipliers]
        assert program.proven(budget, worse) <= best


def cp_sat(program: ZeroOne, budget: int) -> int:
    """The least cost within `budget`, as OR-tools' CP-SAT finds and proves it."""
    model = cp_model.CpModel()
    columns = [model.new_bool_var(str(i)) for i in range(len(program.cost))]
    rows = program.rows.tocsr()
    for i, bound in enumerate(program.bounds):
        row = range(rows.indptr[i], rows.indptr[i + 1])
        model.add(sum(int(rows.data[k]) * columns[rows.indices[k]] for k in row) >= int(bound))
    kept = sum(w * x for w, x in zip(program.weights, columns, strict=True))
    model.add(kept <= budget - program.graph.least_bytes)
    model.minimize(sum(c * x for c, x in zip(program.cost, columns, strict=True)))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = 60
    assert solver.solve(model) == cp_model.OPTIMAL
    return program.graph.least_cost + int(solver.objective_value)


@pytest.mark.parametrize("layers, checkpoint, names", [(28, lambda f: f, 399), (8, jax.checkpoint, 57)])
def test_another_solver_finds_no_better_choice(layers, checkpoint, names):
    """Names of their own in one checkpoint; and names that layers share, each layer in a checkpoint."""
    block = stack(layers, checkpoint)
    graph = recompute_graph(block.function, *block.args)
    assert len(graph.names) == names
    program = ZeroOne(graph)
    least, most = graph.evaluate(())[0], graph.evaluate(graph.names)[0]
    budget = (least + most) // 2
    chosen, bound = program.cheapest(budget)
    kept, again = graph.evaluate(chosen)
    assert kept <= budget and again == bound == cp_sat(program, budget)
    assert graph.least_cost < program.proven(budget, program.multipliers(budget)) <= bound
