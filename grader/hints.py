"""Hints: steps towards an answer, one at a time. Which one comes next depends on what the last check found."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from grader.verdict import Finding


@dataclass(frozen=True)
class Hint:
    """One step towards an answer.

    Attributes:
      text: a question; the last ones of an exercise may say nearly all of the answer. Code stands in backquotes.
      after: the kinds of findings (`Finding.kind`) that it helps with; empty if it helps whatever was found.
    """

    text: str
    after: tuple[str, ...] = ()


def next_hint(hints: Sequence[Hint], findings: Sequence[Finding], given: Collection[int]) -> int | None:
    """Which hint comes next: the first that fits what was found, else the first that fits always.

    Args:
      hints: the exercise's hints, in their order.
      findings: those of the last check; empty if there was none.
      given: indices of the hints that have been given.

    Returns:
      An index into `hints`, or None if none is left.
    """
    kinds = {finding.kind for finding in findings}
    left = [index for index in range(len(hints)) if index not in given]
    fitting = [index for index in left if kinds.intersection(hints[index].after)]
    return next(iter([*fitting, *(index for index in left if not hints[index].after)]), None)
