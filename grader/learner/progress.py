"""Progress: every attempt, stored before its verdict is shown, in an SQLite file in the user's data folder.

The file survives a killed kernel, two notebooks at the same time, a full disk and partial damage. Errors are reported
in `Progress.notices` and never raised, so that the learner always sees the verdict.
"""

import json
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs

from grader.answers import find
from grader.util.fresh_files import create_fresh_file
from grader.util.versions import now, versions
from grader.util.words import counted
from grader.verdicts.verdict import Outcome, Verdict

_SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE attempts (
    id INTEGER PRIMARY KEY,
    time TEXT NOT NULL,         -- UTC, ISO 8601
    exercise TEXT NOT NULL,
    outcome TEXT NOT NULL,      -- of the verdict
    evidence TEXT,              -- SHA-256 of the evidence
    source TEXT NOT NULL,       -- the answer, Python
    verdict TEXT NOT NULL,      -- JSON
    versions TEXT NOT NULL      -- of the tools, JSON
);
CREATE TABLE hints (
    id INTEGER PRIMARY KEY,
    time TEXT NOT NULL,
    exercise TEXT NOT NULL,
    hint TEXT NOT NULL,         -- its key
    UNIQUE (exercise, hint)
);
"""
_ATTEMPT = "time, exercise, outcome, evidence, source, verdict, versions"
_HINT = "time, exercise, hint"
_ADD_ATTEMPT = f"INSERT INTO attempts ({_ATTEMPT}) VALUES (?, ?, ?, ?, ?, ?, ?)"
_ADD_HINT = f"INSERT OR IGNORE INTO hints ({_HINT}) VALUES (?, ?, ?)"
PATIENCE = 10  # seconds that one process waits while another writes
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_FOLDER = "REMAT_WORKBOOK_DATA"


@dataclass(frozen=True)
class Attempt:
    """One check of an answer.

    Attributes:
      exercise: the name of the exercise.
      verdict: the verdict of the check.
      source: the Python code of the answer, or "" if it is not known.
      time: the time of the check in UTC, ISO 8601, to the second.
      versions: the versions of the tools; see `grader.util.versions`.
    """

    exercise: str
    verdict: Verdict
    source: str
    time: str
    versions: dict[str, str]


def default_path() -> Path:
    """Return the path of the progress file: in the folder REMAT_WORKBOOK_DATA, else in the user's data folder."""
    folder = os.environ.get(_FOLDER) or platformdirs.user_data_dir("remat-workbook", appauthor=False)
    return Path(folder).expanduser() / "progress.sqlite"


