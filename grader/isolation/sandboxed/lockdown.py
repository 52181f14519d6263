"""Give up rights before a learner's code runs: the view of the system, capabilities, and resources.

Linux only; elsewhere it can be imported, so that there is a sentence to say so. Nothing here knows about grading.
"""

import contextlib
import ctypes
import os
from dataclasses import dataclass
from pathlib import Path

from grader.isolation.sandboxed import libc, system_calls

THREADS = 256  # at most
_NOBODY = 65534
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")  # the machine's own; nobody may make others
FOLDER = "/learner"  # home and temporary folder; not /tmp, for this project may be there


@dataclass(frozen=True)
class ProcessLimits:
    """What a process may use.

    Attributes:
      processor_seconds: seconds of processor time, all threads together.
      memory: bytes of addresses beyond those that it begins with.
      resident: bytes of pages and page tables beyond those that it begins with.
      disk: bytes of its temporary folder, and of the largest file in it.
    """

    processor_seconds: int
    memory: int
    resident: int = 512 * 2**20
    disk: int = 64 * 2**20


def be_nobody() -> None:
    """Make this process, which is root, another user that has no rights: of root's threads Linux counts none."""
    os.setgroups([])
    os.setresgid(_NOBODY, _NOBODY, _NOBODY)
    os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    libc.prctl(_PR_SET_DUMPABLE, 1)  # or its files in /proc stay root's, and it could enter no namespaces


def enter_namespaces() -> None:
    """Move to namespaces of its own: users, mounts, network, IPC, host name, and processes for the next fork."""
    user, group = os.getuid(), os.getgid()  # not root's: to map that takes a right that was given up
    os.unshare(
        os.CLONE_NEWUSER | os.CLONE_NEWNS | os.CLONE_NEWPID | os.CLONE_NEWNET | os.CLONE_NEWIPC | os.CLONE_NEWUTS
    )
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def prepare() -> None:
    """Make what `lock` needs and can be made before: each process that is forked then has it."""
    libc.library()
    system_calls.made()


def lock(limits: ProcessLimits) -> None:
    """Give up all that a learner's code does not need, for good. Call it in the first process after
    `enter_namespaces`."""
    os.setsid()  # a signal to one's own process group reaches those of it in other namespaces, the zygote for one
    _last_in_line()  # this and the limits are in /proc
    _set_limits(limits)
    _mount_at(FOLDER, f"size={limits.disk},nr_inodes=4096,mode=0700")
    _protect_devices()
    _hide_processes()
    os.chdir(FOLDER)
    libc.end_with_parent()
    # A page of each huge one is enough to have them all, and what is then handed on is counted nowhere.
    libc.prctl(_PR_SET_THP_DISABLE, 1)
    with contextlib.suppress(OSError):  # before Linux 6.4 nobody could turn it on for a process and all that it forks
        libc.prctl(_PR_SET_MEMORY_MERGE, 0)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _drop_capabilities()
    system_calls.refuse()


def _last_in_line():
    """If the system's memory runs out, it ends this process, and not whoever grades. /proc is out of reach soon, so
    that this is for good."""
    Path("/proc/self/oom_score_adj").write_text("1000")


def _set_limits(limits: ProcessLimits):
    import resource  # which Windows does not have

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    sizes = {
        resource.RLIMIT_AS: pages * resource.getpagesize() + limits.memory,
        resource.RLIMIT_CPU: limits.processor_seconds,
        resource.RLIMIT_FSIZE: limits.disk,
        resource.RLIMIT_NOFILE: 256,
        resource.RLIMIT_NPROC: THREADS,  # processes are refused altogether. Linux does not count root's
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_SIGPENDING: 256,
    }
    for what, most in sizes.items():
        with contextlib.suppress(ValueError):  # a lower limit holds already
            resource.setrlimit(what, (most, most))


_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT, _MS_BIND = 1, 2, 4, 8, 32, 4096
# A mount's flags as statvfs(3) and as mount(2) have them: nosuid, noexec, noatime, nodiratime, relatime.
_ST_TO_MS = {2: 2, 8: 8, 1024: 1024, 2048: 2048, 4096: 1 << 21}
_PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_SET_THP_DISABLE = 4, 24, 38, 41
_PR_SET_MEMORY_MERGE = 67


def _mount_at(place: str, options: str, flags: int = 0):
    flags |= _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    libc.call("mount", b"tmpfs", place.encode(), b"tmpfs", ctypes.c_ulong(flags), options.encode())


def _protect_devices():
    """Make the devices' mode and times read-only: the machine has them too, and the next answer would find them
    changed. On a read-only mount a device is written to as before, and reading it changes no time."""
    for device in DEVICES:
        there = os.statvfs(device).f_flag  # they must stay as they are
        kept = sum(flag for seen, flag in _ST_TO_MS.items() if there & seen)
        flags = _MS_REMOUNT | _MS_BIND | _MS_RDONLY | kept
        libc.call("mount", None, device.encode(), None, ctypes.c_ulong(flags), None)


def _hide_processes():
    """/proc would show the zygote and its other children. XLA reads one file there, and compiles for that processor."""
    processor = Path("/proc/cpuinfo")
    text = processor.read_bytes()
    options = "nr_inodes=4,mode=0700"
    _mount_at("/proc", options)
    processor.write_bytes(text)
    _mount_at("/proc", options, _MS_REMOUNT | _MS_RDONLY)


def _drop_capabilities():
    for capability in range(64):
        with contextlib.suppress(OSError):  # the kernel has fewer
            libc.prctl(_PR_CAPBSET_DROP, capability)
    version, none = 0x20080522, (ctypes.c_uint32 * 6)()
    libc.call("capset", (ctypes.c_uint32 * 2)(version, 0), none)
