"""A damaged file is moved aside and its readable attempts are copied to a new one; a foreign file is not touched."""

import sqlite3
import subprocess
from contextlib import closing

import pytest
from progress_files import LONG, sources, verdict, written_by
from sampling import few

from grader.learner.progress import Progress


def filled(path, number=40):
    progress = Progress(path)
    for index in range(number):
        progress.record("a", verdict(), f"{index} {LONG}")
        progress.note_hint("a", f"hint_{index}")
    return path.read_bytes()


def damaged(path):
    """Return the attempts and hints that were recovered, and check that there is one notice."""
    before = path.read_bytes()
    progress = Progress(path)
    found = [int(attempt.source.split()[0]) for attempt in progress.attempts("a")]
    (notice,) = progress.notices
    aside = path.with_name("progress.damaged.sqlite")
    assert str(aside) in notice and aside.read_bytes() == before
    assert f"A new file has the {len(found)} attempts that could still be read." in notice
    assert found == sorted(set(found))
    # Further attempts can be saved.
    progress.record("a", verdict(), f"100 {LONG}")
    again = Progress(path)
    assert len(again.attempts("a")) == len(found) + 1 and again.notices == []
    return found, [int(key.removeprefix("hint_")) for key in again.hints("a")]


def test_a_file_without_a_header_is_renamed_and_a_new_one_created(path):
    content = filled(path)
    path.write_bytes(b"This is no database at all. " + content[28:])
    assert damaged(path) == ([], [])


def test_the_readable_attempts_of_a_truncated_file_are_recovered(path):
    content = filled(path)
    path.write_bytes(content[: len(content) // 2 + 100])
    found, _ = damaged(path)
    assert len(found) < 40


@pytest.mark.slow
@pytest.mark.parametrize("place", few([0.3, 0.6, 0.9], 1))
def test_the_readable_attempts_of_a_file_with_garbage_are_recovered(path, place):
    """The new file has the attempts before and after the garbage."""
    content = filled(path)
    start = int(len(content) * place) // 4096 * 4096
    path.write_bytes(content[:start] + b"\xff" * 4096 + content[start + 4096 :])
    found, _ = damaged(path)
    assert 20 <= len(found) < 40 and found[0] == 0


def test_garbage_that_only_writing_would_meet_is_found_before_anything_is_written(path):
    content = filled(path)
    path.write_bytes(content[:-8192] + b"\0" * 8192)
    progress = Progress(path)
    progress.record("a", verdict(), "new")
    assert len(progress.notices) == 1 and Progress(path).attempts()[-1].source == "new"
    assert path.with_name("progress.damaged.sqlite").exists()


def test_stored_copies_are_never_overwritten(path):
    for number in range(3):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"damaged, %d" % number + b"." * 100)
        Progress(path).record("a", verdict(), "")
    kept = {found.name: found.read_bytes()[9:10] for found in path.parent.glob("*damaged*")}
    assert kept == {
        "progress.damaged.sqlite": b"0",
        "progress.damaged_2.sqlite": b"1",
        "progress.damaged_3.sqlite": b"2",
    }


def test_a_leftover_journal_does_no_harm(path):
    """SQLite does not apply the old journal to the new file."""
    path.parent.mkdir()
    path.write_bytes(b"damaged" * 100)
    journal = path.with_name("progress.sqlite-journal")
    journal.write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + b"\0" * 1000)  # a journal's magic number
    Progress(path).record("a", verdict(), "new")
    assert sources(path) == ["new"] and not journal.exists()


@pytest.mark.slow
def test_of_two_notebooks_that_find_the_damage_one_moves_the_file(path):
    """One of the notebooks moves the file aside, and neither moves the other's new file."""
    write = """
        print("ready", flush=True)
        sys.stdin.readline()
        for number in range(10):
            progress.record("a", Verdict("a", "not passed"), f"{sys.argv[1]} {number}")
        print(len(progress.notices))
    """
    path.parent.mkdir()
    path.write_bytes(b"damaged" * 1000)
    both = [written_by(write, path, name, stdin=subprocess.PIPE) for name in ("left", "right")]
    assert [process.stdout.readline() for process in both] == ["ready\n"] * 2
    for process in both:
        process.stdin.write("\n")
        process.stdin.flush()
    assert sorted(int(process.communicate()[0]) for process in both) == [0, 1]
    assert len(sources(path)) == 20
    assert len(list(path.parent.glob("*damaged*"))) == 1


def test_a_damaged_file_is_renamed_by_one_process_only(path, monkeypatch):
    monkeypatch.setattr("grader.learner.progress.PATIENCE", 0.1)
    path.parent.mkdir()
    path.write_bytes(b"damaged" * 100)
    with closing(sqlite3.connect(path.with_suffix(".lock"), isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        progress = Progress(path)
        progress.record("a", verdict(), "lost")
    assert path.read_bytes() == b"damaged" * 100 and "Another program" in progress.notices[0]
    Progress(path).record("a", verdict(), "new")
    assert sources(path) == ["new"]


def test_damaged_text_is_shown_with_replacements(path):
    filled(path, 1)
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("UPDATE attempts SET source = CAST(x'61ff62' AS TEXT)")
    assert sources(path) == ["a\N{REPLACEMENT CHARACTER}b"]


def test_a_damaged_attempt_costs_that_attempt(path):
    filled(path, 3)
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("UPDATE attempts SET verdict = substr(verdict, 5) WHERE id = 2")
    progress = Progress(path)
    assert [attempt.source[0] for attempt in progress.attempts()] == ["0", "2"]
    assert progress.notices == [f"1 of the attempts in {path} cannot be read and are left out."]


def test_an_empty_file_is_a_new_one(path):
    path.parent.mkdir()
    path.touch()
    assert sources(path) == []
    Progress(path).record("a", verdict(), "new")
    assert sources(path) == ["new"]


@pytest.mark.parametrize("version", [0, 2, 99])
def test_a_file_of_another_version_is_not_touched(path, version):
    path.parent.mkdir()
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("CREATE TABLE attempts (something TEXT)")
        file.execute(f"PRAGMA user_version = {version}")
    before = path.read_bytes()
    progress = Progress(path)
    progress.record("a", verdict(), "new")
    progress.note_hint("a", "first_step")
    assert progress.attempts() == [] and progress.hints("a") == []
    assert path.read_bytes() == before and [p.name for p in path.parent.iterdir()] == ["progress.sqlite"]
    assert len(progress.notices) == 3  # for the attempt, the hint and reading
    assert all("belongs to another version of the workbook" in notice for notice in progress.notices)
    assert "Update the workbook, or set REMAT_WORKBOOK_DATA to another folder." in progress.notices[0]
