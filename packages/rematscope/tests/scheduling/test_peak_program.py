"""The 0/1 program finds what a look at every choice finds."""

import itertools

import jax
import jax.numpy as jnp
import pytest

from rematscope import trace
from rematscope.choices.build import work
from rematscope.scheduling.costs import cost_in
from rematscope.scheduling.fusion import Fusion
from rematscope.scheduling.linearize import linearize, reading
from rematscope.scheduling.peak_program import PeakProgram


def two_ways(w, u, x):
    h = jnp.sin(x @ w)
    return jnp.sum(jnp.tanh(h @ u) * jnp.exp(h)[:, :8])


def shared(w, u, x):
    h = jnp.tanh(x @ w)
    return jnp.sum(jnp.sin(h @ w) + jnp.cos(h @ w.T) + jnp.sin(x @ w) @ w)


def scaled(w, u, x):
    y = x * jax.lax.rsqrt(jnp.sum(x * x, -1, keepdims=True))
    return jnp.sum(jnp.sin(y @ w) @ u)


def again(linearized, kept):
    """What runs again if these values are kept, counted without the program."""
    cost = cost_in(linearized, work)
    maker = {v: e for e in linearized.primal.equations for v in e.outputs}
    pending = [v for e in linearized.backward.equations for v in reading(e)] + list(linearized.backward.outputs)
    run = set()
    while pending:
        value = pending.pop()
        if value not in kept and (equation := maker.get(value)) is not None and equation not in run:
            run.add(equation)
            pending += reading(equation)
    return sum(map(cost, run - linearized.deferred))  # what is late is computed once in any case


@pytest.mark.parametrize("f", [two_ways, shared, scaled])
def test_within_kept_bytes_no_choice_computes_less_again(f):
    shapes = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((16, 16), (16, 8), (32, 16))]
    linearized = linearize(trace(f, *shapes))
    rows = PeakProgram(linearized)
    assert 3 <= len(rows.saveable) <= 12
    choices = [
        (sum(v.nbytes for v in kept), again(linearized, kept))
        for count in range(len(rows.saveable) + 1)
        for kept in map(frozenset, itertools.combinations(rows.saveable, count))
    ]
    for budget in sorted({nbytes for nbytes, _ in choices})[::3]:
        kept, _, bound = rows.best(saved=budget, gap=0)
        least = min(cost for nbytes, cost in choices if nbytes <= budget)
        assert sum(v.nbytes for v in kept) <= budget
        assert again(linearized, kept) == least and bound == pytest.approx(least, rel=1e-3, abs=1e-3 * choices[0][1])


def test_what_a_loop_reads_of_repeated_numbers_is_in_no_memory():
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
