"""Grade one submission: what coordinates and compares, and runs nothing of a learner's.

A submission becomes evidence in a sandboxed process of its own (`grader.isolation.inside.zygote`), the evidence's
programs run in another one (`grader.isolation.remote_execution`), and what they return is compared here.
"""

import dataclasses
import functools
import hashlib
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import numpy as np

from grader.answers import failures
from grader.answers.evidence import Evidence, EvidenceError, Traced
from grader.classroom.collect import Submission
from grader.classroom.grade import Grade, Picture
from grader.exercises import registry
from grader.exercises.spec import Case, Question
from grader.isolation import limits
from grader.isolation.check_file import check_file
from grader.isolation.inside import messages
from grader.isolation.inside.lockdown import ProcessLimits
from grader.isolation.remote_execution import RemoteExecution
from grader.isolation.sandbox import Inmate, SandboxError, Zygote
from grader.judging import illustrate, judge
from grader.verdicts.kinds import FindingKind, Outcome
from grader.verdicts.verdict import Finding, Verdict

LIMITS = limits.CheckLimits(seconds=60, processor_seconds=30)
_MAX_MESSAGE = 20 * 2**20
_MAX_DRAWING = 2 * 2**20
_VERDICTS = 10_000  # that are kept, a few kilobytes each
_SECONDS_TO_DRAW = 10  # what an answer looks like; it is traced once
_MAX_TEXT = 1000  # characters of one text of a verdict
# So many sets of shapes are drawn for a class. What the reference does in each is traced and compiled once.
_SETS_OF_SHAPES = 8
# The zygote may be lost, to the system's memory running out say, and with it what is graded at the same time.
_ATTEMPTS = 3


def grade(submission: Submission, seed: int) -> Grade:
    """Grades a submission in the sandbox; it may be called in any thread or process of any executor.

    Args:
      submission: what was handed in.
      seed: seeds the shapes, together with the learner's name, and the inputs, together with the evidence.

    Returns:
      The grade, whatever the submission does. Of the verdict, what only shows its findings is left out.

    Raises:
      SandboxError: there is no sandbox to be had here.
    """
    start, lost = time.monotonic(), None
    for _ in range(_ATTEMPTS):
        workshop = _workshop(instead_of=lost)
        try:
            verdict, printed, picture = workshop.grade(submission, seed)
            break
        except SandboxError:
            lost = workshop
    else:
        verdict = _not_judged(submission.exercise, submission.name, "the sandbox was lost meanwhile")
        printed, picture = "", None
    return Grade(submission.learner, submission.name, verdict, printed, time.monotonic() - start, picture)


