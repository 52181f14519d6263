"""Which requirements of an exercise an answer fails to meet."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

from grader.exercises.behaviour import Behaviour
from grader.exercises.requirements import Requirement
from grader.judging.merge import Seen, merge
from grader.verdicts.kinds import FindingKind
from grader.verdicts.verdict import Finding


def unmet(
    requirements: Sequence[Sequence[Sequence[Requirement]]], behaviours: Sequence[Behaviour]
) -> tuple[list[Finding], list[str]]:
    """What stands against an answer; or advice, and what was shown, if nothing does.

    Groups of requirements come one after the other: of a group that any case does not meet, all that is found is said,
    and nothing of the groups behind it.

    Args:
      requirements: case by case, the groups of what is asked of it.
      behaviours: what each case shows, in the same order.
    """
    advice: list[Finding] = []
    shown = ["Values and gradients match the reference in every case."]
    for groups in itertools.zip_longest(*requirements, fillvalue=()):
        asked = [(behaviour, group) for behaviour, group in zip(behaviours, groups, strict=True) if group]
        found = merge(
            Seen((number, finding.kind), behaviour.case, finding)
            for behaviour, group in asked
            for number, requirement in enumerate(group)
            for finding in requirement.findings(behaviour)
        )
        if mistakes := [finding for finding in found if not finding.advice]:
            return list(_without_consequences(mistakes)), []
        advice += found
        claimed: dict[str, list[str]] = {}  # what is claimed, and in which cases
        for behaviour, group in asked:
            if claims := [claim for requirement in group if (claim := requirement.claim(behaviour))]:
                claimed.setdefault("; ".join(claims), []).append(behaviour.case)
        shown += [f"{'; '.join(names)}: {claims}." for claims, names in claimed.items()]
    return advice, shown


def _without_consequences(findings: Sequence[Finding]) -> Iterator[Finding]:
    """What is computed again since it is not saved is no mistake of its own, and asks no question of its own."""
    missing = False
    for finding in findings:
        missing = missing or finding.kind in (FindingKind.NOT_SAVED, FindingKind.WRONG_MEMORY)
        if missing and finding.kind is FindingKind.RECOMPUTES:
            finding = dataclasses.replace(finding, next="Does this follow from what is not saved?")
        yield finding
