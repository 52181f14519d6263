"""Exercise 16: the observations for loops whose trip count is known only at run time."""

import numpy as np
import pytest
from sample_answers import right

from grader.exercises import registry
from grader.isolation.in_process import illustrated
from grader.verdicts.verdict import Verdict
from grader.verdicts.views import VerdictView


@pytest.mark.parametrize(("name", "known"), [("steps_counted_in_the_carry", True), ("equinox", False)])
def test_no_costs_are_shown_that_are_not_in_the_trace(name, known):
    slug = "checkpointed_while"
    task = registry.task(slug)
    verdict = illustrated(
        Verdict(slug, "passed", ()), right(slug)[name].answer, task.cases(np.random.default_rng(0)), task
    )
    assert bool(verdict.effects) == known and verdict.residuals is not None
    assert ("Cost (" in str(VerdictView(verdict))) == known
