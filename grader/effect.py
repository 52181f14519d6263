"""What an answer looks like to the instrument: its costs beside others', and its programs beside a finding.

This is feedback. It traces the answer again, where the answer runs, and decides nothing.
"""

import dataclasses
import functools
import importlib
from collections.abc import Callable, Sequence
from types import ModuleType

import jax

import rematscope
from grader import exercise as exercises
from grader.capture import applied
from grader.exercise import Case
from grader.judge import right
from grader.verdict import Effect, Finding, Verdict, programs_title


def illustrated(verdict: Verdict, answer: Callable, cases: Sequence[Case], task: ModuleType) -> Verdict:
    """The verdict with what shows its findings: programs, costs and what the answer saves. Whatever cannot be traced
    is left out."""
    if task.shown is None:
        return verdict
    by_name = {case.name: case for case in cases}
    findings = [
        dataclasses.replace(finding, programs=_programs(finding, answer, by_name[finding.cases[0]]))
        if finding.kind in _ABOUT_PROGRAMS and (finding.marked or finding is verdict.findings[0])
        else finding
        for finding in verdict.findings
    ]
    effects, residuals = (), None
    if passes := _traced(answer, task.shown):
        residuals = rematscope.ResidualTable(passes)
        if not (_has_open_loop(passes.forward) or _has_open_loop(passes.backward)):
            effects = (_effect("your answer", passes), *_others(verdict.exercise))
    return dataclasses.replace(
        verdict, findings=tuple(findings), effects=effects, scene=task.shown.name, residuals=residuals
    )


# The kinds of findings that the two programs explain.
_ABOUT_PROGRAMS = {"also saved", "not saved", "wrong memory", "recomputes", "extra matmuls"}


def scene(verdict: Verdict, task: ModuleType) -> tuple[str | None, tuple[int, ...], str]:
    """What shows an answer best where one picture must do: a case's name (None for the page's shapes), positions of the
    residuals to mark there, and a title."""
    for finding in verdict.findings:
        if finding.kind in _ABOUT_PROGRAMS and (finding.marked or finding is verdict.findings[0]):
            return finding.cases[0], finding.marked, programs_title(finding).rstrip(":")
    return None, (), f"Both programs of your answer ({task.shown.name})"


def drawn(answer: Callable, cases: Sequence[Case], task: ModuleType, case: str | None, marked: Sequence[int]) -> dict:
    """An answer's two programs as `FwdBwd.pieces` has them, and what it costs, in JSON's types."""
    seen = next((one for one in cases if one.name == case), task.shown)
    passes = rematscope.trace(applied(answer, seen), *seen.arguments)
    places = [place for place in marked if place < len(passes.residuals)]
    view = rematscope.FwdBwd(passes, marked={passes.residuals[place].value for place in places})
    columns, footer = view.pieces()
    return {"columns": columns, "footer": footer}


def _programs(finding: Finding, answer: Callable, case: Case) -> rematscope.FwdBwd | None:
    passes = _traced(answer, case)
    if passes is None or any(place >= len(passes.residuals) for place in finding.marked):
        return None
    return rematscope.FwdBwd(passes, marked={passes.residuals[place].value for place in finding.marked})


def _traced(answer: Callable, case: Case) -> rematscope.Passes | None:
    try:
        return rematscope.trace(applied(answer, case), *case.arguments)
    except (Exception, SystemExit):
        return None


def _has_open_loop(program: rematscope.Program) -> bool:
    """Whether a loop's number of turns, and so what it costs, is not in the program."""
    return any(e.primitive == "while" or any(map(_has_open_loop, e.bodies)) for e in program.equations)


def _effect(label: str, passes: rematscope.Passes) -> Effect:
    return Effect(label, passes.bytes_by_kind()["computed"], passes.recompute_cost.flops)


@functools.cache
def _others(exercise: str) -> tuple[Effect, ...]:
    """The costs of the worked answer, and of the two ends between which every answer lies."""
    task, expect = exercises.task(exercise), exercises.expect(exercise)
    case = task.shown
    plain = _first(right(case, expect))
    worked = getattr(importlib.import_module(f"solutions.{exercise}"), exercise)
    ways = {
        "the worked answer": applied(worked, case),
        "no checkpoint": plain,
        "full recompute": jax.checkpoint(plain),
    }
    return tuple(_effect(label, rematscope.trace(way, *case.arguments)) for label, way in ways.items())


def _first(function: Callable) -> Callable:
    # jit drops the values that are only there to have names.
    return jax.jit(lambda *arguments: function(*arguments)[0])
