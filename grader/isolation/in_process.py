"""Capture and judge one answer in this process, without any isolation: what `check` does in a notebook."""

import dataclasses
import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

import rematscope
from grader.answers import run_file
from grader.answers.capture import traced
from grader.answers.draw import passes_of, side_by_side
from grader.exercises import registry
from grader.exercises.spec import Case, Question, Task
from grader.judging.illustrate import effects_beside_others, explained_by_programs
from grader.judging.judge import judge_text
from grader.util import garbage
from grader.util.jax_settings import as_they_come
from grader.verdicts.verdict import Verdict, better


@as_they_come()
def illustrated(verdict: Verdict, answer: Callable, cases: Sequence[Case | Question], task: Task) -> Verdict:
    """The verdict with what shows its findings: two programs, costs beside others', and what the answer saves.

    This traces the answer again. Whatever cannot be traced is left out.

    Args:
      verdict: what was judged.
      answer: the learner's function.
      cases: what it was captured in.
      task: the exercise's `task` module.
    """
    if task.shown is None:
        return verdict
    by_name = {case.name: case for case in cases if isinstance(case, Case)}
    explained = explained_by_programs(verdict)
    findings = tuple(
        dataclasses.replace(finding, programs=side_by_side(answer, by_name[finding.cases[0]], finding.marked))
        if finding in explained
        else finding
        for finding in verdict.findings
    )
    passes = passes_of(answer, task.shown)
    return dataclasses.replace(
        verdict,
        findings=findings,
        effects=effects_beside_others(verdict.exercise, task.shown, passes) if passes else (),
        scene=task.shown.name,
        residuals=rematscope.ResidualTable(passes) if passes else None,
    )


def grade_file(path: Path, exercise: str | None = None, seed: int | None = None) -> Verdict:
    """Runs a file as far as its answer needs, and grades that.

    Args:
      path: a notebook or a Python file.
      exercise: which exercise's answer to look for; None for the one that there is.
      seed: seeds the shapes and the inputs; fresh ones are drawn if None.
    """
    *_, verdict = verdicts_on_file(path, exercise, seed)
    return verdict


def verdicts_on_file(path: Path, exercise: str | None = None, seed: int | None = None) -> Iterator[Verdict]:
    """As `grade_file`, which takes the last of these verdicts. Before each but the first more of the file runs."""
    best = None
    for tried in run_file.tries(path, exercise):
        verdict = tried if isinstance(tried, Verdict) else grade(tried.function, tried.exercise, seed)
        best = verdict if best is None else better(best, verdict)
        yield best
        if best.passed:
            return


@garbage.looked_for_seldom()
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
    shapes, inputs = map(int, np.random.SeedSequence(secrets.randbits(64) if seed is None else seed).generate_state(2))
    cases = registry.cases(exercise, shapes)
    evidence = traced(answer, exercise, cases, shapes)
    if isinstance(evidence, Verdict):
        return evidence
    # Through text, as if someone else were to judge it: what is judged here is what would be judged there.
    verdict = judge_text(evidence.to_json(), cases, exercise, inputs)
    return illustrated(verdict, answer, cases, task)
