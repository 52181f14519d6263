"""Run a file as far as its answer needs, and do something with that."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from grader.answers import failures, find
from grader.verdicts.kinds import FindingKind, Outcome
from grader.verdicts.verdict import Finding, Verdict


def run_file(
    path: Path,
    exercise: str | None,
    then: Callable[[Callable, str], Any],
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
        sliced = find.read(path, exercise)
    except find.AnotherExercise as error:
        return Verdict(
            exercise or path.stem, Outcome.NOT_ATTEMPTED, (Finding(FindingKind.ANOTHER_EXERCISE, str(error)),)
        )
    except find.NoAnswer as error:
        return Verdict(exercise or path.stem, Outcome.NOT_JUDGED, (Finding(FindingKind.NOT_JUDGED, str(error)),))
    found(sliced.exercise)
    sys.path.insert(0, str(path.parent))  # a notebook's own folder is where it imports from
    try:
        answer = sliced.answer()
    except (Exception, SystemExit) as error:
        failure = failures.failure_of(error)
        finding = Finding(
            FindingKind.RAISES,
            f"Before it can be checked, your answer's cell raises {failure.text}",
            source=failure.source,
            next="Run the page from top to bottom: which line stops it?",
        )
        return Verdict(sliced.exercise, Outcome.NOT_PASSED, (finding,))
    if not callable(answer):
        problem = f"{sliced.exercise} is of type {type(answer).__name__}, not a function."
        return Verdict(sliced.exercise, Outcome.NOT_JUDGED, (Finding(FindingKind.NOT_JUDGED, problem),))
    return then(answer, sliced.exercise)
