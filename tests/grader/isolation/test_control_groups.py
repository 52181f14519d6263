"""Control groups limit what a process cannot limit by itself, on machines that delegate part of the cgroup tree.

The tests delegate a group themselves, which needs root and cgroup v2.
"""

import ast
import contextlib
import errno
import os
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import bubblewrap
import pytest

from grader.classroom.collect import Submission
from grader.isolation import control_groups
from grader.isolation.sandboxed.lockdown import ProcessLimits
from grader.verdicts.verdict import FindingKind

NAME = "checkpoint_dot_policy"
ROOT = Path(__file__).parents[3]


def tree():
    """Return the root folder of the cgroup tree if it has the controllers and is writable."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        root, place, kind = line.split()[3], Path(line.split()[4]), line.split(" - ")[1].split()[0]
        ours = kind == "cgroup2" and root == "/" and os.access(place, os.W_OK)
        if ours and {"cpu", "memory", "pids"} <= {*(place / "cgroup.controllers").read_text().split()}:
            return place
    return None


TREE = tree() if sys.platform == "linux" else None
needed = pytest.mark.skipif(TREE is None, reason="needs root, and cgroup v2 with the controllers cpu, memory and pids")


@pytest.fixture
def delegated():
    (TREE / "cgroup.subtree_control").write_text("+cpu +memory +pids")
    place = TREE / f"delegated-{os.getpid()}"
    place.mkdir()
    yield place
    for group in [*place.iterdir(), place]:
        with contextlib.suppress(NotADirectoryError):
            _remove_group(group)


def _remove_group(group):
    """Remove a group. On a busy machine, a killed process may remain in its group for a moment."""
    end = time.monotonic() + 60
    while True:
        try:
            return group.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > end:
                raise
            time.sleep(0.05)


def memory_tree():
    """Return the folder of this process's group in a writable cgroup tree with memory accounting, of version 2 or 1,
    and the name of the file with the group's limit."""
    if TREE:
        return TREE, "memory.max"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        root, place, kind, options = *line.split()[3:5], *line.split(" - ")[1].split()[::2]
        if kind == "cgroup" and "memory" in options.split(","):
            of_memory = (each.split(":") for each in Path("/proc/self/cgroup").read_text().splitlines())
            own = next(Path(path) for _, names, path in of_memory if "memory" in names.split(","))
            there = own.is_relative_to(root) and Path(place) / own.relative_to(root)
            if there and os.access(there, os.W_OK):
                return there, "memory.limit_in_bytes"
    return None, ""


MEMORY_TREE, LIMIT = memory_tree() if sys.platform == "linux" else (None, "")


@pytest.fixture
def little_memory():
    """Create a group with a total limit of 600 MiB; return the file to which a process is added."""
    if TREE:
        (TREE / "cgroup.subtree_control").write_text("+memory")
    place = MEMORY_TREE / f"little-{os.getpid()}"
    place.mkdir()
    (place / LIMIT).write_text(str(600 * 2**20))
    for name, of_swap in (("memory.swap.max", "0"), ("memory.swappiness", "0")):
        if (place / name).exists():
            (place / name).write_text(of_swap)
    yield place / "cgroup.procs"
    place.rmdir()


