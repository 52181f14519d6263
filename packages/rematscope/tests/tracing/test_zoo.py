"""Every function of the zoo, against `jax.vjp` itself."""

import invariants
import pytest
import zoo
from zoo import every_case, sampled_case

from rematscope import trace


@pytest.fixture
def traced(name):
    case = zoo.CASES[name]
    return case, trace(case.function, *case.args, **case.kwargs), *invariants.flattened(case)


@every_case
def test_residuals_are_the_leaves_of_vjp(traced):
    _, passes, flat, leaves = traced
    invariants.assert_residuals_are_the_leaves_of_vjp(passes, flat, leaves)


@every_case
def test_residuals_are_those_that_jax_prints(name, traced):
    _, passes, flat, leaves = traced
    invariants.assert_residuals_are_jax_saved_residuals(passes, flat, leaves)


@every_case
def test_programs_are_closed_and_define_each_value_once(traced):
    _, passes, _, _ = traced
    invariants.assert_structure(passes)


@sampled_case
def test_forward_then_backward_is_vjp(traced):
    case, passes, flat, leaves = traced
    if invariants.as_by_default(case, passes):
        return
    invariants.assert_same_numbers(passes, flat, leaves)


@sampled_case
def test_recomputed_values_equal_their_forward_values_and_late_ones_ignore_the_cotangent(traced):
    case, passes, _, leaves = traced
    if invariants.as_by_default(case, passes):
        return
    invariants.assert_roles_are_true(passes, leaves)
