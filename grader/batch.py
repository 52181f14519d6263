"""Grade a class: what coordinates, compares and writes, and runs nothing of a learner's.

A submission becomes evidence in a sandboxed process of its own (`grader.zygote`), the evidence's programs run in
another one (`grader.judges`), and what they return is compared here.
"""

import csv
import dataclasses
import functools
import hashlib
import json
import os
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from grader import capture, grading, handin, process, wire
from grader import exercise as exercises
from grader.evidence import Evidence, EvidenceError
from grader.exercise import Case, Question
from grader.jail import Limits
from grader.judges import Judge
from grader.process import check_file
from grader.sandbox import SandboxError, Zygote
from grader.verdict import NOT_ATTEMPTED, NOT_JUDGED, NOT_PASSED, PASSED, Finding, Verdict

LIMITS = process.Limits(seconds=60, processor_seconds=30)
MAX_FILE = 20 * 2**20  # bytes; a page with its pictures has less than one million
_MAX_MESSAGE = 20 * 2**20
_MAX_TEXT = 1000  # characters of one text of a verdict
# So many sets of shapes are drawn for a class. What the reference does in each is traced and compiled once.
_SETS_OF_SHAPES = 8
# The zygote may be lost, to the system's memory running out say, and with it what is graded at the same time.
_ATTEMPTS = 3


@dataclass(frozen=True)
class Submission:
    """One file of one learner's.

    Attributes:
      learner: who handed it in.
      name: the file's name.
      content: what is in the file.
      exercise: which exercise's answer to look for; None for the one that there is.
    """

    learner: str
    name: str
    content: bytes
    exercise: str | None = None


@dataclass(frozen=True)
class Grade:
    """A verdict on a submission.

    Attributes:
      learner: who handed it in.
      name: the file's name; "" if there is no file.
      verdict: the verdict.
      printed: what the answer printed, shortened in the middle.
      seconds: how long grading took.
    """

    learner: str
    name: str
    verdict: Verdict
    printed: str = ""
    seconds: float = 0.0

    @property
    def score(self) -> int:
        return int(self.verdict.passed)

    @property
    def reason(self) -> str:
        """The verdict in a line."""
        findings = [finding.text for finding in self.verdict.findings if not finding.advice]
        return findings[0] if findings else " ".join(self.verdict.shown)


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
            verdict, printed = workshop.grade(submission, seed)
            break
        except SandboxError:
            lost = workshop
    else:
        verdict, printed = _not_judged(submission.exercise, submission.name, "the sandbox was lost meanwhile"), ""
    return Grade(submission.learner, submission.name, verdict, printed, time.monotonic() - start)


