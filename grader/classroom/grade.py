"""One grade: a verdict on a submission, with its picture."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from grader.verdicts.verdict import Verdict
from rematscope.render import html_page


@dataclass(frozen=True)
class Picture:
    """An answer's two programs side by side, in the layout of a `rematscope` view, as plain text.

    Attributes:
      title: the title of the programs.
      columns: forward and backward, each a list of lines, each a list of (text, style) pieces.
      footer: lines below both.
    """

    title: str
    columns: Sequence
    footer: Sequence

    @classmethod
    def of(cls, title: str, columns: Any, footer: Any) -> "Picture":
        """Return a picture from the data of an answer's process. Raises TypeError or ValueError if the data is not
        valid."""
        if not (isinstance(columns, list) and len(columns) == 2):
            raise ValueError("not two programs")
        budget = itertools.count()
        picture = cls(title, [_picture_lines(column, budget) for column in columns], _picture_lines(footer, budget))
        lines = itertools.chain(*picture.columns, picture.footer)
        if sum(len(text) for line in lines for text, _ in line) > _MAX_CHARACTERS:
            raise ValueError("too much to look at")
        return picture

    def html(self) -> str:
        """Return both programs as an HTML table with all text escaped."""
        return html_page(self.columns, self.footer)


# The style classes that rematscope uses for pieces of lines. Other classes could be those of the page itself.
_STYLES = {"", "bold", "rs-header", "rs-type", "rs-source", "rs-marked"}
_STYLES |= {f"rs-{x}{m}" for x in "SRDB" for m in ("", " rs-marked")}
_MAX_PIECES = 20_000


_MAX_CHARACTERS = 500_000


def _picture_lines(lines: Any, budget: Iterator[int]) -> list[list[tuple[str, str]]]:
    if not isinstance(lines, list):
        raise TypeError("no lines")
    return [[_picture_piece(*piece) for piece in line if next(budget) < _MAX_PIECES] for line in lines[:_MAX_PIECES]]


def _picture_piece(text: str, style: str) -> tuple[str, str]:
    if not isinstance(text, str) or style not in _STYLES:
        raise ValueError("not a piece of a view")
    return printable(text[:1000]), style


def printable(text: str) -> str:
    """Return the text with each unprintable character replaced by a space."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


@dataclass(frozen=True)
class Grade:
    """A verdict on a submission.

    Attributes:
      learner: the learner who handed in the submission.
      name: the file's name; "" if there is no file.
      verdict: the verdict.
      printed: the answer's printed output, without the middle if it is long.
      seconds: the time that grading took.
      picture: the answer's two programs, or None. It comes from the answer's own process, so it never affects the
        verdict.
      digest: the digest of the submission; "" if there is none, or if the grade is not saved.
      code: the hash of the code and the catalog that produced the grade (`versions.hash_code`); "" if `digest` is "".
    """

    learner: str
    name: str
    verdict: Verdict
    printed: str = ""
    seconds: float = 0.0
    picture: Picture | None = None
    digest: str = ""
    code: str = ""

    @property
    def score(self) -> int:
        """1 for a pass, else 0."""
        return int(self.verdict.passed)

    @property
    def reason(self) -> str:
        """The verdict in one line."""
        findings = [finding.text for finding in self.verdict.findings if not finding.advice]
        return findings[0] if findings else " ".join(self.verdict.shown)

    def to_dict(self) -> dict[str, Any]:
        """Return the grade as values of JSON's types."""
        fields = {name: getattr(self, name) for name in ("learner", "name", "printed", "seconds", "code")}
        return fields | {"verdict": self.verdict.to_dict(), "picture": self.picture and vars(self.picture)}

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> "Grade":
        """Return the grade from the result of `to_dict`. Raises TypeError, KeyError or ValueError if it is not
        valid."""
        picture = fields["picture"] and Picture(**fields["picture"])
        return cls(**fields | {"verdict": Verdict.from_dict(fields["verdict"]), "picture": picture})
