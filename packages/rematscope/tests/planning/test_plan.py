"""The plan is the best choice of names: against a look at every choice, another solver, and what is known by hand."""

import dataclasses
import functools
import json
import random
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blocks import BLOCKS, stack
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import io_callback
from ortools.sat.python import cp_model

from rematscope import Certificate, PlanError, cost_of, plan, recompute_graph
from rematscope.choices import duality, enumeration
from rematscope.choices.best import Chooser
from rematscope.choices.choice_graph import ChoiceGraph, Part, link
from rematscope.choices.enumeration import best_points, every_choice
from rematscope.choices.zero_one import zero_one
from rematscope.ir import jax_internals

REMAT3 = jax_internals.remat3()
without_remat3 = pytest.mark.skipif(REMAT3, reason="choices are found without it")
every_block = pytest.mark.parametrize("which", BLOCKS)
F32 = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.float32)


@functools.cache
def graph_of(which):
    return recompute_graph(BLOCKS[which].function, *BLOCKS[which].args)


@pytest.fixture
def many(monkeypatch):
    """However few the names, choices are found and proven as if they were many."""
    monkeypatch.setattr(enumeration, "FEW", 0)


# The best choice, by HiGHS.


@without_remat3
@every_block
def test_highs_finds_what_a_look_at_every_choice_finds(which, many):
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
@every_block
def test_at_a_best_point_and_a_byte_beside_it(which, many):
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
@every_block
def test_multipliers_prove_no_more_than_is_true(which, many):
    graph = graph_of(which)
    nbytes, cost = every_choice(graph)
    program = zero_one(graph)
    rng = random.Random(which)
    for _ in range(10):
        budget = rng.randrange(int(nbytes.min()), int(nbytes.max()) + 1)
        best = cost[nbytes <= budget].min()
        multipliers = duality.multipliers(program, budget)
        assert graph.least_cost <= duality.proven(program, budget, multipliers) <= best
        others = [rng.randrange(2 * max(multipliers) + 1) if rng.random() < 0.3 else m for m in multipliers]
        assert duality.proven(program, budget, others) <= best


@without_remat3
@every_block
def test_two_traces_give_the_same_0_1_program(which):
    """Row by row: a certificate's multipliers are prices of rows, and another process verifies them."""
    first, second = (zero_one(recompute_graph(BLOCKS[which].function, *BLOCKS[which].args)) for _ in range(2))
    assert first.rows == second.rows
    assert (first.cost, first.nbytes) == (second.cost, second.nbytes)


def random_graph(seed):
    """What no function has to have: costs and bytes as they come, names and arrays of several parts, cycles."""
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
def test_numbers_of_every_size(seed, many):
    """Bytes and costs that floating point cannot tell apart: as told in highs.py, HiGHS has been wrong by far."""
    graph = random_graph(seed)
    nbytes, cost = every_choice(graph)
    chooser, program = Chooser(graph), zero_one(graph)
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
            proven = duality.proven(program, budget, duality.multipliers(program, budget))
            assert proven <= Fraction(best.item()) + Fraction(rounding)


# The best choice, by others.


def by_cp_sat(graph, budget):
    """The cost of the best choice, written down anew for OR-tools."""
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
@pytest.mark.parametrize("function, args, names", [(*stack(28), 399), (*shared_names(3), 15)], ids=["own", "shared"])
def test_another_solver_finds_no_better_choice(function, args, names):
    graph = recompute_graph(function, *args)
    assert len(graph.names) == names
    chooser, program = Chooser(graph), zero_one(graph)
    least, most = graph.evaluate(())[0], graph.evaluate(graph.names)[0]
    budget = least + (most - least) * 6 // 10
    chosen, bound = chooser.cheapest(budget)
    kept, again = graph.evaluate(chosen)
    assert kept <= budget and again == bound == by_cp_sat(graph, budget)
    assert graph.least_cost < duality.proven(program, budget, duality.multipliers(program, budget)) <= bound


@without_remat3
@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 9), min_size=2, max_size=8), st.floats(0, 1))
def test_chains_whose_best_choice_is_known(widths, share):
    """Sines of products: each product spares itself alone and takes its own bytes, so that chains are a knapsack."""
    rows = 4

    def chain(x, ws):
        for i, w in enumerate(ws):
            x = jnp.sin(checkpoint_name(x @ w, str(i)))
        return x

    ws = [F32((a, b)) for a, b in zip([3, *widths], widths, strict=False)]
    sizes = [4 * rows * b for b in widths]
    spared = [2 * rows * w.shape[0] * w.shape[1] for w in ws]
    budget = int(share * sum(sizes))
    most = [0] * (budget + 1)
    for size, gain in zip(sizes, spared, strict=True):
        most = [max(m, most[b - size] + gain if b >= size else 0) for b, m in enumerate(most)]
    found = plan(chain, F32((rows, 3)), ws, budget=budget)
    sines = sum(rows * b for b in widths[:-1])  # the last sine is not computed again
    assert found.cost == sines + sum(spared) - most[budget]
    assert found.gap == 0 and found.slack >= 0


# The plan.


