"""Models of libraries, and layers as trainers write them: what holds for every function holds for these.

What takes seconds each is tried of every third one, by the run's seed, and numbers and roles, which are watched
operation by operation, of every ninth; of all with `REMATSCOPE_EXAMPLES` in the environment.
"""

import collections
import functools
import html
import math
import os
import re

import invariants
import jax
import libraries
import pytest
from jax._src.ad_checkpoint import saved_residuals  # private: JAX's own opinion, used in tests only
from releases import since
from sampling import few, sampled

from rematscope import SideBySide, cost_of, jax_compat, plan, residual_table, trace
from rematscope.render.view import plain_text

NAMES = list(libraries.CASES)
every_case = pytest.mark.parametrize("name", NAMES)


def one_in(share):
    all_of_them = "REMATSCOPE_EXAMPLES" in os.environ
    names = NAMES if all_of_them else NAMES[int(os.environ.get("REMAT_SEED", "0")) % share :: share]
    return pytest.mark.parametrize("name", names)


@pytest.fixture
def case(name):
    return libraries.CASES[name]


@pytest.fixture
def passes(name):
    return traced(name)


@functools.cache
def traced(name):
    case = libraries.CASES[name]
    return trace(case.function, *case.args)


@pytest.mark.slow
@one_in(3)
def test_the_residuals_are_those_of_jax(case, passes):
    flat, leaves = invariants.flattened(case)
    invariants.assert_residuals_are_the_leaves_of_vjp(passes, flat, leaves)
    invariants.assert_structure(passes)
    # JAX's list has a value twice where a jitted function returns it twice.
    once = collections.Counter(invariants.types({r.value for r in passes.residuals}))
    printed = collections.Counter(invariants.types(aval for aval, _ in saved_residuals(flat, *leaves)))
    assert once <= printed <= collections.Counter(invariants.types(passes.residuals))


@pytest.mark.skipif(jax_compat.remat3(), reason="numbers and roles are watched without it")
@pytest.mark.slow
@one_in(9)
def test_numbers_are_vjps_and_roles_are_true(case, passes):
    flat, leaves = invariants.flattened(case)
    invariants.assert_same_numbers(passes, flat, leaves)
    invariants.assert_roles_are_true(passes, leaves)


@pytest.mark.slow
@one_in(3)
def test_views_fit_80_columns_and_have_the_same_words_as_a_page(case, passes):
    # A page opens what a text folds.
    for view, whole in (
        (SideBySide(passes), SideBySide(passes, fold=False)),
        (table := residual_table(case.function, *case.args), table),
    ):
        text = plain_text(view, 80)
        assert max(map(len, text.splitlines())) <= 80
        # Long paths into parameters are broken, in a page as in a text.
        page = html.unescape(re.sub(r"<style>.*?</style>|<[^>]+>|\s", "", view.html(), flags=re.DOTALL))
        assert [word for word in re.findall(r"\w+", plain_text(whole, 400)) if word not in page] == []


def work_again(passes, roles):
    """Return the FLOPs of the operations with these roles, except scalars of a loop, which JAX asks no policy about."""
    equations = [e for e, _ in passes.backward.walk() if e.role in roles]
    return sum(cost_of(e).flops for e in equations if any(math.prod(v.shape) > 1 for v in e.outputs))


@pytest.mark.parametrize("name", few(NAMES, 3))
def test_if_nothing_is_saved_only_arguments_are_residuals(case, passes):
    nothing = trace(jax.checkpoint(case.function), *case.args)
    assert nothing.bytes_by_kind()["computed"] == 0
    kept = passes.bytes_by_kind().get("computed", 0)
    assert work_again(nothing, "RD") > 0 or kept == 0  # of loops of unknown length it is not known which of the two


IN_NEW_RELEASES = {"diffrax_with_checkpoints": since("0.11", "a loop in such a checkpoint does not run again")}


MARKED = [pytest.param(name, marks=IN_NEW_RELEASES.get(name, ())) for name in NAMES]


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(MARKED, 3))
def test_a_checkpoint_that_saves_everything_recomputes_nothing(case, passes):
    everything = jax.checkpoint(case.function, policy=jax.checkpoint_policies.everything_saveable)
    assert work_again(trace(everything, *case.args), "R") <= work_again(passes, "R")


NAMED = [
    "grouped_query_attention", "experts_with_ragged_dot", "fused_attention", "state_space_by_an_associative_scan",
    "layers_in_a_scan_over_microbatches",
]  # fmt: skip


@pytest.mark.skipif(jax_compat.remat3(), reason="choices are found without it")
@pytest.mark.parametrize("budget", [0.0, 1.0])
@pytest.mark.parametrize("name", NAMED)
def test_a_plan_has_the_figures_of_its_trace(case, budget):
    found = plan(case.function, *case.args, saved=budget)
    assert trace(found.planned, *case.args).bytes_by_kind().get("computed", 0) == found.saved_bytes
    found.check()
