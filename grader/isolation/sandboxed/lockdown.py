"""Give up privileges before a learner's code runs: access to the system, capabilities, and resources.

This module works only on Linux. It can be imported elsewhere, so that the grader can explain why it does not work
there. It is independent of grading.
"""

import contextlib
import ctypes
import os
from dataclasses import dataclass
from pathlib import Path

from grader.isolation.sandboxed import libc, system_calls

THREADS = 256  # the maximum number of threads of an answer
_NOBODY = 65534
# The machine's device files; an answer cannot create others.
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
FOLDER = "/learner"  # the home and temporary folder; not /tmp, because this project may be in /tmp


@dataclass(frozen=True)
class ProcessLimits:
    """The limits of a process.

    Attributes:
      processor_seconds: the seconds of processor time of all threads together.
      address_space: the bytes of address space, in addition to those that the process starts with.
      memory: the bytes of resident pages and page tables, in addition to those that the process starts with.
      disk: the bytes of the temporary folder, and of the largest file in it.
    """

    processor_seconds: int
    address_space: int
    memory: int = 256 * 2**20
    disk: int = 64 * 2**20


def be_nobody() -> None:
    """Change this process's user from root to one without privileges, because Linux does not limit the number of root's
    threads."""
    os.setgroups([])
    os.setresgid(_NOBODY, _NOBODY, _NOBODY)
    os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    libc.prctl(_PR_SET_DUMPABLE, 1)  # otherwise, root still owns its files in /proc, and it could not enter namespaces


def enter_namespaces() -> None:
    """Move this process to new namespaces (users, mounts, network, IPC, host name), and its next fork to a new PID
    namespace."""
    user, group = os.getuid(), os.getgid()  # not root: mapping root needs a capability that was dropped
    os.unshare(
        os.CLONE_NEWUSER | os.CLONE_NEWNS | os.CLONE_NEWPID | os.CLONE_NEWNET | os.CLONE_NEWIPC | os.CLONE_NEWUTS
    )
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def prepare() -> None:
    """Prepare what `lock` needs, once for all forks of this process."""
    libc.library()
    system_calls.build_filter()


def lock(limits: ProcessLimits) -> None:
    """Give up everything that a learner's code does not need, permanently. Call this function in the first process that
    is forked after `enter_namespaces`."""
    # Otherwise, a signal to the process group would also reach its processes in other namespaces, such as the zygote.
    os.setsid()
    _prefer_as_oom_victim()  # this call and the next need /proc, which is hidden afterwards
    _set_limits(limits)
    _mount_at(FOLDER, f"size={limits.disk},nr_inodes=4096,mode=0700")
    _protect_devices()
    _hide_processes()
    os.chdir(FOLDER)
    libc.end_with_parent()
    # Writing one small page would allocate a whole huge page, and memory that is then passed on would not be counted.
    libc.prctl(_PR_SET_THP_DISABLE, 1)
    with contextlib.suppress(OSError):  # before Linux 6.4, page merging could not be enabled for a whole process
        libc.prctl(_PR_SET_MEMORY_MERGE, 0)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _drop_capabilities()
    system_calls.refuse()


def _prefer_as_oom_victim():
    """Make the kernel kill this process rather than the grader if the system runs out of memory. The process cannot
    undo this, because /proc will be hidden."""
    Path("/proc/self/oom_score_adj").write_text("1000")


def _set_limits(limits: ProcessLimits):
    import resource  # does not exist on Windows

    sizes = {
        resource.RLIMIT_AS: libc.address_space() + limits.address_space,
        resource.RLIMIT_CPU: limits.processor_seconds,
        resource.RLIMIT_FSIZE: limits.disk,
        resource.RLIMIT_NOFILE: 256,
        # Limits threads: creating processes is forbidden anyway. Linux does not apply it to root.
        resource.RLIMIT_NPROC: THREADS,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_SIGPENDING: 256,
    }
    for what, most in sizes.items():
        with contextlib.suppress(ValueError):  # a lower limit is already set
            resource.setrlimit(what, (most, most))


_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT, _MS_BIND = 1, 2, 4, 8, 32, 4096
# Maps a mount's flags from statvfs(3) to mount(2): nosuid, noexec, noatime, nodiratime, relatime.
_ST_TO_MS = {2: 2, 8: 8, 1024: 1024, 2048: 2048, 4096: 1 << 21}
_PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_SET_THP_DISABLE = 4, 24, 38, 41
_PR_SET_MEMORY_MERGE = 67


def _mount_at(place: str, options: str, flags: int = 0):
    flags |= _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    libc.call("mount", b"tmpfs", place.encode(), b"tmpfs", ctypes.c_ulong(flags), options.encode())


def _protect_devices():
    """Make the devices' modes and timestamps read-only. The machine shares these devices, so otherwise the next answer
    could see changes to them. On a read-only mount, a process can still write to a device, and reading it does not
    change its timestamps."""
    for device in DEVICES:
        there = os.statvfs(device).f_flag  # a remount must not clear these flags
        kept = sum(flag for seen, flag in _ST_TO_MS.items() if there & seen)
        flags = _MS_REMOUNT | _MS_BIND | _MS_RDONLY | kept
        libc.call("mount", None, device.encode(), None, ctypes.c_ulong(flags), None)


def _hide_processes():
    """Replace /proc, which would show the zygote and its other children, with a folder that contains only `cpuinfo`.
    XLA reads this file to compile for the processor."""
    processor = Path("/proc/cpuinfo")
    text = processor.read_bytes()
    options = "nr_inodes=4,mode=0700"
    _mount_at("/proc", options)
    processor.write_bytes(text)
    _mount_at("/proc", options, _MS_REMOUNT | _MS_RDONLY)


def _drop_capabilities():
    for capability in range(64):
        with contextlib.suppress(OSError):  # the kernel has fewer capabilities
            libc.prctl(_PR_CAPBSET_DROP, capability)
    version, none = 0x20080522, (ctypes.c_uint32 * 6)()
    libc.call("capset", (ctypes.c_uint32 * 2)(version, 0), none)
