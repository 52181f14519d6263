"""Collect the submissions of a class from a folder or zip.

    ada/answer.py, ada/page.ipynb, ada/remat-workbook.json   a folder for each learner
    ada.ipynb                                                or a file with the learner's name
    submitted/ada/recompute/page.ipynb                       or nbgrader's folders

Every file is either graded, or reported with the reason why it is not. All files that may hold answers are read once,
when they are found, into a file without a name: later changes to the folder make no difference.
"""

import contextlib
import hashlib
import os
import tempfile
import weakref
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from grader.answers import submission_file
from grader.classroom.found_files import (
    Aside,
    Entry,
    InZip,
    NoRoom,
    OnDisk,
    TooLarge,
    Unreadable,
    entries,
    readable,
)
from grader.exercises import registry

MAX_ANSWERS = 100  # of one learner's; there are fewer exercises
MAX_BYTES = 100 * 2**20  # of one learner's files, all together
_KINDS = (".ipynb", ".py", ".json")
_NO_ANSWER = "it is not a notebook, a Python file or a file from `submit`"


class CollectError(Exception):
    """There is nothing here to be graded; the message says why and what to do."""


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

    @property
    def digest(self) -> str:
        """What tells it from any other submission."""
        about = repr((self.learner, self.name, self.exercise)).encode()
        return hashlib.sha256(about + b"\0" + self.content).hexdigest()


@dataclass(frozen=True)
class Refused:
    """A file, or a part of one, that is not graded, and why: words that follow on "could not be judged"."""

    learner: str
    name: str
    reason: str
    exercise: str | None = None


class _Snapshot:
    """What files held when they were found. It is on disk, under no name, and gone when nobody needs it."""

    def __init__(self) -> None:
        # Not where temporary files are in memory, as they may be in /tmp: a class hands in more than that.
        self._file, name = tempfile.mkstemp(dir="/var/tmp" if os.access("/var/tmp", os.W_OK) else None)
        os.unlink(name)
        weakref.finalize(self, os.close, self._file)
        self._end = 0

    def keep(self, content: bytes) -> "_Kept":
        """Raise OSError if the disk is full."""
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(self._file, rest) :]
        kept = _Kept(self, self._end, len(content))
        self._end += len(content)
        return kept

    def read(self, start: int, size: int) -> bytes:
        return os.pread(self._file, size, start)


@dataclass(frozen=True)
class _Kept:
    """A file's content, in a snapshot."""

    snapshot: _Snapshot
    start: int
    size: int

    def read(self) -> bytes:
        return self.snapshot.read(self.start, self.size)


@dataclass(frozen=True)
class File:
    """A file that was handed in: whose it is, its name, its content or why that is not read, and its path in the
    learner's folder."""

    learner: str
    name: str
    content: _Kept | Unreadable
    path: str


@dataclass(frozen=True)
class NotGraded:
    """A file, or a folder with all that is in it, that has no grade of its own, and why. `learner`: "" if it is in no
    learner's folder."""

    learner: str
    path: str
    reason: str


@dataclass
class Class:
    """What a class handed in.

    Attributes:
      learners: the learners who have a file or a folder.
      files: the files that may hold answers.
      not_graded: all others.
    """

    learners: list[str] = field(default_factory=list)
    files: list[File] = field(default_factory=list)
    not_graded: list[NotGraded] = field(default_factory=list)

    @property
    def unreadable(self) -> dict[str, str]:
        """Learners of whose files or folders some could not be read, and why, of the first."""
        return {
            file.learner: f"{file.name}, since {file.content.reason}"
            for file in reversed(self.files)
            if isinstance(file.content, Unreadable)
        }

    def answers(self, exercise: str | None = None) -> list["Listed | Refused | NotGraded"]:
        """Return the answers in the files, or why there are none: every file is in the list.

        Args:
          exercise: which exercise's answers; None for all of them.
        """
        count: Counter[str] = Counter()
        listed: set[str] = set()
        found: list[Listed | Refused | NotGraded] = []
        for file in self.files:
            why = f"it has no answer to {exercise}" if exercise else "it has no answer"
            for each in _read_answer(file, exercise):
                why = ""
                count[file.learner] += 1
                if count[file.learner] > MAX_ANSWERS:
                    why = f"only {MAX_ANSWERS} answers per learner are graded"
                    break
                answer = Listed.of(each, file) if isinstance(each, Submission) else each
                if not isinstance(answer, Listed):
                    found.append(answer)
                elif answer.digest in listed:
                    why = f"another file of this learner has the same name, {answer.name}, and the same content"
                else:
                    listed.add(answer.digest)
                    found.append(answer)
            if why:
                found.append(NotGraded(file.learner, file.path, why))
        found += [
            Refused(learner, "", f"there are more than {MAX_ANSWERS} answers; the others were not graded")
            for learner, number in count.items()
            if number > MAX_ANSWERS
        ]
        return found


