"""The outcomes of a verdict, and the kinds of findings.

Their members are strings: JSON, SQLite, `grades.csv` and pages contain their texts. A learner's recorded progress is
read back, so members that are no longer used stay.
"""

from enum import StrEnum


class Outcome(StrEnum):
    """The outcome of checking one answer."""

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
    """The subject of a finding. Hints name the kinds that they help with (`Hint.on_kinds`)."""

    # There is no answer, or it could not be judged.
    NOT_ATTEMPTED = "not attempted"
    NOT_JUDGED = "could not be judged"
    MACHINE = "machine"  # a process was killed from outside, within its limits: this is not the answer's fault
    ANOTHER_EXERCISE = "another exercise"  # the file answers another exercise than the given one
    REPLACED = "replaced definition"  # advice: the answer is defined more than once, and only one definition counts

    # Results.
    RAISES = "raises"
    CHANGES = "changes from call to call"
    ARGUMENT_ORDER = "argument order"
    DOES_NOT_END = "does not end"
    WRONG_TYPE = "wrong type"
    WRONG_VALUE = "wrong value"
    WRONG_GRADIENT = "wrong gradient"

    # Residuals, recompute and memory.
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
