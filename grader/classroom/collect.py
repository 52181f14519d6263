"""Collect the submissions of a class from a folder or zip file.

    ada/answer.py, ada/page.ipynb, ada/remat-workbook.json   a folder for each learner
    ada.ipynb                                                or a file with the learner's name
    submitted/ada/recompute/page.ipynb                       or nbgrader's folders

Every file is either graded or reported with the reason why it is not. All files that may contain answers are copied
into an unnamed temporary file when they are found, so later changes to the folder have no effect.
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

from grader.answers import find, submission_file
from grader.classroom.found_files import (
    Aside,
    Entry,
    InZip,
    OnDisk,
    OverLimit,
    TooLarge,
    Unreadable,
    entries,
    readable,
)
from grader.exercises import registry

MAX_ANSWERS = 100  # per learner; there are fewer exercises
MAX_BYTES = 100 * 2**20  # the total size of a learner's files
_KINDS = (*find.SUFFIXES, submission_file.SUFFIX)
_NO_ANSWER = "it is not a notebook, a Python file or a file from `submit`"


class CollectError(Exception):
    """Raised if there is nothing to grade; the message gives the reason and the next step."""


@dataclass(frozen=True)
class Submission:
    """An answer that a learner handed in, in one file.

    Attributes:
      learner: the learner who handed it in.
      name: the file's name.
      content: the content of the file.
      exercise: the exercise whose answer to look for; None for the only one in the file.
    """

    learner: str
    name: str
    content: bytes
    exercise: str | None = None

    @property
    def digest(self) -> str:
        """A hash that identifies the submission."""
        about = repr((self.learner, self.name, self.exercise)).encode()
        return hashlib.sha256(about + b"\0" + self.content).hexdigest()


@dataclass(frozen=True)
class Refused:
    """A file, or a part of one, that is not graded, and the reason as words that follow "could not be judged: "."""

    learner: str
    name: str
    reason: str
    exercise: str | None = None


class _Snapshot:
    """The contents of files at the time when they were found, in an unnamed temporary file that is deleted when
    unused."""

    def __init__(self) -> None:
        # /tmp may be in memory, which a class's files could fill, so /var/tmp is preferred.
        self._file, name = tempfile.mkstemp(dir="/var/tmp" if os.access("/var/tmp", os.W_OK) else None)
        os.unlink(name)
        weakref.finalize(self, os.close, self._file)
        self._end = 0

    def keep(self, content: bytes) -> "_Kept":
        """Append content and return a reference to it. Raises OSError if the disk is full."""
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
    """A reference to a file's content in a snapshot."""

    snapshot: _Snapshot
    start: int
    size: int

    def read(self) -> bytes:
        return self.snapshot.read(self.start, self.size)


@dataclass(frozen=True)
class File:
    """A file that was handed in: the learner, its name, its content or the reason why it cannot be read, and its path
    in the learner's folder."""

    learner: str
    name: str
    content: _Kept | Unreadable
    path: str


@dataclass(frozen=True)
class NotGraded:
    """A file, or a folder with all its contents, that has no grade, and the reason. `learner` is "" if it is not in a
    learner's folder."""

    learner: str
    path: str
    reason: str


@dataclass
class Class:
    """The files that a class handed in.

    Attributes:
      learners: the learners who have a file or a folder.
      files: the files that may contain answers.
      not_graded: all other files.
    """

    learners: list[str] = field(default_factory=list)
    files: list[File] = field(default_factory=list)
    not_graded: list[NotGraded] = field(default_factory=list)

    @property
    def unreadable(self) -> dict[str, str]:
        """Maps learners with an unreadable file or folder to the first such file and the reason."""
        return {
            file.learner: f"{file.name}, since {file.content.reason}"
            for file in reversed(self.files)
            if isinstance(file.content, Unreadable)
        }

    def answers(self, exercise: str | None = None) -> list["Listed | Refused | NotGraded"]:
        """Return the answers in the files, or the reasons why there are none. Every file is in the list.

        Args:
          exercise: the exercise whose answers to return; None for all exercises.
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
    """An answer that can be graded, with a reference to its content, because the answers of a class may not fit in
    memory.

    Attributes:
      learner, name, exercise, digest: as for the submission.
      content: the content at the time when the submission was listed.
    """

    learner: str
    name: str
    exercise: str | None
    digest: str
    content: _Kept

    @classmethod
    def of(cls, submission: Submission, file: File) -> "Listed":
        """Return the listed answer for a submission that was found in a file."""
        assert isinstance(file.content, _Kept), "it has been read"
        # A file with many answers is parsed once, not again for each answer.
        kept = file.content.snapshot.keep(submission.content) if _is_of_submit(file) else file.content
        return cls(submission.learner, submission.name, submission.exercise, submission.digest, kept)

    def read(self) -> Submission:
        """Return the submission."""
        return Submission(self.learner, self.name, self.content.read(), self.exercise)


def collect(place: Path) -> Class:
    """Find the learners and their files, and read the files that may contain answers. Links are not followed.

    Args:
      place: a folder or a zip file.

    Raises:
      CollectError: if it is neither, or cannot be read.
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
    """Add a file or folder to the class. `sizes` counts the bytes of each learner's files."""
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
        if PurePosixPath(entry.parts[-1]).suffix.lower() in _KINDS or isinstance(content, Unreadable):
            kept, taken = _keep_content(content, snapshot, MAX_BYTES - sizes[learner])
            sizes[learner] += taken
            found.files.append(File(learner, parts[-1], kept, path))
        else:
            found.not_graded.append(NotGraded(learner, path, _NO_ANSWER))


def _keep_content(
    content: OnDisk | InZip | Unreadable, snapshot: _Snapshot, limit: int
) -> tuple[_Kept | Unreadable, int]:
    """Return the content, or the reason why it cannot be read, and the number of bytes to count for the learner."""
    if isinstance(content, Unreadable):
        return content, 0
    try:
        whole = content.read(limit)
    except OverLimit:
        return Unreadable(f"the learner's files have more than {MAX_BYTES // 2**20} MiB in total"), 0
    except TooLarge as error:
        return Unreadable(str(error)), 0
    # Unpacking a damaged file takes as long as unpacking an intact one, so its bytes count.
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).rstrip(".")
        return Unreadable(reason), content.size if isinstance(content, InZip) else 0
    try:
        return snapshot.keep(whole), len(whole)
    except OSError as error:
        raise CollectError(
            f"The submissions cannot be copied ({error.strerror}). Free some space in /var/tmp, and check `ulimit -f`."
        ) from None


def _is_of_submit(file: File) -> bool:
    """Return whether `submit` may have written the file, which can then contain several answers."""
    return file.name.lower().endswith(submission_file.SUFFIX)


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
        with contextlib.suppress(UnicodeEncodeError):  # JSON can contain an unpaired surrogate, which has no encoding
            source = answer.source.encode()
        if source:
            yield Submission(file.learner, f"{answer.exercise}.py", source, answer.exercise)
        else:
            yield Refused(file.learner, file.name, "it has no text for this answer", answer.exercise)