def grade_unsandboxed(submission: Submission, seed: int) -> Grade:
    """As `grade`, where there is no sandbox: the answer runs with the rights of whoever grades, and is trusted."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / _safe(submission.name)
        path.write_bytes(submission.content)
        verdict = check_file(path, LIMITS, submission.exercise, _number(seed, submission.learner))
    return Grade(submission.learner, submission.name, verdict, seconds=time.monotonic() - start)


class _Workshop:
    """What grades one submission after the other, or several at a time."""

    def __init__(self):
        self.zygote = Zygote()
        self._verdicts = _Once()

    def grade(self, submission: Submission, seed: int) -> tuple[Verdict, str, Picture | None]:
        shapes = seed_of_shapes(seed, submission.learner)
        limits = ProcessLimits(processor_seconds=LIMITS.processor_seconds, memory=LIMITS.memory)
        inmate = self.zygote.start("capture", limits)
        try:
            traced = _traced(inmate, submission, shapes)
            if isinstance(traced, Verdict):
                verdict, picture = _cleaned(traced), None
            else:
                verdict = _cleaned(self._judged(*traced, shapes, seed))
                picture = _drawn(inmate, verdict)
        finally:
            printed = inmate.end().output
        return verdict, printed, picture

    def _judged(self, exercise: str, text: str, shapes: int, seed: int) -> Verdict:
        try:
            evidence = Evidence.from_json(text)
            if evidence.exercise != exercise:
                raise EvidenceError(f"the evidence is not that of {exercise}.")
            # No line of Python's has that character, and lines are marked with it below.
            if any("\0" in (line or "") for case in evidence.cases for line in _lines(case)):
                raise EvidenceError("the evidence is damaged: it is not what a capture writes.")
            decisive = _without_lines(evidence).to_json()

            def judged() -> Verdict:
                cases, inputs = cases_for(exercise, shapes), seed_of_inputs(seed, evidence)
                with RemoteExecution(self.zygote) as remote:
                    return judge.judge_text(decisive, cases, exercise, inputs, remote.execute)

            verdict = self._verdicts(hashlib.sha256(repr((decisive, shapes, seed)).encode()).digest(), judged)
            return _with_lines(verdict, evidence, text)
        except SandboxError:
            raise
        except EvidenceError as error:
            return Verdict(exercise, Outcome.NOT_JUDGED, (Finding(FindingKind.NOT_JUDGED, str(error)),))
        except Exception as error:
            why = f"the grader itself failed, with {failures.message_of(error)}."
            advice = "That is a defect of the grader's: please report it, with the answer that brought it about."
            return Verdict(exercise, Outcome.NOT_JUDGED, (Finding(FindingKind.NOT_JUDGED, why, next=advice),))


def _traced(inmate: Inmate, submission: Submission, shapes: int) -> Verdict | tuple[str, str]:
    """The exercise and the evidence as text, or the verdict that there is none."""
    asked = {"name": _safe(submission.name), "exercise": submission.exercise, "seed": shapes}
    deadline = time.monotonic() + LIMITS.seconds
    exercise, outcome, late = submission.exercise, None, False
    try:
        inmate.line.settimeout(LIMITS.seconds)
        messages.send(inmate.line, asked, [np.frombuffer(submission.content, np.uint8)])
        outcome, _ = messages.receive(inmate.line, _MAX_MESSAGE, deadline - time.monotonic())
        if outcome.get("exercise") in registry.names():
            exercise, outcome = outcome["exercise"], None
            outcome, _ = messages.receive(inmate.line, _MAX_MESSAGE, deadline - time.monotonic())
    except TimeoutError:
        late = True
    except messages.HungUp:
        late = not inmate.wait(deadline - time.monotonic())
    except (OSError, messages.WireError):
        outcome = {}
    if outcome is None:
        reason, advice = limits.why(None if late else inmate.end().status, LIMITS)
    elif exercise is not None and isinstance(outcome.get("evidence"), str):
        return exercise, outcome["evidence"]
    elif refusal := _refusal(outcome.get("verdict"), exercise):
        return refusal
    else:
        reason, advice = "what its process handed over is no evidence", None
    return _not_judged(exercise, submission.name, reason, advice)


def _drawn(inmate: Inmate, verdict: Verdict) -> Picture | None:
    """The answer's two programs, for feedback, or None where they cannot be had. Nothing is decided any more."""
    task = registry.task(verdict.exercise)
    if verdict.outcome not in (Outcome.PASSED, Outcome.NOT_PASSED) or task.shown is None:
        return None
    case, marked, title = illustrate.scene(verdict, task)
    try:
        inmate.line.settimeout(_SECONDS_TO_DRAW)
        messages.send(inmate.line, {"case": case, "marked": marked})
        drawn = messages.receive(inmate.line, _MAX_DRAWING, _SECONDS_TO_DRAW)[0]["drawn"]
        return Picture.of(title, drawn["columns"], drawn["footer"])
    except (OSError, messages.WireError, TypeError, LookupError, ValueError):
        return None


class _Once:
    """Verdicts that are made once for the same programs and inputs, also where several threads ask at the same time."""

    def __init__(self):
        self._made: dict[bytes, Future[Verdict]] = {}
        self._lock = threading.Lock()

    def __call__(self, key: bytes, make: Callable[[], Verdict]) -> Verdict:
        with self._lock:
            known = self._made.get(key)
            if known is None:
                mine = self._made[key] = Future()
                if len(self._made) > _VERDICTS:
                    del self._made[next(iter(self._made))]
        if known:
            return known.result()
        try:
            mine.set_result(make())
        except BaseException as error:
            mine.set_exception(error)
        # What could not be judged may be the moment's fault: time was up, memory was short.
        if mine.exception() or mine.result().outcome == Outcome.NOT_JUDGED:
            with self._lock:
                self._made.pop(key, None)
        return mine.result()


def _lines(case: Traced) -> tuple[str | None, ...]:
    return case.sources if case.failure is None else (*case.sources, case.failure.source)


def _without_lines(evidence: Evidence) -> Evidence:
    """The evidence with marks in place of the learner's lines: all that decides."""
    cases = [
        dataclasses.replace(traced, sources=tuple(f"\0{case}:{place}" for place in range(len(traced.sources))))
        for case, traced in enumerate(evidence.cases)
    ]
    return dataclasses.replace(evidence, cases=tuple(cases))


