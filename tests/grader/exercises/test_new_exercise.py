"""The tests refuse an exercise from `python -m grader new` until it has been written, and accept it then."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rematscope
from grader.exercises import new_exercise

ROOT = Path(__file__).parents[3]
NAME, MODEL = "twice_over", "two_checkpoints"
PARTS = ("grader", "solutions", "exercises", "notebooks", "tests", "pyproject.toml", "conftest.py", "README.md")


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """Copy the repository without this file, and without temporary bytecode files of other processes."""
    folder = tmp_path_factory.mktemp("copy")
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("*.pyc.*", Path(__file__).name))
        else:
            shutil.copy(ROOT / part, folder / part)
    return folder


def run(folder, *command):
    paths = os.pathsep.join(map(str, (folder, Path(rematscope.__file__).parents[1])))
    environment = os.environ | {"PYTHONPATH": paths}
    done = subprocess.run([sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def outcome(folder, which, *where):
    """Run the matching tests in some folders with pytest, and return the exit status and the output."""
    status, out, _ = run(folder, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *where, "-k", which)
    return status, out


def files(folder):
    return {path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts}


@pytest.mark.slow
def test_a_new_exercise_is_refused_until_each_of_its_four_things_is_written(copy):
    before, last = files(copy), max(path.name for path in copy.glob("exercises/[0-9][0-9]_*.ipynb"))
    status, out, err = run(copy, "-m", "grader", "new", NAME)
    written = {str(path.relative_to(copy)) for path in files(copy) - before}
    page = f"exercises/{int(last[:2]) + 1:02}_{NAME}.ipynb"
    assert (status, err) == (0, "") and written == set(out.splitlines()[:-1])
    entry = {f"grader/catalog/{NAME}/{file}" for file in ("__init__.py", "task.py", "expect.py", "feedback.toml")}
    assert written == {page, f"solutions/{NAME}.py", *entry} | {
        f"tests/grader/catalog/{NAME}/{file}" for file in ("right.py", "wrong.py")
    }

    status, out = outcome(copy, "still_a_stub", "tests/grader/catalog", "tests/grader/exercises", "tests/notebooks")
    assert status == 1 and "4 failed" in out and "error" not in out, "whatever else there is can still be collected"
    for thing in ("page", "worked answer", "catalogue entry", "answers to test it with"):
        assert f"test_nothing_of_an_exercise_is_still_a_stub[{thing}]" in out
    for file in written:
        assert f"{file}: " in out, "the message names the file, and what is to be written there"

    # A complete exercise passes. Here, it is a copy of another exercise under the new name.
    for file in written:
        model = next(copy.glob(file.replace(NAME, MODEL).replace(page[:12], "exercises/??")))
        (copy / file).write_text(model.read_text().replace(MODEL, NAME))
    run(copy, "-c", "import sys; sys.path.insert(0, 'tests/notebooks'); import store; store.pack()")
    which = f"still_a_stub or an_exercise_is_four_things or archive or ({NAME} and (right or wrong or hints))"
    places = "tests/grader/catalog", "tests/grader/exercises", "tests/grader/learner/test_reset.py"
    status, out = outcome(copy, which, *places)
    assert status == 0 and "passed" in out, out


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("save_named", "already"),
        ("3x", "not a valid name"),
        ("class", "not a valid name"),
        ("../out", "not a valid name"),
        ("SaveNamed", "not a valid name"),
        ("json", "name of an installed module"),
    ],
)
def test_an_invalid_or_existing_name_is_refused_and_nothing_is_written(name, reason, copy, monkeypatch):
    monkeypatch.setattr(new_exercise, "ROOT", copy)
    before = files(copy)
    with pytest.raises(new_exercise.NewExerciseError, match=reason):
        new_exercise.make(name)
    assert files(copy) == before
