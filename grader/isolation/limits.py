"""What a check may use, and why there is no verdict where it used more."""

import signal
from dataclasses import dataclass

from grader.isolation.inside.protocol import IDLE, IDLE_SECONDS


@dataclass(frozen=True)
class CheckLimits:
    """What a check may use: wall-clock and processor seconds, and bytes beyond what JAX itself takes: of addresses
    (`memory`), and in the sandbox of memory that is really there (`resident`)."""

    seconds: float = 60
    processor_seconds: int = 60
    memory: int = 2 * 2**30
    resident: int = 512 * 2**20


class Unjudged(Exception):
    """There is no verdict.

    Attributes:
      why: in words that follow on "could not be judged".
      question: the question that leads on, or None.
      exercise: which one the answer is to, once that is known.
    """

    def __init__(self, why: str, question: str | None = None, exercise: str | None = None):
        super().__init__(why)
        self.why, self.question, self.exercise = why, question, exercise


class NotDone(Unjudged):
    """Time was up.

    Attributes:
      seconds: how long grading took until then.
    """

    seconds: float = 0.0


class Killed(Unjudged):
    """A process was ended from outside, for no reason that its limits give: the machine's memory ran out, perhaps."""


FOR_CHECK = CheckLimits()  # `check` in a terminal
FOR_BATCH = CheckLimits(processor_seconds=30)  # one answer of a class; its programs: isolation/remote_execution.py


def why_no_verdict(status: int | None, limits: CheckLimits, ran_out_of_memory: bool = False) -> tuple[str, str]:
    """Why there is no verdict, and the question that leads on, by a process's exit status (None if time was up), and
    whether it was ended since it had too much memory."""
    if status is None:
        return f"it was not done after {limits.seconds} s", "Is there a loop that does not end?"
    if status == IDLE:
        return f"for {IDLE_SECONDS} s it did nothing at all", "Does something sleep, or wait for what never comes?"
    if status < 0:
        name = signal.Signals(-status).name
        if name == "SIGXCPU":
            used = f"it used more than {limits.processor_seconds} s of processor time"
            return used, "Is there a loop that does not end?"
        if ran_out_of_memory:
            return (
                f"it took more memory than it may have ({limits.resident // 2**20} MiB beyond JAX's own)",
                "Does the answer make an array that is larger than its arguments call for?",
            )
        if name == "SIGKILL":
            return "its process was ended from outside (SIGKILL)", "Did the machine run out of memory?"
        if name == "SIGSYS":
            return "it asked the kernel for something that the sandbox refuses (SIGSYS)", "Does it call C code?"
        return f"its process crashed ({name}: {signal.strsignal(-status)})", "Does it recurse, or call C code?"
    return (
        f"its process ended by itself (exit status {status}) before there was a verdict",
        "Does something call exit()?",
    )