@pytest.mark.skipif(MEMORY_TREE is None, reason="needs root, and control groups that count memory, of either version")
@bubblewrap.needed
def test_when_memory_runs_out_the_answer_ends_and_not_a_larger_process(little_memory, grader_in_sandbox):
    # The pause gives the test time to add the process to the group. Memory from before does not count in the group.
    body = "time.sleep(1)\n    held = []\n    while True: held.append(bytearray(2**20)); time.sleep(0.005)"
    answer = Submission("a", "a.py", f"import time\ndef {NAME}(w1, w2, x):\n    {body}".encode())
    begin = f"open({str(little_memory)!r}, 'w').write('0'); held = bytearray(480 * 2**20)"
    with subprocess.Popen(
        [sys.executable, "-c", f"{begin}; print(flush=True); input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"\n"
        before = bubblewrap.descendants(os.getpid())
        with ThreadPoolExecutor(1) as executor:
            graded = executor.submit(grader_in_sandbox().grade, answer, 1)
            while not (pids := bubblewrap.answers(bubblewrap.descendants(os.getpid()) - before)):
                assert not graded.done(), graded.result()
                time.sleep(0.01)
            little_memory.write_text(str(pids[0]))
            assert "killed (SIGKILL)" in graded.result().reason, graded.result()
        assert graded.result().verdict.findings[0].kind == FindingKind.MACHINE
        assert other.poll() is None, "it has several times as much"
        other.communicate(b"\n")


def run(script, place):
    """Run a script in a group and return the value that it prints."""
    begin = f"from pathlib import Path\nPath({str(place / 'cgroup.procs')!r}).write_text('0')\n"
    done = subprocess.run(
        [sys.executable, "-c", begin + textwrap.dedent(script)], capture_output=True, text=True, timeout=300, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return ast.literal_eval(done.stdout)


JOINED = """
import os, subprocess, sys, time
from grader.isolation.control_groups import ControlGroups
from grader.isolation.sandboxed.lockdown import ProcessLimits

group = ControlGroups().group(ProcessLimits(processor_seconds=60, address_space=0, memory=0, disk=0))
begin = f"import os, threading, time; os.write({group.joining.fileno()}, b'0')"
def joined(code):
    return subprocess.run([sys.executable, "-c", begin + chr(10) + code], pass_fds=[group.joining.fileno()])
"""


@needed
def test_memory_that_is_counted_nowhere_else_ends_only_the_group(delegated):
    # Data in a socket's buffer belongs to no process's address space, so without a group the test could allocate all of
    # it.
    code = """
    import socket
    lines = [socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(400)]
    mapped = [bytearray(2**20) for _ in range(700)]
    """
    script = f"{JOINED}ended = joined({textwrap.dedent(code)!r}).returncode\n"
    script += "before = group.ran_out_of_memory\ngroup.remove()\nprint((ended, before, group.joining.closed))"
    assert run(script, delegated) == (-9, True, True)


@needed
def test_threads_are_counted_also_those_of_root(delegated):
    code = """
    stay, count = threading.Event(), 0
    try:
        while count < 400:
            threading.Thread(target=stay.wait, daemon=True).start()
            count += 1
    except RuntimeError:
        os._exit(count // 2)
    """
    script = f"{JOINED}print(joined({textwrap.dedent(code)!r}).returncode)\ngroup.remove()"
    assert 120 <= run(script, delegated) <= 128


@needed
def test_a_group_has_as_much_time_as_one_processor(delegated):
    code = """
    for _ in range(3):
        if os.fork() == 0:
            end = time.monotonic() + 2
            while time.monotonic() < end: pass
            os._exit(0)
    for _ in range(3): os.wait()
    print(os.times().children_user + os.times().children_system, flush=True)
    """
    script = f"{JOINED}joined({textwrap.dedent(code)!r})\ngroup.remove()"
    assert run(script, delegated) < 3, "three processes would have 4 s of two processors, 6 s of more"


@needed
def test_without_a_share_of_the_processors_there_are_the_other_limits(delegated):
    (delegated / "cgroup.subtree_control").write_text("+memory +pids")
    place = delegated / "inner"
    place.mkdir()
    script = f"""
    from grader.isolation.control_groups import ControlGroups
    from grader.isolation.sandboxed.lockdown import ProcessLimits
    group = ControlGroups().group(ProcessLimits(processor_seconds=60, address_space=0))
    (own,) = Path({str(place)!r}).glob("answer-*")
    limits = [(own / name).read_text().strip() for name in ("pids.max", "memory.swap.max", "memory.oom.group")]
    there = (own / "cpu.max").exists()
    group.remove()
    print((limits, there, own.exists()))
    """
    assert run(script, place) == (["257", "0", "1"], False, False)
    (place / "grader").rmdir()


def test_limits_that_a_kernel_has_not_are_not_made(tmp_path):
    # A cgroup file system refuses to create files, so a limit whose file is missing must not be written.
    group = control_groups.ControlGroup(tmp_path / "group", ProcessLimits(processor_seconds=1, address_space=1))
    assert [path.name for path in (tmp_path / "group").iterdir()] == ["cgroup.procs"]
    group.joining.close()


@needed
@bubblewrap.needed
def test_each_answer_has_its_own_control_group_which_is_removed_with_it(delegated):
    script = f"""
    from pathlib import Path
    from grader.isolation import sandbox
    from grader.isolation.sandboxed.lockdown import ProcessLimits
    with sandbox.Zygote() as zygote:
        inmates = [zygote.start("execute", ProcessLimits(processor_seconds=60, address_space=2**30)) for _ in range(2)]
        for inmate in inmates:
            while not inmate.group.joined: pass
        groups = [sorted(path.name[:6] for path in Path({str(delegated)!r}).iterdir() if path.is_dir())]
        limits = [(path / "memory.max").read_text() for path in Path({str(delegated)!r}).glob("answer-*")]
        ended = [inmate.end().how() for inmate in inmates]
        groups += [[path.name for path in Path({str(delegated)!r}).iterdir() if path.is_dir()]]
        print((groups, limits, ended, zygote.without_groups))
    """
    limit = f"{256 * 2**20 + 64 * 2**20 + 512 * 2**20}\n"
    assert run(script, delegated) == (
        [["answer", "answer", "grader"], ["grader"]],
        [limit, limit],
        ["SIGKILL", "SIGKILL"],
        "",
    )


@needed
def test_a_group_that_others_are_in_is_no_delegated_one(delegated):
    script = """
    import subprocess, sys
    from grader.isolation.control_groups import ControlGroups, NotDelegated
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        try:
            ControlGroups()
        except NotDelegated as error:
            print(repr(str(error)))
        other.communicate(b"x")
    """
    assert "shared with other processes" in run(script, delegated)


@pytest.mark.skipif(TREE is not None, reason="there are control groups of version 2 here")
def test_where_there_are_none_there_is_a_reason():
    with pytest.raises(control_groups.NotDelegated, match="control group") as refused:
        control_groups.ControlGroups().group(ProcessLimits(processor_seconds=1, address_space=1))
    # If version 1 has the controllers, delegation does not help.
    of_version_1 = ":memory:" in Path("/proc/self/cgroup").read_text()
    assert ("systemd.unified_cgroup_hierarchy=1" in str(refused.value)) == of_version_1
