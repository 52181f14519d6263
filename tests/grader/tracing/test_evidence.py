"""Evidence is untrusted text: anything that `capture` would not write is refused with a reason."""

import dataclasses
import json

import numpy as np
import pytest
from checkpoint_dot_policy.right import RIGHT
from checkpoint_dot_policy.wrong import WRONG

import rematscope
from grader.exercises import registry
from grader.judging.judge import judge
from grader.tracing.apply import applied
from grader.tracing.capture import CaptureError, capture
from grader.tracing.evidence import MAX_CHARACTERS, Evidence, EvidenceError

NAME = "checkpoint_dot_policy"
TASK, EXPECT = registry.task(NAME), registry.expect(NAME)
CASES = TASK.cases(np.random.default_rng(1))
RIGHT_EVIDENCE = capture(RIGHT["decorated"].answer, NAME, CASES)


def outcome(evidence, cases=CASES):
    return judge(evidence, cases, TASK, EXPECT, seed=5)


def test_evidence_survives_a_round_trip_through_json():
    assert Evidence.from_json(RIGHT_EVIDENCE.to_json()) == RIGHT_EVIDENCE
    failed = capture(WRONG["policy_is_a_string"].answer, NAME, CASES)
    assert Evidence.from_json(failed.to_json()) == failed


def test_evidence_holds_no_path():
    assert "right.py" not in RIGHT_EVIDENCE.forward + RIGHT_EVIDENCE.backward
    assert str(registry.CATALOG.parent) not in RIGHT_EVIDENCE.to_json()


@pytest.mark.slow
def test_sources_are_the_learners_lines_and_decide_nothing():
    plain = capture(WRONG["no_checkpoint"].answer, NAME, CASES)
    assert any(source and source.startswith("wrong.py:") for source in plain.cases[0].sources)
    for case, evidence in zip(CASES, plain.cases, strict=True):
        residuals = rematscope.trace(applied(WRONG["no_checkpoint"].answer, case), *case.arguments).residuals
        assert evidence.sources == tuple(residual.source and str(residual.source) for residual in residuals)
    cases = tuple(dataclasses.replace(case, sources=("lies",) * len(case.sources)) for case in plain.cases)
    honest, lying = outcome(plain), outcome(dataclasses.replace(plain, cases=cases, parameters=("x", "w1", "w2")))
    assert [finding.kind for finding in honest.findings] == [finding.kind for finding in lying.findings]
    assert lying.findings[0].source == "lies"


@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", "[{}, {}]", "{}", "[" * 100_000, '{"cases": 3}', "1e999", RIGHT_EVIDENCE.to_json()[:-20]],
    ids=range(9),
)
def test_damaged_evidence_is_refused(text):
    with pytest.raises(EvidenceError, match="damaged"):
        Evidence.from_json(text)


def test_huge_evidence_is_refused_unread():
    with pytest.raises(EvidenceError, match="characters long"):
        Evidence.from_json(" " * (MAX_CHARACTERS + 1))


def damaged(change):
    fields = json.loads(RIGHT_EVIDENCE.to_json())
    change(fields)
    return json.dumps(fields)


@pytest.mark.parametrize(
    "change",
    [
        lambda fields: fields.update(extra=1),
        lambda fields: fields.update(forward=None),
        lambda fields: fields.update(cases=[3]),
        lambda fields: fields["cases"][0].update(outputs=-1),
        lambda fields: fields["cases"][0].update(outputs="1"),
        lambda fields: fields["cases"][0].update(sources=3),
        lambda fields: fields["cases"][0].update(failure={"kind": "raised"}),
        lambda fields: fields["cases"][0].update(failure={"kind": "x", "text": "y", "source": None}),
        lambda fields: fields["cases"][0].update(data=json.loads("[" * 50 + "]" * 50)),
    ],
)
def test_fields_of_the_wrong_kind_are_refused(change):
    with pytest.raises(EvidenceError, match="damaged"):
        Evidence.from_json(damaged(change))


def with_case(evidence, **fields):
    return dataclasses.replace(evidence, cases=(dataclasses.replace(evidence.cases[0], **fields), *evidence.cases[1:]))


FORGED = {
    "cases in another order": dataclasses.replace(RIGHT_EVIDENCE, cases=RIGHT_EVIDENCE.cases[::-1]),
    "cases left out": dataclasses.replace(RIGHT_EVIDENCE, cases=RIGHT_EVIDENCE.cases[:-1]),
    "no cases": dataclasses.replace(RIGHT_EVIDENCE, cases=()),
    "programs swapped": dataclasses.replace(
        RIGHT_EVIDENCE, forward=RIGHT_EVIDENCE.backward, backward=RIGHT_EVIDENCE.forward
    ),
    "empty programs": dataclasses.replace(RIGHT_EVIDENCE, forward="", backward=""),
    "more outputs claimed": with_case(RIGHT_EVIDENCE, outputs=1000),
    "an output claimed to be none": with_case(RIGHT_EVIDENCE, outputs=0),
    "a residual forgotten": with_case(RIGHT_EVIDENCE, sources=(None,) * 4),
    "output and residual swapped": with_case(RIGHT_EVIDENCE, outputs=2, sources=(None,) * 4),
    "a residual claimed by another case": dataclasses.replace(
        RIGHT_EVIDENCE,
        cases=(
            dataclasses.replace(RIGHT_EVIDENCE.cases[0], sources=RIGHT_EVIDENCE.cases[0].sources[:-1]),
            dataclasses.replace(RIGHT_EVIDENCE.cases[1], sources=(*RIGHT_EVIDENCE.cases[1].sources, None)),
            *RIGHT_EVIDENCE.cases[2:],
        ),
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_evidence_does_not_pass(name):
    verdict = outcome(FORGED[name])
    assert verdict.outcome in ("could not be judged", "not passed")
    assert verdict.findings


def test_claimed_failures_can_only_count_against_the_answer():
    """Evidence that claims a failure in each case cannot pass, whatever its programs do."""
    liar = with_case(RIGHT_EVIDENCE, failure=capture(WRONG["policy_is_a_string"].answer, NAME, CASES).cases[0].failure)
    assert outcome(liar).outcome == "not passed"


def test_an_answer_that_calls_back_into_python_is_reported():
    import jax

    def answer(w1, w2, x):
        jax.debug.print("{}", x[0, 0])
        return RIGHT["decorated"].answer(w1, w2, x)

    with pytest.raises(CaptureError, match=r"jax\.debug\.print"):
        capture(answer, NAME, CASES)
