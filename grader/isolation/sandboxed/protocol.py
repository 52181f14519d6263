"""The messages between the processes that grade a class, and their order.

    to the zygote       Job → Ended or NotStarted, from the guard of what it starts
    "try"               → Ready
    "capture"           Capture → AnswerFound → Captured or NoEvidence;  Render → Rendered;
                        NextAnswer → Captured, NoEvidence or NoMoreAnswers
    "execute"           Read → Programs;  Run → Results, PeakBytes or NotInterpreted;  each of them → Refused

A message from the sandbox can contain any values that have the types of these fields, so the receiver must check them.
"""

import signal
from dataclasses import dataclass

# Sent to a guard, one byte each: its worker must do something now, or its worker waits for the grader.
ITS_TURN, OUR_TURN = b"+", b"-"

IDLE_SECONDS = 5  # the longest time that a worker may be idle during its turn
IDLE = -signal.SIGALRM  # the exit status of a worker that was killed because it was idle


@dataclass(frozen=True)
class Job:
    """A request to start a worker. `work` is one of the three kinds above; `limits` has the fields of
    `ProcessLimits`."""

    work: str
    limits: dict


@dataclass(frozen=True)
class NotStarted:
    """The worker could not be started; `problem` gives the reason."""

    problem: str


@dataclass(frozen=True)
class Ended:
    """How a worker ended: its exit status (minus the number of the signal that killed it, if any), its processor
    seconds, its printed output without the middle, and whether it was killed because it exceeded its memory limit."""

    status: int
    seconds: float
    output: str
    too_much_memory: bool

    def how(self) -> str:
        """Return the exit status as words that follow "it ended with"."""
        return signal.Signals(-self.status).name if self.status < 0 else f"exit status {self.status}"


@dataclass(frozen=True)
class Ready:
    """The worker runs."""


@dataclass(frozen=True)
class Capture:
    """A request to trace the answer in a file. The file's bytes are the message's array.

    Attributes:
      name: the file's name.
      exercise: the exercise whose answer to look for; None for the only one in the file.
      seed: the seed of the cases' shapes.
    """

    name: str
    exercise: str | None
    seed: int


@dataclass(frozen=True)
class AnswerFound:
    """The exercise that the file answers, and whether the answer is still the page's stub. It is sent before any of the
    learner's code runs."""

    exercise: str
    stub: bool


@dataclass(frozen=True)
class Captured:
    """The evidence, as `Evidence.to_json` writes it."""

    evidence: str


@dataclass(frozen=True)
class NoEvidence:
    """The answer gave no evidence; `verdict`, which has the fields of `Verdict.to_dict`, gives the reason."""

    verdict: dict


@dataclass(frozen=True)
class NextAnswer:
    """A request to trace the answer again, after all statements that precede it, because it did not pass."""


@dataclass(frozen=True)
class NoMoreAnswers:
    """No other statements could make a difference, or they have all run."""


@dataclass(frozen=True)
class Render:
    """A request to render the answer's two programs for the named case, with some residuals marked (by position).

    `which` is the index of the answer: 0 for the first evidence, 1 for that of `NextAnswer`.
    """

    which: int
    case: str | None
    marked: list


@dataclass(frozen=True)
class Rendered:
    """The two rendered programs, as `rematscope.SideBySide.pieces` returns them."""

    columns: list
    footer: list


@dataclass(frozen=True)
class Read:
    """A request to read two programs. The fields are the arguments of `grader.stablehlo.execution.Execution`."""

    forward: str
    backward: str
    sizes: list
    max_trip_count: int | None


@dataclass(frozen=True)
class Programs:
    """The programs that were read, forward and backward, each with the fields of `StableHloProgram` except its text."""

    programs: list


@dataclass(frozen=True)
class Run:
    """A request to run a method of `grader.stablehlo.execution.Execution` on the message's arrays.

    Attributes:
      method: the method's name.
      counts: the numbers of arrays in each of the first two arguments; see `messages.counts`.
      shadow: whether to run the float64 versions of the two programs, on float64 arrays.
      options: the method's other arguments, as keywords.
    """

    method: str
    counts: list
    shadow: bool
    options: dict


@dataclass(frozen=True)
class Results:
    """The results of a run, which are the message's arrays."""

    counts: list


@dataclass(frozen=True)
class NotInterpreted:
    """The interpreter does not support an operation of the programs, so they must be compiled."""


@dataclass(frozen=True)
class PeakBytes:
    """The peak memory of a program in bytes, without its arguments and results."""

    nbytes: int


@dataclass(frozen=True)
class Refused:
    """A refusal to read or run the programs; `why` is the reason, in words for the learner."""

    why: str
