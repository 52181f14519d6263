"""The filter that refuses system calls which answers do not need.

It is ours, since each of the usual ways does more than is wanted. bubblewrap's `--seccomp` would bind the zygote too,
which must fork and make namespaces; libseccomp would have to lie in the sandbox, and knows hundreds of system calls,
where these thirty instructions can be read at a sitting. They are a Berkeley packet filter, as seccomp(2) has it.
"""

import ctypes
import platform
import struct

from grader.isolation.inside import libc

# System calls that learners' code does not need: processes (memory is limited for each, so there must be one only),
# memory that no limit counts, the network, and what attacks on kernels begin with. Numbers on x86-64 and on arm64.
_REFUSED: dict[str, tuple[int | None, int | None]] = {
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
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # of Berkeley packet filters
_ALLOW, _KILL, _EPERM, _ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026


def knows(machine: str = platform.machine()) -> bool:
    """Whether the system calls of this kind of processor are known."""
    return machine in _MACHINES


def refuse() -> None:
    """Refuses them to this process for good: they fail with EPERM, which Python raises as PermissionError."""
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
        if (refused := numbers[column]) is not None:
            steps += [(_EQUAL, 0, 1, refused), (_RETURN, 0, 0, _EPERM)]
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
    libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(described))
