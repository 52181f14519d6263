"""Update a learner's pages to a new version of the workbook without losing anything that they wrote.

The grader contains the fingerprints of all cells that any version of the workbook shipped. A page that consists only of
such cells was not edited by the learner, whichever version it comes from.
"""

import hashlib
import json
import re
import zipfile
from collections.abc import Iterable
from pathlib import Path

from grader.answers import find
from grader.exercises import registry
from grader.learner import pages
from grader.learner.page_text import is_stub, python_file
from grader.learner.pages import Page
from grader.util.fresh_files import create_fresh_file
from rematscope.render import write_whole

SHIPPED = "cells.txt"  # in the pages' archive


class UpdateError(Exception):
    """Raised if a page could not be updated; the message names it and gives the reason and the next step. No work is
    lost."""


def update() -> list[str]:
    """Write this version's page of each exercise and each chapter; pages of this version stay as they are.

    An older page is deleted if the learner did not edit it, whatever its number was. Otherwise it is saved under a new
    name, as by `reset`, and the learner's answer is copied to the new page with the code that it depends on. Chapters
    are written only if their folder exists. The page of a removed exercise is deleted if the learner did not edit it.

    Returns:
      A sentence for each page that changed.

    Raises:
      UpdateError: if the files cannot be written.
    """
    shipped, sentences = shipped_cells(), []
    for page in [*pages.exercises(), *(page for page in pages.to_read() if page.path.parent.is_dir())]:
        try:
            sentences += [*_update_page(page, shipped), *_rename_python_file(page)]
        except OSError as error:
            raise UpdateError(
                f"{page.path.name} was not updated: {error.strerror or error} ({page.path.parent}). Your work is "
                "unchanged. Check that the disk has free space and that you can write to this folder, then try again."
            ) from None
    return sentences + _update_removed(shipped)


def fingerprints(name: str, notebook: bytes) -> list[str]:
    """Return a fingerprint of each cell of a page, which depends on the cell's text but not on its outputs.

    Raises:
      ValueError, TypeError, LookupError: if the text is not a notebook.
    """
    texts = ["".join(cell["source"]) for cell in json.loads(notebook)["cells"]]
    return [_cell_fingerprint(name, text) for text in texts if text.strip()]


def shipped_cells() -> frozenset[str]:
    """Return the fingerprints of the cells of all versions."""
    with zipfile.ZipFile(pages.ARCHIVE) as archive:
        return frozenset(archive.read(SHIPPED).decode().split())


def cells_to_pack(packed: Iterable[Path]) -> str:
    """Return the archive's list of cells: its previous fingerprints, and those of the pages that are being packed."""
    now = {each for path in packed for each in fingerprints(path.stem.partition("_")[2], path.read_bytes())}
    return "".join(f"{each}\n" for each in sorted(now.union(shipped_cells())))


def _cell_fingerprint(name: str, text: str) -> str:
    lines = "\n".join(line.rstrip() for line in text.strip().splitlines())
    return hashlib.sha256(f"{name}\n{lines}".encode()).hexdigest()[:12]


def _update_page(page: Page, shipped: frozenset[str]) -> list[str]:
    named = re.compile(rf"\d+_{page.name}\.ipynb")
    there = sorted(p for p in page.path.parent.glob("*.ipynb") if p == page.path or named.fullmatch(p.name))
    old = [path for path in there if path != page.path or _is_older(page, shipped)]
    if not old and page.path in there:
        return []
    mine = [path for path in old if not _is_untouched(path, page.name, shipped)]
    mine.sort(key=lambda path: path != page.path)  # the answer that was used so far comes first
    answer = next((text for path in mine if (text := _own_answer(path, page))), None)
    free = page.path in old or page.path not in there or _is_untouched(page.path, page.name, shipped)
    answer = answer if free else None  # a page of this version exists and contains work
    kept = list[Path]()
    try:
        for path in mine:
            kept.append(create_fresh_file(page.path.with_name(f"my_{page.path.name}")))
            write_whole(kept[-1], path.read_bytes())
        if free:
            write_whole(page.path, _page_with_answer(answer, page))
    except OSError:
        for path in kept:
            path.unlink(missing_ok=True)
        raise
    for path in old:
        if path != page.path:
            path.unlink()
    before = " and ".join(path.name for path in old if path not in mine and path != page.path)
    whole = " and ".join(path.name for path in kept)
    if answer:
        return [f"{page.path.name} is the new page and contains your answer. Your old page is now {whole}."]
    if whole:
        return [f"{page.path.name} is the new page. Your old page is now {whole}."]
    if not old:
        return [f"{page.path.name} was added."]
    return [
        f"{page.path.name} is the new page{f', in place of {before}' * bool(before)}. You had not changed the old one."
    ]


def _update_removed(shipped: frozenset[str]) -> list[str]:
    """Delete the pages of removed exercises that the learner did not edit, and say which pages are left."""
    sentences = []
    for name in registry.REMOVED:
        for path in sorted((pages.ROOT / "exercises").glob(f"[0-9][0-9]_{name}.ipynb")):
            if untouched := _is_untouched(path, name, shipped):
                path.unlink()
            kept = (
                "Its page, which you had not changed, was deleted." if untouched else f"Your page {path.name} was kept."
            )
            sentences.append(f"{registry.removal(name)} {kept}")
    return sentences


def _rename_python_file(page: Page) -> list[str]:
    """Rename a Python file that `watch` wrote under an old number of an exercise to the new number."""
    if page.chapter is None:
        return []
    now, sentences = python_file(page), []
    named = re.compile(rf"my_\d+_{page.name}\.py")
    for path in sorted(page.path.parent.glob("my_*.py")):
        if named.fullmatch(path.name) and not now.exists():
            path.rename(now)
            sentences.append(f"{path.name} is now called {now.name}. Its content is unchanged.")
    return sentences


def _is_older(page: Page, shipped: frozenset[str]) -> bool:
    """Return whether the file at a page's path is from another version or cannot be read."""
    now = fingerprints(page.name, pages.shipped_page(page))
    try:
        found = fingerprints(page.name, page.path.read_bytes())
    except (ValueError, TypeError, LookupError):
        return True
    return bool(shipped.intersection(found).difference(now)) or (shipped.issuperset(found) and found != now)


def _is_untouched(path: Path, name: str, shipped: frozenset[str]) -> bool:
    """Return whether a page contains only cells that the workbook shipped."""
    try:
        return shipped.issuperset(fingerprints(name, path.read_bytes()))
    except (ValueError, TypeError, LookupError):
        return False


def _own_answer(path: Path, page: Page) -> str | None:
    if page.chapter is None:
        return None
    try:
        found = find.read(path, page.name)
    except find.NoAnswer:
        return None
    return None if found.is_stub() else found.text.strip()


def _page_with_answer(answer: str | None, page: Page) -> bytes:
    """Return the original page. If there is an answer to its exercise, the answer replaces the stub."""
    shipped = pages.shipped_page(page)
    if answer is None:
        return shipped
    notebook = json.loads(shipped)
    stub = next(cell for cell in notebook["cells"] if is_stub(cell["cell_type"], "".join(cell["source"]), page))
    stub["source"] = answer.splitlines(keepends=True)
    return f"{json.dumps(notebook, indent=1, ensure_ascii=False)}\n".encode()
