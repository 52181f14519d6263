"""The messages between the processes that grade a class, and their order.

    to the zygote       Job → Ended or NotStarted, from the guard of what it starts
    "try"               → Ready
    "capture"           Capture → AnswerFound → Captured or NoEvidence;  Render → Rendered;
                        NextAnswer → Captured, NoEvidence or NoMoreAnswers
    "execute"           Read → Programs;  Run → Results, PeakBytes or NotInterpreted;  each of them → Refused

What comes out of the sandbox may be anything that has these fields, of these types: whoever receives it looks closer.
"""

import signal
from dataclasses import dataclass

# Said to a guard, a byte each: its process is to do something now, or waits for what others do.
ITS_TURN, OUR_TURN = b"+", b"-"

IDLE_SECONDS = 5  # that a process may do nothing when it is its turn
IDLE = -signal.SIGALRM  # the exit status of one that was ended for that


@dataclass(frozen=True)
class Job:
    """A process is to be started. `work` is one of the three kinds above, `limits` has `ProcessLimits`' fields."""

    work: str
    limits: dict


@dataclass(frozen=True)
class NotStarted:
    """There is no such process; `problem` says why."""

    problem: str


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit status (minus the signal's number if that ended it), processor seconds, what it
    printed, shortened in the middle, and whether it was ended since it had too much memory."""

    status: int
    seconds: float
    output: str
    too_much_memory: bool

    def how(self) -> str:
        """In words that follow on "it ended with"."""
        return signal.Signals(-self.status).name if self.status < 0 else f"exit status {self.status}"


@dataclass(frozen=True)
class Ready:
    """The process runs."""


@dataclass(frozen=True)
class Capture:
    """A file is to become evidence. Its bytes are the message's array.

    Attributes:
      name: the file's name.
      exercise: which exercise's answer to look for; None for the one that there is.
      seed: seeds the shapes of the cases.
    """

    name: str
    exercise: str | None
    seed: int


@dataclass(frozen=True)
class AnswerFound:
    """The exercise that the file answers, and whether the answer is still the stub that the page came with; said before
    anything of the learner's runs."""

    exercise: str
    stub: bool


@dataclass(frozen=True)
class Captured:
    """The evidence, as `Evidence.to_json` writes it."""

    evidence: str


@dataclass(frozen=True)
class NoEvidence:
    """There is none to be had; `verdict` has `Verdict.to_dict`'s fields, and says why."""

    verdict: dict


@dataclass(frozen=True)
class NextAnswer:
    """The answer did not pass: it is to be tried once more, after all statements that come before it."""


@dataclass(frozen=True)
class NoMoreAnswers:
    """There are no others that make a difference, or they have run."""


@dataclass(frozen=True)
class Render:
    """The answer's two programs are to be shown, for the case of this name, with the marked residuals (by position).

    `which` counts the read_answers, from 0.
    """

    which: int
    case: str | None
    marked: list


@dataclass(frozen=True)
class Rendered:
    """The two programs as `rematscope.SideBySide.pieces` has them."""

    columns: list
    footer: list


@dataclass(frozen=True)
class Read:
    """Two programs are to be read. The fields are the arguments of `grader.stablehlo.execution.Execution`."""

    forward: str
    backward: str
    sizes: list
    max_trip_count: int | None


@dataclass(frozen=True)
class Programs:
    """What was read: forward and backward, each with the fields of a `StableHloProgram` but its text."""

    programs: list


@dataclass(frozen=True)
class Run:
    """A method of `grader.stablehlo.execution.Execution` is to run on the message's arrays.

    Attributes:
      method: the method's name.
      counts: the numbers of arrays in each of its first two arguments, see `messages.counts`.
      shadow: whether the shadows of the two programs run; then the arrays are theirs.
      options: the method's other arguments, by name.
    """

    method: str
    counts: list
    shadow: bool
    options: dict


@dataclass(frozen=True)
class Results:
    """The message's arrays are what came out."""

    counts: list


@dataclass(frozen=True)
class NotInterpreted:
    """There is an operation that the interpreter does not know: compile them."""


@dataclass(frozen=True)
class PeakBytes:
    """What is in memory at once between arguments and results."""

    nbytes: int


@dataclass(frozen=True)
class Refused:
    """The programs are not read or run; `why` says so in words for the learner."""

    why: str
