"""Grade one submission: coordinate the sandboxed processes and compare their results.

A submission becomes evidence in a sandboxed process of its own (`grader.isolation.remote_capture`), the evidence's
programs run in another one (`grader.isolation.remote_execution`), and what they return is compared here.
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
from grader.isolation.remote_capture import RemoteCapture, file_not_judged, safe
from grader.isolation.remote_execution import RemoteExecution
from grader.isolation.sandbox import NoControlGroups, SandboxError, Zygote
from grader.judging import illustrate, judge
from grader.tracing import failures
from grader.tracing.evidence import Evidence, EvidenceError
from grader.verdicts.verdict import Finding, FindingKind, Outcome, Verdict, better, not_judged

_MAX_TEXT = 1000  # characters of one text of a verdict
# The zygote may be lost, to the system's memory running out say, and with it what is graded at the same time.
_ATTEMPTS = 3


class SandboxGrader:
    """Grades submissions in a sandbox, in any number of threads. `close` it, or use it as a context.

    The sandbox starts with the first submission, or with `begin`, and another one takes its place if it is lost.

    Args:
      limits: what each submission may use.
      needs_groups: whether to grade nothing where answers have no control groups.
    """

    def __init__(self, limits: CheckLimits = FOR_BATCH, needs_groups: bool = False):
        self._limits, self._needs_groups = limits, needs_groups
        self._verdicts = VerdictCache()
        self._zygote: Zygote | None = None
        self._starting = threading.Lock()

    def __enter__(self) -> "SandboxGrader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self) -> Zygote:
        """Starts the sandbox, if it does not run, and returns what processes are forked from. Raises SandboxError."""
        with self._starting:
            if self._zygote is None:
                zygote = Zygote()
                if self._needs_groups and zygote.without_groups:
                    zygote.close()
                    raise NoControlGroups(zygote.without_groups)
                self._zygote = zygote
            return self._zygote

    def close(self) -> None:
        """End the sandbox, if it runs; the next submission starts another."""
        with self._starting:
            if self._zygote:
                self._zygote.close()
                self._zygote = None

    def grade(self, submission: Submission, seed: int, secret: int = 0, seconds: float = math.inf) -> Grade:
        """Grade a submission.

        Args:
          submission: what was handed in.
          seed: seeds the shapes, together with the learner's name.
          secret: seeds the inputs, together with the seed and the evidence.
          seconds: how long it may take, if that is less than its limits allow.

        Returns:
          The grade, whatever the submission does. Of the verdict, what only shows its findings is left out. Where
          something else than the submission seems to be the reason that there is none, its finding is
          `FindingKind.MACHINE`.

        Raises:
          TimedOut: it takes longer than `seconds`.
          SandboxError: there is no sandbox to be had here.
        """
        self.begin()  # before the clock starts: a learner is not charged for the seconds that a new sandbox takes
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
        except (SandboxError, OSError, MemoryError):  # not the answer's affair
            raise
        except NoVerdict as error:
            error.exercise = exercise
            raise
        except EvidenceError as error:
            return not_judged(exercise, str(error))
        except Exception as error:
            return _failed_verdict(exercise, error)


def grade_unsandboxed(submission: Submission, seed: int, secret: int = 0, seconds: float = math.inf) -> Grade:
    """As `SandboxGrader.grade`, without a sandbox: the answer has the rights of whoever grades, and is trusted. It may
    take the time that its limits allow, whatever `seconds` are."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / safe(submission.name)
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
    """Return the verdict where something else than the submission seems to be the reason that there is none."""
    findings = (dataclasses.replace(finding, kind=FindingKind.MACHINE) for finding in verdict.findings)
    return dataclasses.replace(verdict, findings=tuple(findings))


def _render_picture(remote: RemoteCapture, verdict: Verdict, which: int, in_time: bool) -> Picture | None:
    """Return the answer's two programs, for feedback, or None where they cannot be had. Nothing is decided any more.

    `which` of its tries is shown, counted from 0.

    Raises:
      TimedOut: they must be had `in_time`, and are not.
    """
    if verdict.outcome not in (Outcome.PASSED, Outcome.NOT_PASSED) or verdict.exercise not in registry.names():
        return None
    task = registry.task(verdict.exercise)
    if task.shown is None:
        return None
    case, marked, title = illustrate.scene(verdict, task.shown)
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
    """Return the verdict, with all text that may come from a learner made printable and short."""

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
