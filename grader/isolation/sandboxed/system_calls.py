"""Allow only the system calls that answers and their programs need.

The list started with all calls that were recorded while every shipped answer, right and wrong, was traced and its
programs were run, also with XLA. The list also contains the calls that other versions of the C library, the kernel and
Python make for the same purposes, and calls that are normal in learners' code (files, clocks, signals to the own
process). All other calls fail with ENOSYS, as on a kernel that is older than the call. C libraries then use another
call. Calls that future kernels add are therefore refused as well.

This module builds the filter itself, because the usual alternatives do not fit. bubblewrap's `--seccomp` would also
apply to the zygote, which must fork and create namespaces. libseccomp would have to be visible in the sandbox, in a
version for the machine's processor. The filter is a Berkeley packet filter as described in seccomp(2), built from the
tables in this module.
"""

import ctypes
import functools
import platform
import struct
import sys
from dataclasses import dataclass

from grader.isolation.sandboxed import libc

# Each call with its numbers on x86-64 and on arm64; "-" if it does not exist there.
_ALLOWED = """
    mmap 9 222, munmap 11 215, mprotect 10 226, mremap 25 216, madvise 28 233, brk 12 214, mbind 237 235,
    get_mempolicy 239 236, membarrier 324 283,

    read 0 63, write 1 64, readv 19 65, writev 20 66, pread64 17 67, pwrite64 18 68, lseek 8 62, open 2 -,
    openat 257 56, close 3 57, close_range 436 436, dup 32 23, dup2 33 -, dup3 292 24, fcntl 72 25,
    ioctl 16 29, stat 4 -, fstat 5 80, lstat 6 -, newfstatat 262 79, statx 332 291, access 21 -, faccessat 269 48,
    faccessat2 439 439, readlink 89 -, readlinkat 267 78, getdents64 217 61, getcwd 79 17,
    chdir 80 49, fchdir 81 50, mkdir 83 -, mkdirat 258 34, rmdir 84 -, unlink 87 -, unlinkat 263 35, rename 82 -,
    renameat 264 38, renameat2 316 276, chmod 90 -, fchmod 91 52, fchmodat 268 53, umask 95 166, ftruncate 77 46,
    fsync 74 82, fdatasync 75 83, utimensat 280 88, poll 7 -, ppoll 271 73, select 23 -, pselect6 270 72,
    getsockname 51 204, getsockopt 55 209, sendto 44 206, recvfrom 45 207, shutdown 48 210,

    clone 56 220, futex 202 98, set_robust_list 273 99, rseq 334 293, gettid 186 178, sched_yield 24 124,
    sched_getaffinity 204 123, sched_getparam 143 121, sched_getscheduler 145 120, sched_get_priority_max 146 125,
    sched_get_priority_min 147 126, getcpu 309 168, exit 60 93, exit_group 231 94,

    rt_sigaction 13 134, rt_sigprocmask 14 135, rt_sigreturn 15 139, rt_sigpending 127 136, rt_sigsuspend 130 133,
    rt_sigtimedwait 128 137, sigaltstack 131 132, kill 62 129, tkill 200 130, tgkill 234 131, pause 34 -, alarm 37 -,
    setitimer 38 103, getitimer 36 102, restart_syscall 219 128,

    clock_gettime 228 113, clock_getres 229 114, gettimeofday 96 169, time 201 -, nanosleep 35 101,
    clock_nanosleep 230 115, times 100 153, getrusage 98 165,

    getpid 39 172, getppid 110 173, getuid 102 174, geteuid 107 175, getgid 104 176, getegid 108 177,
    getgroups 115 158, getpgid 121 155, getpgrp 111 -, getsid 124 156, getpriority 140 141, prctl 157 167,
    arch_prctl 158 -, prlimit64 302 261, getrlimit 97 163, uname 63 160,
    getrandom 318 278
"""
# Calls that Python exposes. They fail with EPERM, which Python shows as PermissionError, a clearer error than for
# ENOSYS. An answer must have only one process, whose memory is limited, and no memory that is exempt from the limits.
# Pipes and sockets are refused because the kernel takes their inode numbers from one counter for all processes. If an
# answer could create many of them, another answer could read how many from the inode number of its own output.
_REFUSED = """
    fork 57 -, vfork 58 -, execve 59 221, execveat 322 281, unshare 272 97, setns 308 268, memfd_create 319 279,
    pipe 22 -, pipe2 293 59, socket 41 198, socketpair 53 199
"""


@dataclass(frozen=True)
class _Only:
    """A rule that allows a system call only for some values of one argument. Otherwise, the call fails with EPERM.

    Attributes:
      argument: the index of the argument. The rule checks only its lower 32 bits, because the kernel reads no others.
      values: the allowed values; empty if the argument must be a null pointer, of which the rule checks all bits.
      mask: the bits of the argument that are compared with `values`.
    """

    argument: int
    values: tuple[int, ...] = ()
    mask: int = 0xFFFFFFFF


