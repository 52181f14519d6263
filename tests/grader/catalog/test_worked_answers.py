"""Every worked answer passes on every path at the run's seed. `python -m tests.sweep --worked` tries other seeds."""

import dataclasses
import hashlib

import bubblewrap
import numpy as np
import pytest
import sample_answers

from grader.exercises import registry
from grader.exercises.spec import Case
from grader.isolation.in_process import grade_file
from grader.judging.answer_run import AnswerRun
from grader.judging.comparison import TOLERANCE, as_float
from grader.tracing.evidence import Evidence


def worked(slug):
    return sample_answers.shipped(slug, "worked")[slug]


@pytest.mark.parametrize("slug", registry.names())
def test_a_worked_answer_passes_on_a_page_and_in_a_terminal(slug, seed, tmp_path):
    path = tmp_path / f"{slug}.py"
    path.write_bytes(sample_answers.as_submission(slug, "worked", slug).content)
    in_terminal = grade_file(path, slug, seed)
    assert in_terminal.passed
    on_page = sample_answers.traced(worked(slug), slug, seed)
    assert isinstance(on_page, Evidence)
    # A verdict is determined by the evidence and the seed, so one verdict holds for both.
    assert hashlib.sha256(on_page.to_json().encode()).hexdigest() == in_terminal.evidence


@pytest.mark.slow
@pytest.mark.parametrize("slug", registry.names())
def test_a_worked_answer_passes_on_a_machine_that_rounds_otherwise(slug, seed):
    verdict = sample_answers.rounded_otherwise(worked(slug), slug, seed)
    assert verdict is None or verdict.passed


@bubblewrap.needed
@pytest.mark.parametrize("slug", registry.names())
def test_a_worked_answer_passes_in_a_class(slug, seed, grader_in_sandbox):
    submission = sample_answers.as_submission(slug, "worked", slug)
    assert grader_in_sandbox().grade(submission, seed, seed).verdict.passed


@pytest.mark.parametrize("slug", sample_answers.slow_unless_sampled(list(registry.names()), 30))
def test_no_named_value_of_the_reference_amplifies_rounding_errors(slug, seed):
    """If a named value amplified rounding errors, an answer run in another process or on another kind of processor than
    the reference would be judged not to save the value."""
    cases = [case for case in sample_answers.cases(slug, seed) if isinstance(case, Case)]
    if not cases:
        return
    evidence = sample_answers.traced(worked(slug), slug, seed)
    evidence = dataclasses.replace(evidence, cases=evidence.cases[: len(cases)])
    run = AnswerRun(evidence, cases, registry.task(slug), registry.expect(slug), seed)
    for case_run, shadow in zip(run.cases, run.shadow.cases, strict=True):
        for name, value in case_run.named.items():
            exact = as_float(np.asarray(shadow.named[name]))
            allowed = 3 * TOLERANCE.get(str(value.dtype), 0.0) * abs(exact).max(initial=0.0)
            assert abs(as_float(value) - exact).max(initial=0.0) <= allowed, (case_run.case.name, name)
