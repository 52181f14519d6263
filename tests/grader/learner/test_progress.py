"""Progress survives kills, two notebooks at once and full disks, and reports everything that it could not save."""

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing

import pytest
from progress_files import LONG, sources, verdict, written_by

from grader.learner.progress import Attempt, Progress, default_path
from grader.util.versions import versions
from grader.verdicts.verdict import Finding, FindingKind, Outcome, Verdict

# What is saved


def test_a_stored_attempt_is_read_unchanged(path, monkeypatch):
    monkeypatch.setenv("JAX_REMAT3", "1")
    progress = Progress(path)
    attempt = progress.record("a", verdict(), "def a(x): ...  # é, \U0001f600\n")
    assert isinstance(attempt, Attempt) and Progress(path).attempts("a") == [attempt] == Progress(path).attempts()
    assert attempt.verdict == verdict() and attempt.verdict.findings[0].cases == ("float32",)
    assert set(attempt.versions) == {"python", "jax", "jaxlib", "workbook", "code", "JAX_REMAT3"}
    assert attempt.versions["jax"] != "unknown"
    monkeypatch.setenv("JAX_REMAT3", "0")
    assert versions() == {name: version for name, version in attempt.versions.items() if name != "JAX_REMAT3"}
    assert attempt.time.endswith("+00:00") and len(attempt.time) == 25
    assert progress.notices == []


def test_attempts_are_listed_oldest_first_and_by_exercise(path):
    progress = Progress(path)
    for exercise in ("a", "b", "a"):
        progress.record(exercise, verdict(), exercise)
    assert [a.exercise for a in progress.attempts()] == ["a", "b", "a"]
    assert len(progress.attempts("a")) == 2 and progress.attempts("c") == []


def test_the_file_can_be_read_in_sqlites_own_shell(path):
    attempt = Progress(path).record("a", verdict(Outcome.PASSED), "text")
    with closing(sqlite3.connect(path)) as file:
        rows = file.execute("SELECT time, exercise, outcome, evidence, source FROM attempts").fetchall()
    assert rows == [(attempt.time, "a", "passed", "5" * 64, "text")]


def test_reading_makes_no_file(path):
    progress = Progress(path)
    assert (progress.attempts(), progress.passed("a"), progress.honest_attempts("a"), progress.hints("a")) == (
        [],
        False,
        0,
        [],
    )
    assert progress.notices == [] and not path.parent.exists()


def test_passed_once_is_passed(path):
    progress = Progress(path)
    for outcome in (Outcome.NOT_PASSED, Outcome.NOT_JUDGED):
        progress.record("a", verdict(outcome), "")
        assert not progress.passed("a")
    progress.record("a", verdict(Outcome.PASSED), "")
    progress.record("a", verdict(Outcome.NOT_PASSED), "")
    assert progress.passed("a") and not progress.passed("b")


def test_honest_attempts_are_different_answers_that_did_not_pass(path):
    progress = Progress(path)
    same = ["def a(x): return x", "def a(x):  # again\n    return (x)\n", "def a(x): return x"]
    for source in [*same, "def a(x): return x + 1", "not ( python"]:
        progress.record("a", verdict(), source)
    assert progress.honest_attempts("a") == 3
    progress.record("a", verdict(Outcome.NOT_JUDGED), "def a(x): return 7")
    progress.record("a", verdict(Outcome.PASSED), "def a(x): return 8")
    assert progress.honest_attempts("a") == 3
    for _ in range(2):
        progress.record("a", verdict(), "")
    assert progress.honest_attempts("a") == 5
    missing = Verdict("a", Outcome.NOT_PASSED, (Finding(FindingKind.DOES_NOT_RUN, "…"),))
    progress.record("a", missing, "def a(x): return y")
    assert progress.honest_attempts("a") == 5


def test_hints_are_returned_in_the_order_in_which_they_were_shown(path):
    progress = Progress(path)
    for key in ("nearly", "first_step", "nearly"):
        progress.note_hint("a", key)
    progress.note_hint("b", "first_step")
    assert Progress(path).hints("a") == ["nearly", "first_step"] and Progress(path).hints("b") == ["first_step"]


def test_a_source_with_invalid_text_is_stored_with_replacements(path):
    Progress(path).record("a", verdict(), "x = '\ud800\0'")
    assert sources(path) == ["x = '?\0'"]


def test_the_folder_can_be_chosen(monkeypatch, tmp_path):
    monkeypatch.setenv("REMAT_WORKBOOK_DATA", str(tmp_path / "é b"))
    Progress().record("a", verdict(), "")
    assert default_path() == tmp_path / "é b" / "progress.sqlite" and default_path().exists()
    monkeypatch.delenv("REMAT_WORKBOOK_DATA")
    assert default_path().parent.name == "remat-workbook" and default_path().is_absolute()


