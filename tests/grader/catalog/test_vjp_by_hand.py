"""What an answer's bwd brings along is what crosses from one pass to the other, no more and no less."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from vjp_by_hand.right import closure

import rematscope
from grader.catalog.vjp_by_hand import task
from grader.tracing.apply import applied

BY_KEPT = {case.structure["kept"]: case for case in task.cases(np.random.default_rng(0))}


def computed(answer, case) -> list[str]:
    residuals = rematscope.trace(applied(answer, case), *case.arguments).residuals
    return sorted(str(residual.dtype) for residual in residuals if residual.kind == "computed")


@pytest.mark.parametrize("kept", BY_KEPT)
def test_what_bwd_closes_over_crosses(kept, remat3):
    """A mask and integers too: `jax.closure_convert` would leave them behind, as it hands over floats only."""
    case = BY_KEPT[kept]
    floats = [str(case.arguments[0].dtype)]
    others = {"a mask": ["bool"], "integers and floats": ["int32"]}.get(kept, [])
    assert set(others) <= set(computed(closure, case)) <= {*floats, *others}


def test_what_bwd_does_not_use_does_not_cross():
    def named_in_vain(g, h, x):
        z, bwd = closure(g, h, x)
        y = jnp.cos(z)
        return z, lambda dz: (y, bwd(dz))[1]

    assert computed(named_in_vain, BY_KEPT["floats"]) == ["float32"]


def test_the_derivative_is_the_answers_own():
    def three(g, h, x):
        return h(g(x)), lambda dz: jnp.full_like(x, 3)

    case = BY_KEPT["floats"]
    x = jnp.ones(case.arguments[0].shape)
    z, pullback = jax.vjp(applied(three, case), x)
    assert (pullback(z)[0] == 3).all()
    assert (z == case.function(x)).all()
