"""Lists the files in an untrusted folder or zip, without unpacking anything or following links."""

import os
import stat
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

MAX_FILE = 20 * 2**20  # bytes; a page with its pictures has less than one million
MAX_ENTRIES = 10_000  # files of one learner's, whatever they are
# What systems leave behind beside the files that people made.
LITTER = {".DS_Store", ".ipynb_checkpoints", "Thumbs.db", "__MACOSX", "__pycache__", "desktop.ini"}


@dataclass(frozen=True)
class OnDisk:
    """A file in a folder."""

    path: str

    def read(self) -> bytes:
        """What is in it. Raises OSError or ValueError, which say why that cannot be had."""
        # It may be a pipe, which is never done, or have become a link since.
        with open(os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ValueError("it is not a file")
            return _whole(file, status.st_size)


@dataclass(frozen=True)
class InZip:
    """A file in a zip."""

    archive: zipfile.ZipFile
    member: zipfile.ZipInfo

    def read(self) -> bytes:
        """What is in it. Raises ValueError, which says why that cannot be had."""
        try:
            with self.archive.open(self.member) as file:
                return _whole(file, self.member.file_size)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
            raise ValueError(f"the zip does not give it out ({readable(str(error))})") from None


@dataclass(frozen=True)
class Unreadable:
    """Something that is not read, and why: words that follow on "could not be judged"."""

    reason: str


_LINK = Unreadable("it is a link, and links are not followed")
_LEADS_OUT = Unreadable("its place in the zip leads out of the folder")
_PACKED = Unreadable("it is a zip in the folder: unpack it there")


@dataclass(frozen=True)
class Entry:
    """One thing that is there: its place, in parts, the first of which is a learner's; and its content, None for a
    folder."""

    parts: tuple[str, ...]
    content: OnDisk | InZip | Unreadable | None


def entries(place: Path) -> Iterator[Entry]:
    """Everything in a folder or a zip, in the folder `submitted` if there is one, as nbgrader has it.

    Raises:
      OSError, ValueError, NotImplementedError, zipfile.BadZipFile: it is neither, or cannot be read.
    """
    return _in_folder(place) if place.is_dir() else _in_zip(place)


def readable(name: str) -> str:
    """A name with whatever cannot be printed, or is no Unicode, written as Python does; two names stay two."""
    return repr(name)[1:-1]


def _too_many() -> Unreadable:
    return Unreadable(f"there are more than {MAX_ENTRIES:,} files; the others were not looked at")


def _whole(file: IO[bytes], size: int) -> bytes:
    """What is in a file that says it has so many bytes."""
    content = file.read(MAX_FILE + 1) if size <= MAX_FILE else b""
    if max(size, len(content)) > MAX_FILE:
        raise ValueError(f"it has {max(size, len(content)):,} bytes; at most {MAX_FILE:,} are read")
    return content


def _in_folder(folder: Path) -> Iterator[Entry]:
    inner = folder / "submitted"
    if inner.is_dir() and not inner.is_symlink():
        folder = inner
    return _walk(folder, sorted(os.listdir(folder)))


def _walk(folder: Path, names: list[str]) -> Iterator[Entry]:
    for name in names:
        count = 0
        todo: list[tuple[str, ...]] = [(name,)]
        while todo:
            parts = todo.pop()
            path = os.path.join(folder, *parts)
            place = parts
            count += 1
            if count > MAX_ENTRIES:
                yield Entry((name, ""), _too_many())
                break
            try:
                mode = os.lstat(path).st_mode
                if not stat.S_ISDIR(mode):
                    yield Entry(parts, _on_disk(path, parts[-1], mode))
                    continue
                yield Entry(parts, None)
                place = *parts, parts[-1]
                if not parts[-1].startswith("."):
                    todo += [(*parts, inner) for inner in sorted(os.listdir(path), reverse=True)]
            except OSError as error:  # a name too long, no permission
                yield Entry(place, Unreadable(error.strerror or str(error)))


def _on_disk(path: str, name: str, mode: int) -> OnDisk | Unreadable:
    if stat.S_ISLNK(mode):
        return _LINK
    return _PACKED if name.endswith(".zip") else OnDisk(path)


_Members = list[tuple[PurePosixPath, zipfile.ZipInfo]]


def _in_zip(place: Path) -> Iterator[Entry]:
    archive = zipfile.ZipFile(place)  # left open: what is in it is read later
    members = [(PurePosixPath(info.filename.replace("\\", "/")), info) for info in archive.infolist()]
    tops = {path.parts[0] for path, _ in members if path.parts} - LITTER
    if tops == {place.stem}:  # whoever packs a folder gets that folder in the zip
        members = _inside(place.stem, members)
    return _members(archive, _inside("submitted", members) or members)


def _inside(folder: str, members: _Members) -> _Members:
    return [(path.relative_to(folder), info) for path, info in members if path.parts[:1] == (folder,) != path.parts]


def _members(archive: zipfile.ZipFile, members: _Members) -> Iterator[Entry]:
    counts: Counter[str] = Counter()
    for path, info in members:
        parts = tuple(part for part in path.parts if part not in ("/", "//", ".."))
        if not parts:
            if path.parts:
                yield Entry((path.name or "/",) * 2, _LEADS_OUT)
            continue
        counts[parts[0]] += 1
        if counts[parts[0]] > MAX_ENTRIES:
            if counts[parts[0]] == MAX_ENTRIES + 1:
                yield Entry((parts[0], ""), _too_many())
        elif parts != path.parts:
            yield Entry(parts, _LEADS_OUT)
        elif info.is_dir():
            yield Entry(parts, None)
        else:
            yield Entry(parts, _packed(archive, info, parts[-1]))


def _packed(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> InZip | Unreadable:
    if stat.S_ISLNK(info.external_attr >> 16):
        return _LINK
    return _PACKED if name.endswith(".zip") else InZip(archive, info)
