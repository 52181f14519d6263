"""What outcomes a verdict may have, and what kinds of findings.

Their members are strings: JSON, SQLite, `grades.csv` and pages have their texts. What a learner's progress has recorded
is read again, so that a member that is not needed any more stays.
"""

from enum import StrEnum


class Outcome(StrEnum):
    """How the check of one answer ended."""

    PASSED = "passed"
    NOT_PASSED = "not passed"
    NOT_ATTEMPTED = "not attempted"
    NOT_JUDGED = "could not be judged"


HEADLINE = {
    Outcome.PASSED: "Passed",
    Outcome.NOT_PASSED: "Not passed yet",
    Outcome.NOT_ATTEMPTED: "Not attempted",
    Outcome.NOT_JUDGED: "Not judged",
}


class FindingKind(StrEnum):
    """What a finding is about. Hints name the kinds that they help with (`Hint.after`)."""

    # There is nothing to judge, or it cannot be.
    NOT_ATTEMPTED = "not attempted"
    NOT_JUDGED = "could not be judged"
    MACHINE = "machine"  # a process was ended from outside, for no reason that its limits give: no grade, but a failure
    ANOTHER_EXERCISE = "another exercise"  # the file answers that, not what is asked

    # What an answer computes.
    RAISES = "raises"
    CHANGES = "changes from call to call"
    ARGUMENT_ORDER = "argument order"
    DOES_NOT_END = "does not end"
    WRONG_TYPE = "wrong type"
    WRONG_VALUE = "wrong value"
    WRONG_GRADIENT = "wrong gradient"

    # What its forward pass keeps, and what its backward pass computes again.
    ALSO_SAVED = "also saved"
    NOT_SAVED = "not saved"
    WRONG_MEMORY = "wrong memory"
    RECOMPUTES = "recomputes"
    EXTRA_MATMULS = "extra matmuls"
    PEAK = "peak"
    NO_BARRIER = "no barrier"

    # Answers that are plain data.
    UNKNOWN_NAME = "unknown name"
    IMPOSSIBLE = "impossible"
    COSTS_MORE = "costs more"
