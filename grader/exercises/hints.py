"""Hints: steps towards an answer, one at a time. Which one comes next depends on what the last check found."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from grader.verdicts.verdict import Finding


@dataclass(frozen=True)
class Hint:
    """One step towards an answer.

    Attributes:
      text: a question; the last ones of an exercise may say nearly all of the answer. Code stands in backquotes.
      after: the kinds of findings (`Finding.kind`) that it helps with; empty if it helps whatever was found.
      says: words that such a finding must have, in its text, its figures, its cases or its question, where the kind
        alone does not tell mistakes apart; all of them, if there are several. None if it does.
    """

    text: str
    after: tuple[str, ...] = ()
    says: str | tuple[str, ...] | None = None

    def closeness(self, findings: Sequence[Finding]) -> int:
        """How closely it fits what was found: 0 always, 1 by a finding's kind, one more for each of the words that it
        must have; -1 if it does not fit."""
        if not self.after:
            return 0
        words = (self.says,) if isinstance(self.says, str) else self.says or ()
        found = (_words(finding) for finding in findings if finding.kind in self.after)
        return 1 + len(words) if any(all(word in said for word in words) for said in found) else -1


def _words(finding: Finding) -> str:
    # Not its source: that is the learner's, and a comment in it is no finding.
    said = (finding.text, finding.expected, finding.got, *finding.cases, finding.next)
    return "\n".join(words for words in said if words)


def next_hint(hints: Sequence[Hint], findings: Sequence[Finding], given: Collection[int]) -> int | None:
    """Which hint comes next: the first of those that fit most closely what was found.

    Args:
      hints: the exercise's hints, in their order.
      findings: those of the last check; empty if there was none.
      given: indices of the hints that have been given.

    Returns:
      An index into `hints`, or None if none is left.
    """
    closeness = {index: hint.closeness(findings) for index, hint in enumerate(hints) if index not in given}
    fitting = [index for index, close in closeness.items() if close >= 0]
    return max(fitting, key=closeness.__getitem__, default=None)
