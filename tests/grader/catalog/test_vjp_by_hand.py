"""The values that an answer's bwd closes over are saved between the two passes, and no others."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from vjp_by_hand.right import closure

import rematscope
from grader.catalog.vjp_by_hand import task
from grader.tracing.apply import applied

BY_SAVED = {case.structure["saved"]: case for case in task.cases(np.random.default_rng(0))}


def computed(answer, case) -> list[str]:
    residuals = rematscope.trace(applied(answer, case), *case.arguments).residuals
    return sorted(str(residual.dtype) for residual in residuals if residual.kind == "computed")


@pytest.mark.parametrize("saved", BY_SAVED)
def test_values_that_bwd_closes_over_are_residuals(saved, remat3):
    """This includes masks and integers, although `jax.closure_convert` would hoist floats only."""
    case = BY_SAVED[saved]
    floats = [str(case.arguments[0].dtype)]
    others = {"a mask": ["bool"], "integers and floats": ["int32"]}.get(saved, [])
    assert set(others) <= set(computed(closure, case)) <= {*floats, *others}


def test_values_that_bwd_does_not_use_are_no_residuals():
    def named_in_vain(g, h, x):
        z, bwd = closure(g, h, x)
        y = jnp.cos(z)
        return z, lambda dz: (y, bwd(dz))[1]

    assert computed(named_in_vain, BY_SAVED["floats"]) == ["float32"]


def test_the_derivative_is_the_answers_own():
    def three(g, h, x):
        return h(g(x)), lambda dz: jnp.full_like(x, 3)

    case = BY_SAVED["floats"]
    x = jnp.ones(case.arguments[0].shape)
    z, pullback = jax.vjp(applied(three, case), x)
    assert (pullback(z)[0] == 3).all()
    assert (z == case.function(x)).all()
