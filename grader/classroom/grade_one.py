"""Grade one submission: coordinate the sandboxed processes and compare their results.

One sandboxed process turns a submission into evidence (`grader.isolation.remote_capture`), and another one runs the
programs in the evidence (`grader.isolation.remote_execution`). This process compares their results.
"""

import dataclasses
import hashlib
import math
import tempfile
import threading
import time
from pathlib import Path

from grader.classroom.collect import Submission
from grader.classroom.grade import Grade, Picture, printable
from grader.classroom.seeds import cases_for, number, seed_of_inputs, seed_of_shapes
from grader.classroom.source_redaction import redact_lines, restore_lines
from grader.classroom.verdict_cache import VerdictCache
from grader.exercises import registry
from grader.isolation.check_file import check_file
from grader.isolation.limits import FOR_BATCH, CheckLimits, Killed, NoVerdict, TimedOut
from grader.isolation.remote_capture import RemoteCapture, file_not_judged, safe_file_name
from grader.isolation.remote_execution import RemoteExecution
from grader.isolation.sandbox import NoControlGroups, SandboxError, Zygote
from grader.judging import illustrate, judge
from grader.tracing import failures
from grader.tracing.evidence import Evidence, EvidenceError
from grader.verdicts.verdict import Finding, FindingKind, Outcome, Verdict, better, not_judged

_MAX_TEXT = 1000  # the maximum number of characters of a text in a verdict
# The zygote may be killed, for example if the system runs out of memory, together with all submissions that are being
# graded.
_ATTEMPTS = 3


class SandboxGrader:
    """Grades submissions in a sandbox, from any number of threads. Use it as a context, or call `close`.

    The sandbox starts with the first submission, or with `begin`. If it is lost, another one replaces it.

    Args:
      limits: the limits of each submission.
      needs_groups: whether to refuse to grade if no control groups are available.
      jobs: the number of submissions that will be graded at the same time.
    """

    def __init__(self, limits: CheckLimits = FOR_BATCH, needs_groups: bool = False, jobs: int = 1):
        self._limits, self._needs_groups, self._jobs = limits, needs_groups, jobs
        self._verdicts = VerdictCache()
        self._zygote: Zygote | None = None
        self._starting = threading.Lock()

    def __enter__(self) -> "SandboxGrader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self) -> Zygote:
        """Start the sandbox, if it is not running, and return its zygote. Raises SandboxError."""
        with self._starting:
            if self._zygote is None:
                zygote = Zygote(self._jobs)
                if self._needs_groups and zygote.without_groups:
                    zygote.close()
                    raise NoControlGroups(zygote.without_groups)
                self._zygote = zygote
            return self._zygote

    def close(self) -> None:
        """End the sandbox, if it is running. The next submission starts another one."""
        with self._starting:
            if self._zygote:
                self._zygote.close()
                self._zygote = None

    def grade(self, submission: Submission, seed: int, secret: int = 0, seconds: float = math.inf) -> Grade:
        """Grade a submission.

        Args:
          submission: the submission.
          seed: the seed of the shapes, together with the learner's name.
          secret: the seed of the inputs, together with `seed` and the evidence.
          seconds: the time limit, if it is less than that of the submission's limits.

        Returns:
          The grade, whatever the submission does. The verdict does not contain the views of its findings. If the
          submission could not be judged for a reason that does not seem to be its own, the finding is
          `FindingKind.MACHINE`.

        Raises:
          TimedOut: if grading takes longer than `seconds`.
          SandboxError: if the sandbox does not work on this machine.
        """
        self.begin()  # before the clock starts, so that learners are not charged for the start of a sandbox
        start = time.monotonic()
        deadline = start + seconds
        for _ in range(_ATTEMPTS):
            zygote, printed = self.begin(), ""
            try:
                limits = dataclasses.replace(self._limits, seconds=min(seconds, self._limits.seconds))
                remote = RemoteCapture(zygote, limits)
                try:
                    verdict, picture = self._grade_in_sandbox(zygote, remote, submission, (seed, secret), deadline)
                finally:
                    printed = remote.end()
                break
            except SandboxError:
                self._give_up(zygote)
            except TimedOut as error:
                if seconds < math.inf:
                    error.seconds = time.monotonic() - start
                    raise
                verdict, picture = _unjudged_verdict(submission, error), None
                break
            except Killed as error:
                verdict, picture = _blame_machine(_unjudged_verdict(submission, error)), None
                break
            except Exception as error:
                verdict, picture = _blame_machine(_failed_verdict(submission.exercise, error)), None
                break
        else:
            lost = file_not_judged(submission.exercise, submission.name, "the sandbox was lost")
            verdict, picture = _blame_machine(lost), None
        return Grade(submission.learner, submission.name, verdict, printed, time.monotonic() - start, picture)

    def _give_up(self, zygote: Zygote) -> None:
        with self._starting:
            if self._zygote is zygote:  # another thread may have started a new one
                zygote.close()
                self._zygote = None

    def _grade_in_sandbox(
        self, zygote: Zygote, remote: RemoteCapture, submission: Submission, seeds: tuple[int, int], deadline: float
    ) -> tuple[Verdict, Picture | None]:
        shapes = seed_of_shapes(seeds[0], submission.learner)
        in_time = deadline < math.inf

        def verdict_on(captured: tuple[str, str] | Verdict) -> Verdict:
            if not isinstance(captured, Verdict):
                captured = self._judge_evidence(zygote, *captured, remote.stub, shapes, seeds, deadline)
            return _clean_verdict(captured)

        captured = remote.capture(submission.name, submission.content, submission.exercise, shapes)
        verdict, which = verdict_on(captured), 0
        if not verdict.passed:
            try:
                if again := remote.again(verdict.exercise):
                    first, verdict = verdict, better(verdict, verdict_on(again))
                    which = int(verdict is not first)
            except TimedOut:
                if in_time:
                    raise
        return verdict, _render_picture(remote, verdict, which, in_time)

    def _judge_evidence(
        self, zygote: Zygote, exercise: str, text: str, stub: bool, shapes: int, seeds: tuple[int, int], deadline: float
    ) -> Verdict:
        seed, secret = seeds
        try:
            evidence = Evidence.from_json(text)
            if evidence.exercise != exercise:
                raise EvidenceError(f"the evidence is not that of {exercise}.")
            evidence = evidence if stub else evidence.attempted()
            cases = cases_for(exercise, shapes)
            decisive = redact_lines(evidence).to_json()

            def judged() -> Verdict:
                inputs = seed_of_inputs(seed, evidence, secret)
                with RemoteExecution(zygote, deadline) as remote:
                    return judge.judge_text(decisive, cases, exercise, inputs, remote.execute)

            verdict = self._verdicts(hashlib.sha256(repr((decisive, shapes, seed, secret)).encode()).digest(), judged)
            return restore_lines(verdict, evidence, text)
        except (SandboxError, OSError, MemoryError):  # not caused by the answer
            raise
        except NoVerdict as error:
            error.exercise = exercise
            raise
        except EvidenceError as error:
            return not_judged(exercise, str(error))
        except Exception as error:
            return _failed_verdict(exercise, error)


