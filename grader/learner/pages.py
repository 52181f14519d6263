"""Find the workbook's pages, as they are and as they were shipped."""

import difflib
import json
import re
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path

from grader.exercises import registry
from grader.util.fresh_files import fresh
from rematscope.render import write_whole

ROOT = Path(__file__).parents[2]
ARCHIVE = Path(__file__).with_name("pages.zip")  # what tests/notebooks/store.py packs
_PAGES = "[0-9][0-9]_*.ipynb"
_CHAPTERS = "notebooks/"  # how their names begin in the archive


@dataclass(frozen=True)
class Page:
    """A chapter or an exercise's page.

    Attributes:
      number: its number among the chapters, or among the exercises.
      title: its headline, with code in backquotes.
      path: its file, which need not be there.
      chapter: for an exercise the number of the last chapter that it needs; None for a chapter.
      minutes: how long it takes, as it says itself; None where it does not.
    """

    number: int
    title: str
    path: Path
    chapter: int | None = None
    minutes: int | None = None

    @property
    def name(self) -> str:
        """The name without the number; for an exercise that of the function to write."""
        return self.path.stem.partition("_")[2]

    @property
    def label(self) -> str:
        """`chapter 4`, `exercise 6`."""
        return f"{'chapter' if self.chapter is None else 'exercise'} {self.number}"


class ResetError(Exception):
    """A page could not be restored; the message says why and what to do. The learner's page is where it was."""


def chapters() -> list[Page]:
    """Return the chapters in the workbook's folder, in their order, without the page to start from."""
    pages = [_read_page(path, path.read_text(encoding="utf-8")) for path in ROOT.glob(f"notebooks/{_PAGES}")]
    return sorted((page for page in pages if page.number), key=lambda page: page.number)


def exercises() -> list[Page]:
    """Return all exercises by their numbers, also those whose pages were deleted."""
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
    """Return the exercise of a name, a number, or a page's path. Raises UnknownExercise, which says what there is.

    A page's name says more than its number: a learner may still have a page from before the exercises were numbered by
    chapters.
    """
    number, name = _number_and_name(Path(str(exercise)).stem)
    known = exercises()
    for page in known:
        if page.name == name or (number and not name and page.number == int(number)):
            return page
    if name in registry.REMOVED:
        instead = next(page for page in known if page.name == registry.REMOVED[name])
        raise registry.UnknownExercise(
            f"The exercise {name} was removed from the workbook; {instead.label}, {instead.name}, replaces it."
        )
    close = difflib.get_close_matches(name, [page.name for page in known], n=1)
    meant = [f"did you mean exercise {page.number}, {page.name}?" for page in known if page.name in close]
    every = "; ".join(f"{page.number}, {page.name}" for page in known)
    raise registry.UnknownExercise(f"There is no exercise {exercise}; {(*meant, f'the exercises are: {every}.')[0]}")


def answered_in(place: str) -> Path:
    """Return the file that is meant where either a file or an exercise may be named: an exercise's name or number
    stands for its page. A file that is there is always meant itself, and so is whatever has a file's suffix, but for a
    page's own name with a number before it: else `06_mine.py`, misspelled, would be the page of exercise 6. Raises
    UnknownExercise."""
    path = Path(place)
    if path.exists():
        return path
    if not path.suffix:
        return find(place).path
    numbered = path.suffix == ".ipynb" and re.fullmatch(r"\d+_(.+)", path.stem)
    return next((page.path for page in exercises() if numbered and page.name == numbered[1]), path)


def is_as_it_came(page: Page) -> bool:
    """Return whether an exercise's page is byte for byte the shipped one."""
    try:
        return page.path.read_bytes() == as_it_came(page)
    except OSError:
        return False


def reset(page: Page) -> Path | None:
    """Restore an exercise's page, and save the learner's page next to it under a new name.

    Returns:
      The path of the learner's saved page; None if there was none.

    Raises:
      ResetError: the files cannot be written.
    """
    kept = None
    try:
        if page.path.exists():
            # A copy first, then the page in one step: at no moment is there less than before.
            kept = fresh(page.path.with_name(f"my_{page.path.name}"))
            shutil.copy2(page.path, kept)
        write_whole(page.path, as_it_came(page))
        return kept
    except OSError as error:
        if kept:
            kept.unlink(missing_ok=True)
        raise ResetError(
            f"{page.path.name} was not restored and is unchanged: {error.strerror or error} ({page.path.parent}). "
            "Check that the disk has free space and that you can write to this folder, then try again."
        ) from None


def _number_and_name(stem: str) -> tuple[str | None, str]:
    """Return the number and the name in a page's stem, or in a copy's: what `reset` kept, or JupyterLab copied."""
    found = re.fullmatch(r"(?:my_)?(?:(\d+)(?:_|$))?(.*?)(?:_\d+|\W.*)?", stem)
    return (found[1], found[2]) if found else (None, stem)


def as_it_came(page: Page) -> bytes:
    """Return a page as the workbook brought it."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        return archive.read(f"{_CHAPTERS * (page.chapter is None)}{page.path.name}")


def _read_page(path: Path, text: str, exercise: bool = False) -> Page:
    try:
        head = "".join(json.loads(text)["cells"][0]["source"])
    except (ValueError, TypeError, LookupError):  # a reader may have broken it
        head = ""
    number = int(path.stem[:2]) if path.stem[:2].isdigit() else 0  # the cheat sheet's
    found = re.match(r"# +(.+)", head)
    title = found[1] if found else f"{number} · {path.stem[3:].replace('_', ' ')}"
    needed = [int(chapter) for chapter in re.findall(r"notebooks/(\d+)_", head)]
    takes = re.search(r"(?:\*About|\|) (\d+) minutes(?:\.\*| \|)", head)
    minutes = int(takes[1]) if takes else None
    return Page(number, title, path, max(needed, default=0) if exercise else None, minutes)
