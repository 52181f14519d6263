"""Stop a run on a machine that cannot judge any answer, instead of blaming the class.

A hostile answer can prevent its own verdict, but not those of others. So when several answers in a row could not be
judged, a worked answer is graded as a control. If the worked answer does not pass, the machine is the cause.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from grader.classroom.collect import Submission
from grader.classroom.grade import Grade
from grader.classroom.run_folder import RunError
from grader.verdicts.verdict import Outcome

IN_A_ROW = 5
_EXERCISE = "checkpoint_dot_policy"


class Control:
    """Counts the answers in a row that could not be judged.

    Args:
      grade: a function that grades a submission immediately; it returns None if grading took too long, which shows
        nothing about the machine.
      forget: a function that deletes the saved grades of submissions, given their digests.
    """

    def __init__(self, grade: Callable[[Submission], Grade | None], forget: Callable[[Sequence[str]], None]):
        self._grade, self._forget = grade, forget
        self._row: dict[str, None] = {}  # digests, because an answer may be tried more than once

    def note(self, digest: str, grade: Grade) -> None:
        """Record a grade. Raises RunError if it is the last of several answers in a row without a verdict, and the
        control does not pass either."""
        if grade.verdict.outcome != Outcome.NOT_JUDGED:
            self._row = {}
            return
        self._row[digest] = None
        if len(self._row) < IN_A_ROW:
            return
        control = self._grade(Submission("", "control.py", solution(), _EXERCISE))
        if control and not control.verdict.passed:
            self._forget([*self._row])
            raise RunError(
                f"{len(self._row)} answers in a row could not be judged, and neither could a worked answer: "
                f"{control.reason} The cause is this machine, not the answers. The earlier grades are saved. Run "
                "`python -m grader doctor`, fix the problems that it reports, and add --resume."
            )
        self._row = {}


def solution() -> bytes:
    """Return the source of a worked answer, which passes on every machine that can grade."""
    return (Path(__file__).resolve().parents[2] / "solutions" / f"{_EXERCISE}.py").read_bytes()
