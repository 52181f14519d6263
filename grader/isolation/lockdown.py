"""What a process gives up before it runs anything of a learner's: its view of the system, its rights, its appetite.

Linux only; elsewhere it can be imported, so that there is a sentence to say so. Nothing here knows about grading.
"""

import contextlib
import ctypes
import os
import platform
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

FOLDER = "/learner"  # home and temporary folder; not /tmp, for this project may be there


@dataclass(frozen=True)
class ProcessLimits:
    """What a process may use.

    Attributes:
      processor_seconds: seconds of processor time, all threads together.
      memory: bytes of addresses beyond those that it begins with.
      disk: bytes of its temporary folder, and of the largest file in it.
    """

    processor_seconds: int
    memory: int
    disk: int = 64 * 2**20


def enter_namespaces():
    """Moves to namespaces of its own: users, mounts, network, IPC, host name, and processes for the next fork."""
    user, group = os.getuid(), os.getgid()  # not root's: to map that takes a right that was given up
    os.unshare(
        os.CLONE_NEWUSER | os.CLONE_NEWNS | os.CLONE_NEWPID | os.CLONE_NEWNET | os.CLONE_NEWIPC | os.CLONE_NEWUTS
    )
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def lock(limits: ProcessLimits):
    """Gives up all that a learner's code does not need, for good. Call it in the first process after
    `enter_namespaces`."""
    os.setsid()  # a signal to one's own process group reaches those of it in other namespaces, the zygote for one
    _limit(limits)  # it reads /proc
    _mount(FOLDER, f"size={limits.disk},nr_inodes=4096,mode=0700")
    _hide_processes()
    os.chdir(FOLDER)
    _prctl(_PR_SET_PDEATHSIG, 9)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _drop_capabilities()
    _filter_system_calls()


def _limit(limits: ProcessLimits):
    import resource  # which Windows does not have

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    sizes = {
        resource.RLIMIT_AS: pages * resource.getpagesize() + limits.memory,
        resource.RLIMIT_CPU: limits.processor_seconds,
        resource.RLIMIT_FSIZE: limits.disk,
        resource.RLIMIT_NOFILE: 256,
        resource.RLIMIT_NPROC: 256,  # threads: processes are refused altogether. Linux does not count root's
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    for what, most in sizes.items():
        with contextlib.suppress(ValueError):  # a lower limit holds already
            resource.setrlimit(what, (most, most))


_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT = 1, 2, 4, 8, 32
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 22, 24, 38


def _mount(place: str, options: str, flags: int = 0):
    flags |= _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    _call(_libc.mount, b"tmpfs", place.encode(), b"tmpfs", ctypes.c_ulong(flags), options.encode())


def _hide_processes():
    """/proc would show the zygote and its other children. XLA reads one file there, and compiles for that processor."""
    processor = Path("/proc/cpuinfo")
    text = processor.read_bytes()
    options = "nr_inodes=4,mode=0700"
    _mount("/proc", options)
    processor.write_bytes(text)
    _mount("/proc", options, _MS_REMOUNT | _MS_RDONLY)


def _prctl(what: int, *arguments):
    _call(_libc.prctl, what, *(ctypes.c_ulong(argument) for argument in (*arguments, 0, 0, 0)[:4]))


def _call(function, *arguments):
    if function(*arguments):
        raise OSError(ctypes.get_errno(), f"{function.__name__}: {os.strerror(ctypes.get_errno())}")


def _drop_capabilities():
    for capability in range(64):
        with contextlib.suppress(OSError):  # the kernel has fewer
            _prctl(_PR_CAPBSET_DROP, capability)
    version, none = 0x20080522, (ctypes.c_uint32 * 6)()
    _call(_libc.capset, (ctypes.c_uint32 * 2)(version, 0), none)


# System calls that learners' code does not need: processes (memory is limited for each, so there must be one only),
# memory that no limit counts, the network, and what attacks on kernels begin with. Numbers on x86-64 and on arm64.
_REFUSED = {
    "fork": (57, None),
    "vfork": (58, None),
    "unshare": (272, 97),
    "setns": (308, 268),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "open_by_handle_at": (304, 265),
}
_CLONE, _CLONE3, _SOCKET = (56, 220), (435, 435), (41, 198)
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # which number, and the kernel's name for it
_CLONE_THREAD, _AF_UNIX = 0x10000, 1
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # of Berkeley packet filters
_ALLOW, _KILL, _EPERM, _ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026


def knows(machine: str = platform.machine()) -> bool:
    """Whether the system calls of this kind of processor are known."""
    return machine in _MACHINES


def _filter_system_calls():
    column, architecture = _MACHINES[platform.machine()]
    number, kind, first_argument = 0, 4, 16  # offsets in what the filter is shown
    steps = [
        (_LOAD, 0, 0, kind),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, number),
        (_AT_LEAST, 0, 1, 0x40000000),  # x86-64 has a second set of numbers there
        (_RETURN, 0, 0, _EPERM),
        # Without clone3 a thread is made with clone, whose flags can be seen.
        (_EQUAL, 0, 1, _CLONE3[column]),
        (_RETURN, 0, 0, _ENOSYS),
    ]
    for numbers in _REFUSED.values():
        if numbers[column] is not None:
            steps += [(_EQUAL, 0, 1, numbers[column]), (_RETURN, 0, 0, _EPERM)]
    steps += [
        (_EQUAL, 0, 4, _CLONE[column]),
        (_LOAD, 0, 0, first_argument),
        (_ANY_BIT, 1, 0, _CLONE_THREAD),
        (_RETURN, 0, 0, _EPERM),
        (_RETURN, 0, 0, _ALLOW),
        (_EQUAL, 0, 3, _SOCKET[column]),
        (_LOAD, 0, 0, first_argument),
        (_EQUAL, 1, 0, _AF_UNIX),
        (_RETURN, 0, 0, _EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    described = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(program)))
    _prctl(_PR_SET_SECCOMP, 2, ctypes.addressof(described))
