"""Read and check the file that a learner hands in."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from grader.exercises import registry
from grader.util import bounded_json
from grader.verdicts.verdict import Outcome

FORMAT = "remat-workbook submission 1"
SUFFIX = ".json"


class HandInError(Exception):
    """Raised if there is nothing to hand in, or if a file cannot be written or read; the message gives the reason and
    the next step."""


@dataclass(frozen=True)
class Answer:
    """An answer in a file that was handed in.

    Attributes:
      exercise: the exercise's name. The exercise may have been removed since.
      source: the text of the answer; "" if it is unknown.
      outcome: the outcome of the verdict on the learner's machine.
    """

    exercise: str
    source: str
    outcome: Outcome


def read(path: Path) -> tuple[list[Answer], bool]:
    """Read a file that was handed in.

    Returns:
      The answers, and whether the checksum matches the content. The checksum detects only accidental changes, because
      anyone who changes the file can compute a new checksum.

    Raises:
      HandInError: if the file does not have the format of `submit`.
    """
    try:
        return parse(path.read_text(encoding="utf-8"), path.name)
    except OSError as error:
        raise HandInError(f"{path} cannot be read: {error.strerror or error}. Check its name.") from None
    except UnicodeDecodeError:
        return parse("", path.name)


def parse(text: str, name: str) -> tuple[list[Answer], bool]:
    """Do the same as `read` for the text of a file with this name.

    Raises:
      HandInError: if the text does not have this format.
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
    """Return the SHA-256 hash of a file's content without its checksum, in hexadecimal."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
