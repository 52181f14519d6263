"""An answer can read Python, its packages and libraries, but no folder that could hold another learner's work."""

import ast
import os
import sys
import sysconfig
from pathlib import Path

import bubblewrap
import pytest
from command_line import run_here

from grader.classroom.collect import Submission
from grader.isolation import bubblewrap_options

NAME = "checkpoint_dot_policy"
ROOT = Path(__file__).parents[3]
LOOK = f"""
import os

def {NAME}(w1, w2, x):
    seen = {{
        "neighbours": [path for path in PLACES if os.path.exists(path)],
        "usr": sorted(os.listdir("/usr")),
        "environment": dict(os.environ),
        "host": os.uname().nodename,
        "programs": [name for name in ("sh", "env", "git") if os.path.exists("/usr/bin/" + name)],
    }}
    print(seen, flush=True)
    os._exit(0)
"""
# nbgrader has its exchange in the first folder. Folders above this project and Python exist in the sandbox, but without
# their other files.
PLACES = ["/usr/local/share", "/usr/share", "/srv", "/opt", "/var", "/home", "/etc/passwd", "/sys", "/run"]
OURS = " ".join(map(str, (ROOT, sys.prefix, sys.base_prefix)))
LOOK = LOOK.replace("PLACES", repr([place for place in PLACES if f"{place}/" not in OURS]))


@bubblewrap.needed
def test_the_sandbox_shows_system_libraries_and_no_secret_environment_variables(grader_in_sandbox):
    graded = grader_in_sandbox().grade(Submission("ada", "answer.py", LOOK.encode()), seed=1)
    seen = ast.literal_eval(graded.printed)
    assert seen["neighbours"] == [] and seen["programs"] == [] and seen["host"] == "sandbox"
    assert {*seen["usr"]} <= {"bin", "lib", "lib32", "lib64", "local"}
    assert bubblewrap.SECRET not in seen["environment"].values()
    assert seen["environment"].items() >= bubblewrap_options.environment().items()


def test_settings_that_affect_tracing_have_equal_values_in_the_sandbox(monkeypatch):
    assert "JAX_REMAT3" not in bubblewrap_options.environment()
    monkeypatch.setenv("JAX_REMAT3", "yes")
    assert bubblewrap_options.environment()["JAX_REMAT3"] == "1"


@pytest.mark.parametrize("which", ["submissions", "out"])
def test_neither_submissions_nor_grades_may_be_in_folders_that_answers_see(which, tmp_path):
    shown = {"submissions": Path(sysconfig.get_path("purelib")), "out": ROOT / "grader" / "catalog"}[which]
    (tmp_path / "ada.py").write_text("")
    places = {"submissions": tmp_path, "out": tmp_path.with_name("grades"), which: shown / "a class"}
    status, out, err = run_here("batch", places["submissions"], "--out", places["out"])
    assert (status, out) == (2, "") and "a class is inside " in err.replace("\n", " ")
    assert "which answers can read" in err and not places["out"].exists()


def test_a_place_is_found_behind_links(tmp_path):
    (tmp_path / "link").symlink_to(Path(os.__file__).parent / "json")
    assert bubblewrap_options.shown_with(tmp_path / "link" / "deep") and bubblewrap_options.shown_with(ROOT / "grader")
    assert bubblewrap_options.shown_with(tmp_path) is None and bubblewrap_options.shown_with(ROOT / "submitted") is None
