"""Answers that are plain data: what they return, in JSON's types, compared with the reference's."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from grader.evidence import Evidence
from grader.exercise import Question
from grader.verdict import Finding


@dataclass(frozen=True)
class Choice:
    """What a reference returns where some names are to be chosen: order and spaces do not matter.

    A finding says how many are right, not which: the names are what a learner is to find out.

    Attributes:
      chosen: the right names.
      among: all names that the exercise's page offers.
    """

    chosen: tuple[str, ...]
    among: tuple[str, ...]


def plain(value: Any) -> Any:
    """A value in JSON's types. Raises TypeError, with the type's name, for what is no plain data."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Choice):
        return sorted(value.chosen)
    if isinstance(value, list | tuple):
        return [plain(element) for element in value]
    if getattr(value, "shape", None) == () and hasattr(value, "item"):  # a number that came from an array
        return plain(value.item())
    raise TypeError(type(value).__name__)


def differences(
    evidence: Evidence, questions: Sequence[Question], task: ModuleType, expect: ModuleType
) -> Iterator[tuple[object, str, Finding]]:
    """What an answer got wrong: a key that is the same for the same mistake, the question's name, the finding."""
    for asked, question in zip(evidence.cases, questions, strict=True):
        want = expect.reference(*question.arguments)
        got = asked.data
        names = isinstance(want, Choice)
        asked_for = f"{len(want.chosen)} of the page's names" if names else _shown(plain(want), want)
        words = {"expected": asked_for, "got": _shown(got, want)}
        if not _fits(got, want):
            text = f"Your answer returns {words['got']} where {task.returns} is asked for."
            yield (
                "type",
                question.name,
                Finding("wrong type", text, **words, next=f"What should {task.signature} return?"),
            )
            continue
        if names and (unknown := _unknown(got, want)):
            text = f"{unknown!r} is none of the names on the page."
            ask = "Which of the page's names means the same value?"
            yield "unknown", question.name, Finding("unknown name", text, got=words["got"], next=ask)
            continue
        given = _comparable(got, want)
        if given == _comparable(plain(want), want):
            continue
        same = (m for m in expect.mistakes if _comparable(plain(m.function(*question.arguments)), want) == given)
        mistake = next(same, None)
        says = mistake.says if mistake else _how_many(given, want) if names else None
        text = f"Your answer is not what JAX does{f': {says}' if says else ''}."
        ask = mistake.next if mistake else "What does rematscope's residual_table show for something of this kind?"
        # Numbers of names belong to a question; where they differ from one to the other, so do the findings.
        key = (says, *words.values()) if names and not mistake else says
        yield key, question.name, Finding("wrong value", text, **words, next=ask)


def _comparable(data, want):
    """Data as it is compared: names that are chosen come in any order, with or without spaces."""
    if isinstance(want, Choice) and isinstance(data, list) and all(isinstance(name, str) for name in data):
        return sorted("".join(name.split()) for name in data)
    return data


def _how_many(given: list[str], want: Choice) -> str:
    """How many of the given names are right, in words."""
    kept = sum((Counter(given) & Counter(_comparable(list(want.chosen), want))).values())
    if len(given) == 1:
        return "that is kept, but not alone" if kept else "that is not kept"
    return f"of these {len(given)} names, {kept or 'none'} {'is' if kept <= 1 else 'are'} kept"


def _unknown(got: list[str], want: Choice) -> str | None:
    known = _comparable(list(want.among), want)
    return next((name for name in got if "".join(name.split()) not in known), None)


def _fits(got, want) -> bool:
    """Whether data has the form of what is wanted: a tuple's length is fixed, a list's is not."""
    match want:
        case Choice():
            return _fits(got, [""])
        case tuple():
            return isinstance(got, list) and len(got) == len(want) and all(map(_fits, got, want))
        case list():
            return isinstance(got, list) and (not want or all(_fits(element, want[0]) for element in got))
    return type(got) is type(plain(want))


def _shown(data, like) -> str:
    return str(tuple(data) if isinstance(data, list) and isinstance(like, tuple) else data)