_ONLY = {
    # CLONE_THREAD, CLONE_FILES and CLONE_FS, as C libraries create threads. They use clone if clone3 is missing, and a
    # filter can read clone's flags. Without CLONE_FILES, each thread could have as many open files as the limit
    # allows for the process.
    "clone": _Only(0, values=(0x10600,), mask=0x10600),
    "close_range": _Only(2, values=(0, 4)),  # not CLOSE_RANGE_UNSHARE, for the same reason
    # MAP_PRIVATE, the only kind of mapping whose pages are counted as the process's own, and no MAP_HUGETLB. Shared
    # memory stays allocated when all of its pages except one are unmapped, and no limit counts it. Huge pages are
    # reserved for other programs.
    "mmap": _Only(3, values=(2,), mask=0x4000F),
    # The advice that allocators and thread stacks give: MADV_NORMAL, RANDOM, SEQUENTIAL, WILLNEED, DONTNEED, FREE,
    # DONTFORK, DOFORK, HUGEPAGE (without effect, because huge pages are disabled), NOHUGEPAGE, DONTDUMP, DODUMP,
    # GUARD_INSTALL, GUARD_REMOVE. Not MERGEABLE: the time of a write to a merged page reveals whether another process
    # has a page with the same content.
    "madvise": _Only(2, values=(0, 1, 2, 3, 4, 8, 10, 11, 14, 15, 16, 17, 102, 103)),
    # No locks, which use kernel memory without a limit: F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC.
    "fcntl": _Only(1, values=(0, 1, 2, 3, 4, 1030)),
    # Queries whether a file is a terminal, and its size (TCGETS, TCGETS2, TIOCGWINSZ); FIONREAD, FIONBIO, FIONCLEX,
    # FIOCLEX.
    "ioctl": _Only(1, values=(0x5401, 0x802C542A, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)),
    # PR_SET_NAME, PR_GET_NAME, PR_SET_VMA, which name threads and memory. Enabling huge pages is not allowed.
    "prctl": _Only(0, values=(15, 16, 0x53564D41)),
    # Reading limits is allowed, setting them is not: a process that ends at its own lower limit would look as if it had
    # been killed from outside.
    "prlimit64": _Only(2),
}
# The column of the tables above, and the kernel's ID of the architecture.
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_LOAD, _EQUAL, _AND, _RETURN = 0x20, 0x15, 0x54, 0x06  # of Berkeley packet filters
_ALLOW, _KILL, _EPERM, _ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026
_STEP = struct.Struct("=HBBI")  # `struct sock_filter`
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in the filter's input, `struct seccomp_data`


def is_known_machine() -> bool:
    """Return whether this is Linux on a kind of processor whose system calls are known."""
    return sys.platform == "linux" and platform.machine() in _MACHINES


def allowed_calls(machine: str = platform.machine()) -> dict[str, int]:
    """Return the allowed system calls on a kind of processor, as a map from names to numbers."""
    return _call_numbers(_ALLOWED, _MACHINES[machine][0])


def _call_numbers(table: str, column: int) -> dict[str, int]:
    calls = (call.split() for call in table.split(","))
    return {name: int(numbers[column]) for name, *numbers in calls if numbers[column] != "-"}


def refuse() -> None:
    """Apply the filter to this process and its threads, permanently."""
    program = ctypes.create_string_buffer(steps := build_filter())
    described = ctypes.create_string_buffer(struct.pack("@HP", len(steps) // _STEP.size, ctypes.addressof(program)))
    libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(described))


@functools.cache
def build_filter() -> bytes:
    """Return the filter in the kernel's format."""
    return b"".join(_STEP.pack(*step) for step in _filter_steps(platform.machine()))


def _filter_steps(machine: str) -> list[tuple[int, int, int, int]]:
    """Return the filter's instructions: the code, how many instructions to skip if the test is true and if it is false,
    and the operand."""
    column, architecture = _MACHINES[machine]
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    for name, number in allowed_calls(machine).items():
        then = [(_RETURN, 0, 0, _ALLOW)] if name not in _ONLY else _check_call(_ONLY[name])
        steps += [(_EQUAL, 0, len(then), number), *then]
    for number in _call_numbers(_REFUSED, column).values():
        steps += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _EPERM)]
    return [*steps, (_RETURN, 0, 0, _ENOSYS)]


def _check_call(only: _Only) -> list[tuple[int, int, int, int]]:
    steps = [(_LOAD, 0, 0, _ARGUMENTS + 8 * only.argument)]
    if not only.values:
        null = [(_EQUAL, 1, 0, 0), (_RETURN, 0, 0, _EPERM)]
        return [*steps, *null, (_LOAD, 0, 0, _ARGUMENTS + 8 * only.argument + 4), *null, (_RETURN, 0, 0, _ALLOW)]
    steps += [(_AND, 0, 0, only.mask)]
    for value in only.values:
        steps += [(_EQUAL, 0, 1, value), (_RETURN, 0, 0, _ALLOW)]
    return [*steps, (_RETURN, 0, 0, _EPERM)]
