"""Progress outlives kills, two notebooks at once, full disks and damaged files; what it could not keep, it says."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from contextlib import closing
from pathlib import Path

import pytest

from grader.learner.progress import Attempt, Progress, default_path
from grader.util.versions import versions
from grader.verdicts.kinds import FindingKind, Outcome
from grader.verdicts.verdict import Finding, Verdict

LONG = "# " + "x" * 3000 + "\n"  # so that a handful of attempts spans several pages of the file


def verdict(outcome=Outcome.NOT_PASSED, exercise="a"):
    finding = Finding(FindingKind.ALSO_SAVED, "It also saves cos(x) − é.", nbytes=4, cases=("float32",))
    return Verdict(exercise, outcome, (finding,), evidence="5" * 64)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data" / "progress.sqlite"


@pytest.fixture
def powerless(monkeypatch):
    """Not root, for as long as the test lasts: root may write whatever the files' modes say."""
    if os.name == "nt":
        pytest.skip("Windows has other permissions")
    monkeypatch.setattr("grader.learner.progress.versions", dict)  # they stand where only root may look
    root = os.geteuid() == 0
    folder = Path(tempfile.mkdtemp())  # pytest's own folders are closed to others
    if root:
        os.chown(folder, 65534, 65534)
        os.seteuid(65534)
    yield folder
    if root:
        os.seteuid(0)
    for inside in [folder, *folder.rglob("*")]:
        inside.chmod(0o700)
    shutil.rmtree(folder)


