"""Numeric bounds and checks of an exercise's requirements, and verdicts with one of them changed or removed.

`test_bounds.py` tries the wrong answers that hold each bound, `mutations.py` all of them.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from sample_answers import cases, seed_of_inputs, traced

from grader.exercises import registry
from grader.exercises.observation import CaseObservation
from grader.exercises.requirements import Requirement
from grader.exercises.spec import Case
from grader.judging.answer_run import AnswerRun
from grader.judging.findings import failed_requirements
from grader.judging.observe import observe_cases
from grader.judging.wrong_results import wrong_results
from grader.verdicts.verdict import Finding, Verdict

type Asked = Sequence[Sequence[Sequence[Requirement]]]  # case by case, in groups


class Bound(NamedTuple):
    """A numeric bound: a field of a class of requirements."""

    kind: str
    field: str

    def __str__(self) -> str:
        return f"{self.kind}.{self.field}"


class Place(NamedTuple):
    """The position of a requirement: the index of its case, of its group, and of the requirement within the group."""

    case: int
    group: int
    number: int


_NO_BOUNDS = {
    "SavesAtMost.count",
    "PeakAtMost.trip_count",
    "InPieces.of",
    "SendsAtMost.of",
    "SendsAtMost.weights",
    "GathersLayers.of",
    "GathersLayers.layers",
}  # these numbers describe how a value is measured and are not limits


def asked(slug: str) -> Asked:
    """Return the requirements of an exercise's cases."""
    return [registry.expect(slug).requirements(case) for case in cases(slug) if isinstance(case, Case)]


def places(asked: Asked) -> dict[Place, Requirement]:
    """Return every requirement by its position."""
    return {
        Place(case, group, number): requirement
        for case, groups in enumerate(asked)
        for group, several in enumerate(groups)
        for number, requirement in enumerate(several)
    }


def bounds(requirement: Requirement) -> list[Bound]:
    """Return a requirement's numeric bounds."""
    kind = type(requirement).__name__
    fields = (f.name for f in dataclasses.fields(requirement) if type(getattr(requirement, f.name)) is int)
    return [bound for field in fields if str(bound := Bound(kind, field)) not in _NO_BOUNDS]


def moved(asked: Asked, bound: Bound, steps: int, at: tuple[int, int] | None = None) -> Asked:
    """Return the requirements with one bound loosened by `steps` steps, or tightened if `steps` is negative.

    Args:
      asked: the requirements.
      bound: the number to change.
      steps: how far. A step is 1, or a quarter of a peak, because XLA's allocations differ between versions.
      at: the group and the requirement's number within it, in every case; None for all requirements.
    """

    def new(place: Place, requirement: Requirement) -> list[Requirement]:
        if at not in (None, place[1:]) or bound not in bounds(requirement):
            return [requirement]
        before = getattr(requirement, bound.field)
        step = math.ceil(before / 4) if bound.kind == "PeakAtMost" else 1
        return [dataclasses.replace(requirement, **{bound.field: before + steps * step})]

    return _replace_each(asked, new)


def without(asked: Asked, group: int, number: int) -> Asked:
    """Return the requirements without the requirement at this position in each case."""
    return _replace_each(asked, lambda place, requirement: [] if place[1:] == (group, number) else [requirement])


def _replace_each(asked: Asked, by: Callable[[Place, Requirement], list[Requirement]]) -> Asked:
    return [
        [
            [new for number, old in enumerate(several) for new in by(Place(case, group, number), old)]
            for group, several in enumerate(groups)
        ]
        for case, groups in enumerate(asked)
    ]


@functools.cache
def seen(answer: Callable, slug: str) -> Sequence[CaseObservation] | None:
    """Return the observations of each case of an answer, or None if its results are wrong or it raises."""
    task, expect = registry.task(slug), registry.expect(slug)
    differentiated = [case for case in cases(slug) if isinstance(case, Case)]
    evidence = traced(answer, slug)
    if isinstance(evidence, Verdict) or any(each.failure for each in evidence.cases):
        return None
    evidence = dataclasses.replace(evidence, cases=evidence.cases[: len(differentiated)])
    run = AnswerRun(evidence, differentiated, task, expect, seed_of_inputs())
    return None if wrong_results(run) else observe_cases(run)


def against(answer: Callable, slug: str, asked: Asked) -> list[Finding]:
    """Return the findings on an answer with right results, without advice, if these requirements are asked."""
    shown = seen(answer, slug)
    assert shown is not None
    return [finding for finding in failed_requirements(asked, shown)[0] if not finding.advice]
