"""Where a case's values lie in the two programs: what a layout promises of honest evidence, and what it refuses."""

import dataclasses

import numpy as np
import pytest
from checkpoint_dot_policy.right import RIGHT

from grader.exercises import registry
from grader.judging.answer_run import lay_out, output_sizes
from grader.stablehlo.reader import read
from grader.stablehlo.types import ProgramError
from grader.tracing.capture import capture

NAME = "checkpoint_dot_policy"
CASES = registry.task(NAME).cases(np.random.default_rng(1))
EVIDENCE = capture(RIGHT["decorated"].answer, NAME, CASES)
FORWARD, BACKWARD = read(EVIDENCE.forward), read(EVIDENCE.backward)


def test_every_value_of_the_two_programs_belongs_to_one_case():
    layouts = lay_out(EVIDENCE, CASES, FORWARD, BACKWARD)
    assert [value for each in layouts for value in each.arguments] == list(FORWARD.inputs)
    assert [value for each in layouts for value in (*each.outputs, *each.residuals, *each.undifferentiated)] == list(
        FORWARD.outputs
    )
    taken = [value for each in layouts for value in each.taken_residuals]
    assert [*taken, *(value for each in layouts for value in each.cotangents)] == list(BACKWARD.inputs)
    assert [value for each in layouts for value in each.gradients] == list(BACKWARD.outputs)


def test_a_case_has_what_its_evidence_says():
    for layout, case, traced in zip(lay_out(EVIDENCE, CASES, FORWARD, BACKWARD), CASES, EVIDENCE.cases, strict=True):
        assert len(layout.arguments) == len(layout.gradients) == len(case.arguments)
        assert len(layout.outputs) == len(layout.output_types) == len(layout.cotangents) == traced.outputs
        assert len(layout.residuals) == len(layout.taken_residuals) == len(layout.residual_memory)
        assert len(layout.residuals) == len(traced.sources)


def test_a_residual_that_is_an_argument_has_the_arguments_number():
    for layout in lay_out(EVIDENCE, CASES, FORWARD, BACKWARD):
        assert set(layout.arguments) <= set(layout.residuals)


@pytest.mark.parametrize(
    "change",
    [
        lambda evidence: dataclasses.replace(evidence, cases=evidence.cases[:-1]),
        lambda evidence: dataclasses.replace(evidence, cases=evidence.cases[::-1]),
        lambda evidence: dataclasses.replace(evidence, cases=(*evidence.cases, evidence.cases[0])),
        lambda evidence: dataclasses.replace(evidence, cases=()),
    ],
    ids=["one left out", "in another order", "one twice", "none"],
)
def test_evidence_of_other_cases_is_refused(change):
    with pytest.raises(ProgramError, match="do not fit this exercise's cases"):
        lay_out(change(EVIDENCE), CASES, FORWARD, BACKWARD)


def test_sizes_that_do_not_add_up_are_refused():
    first, *others = EVIDENCE.cases
    more = dataclasses.replace(EVIDENCE, cases=(dataclasses.replace(first, outputs=first.outputs + 1), *others))
    assert output_sizes(more)[0] == output_sizes(EVIDENCE)[0] + 1
    with pytest.raises(ProgramError, match="do not fit"):
        lay_out(more, CASES, FORWARD, BACKWARD)


def test_one_cases_residuals_claimed_for_another_are_refused():
    first, second, *others = EVIDENCE.cases
    moved = (
        dataclasses.replace(first, sources=first.sources[:-1]),
        dataclasses.replace(second, sources=(*second.sources, None)),
        *others,
    )
    with pytest.raises(ProgramError):
        lay_out(dataclasses.replace(EVIDENCE, cases=moved), CASES, FORWARD, BACKWARD)