def grade_unsandboxed(submission: Submission, seed: int, secret: int = 0, seconds: float = math.inf) -> Grade:
    """Do the same as `SandboxGrader.grade` without a sandbox. The answer is trusted and runs with the privileges of the
    user who grades. Its own limits apply instead of `seconds`."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / safe_file_name(submission.name)
        path.write_bytes(submission.content)
        verdict = check_file(path, FOR_BATCH, submission.exercise, number(seed, secret, submission.learner))
    return Grade(submission.learner, submission.name, verdict, seconds=time.monotonic() - start)


def _failed_verdict(exercise: str | None, error: Exception) -> Verdict:
    if isinstance(error, OSError | MemoryError):
        why = f"this machine is out of resources ({failures.message_of(error)})."
        advice = "Is the machine out of memory, disk space, processes or open files? See `ulimit -a` and `df`."
        return not_judged(exercise, why, advice)
    return failures.grader_failed(exercise, error)


def _unjudged_verdict(submission: Submission, error: NoVerdict) -> Verdict:
    return file_not_judged(error.exercise or submission.exercise, submission.name, error.why, error.question)


def _blame_machine(verdict: Verdict) -> Verdict:
    """Return the verdict with findings that blame the machine, because the submission does not seem to be the cause."""
    findings = (dataclasses.replace(finding, kind=FindingKind.MACHINE) for finding in verdict.findings)
    return dataclasses.replace(verdict, findings=tuple(findings))


def _render_picture(remote: RemoteCapture, verdict: Verdict, which: int, in_time: bool) -> Picture | None:
    """Return the answer's two programs for the feedback page, or None if they cannot be rendered. They do not affect
    the verdict.

    `which` is 0 for the answer of the first try, and 1 for that of the second.

    Raises:
      TimedOut: if rendering exceeds its time limit and `in_time` is True.
    """
    if verdict.outcome not in (Outcome.PASSED, Outcome.NOT_PASSED) or verdict.exercise not in registry.names():
        return None
    task = registry.task(verdict.exercise)
    if task.shown is None:
        return None
    case, marked, title = illustrate.choose_scene(verdict, task.shown)
    try:
        drawn = remote.render(which, case, marked)
    except TimedOut:
        if in_time:
            raise
        return None
    try:
        return None if drawn is None else Picture.of(title, drawn.columns, drawn.footer)
    except (TypeError, LookupError, ValueError):
        return None


def _clean_verdict(verdict: Verdict) -> Verdict:
    """Return the verdict with all text that may come from a learner printable and shortened."""

    def clean(value):
        if isinstance(value, tuple):
            return tuple(map(clean, value))
        if not isinstance(value, str) or isinstance(value, FindingKind):
            return value
        return printable(value) if len(value) <= _MAX_TEXT else printable(value[:_MAX_TEXT]) + " …"

    findings = (
        Finding(**{name: clean(value) for name, value in vars(finding).items()}) for finding in verdict.findings
    )
    return dataclasses.replace(verdict, findings=tuple(findings))
