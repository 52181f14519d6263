"""Plans equal the best choice of names, known by hand. Errors state why a function cannot be planned."""

import functools
import gc
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blocks import BLOCKS
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import io_callback
from releases import since

from rematscope import PlanError, cost_of, frontier, jax_compat, lint, plan, recompute_graph, trace
from rematscope.choices.enumeration import every_choice

REMAT3 = jax_compat.remat3()
without_remat3 = pytest.mark.skipif(REMAT3, reason="choices are found without it")
F32 = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.float32)


@pytest.mark.skipif(jax_compat.REMAT3_IS_PREDICTABLE, reason="only JAX before 0.11 has another remat3")
@since("0.10", "jax_remat3 exists")
@pytest.mark.parametrize("find", [plan, recompute_graph, lint, frontier])
def test_the_remat3_of_jax_0_10_is_refused(find):
    """In JAX 0.10.2, a policy of names saves other values in a scan than by default."""
    f, options = jax.checkpoint(lambda x: jnp.sin(checkpoint_name(x, "x"))), {"saved": 1.0} if find is plan else {}
    with jax_compat.use_remat3(True), pytest.raises(PlanError, match="jax_remat3 of JAX"):
        find(f, F32((4,)), **options)


@pytest.mark.slow
@without_remat3
@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 9), min_size=2, max_size=8), st.floats(0, 1))
def test_a_chain_is_planned_as_its_knapsack_is_solved(widths, share):
    """Sines of matmuls: saving one avoids that matmul alone and takes its own bytes, so the chain is a knapsack."""
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
    found = plan(chain, F32((rows, 3)), ws, saved=budget)
    sines = sum(rows * b for b in widths[:-1])  # the last sine is not recomputed
    assert found.cost == sines + sum(spared) - most[budget]
    assert found.gap == 0 and found.slack >= 0


@pytest.mark.slow
def test_the_planned_function_has_the_same_gradient():
    block = BLOCKS["gpt"]
    draw = np.random.default_rng(0)
    args = jax.tree.map(lambda a: jnp.asarray(draw.standard_normal(a.shape) / 4, a.dtype), block.args)
    found = plan(block.function, *args, saved=0.5)
    assert 0 < len(found.names) < len(found.graph.names)
    ways = block.function, found.planned, jax.checkpoint(block.function, policy=found.policy)
    same, *others = jax.jit(lambda *args: [jax.value_and_grad(f)(*args) for f in ways])(*args)
    for other in others:
        jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), other, same)


@without_remat3
@pytest.mark.parametrize("look", [trace, recompute_graph, frontier, lint, functools.partial(plan, saved=0.5)])
def test_a_function_is_called_once_however_often_it_is_traced(look):
    """A large model's own Python takes as long as what JAX makes of it."""
    calls = []

    def f(x, w):
        calls.append(1)
        for _ in range(3):
            x = jnp.sin(checkpoint_name(x @ w, "h"))
        return x.sum()

    assert str(look(f, jnp.ones((8, 8)), jnp.ones((8, 8)))) and len(calls) == 1


def test_a_planned_function_accepts_other_shapes():
    planned = plan(lambda w, x: jnp.sin(x @ w).sum(), F32((4, 4)), F32((2, 4)), saved=1.0).planned
    assert trace(planned, F32((4, 4)), F32((7, 4))).outputs[0].shape == ()


@without_remat3
def test_a_function_is_checked_once_for_being_a_step():
    """Afterwards, its loss is called once per trace: saving nothing, saving everything, as written, and planned."""
    calls = []

    def loss(w, x):
        calls.append(1)
        for _ in range(3):
            x = jnp.sin(checkpoint_name(x @ w, "h"))
        return x.sum()

    def step(w, x):
        return w - 0.1 * jax.grad(loss)(w, x)

    plan(step, jnp.ones((8, 8)), jnp.ones((8, 8)), saved=0.5)
    assert len(calls) == 5


