"""A page is restored to its original content, and the learner's version is saved next to it."""

import os
import re
import zipfile
from pathlib import Path

import pytest
import store
from command_line import run_here

from grader.exercises import registry
from grader.learner import pages, update

NAME = "10_checkpoint_dot_policy.ipynb"


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """Create a separate folder with the original exercise pages."""
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    (tmp_path / "exercises").mkdir()
    with zipfile.ZipFile(pages.ARCHIVE) as archive:
        archive.extractall(tmp_path / "exercises", [name for name in archive.namelist() if "/" not in name])
    return tmp_path / "exercises"


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    "meant", ["checkpoint_dot_policy", "10", "010", f"exercises/{NAME}", f"./{NAME}", "06_checkpoint_dot_policy"]
)
def test_a_page_is_restored(folder, meant):
    before = content(folder)
    (folder / NAME).write_text("mine")
    status, out, _ = run_here("reset", meant)
    assert status == 0
    assert out == (
        f"Your page is saved as my_{NAME} in the same folder.\n"
        f"{NAME} is restored. If it is open in JupyterLab, choose File → Reload Notebook from Disk.\n"
    )
    assert content(folder) == before | {f"my_{NAME}": b"mine"}


def test_stored_copies_are_never_overwritten(folder):
    for number in range(3):
        (folder / NAME).write_text(f"mine {number}")
        assert run_here("reset", "10")[0] == 0
    stem = f"my_{NAME.removesuffix('.ipynb')}"
    kept = {name: text for name, text in content(folder).items() if name.startswith("my_")}
    assert kept == {f"{stem}.ipynb": b"mine 0", f"{stem}_2.ipynb": b"mine 1", f"{stem}_3.ipynb": b"mine 2"}


def test_a_stored_copy_of_a_page_names_its_exercise(folder):
    assert pages.find(f"exercises/my_{NAME.removesuffix('.ipynb')}_2.ipynb").path == folder / NAME


def test_an_unmodified_page_is_not_changed(folder):
    before = content(folder)
    time = (folder / NAME).stat().st_mtime_ns
    assert run_here("reset", "10") == (0, f"{NAME} is unchanged: there is nothing to do.\n", "")
    assert content(folder) == before and (folder / NAME).stat().st_mtime_ns == time


def test_a_missing_page_is_restored(folder):
    before = content(folder)
    (folder / NAME).unlink()
    status, out, _ = run_here("reset", "10")
    assert status == 0 and out.startswith(f"{NAME} is restored.")
    assert content(folder) == before


@pytest.mark.parametrize(
    ("meant", "message"),
    [
        (
            "chekpoint_dot_policy",
            "There is no exercise chekpoint_dot_policy; did you mean exercise 10, checkpoint_dot_policy?",
        ),
        ("99", "There is no exercise 99; the exercises are: 1, predict_residuals; 2, vjp_by_hand; 3, "),
        ("notebooks/my own.ipynb", "There is no exercise notebooks/my own.ipynb; the exercises are: "),
    ],
)
def test_an_unknown_exercise_is_refused_with_a_list_of_exercises(folder, meant, message):
    before = content(folder)
    status, out, err = run_here("reset", meant)
    assert (status, out) == (2, "") and message in " ".join(re.sub("[│╭╮╰╯─]", " ", err).split())
    assert content(folder) == before


@pytest.mark.parametrize("fails", ["shutil.copy2", "os.replace", "pathlib.Path.write_bytes"])
def test_when_it_cannot_be_done_nothing_changes(folder, monkeypatch, fails):
    (folder / NAME).write_text("mine")
    before = content(folder)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fails, full)
    status, out, err = run_here("reset", "10")
    assert (status, out) == (1, "")
    assert f"{NAME} was not restored and is unchanged: No space left on device" in err
    assert content(folder) == before


def test_a_missing_folder_is_reported(folder):
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    status, _, err = run_here("reset", "10")
    assert status == 1 and "was not restored" in err and "No such file or directory" in err


# The archive from which pages are restored


def test_the_archive_has_the_pages():
    with zipfile.ZipFile(pages.ARCHIVE) as archive:
        packed = {name: archive.read(name) for name in archive.namelist() if name != update.SHIPPED}
    found = {path.name: path.read_bytes() for path in store.exercises()}
    found |= {f"notebooks/{path.name}": path.read_bytes() for path in store.chapters()}
    assert packed == found, "run tests/notebooks/store.py"


def test_packing_is_reproducible(monkeypatch, folder):
    """The archive does not depend on the files' times and permissions."""
    (folder.parent / "notebooks").symlink_to(store.ROOT / "notebooks")
    monkeypatch.setattr(store, "ROOT", folder.parent)
    packed = []
    for name in ("one.zip", "two.zip"):
        monkeypatch.setattr(store, "ARCHIVE", folder.parent / name)
        store.pack()
        packed.append((folder.parent / name).read_bytes())
        for path in folder.iterdir():
            os.utime(path, (10**9, 10**9))
            path.chmod(0o600)
    assert packed[0] == packed[1] == pages.ARCHIVE.read_bytes()


@pytest.mark.slow
def test_pages_are_found_by_every_name():
    assert [page.name for page in pages.exercises()] and {p.name for p in pages.exercises()} <= set(registry.names())
    for page in pages.exercises():
        for name in (page.name, str(page.number), str(page.path), Path(page.path.name)):
            assert pages.find(str(name)) == page


def test_a_stored_copy_is_not_listed_as_a_page(monkeypatch, tmp_path):
    (tmp_path / "exercises").mkdir()
    for name in (NAME, f"my_{NAME}", "Untitled.ipynb"):
        (tmp_path / "exercises" / name).touch()
    monkeypatch.setattr(store, "ROOT", tmp_path)
    assert [path.name for path in store.exercises()] == [NAME]
