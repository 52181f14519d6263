"""Check a file in a terminal and record the attempt. On a page, `session` does that."""

from contextlib import suppress
from pathlib import Path

from grader.answers import find
from grader.isolation import check_file
from grader.learner.progress import Progress
from grader.verdicts.verdict import Outcome, Verdict


def check(file: Path, exercise: str | None = None) -> tuple[Verdict, list[str]]:
    """Check the answer in a file, in a process of its own, and write the attempt down if it was one.

    Args:
      file: a notebook or a Python file.
      exercise: which exercise's answer to look for; None for the one that there is.

    Returns:
      The verdict, and what the learner must read about the file with their progress.
    """
    verdict = check_file.check_file(file, exercise=exercise)
    progress = Progress()
    with suppress(find.NoAnswer):  # no answer, no attempt
        answer = find.read(file, exercise)
        if verdict.outcome != Outcome.NOT_ATTEMPTED:
            progress.record(answer.exercise, verdict, answer.text)
    return verdict, progress.notices
