"""The invariants of all functions hold for random compositions.

Each run tests the same compositions. With `REMATSCOPE_EXAMPLES=1000` in the environment, it tests 1000 others.
"""

import functools
import os

import invariants
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zoo
from compositions import functions, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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


@pytest.mark.slow
@given(functions, st.sampled_from(sorted(POLICIES)), st.booleans())
@settings(
    deadline=None,
    derandomize=EXAMPLES is None,
    max_examples=int(EXAMPLES or 6),
    suppress_health_check=[HealthCheck.too_slow],
)
def test_random_compositions_satisfy_the_invariants(steps, policy, prevent_cse):
    checkpoint = functools.partial(jax.checkpoint, policy=POLICIES[policy], prevent_cse=prevent_cse)

    def f(w, x):
        return run(steps, checkpoint, w, x) + jnp.tanh(x)

    case = zoo.Case(f, (zoo.normal(1, 3, 3) / 2, np.array([0.3, -0.7, 0.6], np.float32)), {})
    passes = trace(f, *case.args)
    invariants.check(case, passes)
    invariants.assert_residuals_are_jax_saved_residuals(passes, *invariants.flattened(case))
