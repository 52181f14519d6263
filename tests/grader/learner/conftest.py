import pytest

from grader.learner import session


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data" / "progress.sqlite"


@pytest.fixture
def new_session(tmp_path, monkeypatch):
    """Begin a session without any progress or earlier checks, in an empty folder."""
    monkeypatch.setenv("REMAT_WORKBOOK_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for memory in ("last_verdicts", "_last_checks", "_failing_seeds"):
        monkeypatch.setattr(session, memory, {})
