"""What grades in a Dask worker: one sandbox for all that the worker is given, which ends with it."""

from grader.classroom.collect import Submission
from grader.classroom.grade import Grade
from grader.classroom.grade_one import SandboxGrader, grade_unsandboxed

_GRADER = SandboxGrader()


def grade(submission: Submission, seed: int, secret: int, seconds: float, sandboxed: bool) -> Grade:
    """As `SandboxGrader.grade`, or without a sandbox."""
    return (_GRADER.grade if sandboxed else grade_unsandboxed)(submission, seed, secret, seconds)
