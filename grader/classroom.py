"""Grade all that a class handed in: each grade is written down when it is there, so that a run can be resumed."""

import contextlib
import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grader.collect import Class, Refused, Submission
from grader.files import write_whole
from grader.progress import versions
from grader.report import Grade, Picture, Report, completed
from grader.verdict import ANOTHER_EXERCISE, NOT_JUDGED, Finding, Verdict

_RUN, _RESULTS = "run.json", "results"


class RunError(Exception):
    """These grades cannot be made in this folder; the message says why and what to do."""


@dataclass(frozen=True)
class Run:
    """Grades on their way, in a folder of their own: what they are made with, and those that are there.

    Attributes:
      folder: where they are.
      settings: seed, exercise, sandboxed and versions, which must be the same for all of them.
    """

    folder: Path
    settings: dict[str, Any]

    @classmethod
    def begin(cls, folder: Path, seed: int | None, exercise: str | None, sandboxed: bool) -> "Run":
        """Begins a run in a folder that has none; a seed is drawn if None. Raises RunError."""
        settings = {"seed": secrets.randbits(63) if seed is None else seed}
        settings |= {"exercise": exercise, "sandboxed": sandboxed, "versions": versions()}
        if (folder / _RUN).exists():
            raise RunError(
                f"{folder} has grades already: add --resume to grade only what is missing, or name another folder."
            )
        if any((folder / _RESULTS).glob("*")):
            raise RunError(
                f"{folder / _RESULTS} has grades, but {folder / _RUN} is gone, which said what they were made with: "
                "name another folder, and begin anew."
            )
        try:
            (folder / _RESULTS).mkdir(parents=True, exist_ok=True)
            write_whole(folder / _RUN, json.dumps(settings) + "\n")
        except OSError as error:
            raise RunError(f"{folder} cannot be written ({error.strerror}): name another folder.") from None
        return cls(folder, settings)

    @classmethod
    def resume(cls, folder: Path, seed: int | None, exercise: str | None, sandboxed: bool) -> "Run":
        """Goes on with the run in a folder, or begins one. Raises RunError if that is one of other settings."""
        try:
            settings = json.loads((folder / _RUN).read_text())
            asked = {"seed": settings["seed"] if seed is None else seed, "exercise": exercise, "sandboxed": sandboxed}
            asked |= {"versions": versions()}
        except FileNotFoundError:
            return cls.begin(folder, seed, exercise, sandboxed)
        except (OSError, ValueError, TypeError, KeyError):
            raise RunError(f"{folder / _RUN} cannot be read: name another folder, and begin anew.") from None
        if changed := [name for name, value in asked.items() if settings.get(name) != value]:
            raise RunError(
                f"The grades in {folder} were not begun with the same {' and '.join(changed)}: resume them as they "
                "were begun, or name another folder."
            )
        return cls(folder, settings)

    def grade_of(self, submission: Submission) -> Grade | None:
        """The grade that is written down, without its picture, or None."""
        whole = self._read(submission.digest)
        return whole and replace(whole, picture=None)

    def picture_of(self, grade: Grade) -> Picture | None:
        """A grade's picture, as it is written down, or None."""
        whole = self._read(grade.digest) if grade.digest else None
        return whole and whole.picture

    def keep(self, submission: Submission, grade: Grade) -> Grade:
        """Writes a grade down, and returns it as `grade_of` would. Raises RunError if that cannot be done."""
        with self._writing():
            write_whole(self._place(submission.digest), json.dumps(grade.to_dict()))
        return replace(grade, digest=submission.digest, picture=None)

    def _read(self, digest: str) -> Grade | None:
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            return replace(Grade.from_dict(json.loads(self._place(digest).read_text())), digest=digest)

    def finish(self, report: Report, gradescope: bool):
        """Writes the report. Raises RunError if that cannot be done."""
        with self._writing():
            report.write(self.folder, gradescope)

    @contextlib.contextmanager
    def _writing(self):
        try:
            yield
        except OSError as error:
            raise RunError(
                f"{self.folder} cannot be written ({error.strerror}). The grades so far are kept: make room, and add "
                "--resume."
            ) from None

    def _place(self, digest: str) -> Path:
        return self.folder / _RESULTS / f"{digest}.json"