def grade_unsandboxed(submission: Submission, seed: int) -> Grade:
    """As `grade`, where there is no sandbox: the answer runs with the rights of whoever grades, and is trusted."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / _safe(submission.name)
        path.write_bytes(submission.content)
        verdict = check_file(path, LIMITS, submission.exercise, _number(seed, submission.learner))
    return Grade(submission.learner, submission.name, verdict, seconds=time.monotonic() - start)


def grades(
    submissions: Iterable[Submission],
    seed: int,
    executor: Executor,
    ahead: int,
    grade: Callable[[Submission, int], Grade] = grade,
) -> Iterator[Grade]:
    """Grades submissions, as many at a time as the executor will; yields each grade when it is there.

    Args:
      submissions: what was handed in.
      seed: see `grade`.
      executor: what calls `grade`.
      ahead: how many submissions are read, and handed to the executor, before their grades are there.
      grade: how to grade one.
    """
    pending: set[Future] = set()
    for submission in submissions:
        if len(pending) >= ahead:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
        pending.add(executor.submit(grade, submission, seed))
    while pending:
        done, pending = wait(pending, return_when=FIRST_COMPLETED)
        yield from (future.result() for future in done)


class _Workshop:
    """What grades one submission after the other, or several at a time."""

    def __init__(self):
        self.zygote = Zygote()

    def grade(self, submission: Submission, seed: int) -> tuple[Verdict, str]:
        shapes = seed_of_shapes(seed, submission.learner)
        traced, printed = self._traced(submission, shapes)
        if isinstance(traced, Verdict):
            return _cleaned(traced), printed
        exercise, text = traced
        return _cleaned(self._judged(exercise, text, shapes, seed)), printed

    def _traced(self, submission: Submission, shapes: int) -> tuple[Verdict | tuple[str, str], str]:
        """The exercise and evidence as text, or the verdict that there is none; and what was printed."""
        limits = Limits(processor_seconds=LIMITS.processor_seconds, memory=LIMITS.memory)
        asked = {"name": _safe(submission.name), "exercise": submission.exercise, "seed": shapes}
        deadline = time.monotonic() + LIMITS.seconds
        exercise, outcome, late = submission.exercise, None, False
        inmate = self.zygote.start("capture", limits)
        try:
            inmate.line.settimeout(LIMITS.seconds)
            wire.send(inmate.line, asked, [np.frombuffer(submission.content, np.uint8)])
            outcome, _ = wire.receive(inmate.line, _MAX_MESSAGE, deadline - time.monotonic())
            if outcome.get("exercise") in exercises.names():
                exercise, outcome = outcome["exercise"], None
                outcome, _ = wire.receive(inmate.line, _MAX_MESSAGE, deadline - time.monotonic())
        except TimeoutError:
            late = True
        except wire.HungUp:
            late = not inmate.wait(deadline - time.monotonic())
        except (OSError, wire.WireError):
            outcome = {}
        finally:
            ended = inmate.end()
        if outcome is None:
            reason, advice = process.why(None if late else ended.status, LIMITS)
        elif exercise is not None and isinstance(outcome.get("evidence"), str):
            return (exercise, outcome["evidence"]), ended.output
        elif refusal := _refusal(outcome.get("verdict"), exercise):
            return refusal, ended.output
        else:
            reason, advice = "what its process handed over is no evidence", None
        return _not_judged(exercise, submission.name, reason, advice), ended.output

    def _judged(self, exercise: str, text: str, shapes: int, seed: int) -> Verdict:
        try:
            evidence = Evidence.from_json(text)
            if evidence.exercise != exercise:
                raise EvidenceError(f"the evidence is not that of {exercise}.")
            cases = cases_for(exercise, shapes)
            with Judge(self.zygote) as judge:
                return grading.judged(text, cases, exercise, seed_of_inputs(seed, evidence), judge.execute)
        except SandboxError:
            raise
        except EvidenceError as error:
            return Verdict(exercise, NOT_JUDGED, (Finding("could not be judged", str(error)),))
        except Exception as error:
            why = f"the grader itself failed, with {capture.message_of(error)}."
            advice = "That is a defect of the grader's: please report it, with the answer that brought it about."
            return Verdict(exercise, NOT_JUDGED, (Finding("could not be judged", why, next=advice),))


_the_workshop: list[_Workshop] = []
_opening = threading.Lock()


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
    return tuple(exercises.task(exercise).cases(np.random.default_rng(shapes)))


def _number(seed: int, *what) -> int:
    return int.from_bytes(hashlib.sha256(repr((seed, *what)).encode()).digest()[:8])


def _not_judged(exercise: str | None, name: str, reason: str, advice: str | None = None) -> Verdict:
    text = f"{_safe(name)} could not be judged: {reason}."
    return Verdict(exercise or "", NOT_JUDGED, (Finding("could not be judged", text, next=advice),))


def _refusal(fields, exercise: str | None) -> Verdict | None:
    """The verdict that there is no evidence, as an answer's process describes it; None if it describes anything else.

    That process may say what it likes, so nothing is taken over but an outcome that gives no points and a few texts.
    """
    try:
        outcome, finding = fields["outcome"], fields["findings"][0]
        texts = {name: finding[name] for name in ("kind", "text", "source", "next")}
    except (TypeError, LookupError):
        return None
    known = outcome in (NOT_PASSED, NOT_JUDGED) and isinstance(texts["kind"], str) and isinstance(texts["text"], str)
    if not known or not all(isinstance(text, str | None) for text in texts.values()):
        return None
    return Verdict(exercise or "", outcome, (Finding(**texts),))


def _safe(name: str) -> str:
    """A file's name as it may be used and shown; another one if it is too long or cannot be printed."""
    path = Path(name)
    return name if name.isprintable() and len(name.encode()) <= 100 and path.name == name else f"answer{path.suffix}"


def _cleaned(verdict: Verdict) -> Verdict:
    """The verdict, with all text that may come from a learner made printable and short."""

    def clean(value):
        if isinstance(value, tuple):
            return tuple(map(clean, value))
        if not isinstance(value, str):
            return value
        printable = "".join(c if c.isprintable() else " " for c in value[: _MAX_TEXT + 1])
        return printable if len(value) <= _MAX_TEXT else printable[:_MAX_TEXT] + " …"

    findings = (
        Finding(**{name: clean(value) for name, value in vars(finding).items()}) for finding in verdict.findings
    )
    return dataclasses.replace(verdict, findings=tuple(findings))


