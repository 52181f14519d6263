"""An update installs a new version's pages, copies answers to them, and loses nothing that a learner wrote."""

import json
import os
import zipfile
from pathlib import Path

import pytest
from command_line import run_here

from grader.answers import find
from grader.exercises import registry
from grader.isolation.in_process import grade_file
from grader.learner import pages, update
from grader.learner.board import board
from grader.learner.progress import Progress
from grader.verdicts.verdict import Outcome, Verdict

NAME, NOW, BEFORE = "checkpoint_dot_policy", "10_checkpoint_dot_policy.ipynb", "06_checkpoint_dot_policy.ipynb"
OTHER = "05_count_residuals.ipynb"
ANSWER = find.read(pages.ROOT / "solutions" / f"{NAME}.py").text.strip()
REAL = pages.ROOT / "exercises"
CHAPTER, CHAPTER_BEFORE = "02_two_passes.ipynb", "03_two_passes.ipynb"
NOTHING = "All pages are up to date: there is nothing to do.\n"


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """Create a workbook with two exercises and this version's pages; `old` returns a page of an earlier version."""
    whole = {name: (pages.ROOT / "exercises" / name).read_bytes() for name in (OTHER, NOW)}
    folder = tmp_path / "exercises"
    folder.mkdir()
    for name, content in whole.items():
        (folder / name).write_bytes(content)
    before = tmp_path / "before" / NOW
    before.parent.mkdir()
    before.write_bytes(old())
    known = update.cells_to_pack([before])
    with zipfile.ZipFile(tmp_path / "pages.zip", "w") as archive:
        for name, content in [*whole.items(), (update.SHIPPED, known)]:
            archive.writestr(name, content)
    monkeypatch.setattr(pages, "ARCHIVE", tmp_path / "pages.zip")
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    return folder


@pytest.fixture
def chapters(folder, monkeypatch):
    """Add a chapter of this version to the workbook; `chapter` returns a chapter of an earlier version."""
    notebooks = folder.with_name("notebooks")
    notebooks.mkdir()
    (notebooks / CHAPTER).write_bytes(now := chapter("# 2 · Two passes", "new = 1", "end"))
    before = folder.with_name("before") / CHAPTER
    before.write_bytes(chapter())
    known = update.cells_to_pack([before, notebooks / CHAPTER])
    with zipfile.ZipFile(pages.ARCHIVE) as archive:
        whole = {name: archive.read(name) for name in archive.namelist()} | {update.SHIPPED: known}
    with zipfile.ZipFile(pages.ARCHIVE, "w") as archive:
        for name, content in {**whole, f"notebooks/{CHAPTER}": now}.items():
            archive.writestr(name, content)
    return notebooks


def chapter(*cells: str, outputs=()) -> bytes:
    """Return a chapter with these cells, by default an earlier version's."""
    cells = cells or ("# 3 · Two passes", "shown = 1", "end")
    made = [{"cell_type": "code", "metadata": {}, "source": text, "outputs": list(outputs)} for text in cells]
    return json.dumps({"cells": made}).encode()


def old(*more: str, answer: str | None = None) -> bytes:
    """Return an earlier version's page with an answer and with cells that a learner has added."""
    return page(*more, answer=answer, headline="# Exercise 6 · As it was once")


def page(*more: str, answer: str | None = None, headline: str | None = None) -> bytes:
    notebook = json.loads((REAL / NOW).read_bytes())
    cells = notebook["cells"]
    cells[0]["source"] = headline or cells[0]["source"]
    for cell in cells:
        if answer is not None and "raise NotImplementedError" in "".join(cell["source"]):
            cell["source"] = answer
    cells += [{"cell_type": "code", "metadata": {}, "source": text, "outputs": []} for text in more]
    return json.dumps(notebook).encode()


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def texts(path: Path):
    return ["".join(cell["source"]) for cell in json.loads(path.read_bytes())["cells"]]


def test_edited_pages_of_this_version_are_not_changed(folder):
    (folder / NOW).write_bytes(page("mine = 1", answer=ANSWER))
    before = content(folder)
    assert run_here("update") == (0, NOTHING, "") and content(folder) == before


@pytest.mark.parametrize("name", [NOW, BEFORE])
def test_an_answer_is_copied_to_the_new_page_and_the_old_page_is_stored(folder, name):
    (folder / NOW).unlink()
    (folder / name).write_bytes(written := old("mine = 1", answer=ANSWER))
    status, out, _ = run_here("update")
    assert status == 0 and out.splitlines() == [
        f"{NOW} is the new page and contains your answer. Your old page is now my_{NOW}.",
        "Your progress is unchanged.",
        "If one of them is open in JupyterLab, choose File → Reload Notebook from Disk.",
    ]
    assert set(content(folder)) == {OTHER, NOW, f"my_{NOW}"}
    assert (folder / f"my_{NOW}").read_bytes() == written
    new, came = texts(folder / NOW), texts(REAL / NOW)
    assert [a for a, b in zip(new, came, strict=True) if a != b] == [ANSWER]
    after = content(folder)
    assert run_here("update") == (0, NOTHING, "") and content(folder) == after


