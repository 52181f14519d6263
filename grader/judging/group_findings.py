"""One finding for what several cases show alike."""

import dataclasses
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from grader.exercises.spec import Question
from grader.verdicts.verdict import Finding


class CaseFinding(NamedTuple):
    """A finding in one case.

    Attributes:
      key: the same where another case shows the same thing.
      case: the case's name, or the question's.
      finding: what is to be said, with this case's figures.
    """

    key: Hashable
    case: str
    finding: Finding


_LISTED = 9  # cases or questions of which a finding names all that show it


def group_findings(seen: Iterable[CaseFinding], of: int = 0) -> list[Finding]:
    """The same finding of several cases is one finding, with the figures of the first.

    Args:
      seen: what each case shows, in the order of the cases.
      of: how many questions were asked, if it is about questions: of many, a finding says how many show it, and names
        the first.
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


def all_right(questions: Sequence[Question]) -> str:
    """What is said of an answer that is right for all questions."""
    if len(questions) > _LISTED:
        return f"Right for all {len(questions)} questions."
    return f"Right for {', '.join(question.name for question in questions)}."
