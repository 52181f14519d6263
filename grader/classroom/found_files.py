"""List the files in an untrusted folder or zip file, without unpacking anything or following links.

Folders are walked with file descriptors. Each component of a path is opened separately and never through a link, so a
folder that is replaced by a link during the walk is refused.
"""

import contextlib
import os
import stat
import zipfile
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

MAX_FILE = 20 * 2**20  # bytes; a page with its pictures has less than one million bytes
MAX_ENTRIES = 10_000  # files per learner, of any kind
MAX_DEPTH = 40  # levels of nested folders
# Files and folders that systems and editors create.
LITTER = {".DS_Store", ".ipynb_checkpoints", "Thumbs.db", "__MACOSX", "__pycache__", "desktop.ini"}

# The files and folders of nbgrader next to `submitted` in a course's folder.
_NBGRADER = {
    *("autograded", "downloaded", "feedback", "gradebook.db", "grades.csv", "nbgrader_config.py", "release", "source")
}
_SUBMITTED = "submitted"


@dataclass(frozen=True)
class OnDisk:
    """A file in a folder: the file descriptor of the top folder, and the path from there."""

    root: int
    parts: tuple[str, ...]

    def read(self, limit: int) -> bytes:
        """Return the content, if it has at most `limit` bytes. Call this during the walk that found the file. Raises
        OSError or ValueError with the reason if it cannot be read; `TooLarge` and `OverLimit` are raised before the
        file is read."""
        # Non-blocking, because the file may be a pipe, which could block forever.
        with (
            _open_folder(self.root, self.parts[:-1]) as folder,
            open(os.open(self.parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder), "rb") as file,
        ):
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ValueError(_NO_FILE.reason)
            return _read_whole(file, status.st_size, limit)


@contextlib.contextmanager
def _open_folder(root: int, parts: tuple[str, ...]) -> Iterator[int]:
    """Open a folder inside another folder, and provide its descriptor. Raises OSError if the path contains a link."""
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
    """A file in a zip file."""

    archive: zipfile.ZipFile
    member: zipfile.ZipInfo

    @property
    def size(self) -> int:
        """The number of bytes that the zip file states. No more bytes than these are unpacked."""
        return self.member.file_size

    def read(self, limit: int) -> bytes:
        """Do the same as `OnDisk.read`. Raises only ValueError."""
        try:
            with self.archive.open(self.member) as file:
                return _read_whole(file, self.size, limit)
        except (TooLarge, OverLimit):
            raise
        # Each compression method raises its own errors (zlib, LZMA, future ones), and an untrusted file may cause any
        # of them.
        except Exception as error:
            reason = readable(str(error)) or type(error).__name__
            raise ValueError(f"it cannot be read from the zip file ({reason})") from None


class TooLarge(ValueError):
    """Raised for a file that is larger than `MAX_FILE`."""


class OverLimit(ValueError):
    """Raised for a file that exceeds the remaining bytes of its learner."""


@dataclass(frozen=True)
class Unreadable:
    """The reason why something cannot be read, as words that follow "could not be judged: "."""

    reason: str


@dataclass(frozen=True)
class Aside:
    """The reason why a file, or a folder with all its contents, is skipped."""

    reason: str


_IS_NBGRADERS = Aside("it belongs to nbgrader's course folder, not to a learner")
_IS_LITTER = Aside("the operating system or an editor created it")
_IS_HIDDEN = Aside("its name begins with a dot")
_LINK = Unreadable("it is a link, and links are not followed")
_NO_FILE = Unreadable("it is not a file")
_LEADS_OUT = Unreadable("its path in the zip file points outside the folder")
_NO_NAME = Unreadable("its name in the zip file is not a valid file name")
_TOO_DEEP = Unreadable(f"folders are nested more than {MAX_DEPTH} levels deep; deeper ones were not read")
_PACKED = Unreadable("it is a zip file inside the folder: unpack it there")


@dataclass(frozen=True)
class Entry:
    """One file or folder: its path, in parts, the first of which is a learner's; and its content, None for a
    folder."""

    parts: tuple[str, ...]
    content: OnDisk | InZip | Unreadable | Aside | None


def entries(place: Path) -> Iterator[Entry]:
    """Yield the files and folders in a folder or a zip file. In nbgrader's course folder, the learners are in the
    folder `submitted`.

    Raises:
      OSError, ValueError, NotImplementedError, zipfile.BadZipFile: if `place` is neither, or cannot be read.
    """
    told = set()
    for entry in _folder_entries(place) if place.is_dir() else _entries_in_zip(place):
        if (aside := _skipped_parent(entry)) is None:
            yield entry
        elif aside.parts not in told:
            told.add(aside.parts)
            yield aside


def _skipped_parent(entry: Entry) -> Entry | None:
    """Return the first part of an entry's path that is skipped; None if no part is skipped."""
    for place, part in enumerate(entry.parts):
        if part in LITTER or part.startswith("."):
            return Entry(entry.parts[: place + 1], _IS_LITTER if part in LITTER else _IS_HIDDEN)
    return None


def _is_nbgraders(names: Iterable[str], folders: Container[str]) -> bool:
    """Return whether a folder with these names is nbgrader's course folder, and not a class with a learner
    `submitted`."""
    others = [name for name in names if name != _SUBMITTED and name not in _NBGRADER]
    folder = [name for name in others if not (name in LITTER or name.startswith("."))]
    return _SUBMITTED in folders and not folder


