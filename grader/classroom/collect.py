"""Find what a class handed in, in a folder or a zip that nobody has looked into.

    ada/answer.py, ada/page.ipynb, ada/remat-workbook.json   a folder for each learner
    ada.ipynb                                                or a file with the learner's name
    submitted/ada/recompute/page.ipynb                       or nbgrader's folders

Nothing is lost in silence: what is there but cannot be read has a reason, and what is no answer is listed.
"""

import contextlib
import hashlib
import os
import stat
import zipfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from grader.answers import handin_file

MAX_FILE = 20 * 2**20  # bytes; a page with its pictures has less than one million
MAX_ANSWERS = 100  # of one learner's; there are fewer exercises
_MAX_ENTRIES = 10_000  # files of one learner's, whatever they are
_KINDS = (".ipynb", ".py", ".json")
# What systems leave behind beside the files that people made.
_LITTER = {".DS_Store", ".ipynb_checkpoints", "Thumbs.db", "__MACOSX", "__pycache__", "desktop.ini"}


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


@dataclass(frozen=True)
class File:
    """A file that was handed in: whose it is, its name there, and what reads it or raises ValueError or OSError."""

    learner: str
    name: str
    content: Callable[[], bytes]


@dataclass
class Class:
    """What a class handed in.

    Attributes:
      learners: everybody who has a file or a folder there, with the names of what is no answer.
      files: the files that may hold answers.
      aside: what belongs to nobody.
    """

    learners: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    files: list[File] = field(default_factory=list)
    aside: list[str] = field(default_factory=list)

    def submissions(self, exercise: str | None = None) -> Iterator[Submission | Refused]:
        """Reads the files one after the other: what they hold, or why that cannot be had.

        Args:
          exercise: what answers this one only; None for all of them.
        """
        answers = Counter()
        for file in self.files:
            for found in _read(file, exercise):
                answers[file.learner] += 1
                if answers[file.learner] > MAX_ANSWERS:
                    break
                yield found
        for learner, count in answers.items():
            if count > MAX_ANSWERS:
                yield Refused(learner, "", f"there are more than {MAX_ANSWERS} answers; the others were not graded")


def collect(place: Path) -> Class:
    """Finds the learners and their files. Nothing is unpacked, and links are not followed.

    Args:
      place: a folder or a zip.

    Raises:
      CollectError: it is neither, or cannot be read.
    """
    try:
        entries = _in_folder(place) if place.is_dir() else _in_zip(place)
    except FileNotFoundError:
        raise CollectError(f"There is no {place}: check its name and the folder you are in.") from None
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError):
        raise CollectError(f"{place} is neither a folder nor a zip that can be read: name one of those.") from None
    found = Class()
    for parts, content in entries:
        if parts[0] in _LITTER or parts[0].startswith("."):
            if parts[0] not in _LITTER:
                found.aside.append(_readable(parts[0]))
            continue
        alone = len(parts) == 1 and content is not None
        learner = _readable(PurePosixPath(parts[0]).stem if alone else parts[0])
        others = found.learners[learner]
        if content is None or _LITTER.intersection(parts):
            continue
        name = parts[-1]
        if name.startswith(".") or (PurePosixPath(name).suffix not in _KINDS and content not in _REFUSALS):
            others.append(_readable(name))
        else:
            found.files.append(File(learner, _readable(name), content))
    if not found.learners:
        raise CollectError(f"{place} holds no learner's folder or file: name the folder that those are in.")
    found.aside = sorted({*found.aside})
    return found


# A file's or folder's place, in parts, and what reads it; None for a folder.
_Entry = tuple[tuple[str, ...], Callable[[], bytes] | None]


def _refusal(reason: str) -> Callable[[], bytes]:
    def refuse() -> bytes:
        raise ValueError(reason)

    return refuse


_LINK = _refusal("it is a link, and links are not followed")
_LEADS_OUT = _refusal("its place in the zip leads out of the folder")
_TOO_MANY = _refusal(f"there are more than {_MAX_ENTRIES:,} files; the others were not looked at")
_PACKED = _refusal("it is a zip in the folder: unpack it there")
_REFUSALS = {_LINK, _LEADS_OUT, _TOO_MANY, _PACKED}


def _in_folder(folder: Path) -> Iterator[_Entry]:
    inner = folder / "submitted"
    if inner.is_dir() and not inner.is_symlink():
        folder = inner
    return _walk(folder, sorted(os.listdir(folder)))


