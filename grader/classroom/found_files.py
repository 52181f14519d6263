"""Lists the files in an untrusted folder or zip, without unpacking anything or following links.

A folder is walked by descriptors, each component opened for itself and never through a link: what is swapped for a link
meanwhile is refused, wherever on the way it stands.
"""

import contextlib
import os
import stat
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

MAX_FILE = 20 * 2**20  # bytes; a page with its pictures has less than one million
MAX_ENTRIES = 10_000  # files of one learner's, whatever they are
MAX_DEPTH = 40  # folders in folders
# What systems leave behind beside the files that people made.
LITTER = {".DS_Store", ".ipynb_checkpoints", "Thumbs.db", "__MACOSX", "__pycache__", "desktop.ini"}


@dataclass(frozen=True)
class OnDisk:
    """A file in a folder: the descriptor of the folder that is walked, and the way from there."""

    root: int
    parts: tuple[str, ...]

    def read(self, room: int) -> bytes:
        """What is in it, while the walk that found it goes on, if that is no more than there is room for. Raises
        OSError or ValueError, which say why that cannot be had; `TooLarge` and `NoRoom` before it is read."""
        # It may be a pipe, which is never done.
        with (
            _opened(self.root, self.parts[:-1]) as folder,
            open(os.open(self.parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder), "rb") as file,
        ):
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ValueError(_NO_FILE.reason)
            return _whole(file, status.st_size, room)


@contextlib.contextmanager
def _opened(root: int, parts: tuple[str, ...]) -> Iterator[int]:
    """A descriptor of a folder within another one. Raises OSError if a link is on the way."""
    folder = os.dup(root)
    try:
        for part in parts:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


@dataclass(frozen=True)
class InZip:
    """A file in a zip."""

    archive: zipfile.ZipFile
    member: zipfile.ZipInfo

    @property
    def size(self) -> int:
        """The bytes that it has, as the zip says; no more than these are unpacked."""
        return self.member.file_size

    def read(self, room: int) -> bytes:
        """As `OnDisk.read`; it is ValueError."""
        try:
            with self.archive.open(self.member) as file:
                return _whole(file, self.size, room)
        except (TooLarge, NoRoom):
            raise
        # Every way of packing has errors of its own (zlib's, LZMA's, those to come), and what a stranger packed may
        # run into any of them.
        except Exception as error:
            said = readable(str(error)) or type(error).__name__
            raise ValueError(f"the zip does not give it out ({said})") from None


class TooLarge(ValueError):
    """The file is larger than what is read."""


class NoRoom(ValueError):
    """The file is larger than what is left of its learner's room."""


@dataclass(frozen=True)
class Unreadable:
    """Something that is not read, and why: words that follow on "could not be judged"."""

    reason: str


_LINK = Unreadable("it is a link, and links are not followed")
_NO_FILE = Unreadable("it is not a file")
_LEADS_OUT = Unreadable("its place in the zip leads out of the folder")
_NO_NAME = Unreadable("its name in the zip is none that a file can have")
_TOO_DEEP = Unreadable(f"there are folders in folders, more than {MAX_DEPTH} deep; what is in them was not looked at")
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


def _whole(file: IO[bytes], size: int, room: int) -> bytes:
    """What is in a file that says it has so many bytes."""
    if MAX_FILE >= size > room:
        raise NoRoom
    content = file.read(MAX_FILE + 1) if size <= MAX_FILE else b""
    if max(size, len(content)) > MAX_FILE:
        raise TooLarge(f"it has {max(size, len(content)):,} bytes; at most {MAX_FILE:,} are read")
    return content


def _in_folder(folder: Path) -> Iterator[Entry]:
    root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)  # the instructor's own words: this may be a link
    with contextlib.suppress(OSError):
        inner = os.open("submitted", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=root)
        os.close(root)
        root = inner
    try:
        names = sorted(os.listdir(root))
    except OSError:
        os.close(root)
        raise
    return _walk(root, names)


