"""System calls that an answer must not make: each test makes the call and checks the result."""

import functools
import mmap
import os
import platform
import sys
import threading

import bubblewrap
import pytest
import sample_answers

from grader.isolation.sandboxed import system_calls
from grader.isolation.sandboxed.lockdown import THREADS

NAME = bubblewrap.NAME
HEAD = """
import ctypes, errno, fcntl, itertools, mmap, os, resource, signal, socket, struct, sys, threading
libc = ctypes.CDLL(None, use_errno=True)

def error_of(number, *arguments):
    done = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
    return errno.errorcode[ctypes.get_errno()] if done == -1 else done

def tries(action, *arguments):
    try:
        return action(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]

def finds(what):
    print(repr(what), flush=True)
    os._exit(0)
"""


@pytest.fixture(scope="module")
def grader(grader_in_sandbox):
    return grader_in_sandbox()


found = functools.partial(bubblewrap.printed_by, HEAD)


# The calls' numbers on x86-64 and arm64; a single number is the same on both.
_SOME = {
    "vmsplice": (278, 75),
    "splice": (275, 76),
    "tee": (276, 77),
    "io_setup": (206, 0),
    "inotify_init1": (294, 26),
    "fanotify_init": (300, 262),
    "epoll_create1": (291, 20),
    "timer_create": (222, 107),
    "personality": (135, 92),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "mq_open": (240, 180),
    "shmget": (29, 194),
    "mount": (165, 40),
    "open_tree": (428, 428),
    "statmount": (457, 457),
    "listmount": (458, 458),
    "io_uring_setup": (425, 425),
    "clone3": (435, 435),
    "pidfd_open": (434, 434),
    "landlock_create_ruleset": (444, 444),
    "memfd_secret": (447, 447),
    "one that is yet to come": (999, 999),
}


@bubblewrap.needed
def test_whatever_is_not_on_the_list_is_not_there(grader):
    column = {"x86_64": 0, "aarch64": 1}[platform.machine()]
    asked = {name: numbers[column] for name, numbers in _SOME.items()}
    assert not set(asked.values()) & set(system_calls.allowed_calls().values())
    got = found(f"finds({{name: error_of(number, 0, 0, 0, 0, 0) for name, number in {asked}.items()}})", grader)
    assert got == dict.fromkeys(asked, "ENOSYS")


@bubblewrap.needed
def test_no_number_but_those_on_the_list_leads_anywhere(grader):
    # 335 and 336 belong to the kernel's uprobes, and calling them from elsewhere kills the process.
    others = {*range(1200)} - {335, 336} - set(system_calls.allowed_calls().values())
    body = f"finds({{error_of(number, -1, -1, -1, -1, -1) for number in {others}}})"
    assert found(body, grader) == {"ENOSYS", "EPERM"}


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_each_system_call_has_its_own_number(machine):
    numbers = system_calls.allowed_calls(machine)
    assert len(set(numbers.values())) == len(numbers) > 90
    assert not {"vmsplice", "io_setup", "keyctl", "execve", "clone3", "ptrace"} & set(numbers)


@bubblewrap.needed
def test_memory_pages_cannot_be_moved_into_pipes_beyond_the_limit(grader):
    body = """
    number = {"x86_64": 278, "aarch64": 75}[os.uname().machine]
    handed_on = 0
    for _ in range(100):
        page = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        page[0] = 1
        where = ctypes.addressof(ctypes.c_char.from_buffer(page))
        vector = struct.pack("PP", where, 4096)
        handed_on += error_of(number, 1, ctypes.cast(vector, ctypes.c_void_p).value, 1, 0) == 4096
    finds(handed_on)
    """
    assert found(body, grader) == 0


@bubblewrap.needed
def test_a_memory_page_becomes_no_huge_page_and_is_not_shared(grader):
    body = """
    region = mmap.mmap(-1, 256 * 2**20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    tries(region.madvise, 14)  # MADV_HUGEPAGE
    merged = tries(region.madvise, 12)  # MADV_MERGEABLE
    again = error_of({"x86_64": 157, "aarch64": 167}[os.uname().machine], 41, 0, 0, 0, 0)  # PR_SET_THP_DISABLE
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for place in range(0, len(region), 2**21):
        region[place] = 1
    collapsed = tries(region.madvise, 25)
    finds((again, merged, collapsed, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 2**10))
    """
    *said, mebibytes = found(body, grader)
    assert said == ["EPERM"] * 3 and mebibytes < 64


