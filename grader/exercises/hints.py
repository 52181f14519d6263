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
        alone does not tell mistakes apart; None if it does.
    """

    text: str
    after: tuple[str, ...] = ()
    says: str | None = None

    def closeness(self, findings: Sequence[Finding]) -> int:
        """How closely it fits what was found: 2 by a finding's words, 1 by its kind, 0 always; -1 if it does not."""
        if not self.after:
            return 0
        found = [finding for finding in findings if finding.kind in self.after]
        if self.says is not None:
            found = [finding for finding in found if self.says in _words(finding)]
        if not found:
            return -1
        return 1 if self.says is None else 2


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
