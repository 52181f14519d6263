"""Choose the views of a verdict: the findings that both programs explain, and a comparison of costs."""

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

import rematscope
from grader.exercises import registry
from grader.exercises.spec import Case
from grader.judging.reference import reference_of
from grader.verdicts.verdict import Effect, Finding, FindingKind, Verdict
from grader.verdicts.views import programs_title

_ABOUT_PROGRAMS = {
    FindingKind.EXTRA_RESIDUAL,
    FindingKind.MISSING_RESIDUAL,
    FindingKind.WRONG_MEMORY,
    FindingKind.RECOMPUTES,
    FindingKind.EXTRA_MATMULS,
    FindingKind.LINK_BYTES,
    FindingKind.GATHERS,
}


def explained_by_programs(verdict: Verdict) -> list[Finding]:
    """Return the findings that the answer's two programs explain: the first one, and those with residuals to mark."""
    return [
        finding
        for number, finding in enumerate(verdict.findings)
        if finding.kind in _ABOUT_PROGRAMS and (finding.marked or number == 0)
    ]


def choose_scene(verdict: Verdict, shown: Case) -> tuple[str | None, tuple[int, ...], str]:
    """Return the best single picture of an answer: the name of a case (None for the page's shapes), the positions of
    the residuals to mark, and a title. `shown` is the case with the page's shapes."""
    for finding in explained_by_programs(verdict):
        return finding.cases[0], finding.marked, programs_title(finding)
    return None, (), f"Forward and backward programs of your answer ({shown.name})"


def effects_with_others(exercise: str, shown: Case, case: Case, passes: rematscope.Trace) -> tuple[Effect, ...]:
    """Return an answer's costs in a case, those of the worked answer, and the two extremes: no checkpoint and full
    recompute. The result is empty if the trip count of a loop is unknown, because then the trace does not show the
    costs.

    Args:
      exercise: the exercise's name.
      shown: the case with the page's shapes.
      case: the case to compare in, which may be `shown`.
      passes: the trace of the answer in the case.
    """
    if _has_dynamic_loop(passes.forward) or _has_dynamic_loop(passes.backward):
        return ()
    return _effect_of(_YOURS, passes), *(_others_shown if case is shown else _effects_of_others)(exercise, case)


def differs_from_worked(effects: Sequence[Effect]) -> bool:
    """Return whether an answer's costs differ from the worked answer's; True if costs are unknown."""
    costs = {effect.label: (effect.saved_bytes, effect.host_bytes, effect.recomputed_flops) for effect in effects}
    return not costs or costs[_YOURS] != costs[_WORKED]


_YOURS, _WORKED = "your answer", "the worked answer"


def _has_dynamic_loop(program: rematscope.Program) -> bool:
    return any(e.primitive == "while" or any(map(_has_dynamic_loop, e.bodies)) for e in program.equations)


def _effect_of(label: str, passes: rematscope.Trace) -> Effect:
    saved = passes.bytes_by_kind()["computed"] - _reshaped_bytes(passes)
    return Effect(label, saved, passes.recompute_cost.flops, passes.host_bytes())


def _reshaped_bytes(passes: rematscope.Trace) -> int:
    """Return the bytes of computed residuals that equal an argument, for example a reshaped one. In findings, they
    count as the arguments."""
    sources = _unchanged_sources(passes.forward)
    reshaped = {residual.array for residual in passes.residuals if residual.kind == "computed"}
    return sum(value.nbytes for value in reshaped if _first_source(value, sources) in passes.forward.inputs)


def _unchanged_sources(program: rematscope.Program) -> dict[rematscope.Value, rematscope.Value]:
    """Map each value that an equation or a `shard_map` passes through, possibly in another shape, to its source."""
    sources: dict[rematscope.Value, rematscope.Value] = {}
    for equation in program.equations:
        if equation.primitive in _RESHAPES:
            sources[equation.outputs[0]] = equation.inputs[0]
        elif equation.primitive == "shard_map":
            (body,) = equation.bodies
            inner = _unchanged_sources(body)
            outside = dict(zip(body.inputs, equation.inputs, strict=True))
            for result, value in zip(equation.outputs, body.outputs, strict=True):
                if (given := outside.get(_first_source(value, inner))) is not None:
                    sources[result] = given
    return {value: source for value, source in sources.items() if value.nbytes == source.nbytes}


def _first_source(value: rematscope.Value, sources: Mapping[rematscope.Value, rematscope.Value]) -> rematscope.Value:
    while value in sources:
        value = sources[value]
    return value


_RESHAPES = {"reshape", "squeeze", "broadcast_in_dim", "pvary", "name", "stop_gradient"}


def _effects_of_others(exercise: str, case: Case) -> tuple[Effect, ...]:
    reference = reference_of(case, registry.expect(exercise))
    # jit drops values that are computed only to be named.
    plain = jax.jit(lambda *arguments: reference(*arguments)[0])
    worked = getattr(importlib.import_module(f"solutions.{exercise}"), exercise)
    ways: dict[str, Callable[..., Any]] = {
        _WORKED: case.differentiated(worked),
        "no checkpoint": plain,
        "full recompute": jax.checkpoint(plain),
    }
    return tuple(_effect_of(label, rematscope.trace(way, *case.arguments)) for label, way in ways.items())


_others_shown = functools.cache(_effects_of_others)
