"""Grading takes no rights: a user who has none is told what the machine can promise, and grades a class."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import bubblewrap
import pytest

NAME = "checkpoint_dot_policy"
ROOT = Path(__file__).parents[3]
NOBODY = 65534


def runs_python():
    if os.name != "posix" or os.geteuid() != 0:
        return False
    try:
        done = subprocess.run([sys.executable, "-c", ""], cwd="/", user=NOBODY, group=NOBODY, extra_groups=[])
    except OSError:
        return False
    return done.returncode == 0


@pytest.mark.skipif(not runs_python(), reason="needs root, and a Python that other users may run")
@bubblewrap.needed
def test_a_user_without_rights_grades_a_class():
    with tempfile.TemporaryDirectory() as folder:  # pytest's own are for whoever runs the tests
        handed_in, out = Path(folder, "in"), Path(folder, "out")
        for place in (Path(folder), handed_in, out):
            place.mkdir(exist_ok=True)
            os.chown(place, NOBODY, NOBODY)
        (handed_in / "ada.py").write_text((ROOT / "solutions" / f"{NAME}.py").read_text())
        (handed_in / "eve.py").write_text(f"import os\ndef {NAME}(w1, w2, x): os._exit(0)\n")

        def grader(*arguments):
            return subprocess.run(
                [sys.executable, "-m", "grader", *arguments],
                capture_output=True, text=True, timeout=180, cwd=ROOT, env=os.environ | {"HOME": folder},
                user=NOBODY, group=NOBODY, extra_groups=[],
            )  # fmt: skip

        examined = grader("doctor")
        assert (examined.returncode, examined.stderr) == (0, "") and "may be graded here" in examined.stdout
        assert "held      threads" in examined.stdout
        graded = grader("batch", handed_in, "--out", out)
        assert (graded.returncode, graded.stderr) == (0, ""), graded
        assert [line.split(",")[2] for line in (out / "grades.csv").read_text().splitlines()] == [
            "verdict",
            "passed",
            "could not be judged",
        ]
