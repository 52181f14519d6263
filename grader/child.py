"""The process that runs a learner's file: `python -m grader.child FILE VERDICT ASKED`. Started by `grader.process`."""

import functools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Before anything of the learner's runs, so that what it patches is bound already.
from grader import capture, grading, submission
from grader.verdict import ANOTHER_EXERCISE, NOT_ATTEMPTED, NOT_JUDGED, NOT_PASSED, Finding, Verdict


def check(
    path: Path,
    exercise: str | None = None,
    then: Callable[[Callable, str], Any] = grading.grade,
    found: Callable[[str], None] = lambda exercise: None,
) -> Any:
    """Runs a file as far as its answer needs.

    Args:
      path: a notebook or a Python file.
      exercise: which exercise's answer to look for; None for the one that there is.
      then: what to do with the answer; it is given the exercise's name too.
      found: told the exercise's name before anything of the learner's runs.

    Returns:
      What `then` returns, or the verdict that there is no answer.
    """
    try:
        submitted = submission.read(path, exercise)
    except submission.AnotherExercise as error:
        return Verdict(exercise, NOT_ATTEMPTED, (Finding(ANOTHER_EXERCISE, str(error)),))
    except submission.SubmissionError as error:
        return Verdict(exercise or path.stem, NOT_JUDGED, (Finding("could not be judged", str(error)),))
    found(submitted.exercise)
    sys.path.insert(0, str(path.parent))  # a notebook's own folder is where it imports from
    try:
        answer = submitted.answer()
    except (Exception, SystemExit) as error:
        failure = capture.failure_of(error)
        finding = Finding(
            "raises",
            f"Before it can be checked, your answer's cell raises {failure.text}",
            source=failure.source,
            next="Run the page from top to bottom: which line stops it?",
        )
        return Verdict(submitted.exercise, NOT_PASSED, (finding,))
    if not callable(answer):
        problem = f"{submitted.exercise} is of type {type(answer).__name__}, not a function."
        return Verdict(submitted.exercise, NOT_JUDGED, (Finding("could not be judged", problem),))
    return then(answer, submitted.exercise)


def limit(processor_seconds: int, memory: int):
    try:
        import resource
    except ImportError:  # Windows: the wall clock, which the parent watches, is the limit there
        return
    # At the first of the two the process ends with SIGXCPU, which says why; the second would be a plain SIGKILL.
    resource.setrlimit(resource.RLIMIT_CPU, (processor_seconds, processor_seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:  # only Linux says, and only Linux keeps to, a limit on addresses
        return
    addresses = pages * os.sysconf("SC_PAGE_SIZE") + memory
    resource.setrlimit(resource.RLIMIT_AS, (addresses, addresses))


def main():
    path, written, asked = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
    limit(asked["limits"]["processor_seconds"], asked["limits"]["memory"])
    try:
        verdict = check(path, asked["exercise"], functools.partial(grading.grade, seed=asked["seed"]))
    except Exception as error:
        text = f"the grader itself failed, with {capture.message_of(error)}."
        advice = "That is a defect of the grader's: please report it, with the answer that brought it about."
        verdict = Verdict(path.stem, NOT_JUDGED, (Finding("could not be judged", text, next=advice),))
    # Whole or not at all: half a verdict would read as damaged.
    part = written.with_suffix(".part")
    part.write_text(json.dumps(verdict.to_dict()))
    part.replace(written)


if __name__ == "__main__":
    main()
