"""Capture and judge one answer in this process, without any isolation: what `check` does in a notebook."""

import dataclasses
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

import rematscope
from grader.answers import import_answers
from grader.answers.find import SlicedAnswer
from grader.exercises import registry
from grader.exercises.spec import Case, Question, Task
from grader.judging.illustrate import differs_from_worked, effects_with_others, explained_by_programs
from grader.judging.judge import judge_text
from grader.tracing.capture import evidence_of
from grader.tracing.render_programs import passes_of, side_by_side
from grader.util import garbage
from grader.util.jax_settings import default_settings
from grader.verdicts.verdict import Effect, Finding, FindingKind, Verdict, better


@default_settings()
def illustrated(verdict: Verdict, answer: Callable, cases: Sequence[Case | Question], task: Task) -> Verdict:
    """Return the verdict with views: both programs for the findings, a comparison of costs, and the answer's residuals.

    This traces the answer again. Views that cannot be traced are left out.

    Args:
      verdict: the verdict on the answer.
      answer: the learner's function.
      cases: the cases in which the answer was traced.
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
    effects, scene = _effects_where_they_differ(verdict, answer, task.shown, passes, by_name)
    return dataclasses.replace(
        verdict,
        findings=findings,
        effects=effects,
        scene=scene,
        residuals=rematscope.ResidualTable(passes) if passes else None,
    )


def _effects_where_they_differ(
    verdict: Verdict, answer: Callable, shown: Case, passes: rematscope.Trace | None, cases: Mapping[str, Case]
) -> tuple[tuple[Effect, ...], str]:
    """Return the costs of an answer and of other answers, and the name of the case that they are for. This is the case
    with the page's shapes. If a wrong answer costs as much as the worked answer there, it is the first failing case in
    which the costs differ, if there is one."""
    if passes is None:
        return (), shown.name
    effects = effects_with_others(verdict.exercise, shown, shown, passes)
    if verdict.passed or differs_from_worked(effects):
        return effects, shown.name
    for name in dict.fromkeys(name for finding in verdict.findings for name in finding.cases if name in cases):
        if failing := passes_of(answer, cases[name]):
            effects = effects_with_others(verdict.exercise, shown, cases[name], failing)
            if differs_from_worked(effects):
                return effects, f"in the failing case {name}"
    return (), shown.name


def grade_file(path: Path, exercise: str | None = None, seed: int | None = None) -> Verdict:
    """Run the statements of a file that its answer needs, and grade the answer.

    Args:
      path: a notebook or a Python file.
      exercise: the exercise whose answer to look for; None for the only one in the file.
      seed: the seed of the shapes and the inputs; None for a random seed.
    """
    *_, verdict = verdicts_on_file(path, exercise, seed)
    return verdict


def verdicts_on_file(path: Path, exercise: str | None = None, seed: int | None = None) -> Iterator[Verdict]:
    """Yield the best verdict after each attempt. Each attempt after the first runs more of the file. `grade_file`
    returns the last verdict."""
    found = import_answers.find_answer(path, exercise)
    if isinstance(found, Verdict):
        yield found
        return
    best: Verdict | None = None
    for tried in import_answers.run_answer(found, path):
        verdict = tried if isinstance(tried, Verdict) else grade(tried.function, tried.exercise, seed)
        verdict = verdict if verdict.passed else _advise_on_replaced(verdict, found)
        best = verdict if best is None else better(best, verdict)
        yield best
        if best.passed:
            return


def _advise_on_replaced(verdict: Verdict, answer: SlicedAnswer) -> Verdict:
    """Return the verdict on a file, with advice about the definitions of the answer that a later definition
    replaces."""
    if not answer.replaced:
        return verdict
    others = f"definition{'s' if len(answer.replaced) > 1 else ''} at {' and '.join(answer.replaced)}"
    text = f"This verdict is about the {verdict.exercise} defined at {answer.place()}, not about the {others}."
    advice = Finding(
        FindingKind.REPLACED, text, next="Which definition is your answer? Delete the others.", advice=True
    )
    return dataclasses.replace(verdict, findings=(*verdict.findings, advice))


@garbage.infrequent_collections()
def grade(answer: Callable, exercise: str, seed: int | None = None) -> Verdict:
    """Trace and judge an answer.

    Args:
      answer: the learner's function.
      exercise: the exercise's name.
      seed: the seed of the shapes and the inputs; None for a random seed.

    Raises:
      UnknownExercise: if there is no such exercise.
    """
    task = registry.task(exercise)
    shapes, inputs = seeds_of(secrets.randbits(64) if seed is None else seed)
    cases = registry.cases(exercise, shapes)
    evidence = evidence_of(answer, exercise, cases, shapes)
    if isinstance(evidence, Verdict):
        return evidence
    # The evidence passes through text, as in a class, so that both judge the same.
    verdict = judge_text(evidence.to_json(), cases, exercise, inputs)
    return illustrated(verdict, answer, cases, task)


def seeds_of(seed: int) -> tuple[int, int]:
    """Return the seed of the shapes and the seed of the inputs that `grade` derives from its seed."""
    shapes, inputs = np.random.SeedSequence(seed).generate_state(2)
    return int(shapes), int(inputs)
