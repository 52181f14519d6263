"""Turn violated requirements into findings, with one finding for all cases that show the same violation."""

import dataclasses
import itertools
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from grader.exercises.observation import CaseObservation
from grader.exercises.requirements import Requirement
from grader.exercises.spec import Case, Question
from grader.verdicts.verdict import Finding, FindingKind


class CaseFinding(NamedTuple):
    """A finding in one case.

    Attributes:
      key: a value that is equal for equivalent findings in different cases.
      case: the case's name, or the question's.
      finding: the finding, with this case's figures.
    """

    key: Hashable
    case: str
    finding: Finding


_LISTED = 9  # if there are at most this many cases or questions, a finding names all that show it


def group_findings(seen: Iterable[CaseFinding], of: int = 0) -> list[Finding]:
    """Merge equivalent findings of several cases into one, with the figures of the first case.

    Args:
      seen: the findings in the order of the cases.
      of: for findings about questions, the number of questions. If there are many, a finding states how many show it
        and names the first.
    """
    alike: dict[Hashable, list[str]] = {}
    first: dict[Hashable, Finding] = {}
    for key, case, finding in seen:
        alike.setdefault(key, []).append(case)
        first.setdefault(key, finding)
    return [dataclasses.replace(finding, cases=_list_cases(alike[key], of)) for key, finding in first.items()]


def _list_cases(cases: Sequence[str], of: int) -> tuple[str, ...]:
    if of <= _LISTED:
        return tuple(cases)
    many = f"all {of}" if len(cases) == of else f"{len(cases)} of {of}"
    return (f"{many} questions{', the first' if len(cases) > 1 else ''}: {cases[0]}",)


def first_case[Asked: Case | Question](finding: Finding, cases: Sequence[Asked]) -> Asked:
    """Return the case or question that a finding shows the figures of. `finding.cases` must not be empty."""
    # The text may end with this name, see `_list_cases`; a shorter name may be the end of this one.
    return max((case for case in cases if finding.cases[0].endswith(case.name)), key=lambda case: len(case.name))


def all_right(questions: Sequence[Question]) -> str:
    """Return the sentence for an answer that is right for all questions."""
    if len(questions) > _LISTED:
        return f"Right for all {len(questions)} questions."
    return f"Right for {', '.join(question.name for question in questions)}."


def failed_requirements(
    requirements: Sequence[Sequence[Sequence[Requirement]]], observations: Sequence[CaseObservation]
) -> tuple[list[Finding], list[str]]:
    """Return the findings about an answer; if it meets all requirements, return advice and the requirements' claims.

    Groups of requirements are checked in order. If any case violates a requirement of a group, all findings of this
    group are returned, and later groups are not checked.

    Args:
      requirements: for each case, the groups of its requirements.
      observations: what the answer does in each case, in the same order.
    """
    advice: list[Finding] = []
    shown = ["Values and gradients match the reference in every case."]
    claimed: dict[str, list[str]] = {}  # maps claims to the cases that show them
    for groups in itertools.zip_longest(*requirements, fillvalue=()):
        asked = [(behaviour, group) for behaviour, group in zip(observations, groups, strict=True) if group]
        found = group_findings(
            CaseFinding((number, finding.kind), behaviour.case, finding)
            for behaviour, group in asked
            for number, requirement in enumerate(group)
            for finding in requirement.findings(behaviour)
        )
        if mistakes := [finding for finding in found if not finding.advice]:
            return _merge_consequences(mistakes), []
        advice += found
        for behaviour, group in asked:
            if claims := [claim for requirement in group if (claim := requirement.claim(behaviour))]:
                claimed.setdefault("; ".join(claims), []).append(behaviour.case)
    most_first = sorted(claimed.items(), key=lambda each: -len(each[1]))
    return advice, [*shown, *(_claims_sentence(claims, cases, len(observations)) for claims, cases in most_first)]


def _claims_sentence(claims: str, cases: Sequence[str], of: int) -> str:
    if len(cases) == 1 < of:
        where = f"In 1 of {of} cases ({cases[0]})"
    elif of > 1:
        where = f"In all {of} cases" if len(cases) == of else f"In {len(cases)} of {of} cases"
    else:
        where = f"For {cases[0]}"
    return f"{where}: {claims}."


def _merge_consequences(findings: Sequence[Finding]) -> list[Finding]:
    """Merge findings with the same cause. A value that is missing in one case may be replaced by an extra one in
    another case, and recompute of a value that is not saved is not a separate mistake."""
    merged: list[Finding] = []
    for finding in findings:
        same = next(
            (n for n, each in enumerate(merged) if FindingKind.MISSING_RESIDUAL in each.kinds & finding.kinds), None
        )
        if same is None:
            merged.append(finding)
            continue
        first, other = sorted((merged[same], finding), key=lambda each: -len(each.kinds))
        merged[same] = dataclasses.replace(first, cases=tuple(dict.fromkeys((*first.cases, *other.cases))))
    cause = next((each for each in merged if each.kinds & _CAUSES), None)
    if cause is None:
        return merged
    # Figures of another case stay in a finding of their own.
    consequences = [
        each
        for each in merged
        if each.kind is FindingKind.RECOMPUTES and {*each.cases} <= {*cause.cases} and each.cases[0] == cause.cases[0]
    ]
    whole = dataclasses.replace(
        cause,
        text=" ".join(each.text for each in (cause, *consequences)),
        includes=(*cause.includes, *(each.kind for each in consequences)),
    )
    return [whole if each is cause else each for each in merged if each not in consequences]


_CAUSES = {FindingKind.MISSING_RESIDUAL, FindingKind.WRONG_MEMORY}
