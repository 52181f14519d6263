"""Capture and judge one answer: what `check` does in a notebook and in the command line's child process."""

import dataclasses
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType

import jax
import jax.export

from grader.answers.evidence import Evidence, Traced
from grader.answers.failures import Failure
from grader.exercises import registry
from grader.exercises.spec import Case, Question
from grader.judging import plain_data
from grader.judging.trial import Trial, merge
from grader.stablehlo.execution import Execution
from grader.stablehlo.types import ProgramError
from grader.verdicts.verdict import NOT_ATTEMPTED, NOT_JUDGED, NOT_PASSED, PASSED, Finding, Verdict


def judge(
    evidence: Evidence,
    cases: Sequence[Case | Question],
    task: ModuleType,
    expect: ModuleType,
    seed: int,
    execute: Callable[..., Execution] = Execution,
) -> Verdict:
    """Judges what an answer does.

    Args:
      evidence: what capture made of the answer in these cases.
      cases: the same cases, or questions.
      task: the exercise's `task` module.
      expect: the exercise's `expect` module.
      seed: seed of the random inputs; draw a fresh one after capture.
      execute: makes of the answer's programs what runs them; `Execution` runs them in this process.
    """
    if any(traced.failure and traced.failure.kind == "not attempted" for traced in evidence.cases):
        return Verdict(evidence.exercise, NOT_ATTEMPTED, (_not_attempted(evidence),))
    failures = merge(
        (_gist(traced.failure), traced.case, _failure(traced, task, expect))
        for traced in evidence.cases
        if traced.failure
    )
    try:
        # Evidence is exported for the CPU; a learner's machine may have another device as its default.
        with jax.default_device(jax.devices("cpu")[0]):
            if failures:
                findings, shown = failures[:1], []
            elif isinstance(cases[0], Question):
                findings = merge(plain_data.differences(evidence, cases, task, expect))
                shown = [f"Right for {', '.join(question.name for question in cases)}."]
            else:
                findings, shown = Trial(evidence, cases, task, expect, seed, execute).findings(expect.requirements)
    except ProgramError as error:
        reason = Finding("could not be judged", f"Your answer could not be judged: {error}")
        return Verdict(evidence.exercise, NOT_JUDGED, (reason,))
    if {finding.kind for finding in findings} & _BEFORE_REQUIREMENTS:
        findings = [*_argument_order(evidence, task), *findings]
    mistaken = any(not finding.advice for finding in findings)
    return Verdict(
        evidence.exercise, NOT_PASSED if mistaken else PASSED, tuple(findings), () if mistaken else tuple(shown)
    )


# What arguments that come in another order than the answer takes them in would explain.
_BEFORE_REQUIREMENTS = {"raises", "wrong type", "wrong value", "wrong gradient"}


def _not_attempted(evidence: Evidence) -> Finding:
    return Finding(
        "not attempted",
        f"{evidence.exercise} is still the stub that the page came with.",
        next="Replace its body with your answer, run the cell or save the file, then check again.",
    )


_ERROR_QUESTIONS = (
    (r"^NameError|^UnboundLocalError", "Is that name spelled right, and is it imported or defined above?"),
    (r"^AttributeError|^ImportError", "Is that name spelled right, and is it where you look for it?"),
    (r"^KeyError", "Is that key there every time that line runs? What does it run for when the key is missing?"),
    (
        r"positional argument|unexpected keyword|multiple values",
        "Which arguments does that function take, and which is it given?",
    ),
    (r"unhashable", "Which value there is a list or a dict, where one is wanted that cannot change, such as a string?"),
    (r"not callable|Expected a callable", "Which value there is called as a function, and what is it really?"),
)


def _gist(failure: Failure) -> tuple:
    # A message has the case's shapes in it; the exception's type and the line are the same in every case.
    return failure.kind, failure.text.split(":")[0], failure.source


def _failure(traced: Traced, task: ModuleType, expect: ModuleType) -> Finding:
    failure = traced.failure
    if failure.kind == "returned":
        kind, text = "wrong type", failure.text
        questions = expect.error_questions
        default = f"What should {task.signature} return?"
    else:
        kind, text = "raises", f"Your answer raises {failure.text}"
        questions = (*expect.error_questions, *_ERROR_QUESTIONS)
        default = "What are the shapes and types of the values in that line?"
    question = next((question for pattern, question in questions if re.search(pattern, failure.text)), default)
    return Finding(kind, text, source=failure.source, next=question)


def _argument_order(evidence: Evidence, task: ModuleType) -> Iterator[Finding]:
    # Names decide nothing: this explains results that are wrong already.
    asked = task.parameters
    if evidence.parameters != asked and sorted(evidence.parameters) == sorted(asked):
        yield Finding(
            "argument order",
            f"Your answer takes its arguments as ({', '.join(evidence.parameters)}); they come in another order.",
            expected=task.signature,
            got=f"({', '.join(evidence.parameters)})",
            next="In which order does the page list the arguments?",
        )


def judge_text(
    text: str, cases: Sequence[Case | Question], exercise: str, seed: int, execute: Callable[..., Execution] = Execution
) -> Verdict:
    """The verdict on evidence. This runs nothing of the answer's but its two programs.

    Args:
      text: evidence, as `Evidence.to_json` writes it.
      cases: what it was captured in.
      exercise: the exercise's name.
      seed: seeds the inputs.
      execute: see `judge`.

    Raises:
      EvidenceError: the text is no evidence.
    """
    evidence = Evidence.from_json(text)
    verdict = judge(evidence, cases, registry.task(exercise), registry.expect(exercise), seed, execute)
    return dataclasses.replace(verdict, evidence=hashlib.sha256(text.encode()).hexdigest())
