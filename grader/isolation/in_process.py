"""Capture and judge one answer in this process, without any isolation: what `check` does in a notebook."""

import dataclasses
import functools
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import numpy as np

import rematscope
from grader.answers.capture import traced
from grader.answers.draw import programs_of, traced_for
from grader.answers.run_file import run_file
from grader.exercises import registry
from grader.exercises.spec import Case
from grader.judging.illustrate import ABOUT_PROGRAMS, effect, has_open_loop, others
from grader.judging.judge import judge_text
from grader.verdicts.verdict import Verdict


def illustrated(verdict: Verdict, answer: Callable, cases: Sequence[Case], task: ModuleType) -> Verdict:
    """The verdict with what shows its findings: programs, costs and what the answer saves. Whatever cannot be traced
    is left out."""
    if task.shown is None:
        return verdict
    by_name = {case.name: case for case in cases}
    findings = [
        dataclasses.replace(finding, programs=programs_of(finding, answer, by_name[finding.cases[0]]))
        if finding.kind in ABOUT_PROGRAMS and (finding.marked or finding is verdict.findings[0])
        else finding
        for finding in verdict.findings
    ]
    effects, residuals = (), None
    if passes := traced_for(answer, task.shown):
        residuals = rematscope.ResidualTable(passes)
        if not (has_open_loop(passes.forward) or has_open_loop(passes.backward)):
            effects = (effect("your answer", passes), *others(verdict.exercise))
    return dataclasses.replace(
        verdict, findings=tuple(findings), effects=effects, scene=task.shown.name, residuals=residuals
    )


def grade_file(path: Path, exercise: str | None = None, seed: int | None = None) -> Verdict:
    """Runs a file as far as its answer needs, and grades that.

    Args:
      path: a notebook or a Python file.
      exercise: which exercise's answer to look for; None for the one that there is.
      seed: seeds the shapes and the inputs; fresh ones are drawn if None.
    """
    return run_file(path, exercise, functools.partial(grade, seed=seed))


def grade(answer: Callable, exercise: str, seed: int | None = None) -> Verdict:
    """Captures and judges an answer.

    Args:
      answer: the learner's function.
      exercise: the exercise's name.
      seed: seeds the shapes and the inputs; fresh ones are drawn if None.

    Raises:
      UnknownExercise: there is no such exercise.
    """
    task = registry.task(exercise)
    seeds = np.random.SeedSequence(secrets.randbits(64) if seed is None else seed).generate_state(2)
    cases = task.cases(np.random.default_rng(seeds[0]))
    evidence = traced(answer, exercise, cases)
    if isinstance(evidence, Verdict):
        return evidence
    # Through text, as if someone else were to judge it: what is judged here is what would be judged there.
    verdict = judge_text(evidence.to_json(), cases, exercise, int(seeds[1]))
    return illustrated(verdict, answer, cases, task)
