"""What shows a verdict best: which findings two programs explain, and what the answer costs beside others."""

import functools
import importlib
from collections.abc import Callable
from typing import Any

import jax

import rematscope
from grader.exercises import registry
from grader.exercises.reference import reference_of
from grader.exercises.spec import Case
from grader.verdicts.kinds import FindingKind
from grader.verdicts.verdict import Effect, Finding, Verdict
from grader.verdicts.verdict_view import programs_title

_ABOUT_PROGRAMS = {
    FindingKind.ALSO_SAVED,
    FindingKind.NOT_SAVED,
    FindingKind.WRONG_MEMORY,
    FindingKind.RECOMPUTES,
    FindingKind.EXTRA_MATMULS,
}


def explained_by_programs(verdict: Verdict) -> list[Finding]:
    """Those of the findings that the answer's two programs explain: the first, and whichever have residuals to mark."""
    return [
        finding
        for number, finding in enumerate(verdict.findings)
        if finding.kind in _ABOUT_PROGRAMS and (finding.marked or number == 0)
    ]


def scene(verdict: Verdict, shown: Case) -> tuple[str | None, tuple[int, ...], str]:
    """What shows an answer best where one picture must do: a case's name (None for the page's shapes), positions of the
    residuals to mark there, and a title. `shown` is the case of the page's shapes."""
    for finding in explained_by_programs(verdict):
        return finding.cases[0], finding.marked, programs_title(finding)
    return None, (), f"Both programs of your answer ({shown.name})"


def effects_beside_others(exercise: str, shown: Case, passes: rematscope.Trace) -> tuple[Effect, ...]:
    """An answer's costs for the page's shapes, those of the worked answer, and those of both ends between which every
    answer lies; nothing if a loop runs until its condition says so, since what that costs is in no trace.

    Args:
      exercise: the exercise's name.
      shown: the case of the page's shapes.
      passes: the answer's two passes in that case.
    """
    if _has_dynamic_loop(passes.forward) or _has_dynamic_loop(passes.backward):
        return ()
    return _effect("your answer", passes), *_others(exercise, shown)


def _has_dynamic_loop(program: rematscope.Program) -> bool:
    return any(e.primitive == "while" or any(map(_has_dynamic_loop, e.bodies)) for e in program.equations)


def _effect(label: str, passes: rematscope.Trace) -> Effect:
    return Effect(label, passes.bytes_by_kind()["computed"], passes.recompute_cost.flops)


@functools.cache
def _others(exercise: str, shown: Case) -> tuple[Effect, ...]:
    reference = reference_of(shown, registry.expect(exercise))
    # jit drops the values that are only there to have names.
    plain = jax.jit(lambda *arguments: reference(*arguments)[0])
    worked = getattr(importlib.import_module(f"solutions.{exercise}"), exercise)
    ways: dict[str, Callable[..., Any]] = {
        "the worked answer": shown.differentiated(worked),
        "no checkpoint": plain,
        "full recompute": jax.checkpoint(plain),
    }
    return tuple(_effect(label, rematscope.trace(way, *shown.arguments)) for label, way in ways.items())