@pytest.mark.slow
def test_an_answer_is_copied_with_its_helpers(folder):
    used = ANSWER.replace("def ", "def helping_", 1)
    answer = f"def {NAME}(w1, w2, x):\n    return helping_{NAME}(w1, w2, x)"
    assert used != ANSWER
    (folder / BEFORE).write_bytes(old(used, answer=answer))
    assert run_here("update")[0] == 0
    assert grade_file(folder / NOW).outcome == Outcome.PASSED


@pytest.mark.parametrize("name", [NOW, BEFORE])
def test_an_unmodified_old_page_is_replaced(folder, name):
    before = content(folder)
    (folder / NOW).unlink()
    ran = json.loads(old())
    ran["cells"][3]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "ran"}]
    (folder / name).write_text(json.dumps(ran))
    status, out, _ = run_here("update")
    place = f", in place of {BEFORE}" * (name == BEFORE)
    assert status == 0 and out.startswith(f"{NOW} is the new page{place}. You had not changed the old one.\n")
    assert content(folder) == before


@pytest.mark.parametrize(
    "written",
    [
        old("a note of mine"),  # the stub is unchanged
        old(answer=f"def {NAME}(w1, w2, x)\n    no Python yet"),
        b"no notebook at all",
    ],
)
def test_other_edits_are_kept(folder, written):
    (folder / NOW).write_bytes(written)
    status, out, _ = run_here("update")
    assert status == 0 and out.startswith(f"{NOW} is the new page. Your old page is now my_{NOW}.\n")
    assert (folder / f"my_{NOW}").read_bytes() == written
    assert (folder / NOW).read_bytes() == (REAL / NOW).read_bytes()
    assert run_here("update")[1] == NOTHING


def test_an_old_page_next_to_an_edited_new_page(folder):
    (folder / NOW).write_bytes(new := page(answer=ANSWER))
    (folder / BEFORE).write_bytes(before := old(answer=f"def {NAME}(w1, w2, x):\n    return 1"))
    assert run_here("update")[1].startswith(f"{NOW} is the new page. Your old page is now my_{NOW}.\n")
    assert content(folder) == {OTHER: (REAL / OTHER).read_bytes(), NOW: new, f"my_{NOW}": before}


def test_an_answer_on_an_old_page_next_to_an_unmodified_new_page(folder):
    (folder / BEFORE).write_bytes(old(answer=ANSWER))
    assert "contains your answer" in run_here("update")[1]
    assert find.read(folder / NOW).text.strip() == ANSWER and not (folder / BEFORE).exists()


def test_stored_copies_are_never_overwritten(folder):
    (folder / f"my_{NOW}").write_text("kept before")
    (folder / NOW).write_bytes(first := old("one"))
    (folder / BEFORE).write_bytes(second := old("two"))
    assert run_here("update")[0] == 0
    kept = [(folder / f"my_10_{NAME}{more}.ipynb").read_bytes() for more in ("", "_2", "_3")]
    assert kept == [b"kept before", first, second]


def test_the_python_file_of_watch_is_found_under_the_new_number(folder):
    (folder / f"my_06_{NAME}.py").write_text("mine")
    status, out, _ = run_here("update")
    assert status == 0 and out.startswith(f"my_06_{NAME}.py is now called my_10_{NAME}.py")
    assert (folder / f"my_10_{NAME}.py").read_text() == "mine" and not (folder / f"my_06_{NAME}.py").exists()
    (folder / f"my_06_{NAME}.py").write_text("another")
    assert run_here("update")[1] == NOTHING and (folder / f"my_10_{NAME}.py").read_text() == "mine"


def test_a_new_exercise_is_added(folder):
    (folder / OTHER).unlink()
    assert run_here("update")[1].startswith(f"{OTHER} was added.\n")
    assert (folder / OTHER).read_bytes() == (REAL / OTHER).read_bytes()


@pytest.mark.parametrize("name", [CHAPTER, CHAPTER_BEFORE])
@pytest.mark.parametrize(
    "mine",
    [
        ("# 3 · Two passes", "shown = 2", "end"),  # changed
        ("# 3 · Two passes", "shown = 1", "mine", "end"),  # added
        ("# 3 · Two passes", "end", "mine", "shown = 1"),  # moved, too
    ],
)
def test_an_edited_old_chapter_is_stored_next_to_the_new_one(chapters, name, mine):
    new = content(chapters)
    (chapters / CHAPTER).unlink()
    (chapters / name).write_bytes(written := chapter(*mine, outputs=[{"output_type": "stream", "text": "ran"}]))
    status, out, _ = run_here("update")
    assert status == 0 and out.startswith(f"{CHAPTER} is the new page. Your old page is now my_{CHAPTER}.\n")
    assert content(chapters) == new | {f"my_{CHAPTER}": written}
    assert run_here("update") == (0, NOTHING, "") and content(chapters) == new | {f"my_{CHAPTER}": written}


