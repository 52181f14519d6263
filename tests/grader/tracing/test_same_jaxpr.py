"""Deciding whether two traces are the same program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grader.tracing import same_jaxpr
from grader.tracing.same_jaxpr import Trace, same_programs


def are_alike(one, other):
    traces = [Trace(jax.make_jaxpr(function)(jnp.ones(3))) for function in (one, other)]
    return same_programs(*traces, list(zip(*(trace.results for trace in traces), strict=True)))


def nested(depth, function):
    """Nest jitted functions, each calling the next one twice: 2 ** depth calls, but only `depth` programs."""
    for _ in range(depth):
        function = jax.jit(lambda x, inner=function: inner(inner(x)))
    return function


def test_a_program_that_is_used_in_many_places_is_compared_once(monkeypatch):
    made = []

    class Counted(Trace):
        def __init__(self, jaxpr):
            made.append(jaxpr)
            super().__init__(jaxpr)

    monkeypatch.setattr(same_jaxpr, "Trace", Counted)
    assert are_alike(nested(12, jnp.sin), nested(12, jnp.sin))
    assert 0 < len(made) <= 2 * 12


def test_a_difference_in_the_innermost_program_is_found():
    assert not are_alike(nested(5, jnp.sin), nested(5, jnp.cos))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x: x * np.float32(0.0), lambda x: x * np.float32(-0.0)),
        (lambda x: x + np.zeros(3, np.float32), lambda x: x + -np.zeros(3, np.float32)),
    ],
)
def test_signs_of_zeros_count(one, other):
    assert are_alike(one, one) and not are_alike(one, other)