@pytest.mark.parametrize("look", [trace, lint, functools.partial(plan, saved=0.5)])
def test_garbage_is_collected_when_all_is_traced(look):
    """Otherwise, programs of many thousands of equations would be searched repeatedly."""
    collects = []

    def f(x):
        collects.append(gc.isenabled())
        return jnp.sin(checkpoint_name(jnp.sin(x), "h"))

    look(f, jnp.ones(4))
    assert not any(collects) and gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        look(lambda x: f(x) / (1 // 0), jnp.ones(4))
    assert gc.isenabled()


@without_remat3
def test_a_plans_view_includes_lints_findings_which_are_computed_on_first_use(monkeypatch):
    def f(x, w):
        for _ in range(3):
            x = jnp.sin(x @ w)
        return x.sum()

    args = jnp.ones((8, 8)), jnp.ones((8, 8))
    asked = []
    monkeypatch.setattr("rematscope.planning.plan.no_names", lambda *_: asked.append(1) or "Name a product.")
    made = plan(f, *args, saved=0.5)
    assert not asked
    assert "Name a product." in str(made) and "identical layers" in str(made) and len(asked) == 1


def test_checkpoints_are_not_moved():
    found = plan(stages, F32((4, 8)), F32((8, 8)), saved=1.0)
    assert found.names == ("a", "b")
    assert found.saved_bytes == (1 + 2 * 2) * 4 * 8 * 4  # the input of the second checkpoint, and two names in both
    assert [e.primitive for e in found.trace.backward.equations].count("optimization_barrier") == 2


def test_a_plan_is_the_best_by_a_cost_of_the_users_own():
    block = BLOCKS["gpt"]
    moved = plan(block.function, *block.args, saved=0.4, cost=lambda e: cost_of(e).bytes)
    nbytes, cost = every_choice(moved.graph)
    assert moved.cost == cost[nbytes <= moved.budget].min() == moved.trace.recompute_cost.bytes


@pytest.mark.parametrize("unit", [1e-9, np.float32(0.1), 1 / 3, np.int64(3), Fraction(1, 3), True])
def test_a_plan_and_its_certificate_hold_for_measured_costs(unit):
    """Seconds and the like: sums of floats hold to nine digits, and the certificate with them."""
    args = F32((4, 8)), F32((8, 8))

    def seconds(equation):
        return len(equation.primitive) * unit

    found = plan(stages, *args, saved=0.5, cost=seconds)
    nbytes, cost = every_choice(found.graph)
    assert found.cost == pytest.approx(cost[nbytes <= found.budget].min())
    assert found.gap == 0
    assert found.certificate.verify(stages, *args, cost=seconds) == pytest.approx(found.cost)


def test_a_name_is_left_out_only_if_that_takes_no_more_bytes():
    """Without "narrow", which avoids no recompute, the checkpoint's wide input would be saved."""

    def f(x, w):
        part = jax.checkpoint(lambda h: jnp.sin(checkpoint_name(h[:, :1], "narrow")))
        return part(jnp.cos(x @ w))

    found = plan(f, F32((4, 8)), F32((8, 8)), saved=0.0)
    assert found.names == ("narrow",) and found.saved_bytes < found.graph.evaluate(())[0]
    found.certificate.verify(f, F32((4, 8)), F32((8, 8)))


# Functions that cannot be planned.


def stages(x, w):
    for _ in range(2):
        x = jax.checkpoint(lambda x: jnp.sin(checkpoint_name(checkpoint_name(x @ w, "a") @ w, "b")))(x)
    return x


def calls_back(x, w):
    y = io_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), lax.stop_gradient(x))
    return jnp.sin(checkpoint_name(x * y @ w, "a"))


def steepness(x, w):
    return jnp.sum(jax.grad(lambda x: stages(x, w).sum())(x) ** 2)


IMPOSSIBLE = [
    (
        stages,
        127,
        "saved=127 B is too small: stages saves at least 128 bytes (128 B) of computed residuals under any policy: "
        "the inputs of its checkpoints, and the residuals outside of them. Allow that much, or put a checkpoint around "
        "a larger part.",
    ),
    (stages, "lots", "saved='lots' cannot be read. Write bytes like '12 MiB', '1.5 GB' or '4096 B'."),
    (stages, "-1 KB", "saved='-1 KB' cannot be read"),
    (stages, -1, "saved=-1 is not a number of bytes. Give 12_000_000, '12 MB', or 0.5 for half."),
    (stages, True, "saved=True is not a number of bytes"),
    (stages, None, "saved=None is not a number of bytes"),
    (stages, 1.5, "saved=1.5 is not a fraction. Give a float from 0.0 (as little as possible) to 1.0 (all names)"),
    (stages, float("nan"), "saved=nan is not a fraction"),
    (calls_back, 0.5, "calls_back has a callback that must not run twice, such as io_callback."),
    (steepness, 0.5, "steepness differentiates a function that has a checkpoint, so names can no longer be chosen"),
]


@pytest.mark.parametrize("f, budget, words", IMPOSSIBLE, ids=lambda value: getattr(value, "__name__", None))
def test_a_function_that_cannot_be_planned_gets_a_reason(f, budget, words):
    with pytest.raises(PlanError) as error:
        plan(f, F32((4, 8)), F32((8, 8)), saved=budget)
    assert words in str(error.value)


def test_a_plan_that_jax_does_not_keep_to_is_refused():
    made = plan(stages, F32((4, 8)), F32((8, 8)), saved=1.0)
    made.cost += 1
    with pytest.raises(PlanError, match="Please report this function"):
        made.check()


@pytest.mark.parametrize("text", ["1 KiB", "1KiB", "1024", "1024 B", "1.024 kB", "1,024 bytes"])
def test_budgets_are_read_as_people_write_them(text):
    assert plan(stages, F32((4, 8)), F32((8, 8)), saved=text).budget == 1024
