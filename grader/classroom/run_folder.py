"""Keep a run's settings and grades in a folder."""

import contextlib
import errno
import fcntl
import json
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from grader.classroom.grade import Grade, Picture
from grader.classroom.report import Report
from grader.util.versions import versions
from grader.verdicts.verdict import Outcome
from rematscope.render import write_whole

_RUN, _RESULTS, _BEGUN, _LOCK = "run.json", "results", "begun", "lock"


# What the settings of a run are called in a sentence.
_SETTINGS = {
    "seed": "seed (--seed)",
    "exercise": "choice of exercises (--exercise)",
    "sandboxed": "isolation (--unsandboxed)",
    "secret": "secret",
    "versions": "version of Python, JAX or the workbook",
}


class RunError(Exception):
    """These grades cannot be made in this folder; the message says why and what to do."""


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep a run's folder, which is made if it is not there, from other runs. Raises RunError if one has it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / _LOCK).open("a")
    except OSError as error:
        raise RunError(f"{folder} cannot be written ({error.strerror}). Choose another folder.") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(
                f"Another run is writing grades to {folder}. Wait until it has finished, or stop it."
            ) from None
        except OSError:
            pass  # a file system that knows no locks
        yield


@dataclass(frozen=True)
class Tries:
    """What is known of a submission that was tried and has no grade yet.

    Attributes:
      seconds: how long all tries took together.
      last: how long the last one could have taken.
      interrupted: whether the run, or the submission's process, ended during the last one. It may be the cause.
      alone: how many runs ended while it was graded and nothing else was.
    """

    seconds: float = 0.0
    last: float = 0.0
    interrupted: bool = False
    alone: int = 0


