"""The answers that exercises are tested with: `wrong.py` and `right.py` in each exercise's folder."""

import importlib
from collections.abc import Callable, Iterable
from typing import NamedTuple

from grader.verdict import Finding


class Wrong(NamedTuple):
    """A wrong answer, and the finding that must name its mistake.

    `words` are in that finding; `cases` are those in which it is seen, or None if they do not matter.
    """

    answer: Callable
    kind: str
    words: tuple[str, ...]
    cases: tuple[str, ...] | None


class Right(NamedTuple):
    """A right answer, and whether it passes with advice."""

    answer: Callable
    advised: bool


class Answers(dict):
    """The answers of a module, by their functions' names."""

    def fails_with(self, kind, *words, cases=None):
        def note(answer):
            self[answer.__name__] = Wrong(answer, kind, words, cases)
            return answer

        return note

    def passes(self, answer):
        self[answer.__name__] = Right(answer, advised=False)
        return answer

    def passes_with_advice(self, answer):
        self[answer.__name__] = Right(answer, advised=True)
        return answer


def wrong(exercise: str) -> dict[str, Wrong]:
    return importlib.import_module(f"{exercise}.wrong").WRONG


def right(exercise: str) -> dict[str, Right]:
    return importlib.import_module(f"{exercise}.right").RIGHT


def named(answer: Wrong, findings: Iterable[Finding]) -> list[Finding]:
    """Those of the findings that name the answer's mistake."""
    return [found for found in findings if found.kind == answer.kind and all(w in _said(found) for w in answer.words)]


def _said(finding: Finding) -> str:
    return " ".join([finding.text, *(words for _, words in finding.details())])