@bubblewrap.needed
def test_kernel_memory_that_an_answer_causes_is_bounded(grader):
    body = """
    file = open("/learner/locked", "w")
    locks = sum(tries(fcntl.lockf, file, fcntl.LOCK_EX, 1, 2 * place) is None for place in range(1000))
    larger = tries(fcntl.fcntl, 1, 1031, 2**20)  # F_SETPIPE_SZ of its output
    huge = tries(lambda: mmap.mmap(-1, 2**21, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000))
    watched = [libc.inotify_init1(0), libc.epoll_create1(0), libc.io_setup(1, 0) if hasattr(libc, "io_setup") else -1]
    signals, _ = resource.getrlimit(resource.RLIMIT_SIGPENDING)
    passed = tries(socket.send_fds, socket.socket(fileno=3), [b"1"], [1])
    finds((locks, larger, huge, watched, signals, passed))
    """
    assert found(body, grader) == (0, "EPERM", "EPERM", [-1, -1, -1], 256, "ENOSYS")


@bubblewrap.needed
def test_threads_share_open_files(grader):
    # Otherwise, each of 256 threads could have 256 open files.
    body = """
    clone = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
    files, thread = 0x400, 0x10000 | 0x800 | 0x200 | 0x100  # CLONE_FILES; CLONE_THREAD, SIGHAND, FS, VM
    unshared = error_of(436, 1000, 1001, 2)  # close_range with CLOSE_RANGE_UNSHARE
    finds((error_of(clone, thread, 0, 0, 0, 0), error_of(clone, files, 0, 0, 0, 0), unshared, os.closerange(9, 20)))
    """
    assert found(body, grader) == ("EPERM", "EPERM", "EPERM", None)


@bubblewrap.needed
def test_memory_is_private_and_no_other_kind(grader):
    body = """
    kinds = {kind: tries(lambda: mmap.mmap(-1, 4096, flags=kind | mmap.MAP_ANONYMOUS)) for kind in range(16)}
    finds({kind for kind, error in kinds.items() if error not in ("EPERM", "EINVAL")})
    """
    assert found(body, grader) == {mmap.MAP_PRIVATE}


def _another_process():
    os.posix_spawn(sys.executable, [sys.executable, "-c", ""], {})


@pytest.mark.slow
@pytest.mark.skipif(not system_calls.is_known_machine(), reason="needs Linux on x86-64 or arm64")
def test_all_shipped_answers_are_tried_with_no_more_system_calls_than_these():
    for refused in (_another_process, lambda: os.unshare(0), lambda: os.eventfd(0)):
        with pytest.raises(OSError, match=r"Operation not permitted|Function not implemented"):
            sample_answers.with_few_system_calls(refused)
    slug, (answer, _) = NAME, next(iter(sample_answers.right(NAME).values()))
    threads = sample_answers.with_few_system_calls(threading.get_ident)

    def noted(*arguments):
        tried_in.append(threading.get_ident())
        return answer(*arguments)

    tried_in = []
    assert sample_answers.verdict_on(noted, slug).passed and {*tried_in} == {threads}


@bubblewrap.needed
def test_there_are_threads_and_no_processes(grader):
    body = """
    threads = [threading.Thread(target=int) for _ in range(20)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    processes = [tries(os.fork), tries(os.execv, sys.executable, ["python"]), tries(os.posix_spawn, "/x", ["x"], {})]
    finds((len(threads), processes, tries(os.memfd_create, "x"), tries(os.unshare, os.CLONE_NEWUSER)))
    """
    assert found(body, grader) == (20, ["EPERM"] * 3, "EPERM", "EPERM")


@bubblewrap.needed
def test_there_are_so_many_threads_and_no_more_also_where_root_grades(grader, zygote):
    if zygote.uncounted and zygote.without_groups:
        pytest.skip("this root may be nobody else, and threads of root's are not counted")
    body = """
    threading.stack_size(2**15)
    stay, count = threading.Event(), 0
    try:
        while count < 1000:
            threading.Thread(target=stay.wait, daemon=True).start()
            count += 1
    except RuntimeError:
        finds(count)
    finds(count)
    """
    assert 200 < found(body, grader) <= THREADS