def grade_folder(
    folder: Path, out: Path, seed: int, jobs: int, exercise: str | None = None, sandboxed: bool = True
) -> list[Grade]:
    """Grades all that is in a folder, and writes grades.csv and grades.json.

    Args:
      folder: what was handed in; see `find`.
      out: the folder for the grades.
      seed: see `grade`.
      jobs: how many submissions to grade at a time.
      exercise: grade this one only; None for whatever a file answers.
      sandboxed: False runs answers with the rights of whoever grades.

    Raises:
      SandboxError: there is no sandbox to be had here.
    """
    if sandboxed:
        _workshop()  # fails before anything is read
    files, at_once = list(find(folder)), []

    def submissions():
        for learner, path in files:
            for found in read(learner, path, exercise):
                if isinstance(found, Grade):
                    at_once.append(found)
                else:
                    yield found

    # Threads, not processes: what takes time runs in processes of its own already.
    try:
        with ThreadPoolExecutor(jobs) as executor:
            how = grade if sandboxed else grade_unsandboxed
            graded = list(grades(submissions(), seed, executor, 2 * jobs, how))
    finally:
        close()
    learners = {learner for learner, _ in files}
    graded = completed([*graded, *at_once], learners, [exercise] if exercise else [])
    write(out, graded, seed, sandboxed)
    return graded


def find(folder: Path) -> Iterator[tuple[str, Path]]:
    """The learners and files in a folder: a folder for each learner, or a file that has the learner's name."""
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("."):
            continue
        if entry.is_symlink() or not entry.is_dir():
            yield _readable(entry.stem), entry
            continue
        for path, folders, names in os.walk(entry):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            yield from ((_readable(entry.name), Path(path, name)) for name in sorted(names) if name[0] != ".")


def _readable(name: str) -> str:
    """A name with whatever cannot be printed, or is no Unicode, written as Python does; two names stay two."""
    return repr(name)[1:-1]


def read(learner: str, path: Path, exercise: str | None = None) -> Iterator[Submission | Grade]:
    """What a learner's file holds: submissions, one for each answer, or the grade that there is none to be had."""
    if path.suffix not in (".py", ".ipynb", ".json"):
        return
    try:
        content = _content(path)
        if path.suffix != ".json":
            yield Submission(learner, path.name, content, exercise)
            return
        answers, _ = handin.read(path)
        for answer in answers:
            if exercise in (None, answer.exercise):
                yield Submission(learner, f"{answer.exercise}.py", answer.source.encode(), answer.exercise)
    except (OSError, handin.HandInError, ValueError) as error:
        said = getattr(error, "strerror", None) or str(error)
        yield Grade(learner, path.name, _not_judged(exercise, path.name, said.rstrip(".")))


def _content(path: Path) -> bytes:
    # A link may lead anywhere, and reading a pipe may take forever.
    if path.is_symlink():
        raise ValueError("it is a link")
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is not a file")
        if status.st_size > MAX_FILE:
            raise ValueError(f"it has {status.st_size:,} bytes; at most {MAX_FILE:,} are read")
        return file.read(MAX_FILE)


def completed(graded: Iterable[Grade], learners: Iterable[str], asked: Iterable[str] = ()) -> list[Grade]:
    """One grade for every learner and every exercise that was asked for, or that anybody answers: the best one.

    A file in which nobody could tell what it answers keeps a row of its own.
    """
    order = [NOT_ATTEMPTED, NOT_JUDGED, NOT_PASSED, PASSED]
    best: dict[tuple[str, str], Grade] = {}
    for grade in graded:
        key = grade.learner, grade.verdict.exercise or grade.name
        if key not in best or order.index(grade.verdict.outcome) > order.index(best[key].verdict.outcome):
            best[key] = grade
    found = {exercise for _, exercise in best if exercise in exercises.names()} | set(asked)
    missing = Finding("not attempted", "There is no answer to this exercise.")
    for learner in learners:
        for exercise in found or {""}:
            best.setdefault((learner, exercise), Grade(learner, "", Verdict(exercise, NOT_ATTEMPTED, (missing,))))
    return [best[key] for key in sorted(best)]


def write(folder: Path, graded: Iterable[Grade], seed: int, sandboxed: bool):
    """Writes grades.csv and grades.json."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "grades.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["learner", "exercise", "verdict", "score", "reason"])
        for grade in graded:
            note = "" if sandboxed else " (graded without a sandbox)"
            verdict = grade.verdict
            rows.writerow([grade.learner, verdict.exercise, verdict.outcome, grade.score, grade.reason + note])
    entries = [
        {
            "learner": grade.learner,
            "file": grade.name,
            "score": grade.score,
            "seconds": round(grade.seconds, 3),
            "printed": grade.printed,
            "verdict": grade.verdict.to_dict(),
        }
        for grade in graded
    ]
    content = {"seed": seed, "sandboxed": sandboxed, "grades": entries}
    (folder / "grades.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
