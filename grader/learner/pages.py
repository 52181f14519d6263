"""Find the workbook's pages, both the learner's and the original ones."""

import difflib
import json
import re
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path

from grader.exercises import registry
from grader.util.fresh_files import create_fresh_file
from rematscope.render import write_whole

ROOT = Path(__file__).parents[2]
ARCHIVE = Path(__file__).with_name("pages.zip")  # tests/notebooks/store.py writes it
_PAGES = "[0-9][0-9]_*.ipynb"
_CHAPTERS = "notebooks/"  # the prefix of their names in the archive


@dataclass(frozen=True)
class Page:
    """A chapter, or the page of an exercise.

    Attributes:
      number: its number among the chapters, or among the exercises.
      title: its heading, with code in backquotes.
      path: its file, which may not exist.
      chapter: for an exercise, the number of the last chapter that it needs; None for a chapter.
      minutes: the time in minutes that the page states; None if it states none.
    """

    number: int
    title: str
    path: Path
    chapter: int | None = None
    minutes: int | None = None

    @property
    def name(self) -> str:
        """The name without the number; for an exercise, this is the name of the function to write."""
        return self.path.stem.partition("_")[2]

    @property
    def label(self) -> str:
        """The page's kind and number, such as `chapter 4` or `exercise 6`."""
        return f"{'chapter' if self.chapter is None else 'exercise'} {self.number}"


class ResetError(Exception):
    """Raised if a page could not be restored; the message gives the reason and the next step. The page is unchanged."""


def chapters() -> list[Page]:
    """Return the chapters in the workbook's folder, in order, without the start page."""
    pages = [_read_page(path, path.read_text(encoding="utf-8")) for path in ROOT.glob(f"notebooks/{_PAGES}")]
    return sorted((page for page in pages if page.number), key=lambda page: page.number)


def exercises() -> list[Page]:
    """Return all exercises by number, including those whose pages were deleted."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        pages = [
            _read_page(ROOT / "exercises" / name, archive.read(name).decode(), exercise=True)
            for name in archive.namelist()
            if name.endswith(".ipynb") and not name.startswith(_CHAPTERS)
        ]
    return sorted(pages, key=lambda page: page.number)


def to_read() -> list[Page]:
    """Return the pages without an exercise: the chapters, the start page and the cheat sheet."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        names = [name for name in archive.namelist() if name.startswith(_CHAPTERS)]
        return [_read_page(ROOT / name, archive.read(name).decode()) for name in names]


def find(exercise: str | int) -> Page:
    """Return the exercise with a name, a number or a page's path. Raises UnknownExercise, which suggests exercises.

    A page's name takes precedence over its number, because a learner may still have a page with an old number.
    """
    number, name = _number_and_name(Path(str(exercise)).stem)
    known = exercises()
    for page in known:
        if page.name == name or (number and not name and page.number == int(number)):
            return page
    if name in registry.REMOVED:
        instead = next(page for page in known if page.name == registry.REMOVED[name])
        raise registry.UnknownExercise(registry.removal(name, replacement=f"{instead.label}, {instead.name},"))
    close = difflib.get_close_matches(name, [page.name for page in known], n=1)
    meant = [f"did you mean exercise {page.number}, {page.name}?" for page in known if page.name in close]
    every = "; ".join(f"{page.number}, {page.name}" for page in known)
    raise registry.UnknownExercise(f"There is no exercise {exercise}; {(*meant, f'the exercises are: {every}.')[0]}")


def answered_in(place: str) -> Path:
    """Return the file that an argument refers to, which may be a file or an exercise. An existing file, or a name with
    a file's suffix, refers to that file. Otherwise, an exercise's name, number or page name refers to its page. So a
    misspelled `06_mine.py` does not refer to the page of exercise 6. Raises UnknownExercise."""
    path = Path(place)
    if path.exists():
        return path
    if not path.suffix:
        return find(place).path
    numbered = path.suffix == ".ipynb" and re.fullmatch(r"\d+_(.+)", path.stem)
    return next((page.path for page in exercises() if numbered and page.name == numbered[1]), path)


def is_unchanged(page: Page) -> bool:
    """Return whether an exercise's page is byte-for-byte identical to the original one."""
    try:
        return page.path.read_bytes() == shipped_page(page)
    except OSError:
        return False


def reset(page: Page) -> Path | None:
    """Restore an exercise's page, and save the learner's page next to it under a new name.

    Returns:
      The path of the learner's saved page; None if there was none.

    Raises:
      ResetError: if the files cannot be written.
    """
    kept = None
    try:
        if page.path.exists():
            # The copy is written first, and the page is replaced in one step, so that nothing is lost at any time.
            kept = create_fresh_file(page.path.with_name(f"my_{page.path.name}"))
            shutil.copy2(page.path, kept)
        write_whole(page.path, shipped_page(page))
        return kept
    except OSError as error:
        if kept:
            kept.unlink(missing_ok=True)
        raise ResetError(
            f"{page.path.name} was not restored and is unchanged: {error.strerror or error} ({page.path.parent}). "
            "Check that the disk has free space and that you can write to this folder, then try again."
        ) from None


def _number_and_name(stem: str) -> tuple[str | None, str]:
    """Return the number and the name in the stem of a page, or of a copy that `reset` or JupyterLab made."""
    found = re.fullmatch(r"(?:my_)?(?:(\d+)(?:_|$))?(.*?)(?:_\d+|\W.*)?", stem)
    return (found[1], found[2]) if found else (None, stem)


def shipped_page(page: Page) -> bytes:
    """Return the original content of a page."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        return archive.read(f"{_CHAPTERS * (page.chapter is None)}{page.path.name}")


def _read_page(path: Path, text: str, exercise: bool = False) -> Page:
    try:
        head = "".join(json.loads(text)["cells"][0]["source"])
    except (ValueError, TypeError, LookupError):  # the file may be damaged
        head = ""
    number = int(path.stem[:2]) if path.stem[:2].isdigit() else 0  # the cheat sheet has no number
    found = re.match(r"# +(.+)", head)
    title = found[1] if found else f"{number} · {path.stem[3:].replace('_', ' ')}"
    needed = [int(chapter) for chapter in re.findall(r"notebooks/(\d+)_", head)]
    takes = re.search(r"(?:\*About|\|) (\d+) minutes(?:\.\*| \|)", head)
    minutes = int(takes[1]) if takes else None
    return Page(number, title, path, max(needed, default=0) if exercise else None, minutes)
