"""The texts of the feedback on an exercise: hints, known mistakes, and questions about exceptions.

The texts are in `feedback.toml` in the exercise's folder. Code and saved progress identify hints and mistakes by their
keys, so texts can be inserted, moved and reworded.
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
    """A hint: one step towards an answer.

    Attributes:
      text: a question. The last hints of an exercise may give most of the answer. Code is in backquotes.
      on_kinds: the kinds of findings (`Finding.kinds`) that the hint fits; empty if it always fits.
      on_text: strings that such a finding must all contain in its text, its figures, its cases or its question.
      on_any_text: strings of which such a finding must contain at least one.
    """

    text: str
    on_kinds: tuple[str, ...] = ()
    on_text: tuple[str, ...] = ()
    on_any_text: tuple[str, ...] = ()

    def closeness(self, findings: Sequence[Finding]) -> int:
        """Return how closely the hint fits the findings.

        The result is 0 if the hint always fits, -1 if it does not fit, and otherwise 1 plus the number of strings that
        the finding must contain.
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
      wrong_reference: a function that computes the result of the mistake from an answer's arguments.
      hint: the question to ask about it.
      check_gradient: whether the value is right, so that only the gradients show the mistake.
    """

    description: str
    wrong_reference: Callable
    hint: str = "Which of your lines does that?"
    check_gradient: bool = False


@dataclass(frozen=True)
class Feedback:
    """The texts of an exercise.

    Attributes:
      hints: the hints by key, in order. The hints that all exercises share come last.
      error_questions: pairs of a regular expression for an exception's text and a question; the first match applies.
      compared_with: a description of the right data, as words that follow "Your answer is not".
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
          wrong_reference: a function that computes the result of the mistake.
          values: the values for the placeholders in the description.
        """
        mistake = KnownMistake(wrong_reference=wrong_reference, **self._mistakes[key])
        return replace(mistake, description=mistake.description.format(**values)) if values else mistake


def read_feedback(module: str) -> Feedback:
    """Read the `feedback.toml` next to a module, given the module's `__file__`."""
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
    """Return the key of the next hint: the first hint that fits the findings most closely.

    Args:
      hints: the exercise's hints, in their order.
      findings: the findings of the last check; empty if there was none.
      given: the keys of the hints that the learner has already seen.

    Returns:
      A key of `hints`, or None if no hint is left.
    """
    # Arguments in the wrong order explain all other findings.
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
    # Without the source line, because a learner's comment could contain the string.
    texts = (finding.text, finding.expected, finding.got, *finding.cases, finding.next)
    return "\n".join(text for text in texts if text)
