"""The programs of shipped answers return the same results with the interpreter as with XLA.

The test draws some answers. With `-s`, it prints the answers that cannot be interpreted, and why.
"""

import dataclasses
import itertools
import os
import random

import jax
import numpy as np
import pytest
from sample_answers import cases, right, seed_of_inputs, traced, wrong

from grader.exercises import registry
from grader.exercises.spec import Case
from grader.judging.answer_run import AnswerRun
from grader.judging.comparison import ROUNDING, close
from grader.stablehlo import interpreter
from grader.stablehlo.execution import Execution
from grader.stablehlo.float64 import widened_array
from grader.stablehlo.numpy_operations import Uninterpreted
from grader.stablehlo.types import ProgramError
from grader.tracing.evidence import Evidence


class Different(Exception):
    """The two results differ."""


class BothWays(Execution):
    """Run programs with the interpreter and with XLA, and compare the results."""

    def run(self, inputs, cotangents, reference):
        # XLA aborts the process if a program adds up values over meshes of different shapes.
        if any(interpreter.is_on_devices(program.text) for program in (self.forward, self.backward)):
            raise ProgramError("XLA does not run it.")
        interpreted = self.interpreted(inputs, cotangents)
        if not all(map(alike, jax.tree.leaves(interpreted), jax.tree.leaves(self.compiled(inputs, cotangents)))):
            # XLA may keep intermediates in higher precision. In float64, where this does not matter, the results must
            # agree.
            wide = [[[widened_array(array) for array in case] for case in of] for of in (inputs, cotangents)]
            shadows = self.shadow.interpreted(*wide), self.shadow.compiled(*wide)
            largest = itertools.repeat(_largest_value(shadows))
            if not all(map(alike_in_float64, *map(jax.tree.leaves, shadows), largest)):
                raise Different
        return *interpreted, reference(inputs, cotangents)


def alike(one, other):
    return one.dtype == other.dtype and close(*_zero_if_equal(one, other), times=ROUNDING)


def alike_in_float64(one, other, largest):
    """Also compare absolutely: a gradient that is zero, as after normalizing two elements, has only rounding errors."""
    one, other = _zero_if_equal(one, other)
    return close(one, other) or bool((abs(one - other) <= 1e-12 * largest).all())


def _largest_value(arrays):
    floats = [array[np.isfinite(array)] for array in jax.tree.leaves(arrays) if array.dtype == np.float64]
    return max(float(abs(array).max(initial=0)) for array in floats)


def _zero_if_equal(one, other):
    """Replace elements by zero where both are NaN or the same infinity: a wrong answer may divide 0 by 0."""
    assert one.shape == other.shape
    same = (np.isnan(one) & np.isnan(other)) | (np.isinf(one) & (one == other))
    return [np.where(same, np.zeros((), array.dtype), array) for array in (one, other)]


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, pytest.param(40, marks=pytest.mark.slow)])
def test_the_interpreter_agrees_with_xla(unpatched, count):
    every = [(slug, kind, name) for slug in registry.names() for kind in (right, wrong) for name in kind(slug)]
    random.Random(os.environ["REMAT_SEED"]).shuffle(every)
    same, compiled, different = 0, [], []
    for slug, kind, name in every:
        own = [case for case in cases(slug) if isinstance(case, Case)]  # cases of the task come before questions
        evidence = traced(kind(slug)[name].answer, slug) if own else None
        if not isinstance(evidence, Evidence) or any(case.failure for case in evidence.cases):
            continue  # there are no programs
        evidence = dataclasses.replace(evidence, cases=evidence.cases[: len(own)])
        try:
            AnswerRun(evidence, own, registry.task(slug), registry.expect(slug), seed_of_inputs(), BothWays)
            same += 1
        except Uninterpreted as error:
            compiled.append(f"{slug}.{name} ({error})")
        except Different:
            different.append(f"{slug}.{name}")
        except ProgramError:
            continue  # the answer is refused, so it has no results
        if same == count:
            break
    print(f"{same} are the same; compiled alone:", *compiled, sep="\n")
    assert same == count and not different
