"""Limits of a check, and the reasons why there is no verdict."""

import signal
from dataclasses import dataclass

from grader.isolation.sandboxed.protocol import IDLE, IDLE_SECONDS


@dataclass(frozen=True)
class CheckLimits:
    """What a check may use: wall-clock and processor seconds, and bytes beyond what JAX itself takes: of addresses
    (`memory`), and in the sandbox of memory that is really there (`resident`)."""

    seconds: float = 60
    processor_seconds: int = 60
    memory: int = 2 * 2**30
    resident: int = 512 * 2**20


class NoVerdict(Exception):
    """There is no verdict.

    Attributes:
      why: in words that follow on "could not be judged".
      question: the question that leads on, or None.
      exercise: which one the answer is to, once that is known.
    """

    def __init__(self, why: str, question: str | None = None, exercise: str | None = None):
        super().__init__(why)
        self.why, self.question, self.exercise = why, question, exercise


class TimedOut(NoVerdict):
    """Time was up.

    Attributes:
      seconds: how long grading took until then.
    """

    seconds: float = 0.0


class Killed(NoVerdict):
    """A process was ended from outside, for no reason that its limits give: the machine's memory ran out, perhaps."""


FOR_CHECK = CheckLimits()  # `check` in a terminal
FOR_BATCH = CheckLimits(processor_seconds=30)  # one answer of a class; its programs: isolation/remote_execution.py


def why_no_verdict(status: int | None, limits: CheckLimits, ran_out_of_memory: bool = False) -> tuple[str, str]:
    """Return why there is no verdict, and the question that leads on, by a process's exit status (None if time was up),
    and whether it was ended since it had too much memory."""
    if status is None:
        return f"it took longer than {limits.seconds} s", "Does your code have an endless loop?"
    if status == IDLE:
        return f"it was idle for {IDLE_SECONDS} s", "Does your code sleep, or wait for input that never comes?"
    if status < 0:
        name = signal.Signals(-status).name
        if name == "SIGXCPU":
            used = f"it used more than {limits.processor_seconds} s of processor time"
            return used, "Does your code have an endless loop?"
        if ran_out_of_memory:
            return (
                f"it used more than the allowed memory ({limits.resident // 2**20} MiB in addition to JAX's own)",
                "Does your answer create an array much larger than its arguments?",
            )
        if name == "SIGKILL":
            return "its process was killed (SIGKILL)", "Did the machine run out of memory?"
        if name == "SIGSYS":
            return "it made a system call that the sandbox does not allow (SIGSYS)", "Does your code call C code?"
        return (
            f"its process crashed ({name}: {signal.strsignal(-status)})",
            "Does your code recurse without end, or call C code?",
        )
    return (
        f"its process exited with status {status} before there was a verdict",
        "Does your code call exit()?",
    )
