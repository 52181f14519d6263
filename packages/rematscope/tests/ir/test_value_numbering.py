"""Loops in loops, which are tried under many suppositions: what is recognised, and where trying ends."""

import invariants
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zoo
from jax import lax

from rematscope import SideBySide, trace
from rematscope.ir import number_table, value_numbering

X = np.float32(0.5)


def loops(passes):
    return "loop" if passes.unproven_equalities == 1 else "loops"


def counts(passes, primitive):
    """Return the numbers of recomputed, deferred and backward operations of one primitive in the backward pass."""
    return tuple(passes.backward.count(primitive, role) for role in "RDB")


def nested_while_loops(depth, operation, x):
    """Return nested loops whose carries start equal and rotate, so that only trial distinguishes them."""
    if depth == 0:
        return operation(x)

    def body(carry):
        i, a, b, c = carry
        return i + 1, nested_while_loops(depth - 1, operation, b), c, a + 1

    return lax.while_loop(lambda carry: carry[0] < 3, body, (0, x, x, x))[1]


def nested_in_both_passes(depth, operation):
    """A function whose forward pass nests loops of sines, and whose backward pass nests loops of `operation`."""
    f = jax.custom_vjp(lambda x: nested_while_loops(depth, jnp.sin, x))
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct * nested_while_loops(depth, operation, x),))
    return f


def said_of_backward(passes):
    """Return the header of the backward program in the view."""
    _, (_, header, _) = SideBySide(passes).programs()
    return header


def test_loops_nested_deep_are_recognised():
    passes = trace(nested_in_both_passes(7, jnp.sin), X)
    assert counts(passes, "sin") == (3**7, 0, 0) and passes.unproven_equalities == 0


@pytest.mark.slow
def test_an_expensive_comparison_of_nested_loops_is_abandoned_and_reported():
    """Every supposition about an outer loop tries all those about the inner ones, and all of them fail."""
    passes = trace(nested_in_both_passes(7, jnp.cos), X)
    assert counts(passes, "cos") == (0, 3**7, 0)
    assert 0 < passes.unproven_equalities <= 7
    assert said_of_backward(passes).endswith(
        f"{passes.unproven_equalities} {loops(passes)} not compared, counted as deferred"
    )


def test_an_expensive_comparison_of_many_loops_is_abandoned_and_reported(monkeypatch):
    """Each may have the carries of any that came before, in any order."""
    monkeypatch.setattr(value_numbering, "STEPS_PER_EQUATION", 8)
    monkeypatch.setattr(value_numbering, "STEPS_AT_FIRST", 100)

    def beside_each_other(x):
        steps = [jax.checkpoint(lambda xs, _, k=k: (tuple(jnp.sin(x + k) for x in xs), None)) for k in range(6)]
        return sum(sum(lax.scan(step, (x, x, x), None, length=3)[0]) for step in steps)

    passes = trace(beside_each_other, X)
    assert 0 < passes.unproven_equalities <= 6
    assert said_of_backward(passes).endswith(
        f"{passes.unproven_equalities} {loops(passes)} not compared, counted as deferred"
    )
    assert counts(passes, "add") == (54, 0, 0), "each loop finds itself in the forward pass"


@pytest.mark.slow
def test_small_loops_one_after_another_do_not_each_take_as_many_steps_as_a_large_one(monkeypatch):
    """Steps are counted by the function: what its first loops take, the loops after them do not have."""
    numbered = []
    results = number_table.NumberTable.results
    monkeypatch.setattr(
        number_table.NumberTable, "results", lambda self, equation: (numbered.append(1), results(self, equation))[1]
    )

    def many(x):
        cosines = [lambda x, k=k: jnp.cos(x) + k for k in range(8)]
        return sum(nested_in_both_passes(3, operation)(x) for operation in cosines)

    passes = trace(many, X)
    equations = sum(1 for p in (passes.forward, passes.backward) for _ in p.walk())
    assert passes.unproven_equalities > 0 and len(numbered) < 2 * value_numbering.STEPS_PER_EQUATION * equations


@pytest.mark.slow
def test_where_the_comparison_ends_is_the_same_every_time():
    first, second = (trace(nested_in_both_passes(6, jnp.cos), X) for _ in range(2))
    assert first.unproven_equalities == second.unproven_equalities > 0
    assert [e.role for e, _ in first.backward.walk()] == [e.role for e, _ in second.backward.walk()]


def test_compared_loops_are_not_reported():
    passes = trace(nested_in_both_passes(2, jnp.cos), X)
    assert passes.unproven_equalities == 0 and "not compared" not in said_of_backward(passes)


@pytest.mark.parametrize(
    "name", ["checkpoint_of_scan_of_checkpoint", "nested_scans_inner_checkpointed", "while_loop_beside"]
)
def test_roles_are_right_if_value_numbering_may_try_nothing(name, monkeypatch):
    monkeypatch.setattr(value_numbering, "STEPS_PER_EQUATION", 0)
    monkeypatch.setattr(value_numbering, "STEPS_AT_FIRST", 0)
    case = zoo.CASES[name]
    invariants.assert_roles_are_true(trace(case.function, *case.args, **case.kwargs), invariants.flattened(case)[1])
