"""Compositions of operations, loops, branches, names and checkpoints that nobody thought of.

The same compositions in every run; with `REMATSCOPE_EXAMPLES=1000` in the environment, so many others.
"""

import os

import invariants
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zoo
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from operations import BINARY, UNARY

from rematscope import trace

EXAMPLES = os.environ.get("REMATSCOPE_EXAMPLES")

POLICIES = {
    "none": None,
    "everything": zoo.policies.everything_saveable,
    "dots": zoo.policies.dots_saveable,
    "a": zoo.policies.save_only_these_names("a"),
    "not a": zoo.policies.save_any_names_but_these("a"),
    "offload a": zoo.policies.save_and_offload_only_these_names(
        names_which_can_be_saved=["b"],
        names_which_can_be_offloaded=["a"],
        offload_src="device",
        offload_dst="pinned_host",
    ),
}

# A step makes a new vector of three from those made so far; steps hold steps. An integer picks an earlier vector.
simple = st.one_of(
    st.tuples(st.sampled_from(sorted(UNARY))),
    st.tuples(st.sampled_from(sorted(BINARY)), st.integers(0, 3)),
    st.tuples(st.just("dot")),
    st.tuples(st.just("name"), st.sampled_from("ab")),
)


def nested(step):
    steps = st.lists(step, min_size=1, max_size=3)
    return st.one_of(
        st.tuples(st.just("checkpoint"), st.sampled_from(sorted(POLICIES)), st.booleans(), steps),
        st.tuples(st.just("scan"), st.booleans(), steps),
        st.tuples(st.just("carries"), steps, steps),
        st.tuples(st.just("cond"), steps, steps),
        st.tuples(st.just("jit"), steps),
    )


compositions = st.lists(st.recursive(simple, nested, max_leaves=8), min_size=1, max_size=5)


def run(steps, w, x, beside=()):
    """Applies `steps` one after the other, each to what the one before made; the last is the result."""
    made = [*beside, x]
    for step in steps:
        made.append(apply(step, w, made))
    return made[-1]


def apply(step, w, made):
    x = made[-1]
    match step:
        case ("dot",):
            return w @ x
        case ("name", name):
            return checkpoint_name(x, name)
        case ("jit", steps):
            return jax.jit(lambda w, x: run(steps, w, x, made))(w, x)
        case ("checkpoint", policy, prevent_cse, steps):
            f = jax.checkpoint(lambda w, x: run(steps, w, x), policy=POLICIES[policy], prevent_cse=prevent_cse)
            return f(w, x)
        case ("scan", reverse, steps):
            xs = jnp.stack([x, made[0]])
            x, ys = lax.scan(lambda c, x: (run(steps, w, c, [x]), c * x), x, xs, reverse=reverse)
            return x + ys[0]
        case ("carries", first, second):
            both = lambda c, _: ((run(first, w, c[0], [c[1]]), run(second, w, c[1])), None)  # noqa: E731
            return sum(lax.scan(both, (x, x), None, length=3)[0])
        case ("cond", first, second):
            positive = jnp.sum(lax.stop_gradient(made[0])) > 0
            return lax.cond(positive, lambda x: run(first, w, x), lambda x: run(second, w, x), x)
        case (name, i):
            return BINARY[name](x, made[i % len(made)])
        case (name,):
            return UNARY[name](x)


@pytest.mark.slow
@given(compositions)
@settings(
    deadline=None,
    derandomize=EXAMPLES is None,
    max_examples=int(EXAMPLES or 6),
    suppress_health_check=[HealthCheck.too_slow],
)
def test_what_holds_of_every_function_holds_of_compositions(steps):
    def f(w, x):
        return run(steps, w, x) + jnp.tanh(x)

    case = zoo.Case(f, (zoo.normal(1, 3, 3) / 2, np.array([0.3, -0.7, 0.6], np.float32)), {})
    passes = trace(f, *case.args)
    invariants.check(case, passes)
    invariants.assert_residuals_are_jax_saved_residuals(passes, *invariants.flattened(case))
