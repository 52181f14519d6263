"""What shows a verdict best: the costs of the worked answer and of both ends, and which programs explain a finding."""

import functools
import importlib
from collections.abc import Callable
from types import ModuleType

import jax

import rematscope
from grader.answers.apply import applied
from grader.exercises import registry
from grader.exercises.reference import right
from grader.verdicts.verdict import Effect, Verdict, programs_title

# The kinds of findings that the two programs explain.
ABOUT_PROGRAMS = {"also saved", "not saved", "wrong memory", "recomputes", "extra matmuls"}


def scene(verdict: Verdict, task: ModuleType) -> tuple[str | None, tuple[int, ...], str]:
    """What shows an answer best where one picture must do: a case's name (None for the page's shapes), positions of the
    residuals to mark there, and a title."""
    for finding in verdict.findings:
        if finding.kind in ABOUT_PROGRAMS and (finding.marked or finding is verdict.findings[0]):
            return finding.cases[0], finding.marked, programs_title(finding).rstrip(":")
    return None, (), f"Both programs of your answer ({task.shown.name})"


def has_open_loop(program: rematscope.Program) -> bool:
    """Whether a loop's number of turns, and so what it costs, is not in the program."""
    return any(e.primitive == "while" or any(map(has_open_loop, e.bodies)) for e in program.equations)


def effect(label: str, passes: rematscope.Passes) -> Effect:
    return Effect(label, passes.bytes_by_kind()["computed"], passes.recompute_cost.flops)


@functools.cache
def others(exercise: str) -> tuple[Effect, ...]:
    """The costs of the worked answer, and of the two ends between which every answer lies."""
    task, expect = registry.task(exercise), registry.expect(exercise)
    case = task.shown
    plain = _first(right(case, expect))
    worked = getattr(importlib.import_module(f"solutions.{exercise}"), exercise)
    ways = {
        "the worked answer": applied(worked, case),
        "no checkpoint": plain,
        "full recompute": jax.checkpoint(plain),
    }
    return tuple(effect(label, rematscope.trace(way, *case.arguments)) for label, way in ways.items())


def _first(function: Callable) -> Callable:
    # jit drops the values that are only there to have names.
    return jax.jit(lambda *arguments: function(*arguments)[0])
