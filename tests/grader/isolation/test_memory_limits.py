"""No answer can take much of the machine's memory with any system call, even without control groups."""

import textwrap
import threading
from dataclasses import replace
from pathlib import Path

import bubblewrap
import pytest
from sample_answers import as_submission

from grader.classroom.collect import Submission
from grader.isolation import remote_execution
from grader.isolation.limits import FOR_BATCH

NAME = "checkpoint_dot_policy"
ROOT = Path(__file__).parents[3]
HEAD = """
import ctypes, mmap, os, threading
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
FAILED, SHARED, PRIVATE, ANONYMOUS, FIXED = 2**64 - 1, 1, 2, 32, 0x100000

def mapped(size, flags, file=-1, where=None):
    place = libc.mmap(where, size, 3, flags, file, 0)
    return None if place == FAILED else place
"""
TOO_MUCH = f"more than the allowed memory ({FOR_BATCH.memory >> 20} MiB"
# Each attack would take 1.5 GiB if nothing stopped it, and no more.
ATTACKS = {
    "shared pages, all but one unmapped": ("refused", """
        for _ in range(6):
            if not (place := mapped(2**28, SHARED | ANONYMOUS)):
                raise OSError("refused")
            ctypes.memset(place, 1, 2**28)
            libc.munmap(ctypes.c_void_p(place + 4096), ctypes.c_size_t(2**28 - 4096))
        """),
    "shared pages of /dev/zero": ("refused", """
        zero = os.open("/dev/zero", os.O_RDWR)
        for _ in range(6):
            if not (place := mapped(2**28, SHARED, zero)):
                raise OSError("refused")
            ctypes.memset(place, 1, 2**28)
            libc.munmap(ctypes.c_void_p(place + 4096), ctypes.c_size_t(2**28 - 4096))
        """),
    "shared pages of a file": ("refused", """
        file = open("/learner/large", "w+b")
        file.truncate(2**20)
        if not mapped(2**20, SHARED, file.fileno()) and not mapped(2**20, 3, file.fileno()):
            raise OSError("refused")
        """),
    "a second view of the same pages": ("refused", """
        place = mapped(2**20, PRIVATE | ANONYMOUS)
        if libc.mremap(ctypes.c_void_p(place), ctypes.c_size_t(0), ctypes.c_size_t(2**20), 1) == FAILED:
            raise OSError("refused")
        """),
    "pages, one after the other": (TOO_MUCH, "held = [os.urandom(2**20) for _ in range(1500)]"),
    "pages, in many threads": (TOO_MUCH, """
        held = []
        def take():
            for _ in range(48):
                held.append(bytearray(b"1") * 2**20)
        threads = [threading.Thread(target=take) for _ in range(32)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        """),
    "pages, in a thread that outlives the first": (TOO_MUCH, """
        def take():
            held = []
            for _ in range(1500):
                held.append(os.urandom(2**20))
            print("it has all", flush=True)
            os._exit(0)
        threading.Thread(target=take).start()
        libc.syscall(ctypes.c_long({"x86_64": 60, "aarch64": 93}[os.uname().machine]), 0)
        """),
    "pages that were moved from": (TOO_MUCH, """
        for _ in range(6):
            place = mapped(2**28, PRIVATE | ANONYMOUS)
            ctypes.memset(place, 1, 2**28)
            libc.mremap(ctypes.c_void_p(place), ctypes.c_size_t(2**28), ctypes.c_size_t(2**28), 5)  # DONTUNMAP
        """),
    # 12 KiB per page: the page itself and a page table on each of two levels.
    "pages far apart": (TOO_MUCH, """
        for number in range(120_000):
            if place := mapped(4096, PRIVATE | ANONYMOUS | FIXED, where=2**40 + number * 2**30):
                ctypes.memset(place, 1, 1)
            else:
                break
        held = bytearray(b"1") * (400 * 2**20)
        """),
}  # fmt: skip


class Watched:
    """Measure by how many bytes the machine's available memory dropped at most while this was active: `taken`."""

    def __enter__(self):
        self._over, self._least = threading.Event(), _available_bytes()
        self._before = self._least
        self._thread = threading.Thread(target=self._watch_memory)
        self._thread.start()
        return self

    def _watch_memory(self):
        while not self._over.wait(0.01):
            self._least = min(self._least, _available_bytes())

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()
        self.taken = self._before - self._least


def _available_bytes():
    line = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable"))
    return int(line.split()[1]) * 1024


@pytest.mark.parametrize("name", ATTACKS)
@bubblewrap.needed
def test_an_answer_takes_no_more_memory_than_it_may_have(name, grader_in_sandbox):
    reason, body = ATTACKS[name]
    text = f"{HEAD}\ndef {NAME}(w1, w2, x):\n{textwrap.indent(textwrap.dedent(body), '    ')}"
    text += "\n    print('it has all', flush=True)\n    os._exit(0)\n"
    with Watched() as watched:
        graded = grader_in_sandbox().grade(Submission("a learner", "answer.py", text.encode()), seed=1)
    assert reason in graded.reason and "it has all" not in graded.printed, graded
    assert watched.taken < 1.1 * 2**30, "of others' processes there is some 0.3 GiB"


@pytest.mark.slow
@bubblewrap.needed
def test_files_that_are_open_and_deleted_count_too(grader_in_sandbox):
    body = """
    held = []
    for number in range(100):
        held.append(open(f"/learner/{number}", "w+b"))
        os.unlink(f"/learner/{number}")
        held[-1].write(bytes(2**21)), held[-1].flush()
    """
    text = f"{HEAD}\ndef {NAME}(w1, w2, x):\n{textwrap.indent(textwrap.dedent(body), '    ')}"
    graded = grader_in_sandbox().grade(Submission("a learner", "answer.py", text.encode()), seed=1)
    assert "No space left on device" in graded.reason, graded


@pytest.mark.slow
@bubblewrap.needed
def test_the_process_that_runs_programs_has_a_memory_limit_too(grader_in_sandbox, monkeypatch):
    right = (ROOT / "solutions" / f"{NAME}.py").read_bytes()
    monkeypatch.setattr(remote_execution, "LIMITS", replace(remote_execution.LIMITS, memory=2**20))
    graded = grader_in_sandbox().grade(Submission("a learner", "answer.py", right), seed=91)
    assert "its two programs used more than the allowed memory (1 MiB)" in graded.reason, graded


@pytest.mark.slow
@bubblewrap.needed
def test_the_largest_programs_of_a_right_answer_run_within_the_limit(grader_in_sandbox):
    graded = grader_in_sandbox().grade(as_submission("checkpointed_while", "right", "equinox"), seed=91)
    assert graded.verdict.passed, graded


def test_four_processes_of_two_jobs_have_less_than_two_gibibytes():
    """Between two checks of its memory, each process may exceed its limit by 0.1 GiB."""
    one = FOR_BATCH.memory + remote_execution.LIMITS.memory + 2 * remote_execution.LIMITS.disk
    assert 2 * (one + 2 * 0.1 * 2**30) < 2 * 2**30