@dataclass(frozen=True)
class Run:
    """Grades on their way, in a folder of their own: what they are made with, and those that are there.

    Attributes:
      folder: where they are.
      settings: seed, exercise, sandboxed and versions, which must be the same for all of them; and a secret, which is
        here and nowhere else, from which inputs are drawn.
      tries: what is known of submissions that were tried before the run ended and have no grade, by digest.
    """

    folder: Path
    settings: dict[str, Any]
    tries: dict[str, Tries] = field(default_factory=dict)

    @classmethod
    def begin(cls, folder: Path, seed: int | None, exercise: str | None, sandboxed: bool) -> "Run":
        """Begin a run in a folder that has none; a seed is drawn if None. Raises RunError."""
        settings: dict[str, Any] = {"seed": secrets.randbits(63) if seed is None else seed}
        settings |= {"secret": secrets.randbits(63)}
        settings |= {"exercise": exercise, "sandboxed": sandboxed, "versions": versions()}
        if (folder / _RUN).exists():
            raise RunError(
                f"{folder} already has grades. Add --resume to grade only missing answers, or choose another folder."
            )
        if any((folder / _RESULTS).glob("*")):
            raise RunError(
                f"{folder / _RESULTS} has grades, but {folder / _RUN}, which records their settings, is missing. Start "
                "again in another folder."
            )
        try:
            for name in (_RESULTS, _BEGUN):
                (folder / name).mkdir(parents=True, exist_ok=True)
            write_whole(folder / _RUN, json.dumps(settings) + "\n")
            (folder / _RUN).chmod(0o600)  # others may be shown the grades
        except OSError as error:
            raise RunError(f"{folder} cannot be written ({error.strerror}). Choose another folder.") from None
        return cls(folder, settings)

    @classmethod
    def resume(cls, folder: Path, seed: int | None, exercise: str | None, sandboxed: bool) -> "Run":
        """Go on with the run in a folder, or begin one. Raises RunError if that is one of other settings."""
        try:
            settings = json.loads((folder / _RUN).read_text())
            asked = {"seed": settings["seed"] if seed is None else seed, "exercise": exercise, "sandboxed": sandboxed}
            asked |= {"secret": settings["secret"], "versions": versions()}
            for name in (_RESULTS, _BEGUN):
                (folder / name).mkdir(exist_ok=True)  # whoever wants the same grades again brings the file alone
        except FileNotFoundError:
            return cls.begin(folder, seed, exercise, sandboxed)
        except (OSError, ValueError, TypeError, KeyError):
            raise RunError(f"{folder / _RUN} cannot be read. Start again in another folder.") from None
        if changed := [name for name, value in asked.items() if settings.get(name) != value]:
            which = " and another ".join(_SETTINGS[name] for name in changed)
            raise RunError(
                f"The grades in {folder} were made with another {which}. "
                "Resume with the same settings, or choose another folder."
            )
        return cls(folder, settings, {path.stem: _read_tries(path) for path in (folder / _BEGUN).glob("*.json")})

    def grade_of(self, digest: str) -> Grade | None:
        """Return the grade of the submission with this digest that is written down, without its picture, or None."""
        whole = self._read_grade(digest)
        return replace(whole, picture=None) if whole else None

    def forget(self, outcome: Outcome) -> int:
        """Throw away the grades with this outcome, so that they are made anew, and return how many they were."""
        with self._writing_or_run_error():
            every = (path.stem for path in (self.folder / _RESULTS).glob("*.json"))
        self.forget_these(found := [digest for digest in every if self._outcome_of(digest) == outcome])
        return len(found)

    def forget_these(self, digests: Sequence[str]) -> None:
        """Delete the grades of these submissions, so that they are graded again. Raises RunError."""
        with self._writing_or_run_error():
            for digest in digests:
                self._result_path(digest).unlink(missing_ok=True)

    def _outcome_of(self, digest: str) -> Outcome | None:
        grade = self._read_grade(digest)
        return grade.verdict.outcome if grade else None

    def picture_of(self, grade: Grade) -> Picture | None:
        """Return a grade's picture, as it is written down, or None."""
        whole = self._read_grade(grade.digest) if grade.digest else None
        return whole.picture if whole else None

    def note(self, digest: str, tries: Tries) -> None:
        """Save what is known of a submission without a grade, until `keep`. Raises RunError if that cannot be done."""
        with self._writing_or_run_error():
            write_whole(self._begun_path(digest), json.dumps(asdict(tries)))

    def keep(self, digest: str, grade: Grade) -> Grade:
        """Write a grade down, and return it as `grade_of` would. Raises RunError if that cannot be done."""
        with self._writing_or_run_error():
            write_whole(self._result_path(digest), json.dumps(replace(grade, code=self._code_version).to_dict()))
            self._begun_path(digest).unlink(missing_ok=True)
        return replace(grade, digest=digest, code=self._code_version, picture=None)

    @property
    def _code_version(self) -> str:
        code: str = self.settings["versions"]["code"]
        return code

    def _read_grade(self, digest: str) -> Grade | None:
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            grade = Grade.from_dict(json.loads(self._result_path(digest).read_text()))
            return replace(grade, digest=digest) if grade.code == self._code_version else None
        return None

    def write(self, report: Report, gradescope: bool) -> None:
        """Write the report. Raises RunError if that cannot be done."""
        with self._writing_or_run_error():
            report.write(self.folder, gradescope)

    def finish(self, report: Report, gradescope: bool) -> None:
        """Write the report when all is graded. Raises RunError if that cannot be done."""
        self.write(report, gradescope)
        with self._writing_or_run_error():
            for lost in (self.folder / _BEGUN).iterdir():  # with a machine, and without harm
                lost.unlink()

    @contextlib.contextmanager
    def _writing_or_run_error(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno == errno.ENOENT and not os.path.exists(self.folder / _RUN):
                raise RunError(
                    f"{self.folder} no longer exists. If you renamed it, give its new name and add --resume."
                ) from None
            raise RunError(
                f"{error.filename2 or self.folder} cannot be written ({error.strerror}). The grades so far are saved. "
                "Fix this, then add --resume."
            ) from None

    def _result_path(self, digest: str) -> Path:
        return self.folder / _RESULTS / f"{digest}.json"

    def _begun_path(self, digest: str) -> Path:
        return self.folder / _BEGUN / f"{digest}.json"


def _read_tries(mark: Path) -> Tries:
    try:
        return Tries(**json.loads(mark.read_text()))
    except (OSError, ValueError, TypeError):  # the machine lost power
        return Tries(interrupted=True)