def test_the_planned_function_has_the_same_gradient():
    block = BLOCKS["gpt"]
    draw = np.random.default_rng(0)
    args = jax.tree.map(lambda a: jnp.asarray(draw.standard_normal(a.shape) / 4, a.dtype), block.args)
    found = plan(block.function, *args, budget=0.5)
    assert 0 < len(found.names) < len(found.graph.names)
    ways = block.function, found.planned, jax.checkpoint(block.function, policy=found.policy)
    same, *others = jax.jit(lambda *args: [jax.value_and_grad(f)(*args) for f in ways])(*args)
    for other in others:
        jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), other, same)


def test_checkpoints_stay_where_they_are():
    found = plan(stages, F32((4, 8)), F32((8, 8)), budget=1.0)
    assert found.names == ("a", "b")
    assert found.saved_bytes == (1 + 2 * 2) * 4 * 8 * 4  # what goes into the second, and two names in both
    assert [e.primitive for e in found.passes.backward.equations].count("optimization_barrier") == 2


def test_costs_of_the_users_own():
    block = BLOCKS["gpt"]
    moved = plan(block.function, *block.args, budget=0.4, cost=lambda e: cost_of(e).bytes)
    nbytes, cost = every_choice(moved.graph)
    assert moved.cost == cost[nbytes <= moved.budget].min() == moved.passes.recompute_cost.bytes


@pytest.mark.parametrize("unit", [1e-9, np.float32(0.1), 1 / 3, np.int64(3), Fraction(1, 3), True])
def test_costs_that_are_measured(unit):
    """Seconds and the like: sums of floats hold to nine digits, and the certificate with them."""
    args = F32((4, 8)), F32((8, 8))

    def seconds(equation):
        return len(equation.primitive) * unit

    found = plan(stages, *args, budget=0.5, cost=seconds)
    nbytes, cost = every_choice(found.graph)
    assert found.cost == pytest.approx(cost[nbytes <= found.budget].min())
    assert found.gap == 0
    assert found.certificate.verify(stages, *args, cost=seconds) == pytest.approx(found.cost)


def test_a_name_is_left_out_only_if_that_takes_no_more_bytes():
    """Without "narrow", which spares nothing, the checkpoint's wide input would have to be kept."""

    def f(x, w):
        part = jax.checkpoint(lambda h: jnp.sin(checkpoint_name(h[:, :1], "narrow")))
        return part(jnp.cos(x @ w))

    found = plan(f, F32((4, 8)), F32((8, 8)), budget=0.0)
    assert found.names == ("narrow",) and found.saved_bytes < found.graph.evaluate(())[0]
    found.certificate.verify(f, F32((4, 8)), F32((8, 8)))


# Its certificate.


ARGS = BLOCKS["gpt"].args
gpt = BLOCKS["gpt"].function


@functools.cache
def planned():
    return plan(gpt, *ARGS, budget=0.4)


def test_a_certificate_is_plain_data():
    made = planned().certificate
    again = Certificate(**json.loads(json.dumps(dataclasses.asdict(made))))
    assert again.verify(gpt, *ARGS) == made.verify(gpt, *ARGS) == made.objective == made.bound


CHANGES = {
    "another function": lambda c: {"function": "other"},
    "another program": lambda c: {"program": c.program[::-1]},
    "a smaller budget": lambda c: {"budget": c.saved_bytes - 1},
    "a budget for a better choice": lambda c: {"budget": 2 * c.budget},
    "a name less": lambda c: {"names": c.names[1:]},
    "a name that is none": lambda c: {"names": (*c.names, "none")},
    "fewer bytes": lambda c: {"saved_bytes": c.saved_bytes - 1},
    "a better objective": lambda c: {"objective": c.objective - 1},
    "an objective above the bound": lambda c: {"objective": c.objective + 1},
    "a higher bound": lambda c: {"bound": c.bound + 1},
    "a lower bound": lambda c: {"bound": c.bound - c.bound // 2},
    "multipliers too many": lambda c: {"multipliers": (*c.multipliers, 1)},
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_certificate_does_not_hold(change):
    made = planned().certificate
    with pytest.raises(PlanError, match=r"another program|was changed"):
        dataclasses.replace(made, **CHANGES[change](made)).verify(gpt, *ARGS)


def test_a_certificate_is_about_one_program():
    p, x = ARGS
    with pytest.raises(PlanError, match="another program than gpt"):
        planned().certificate.verify(gpt, p, F32((3, *x.shape[1:])))
    with pytest.raises(PlanError, match="another program than gpt"):
        planned().certificate.verify(gpt, *ARGS, cost=lambda e: 1)


def test_a_certificate_of_many_names(many):
    _, cost = every_choice(planned().graph)
    nbytes, _ = every_choice(planned().graph)
    found = plan(gpt, *ARGS, budget=0.4)
    made = found.certificate
    best = cost[nbytes <= made.budget].min()
    assert found.gap == 0 and "HiGHS" in made.solver and made.objective == best
    proven = made.verify(gpt, *ARGS)
    assert isinstance(proven, Fraction) and 0.7 * best <= proven <= best
    wrong = {
        "negative": {"multipliers": (*made.multipliers[:-1], -1)},
        "too few": {"multipliers": made.multipliers[1:]},
        "bound above the choice": {"bound": made.bound + 1},
        "bound below what is proven": {"bound": int(proven) - 1},
    }
    for change in wrong.values():
        with pytest.raises(PlanError, match="The certificate was changed"):
            dataclasses.replace(made, **change).verify(gpt, *ARGS)
    # Other multipliers prove less, and nothing untrue.
    less = dataclasses.replace(made, multipliers=(0,) * len(made.multipliers)).verify(gpt, *ARGS)
    assert found.graph.least_cost <= less <= proven


# What cannot be planned.


def nameless(x, w):
    return jnp.sin(jnp.sin(x @ w) @ w)


def stages(x, w):
    for _ in range(2):
        x = jax.checkpoint(lambda x: jnp.sin(checkpoint_name(checkpoint_name(x @ w, "a") @ w, "b")))(x)
    return x


def calls_back(x, w):
    y = io_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), lax.stop_gradient(x))
    return jnp.sin(checkpoint_name(x * y @ w, "a"))


