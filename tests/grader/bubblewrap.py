"""Whether this machine can run the tests of the sandbox, which need bubblewrap and user namespaces inside of it."""

import ast
import contextlib
import functools
import os
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest

from grader.classroom.collect import Submission

NAME = "checkpoint_dot_policy"  # the exercise of these tests' answers


@functools.cache
def _can_run() -> bool:
    if shutil.which("bwrap") is None:
        return False
    inside = ["bwrap", "--unshare-all", "--uid", "1000", "--gid", "1000", "--ro-bind", "/", "/", "--proc", "/proc"]
    return subprocess.run([*inside, "unshare", "--user", "true"], capture_output=True).returncode == 0


# CI must run these tests, so they are not skipped there and fail if bubblewrap does not work.
needed = pytest.mark.skipif(
    not os.environ.get("CI") and not _can_run(), reason="needs bubblewrap, and user namespaces inside of it"
)


# A secret in the environment of the process that starts the tests' sandbox.
SECRET = "what the environment holds"

# `batch` also runs on machines without control groups if it gets this option.
UNGROUPED = "--without-control-groups"


def printed_by(head: str, body: str, grader) -> object:
    """Return the Python literal that an answer with this body prints before it exits; `head` precedes the answer."""
    text = f"{head}\ndef {NAME}(w1, w2, x):\n{textwrap.indent(textwrap.dedent(body), '    ')}\n"
    graded = grader.grade(Submission("a learner", "answer.py", text.encode()), seed=1)
    assert "exited with status 0" in graded.reason and graded.printed, graded
    return ast.literal_eval(graded.printed)


def answers(pids: set[int]) -> list[int]:
    """Return the processes in which an answer may be running, which are those with filtered system calls."""
    found = []
    for pid in pids:
        with contextlib.suppress(OSError):  # the process may have ended
            if "\nSeccomp:\t2\n" in Path(f"/proc/{pid}/status").read_text():
                found.append(pid)
    return found


def descendants(pid: int) -> set[int]:
    """Return all descendants of a process."""
    children = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            child, parent = int(stat.parent.name), int(stat.read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(child)
    found, todo = [], [pid]
    while todo:
        todo += children.get(todo.pop(), [])
        found += todo[-1:]
    return set(found)
