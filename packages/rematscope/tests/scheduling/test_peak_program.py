"""The 0/1 program finds what a look at every choice finds."""

import jax
import jax.numpy as jnp

from rematscope import trace
from rematscope.scheduling.fusion import Fusion
from rematscope.scheduling.linearize import linearize


def test_a_broadcast_constant_that_a_loop_reads_takes_no_memory():
    """JAX makes the numbers of a mask outside of the loop, and of another type."""

    def masked(ws, x):
        mask = x > x.T

        def turn(x, w):
            return jnp.tanh(jnp.where(mask, x @ w, -1e9)), None

        return jnp.sum(jax.lax.scan(turn, x, ws)[0])

    shapes = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((4, 16, 16), (16, 16))]
    primal = linearize(trace(masked, *shapes)).primal
    (loop,) = (e for e in primal.equations if e.primitive == "scan")
    equations = [e for e in primal.equations if e is not loop] + loop.bodies[0].equations
    repeated = [v for e in primal.equations if e.primitive == "broadcast_in_dim" for v in e.outputs]
    assert repeated and Fusion([equations], primal.outputs).unwritten.issuperset(repeated)
