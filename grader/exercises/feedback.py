"""The texts of the feedback on an exercise: hints, known mistakes, and questions about exceptions.

The texts are data: `feedback.toml` in the exercise's folder. Hints and mistakes have keys, by which code and a
learner's progress find them, so that texts can be inserted, moved and reworded.
"""

import functools
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grader.verdicts.verdict import Finding, FindingKind

_COMMON = Path(__file__).parents[1] / "catalog" / "common_feedback.toml"


@dataclass(frozen=True)
class Hint:
    """One step towards an answer.

    Attributes:
      text: a question; the last ones of an exercise may give nearly all of the answer. Code is in backquotes.
      on_kinds: the kinds of findings (`Finding.kinds`) that it helps with; empty if it always helps.
      on_text: words that such a finding must contain, all of them, in its text, its figures, its cases or its question.
      on_any_text: words of which such a finding must contain one.
    """

    text: str
    on_kinds: tuple[str, ...] = ()
    on_text: tuple[str, ...] = ()
    on_any_text: tuple[str, ...] = ()

    def closeness(self, findings: Sequence[Finding]) -> int:
        """Return how closely the hint fits the findings.

        That is 0 if it always fits, 1 if it fits a finding's kind, one more for each of the words that the finding must
        contain, and -1 if it does not fit.
        """
        if not self.on_kinds:
            return 0
        alternatives: list[tuple[str, ...]] = [(words,) for words in self.on_any_text] or [self.on_text]
        texts = [_searchable_text(finding) for finding in findings if finding.kinds.intersection(self.on_kinds)]
        fits = any(all(words in text for words in each) for text in texts for each in alternatives)
        return 1 + len(alternatives[0]) if fits else -1


@dataclass(frozen=True)
class KnownMistake:
    """A common mistake. If an answer's results are those of the mistake, the finding names it.

    Attributes:
      description: the mistake, in words.
      wrong_reference: computes what the mistake leads to; takes an answer's arguments.
      hint: the question to ask about it.
      check_gradient: True where the value is right, and the mistake shows in the gradients alone.
    """

    description: str
    wrong_reference: Callable
    hint: str = "Which of your lines does that?"
    check_gradient: bool = False


@dataclass(frozen=True)
class Feedback:
    """The texts of an exercise.

    Attributes:
      hints: by key, in the order in which they are tried; the hints that all exercises share come last.
      error_questions: patterns of exceptions' texts, and the question to ask about them; the first match counts.
      compared_with: what an answer's data is compared with, in words that follow on "Your answer is not".
      otherwise: the question to ask about wrong data that no known mistake explains.
    """

    hints: Mapping[str, Hint]
    error_questions: tuple[tuple[str, str], ...]
    compared_with: str
    otherwise: str
    _mistakes: Mapping[str, Mapping[str, Any]]

    def mistake(self, key: str, wrong_reference: Callable, **values: object) -> KnownMistake:
        """Return the known mistake with this key.

        Args:
          key: its key in the file.
          wrong_reference: computes what the mistake leads to.
          values: what stands in the description's braces.
        """
        mistake = KnownMistake(wrong_reference=wrong_reference, **self._mistakes[key])
        return replace(mistake, description=mistake.description.format(**values)) if values else mistake


def read_feedback(module: str) -> Feedback:
    """Read the `feedback.toml` next to a module, whose `__file__` is given."""
    fields = tomllib.loads(Path(module).with_name("feedback.toml").read_text(encoding="utf-8"))
    return Feedback(
        hints=_read_hints(fields) | common_hints(),
        error_questions=tuple((each["pattern"], each["question"]) for each in fields.get("error_questions", ())),
        compared_with=fields.get("compared_with", ""),
        otherwise=fields.get("otherwise", ""),
        _mistakes=fields.get("mistakes", {}),
    )


@functools.cache
def common_hints() -> dict[str, Hint]:
    """Return the hints that all exercises share, about mistakes in calling JAX."""
    return _read_hints(tomllib.loads(_COMMON.read_text(encoding="utf-8")))


def next_hint(hints: Mapping[str, Hint], findings: Sequence[Finding], given: Collection[str]) -> str | None:
    """Return the key of the hint that comes next: the first of those that fit the findings most closely.

    Args:
      hints: the exercise's hints, in their order.
      findings: those of the last check; empty if there was none.
      given: the keys of the hints that have been given.

    Returns:
      A key of `hints`, or None if no hint is left.
    """
    # Arguments in the wrong order explain everything else that was found.
    swapped = [finding for finding in findings if finding.kind is FindingKind.ARGUMENT_ORDER]
    closeness = {key: hint.closeness(swapped or findings) for key, hint in hints.items() if key not in given}
    fitting = [key for key, close in closeness.items() if close >= 0]
    return max(fitting, key=closeness.__getitem__, default=None)


def _read_hints(fields: Mapping[str, Any]) -> dict[str, Hint]:
    hints = {}
    for key, hint in fields["hints"].items():
        words = {name: tuple(values) for name, values in hint.items() if name != "text"}
        hints[key] = Hint(hint["text"], **words)
    return hints


def _searchable_text(finding: Finding) -> str:
    # Not the source: it is the learner's, and a comment in it is no finding.
    texts = (finding.text, finding.expected, finding.got, *finding.cases, finding.next)
    return "\n".join(text for text in texts if text)
