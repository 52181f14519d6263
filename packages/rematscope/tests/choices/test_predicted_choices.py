"""Predictions of what a choice of names saves and recomputes, from one trace, compared with a trace of each choice."""

import functools
import itertools
import os
import random

import jax
import jax.ad_checkpoint
import jax.numpy as jnp
import numpy as np
import pytest
from blocks import BLOCKS
from checkpointed import BARRED, F32, LITTLE
from compositions import functions, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax.ad_checkpoint import checkpoint_name as name
from sampling import few, sampled

from rematscope import cost_of, jax_compat, recompute_graph, trace
from rematscope.ir.program import nbytes

REMAT3 = jax_compat.remat3()
EXAMPLES = os.environ.get("REMATSCOPE_EXAMPLES")


def saving(names):
    return functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.save_only_these_names(*names))


def measured(f, args):
    """Return the bytes of computed residuals, and the recomputed FLOPs and transcendentals, from a trace."""
    passes = trace(f, *args)
    again = [(e, times) for e, times in passes.backward.walk() if e.role == "R"]
    work = sum((cost_of(e).flops + cost_of(e).transcendentals) * times for e, times in again)
    if not any(e.primitive == "cond" for e in everything(passes.backward)):  # of branches the costliest counts there
        assert work == passes.recompute_cost.flops + passes.recompute_cost.transcendentals
    return passes.bytes_by_kind().get("computed", 0), work


def everything(program):
    for equation in program.equations:
        yield equation
        for body in equation.bodies:
            yield from everything(body)


def bytes_of_vjp(f, args):
    """Bytes of the leaves of `jax.vjp`'s pullback that are no argument and no constant."""
    leaves, tree = jax.tree.flatten(args)

    def pullback(*leaves):
        return jax.tree.leaves(jax.vjp(f, *jax.tree.unflatten(tree, leaves))[1])

    jaxpr = jax.make_jaxpr(pullback)(*leaves).jaxpr
    same = {}
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "reduce_precision":
            # A checkpoint rounds what it saves to the precision that it has. Other parts may read it unrounded.
            same[eqn.outvars[0]] = same.get(eqn.invars[0], eqn.invars[0])
        elif (called := jax_compat.called_body(eqn)) is not None:
            inner = jax_compat.body_of(called)[0]
            handed = dict(zip(inner.invars, eqn.invars, strict=True))
            for out, v in zip(eqn.outvars, inner.outvars, strict=True):
                if v in handed:
                    same[out] = same.get(handed[v], handed[v])
    kept = {same.get(v, v) for v in jaxpr.outvars if not jax_compat.is_literal(v)}
    return sum(nbytes(v.aval) for v in kept - {*jaxpr.invars, *jaxpr.constvars})


def names_in(jaxpr):
    """Yield every name in a program, including names in loops, branches and checkpoints."""
    for eqn in jax_compat.body_of(jaxpr)[0].eqns:
        if (found := jax_compat.checkpoint_name(eqn)) is not None:
            yield found
        for body in jax_compat.bodies(eqn):
            yield from names_in(body)


def names_of(make, args):
    return list(dict.fromkeys(names_in(jax.make_jaxpr(lambda *args: jax.vjp(make(saving(())), *args))(*args))))


def subsets(names, most, seed=0):
    """All subsets if there are no more than `most`; else none, all, and a sample."""
    if 2 ** len(names) <= most:
        return [s for size in range(len(names) + 1) for s in itertools.combinations(names, size)]
    rng = random.Random(seed)
    drawn = [tuple(n for n in names if rng.random() < share) for share in rng.choices((0.2, 0.5, 0.8), k=most - 2)]
    return [(), tuple(names), *drawn]


