"""The programs of shipped answers return the same by the interpreter and by XLA.

In each run of the suite of some answers, drawn; of all of them, and which cannot be interpreted and why, with

    EVERY_ANSWER=1 pytest -n 0 -rs tests/grader/stablehlo/test_shipped_programs.py
"""

import dataclasses
import os
import random

import jax
import pytest
from sample_answers import cases, right, seed_of_inputs, traced, wrong

from grader.answers.evidence import Evidence
from grader.exercises import registry
from grader.exercises.spec import Case
from grader.judging.compare import ROUNDING, close
from grader.judging.trial import try_answer
from grader.stablehlo.execution import Execution
from grader.stablehlo.numpy_operations import Uninterpreted
from grader.stablehlo.shadow import widened_array
from grader.stablehlo.types import ProgramError

SOME = 6


def shipped():
    differentiated = [slug for slug in registry.names() if any(isinstance(case, Case) for case in cases(slug))]
    every = [(kind, slug, name) for slug in differentiated for kind in (right, wrong) for name in kind(slug)]
    return every if os.environ.get("EVERY_ANSWER") else random.Random(os.environ["REMAT_SEED"]).sample(every, SOME)


class BothWays(Execution):
    """Programs that are run both ways, and compared."""

    def run(self, inputs, cotangents, reference):
        interpreted = self.interpreted(inputs, cotangents)
        if not all(map(alike, jax.tree.leaves(interpreted), jax.tree.leaves(self.compiled(inputs, cotangents)))):
            # XLA keeps more digits for a while. What nothing is rounded of must be the same all the same.
            wide = [[[widened_array(array) for array in case] for case in of] for of in (inputs, cotangents)]
            shadows = self.shadow.interpreted(*wide), self.shadow.compiled(*wide)
            assert all(map(close, *map(jax.tree.leaves, shadows)))
        return *interpreted, reference(inputs, cotangents)


def alike(one, other):
    return one.dtype == other.dtype and close(one, other, times=ROUNDING)


@pytest.mark.parametrize(("kind", "slug", "name"), shipped())
def test_the_interpreter_returns_what_xla_does(kind, slug, name, unpatched):
    evidence = traced(kind(slug)[name].answer, slug)
    if not isinstance(evidence, Evidence) or any(case.failure for case in evidence.cases):
        pytest.skip("it leads to no programs")
    own = [case for case in cases(slug) if isinstance(case, Case)]  # they come before questions
    evidence = dataclasses.replace(evidence, cases=evidence.cases[: len(own)])
    try:
        try_answer(evidence, own, registry.task(slug), registry.expect(slug), seed_of_inputs(), BothWays)
    except Uninterpreted as error:
        pytest.skip(f"not interpreted: {error}")
    except ProgramError as error:
        pytest.skip(f"not judged: {error}")
