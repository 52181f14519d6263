"""Check a file in a terminal and record the attempt. On a page, `session` does that."""

from contextlib import suppress
from pathlib import Path

from grader.answers import find
from grader.isolation.check_child import CheckChild
from grader.isolation.check_file import check_file
from grader.learner.progress import Progress
from grader.verdicts.verdict import Outcome, Verdict


def check(file: Path, exercise: str | None = None, child: CheckChild | None = None) -> tuple[Verdict, list[str]]:
    """Check the answer in a file in a separate process, and record the attempt if the file contains an answer.

    Args:
      file: a notebook or a Python file.
      exercise: the exercise whose answer to look for; None for the only one in the file.
      child: the process that checks the file, if one was started already.

    Returns:
      The verdict, and sentences about the progress file that the learner must read.
    """
    verdict = check_file(file, exercise=exercise, child=child)
    progress = Progress()
    with suppress(find.NoAnswer):  # without an answer, there is no attempt to record
        answer = find.read(file, exercise)
        if verdict.outcome != Outcome.NOT_ATTEMPTED:
            progress.record(answer.exercise, verdict, answer.text)
    return verdict, progress.notices