def assert_predicted(make, args, most, seed=0):
    """Check choices of a function; `make(checkpoint)` returns the function with checkpoints made by `checkpoint`."""
    graph = recompute_graph(make(saving(())), *args)
    for chosen in subsets([n for n in names_of(make, args) if n not in graph.barred], most, seed):
        f = make(saving(chosen))
        real = measured(f, args)
        assert graph.evaluate(chosen) == real, chosen
        assert bytes_of_vjp(f, args) == real[0], chosen
    return graph


@pytest.mark.parametrize("which", few(list(LITTLE), 10))
def test_every_choice_is_predicted(which):
    if REMAT3 and which == "values_that_do_not_change_in_a_loop":
        pytest.skip("remat3 saves them once an iteration")
    make, args, names = LITTLE[which]
    assert assert_predicted(make, args, most=4 if REMAT3 else 8).names == names


# Real blocks: a sample of their choices. To test all choices, which takes hours, in packages/rematscope/tests:
#     REMATSCOPE_SUBSETS=all pytest -n 6 --dist load choices/test_predicted_choices.py -k block


@pytest.mark.slow
@pytest.mark.skipif(REMAT3, reason="choices are predicted without it")
@pytest.mark.parametrize("which", sampled(list(BLOCKS), 6))
def test_choices_of_a_block_are_predicted(which):
    block = BLOCKS[which]
    most = 2**16 if os.environ.get("REMATSCOPE_SUBSETS") == "all" else 6
    graph = assert_predicted(lambda checkpoint: checkpoint(block.function), block.args, most)
    assert 12 <= len(graph.names) <= 16 and not graph.barred


def test_a_real_pullback_holds_the_bytes_that_are_predicted():
    """The residuals are those of a real run, not of a trace. Each array counts once, even if it is saved twice."""
    make, shapes, names = LITTLE["attention"]
    rng = np.random.default_rng(0)
    args = [jnp.asarray(rng.standard_normal(s.shape), s.dtype) for s in shapes]
    given = {id(a) for a in args}
    graph = recompute_graph(make(saving(())), *args)
    for chosen in ((), ("logits",), names):
        _, pullback = jax.vjp(make(saving(chosen)), *args)
        kept = {id(a): a for a in jax.tree.leaves(pullback) if id(a) not in given}
        assert sum(a.nbytes for a in kept.values()) == graph.evaluate(chosen)[0]


@pytest.mark.parametrize("which", BARRED)
def test_names_that_cannot_be_saved_separately_are_not_offered(which):
    make, args, names = LITTLE[which]
    graph = assert_predicted(make, args, most=4)
    assert graph.names == names
    assert graph.barred.keys() == BARRED[which].keys()
    assert all(reason in graph.barred[name] for name, reason in BARRED[which].items())


def test_residuals_of_a_branch_are_known_in_the_same_branch_of_the_backward_pass():
    """Saving the first branch's value avoids recomputing one matmul of one branch."""
    make, args, _ = LITTLE["branches_in_a_loop"]
    (_, nothing_saved), (_, one_saved) = (measured(make(saving(names)), args) for names in ((), ("one",)))
    assert nothing_saved - one_saved == 3 * 2 * 8 * 4 * 4


# Random functions.


@pytest.mark.slow
@pytest.mark.skipif(REMAT3, reason="the choice is predicted without it")
@given(functions, st.integers(0, 99))
@settings(
    deadline=None,
    derandomize=EXAMPLES is None,
    max_examples=int(EXAMPLES or 4),
    suppress_health_check=[HealthCheck.too_slow],
)
def test_choices_of_random_functions_are_predicted(steps, seed):
    def make(checkpoint):
        return checkpoint(lambda w, x: run(steps, checkpoint, w, x) + jnp.tanh(x))

    assert_predicted(make, (F32((3, 3)), F32((3,))), most=4, seed=seed)


def test_a_graph_is_written_in_a_line():
    graph = recompute_graph(lambda x: jnp.sin(name(jnp.sin(x), "h")), jnp.ones(4))
    assert repr(graph) == f"<<lambda>: 1 name to choose, {len(graph.nodes)} operations in its backward pass>"
