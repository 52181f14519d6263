"""`jax.custom_remat`, which only JAX 0.11 has: a function that defines its residuals in a checkpoint."""

import invariants
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rematscope import jax_compat, trace

X = np.float32(0.3)
pytestmark = pytest.mark.skipif(not hasattr(jax, "custom_remat"), reason="this JAX has no jax.custom_remat")


def test_a_checkpoint_saves_the_residuals_of_a_custom_rule():
    """Its forward rule saves the inner sine, so that the backward pass recomputes the outer one alone."""

    def forward(policy, x):
        once = jnp.sin(x)
        return jnp.sin(once), once

    doubled_sine = jax.custom_remat(
        lambda x: jnp.sin(jnp.sin(x)),
        forward,
        lambda once, x: (jnp.sin(once), (x, once)),
        lambda residuals, ct: (ct * jnp.cos(residuals[1]) * jnp.cos(residuals[0]),),
    )
    with jax_compat.use_remat3(True):
        f = jax.checkpoint(lambda x: jnp.sin(doubled_sine(x)))
        passes = trace(f, X)
        invariants.assert_residuals_are_jax_saved_residuals(passes, f, [X])
        invariants.assert_same_numbers(passes, f, [X])
        invariants.assert_roles_are_true(passes, [X])
    assert [r.primitive for r in passes.residuals if r.kind == "computed"] == ["sin"]
    assert passes.backward.count("sin", "R") == 1
