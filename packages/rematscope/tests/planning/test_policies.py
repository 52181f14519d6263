"""JAX's policies, and the function's own policy, are candidates of every plan: none beats a plan at its bytes."""

import functools
import os

import jax
import jax.numpy as jnp
import libraries
import pytest
from checkpointed import LITTLE
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from zoo import Case

from rematscope import PlanError, frontier, jax_compat, plan, trace
from rematscope.choices.build import CostedCall
from rematscope.choices.candidates import candidates, saved_by
from rematscope.tracing.checkpoints import with_policy

F32 = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.float32)
POLICIES = jax.checkpoint_policies
LABELS = ("dots_with_no_batch_dims_saveable", "dots_saveable")
SEED = int(os.environ.get("REMAT_SEED", "0"))
SHAPES = F32((8, 16)), F32((16, 16)), F32((16, 16))

pytestmark = pytest.mark.skipif(jax_compat.remat3(), reason="choices are found without it")


def costs(f, *args):
    """Return the bytes of computed residuals, and the recomputed FLOPs and transcendentals, from a trace."""
    passes = trace(f, *args)
    cost = passes.recompute_cost
    return passes.device_bytes_by_kind().get("computed", 0), cost.flops + cost.transcendentals


def layer(x, w, u):
    """A function whose matmuls are inside a library, where they cannot be named."""
    return jnp.sin(jax.jit(lambda x: jnp.tanh(x @ w) @ u)(x)).sum()


def named(x, w, u):
    """A function whose first matmul and whose softmax have names; its scores have none."""
    q = checkpoint_name(jnp.sin(x @ w), "q")
    return jnp.sin(checkpoint_name(jax.nn.softmax(q @ q.T), "p") @ jnp.tanh(x @ u)).sum()


@pytest.mark.parametrize("f", [layer, named])
@pytest.mark.parametrize("label", ["nothing_saveable", *LABELS, "everything_saveable"])
def test_no_policy_of_jaxs_beats_a_plan_at_its_bytes(f, label):
    kept, again = costs(jax.checkpoint(f, policy=getattr(POLICIES, label)), *SHAPES)
    made = plan(f, *SHAPES, saved=kept)
    assert made.saved_bytes <= kept and made.cost <= again
    assert costs(made.planned, *SHAPES) == (made.saved_bytes, made.cost)
    assert costs(jax.checkpoint(f, policy=made.policy), *SHAPES) == (made.saved_bytes, made.cost)
    assert made.certificate.verify(f, *SHAPES) == made.cost
    assert made.certificate.compared == tuple(candidate.label for candidate in made.compared)


def test_the_policy_that_a_function_has_does_not_beat_its_plan():
    def tangents(primitive, *_, **__):
        return primitive.name == "tanh"

    f = jax.checkpoint(named, policy=tangents)
    kept, again = costs(f, *SHAPES)
    made = plan(f, *SHAPES, saved=kept)
    assert (made.with_policy, made.cost) == ("as written", again) and made.policy is tangents
    assert "named: best as written" in str(made) and "as written" in made.certificate.compared


def test_a_function_with_several_policies_may_be_best_as_it_is():
    def f(x, w, u):
        x = jax.checkpoint(lambda x: jnp.sin(jnp.sin(x @ w) @ u), policy=lambda p, *_, **__: p.name == "sin")(x)
        return jax.checkpoint(lambda x: jnp.cos(jnp.cos(x @ w) @ u), policy=lambda p, *_, **__: p.name == "cos")(x)

    kept, again = costs(f, *SHAPES)
    made = plan(f, *SHAPES, saved=kept)
    assert made.with_policy == "as written" and (made.saved_bytes, made.cost) == (kept, again)
    with pytest.raises(PlanError, match="there is no single policy to return"):
        _ = made.policy


def test_names_are_chosen_in_addition_to_a_policy():
    """If both fit, the policy saves the matmuls, and the name saves a value computed from them."""
    names, products = (
        plan(named, *SHAPES, saved=1.0),
        costs(jax.checkpoint(named, policy=POLICIES.dots_saveable), *SHAPES),
    )
    made = plan(named, *SHAPES, saved=products[0] + names.saved_bytes)
    assert made.names and made.with_policy and made.cost < min(names.cost, products[1])
    assert costs(jax.checkpoint(named, policy=made.policy), *SHAPES) == (made.saved_bytes, made.cost)
    assert f"✓     {made.with_policy}" in str(made)


def test_without_names_a_plan_is_the_best_policy_and_says_where_names_would_help():
    made = plan(layer, *SHAPES, saved="1 KiB")
    assert made.names == () and made.with_policy == LABELS[0] and made.cost < plan(layer, *SHAPES, saved=0).cost
    assert plan(layer, *SHAPES, saved=1.0).with_policy == "as written"
    text = " ".join(str(made).split())
    assert f"layer: save what {LABELS[0]} does" in text and "names no value that the backward pass could use" in text
    assert "layer: save nothing" in str(plan(layer, *SHAPES, saved=0))


def test_a_frontier_has_the_pareto_optimal_policies():
    found = frontier(layer, *SHAPES)
    assert [point.with_policy for point in found.points] == ["", LABELS[0], "as written"]
    assert "3 points on the Pareto front of policies (it has no names to choose)\n" in str(found)
    for point in found.presets:
        assert found.within(point.nbytes).cost <= point.cost


def test_a_choice_that_cannot_be_predicted_for_a_branch_is_traced():
    def f(x, w, u):
        return lax.cond(x.sum() > 0, lambda x: jnp.sin(x @ w), lambda x: jnp.sin(x @ u), x).sum()

    found = {candidate.label: candidate for candidate in candidates(CostedCall(f, SHAPES, {}))}
    assert saved_by(found[""].graph.trace, POLICIES.dots_saveable) is None
    assert found["dots_saveable"].trace is not None
    assert found["dots_saveable"].graph.evaluate(())[0] == costs(with_policy(f, POLICIES.dots_saveable), *SHAPES)[0]


def test_a_policy_whose_values_jax_cannot_save_is_no_candidate():
    def f(x, w):
        return jnp.abs(jnp.sin((x + 1j * x) @ (w + 0j)) @ w).sum()

    assert [candidate.label for candidate in candidates(CostedCall(f, SHAPES[:2], {}))] == ["", "as written"]


CASES = {name: Case(make(jax.checkpoint), args, {}) for name, (make, args, _) in LITTLE.items()}
CASES |= {name: case for name, case in libraries.CASES.items() if "diffrax" not in name}
DRAWN = list(CASES) if "REMATSCOPE_EXAMPLES" in os.environ else list(CASES)[SEED % 5 :: 5]


@pytest.mark.parametrize("name", DRAWN)
def test_names_combined_with_a_policy_are_predicted_as_jax_traces_them(name):
    f, args = CASES[name].function, CASES[name].args
    for candidate in candidates(CostedCall(f, args, {})):
        if candidate.label in LABELS and candidate.trace is None:
            for names in {(), candidate.graph.names[::2]}:
                passes = trace(candidate.planned(f, names), *args)
                cost = passes.recompute_cost
                assert candidate.graph.evaluate(names) == (
                    passes.device_bytes_by_kind().get("computed", 0),
                    cost.flops + cost.transcendentals,
                )