def grade_class(
    handed_in: Class,
    run: Run,
    executor: Executor,
    ahead: int,
    grade: Callable[[Submission, int], Grade],
    losses: tuple[type[Exception], ...] = (),
) -> tuple[Report, int]:
    """Grades what is not graded yet, and shows how far it is.

    Args:
      handed_in: what the class handed in.
      run: where grades are kept.
      executor: what calls `grade`.
      ahead: how many submissions are read, and handed to the executor, before their grades are there.
      grade: grades a submission with a seed.
      losses: what the executor raises for a submission whose machine is gone.

    Returns:
      The report, and how many submissions were lost. Their grades say so, and are not kept: whoever resumes the run
      grades them.
    """
    seed, exercise = run.settings["seed"], run.settings["exercise"]
    graded: list[Grade] = []
    pending: dict[Future, Submission] = {}
    lost = 0

    def take(done: Iterable[Future]):
        nonlocal lost
        for future in done:
            submission = pending.pop(future)
            try:
                found = run.keep(submission, future.result())
            except (CancelledError, *losses) as error:
                lost += 1
                found = _without(submission, f"what was to grade it was lost ({type(error).__name__})")
            graded.append(found)
            bar.advance(task)

    missing = sum(isinstance(s, Submission) and run.grade_of(s) is None for s in handed_in.submissions(exercise))
    with _bar() as bar:
        task = bar.add_task("grading", total=missing)
        try:
            for submission in handed_in.submissions(exercise):
                if isinstance(submission, Refused):
                    graded.append(_without(submission, submission.reason))
                elif found := run.grade_of(submission):
                    graded.append(found)
                else:
                    if len(pending) >= ahead:
                        take(wait(pending, return_when=FIRST_COMPLETED).done)
                    pending[executor.submit(grade, submission, seed)] = submission
            while pending:
                take(wait(pending, return_when=FIRST_COMPLETED).done)
        finally:
            for future in pending:
                future.cancel()
    graded = [grade for grade in graded if not any(f.kind == ANOTHER_EXERCISE for f in grade.verdict.findings)]
    best = completed(graded, handed_in.learners, [exercise] if exercise else [], handed_in.learners)
    counted = set(map(id, best))
    others = sorted((g for g in graded if id(g) not in counted), key=lambda g: (g.learner, g.name, g.reason))
    return Report(seed, run.settings["sandboxed"], best, others, handed_in.learners, run.picture_of), lost


@contextlib.contextmanager
def here(jobs: int, sandboxed: bool) -> Iterator[dict[str, Any]]:
    """What `grade_class` needs to grade on this machine, so many submissions at a time.

    Raises:
      SandboxError: there is no sandbox to be had here.
    """
    from grader import batch  # imports JAX

    if sandboxed:
        batch.begin()
    # Threads, not processes: what takes time runs in processes of its own already.
    executor = ThreadPoolExecutor(jobs)
    try:
        yield {"executor": executor, "ahead": 2 * jobs, "grade": batch.grade if sandboxed else batch.grade_unsandboxed}
        executor.shutdown()
        batch.close()
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


@contextlib.contextmanager
def on_cluster(scheduler: str, sandboxed: bool) -> Iterator[dict[str, Any]]:
    """What `grade_class` needs to grade on a Dask cluster.

    Args:
      scheduler: its address, such as `"tcp://10.0.0.1:8786"`.
      sandboxed: False runs answers with the rights of the workers.

    Raises:
      RunError: it cannot be reached, or its workers have not what grades here.
    """
    import distributed

    try:
        client = distributed.Client(scheduler, timeout=20, set_as_default=False)
    except (OSError, ValueError) as error:
        raise RunError(f"No Dask scheduler answers at {scheduler} ({error}): check that it runs.") from None
    with client:
        for worker, found in client.run(versions, on_error="return").items():
            if found != versions():
                raise RunError(
                    f"The worker {worker} has not what is here ({found}, not {versions()}): install the same workbook "
                    "and JAX on all machines, and set JAX_REMAT3 on all or on none."
                )
        yield {
            "executor": client.get_executor(pure=False),
            "ahead": max(4 * sum(client.nthreads().values()), 64),  # workers may come later
            "grade": _grade_there if sandboxed else _grade_unsandboxed_there,
            "losses": (distributed.KilledWorker,),
        }


# What workers call imports JAX there, on the processor, as it is here: evidence is exported for that.


def _grade_there(submission: Submission, seed: int) -> Grade:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    from grader import batch

    return batch.grade(submission, seed)


def _grade_unsandboxed_there(submission: Submission, seed: int) -> Grade:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    from grader import batch

    return batch.grade_unsandboxed(submission, seed)


def _without(submission: Submission | Refused, reason: str) -> Grade:
    finding = Finding("could not be judged", f"{submission.name or 'This'} could not be judged: {reason}.")
    return Grade(submission.learner, submission.name, Verdict(submission.exercise or "", NOT_JUDGED, (finding,)))


def _bar():
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = TextColumn("grading"), BarColumn(), MofNCompleteColumn(), TextColumn("about"), TimeRemainingColumn()
    # One answer may take a minute: half of one, as rich has it, is too short to tell how fast it goes.
    return Progress(
        *columns, TextColumn("left"), console=console, disable=not console.is_terminal, speed_estimate_period=300
    )
