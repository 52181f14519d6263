"""What grades in a Dask worker: one sandbox for all that the worker is given, which ends with it."""

from grader.classroom.grade_one import SandboxGrader

GRADER = SandboxGrader()
