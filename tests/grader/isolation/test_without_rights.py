"""Without privileges, a user learns from `doctor` what the machine can enforce, and can grade a class."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import bubblewrap
import pytest

from grader.isolation import control_groups

NAME = "checkpoint_dot_policy"
ROOT = Path(__file__).parents[3]
NOBODY = 65534


def ways_open(*needed):
    """Return bubblewrap options that let any user enter these folders, even below a folder that only root may enter."""
    options, shown = [], set()
    for folder in needed:
        closed = [above for above in reversed(folder.parents) if not above.stat().st_mode & 0o001]
        ways = [above for above in reversed(folder.parents) if closed and above.is_relative_to(closed[0])]
        for above in ways:
            if above not in shown:
                options += ["--perms", "0755", "--tmpfs" if above == closed[0] else "--dir", above]
                shown.add(above)
        options += ["--ro-bind", folder, folder] if closed else []
    return options


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs root, who becomes another user")
@bubblewrap.needed
def test_a_user_without_rights_grades_a_class():
    folders = {Path(place).resolve() for place in (sys.base_prefix, sys.prefix, ROOT)}
    outermost = sorted(
        each for each in folders if not any(each != other and each.is_relative_to(other) for other in folders)
    )
    as_nobody = ["bwrap", "--dev-bind", "/", "/", *ways_open(*outermost), "--cap-add", "ALL", "setpriv"]
    as_nobody += [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"]
    with tempfile.TemporaryDirectory() as folder:  # pytest's own temporary folders are closed to other users
        handed_in, out = Path(folder, "in"), Path(folder, "out")
        for place in (Path(folder), handed_in, out):
            place.mkdir(exist_ok=True)
            os.chown(place, NOBODY, NOBODY)
        (handed_in / "ada.py").write_text((ROOT / "solutions" / f"{NAME}.py").read_text())
        (handed_in / "eve.py").write_text(f"import os\ndef {NAME}(w1, w2, x): os._exit(0)\n")

        def grader(*arguments):
            return subprocess.run(
                [*as_nobody, sys.executable, "-m", "grader", *arguments],
                capture_output=True, text=True, timeout=180, cwd=ROOT, env=os.environ | {"HOME": folder},
            )  # fmt: skip

        examined = grader("doctor")
        without = "NOT HELD  control groups" in examined.stdout
        assert (examined.returncode, examined.stderr) == (int(without), "")
        assert ("can grade untrusted answers here" in examined.stdout) is not without
        assert "held      threads" in examined.stdout
        graded = grader("batch", handed_in, "--out", out, bubblewrap.UNGROUPED)
        assert (graded.returncode, graded.stderr) == (0, ""), graded
        assert ("No control group limited" in graded.stdout) is without
        assert [line.split(",")[2] for line in (out / "grades.csv").read_text().splitlines()] == [
            "verdict",
            "passed",
            "could not be judged",
        ]


@pytest.mark.slow
@pytest.mark.skipif(not control_groups.why_none(), reason="there are control groups here")
@bubblewrap.needed
def test_without_control_groups_nothing_is_graded_unless_requested(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "ada.py").write_text(f"import os\ndef {NAME}(w1, w2, x): os._exit(0)\n")
    command = [sys.executable, "-m", "grader", "batch", tmp_path / "in", "--out", tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, cwd=ROOT)
    said = " ".join(done.stderr.split())
    assert (done.returncode, done.stdout) == (2, "") and control_groups.why_none() in said
    assert control_groups.HOW in said and bubblewrap.UNGROUPED in said and not (tmp_path / "out").exists()
