"""If progress cannot be written or read because of permissions, a notice says so and nothing is lost."""

import ctypes
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from progress_files import verdict

from grader.learner.progress import Progress
from grader.verdicts.verdict import Outcome


@pytest.fixture
def powerless(monkeypatch):
    """Drop root's file permissions during the test, because root may write whatever the files' modes say."""
    if os.name == "nt":
        pytest.skip("Windows has other permissions")
    # `versions` reads files that may be readable by root only.
    monkeypatch.setattr("grader.learner.progress.versions", dict)
    root = os.geteuid() == 0
    folder = Path(tempfile.mkdtemp())  # pytest's own folders are closed to other users
    if root:
        os.chown(folder, 65534, 65534)
        # setfsuid affects this thread only; other threads may not be allowed to change theirs.
        ctypes.CDLL(None).setfsuid(65534)
    yield folder
    if root:
        ctypes.CDLL(None).setfsuid(0)
    for inside in [folder, *folder.rglob("*")]:
        inside.chmod(0o700)
    shutil.rmtree(folder)


def test_a_read_only_file_is_reported(powerless):
    path = powerless / "progress.sqlite"
    Progress(path).record("a", verdict(), "kept")
    path.chmod(0o400)
    progress = Progress(path)
    assert progress.record("a", verdict(Outcome.PASSED), "lost").verdict.passed
    assert [attempt.source for attempt in progress.attempts()] == ["kept"]
    (notice,) = progress.notices
    assert "writable" in notice and "REMAT_WORKBOOK_DATA" in notice


@pytest.mark.parametrize("mode", [0o500, 0o000])
@pytest.mark.parametrize("there", [False, True], ids=["no file", "a file"])
def test_a_read_only_folder_is_reported(powerless, mode, there):
    path = powerless / "progress.sqlite"
    if there:
        Progress(path).record("a", verdict(), "kept")
    powerless.chmod(mode)
    progress = Progress(path)
    progress.record("a", verdict(), "lost")
    readable = there and mode == 0o500
    assert len(progress.attempts()) == readable
    assert "writable" in progress.notices[0] and "REMAT_WORKBOOK_DATA" in progress.notices[0]
    powerless.chmod(0o700)
    assert len(Progress(path).attempts()) == there


def test_a_damaged_file_that_cannot_be_renamed_stays(powerless):
    path = powerless / "progress.sqlite"
    path.write_bytes(b"damaged" * 100)
    powerless.chmod(0o500)
    progress = Progress(path)
    progress.record("a", verdict(), "lost")
    assert len(progress.notices) == 1 and path.read_bytes() == b"damaged" * 100


def test_a_folder_that_cannot_be_created_is_reported(tmp_path):
    (tmp_path / "file").touch()
    progress = Progress(tmp_path / "file" / "progress.sqlite")
    progress.record("a", verdict(), "lost")
    assert progress.attempts() == []
    assert "cannot be used: " in progress.notices[0] and "Set REMAT_WORKBOOK_DATA" in progress.notices[0]


def test_a_folder_in_place_of_the_file_is_reported(path):
    path.mkdir(parents=True)
    progress = Progress(path)
    progress.record("a", verdict(), "lost")
    assert progress.attempts() == [] and len(progress.notices) == 2
