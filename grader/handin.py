"""Handing in: one file with every answer and its verdict, which an instructor can grade again."""

import hashlib
import json
import tempfile
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from grader import exercise as exercises
from grader import files, pages, process, submission, untrusted
from grader.progress import Attempt, Progress, now, versions
from grader.verdict import EXIT_STATUS, NOT_JUDGED, Finding, Verdict

_FORMAT = "remat-workbook submission 1"


class HandInError(Exception):
    """There is nothing to hand in, or it cannot be written or read; the message says why and what to do."""


@dataclass(frozen=True)
class Answer:
    """One answer in a file that was handed in.

    Attributes:
      exercise: the exercise's name.
      source: the answer's text, or "" if it was not known.
      outcome: what the verdict on the learner's machine was.
    """

    exercise: str
    source: str
    outcome: str


def submit(path: Path | None = None) -> Path:
    """Writes the best attempt at every exercise into one file: the last one that passed, else the last one.

    Args:
      path: the file to write. If there is one, it stays, and a number is added to the name of the new one. None for a
        name with today's date, in the current folder.

    Returns:
      The file that was written.

    Raises:
      HandInError: nothing was ever checked, or the file cannot be written.
    """
    progress = Progress()
    attempts = progress.attempts()
    if not attempts:
        why = " ".join(progress.notices) or "No answer was checked so far."
        raise HandInError(f"There is nothing to hand in. {why} Check your answers first, then submit.")
    content = {
        "format": _FORMAT,
        "time": now(),
        "versions": versions(),
        "answers": [
            _entry([attempt for attempt in attempts if attempt.exercise == name])
            for name in sorted({attempt.exercise for attempt in attempts})
        ],
    }
    text = json.dumps(content | {"checksum": _checksum(content)}, indent=2) + "\n"
    path = path or Path(f"remat-workbook-{date.today().isoformat()}.json")
    written = None
    try:
        written = files.fresh(path)
        written.write_text(text, encoding="utf-8")
    except OSError as error:
        if written:
            written.unlink(missing_ok=True)
        raise HandInError(
            f"{path} cannot be written: {error.strerror or error}. Name another file, or another folder."
        ) from None
    return written


def unchecked() -> list[str]:
    """A sentence for each page that now holds an answer that was never checked, and so is not handed in."""
    attempts = Progress().attempts()
    sentences = []
    for page in pages.exercises():
        try:
            found = submission.read(page.path, page.name)
        except submission.SubmissionError:
            continue
        known = {submission.fingerprint(a.source) for a in attempts if a.exercise == page.name and a.source}
        if not found.is_stub() and submission.fingerprint(found.text) not in known:
            sentences.append(
                f"The answer that exercises/{page.path.name} now holds was never checked, so it is not among them. "
                "Check it, then submit again."
            )
    return sentences


def read(path: Path) -> tuple[list[Answer], bool]:
    """Reads what was handed in.

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
    """As `read`, for a text; `name` is that of its file."""
    try:
        content = untrusted.loads(text)
        answers = [_answer(fields) for fields in content["answers"]]
        known = bool(answers) and content["format"] == _FORMAT
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        known = False
    if not known:
        raise HandInError(
            f"{name} is not a file that `python -m grader submit` of this version writes: ask for a new one."
        )
    return answers, content.pop("checksum", None) == _checksum(content)


def grade_again(answer: Answer) -> Verdict:
    """Grades an answer that was handed in, in a process of its own."""
    if not answer.source:
        finding = Finding("could not be judged", "The answer's text was not known when it was handed in.")
        return Verdict(answer.exercise, NOT_JUDGED, (finding,))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{answer.exercise}.py"
        path.write_text(answer.source, encoding="utf-8")
        return process.check_file(path, exercise=answer.exercise)


def _entry(attempts: list[Attempt]) -> dict[str, Any]:
    # Without its text an answer cannot be graded again.
    _, best = max(enumerate(attempts), key=lambda pair: (pair[1].verdict.passed, pair[1].source != "", pair[0]))
    return {
        "exercise": best.exercise,
        "attempts": len(attempts),
        "time": best.time,
        "versions": best.versions,
        "verdict": best.verdict.to_dict(),
        "source": best.source,
    }


def _answer(fields: dict) -> Answer:
    answer = Answer(fields["exercise"], fields["source"], fields["verdict"]["outcome"])
    if answer.exercise not in exercises.names() or answer.outcome not in EXIT_STATUS:
        raise ValueError(fields)
    if not isinstance(answer.source, str):
        raise TypeError(answer.source)
    return answer


def _checksum(content: dict) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