def _with_lines(verdict: Verdict, evidence: Evidence, text: str) -> Verdict:
    """The verdict on evidence without lines, as that on the evidence."""

    def lines(source: str | None) -> str | None:
        if source is None or not source.startswith("\0"):
            return source
        places = (map(int, mark.removeprefix("\0").split(":")) for mark in source.split("; "))
        named = (evidence.cases[case].sources[place] for case, place in places)
        return "; ".join(dict.fromkeys(line for line in named if line)) or None

    findings = (dataclasses.replace(finding, source=lines(finding.source)) for finding in verdict.findings)
    judged = hashlib.sha256(text.encode()).hexdigest()
    return dataclasses.replace(verdict, findings=tuple(findings), evidence=judged)


_the_workshop: list[_Workshop] = []
_opening = threading.Lock()


def begin():
    """Starts this process's sandbox, if it has none, or raises SandboxError."""
    _workshop()


def close():
    """Ends this process's sandbox, if it has one; the next grade starts another."""
    with _opening:
        while _the_workshop:
            _the_workshop.pop().zygote.close()


def _workshop(instead_of: _Workshop | None = None) -> _Workshop:
    """This process's workshop; a new one if it is to be instead of the one that there is."""
    with _opening:
        if not _the_workshop or _the_workshop[0] is instead_of:
            while _the_workshop:
                _the_workshop.pop().zygote.close()
            _the_workshop.append(_Workshop())
        return _the_workshop[0]


def seed_of_shapes(seed: int, learner: str) -> int:
    """The seed of the shapes that a learner's answers are traced for."""
    return _number(seed, _number(seed, learner) % _SETS_OF_SHAPES)


def seed_of_inputs(seed: int, evidence: Evidence) -> int:
    """The seed of what an answer's programs are tried on: the same for the same programs, and unknown to whoever has
    not seen the seed."""
    return _number(seed, evidence.forward, evidence.backward, [traced.data for traced in evidence.cases])


@functools.lru_cache(maxsize=4 * _SETS_OF_SHAPES)
def cases_for(exercise: str, shapes: int) -> tuple[Case | Question, ...]:
    """An exercise's cases of these shapes, the same objects each time, so that what is compiled for them is kept."""
    return tuple(registry.task(exercise).cases(np.random.default_rng(shapes)))


def _number(seed: int, *what) -> int:
    return int.from_bytes(hashlib.sha256(repr((seed, *what)).encode()).digest()[:8])


def _not_judged(exercise: str | None, name: str, reason: str, advice: str | None = None) -> Verdict:
    text = f"{_safe(name)} could not be judged: {reason}."
    return Verdict(exercise or "", Outcome.NOT_JUDGED, (Finding(FindingKind.NOT_JUDGED, text, next=advice),))


def _refusal(fields, exercise: str | None) -> Verdict | None:
    """The verdict that there is no evidence, as an answer's process describes it; None if it describes anything else.

    That process may say what it likes, so nothing is taken over but an outcome that gives no points and a few texts.
    """
    try:
        outcome, finding = Outcome(fields["outcome"]), fields["findings"][0]
        kind, text, source, question = FindingKind(finding["kind"]), finding["text"], finding["source"], finding["next"]
    except (TypeError, ValueError, LookupError):
        return None
    texts = isinstance(text, str) and isinstance(source, str | None) and isinstance(question, str | None)
    if outcome is Outcome.PASSED or not texts:
        return None
    return Verdict(exercise or "", outcome, (Finding(kind, text, source=source, next=question),))


def _safe(name: str) -> str:
    """A file's name as it may be used and shown; another one if it is too long or cannot be printed."""
    path = Path(name)
    return name if name.isprintable() and len(name.encode()) <= 100 and path.name == name else f"answer{path.suffix}"


def _cleaned(verdict: Verdict) -> Verdict:
    """The verdict, with all text that may come from a learner made printable and short."""

    def clean(value):
        if isinstance(value, tuple):
            return tuple(map(clean, value))
        if not isinstance(value, str) or isinstance(value, FindingKind):
            return value
        printable = "".join(c if c.isprintable() else " " for c in value[: _MAX_TEXT + 1])
        return printable if len(value) <= _MAX_TEXT else printable[:_MAX_TEXT] + " …"

    findings = (
        Finding(**{name: clean(value) for name, value in vars(finding).items()}) for finding in verdict.findings
    )
    return dataclasses.replace(verdict, findings=tuple(findings))
