"""What is expected of an answer; only the judge reads this."""

import jax
import jax.numpy as jnp

from grader.exercises.case_functions import signed_values
from grader.exercises.feedback import read_feedback
from grader.exercises.requirements import Recomputes, Saves

feedback = read_feedback(__file__)
mistake = feedback.mistake


# Values whose matmuls are large enough that sin(y) differs from y, and small enough to round little.
sample_input = signed_values(0.3, 1.2)


def _to_g_first(g, h, x):
    y, g_vjp = jax.vjp(g, x)
    z, h_vjp = jax.vjp(h, y)
    return z, lambda dz: h_vjp(*g_vjp(dz))[0]


def _pull_back_through(g, h, x, *, g_at=None, h_at=None, dz=lambda dz: dz):
    """Return z and bwd, with pullbacks at the values of these functions of x, and with dz altered."""
    y = g(x)
    _, g_vjp = jax.vjp(g, x if g_at is None else g_at(x))
    _, h_vjp = jax.vjp(h, y if h_at is None else h_at(x))
    return h(y), lambda given: g_vjp(*h_vjp(dz(given)))[0]


mistakes = (
    mistake("returns_g_of_h", lambda g, h, x: (g(h(x)), lambda dz: x)),
    mistake("returns_g", lambda g, h, x: (g(x), lambda dz: x)),
    mistake("returns_h", lambda g, h, x: (h(x), lambda dz: x)),
    mistake("pullbacks_swapped", _to_g_first),
    mistake("pullback_of_g_at_g", lambda g, h, x: _pull_back_through(g, h, x, g_at=g)),
    mistake("pullback_of_h_at_x", lambda g, h, x: _pull_back_through(g, h, x, h_at=lambda x: x)),
    mistake("ignores_dz", lambda g, h, x: _pull_back_through(g, h, x, dz=jnp.ones_like)),
    mistake("pullback_of_g_alone", lambda g, h, x: (h(g(x)), lambda dz: jax.vjp(g, x)[1](dz)[0])),
    mistake("pullback_of_h_alone", lambda g, h, x: (h(g(x)), lambda dz: jax.vjp(h, g(x))[1](dz)[0])),
)


def requirements(case):
    more = ("h's other residual",) if case.structure["saved"] == "integers and floats" else ()
    saves = Saves(
        ("h's residual", *more),
        too_much="Which variables from outside does bwd use, and which arrays do they hold?",
        too_little="Which pullback can you compute in the forward pass, so that bwd does not run h again?",
        by_hand=True,
    )
    recomputes = Recomputes(
        count=2,
        too_many="Which functions does bwd run, and how many times each?",
        elsewhere="Does your forward pass run g or h twice? Does bwd run one of them on a value that depends on dz?",
    )
    # With a single column, a matmul has no more FLOPs than a sum of squares, which is allowed.
    return [[saves, recomputes] if case.structure["w"] > 1 else [saves]]