@pytest.mark.parametrize("name", [CHAPTER, CHAPTER_BEFORE])
def test_an_old_chapter_that_was_only_run_is_replaced(chapters, name):
    new = content(chapters)
    (chapters / CHAPTER).unlink()
    (chapters / name).write_bytes(chapter(outputs=[{"output_type": "stream", "text": "ran"}]))
    status, out, _ = run_here("update")
    assert status == 0 and out.startswith(f"{CHAPTER} is the new page") and "You had not changed the old one." in out
    assert content(chapters) == new and run_here("update") == (0, NOTHING, "")


def test_an_edited_chapter_of_this_version_is_not_changed(chapters):
    (chapters / CHAPTER).write_bytes(chapter("# 2 · Two passes", "new = 2", "mine", "end", outputs=[{"text": "ran"}]))
    before = content(chapters)
    assert run_here("update") == (0, NOTHING, "") and content(chapters) == before


def test_every_chapter_and_the_cheat_sheet_are_written(monkeypatch, tmp_path):
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    (tmp_path / "exercises").mkdir()
    (tmp_path / "notebooks").mkdir()
    assert run_here("update")[0] == 0 and run_here("update")[1] == NOTHING
    real = REAL.with_name("notebooks")
    assert content(tmp_path / "notebooks") == {path.name: path.read_bytes() for path in real.glob("[0-9c]*.ipynb")}


def test_progress_survives_an_update(folder):
    Progress().record(NAME, Verdict(NAME, Outcome.PASSED), ANSWER)
    Progress().note_hint(NAME, "first_step")
    (folder / BEFORE).write_bytes(old(answer=ANSWER))
    before = Progress().path.read_bytes()
    assert run_here("update")[0] == 0 and Progress().path.read_bytes() == before
    assert [entry.page.number for entry in board().entries if entry.state == "passed"] == [10]


@pytest.mark.parametrize("room", [0, 1])
def test_when_it_cannot_be_done_nothing_changes(folder, monkeypatch, room):
    (folder / BEFORE).write_bytes(old(answer=ANSWER))
    before, replace, written = content(folder), os.replace, []

    def full(part, path):
        if len(written) == room:
            raise OSError(28, "No space left on device")
        written.append(replace(part, path))

    monkeypatch.setattr("os.replace", full)
    status, out, err = run_here("update")
    assert (status, out) == (1, "") and content(folder) == before
    assert f"{NOW} was not updated: No space left on device" in err


def test_the_pages_of_earlier_versions_are_known():
    """Packing keeps the fingerprints of earlier versions: this headline is from when the exercise was number 6, and no
    page has it now."""
    headline = (
        "# Exercise 6 · Checkpoint with a save policy\n\n| difficulty | time | you need |\n|---|---|---|\n"
        "| ●●○○○ | 15 minutes | [4 · Policies](../notebooks/04_policies.ipynb) |"
    )
    notebook = json.dumps({"cells": [{"source": headline}]}).encode()
    (found,) = update.fingerprints(NAME, notebook)
    assert found in update.shipped_cells()
    assert found not in update.fingerprints(NAME, (REAL / NOW).read_bytes())


def test_the_chapters_of_earlier_versions_are_known():
    """Chapter 6 began like this before pages stated how long they take."""
    headline = (
        "# 6 · Layers in a scan\n\nA deep model repeats one layer. `jax.lax.scan` says so: it runs the same body again "
        "and again, each time with the next\nlayer's weights. What does a loop keep for the backward pass, and where "
        "does the checkpoint go: around one turn, or\naround the loop?\n\nIt builds on [5 · Names](05_names.ipynb)."
    )
    (found,) = update.fingerprints("scan", json.dumps({"cells": [{"source": headline}]}).encode())
    assert found in update.shipped_cells()
    assert found not in update.fingerprints("scan", (REAL.with_name("notebooks") / "07_scan.ipynb").read_bytes())


def test_the_unmodified_page_of_a_removed_exercise_is_deleted(folder):
    name, now = next(iter(registry.REMOVED.items()))
    (folder / f"09_{name}.ipynb").write_text(json.dumps({"cells": []}))
    written = folder / f"14_{name}.ipynb"
    written.write_text(
        json.dumps({"cells": [{"cell_type": "code", "metadata": {}, "source": "mine = 1", "outputs": []}]})
    )
    status, out, _ = run_here("update")
    said = f"The exercise {name} was removed from the workbook, and {now} replaces it."
    assert status == 0 and out.splitlines()[:2] == [
        f"{said} Its page, which you had not changed, was deleted.",
        f"{said} Your page {written.name} was kept.",
    ]
    assert written.exists() and not (folder / f"09_{name}.ipynb").exists()
