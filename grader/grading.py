"""Capture and judge one answer: what `check` does in a notebook and in the command line's child process."""

import dataclasses
import hashlib
import secrets
from collections.abc import Callable

import numpy as np

from grader import exercise as exercises
from grader.capture import CaptureError, capture
from grader.effect import illustrated
from grader.evidence import Evidence
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
    try:
        evidence = capture(answer, exercise, cases)
    except CaptureError as error:
        return Verdict(exercise, NOT_JUDGED, (Finding("could not be judged", str(error)),))
    # Through text, as if someone else were to judge it: what is judged here is what would be judged there.
    text = evidence.to_json()
    verdict = judge(Evidence.from_json(text), cases, task, exercises.expect(exercise), int(seeds[1]))
    verdict = dataclasses.replace(verdict, evidence=hashlib.sha256(text.encode()).hexdigest())
    return illustrated(verdict, answer, cases, task)
