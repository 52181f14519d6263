"""Grade submissions in a Dask worker, in one sandbox that ends with the worker."""

import functools

from grader.classroom.collect import Submission
from grader.classroom.grade import Grade
from grader.classroom.grade_one import SandboxGrader, grade_unsandboxed

_grader = functools.cache(lambda needs_groups: SandboxGrader(needs_groups=needs_groups))


def grade(submission: Submission, seed: int, secret: int, seconds: float, sandboxed: bool, needs_groups: bool) -> Grade:
    """Grade a submission like `SandboxGrader.grade`, or without a sandbox."""
    graded = _grader(needs_groups).grade if sandboxed else grade_unsandboxed
    return graded(submission, seed, secret, seconds)
