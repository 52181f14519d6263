"""How often planning and linting trace: what they need of a function they take from a few traces."""

import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name

from rematscope import frontier, lint, plan, recompute_graph, trace

W, X = jax.ShapeDtypeStruct((4, 4), jnp.float32), jax.ShapeDtypeStruct((2, 4), jnp.float32)
LOOKS = {
    "trace": (trace, 1),
    "recompute_graph": (recompute_graph, 1),
    "plan": (lambda *args: plan(*args, saved=1.0), 3),
    "frontier": (frontier, 1),
    "lint": (lint, 3),
}


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("look", LOOKS)
def test_the_function_is_called_a_few_times_only(look, checkpointed, named):
    calls = 0

    def layer(w, x):
        return jnp.sin(checkpoint_name(x @ w, "h") if named else x @ w)

    def net(ws, x):
        nonlocal calls
        calls += 1
        for w in ws:
            x = (jax.checkpoint(lambda w, x: layer(w, x)) if checkpointed else layer)(w, x)
        return x.sum()

    run, most = LOOKS[look]
    run(net, [W] * 4, X)
    assert 1 <= calls <= most


def test_what_is_planned_takes_other_shapes_too():
    planned = plan(lambda w, x: jnp.sin(x @ w).sum(), W, X, saved=1.0).planned
    assert trace(planned, W, jax.ShapeDtypeStruct((7, 4), jnp.float32)).outputs[0].shape == ()
