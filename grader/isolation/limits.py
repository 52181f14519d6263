"""The limits of a check, and the reasons why an answer could not be judged."""

import signal
from dataclasses import dataclass

from grader.isolation.sandboxed.lockdown import ProcessLimits
from grader.isolation.sandboxed.protocol import IDLE, IDLE_SECONDS


@dataclass(frozen=True)
class CheckLimits:
    """The limits of a check: wall-clock and processor seconds, and bytes in addition to JAX's own. `memory` is the
    resident memory, which is limited in the sandbox only."""

    seconds: float = 60
    processor_seconds: int = 60
    address_space: int = 2 * 2**30
    memory: int = ProcessLimits.memory


class NoVerdict(Exception):
    """Raised if an answer could not be judged.

    Attributes:
      why: the reason, as words that continue "could not be judged: ".
      question: the question for the learner, or None.
      exercise: the exercise that the answer is for, if it is known.
    """

    def __init__(self, why: str, question: str | None = None, exercise: str | None = None):
        super().__init__(why)
        self.why, self.question, self.exercise = why, question, exercise


class TimedOut(NoVerdict):
    """Raised if grading exceeded the wall-clock limit.

    Attributes:
      seconds: the time that grading took before it was stopped.
    """

    seconds: float = 0.0


class Killed(NoVerdict):
    """Raised if a process was killed although it exceeded none of its limits, for example because the machine ran out
    of memory."""


FOR_CHECK = CheckLimits()  # `check` in a terminal
FOR_BATCH = CheckLimits(processor_seconds=30)  # for an answer in a class; remote_execution.py limits its programs


def why_no_verdict(status: int | None, limits: CheckLimits, ran_out_of_memory: bool = False) -> tuple[str, str]:
    """Return why an answer could not be judged, and a question for the learner. `status` is the exit status of its
    process, or None if the process exceeded the wall-clock limit. `ran_out_of_memory` says whether the process was
    killed because it exceeded its memory limit."""
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
                f"it used more than the allowed memory ({limits.memory // 2**20} MiB in addition to JAX's own)",
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
