"""Turn a submission into evidence in a sandboxed process, and let this process render the answer's programs.

The zygote's `capture` job runs in the sandbox. `RemoteCapture` runs outside and does not trust its messages.
"""

import signal
import time
from pathlib import Path

import numpy as np

from grader.exercises import registry
from grader.isolation.limits import CheckLimits, Killed, TimedOut, why_no_verdict
from grader.isolation.sandbox import Zygote
from grader.isolation.sandboxed import messages
from grader.isolation.sandboxed.lockdown import ProcessLimits
from grader.isolation.sandboxed.protocol import (
    AnswerFound,
    Capture,
    Captured,
    NextAnswer,
    NoEvidence,
    NoMoreAnswers,
    Render,
    Rendered,
)
from grader.verdicts.verdict import Finding, FindingKind, Outcome, Verdict, not_judged

SECONDS_TO_DRAW = 10  # for rendering an answer, which is traced once for this
_MAX_MESSAGE = 20 * 2**20
_MAX_DRAWING = 2 * 2**20


class RemoteCapture:
    """A separate process for the code of one submission. The constructor starts the process; call `end` to end it.

    Attributes:
      stub: whether the file contains the exercise's stub instead of an answer; set when `capture` returns. The process
        reports this before it runs the learner's code, so the learner cannot forge it, unlike later messages.

    Args:
      zygote: the zygote that forks the process.
      limits: the limits of the process.

    Raises:
      SandboxError: if the zygote has ended.
    """

    def __init__(self, zygote: Zygote, limits: CheckLimits):
        self.stub = False
        self._limits = limits
        self._seconds = limits.seconds  # that are left
        self._process = zygote.start(
            "capture", ProcessLimits(limits.processor_seconds, limits.address_space, limits.memory)
        )

    def end(self) -> str:
        """End the process, and return its printed output without the middle. Raises SandboxError if it never
        started."""
        return self._process.end().output

    def capture(self, name: str, content: bytes, exercise: str | None, shapes: int) -> tuple[str, str] | Verdict:
        """Return the exercise and the evidence as text, or a verdict if there is no evidence.

        Args:
          name: the file's name.
          content: the content of the file.
          exercise: the exercise whose answer to look for; None for the only one in the file.
          shapes: the seed of the cases' shapes.

        Raises:
          TimedOut: time is up.
          Killed: if the process was killed from outside.
        """
        line, deadline = self._process.line, time.monotonic() + self._seconds
        outcome: AnswerFound | Captured | NoEvidence | None = None
        late, valid, found = False, True, False
        try:
            line.settimeout(self._limits.seconds)
            messages.send(line, Capture(safe_file_name(name), exercise, shapes), [np.frombuffer(content, np.uint8)])
            with self._process.at_work():
                outcome, _ = messages.receive(
                    line, _MAX_MESSAGE, [AnswerFound, NoEvidence], deadline - time.monotonic()
                )
                if isinstance(outcome, AnswerFound):
                    if outcome.exercise not in registry.names():
                        raise messages.WireError("no exercise")
                    exercise, self.stub, outcome, found = outcome.exercise, outcome.stub, None, True
                    left = deadline - time.monotonic()
                    outcome, _ = messages.receive(line, _MAX_MESSAGE, [Captured, NoEvidence], left)
        except TimeoutError:
            late = True
        except messages.HungUp:
            late = not self._process.wait(deadline - time.monotonic())
        except (OSError, messages.WireError):
            valid = False
        self._seconds = deadline - time.monotonic()
        if isinstance(outcome, Captured) and exercise is not None:
            return exercise, outcome.evidence
        if isinstance(outcome, NoEvidence) and (refusal := _read_refusal(outcome.verdict, exercise, found)):
            return refusal
        if valid and outcome is None:
            status = None if late else self._process.end().status
            ran_out = self._process.ran_out_of_memory
            why, question = why_no_verdict(status, self._limits, ran_out)
            if late:
                raise TimedOut(why, question, exercise)
            if status == -signal.SIGKILL and not ran_out:  # exceeding the control group's limit is the answer's fault
                raise Killed(why, question, exercise)
            return file_not_judged(exercise, name, why, question)
        return file_not_judged(exercise, name, "its process returned invalid evidence")

    def again(self, exercise: str) -> tuple[str, str] | Verdict | None:
        """Capture the same answer again, after all statements that precede it in the file, because it did not pass.

        The limits on the process's time and memory also include the first attempt. Returns None if the statements make
        no difference, or if the process does not reply.

        Raises:
          TimedOut: time is up.
        """
        if exercise not in registry.names():
            return None
        seconds = max(self._seconds, 1e-3)
        try:
            self._process.line.settimeout(seconds)
            messages.send(self._process.line, NextAnswer())
            kinds: list[type[Captured | NoEvidence | NoMoreAnswers]] = [Captured, NoEvidence, NoMoreAnswers]
            with self._process.at_work():
                outcome, _ = messages.receive(self._process.line, _MAX_MESSAGE, kinds, seconds)
        except TimeoutError:
            raise TimedOut(*why_no_verdict(None, self._limits), exercise) from None
        except (OSError, messages.WireError):
            return None
        if isinstance(outcome, NoEvidence):
            return _read_refusal(outcome.verdict, exercise, True)
        return (exercise, outcome.evidence) if isinstance(outcome, Captured) else None

    def render(self, which: int, case: str | None, marked: tuple[int, ...]) -> Rendered | None:
        """Return the answer's two rendered programs in a case, or None if the process does not reply. Their content is
        not checked.

        `which` is 0 for the answer that `capture` traced, and 1 for the answer that `again` traced.

        Raises:
          TimedOut: time is up.
        """
        seconds = min(SECONDS_TO_DRAW, self._limits.seconds)
        try:
            self._process.line.settimeout(seconds)
            messages.send(self._process.line, Render(which, case, list(marked)))
            with self._process.at_work():
                return messages.receive(self._process.line, _MAX_DRAWING, [Rendered], seconds)[0]
        except TimeoutError:
            raise TimedOut(f"it was not displayed within {seconds} s") from None
        except (OSError, messages.WireError):
            return None