@dataclass(frozen=True)
class Listed:
    """An answer that can be graded: what tells it from others, and where it is. A class's answers may be more than
    memory holds.

    Attributes:
      learner, name, exercise, digest: those of the submission.
      content: the submission's, as it was when it was listed.
    """

    learner: str
    name: str
    exercise: str | None
    digest: str
    content: _Kept

    @classmethod
    def of(cls, submission: Submission, file: File) -> "Listed":
        """Return a submission that was found in a file."""
        assert isinstance(file.content, _Kept), "it has been read"
        # A file with many answers is read once, and not for each of them.
        kept = file.content.snapshot.keep(submission.content) if _is_of_submit(file) else file.content
        return cls(submission.learner, submission.name, submission.exercise, submission.digest, kept)

    def read(self) -> Submission:
        """Return the submission."""
        return Submission(self.learner, self.name, self.content.read(), self.exercise)


def collect(place: Path) -> Class:
    """Find the learners and their files, and reads what may hold answers. Links are not followed.

    Args:
      place: a folder or a zip.

    Raises:
      CollectError: it is neither, or cannot be read.
    """
    found, snapshot = Class(), _Snapshot()
    sizes: Counter[str] = Counter()
    learners: dict[str, None] = {}
    try:
        for entry in entries(place):
            _add_entry(found, learners, sizes, snapshot, entry)
    except FileNotFoundError:
        raise CollectError(f"File not found: {place}. Check its name and the current folder.") from None
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError):
        raise CollectError(f"{place} is neither a folder nor a readable zip file.") from None
    if not learners:
        raise CollectError(f"{place} contains no learner's folder or file. Name the folder that contains them.")
    found.learners = list(learners)
    return found


def _add_entry(found: Class, learners: dict[str, None], sizes: Counter[str], snapshot: _Snapshot, entry: Entry) -> None:
    """Add a file or folder to what was found. `sizes`: bytes of each learner's files."""
    parts, content = list(map(readable, entry.parts)), entry.content
    if isinstance(content, Aside) and len(parts) == 1:
        found.not_graded.append(NotGraded("", parts[0], content.reason))
        return
    alone = len(parts) == 1 and content is not None
    learner = readable(PurePosixPath(entry.parts[0]).stem) if alone else parts[0]
    learners[learner] = None
    path = "/".join(parts[0 if alone else 1 :])
    if isinstance(content, Aside):
        found.not_graded.append(NotGraded(learner, path, content.reason))
    elif content is not None:
        if PurePosixPath(entry.parts[-1]).suffix in _KINDS or isinstance(content, Unreadable):
            kept, taken = _keep_content(content, snapshot, MAX_BYTES - sizes[learner])
            sizes[learner] += taken
            found.files.append(File(learner, parts[-1], kept, path))
        else:
            found.not_graded.append(NotGraded(learner, path, _NO_ANSWER))


def _keep_content(
    content: OnDisk | InZip | Unreadable, snapshot: _Snapshot, room: int
) -> tuple[_Kept | Unreadable, int]:
    """Return the content, or why it is not read, and the bytes that it counts for a learner."""
    if isinstance(content, Unreadable):
        return content, 0
    try:
        whole = content.read(room)
    except NoRoom:
        return Unreadable(f"the learner's files have more than {MAX_BYTES // 2**20} MiB in total"), 0
    except TooLarge as error:
        return Unreadable(str(error)), 0
    except (OSError, ValueError) as error:  # to unpack what is then damaged takes as long as if it were whole
        reason = (getattr(error, "strerror", None) or str(error)).rstrip(".")
        return Unreadable(reason), content.size if isinstance(content, InZip) else 0
    try:
        return snapshot.keep(whole), len(whole)
    except OSError as error:
        raise CollectError(
            f"The submissions cannot be copied ({error.strerror}). Free some space in /var/tmp."
        ) from None


def _is_of_submit(file: File) -> bool:
    """Return whether a file would be one that `submit` has written, with any number of answers."""
    return file.name.endswith(".json")


def _read_answer(file: File, exercise: str | None) -> Iterator[Submission | Refused | NotGraded]:
    if isinstance(file.content, Unreadable):
        yield Refused(file.learner, file.name, file.content.reason, exercise)
        return
    content = file.content.read()
    if not _is_of_submit(file):
        yield Submission(file.learner, file.name, content, exercise)
        return
    try:
        answers, _ = submission_file.parse(content.decode(), file.name)
    except (submission_file.HandInError, ValueError) as error:
        yield Refused(file.learner, file.name, str(error).rstrip("."), exercise)
        return
    for answer in answers:
        if exercise not in (None, answer.exercise):
            continue
        if answer.exercise in registry.REMOVED:
            yield NotGraded(file.learner, file.path, registry.removal(answer.exercise).rstrip("."))
            continue
        source = b""
        with contextlib.suppress(UnicodeEncodeError):  # half of a pair of characters, which JSON can spell
            source = answer.source.encode()
        if source:
            yield Submission(file.learner, f"{answer.exercise}.py", source, answer.exercise)
        else:
            yield Refused(file.learner, file.name, "it has no text for this answer", answer.exercise)