def readable(name: str) -> str:
    """Return a name with unprintable and invalid characters escaped as in Python. Different names stay different."""
    return repr(name)[1:-1]


def _too_many() -> Unreadable:
    return Unreadable(f"there are more than {MAX_ENTRIES:,} files; the others were not read")


def _read_whole(file: IO[bytes], size: int, limit: int) -> bytes:
    """Read a file whose size is stated as `size` bytes."""
    if MAX_FILE >= size > limit:
        raise OverLimit
    content = file.read(MAX_FILE + 1) if size <= MAX_FILE else b""
    if max(size, len(content)) > MAX_FILE:
        raise TooLarge(f"it has {max(size, len(content)):,} bytes; at most {MAX_FILE:,} are read")
    return content


def _folder_entries(folder: Path) -> Iterator[Entry]:
    root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)  # the instructor chose this path, so it may be a link
    try:
        names = sorted(os.listdir(root))
        folders = {name for name in names if _is_folder(root, name)}
        if _is_nbgraders(names, folders):
            yield from (Entry((name,), _IS_NBGRADERS) for name in names if name != _SUBMITTED)
            inner = os.open(_SUBMITTED, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=root)
            os.close(root)
            root = inner
            names = sorted(os.listdir(root))
        for name in names:
            yield from _learner_entries(root, name)
    finally:
        os.close(root)


def _is_folder(root: int, name: str) -> bool:
    with contextlib.suppress(OSError):  # it has been deleted
        return stat.S_ISDIR(os.stat(name, dir_fd=root, follow_symlinks=False).st_mode)
    return False


def _learner_entries(root: int, name: str) -> Iterator[Entry]:
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
            with _open_folder(root, parts[:-1]) as folder:
                mode = os.stat(parts[-1], dir_fd=folder, follow_symlinks=False).st_mode
            if not stat.S_ISDIR(mode):
                yield Entry(parts, _file_on_disk(root, parts, mode))
                continue
            yield Entry(parts, None)
            place = *parts, parts[-1]
            if len(parts) > MAX_DEPTH:
                yield Entry(place, _TOO_DEEP)
            elif not _skipped_parent(Entry(parts, None)):
                with _open_folder(root, parts) as folder:
                    todo += [(*parts, inner) for inner in sorted(os.listdir(folder), reverse=True)]
        except OSError as error:  # for example a name that is too long, no permission, or a link that replaced a folder
            yield Entry(place, Unreadable(error.strerror or str(error)))


def _file_on_disk(root: int, parts: tuple[str, ...], mode: int) -> OnDisk | Unreadable:
    if stat.S_ISLNK(mode):
        return _LINK
    if not stat.S_ISREG(mode):  # merely opening a pipe or a device can have an effect
        return _NO_FILE
    return _PACKED if parts[-1].lower().endswith(".zip") else OnDisk(root, parts)


_Members = list[tuple[PurePosixPath, zipfile.ZipInfo]]


def _entries_in_zip(place: Path) -> Iterator[Entry]:
    with zipfile.ZipFile(place) as archive:
        members = [(PurePosixPath(_packed_name(info).replace("\\", "/")), info) for info in archive.infolist()]
        tops, folders = _top_names(members)
        # Packing a folder usually puts this folder into the zip file.
        if folders - LITTER == {place.stem} == tops - LITTER:
            members = _unwrap_folder(place.stem, members)
            tops, folders = _top_names(members)
        if _is_nbgraders(tops, folders):
            yield from (Entry((name,), _IS_NBGRADERS) for name in sorted(tops - {_SUBMITTED}))
            members = _unwrap_folder(_SUBMITTED, members)
        yield from _zip_entries(archive, members)


def _top_names(members: _Members) -> tuple[set[str], set[str]]:
    """Return the names at the top level of a zip file, and those names that are only folders."""
    tops = {path.parts[0] for path, _ in members if path.parts}
    return tops, tops - {path.parts[0] for path, info in members if len(path.parts) == 1 and not info.is_dir()}


def _packed_name(info: zipfile.ZipInfo) -> str:
    """Return the original name of a member. zipfile's `filename` omits a NUL and all characters after it."""
    return info.orig_filename if "\0" in info.orig_filename else info.filename


def _unwrap_folder(folder: str, members: _Members) -> _Members:
    """Return the members of a folder, preceded by the skipped members at the top level."""
    aside = [member for member in members if member[0].parts and _skipped_parent(Entry(member[0].parts[:1], None))]
    inside = [(path.relative_to(folder), info) for path, info in members if path.parts[:1] == (folder,) != path.parts]
    return aside + inside


def _zip_entries(archive: zipfile.ZipFile, members: _Members) -> Iterator[Entry]:
    counts: Counter[str] = Counter()
    for path, info in members:
        parts = tuple(part for part in path.parts if part not in ("/", "//", ".."))
        folder = info.is_dir() and not info.file_size  # a member with content is not a folder, whatever its name
        if not parts:
            if path.parts or not folder:
                yield Entry(
                    (path.name or _packed_name(info) or "(no name)",) * 2, _LEADS_OUT if path.parts else _NO_NAME
                )
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
            yield Entry(parts, _packed_file(archive, info, parts[-1]))


def _packed_file(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> InZip | Unreadable:
    if stat.S_ISLNK(info.external_attr >> 16):
        return _LINK
    return _PACKED if name.lower().endswith(".zip") else InZip(archive, info)
