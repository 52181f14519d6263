"""An answer can neither leave information for a later one nor change the machine."""

import functools
import os

import bubblewrap
import pytest

from grader.isolation import bubblewrap_options
from grader.isolation.sandboxed.lockdown import DEVICES

HEAD = f"""
import ctypes, os, random, socket, stat, sys, time
DEVICES = {DEVICES!r}

def tries(action, *arguments, **options):
    try:
        action(*arguments, **options)
        return "done"
    except OSError as error:
        return type(error).__name__

def finds(what):
    print(repr(what), flush=True)
    os._exit(0)
"""


found = functools.partial(bubblewrap.printed_by, HEAD)


def state(path):
    seen = os.stat(path)
    return seen.st_mode, seen.st_uid, seen.st_atime_ns, seen.st_mtime_ns, seen.st_ctime_ns


CHANGES = """
done = []
for device in DEVICES:
    done += [tries(os.utime, device), tries(os.utime, device, (1, 1)), tries(os.chmod, device, 0o640)]
    done += [tries(os.utime, os.open(device, os.O_RDONLY)), tries(os.chmod, os.open(device, os.O_RDONLY), 0o640)]
    open(device, "rb").read(10)
open("/dev/null", "wb").write(b"something")
finds({*done} - {"OSError", "PermissionError"})
"""


@pytest.mark.parametrize("as_root", [True, False])
@bubblewrap.needed
def test_the_machines_devices_are_unchanged(as_root, monkeypatch, grader_in_sandbox):
    if not as_root:  # as in a container in which root cannot become another user
        options = bubblewrap_options.options(as_root=False)
        monkeypatch.setattr(bubblewrap_options, "options", lambda as_root: ["--none-such"] if as_root else options)
        from grader.classroom.grade_one import SandboxGrader

        grader = SandboxGrader()
    else:
        grader = grader_in_sandbox()
    before = {device: state(device) for device in DEVICES}
    try:
        assert found(CHANGES, grader) == set()
    finally:
        if not as_root:
            grader.close()
    assert {device: state(device) for device in DEVICES} == before


LEAVES = """
left = []
for folder in ["/", "/tmp", "/dev", "/dev/shm", "/proc", "/etc", "/usr", *sys.path]:
    if not folder or folder.startswith("/learner"):
        continue  # its own
    left += [tries(os.mkdir, folder + "/left"), tries(os.utime, folder), tries(os.chmod, folder, 0o777)]
    left += [tries(open, folder + "/left", "w")]
finds({*left})
"""
SEES = """
seen = {}
for folder in ["/", "/tmp", "/dev", "/etc", "/learner", *sys.path]:
    if os.path.isdir(folder) and not folder.startswith("/learner/"):
        at = os.stat(folder)
        seen[folder] = hash(tuple(sorted(os.listdir(folder)))), at.st_mode, folder != "/learner" and at.st_mtime_ns
finds(seen)
"""


@bubblewrap.needed
def test_an_answer_finds_no_traces_of_the_previous_answer(grader_in_sandbox):
    grader = grader_in_sandbox()
    before = found(SEES, grader)
    made = found(LEAVES, grader)
    assert found(SEES, grader) == before
    assert made <= {"OSError", "PermissionError", "FileNotFoundError", "NotADirectoryError"}, (
        "but in a folder of its own"
    )


@bubblewrap.needed
def test_an_answer_cannot_advance_the_kernels_counter_of_inode_numbers(grader_in_sandbox):
    """Pipes and sockets of all processes share this counter, and an answer can read it: its output is a pipe."""
    body = """
    made = [tries(os.pipe), tries(os.eventfd, 0), tries(os.memfd_create, "x"), tries(socket.socketpair)]
    finds({*made, *(tries(socket.socket, family) for family in range(46)), tries(os.utime, 0)})
    """
    assert found(body, grader_in_sandbox()) <= {"OSError", "PermissionError"}


@bubblewrap.needed
def test_no_system_call_returns_the_load_of_the_machine(grader_in_sandbox):
    body = """
    number = {"x86_64": 99, "aarch64": 179}[os.uname().machine]
    libc, room = ctypes.CDLL(None, use_errno=True), ctypes.create_string_buffer(512)
    told = libc.syscall(ctypes.c_long(number), room)
    finds((told, set(bytes(room)), tries(os.getloadavg), os.path.exists("/proc/meminfo"), os.path.exists("/sys")))
    """
    assert found(body, grader_in_sandbox()) == (-1, {0}, "OSError", False, False)