class Progress:
    """A learner's attempts and hints.

    Attributes:
      path: the path of the file.
      notices: sentences that the learner must read, about a damaged file and about failures to read or write.
    """

    def __init__(self, path: Path | None = None):
        self.path = path or default_path()
        self.notices: list[str] = []
        self._looked_through = False

    def record(self, exercise: str, verdict: Verdict, source: str) -> Attempt:
        """Store an attempt. When this returns, the attempt is on the disk, or a notice gives the reason why it is
        not.
        """
        source = source.encode(errors="replace").decode()  # SQLite takes no lone surrogates
        attempt = Attempt(exercise, verdict, source, now(), versions())
        self._in_transaction(lambda file: file.execute(_ADD_ATTEMPT, _attempt_row(attempt)), to_write="This attempt")
        return attempt

    def attempts(self, exercise: str | None = None) -> list[Attempt]:
        """Return all attempts at an exercise, or at all of them, oldest first."""
        query = f"SELECT {_ATTEMPT} FROM attempts WHERE ? IN (exercise, '') ORDER BY id"
        rows = self._in_transaction(lambda file: file.execute(query, (exercise or "",)).fetchall()) or []
        attempts = [attempt for row in rows if (attempt := _read_attempt(row))]
        if unreadable := len(rows) - len(attempts):
            self._add_notice(f"{unreadable} of the attempts in {self.path} cannot be read and are left out.")
        return attempts

    def passed(self, exercise: str) -> bool:
        """Return whether the exercise was ever passed."""
        return any(attempt.verdict.outcome == Outcome.PASSED for attempt in self.attempts(exercise))

    def honest_attempts(self, exercise: str) -> int:
        """Return the number of different answers that ran and did not pass. Checking the same answer several times
        counts once. An answer with an undefined name, for example, does not run.
        """
        sources = [a.source for a in self.attempts(exercise) if a.verdict.ran and not a.verdict.passed]
        return len({find.fingerprint(source) for source in sources if source}) + sources.count("")

    def hints(self, exercise: str) -> list[str]:
        """Return the keys of the hints that the learner has seen, in the order in which they were shown."""
        query = "SELECT hint FROM hints WHERE exercise = ? ORDER BY id"
        rows = self._in_transaction(lambda file: file.execute(query, (exercise,)).fetchall()) or []
        return [hint for (hint,) in rows]

    def note_hint(self, exercise: str, key: str) -> None:
        """Store that a hint was shown."""
        self._in_transaction(lambda file: file.execute(_ADD_HINT, (now(), exercise, key)), to_write="This hint")

    def _in_transaction(self, work: Callable[[sqlite3.Connection], Any], to_write: str | None = None):
        """Call `work` with the file in one transaction. If that fails, add a notice and return None.

        Args:
          work: the function to call.
          to_write: the data that `work` writes, which is the subject of the notice if it fails; None if `work` only
            reads. Then a missing file is not created.
        """
        try:
            try:
                return self._run_transaction(work, to_write)
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
                self._start_new_database()
                return self._run_transaction(work, to_write)
        except (sqlite3.Error, OSError) as error:
            cause, advice = self._cause_and_advice(error)
            lost = f"{to_write} could not be saved; earlier ones are safe" if to_write else "It was not read"
            self._add_notice(f"{cause}. {lost}. {advice}.")

    def _run_transaction(self, work, to_write: str | None):
        if to_write:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        elif not self.path.exists():
            return None
        with closing(self._open_file()) as file:
            # With SQLite's default journal, because a write-ahead log needs shared memory, which home folders on a
            # network do not have. EXTRA also waits until the entries of the folder are on the disk.
            file.execute("PRAGMA synchronous = EXTRA")
            # Before reading the schema, because this SQLite may be unable to read the schema of a newer version.
            version = file.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, _SCHEMA_VERSION):
                raise _Foreign(version)
            if not self._looked_through:
                if (found := file.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                    raise _Damaged(found)
                self._looked_through = True
            file.execute("BEGIN IMMEDIATE" if to_write else "BEGIN")
            if file.execute("PRAGMA user_version").fetchone()[0] == 0:
                if file.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                    raise _Foreign(0)
                if not to_write:
                    return None
                for statement in _SCHEMA.split(";\n")[:-1]:
                    file.execute(statement)
                file.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
            result = work(file)
            file.execute("COMMIT")  # closing the connection without it rolls back
            return result

    def _open_file(self) -> sqlite3.Connection:
        file = sqlite3.connect(
            # rwc even to read, because the first connection after a kill undoes the unfinished transaction.
            f"{self.path.absolute().as_uri()}?mode=rwc",
            uri=True,
            timeout=PATIENCE,
            isolation_level=None,
        )
        file.text_factory = lambda text: text.decode(errors="replace")  # damaged text must not raise
        return file

    def _start_new_database(self) -> None:
        """Rename a damaged file, and create a new one with the rows that can still be read."""
        with closing(sqlite3.connect(self.path.with_suffix(".lock"), timeout=PATIENCE, isolation_level=None)) as lock:
            lock.execute("BEGIN EXCLUSIVE")  # two notebooks may find the damage at the same time
            self._looked_through = False
            try:
                self._run_transaction(lambda file: None, to_write=None)
                return  # the other notebook has repaired the file
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
            aside = self._move_aside()
            kept = f"The file with your progress was damaged. It is saved as {aside}."
            attempts, hints = _salvage_rows(aside)

            def fill(file):
                file.executemany(_ADD_ATTEMPT, attempts)
                file.executemany(_ADD_HINT, hints)

            try:
                self._run_transaction(fill, "What could be read")
            except (sqlite3.Error, OSError):
                self._add_notice(kept)
                raise
            number = counted(len(attempts), "attempts")
            self._add_notice(f"{kept} A new file has the {number} that could still be read.")

    def _move_aside(self) -> Path:
        """Rename the file to a unique name."""
        aside = create_fresh_file(self.path.with_name("progress.damaged.sqlite"))
        try:
            os.replace(self.path, aside)
        except OSError:
            aside.unlink()
            raise
        return aside

    def _cause_and_advice(self, error: Exception) -> tuple[str, str]:
        """Return the reason why the file cannot be used and the next step, both without a full stop."""
        allowed = f"Make it writable, or set {_FOLDER} to a writable folder; then continue"
        if isinstance(error, _Foreign):
            return (
                f"{self.path} belongs to another version of the workbook (format {error.args[0]}, not "
                f"{_SCHEMA_VERSION}) and is unchanged",
                f"Update the workbook, or set {_FOLDER} to another folder",
            )
        if isinstance(error, PermissionError):
            return f"{self.path} is not readable and writable", allowed
        if isinstance(error, OSError):
            return f"{self.path} cannot be used: {error.strerror or error}", f"Set {_FOLDER} to another folder"
        match getattr(error, "sqlite_errorcode", 0) & 0xFF:
            case sqlite3.SQLITE_FULL:
                return f"The disk with {self.path} is full", "Free some space, then check again"
            case sqlite3.SQLITE_IOERR:
                return (
                    f"The disk failed, or is full, while {self.path} was in use",
                    "Check the free space on it, then check your answer again",
                )
            case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_CANTOPEN:
                return f"{self.path} is not writable", allowed
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                return (
                    f"Another program has locked {self.path} for {PATIENCE} s",
                    "Close that program, then check again",
                )
        return f"{self.path} cannot be used: {error}", f"Move it away, or set {_FOLDER} to another folder"

    def _add_notice(self, sentences: str) -> None:
        if sentences not in self.notices:
            self.notices.append(sentences)


class _Damaged(sqlite3.DatabaseError):
    """Raised if the structure of the file is damaged. The message says where."""


class _Foreign(sqlite3.DatabaseError):
    """Raised if the file belongs to a different version of the workbook, which is the argument."""


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    return isinstance(error, _Damaged) or getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED


def _attempt_row(attempt: Attempt) -> tuple:
    verdict = attempt.verdict
    return (
        attempt.time,
        attempt.exercise,
        verdict.outcome,
        verdict.evidence,
        attempt.source,
        json.dumps(verdict.to_dict()),
        json.dumps(attempt.versions),
    )


def _read_attempt(row: Sequence) -> Attempt | None:
    """Return the attempt in a row, or None if it cannot be read."""
    time, exercise, _, _, source, verdict, versions = row
    try:
        return Attempt(exercise, Verdict.from_dict(json.loads(verdict)), source, time, json.loads(versions))
    except (ValueError, TypeError, KeyError):
        return None


def _salvage_rows(path: Path) -> tuple[list[tuple], list[tuple]]:
    """Return the rows of attempts and of hints that can be read in a damaged file, in their order."""
    try:
        # immutable, because no other process uses the file, and its journal would not help.
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as file:
            attempts = [row for row in _readable_rows(file, "attempts", _ATTEMPT) if _read_attempt(row)]
            hints = [row for row in _readable_rows(file, "hints", _HINT) if isinstance(row[-1], str)]
            return attempts, hints
    except sqlite3.Error:
        return [], []


def _readable_rows(file: sqlite3.Connection, table: str, columns: str) -> list[tuple]:
    """Return the rows before and after the damage, read forwards from the first row and backwards from the last."""
    rows = {}
    for order in ("ASC", "DESC"):
        try:
            for index, *row in file.execute(f"SELECT id, {columns} FROM {table} ORDER BY id {order}"):
                rows[index] = tuple(row)
        except sqlite3.Error:
            continue
    return [row for _, row in sorted(rows.items())]
