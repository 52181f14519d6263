"""One finding for what several cases show alike."""

import dataclasses
from collections.abc import Hashable, Iterable
from typing import NamedTuple

from grader.verdicts.verdict import Finding


class Seen(NamedTuple):
    """A finding in one case.

    Attributes:
      key: the same where another case shows the same thing.
      case: the case's name, or the question's.
      finding: what is to be said, with this case's figures.
    """

    key: Hashable
    case: str
    finding: Finding


def merge(seen: Iterable[Seen]) -> list[Finding]:
    """The same finding of several cases is one finding, with the figures of the first."""
    alike: dict[Hashable, list[Seen]] = {}
    for each in seen:
        alike.setdefault(each.key, []).append(each)
    return [dataclasses.replace(group[0].finding, cases=tuple(each.case for each in group)) for group in alike.values()]
