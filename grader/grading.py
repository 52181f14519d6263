"""Capture and judge one answer: what `check` does in a notebook and in the command line's child process."""

import dataclasses
import hashlib
import secrets
from collections.abc import Callable, Sequence

import numpy as np

from grader import exercise as exercises
from grader.capture import CaptureError, capture
from grader.effect import illustrated
from grader.evidence import Evidence
from grader.execution import Execution
from grader.exercise import Case, Question
from grader.judge import judge
from grader.verdict import NOT_JUDGED, Finding, Verdict


def grade(answer: Callable, exercise: str, seed: int | None = None) -> Verdict:
    """Captures and judges an answer.

    Args:
      answer: the learner's function.
      exercise: the exercise's name.
      seed: seeds the shapes and the inputs; fresh ones are drawn if None.

    Raises:
      UnknownExercise: there is no such exercise.
    """
    task = exercises.task(exercise)
    seeds = np.random.SeedSequence(secrets.randbits(64) if seed is None else seed).generate_state(2)
    cases = task.cases(np.random.default_rng(seeds[0]))
    evidence = traced(answer, exercise, cases)
    if isinstance(evidence, Verdict):
        return evidence
    # Through text, as if someone else were to judge it: what is judged here is what would be judged there.
    verdict = judged(evidence.to_json(), cases, exercise, int(seeds[1]))
    return illustrated(verdict, answer, cases, task)


def traced(answer: Callable, exercise: str, cases: Sequence[Case | Question]) -> Evidence | Verdict:
    """An answer's evidence, or the verdict that there is none to be had. This runs the answer."""
    try:
        return capture(answer, exercise, cases)
    except CaptureError as error:
        return Verdict(exercise, NOT_JUDGED, (Finding("could not be judged", str(error)),))


def judged(
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
    verdict = judge(evidence, cases, exercises.task(exercise), exercises.expect(exercise), seed, execute)
    return dataclasses.replace(verdict, evidence=hashlib.sha256(text.encode()).hexdigest())
