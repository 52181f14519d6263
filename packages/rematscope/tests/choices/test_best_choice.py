"""The best choice of names: HiGHS against a look at every choice, another solver, and bounds in exact arithmetic."""

import ctypes
import functools
import os
import random
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy
from blocks import BLOCKS, stack
from ortools.sat.python import cp_model
from sampling import sampled

from rematscope import jax_compat, recompute_graph
from rematscope.choices import duality, enumeration, highs
from rematscope.choices.choice_graph import ChoiceGraph, Part, link
from rematscope.choices.chooser import Chooser
from rematscope.choices.enumeration import best_points, every_choice
from rematscope.choices.zero_one import zero_one_program

without_remat3 = pytest.mark.skipif(jax_compat.remat3(), reason="choices are found without it")
some_blocks = pytest.mark.parametrize("which", sampled(list(BLOCKS), 6))


@functools.cache
def graph_of(which):
    return recompute_graph(BLOCKS[which].function, *BLOCKS[which].args)


# The best choice, by HiGHS.


@pytest.mark.skipif(os.name != "posix", reason="standard output is held back where it is a descriptor")
def test_the_line_that_highs_prints_is_held_back_and_other_lines_are_not(monkeypatch, capfd):
    said = "HighsMipSolverData::transformNewIntegerFeasibleSolution tmpSolver.run();"

    def milp(*args, **how):
        for line in ("before", said, "of another thread"):
            ctypes.CDLL(None).puts(line.encode())
        os.write(1, b"past all buffers\n")
        raise RuntimeError

    monkeypatch.setattr(scipy.optimize, "milp", milp)
    with pytest.raises(RuntimeError):
        highs.milp(np.ones(1))
    print("after")
    lines = sorted(capfd.readouterr().out.splitlines())
    assert lines == ["after", "before", "of another thread", "past all buffers"]


@without_remat3
@some_blocks
def test_highs_finds_the_optimum_of_an_exhaustive_search(which, many):
    graph = graph_of(which)
    nbytes, cost = every_choice(graph)
    for i in random.Random(0).sample(range(len(nbytes)), 20):
        assert (nbytes[i], cost[i]) == graph.evaluate(enumeration.subset(graph, i))
    chooser = Chooser(graph)
    least, most = graph.evaluate(())[0], graph.evaluate(graph.names)[0]
    assert nbytes.min() == least
    for part in range(1, 100):
        budget = least + (most - least) * part // 100
        names, bound = chooser.cheapest(budget)
        kept, again = graph.evaluate(names)
        assert kept <= budget and again == bound == cost[nbytes <= budget].min()


@without_remat3
@some_blocks
def test_highs_distinguishes_budgets_that_differ_by_one_byte(which, many):
    graph = graph_of(which)
    nbytes, cost = every_choice(graph)
    chooser = Chooser(graph)
    points = list(best_points(nbytes, cost))
    for i in random.Random(which).sample(range(1, len(points)), 5):
        here, before = points[i], points[i - 1]
        for byte, point in ((-1, before), (0, here), (1, here)):
            names, bound = chooser.cheapest(int(nbytes[here]) + byte)
            assert graph.evaluate(names)[1] == bound == cost[point]
        assert graph.evaluate(chooser.smallest(int(cost[here]))) == (nbytes[here], cost[here])


@without_remat3
@some_blocks
def test_multipliers_prove_no_more_than_is_true(which, many):
    graph = graph_of(which)
    nbytes, cost = every_choice(graph)
    program = zero_one_program(graph)
    rng = random.Random(which)
    for _ in range(10):
        budget = rng.randrange(int(nbytes.min()), int(nbytes.max()) + 1)
        best = cost[nbytes <= budget].min()
        multipliers = duality.multipliers(program, budget)
        assert graph.least_cost <= duality.dual_bound(program, budget, multipliers) <= best
        others = [rng.randrange(2 * max(multipliers) + 1) if rng.random() < 0.3 else m for m in multipliers]
        assert duality.dual_bound(program, budget, others) <= best


@pytest.mark.slow
@without_remat3
@some_blocks
def test_two_traces_give_the_same_0_1_program(which):
    """Row by row: a certificate's multipliers are prices of rows, and another process verifies them."""
    first, second = (zero_one_program(recompute_graph(BLOCKS[which].function, *BLOCKS[which].args)) for _ in range(2))
    assert first.rows == second.rows
    assert (first.cost, first.nbytes) == (second.cost, second.nbytes)