def safe_file_name(name: str) -> str:
    """Return a file's name if it is safe to use and to show. If it is too long or not printable, return another
    name."""
    path = Path(name)
    return name if name.isprintable() and len(name.encode()) <= 100 and path.name == name else f"answer{path.suffix}"


def file_not_judged(exercise: str | None, name: str, reason: str, advice: str | None = None) -> Verdict:
    """Return the verdict on a file that could not be judged, for this reason."""
    return not_judged(exercise, f"{safe_file_name(name)} could not be judged: {reason}.", advice)


# The findings that an answer's process may return instead of evidence, after it has found the answer and before. Other
# kinds could remove the answer's row from the report, or make the grader try the answer again while all others wait.
_WHY_NO_EVIDENCE = {FindingKind.NOT_JUDGED: Outcome.NOT_JUDGED, FindingKind.DOES_NOT_RUN: Outcome.NOT_PASSED}
_WHY_NONE_FOUND = {
    FindingKind.NOT_JUDGED: Outcome.NOT_JUDGED,
    FindingKind.ANOTHER_EXERCISE: Outcome.NOT_ATTEMPTED,
}


def _read_refusal(fields: dict, exercise: str | None, found: bool) -> Verdict | None:
    """Return the verdict with which an answer's process explains that there is no evidence; None for any other verdict.

    The process is not trusted, so only a few texts are used, and a kind of finding that gives no points.
    """
    try:
        outcome, finding = Outcome(fields["outcome"]), fields["findings"][0]
        kind, text, source, question = FindingKind(finding["kind"]), finding["text"], finding["source"], finding["next"]
    except (TypeError, ValueError, LookupError):
        return None
    texts = isinstance(text, str) and isinstance(source, str | None) and isinstance(question, str | None)
    if not texts or (_WHY_NO_EVIDENCE if found else _WHY_NONE_FOUND).get(kind) is not outcome:
        return None
    return Verdict(exercise or "", outcome, (Finding(kind, text, source=source, next=question),))