def written_by(script, path, *arguments, before=(), **options):
    """Starts a process that writes attempts, without importing JAX."""
    program = f"""
import sys
from pathlib import Path
from grader.learner.progress import Progress
from grader.verdicts.verdict import *
progress = Progress(Path({str(path)!r}))
{textwrap.dedent(script)}
"""
    return subprocess.Popen(
        [*before, sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True, **options
    )


def sources(path):
    progress = Progress(path)
    found = [attempt.source for attempt in progress.attempts()]
    assert progress.notices == []
    return found


# What is kept


def test_an_attempt_comes_back_as_it_was(path, monkeypatch):
    monkeypatch.setenv("JAX_REMAT3", "1")
    progress = Progress(path)
    attempt = progress.record("a", verdict(), "def a(x): ...  # é, \U0001f600\n")
    assert isinstance(attempt, Attempt) and Progress(path).attempts("a") == [attempt] == Progress(path).attempts()
    assert attempt.verdict == verdict() and attempt.verdict.findings[0].cases == ("float32",)
    assert set(attempt.versions) == {"python", "jax", "jaxlib", "workbook", "JAX_REMAT3"}
    assert attempt.versions["jax"] != "unknown"
    monkeypatch.setenv("JAX_REMAT3", "0")
    assert versions() == {name: version for name, version in attempt.versions.items() if name != "JAX_REMAT3"}
    assert attempt.time.endswith("+00:00") and len(attempt.time) == 25
    assert progress.notices == []


def test_attempts_come_oldest_first_and_by_exercise(path):
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


def test_hints_come_back_in_the_order_in_which_they_were_given(path):
    progress = Progress(path)
    for index in (2, 0, 2):
        progress.note_hint("a", index)
    progress.note_hint("b", 1)
    assert Progress(path).hints("a") == [2, 0] and Progress(path).hints("b") == [1]


def test_a_source_that_is_no_text(path):
    Progress(path).record("a", verdict(), "x = '\ud800\0'")
    assert sources(path) == ["x = '?\0'"]


def test_the_folder_can_be_chosen(monkeypatch, tmp_path):
    monkeypatch.setenv("REMAT_WORKBOOK_DATA", str(tmp_path / "é b"))
    Progress().record("a", verdict(), "")
    assert default_path() == tmp_path / "é b" / "progress.sqlite" and default_path().exists()
    monkeypatch.delenv("REMAT_WORKBOOK_DATA")
    assert default_path().parent.name == "remat-workbook" and default_path().is_absolute()


def test_progress_is_read_and_written_without_importing_jax():
    modules = "grader.cli, grader.answers.find, grader.answers.handin_file"
    modules += "".join(f", grader.learner.{name}" for name in ("board", "hand_in", "pages", "progress"))
    code = f"import sys, {modules}; print([m for m in ('jax', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# What happens to it


def test_a_kill_at_any_moment_loses_nothing_that_was_acknowledged(path):
    """Whatever was acknowledged is there, in order, and nothing by halves."""
    write = f"""
        for number in range(int(sys.argv[1]), 10**6):
            progress.record("a", Verdict("a", "not passed"), f"{{number}}{LONG.strip()}")
            print(number, flush=True)
    """
    acknowledged = -1
    for moment in range(12):
        process = written_by(write, path, str(acknowledged + 1))
        said = "".join(process.stdout.readline() for _ in range(moment + 1))  # one attempt after the other
        process.send_signal(signal.SIGKILL)
        acknowledged = int((said + process.communicate()[0]).split()[-1])
        found = [int(source.split("#")[0]) for source in sources(path)]
        # The last one may have been written without there being time to say so.
        assert found in (list(range(acknowledged + 1)), list(range(acknowledged + 2)))
        acknowledged = found[-1]
    assert acknowledged >= 12


def test_a_kill_within_a_transaction_leaves_nothing_by_halves(path):
    """The journal of a commit that was cut short is rolled back by the next one who looks."""
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


def test_two_notebooks_at_once_lose_nothing(path):
    write = """
        for number in range(100):
            progress.record("a", Verdict("a", "not passed"), f"{sys.argv[1]} {number}")
            progress.note_hint("a", number)
        print(progress.notices)
    """
    both = [written_by(write, path, name) for name in ("left", "right")]
    assert [process.communicate()[0] for process in both] == ["[]\n"] * 2
    found = sources(path)
    for name in ("left", "right"):
        assert [source for source in found if source.startswith(name)] == [f"{name} {n}" for n in range(100)]
    assert len(found) == 200 and Progress(path).hints("a") == list(range(100))


def test_a_file_that_stays_locked(path, monkeypatch):
    monkeypatch.setattr("grader.learner.progress._PATIENCE", 0.1)
    Progress(path).record("a", verdict(), "kept")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        progress = Progress(path)
        assert progress.record("a", verdict(), "lost").source == "lost"
    (notice,) = progress.notices
    assert "Another program" in notice and "This attempt could not be written down; earlier ones are safe" in notice
    assert sources(path) == ["kept"]


FILL = f"""
    for number in range(200):
        progress.record("a", Verdict("a", "not passed"), f"{{number}}{LONG.strip()}")
        if progress.notices:
            break
    import json
    print(json.dumps([number, progress.notices, len(progress.attempts())]))
"""


def test_a_full_disk(tmp_path):
    """On a disk of 256 KiB: the verdict is there, what was written before stays, and the notice says what to do."""
    if not shutil.which("bwrap"):
        pytest.skip("bubblewrap is not installed")
    disk = tmp_path / "disk"
    disk.mkdir()
    before = ["bwrap", "--dev-bind", "/", "/", "--size", str(2**18), "--tmpfs", str(disk)]
    number, notices, kept = json.loads(written_by(FILL, disk / "progress.sqlite", before=before).communicate()[0])
    assert number > 10 and kept == number
    (notice,) = notices
    assert notice.startswith("The disk with ") and " is full. This attempt could not be written down" in notice
    assert "Free some space, then check again." in notice


def test_a_file_that_may_not_grow(path):
    pytest.importorskip("resource")
    # In the child itself: a fork of this process, which may have run JAX, could hang.
    no_larger = (
        "import resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2**17, 2**17))\n"
    )
    number, notices, kept = json.loads(written_by(no_larger + textwrap.dedent(FILL), path).communicate()[0])
    assert number > 10 and kept == number and len(notices) == 1
    assert "could not be written down; earlier ones are safe" in notices[0]
    assert len(sources(path)) == number
    Progress(path).record("a", verdict(), "there is space again")
    assert len(sources(path)) == number + 1


def filled(path, number=40):
    progress = Progress(path)
    for index in range(number):
        progress.record("a", verdict(), f"{index} {LONG}")
        progress.note_hint("a", index)
    return path.read_bytes()


def damaged(path):
    """What is found after the damage: attempts and hints, after the one notice that there must be."""
    before = path.read_bytes()
    progress = Progress(path)
    found = [int(attempt.source.split()[0]) for attempt in progress.attempts("a")]
    (notice,) = progress.notices
    aside = path.with_name("progress.damaged.sqlite")
    assert str(aside) in notice and aside.read_bytes() == before
    assert f"A new one was begun, with the {len(found)} attempts that could still be read." in notice
    assert found == sorted(set(found))
    # And it goes on.
    progress.record("a", verdict(), f"100 {LONG}")
    again = Progress(path)
    assert len(again.attempts("a")) == len(found) + 1 and again.notices == []
    return found, again.hints("a")


def test_a_header_that_is_none(path):
    content = filled(path)
    path.write_bytes(b"This is no database at all. " + content[28:])
    assert damaged(path) == ([], [])


def test_a_file_cut_short(path):
    content = filled(path)
    path.write_bytes(content[: len(content) // 2 + 100])
    found, _ = damaged(path)
    assert len(found) < 40


@pytest.mark.parametrize("place", [0.3, 0.6, 0.9])
def test_garbage_in_the_middle(path, place):
    """The attempts on both sides of it are in the new file."""
    content = filled(path)
    start = int(len(content) * place) // 4096 * 4096
    path.write_bytes(content[:start] + b"\xff" * 4096 + content[start + 4096 :])
    found, _ = damaged(path)
    assert 20 <= len(found) < 40 and found[0] == 0


def test_garbage_where_only_writing_would_meet_it(path):
    content = filled(path)
    path.write_bytes(content[:-8192] + b"\0" * 8192)
    progress = Progress(path)
    progress.record("a", verdict(), "new")
    assert len(progress.notices) == 1 and Progress(path).attempts()[-1].source == "new"
    assert path.with_name("progress.damaged.sqlite").exists()


def test_nothing_kept_is_ever_overwritten(path):
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


def test_a_journal_that_stays_behind_does_no_harm(path):
    """SQLite does not roll it back into the new file."""
    path.parent.mkdir()
    path.write_bytes(b"damaged" * 100)
    journal = path.with_name("progress.sqlite-journal")
    journal.write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + b"\0" * 1000)  # as SQLite begins one
    Progress(path).record("a", verdict(), "new")
    assert sources(path) == ["new"] and not journal.exists()


def test_two_notebooks_find_the_damage_at_once(path):
    """One of them moves the file aside, and neither moves the other's new one."""
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


def test_who_moves_a_damaged_file_does_so_alone(path, monkeypatch):
    monkeypatch.setattr("grader.learner.progress._PATIENCE", 0.1)
    path.parent.mkdir()
    path.write_bytes(b"damaged" * 100)
    with closing(sqlite3.connect(path.with_suffix(".lock"), isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        progress = Progress(path)
        progress.record("a", verdict(), "lost")
    assert path.read_bytes() == b"damaged" * 100 and "Another program" in progress.notices[0]
    Progress(path).record("a", verdict(), "new")
    assert sources(path) == ["new"]


def test_damaged_text_is_shown_as_far_as_it_goes(path):
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
    assert progress.notices == [f"1 of the attempts in {path} cannot be read, and are left out here."]


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
    progress.note_hint("a", 1)
    assert progress.attempts() == [] and progress.hints("a") == []
    assert path.read_bytes() == before and [p.name for p in path.parent.iterdir()] == ["progress.sqlite"]
    assert len(progress.notices) == 3  # the attempt, the hint, reading
    assert all("is not of this version of the workbook" in notice for notice in progress.notices)
    assert "Update the workbook, or set REMAT_WORKBOOK_DATA to another folder." in progress.notices[0]


def test_a_file_that_may_only_be_read(powerless):
    path = powerless / "progress.sqlite"
    Progress(path).record("a", verdict(), "kept")
    path.chmod(0o400)
    progress = Progress(path)
    assert progress.record("a", verdict(Outcome.PASSED), "lost").verdict.passed
    assert [attempt.source for attempt in progress.attempts()] == ["kept"]
    (notice,) = progress.notices
    assert "may not be written" in notice and "REMAT_WORKBOOK_DATA" in notice


@pytest.mark.parametrize("mode", [0o500, 0o000])
@pytest.mark.parametrize("there", [False, True], ids=["no file", "a file"])
def test_a_folder_that_may_not_be_written(powerless, mode, there):
    path = powerless / "progress.sqlite"
    if there:
        Progress(path).record("a", verdict(), "kept")
    powerless.chmod(mode)
    progress = Progress(path)
    progress.record("a", verdict(), "lost")
    readable = there and mode == 0o500
    assert len(progress.attempts()) == readable
    assert "may not be written" in progress.notices[0] and "REMAT_WORKBOOK_DATA" in progress.notices[0]
    powerless.chmod(0o700)
    assert len(Progress(path).attempts()) == there


def test_a_damaged_file_that_cannot_be_moved_aside(powerless):
    path = powerless / "progress.sqlite"
    path.write_bytes(b"damaged" * 100)
    powerless.chmod(0o500)
    progress = Progress(path)
    progress.record("a", verdict(), "lost")
    assert len(progress.notices) == 1 and path.read_bytes() == b"damaged" * 100


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    progress = Progress(tmp_path / "file" / "progress.sqlite")
    progress.record("a", verdict(), "lost")
    assert progress.attempts() == []
    assert "cannot be used: " in progress.notices[0] and "Set REMAT_WORKBOOK_DATA" in progress.notices[0]


def test_a_folder_in_its_place(path):
    path.mkdir(parents=True)
    progress = Progress(path)
    progress.record("a", verdict(), "lost")
    assert progress.attempts() == [] and len(progress.notices) == 2
