"""Save the settings and grades of a run in a folder."""

import contextlib
import errno
import fcntl
import json
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from grader.classroom.grade import Grade, Picture
from grader.classroom.report import Report
from grader.util.versions import versions
from grader.verdicts.verdict import Outcome
from rematscope.render import write_whole

_RUN, _RESULTS, _BEGUN, _LOCK = "run.json", "results", "begun", "lock"


# The names of a run's settings in messages.
_SETTINGS = {
    "seed": "seed (--seed)",
    "exercise": "choice of exercises (--exercise)",
    "sandboxed": "isolation (--unsandboxed)",
    "secret": "secret",
    "versions": "version of Python, JAX or the workbook",
}


class RunError(Exception):
    """Raised if a run cannot start or continue; the message gives the reason and the next step."""


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Create a run's folder if necessary, and lock it against other runs. Raises RunError if another run has locked
    it."""
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
            pass  # the file system does not support locks
        yield


@dataclass(frozen=True)
class Tries:
    """The previous tries of a submission that has no grade yet.

    Attributes:
      seconds: the total time of all tries.
      last: the time limit of the last try.
      interrupted: whether the run, or the submission's process, ended during the last try. The submission may be the
        cause.
      alone: the number of runs that ended while only this submission was being graded.
    """

    seconds: float = 0.0
    last: float = 0.0
    interrupted: bool = False
    alone: int = 0


@dataclass(frozen=True)
class Run:
    """A run in its own folder: the settings, and the grades so far.

    Attributes:
      folder: the folder.
      settings: the seed, the exercise, `sandboxed` and the versions, which must be the same for all grades; and the
        secret that inputs are generated from, which is stored nowhere else.
      tries: the tries of submissions that have no grade yet, by digest.
    """

    folder: Path
    settings: dict[str, Any]
    tries: dict[str, Tries] = field(default_factory=dict)

    @classmethod
    def begin(cls, folder: Path, seed: int | None, exercise: str | None, sandboxed: bool) -> "Run":
        """Start a run in a folder without one. If `seed` is None, generate a seed. Raises RunError."""
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
            (folder / _RUN).chmod(0o600)  # the secret is in this file, and other users may see the grades
        except OSError as error:
            raise RunError(f"{folder} cannot be written ({error.strerror}). Choose another folder.") from None
        return cls(folder, settings)

    @classmethod
    def resume(cls, folder: Path, seed: int | None, exercise: str | None, sandboxed: bool) -> "Run":
        """Continue the run in a folder, or start one. Raises RunError if the settings differ from those of the run."""
        try:
            settings = json.loads((folder / _RUN).read_text())
            asked = {"seed": settings["seed"] if seed is None else seed, "exercise": exercise, "sandboxed": sandboxed}
            asked |= {"secret": settings["secret"], "versions": versions()}
            for name in (_RESULTS, _BEGUN):
                (folder / name).mkdir(exist_ok=True)  # missing if a user copied only run.json, to reproduce the grades
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
        """Return the saved grade of the submission with this digest, without its picture, or None."""
        whole = self._read_grade(digest)
        return replace(whole, picture=None) if whole else None

    def forget(self, outcome: Outcome) -> int:
        """Delete the grades with this outcome, so that the answers are graded again, and return their number."""
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
        """Return the saved picture of a grade, or None."""
        whole = self._read_grade(grade.digest) if grade.digest else None
        return whole.picture if whole else None

    def note(self, digest: str, tries: Tries) -> None:
        """Save the tries of a submission until `keep` saves its grade. Raises RunError if that is not possible."""
        with self._writing_or_run_error():
            write_whole(self._begun_path(digest), json.dumps(asdict(tries)))

    def keep(self, digest: str, grade: Grade) -> Grade:
        """Save a grade, and return what `grade_of` would return. Raises RunError if that is not possible."""
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
        """Write the report. Raises RunError if that is not possible."""
        with self._writing_or_run_error():
            report.write(self.folder, gradescope)

    def finish(self, report: Report, gradescope: bool) -> None:
        """Write the final report, and delete the saved tries. Raises RunError if that is not possible."""
        self.write(report, gradescope)
        with self._writing_or_run_error():
            # Answers that were lost with a machine, which did not cause the loss.
            for lost in (self.folder / _BEGUN).iterdir():
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
        seconds, last, interrupted, alone = (json.loads(mark.read_text())[each.name] for each in fields(Tries))
        return Tries(float(seconds), float(last), bool(interrupted), int(alone))
    except (OSError, ValueError, TypeError, KeyError):  # the machine lost power
        return Tries(interrupted=True)