def steepness(x, w):
    return jax.grad(lambda x: stages(x, w).sum())(x)


def sharded(part):
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("i"), jax.sharding.PartitionSpec()
    return jax.shard_map(part, mesh=mesh, in_specs=spec, out_specs=spec[0])


def around_a_shard(x, w):
    return jnp.sin(checkpoint_name(sharded(lambda x, w: jnp.sin(x @ w))(x, w), "a") @ w)


def in_a_shard(x, w):
    return sharded(stages)(x, w)


IMPOSSIBLE = [
    (nameless, 0.5, "checkpoint_name"),
    (
        stages,
        127,
        "a budget of 127 B is too small: stages keeps at least 128 bytes (128 B) of computed values whatever is "
        "chosen: what goes into its checkpoints, and what the backward pass needs of the rest. Give that much, or put "
        "a checkpoint around more of it.",
    ),
    (stages, "lots", "a budget of 'lots' cannot be read. Write it like '12 MiB', '1.5 GB' or '4096 B'."),
    (stages, "-1 KB", "a budget of '-1 KB' cannot be read"),
    (stages, -1, "a budget of -1 is no number of bytes. Give 12_000_000, '12 MB', or 0.5 for half."),
    (stages, True, "a budget of True is no number of bytes"),
    (stages, None, "a budget of None is no number of bytes"),
    (stages, 1.5, "a budget of 1.5 is no fraction. Give a float from 0.0 (as little as possible) to 1.0 (every name)"),
    (stages, float("nan"), "a budget of nan is no fraction"),
    (
        calls_back,
        0.5,
        "calls_back calls back to Python in a way that a checkpoint may not repeat, such as io_callback.",
    ),
    (steepness, 0.5, "steepness takes the gradient of a function that has a checkpoint, and names can only be chosen"),
    *(
        (
            f,
            1.0,
            f"{f.__name__} has a checkpoint around shard_map or in it, and what that computes again inside cannot be "
            "told from outside. Plan the function that it runs by itself.",
        )
        for f in (around_a_shard, in_a_shard)
    ),
]


@pytest.mark.parametrize("f, budget, words", IMPOSSIBLE, ids=lambda value: getattr(value, "__name__", None))
def test_what_cannot_be_planned_says_why(f, budget, words):
    with pytest.raises(PlanError) as error:
        plan(f, F32((4, 8)), F32((8, 8)), budget=budget)
    assert words in str(error.value)


@pytest.mark.parametrize("cost", [-1, float("nan"), float("inf"), None, "much", 1j])
def test_a_cost_that_is_none(cost):
    with pytest.raises(PlanError) as error:
        plan(stages, F32((4, 8)), F32((8, 8)), budget=0.5, cost=lambda e: cost)
    assert str(error.value) == (
        f"cost= says that dot_general costs {cost!r}. Return a number for each equation, and none below 0."
    )


def test_a_plan_that_jax_does_not_keep_to():
    """Under remat3 what does not change in a loop is kept once an iteration; without it, this must not happen."""

    def f(x, ws):
        return lax.scan(lambda x, w: (jnp.sin(x @ checkpoint_name(jnp.sin(x0 @ x0), "k") @ w), None), x, ws)[0]

    x0 = jnp.ones((4, 4))
    found = functools.partial(plan, f, F32((8, 4)), F32((3, 4, 4)), budget=1.0)
    if REMAT3:
        with pytest.raises(PlanError, match=r"keeps .* but JAX keeps .* Under JAX_REMAT3=1 a name may do nothing"):
            found()
    else:
        made = found()
        made.cost += 1
        with pytest.raises(PlanError, match="Please report this function"):
            made.check()


@pytest.mark.parametrize("text", ["1 KiB", "1KiB", "1024", "1024 B", "1.024 kB", "1,024 bytes"])
def test_budgets_as_people_write_them(text):
    assert plan(stages, F32((4, 8)), F32((8, 8)), budget=text).budget == 1024
