"""Read and check the file that a learner hands in."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from grader.exercises import registry
from grader.util import bounded_json
from grader.verdicts.verdict import Outcome

FORMAT = "remat-workbook submission 1"


class HandInError(Exception):
    """There is nothing to hand in, or it cannot be written or read; the message says why and what to do."""


@dataclass(frozen=True)
class Answer:
    """One answer in a file that was handed in.

    Attributes:
      exercise: the exercise's name. The exercise may have been removed since.
      source: the answer's text, or "" if it was not known.
      outcome: what the verdict on the learner's machine was.
    """

    exercise: str
    source: str
    outcome: Outcome


def read(path: Path) -> tuple[list[Answer], bool]:
    """Read what was handed in.

    Returns:
      The answers, and whether the checksum is that of the file's content. It tells of accidents only: whoever changes
      the file on purpose can write a new one.

    Raises:
      HandInError: the file is none that `submit` writes.
    """
    try:
        return parse(path.read_text(encoding="utf-8"), path.name)
    except OSError as error:
        raise HandInError(f"{path} cannot be read: {error.strerror or error}. Check its name.") from None
    except UnicodeDecodeError:
        return parse("", path.name)


def parse(text: str, name: str) -> tuple[list[Answer], bool]:
    """As `read`, for a text; `name` is that of its file.

    Raises:
      HandInError: it is not such a file.
    """
    try:
        content = bounded_json.loads(text)
        answers = [_read_answer(fields) for fields in content["answers"]]
        known = bool(answers) and content["format"] == FORMAT
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        known = False
    if not known:
        raise HandInError(
            f"{name} is not a file that `python -m grader submit` of this version writes. Ask for a new one."
        )
    return answers, content.pop("checksum", None) == checksum(content)


def _read_answer(fields: dict) -> Answer:
    answer = Answer(fields["exercise"], fields["source"], Outcome(fields["verdict"]["outcome"]))
    if answer.exercise not in registry.names() and answer.exercise not in registry.REMOVED:
        raise ValueError(fields)
    if not isinstance(answer.source, str):
        raise TypeError(answer.source)
    return answer


def checksum(content: dict) -> str:
    """SHA-256 of what a file holds besides its checksum, in hexadecimal."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