def random_graph(seed):
    """Draw graphs that no function has: arbitrary costs and bytes, names and arrays of several parts, and cycles."""
    rng = random.Random(seed)
    costs = rng.choice(
        [
            lambda: rng.randrange(100),
            lambda: rng.randrange(10**15),
            lambda: rng.choice([1, 999_999_937, 10**12 + 39]),
            rng.random,
        ]
    )
    sizes = rng.choice(
        [
            lambda: rng.randrange(50),
            lambda: 1024 * rng.randrange(10**6),
            lambda: rng.randrange(10**11),
            lambda: rng.choice([0, 4, 2**30]),
        ]
    )
    least_bytes, least_cost = sizes(), costs()
    parts: list[Part] = []
    readers: dict[Part, list[Part]] = {}
    arrays: list[tuple[object, int]] = []
    for _ in range(rng.randrange(4, 24)):
        part = Part(rng.choice([None, *"abcdefgh"]))
        readers[part] = rng.sample(parts, min(len(parts), rng.choice([0, 1, 1, 2, 3])))
        if not readers[part]:
            part.name, part.entry = part.name or "a", True
        if part.name is None:
            part.cost = costs()
        if part.name or rng.random() < 0.2:
            if not arrays or rng.random() < 0.85:
                arrays.append((object(), sizes()))
            part.arrays = dict([rng.choice(arrays[-2:])])
        parts.append(part)
    for part in parts:
        later = [other for other in parts if not other.entry and other is not part]
        if later and rng.random() < 0.1:
            readers[rng.choice(later)].append(part)
    for part in parts:
        for reader in readers[part]:
            link(reader, part)
    names = sorted({part.name for part in parts} - {None})
    return ChoiceGraph(names=tuple(names), parts=tuple(parts), least_bytes=least_bytes, least_cost=least_cost)


@without_remat3
@pytest.mark.parametrize("seed", range(25))
def test_choices_are_best_whatever_the_size_of_the_numbers(seed, many):
    """Bytes and costs that floats cannot distinguish, for which HiGHS was wrong by far (see highs.py)."""
    graph = random_graph(seed)
    nbytes, cost = every_choice(graph)
    chooser, program = Chooser(graph), zero_one_program(graph)
    rounding = 1e-12 * cost.max()
    points = list(best_points(nbytes, cost))
    for point in random.Random(seed).sample(points, min(3, len(points))):
        for budget in (int(nbytes[point]), int(nbytes[point]) - 1, int(nbytes[point]) + 1):
            if budget < nbytes.min():
                continue
            best = cost[nbytes <= budget].min()
            names, bound = chooser.cheapest(budget)
            kept, again = graph.evaluate(names)
            assert kept <= budget
            assert again == pytest.approx(best, abs=rounding)
            assert best - 1.1e-6 * cost.max() <= bound <= best + rounding
            dual_bound = duality.dual_bound(program, budget, duality.multipliers(program, budget))
            assert dual_bound <= Fraction(best.item()) + Fraction(rounding)


# The best choice, by others.


def by_cp_sat(graph, budget):
    """Return the cost of the best choice, from an independent model for OR-tools."""
    model = cp_model.CpModel()
    saved = {name: model.new_bool_var(name) for name in graph.names}
    reached = {part: model.new_bool_var("") for part in graph.parts}
    sizes = {array: size for part in graph.parts for array, size in part.arrays.items()}
    kept = {array: model.new_bool_var("") for array in sizes}
    for part in graph.parts:
        stops = [saved[part.name]] if part.name else []
        if part.entry:
            model.add_bool_or(reached[part])
        for read in part.reads:
            model.add_bool_or(reached[read], reached[part].negated(), *stops)
        for array in part.arrays:
            model.add_bool_or(kept[array], reached[part].negated(), *(stop.negated() for stop in stops))
    model.add(sum(size * kept[array] for array, size in sizes.items()) <= budget - graph.least_bytes)
    model.minimize(sum(part.cost * reached[part] for part in graph.parts))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.linearization_level = 2
    solver.parameters.max_time_in_seconds = 60
    assert solver.solve(model) == cp_model.OPTIMAL, solver.status_name()
    return int(solver.objective_value) + graph.least_cost


def shared_names(layers):
    """Layers in checkpoints, with the same names in each."""
    layer = jax.checkpoint(BLOCKS["swiglu"].function)

    def net(ps, x):
        for p in ps:
            x = x + layer(p, x)
        return jnp.mean(x)

    p, x = BLOCKS["swiglu"].args
    return net, ([p] * layers, x)


@without_remat3
@pytest.mark.parametrize("function, args, names", [(*stack(12), 171), (*shared_names(3), 15)], ids=["own", "shared"])
def test_another_solver_finds_no_better_choice(function, args, names):
    graph = recompute_graph(function, *args)
    assert len(graph.names) == names
    chooser, program = Chooser(graph), zero_one_program(graph)
    least, most = graph.evaluate(())[0], graph.evaluate(graph.names)[0]
    budget = least + (most - least) * 6 // 10
    chosen, bound = chooser.cheapest(budget)
    kept, again = graph.evaluate(chosen)
    assert kept <= budget and again == bound == by_cp_sat(graph, budget)
    assert graph.least_cost < duality.dual_bound(program, budget, duality.multipliers(program, budget)) <= bound