@pytest.mark.slow
def test_progress_is_read_and_written_without_importing_jax():
    modules = "grader.cli, grader.answers.find, grader.answers.submission_file"
    modules += "".join(f", grader.learner.{name}" for name in ("board", "hand_in", "pages", "progress"))
    code = f"import sys, {modules}; print([m for m in ('jax', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Kills, concurrent writers and full disks


@pytest.mark.slow
def test_a_kill_at_any_moment_loses_nothing_that_was_acknowledged(path):
    """Every acknowledged attempt is in the file, in order and complete."""
    write = f"""
        for number in range(int(sys.argv[1]), 10**6):
            progress.record("a", Verdict("a", "not passed"), f"{{number}}{LONG.strip()}")
            print(number, flush=True)
    """
    acknowledged = -1
    for moment in range(12):
        process = written_by(write, path, str(acknowledged + 1))
        said = "".join(process.stdout.readline() for _ in range(moment + 1))  # one attempt per line
        process.send_signal(signal.SIGKILL)
        acknowledged = int((said + process.communicate()[0]).split()[-1])
        found = [int(source.split("#")[0]) for source in sources(path)]
        # The last attempt may have been written but not yet acknowledged.
        assert found in (list(range(acknowledged + 1)), list(range(acknowledged + 2)))
        acknowledged = found[-1]
    assert acknowledged >= 12


def test_a_kill_within_a_transaction_leaves_no_partial_row(path):
    """The next program that opens the file rolls the journal of an interrupted commit back."""
    Progress(path).record("a", verdict(), "kept")
    hot = f"""
        import os, sqlite3
        file = sqlite3.connect({str(path)!r}, isolation_level=None)
        file.execute("PRAGMA cache_size = 1")  # so that pages reach the file before the commit
        file.execute("BEGIN IMMEDIATE")
        file.execute("UPDATE attempts SET source = 'half'")
        for _ in range(50):
            file.execute("INSERT INTO attempts SELECT NULL, time, exercise, outcome, evidence, ?, verdict, versions "
                         "FROM attempts WHERE id = 1", ["half" * 1000])
        os.kill(os.getpid(), 9)
    """
    written_by(hot, path).communicate()
    assert path.with_name("progress.sqlite-journal").stat().st_size > 0
    assert sources(path) == ["kept"]


@pytest.mark.slow
def test_two_notebooks_at_once_lose_nothing(path):
    write = """
        for number in range(100):
            progress.record("a", Verdict("a", "not passed"), f"{sys.argv[1]} {number}")
            progress.note_hint("a", f"hint_{number}")
        print(progress.notices)
    """
    both = [written_by(write, path, name) for name in ("left", "right")]
    assert [process.communicate()[0] for process in both] == ["[]\n"] * 2
    found = sources(path)
    for name in ("left", "right"):
        assert [source for source in found if source.startswith(name)] == [f"{name} {n}" for n in range(100)]
    assert len(found) == 200 and Progress(path).hints("a") == [f"hint_{number}" for number in range(100)]


def test_a_locked_progress_file_is_reported(path, monkeypatch):
    monkeypatch.setattr("grader.learner.progress.PATIENCE", 0.1)
    Progress(path).record("a", verdict(), "kept")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        progress = Progress(path)
        assert progress.record("a", verdict(), "lost").source == "lost"
    (notice,) = progress.notices
    assert "Another program" in notice and "This attempt could not be saved; earlier ones are safe" in notice
    assert sources(path) == ["kept"]


FILL = f"""
    for number in range(200):
        progress.record("a", Verdict("a", "not passed"), f"{{number}}{LONG.strip()}")
        if progress.notices:
            break
    import json
    print(json.dumps([number, progress.notices, len(progress.attempts())]))
"""


def test_a_full_disk_loses_only_the_current_attempt_and_is_reported(tmp_path):
    """On a disk of 256 KiB, earlier attempts remain, the verdict is still shown, and the notice says what to do."""
    if not shutil.which("bwrap"):
        pytest.skip("bubblewrap is not installed")
    disk = tmp_path / "disk"
    disk.mkdir()
    before = ["bwrap", "--dev-bind", "/", "/", "--size", str(2**18), "--tmpfs", str(disk)]
    number, notices, kept = json.loads(written_by(FILL, disk / "progress.sqlite", before=before).communicate()[0])
    assert number > 10 and kept == number
    (notice,) = notices
    assert notice.startswith("The disk with ") and " is full. This attempt could not be saved" in notice
    assert "Free some space, then check again." in notice


@pytest.mark.slow
def test_a_file_that_cannot_grow_keeps_its_attempts(path):
    pytest.importorskip("resource")
    # Set the limit inside the child's program: a fork of this process, which may have run JAX, could hang.
    no_larger = (
        "import resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2**17, 2**17))\n"
    )
    number, notices, kept = json.loads(written_by(no_larger + textwrap.dedent(FILL), path).communicate()[0])
    assert number > 10 and kept == number and len(notices) == 1
    assert "could not be saved; earlier ones are safe" in notices[0]
    assert len(sources(path)) == number
    Progress(path).record("a", verdict(), "there is space again")
    assert len(sources(path)) == number + 1