def _walk(folder: Path, names: list[str]) -> Iterator[_Entry]:
    for name in names:
        count, todo = 0, [(name,)]
        while todo:
            parts = todo.pop()
            path, place = os.path.join(folder, *parts), parts
            count += 1
            if count > _MAX_ENTRIES:
                yield (name, ""), _TOO_MANY
                break
            try:
                mode = os.lstat(path).st_mode
                if not stat.S_ISDIR(mode):
                    yield parts, _content_of(path, parts[-1], mode)
                    continue
                yield parts, None
                place = *parts, parts[-1]
                if not parts[-1].startswith("."):
                    todo += [(*parts, inner) for inner in sorted(os.listdir(path), reverse=True)]
            except OSError as error:  # a name too long, no permission
                yield place, _refusal(error.strerror or str(error))


def _content_of(path: str, name: str, mode: int) -> Callable[[], bytes]:
    if stat.S_ISLNK(mode):
        return _LINK
    if name.endswith(".zip"):
        return _PACKED

    def read() -> bytes:
        # It may be a pipe, which is never done, or have become a link since.
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ValueError("it is not a file")
            return _whole(file, status.st_size)

    return read


def _whole(file, size: int) -> bytes:
    """What is in a file that says it has so many bytes."""
    content = file.read(MAX_FILE + 1) if size <= MAX_FILE else b""
    if max(size, len(content)) > MAX_FILE:
        raise ValueError(f"it has {max(size, len(content)):,} bytes; at most {MAX_FILE:,} are read")
    return content


def _in_zip(place: Path) -> Iterator[_Entry]:
    archive = zipfile.ZipFile(place)  # left open: what is in it is read later
    members = [(PurePosixPath(info.filename.replace("\\", "/")), info) for info in archive.infolist()]
    tops = {path.parts[0] for path, _ in members if path.parts} - _LITTER
    if tops == {place.stem}:  # whoever packs a folder gets that folder in the zip
        members = _inside(place.stem, members)
    return _members(archive, _inside("submitted", members) or members)


_Members = list[tuple[PurePosixPath, zipfile.ZipInfo]]


def _inside(folder: str, members: _Members) -> _Members:
    return [(path.relative_to(folder), info) for path, info in members if path.parts[:1] == (folder,) != path.parts]


def _members(archive: zipfile.ZipFile, members: _Members) -> Iterator[_Entry]:
    counts = Counter()
    for path, info in members:
        parts = tuple(part for part in path.parts if part not in ("/", "//", ".."))
        if not parts:
            if path.parts:
                yield (path.name or "/",) * 2, _LEADS_OUT
            continue
        counts[parts[0]] += 1
        if counts[parts[0]] > _MAX_ENTRIES:
            if counts[parts[0]] == _MAX_ENTRIES + 1:
                yield (parts[0], ""), _TOO_MANY
        elif parts != path.parts:
            yield parts, _LEADS_OUT
        elif info.is_dir():
            yield parts, None
        else:
            yield parts, _member(archive, info, parts[-1])


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> Callable[[], bytes]:
    if stat.S_ISLNK(info.external_attr >> 16):
        return _LINK
    if name.endswith(".zip"):
        return _PACKED

    def read() -> bytes:
        try:
            with archive.open(info) as file:
                return _whole(file, info.file_size)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
            raise ValueError(f"the zip does not give it out ({_readable(str(error))})") from None

    return read


def _readable(name: str) -> str:
    """A name with whatever cannot be printed, or is no Unicode, written as Python does; two names stay two."""
    return repr(name)[1:-1]


def _read(file: File, exercise: str | None) -> Iterator[Submission | Refused]:
    try:
        content = file.content()
        if not file.name.endswith(".json"):
            yield Submission(file.learner, file.name, content, exercise)
            return
        answers, _ = handin_file.parse(content.decode(), file.name)
    except (OSError, handin_file.HandInError, ValueError) as error:
        said = getattr(error, "strerror", None) or str(error)
        yield Refused(file.learner, file.name, said.rstrip("."), exercise)
        return
    for answer in answers:
        if exercise not in (None, answer.exercise):
            continue
        source = b""
        with contextlib.suppress(UnicodeEncodeError):  # half of a pair of characters, which JSON can spell
            source = answer.source.encode()
        if source:
            yield Submission(file.learner, f"{answer.exercise}.py", source, answer.exercise)
        else:
            yield Refused(file.learner, file.name, "it has no text for this answer", answer.exercise)