def _walk(root: int, names: list[str]) -> Iterator[Entry]:
    try:
        for name in names:
            yield from _of_learner(root, name)
    finally:
        os.close(root)


def _of_learner(root: int, name: str) -> Iterator[Entry]:
    count = 0
    todo: list[tuple[str, ...]] = [(name,)]
    while todo:
        parts = todo.pop()
        place = parts
        count += 1
        if count > MAX_ENTRIES:
            yield Entry((name, ""), _too_many())
            return
        try:
            with _opened(root, parts[:-1]) as folder:
                mode = os.stat(parts[-1], dir_fd=folder, follow_symlinks=False).st_mode
            if not stat.S_ISDIR(mode):
                yield Entry(parts, _on_disk(root, parts, mode))
                continue
            yield Entry(parts, None)
            place = *parts, parts[-1]
            if len(parts) > MAX_DEPTH:
                yield Entry(place, _TOO_DEEP)
            elif not parts[-1].startswith("."):
                with _opened(root, parts) as folder:
                    todo += [(*parts, inner) for inner in sorted(os.listdir(folder), reverse=True)]
        except OSError as error:  # a name too long, no permission, a link where a folder was
            yield Entry(place, Unreadable(error.strerror or str(error)))


def _on_disk(root: int, parts: tuple[str, ...], mode: int) -> OnDisk | Unreadable:
    if stat.S_ISLNK(mode):
        return _LINK
    if not stat.S_ISREG(mode):  # to open a pipe or a device may do something already
        return _NO_FILE
    return _PACKED if parts[-1].endswith(".zip") else OnDisk(root, parts)


_Members = list[tuple[PurePosixPath, zipfile.ZipInfo]]


def _in_zip(place: Path) -> Iterator[Entry]:
    archive = zipfile.ZipFile(place)
    members = [(PurePosixPath(_name(info).replace("\\", "/")), info) for info in archive.infolist()]
    tops = {path.parts[0] for path, _ in members if path.parts} - LITTER
    if tops == {place.stem}:  # whoever packs a folder gets that folder in the zip
        members = _inside(place.stem, members)
    return _members(archive, _inside("submitted", members) or members)


def _name(info: zipfile.ZipInfo) -> str:
    """A member's name as it was packed: zipfile leaves out a NUL and what is behind it."""
    return info.orig_filename if "\0" in info.orig_filename else info.filename


def _inside(folder: str, members: _Members) -> _Members:
    return [(path.relative_to(folder), info) for path, info in members if path.parts[:1] == (folder,) != path.parts]


def _members(archive: zipfile.ZipFile, members: _Members) -> Iterator[Entry]:
    with archive:
        yield from _each(archive, members)


def _each(archive: zipfile.ZipFile, members: _Members) -> Iterator[Entry]:
    counts: Counter[str] = Counter()
    for path, info in members:
        parts = tuple(part for part in path.parts if part not in ("/", "//", ".."))
        folder = info.is_dir() and not info.file_size  # a name alone makes none of what holds something
        if not parts:
            if path.parts or not folder:
                yield Entry((path.name or _name(info) or "(no name)",) * 2, _LEADS_OUT if path.parts else _NO_NAME)
            continue
        counts[parts[0]] += 1
        if counts[parts[0]] > MAX_ENTRIES:
            if counts[parts[0]] == MAX_ENTRIES + 1:
                yield Entry((parts[0], ""), _too_many())
        elif parts != path.parts:
            yield Entry(parts, _LEADS_OUT)
        elif "\0" in str(path) or (info.is_dir() and not folder):
            yield Entry(parts, _NO_NAME)
        elif folder:
            yield Entry(parts, None)
        else:
            yield Entry(parts, _packed(archive, info, parts[-1]))


def _packed(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> InZip | Unreadable:
    if stat.S_ISLNK(info.external_attr >> 16):
        return _LINK
    return _PACKED if name.endswith(".zip") else InZip(archive, info)
