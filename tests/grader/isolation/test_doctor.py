"""`doctor` lists the limits that this machine can enforce, and says whether they suffice for untrusted answers."""

import os
import subprocess
import sys
from pathlib import Path

import bubblewrap
import pytest

from grader.isolation import bubblewrap_options, control_groups, doctor

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_without_a_sandbox_grading_strangers_is_not_advised():
    command = [sys.executable, "-m", "grader", "doctor"]
    environment = os.environ | {"PATH": "/nonexistent"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT, env=environment)
    assert (done.returncode, done.stderr) == (1, "") and "Do not grade untrusted answers" in done.stdout
    assert done.stdout.startswith("NOT HELD  sandbox") and "bubblewrap" in done.stdout
    assert len(done.stdout.splitlines()) < 20


@pytest.mark.slow
@pytest.mark.parametrize("user", [0, 1000])
@bubblewrap.needed
def test_doctor_reports_which_limits_hold_and_how_to_get_the_others(user, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: user)
    options = bubblewrap_options.options
    # As in a container in which root cannot create namespaces for other users.
    monkeypatch.setattr(bubblewrap_options, "options", lambda as_root: ["--none-such"] if as_root else options(False))
    monkeypatch.setattr(doctor, "limit_of_all", lambda: 2**30)
    promises = {promise.name: promise for promise in doctor.examine(jobs=2)}
    groups = not control_groups.why_none()
    held = {"sandbox": True, "system calls": True, "control groups": groups, "memory": False}
    held["threads"] = groups or user != 0
    assert {name: promise.held for name, promise in promises.items()} == held
    assert groups or control_groups.HOW in promises["control groups"].text
    assert "--jobs" in promises["memory"].text and all(len(str(p).splitlines()) < 6 for p in promises.values())
    assert {name for name, promise in promises.items() if promise.needed} == {
        *("sandbox", "system calls", "control groups", "threads")
    }


@pytest.mark.parametrize("file", ["memory.max", "memory/memory.limit_in_bytes"])
def test_the_memory_of_a_container_limits_all_answers_together(file, tmp_path, monkeypatch):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    for text, limit in [(str(3 * 2**30), 3 * 2**30), ("max", None), (str(2**63 - 4096), None)]:
        (tmp_path / file).write_text(text + "\n")
        assert control_groups.limit_of_all(tmp_path) == limit
    assert control_groups.limit_of_all(tmp_path / "none") is None
    monkeypatch.setattr(doctor, "limit_of_all", lambda: 3 * 2**30)
    few, many = doctor._memory_promise(jobs=4), doctor._memory_promise(jobs=5)
    assert (few.held, many.held) == (True, False), "a submission's two processes may have 768 MiB"
    assert "container's limit for all processes together, 3 GiB" in few.text and "--jobs 4 at 768 MiB" in few.text


SYSTEMD_RUN = """#!/bin/sh
echo "$@" >> {log}
case "$*" in *--unit=remat-grader-*) exit 7;; esac
exit {tried}
"""


@pytest.mark.slow
@pytest.mark.skipif(not control_groups.why_none(), reason="there are control groups here")
@pytest.mark.parametrize("tried", [0, 1])
def test_a_systemd_scope_is_started_if_it_provides_control_groups(tried, tmp_path):
    log, program = tmp_path / "log", tmp_path / "systemd-run"
    program.write_text(SYSTEMD_RUN.format(log=log, tried=tried))
    program.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = [sys.executable, "-m", "grader", "doctor", "--jobs", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT, env=environment)
    asked = log.read_text().splitlines()
    assert all("--scope" in each and "-p Delegate=yes" in each for each in asked)
    assert ("--user" in asked[0]) == (os.geteuid() != 0)
    if tried:  # systemd-run gives no scope, so the command continues without one and prints the reason
        assert len(asked) == 1 and "NOT HELD  control groups" in done.stdout
    else:
        assert done.returncode == 7 and asked[1].endswith("-m grader doctor --jobs 3")
