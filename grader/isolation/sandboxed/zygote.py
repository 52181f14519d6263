"""Fork every sandboxed process: `python -m grader.isolation.sandboxed.zygote FD`.

`grader.isolation.sandbox` starts this process inside bubblewrap.

The process imports JAX and traces a small function, so that its forks do not have to. It does not export or compile
anything, because that starts threads, and a fork can deadlock if it waits for a thread that exists only in the parent.
For each request, the zygote forks a guard. The guard enters its own namespaces and forks the worker, which does the
job:

    zygote ── guard ── worker, alone in its namespaces, with limits
"""

import contextlib
import gc
import importlib
import os
import re
import resource
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax.extend import source_info_util
from jax.interpreters import mlir

from grader.answers import import_answers
from grader.exercises import registry
from grader.exercises.spec import Case, Question
from grader.isolation.sandboxed import execution_server, lockdown, messages
from grader.isolation.sandboxed.lockdown import ProcessLimits
from grader.isolation.sandboxed.protocol import (
    IDLE,
    IDLE_SECONDS,
    ITS_TURN,
    AnswerFound,
    Capture,
    Captured,
    Ended,
    Job,
    NextAnswer,
    NoEvidence,
    NoMoreAnswers,
    NotStarted,
    Ready,
    Render,
    Rendered,
)
from grader.stablehlo import interpreter, reader
from grader.tracing import capture, render_programs
from grader.tracing.evidence import Evidence
from grader.util import garbage
from grader.verdicts.error_questions import about_exception
from grader.verdicts.verdict import Verdict

_LOOK = 0.02  # seconds between two checks of a worker's resources
_BUSY = 1.0  # a longer pause than this between two checks means that the machine is busy
_AWAKE = 0.02  # seconds of processor time; a worker that uses less is idle
_OUTPUT = 4_000  # bytes of printed output to keep from the beginning, and as many from the end
_REQUEST = 64 * 2**20


def main() -> None:
    """Warm up, report readiness, and fork a guard for each `Job` until the grader closes the connection."""
    control = socket.socket(fileno=int(sys.argv[1]))
    os.umask(0o077)  # with the caller's, a process might not be able to read its own files
    if os.getuid() == 0:
        lockdown.be_nobody()
        if closed := closed_package():
            raise SystemExit(f"{closed} can be read only by root, so no answer could import it.")
    _warm_up()
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        raise SystemExit(f"the zygote has {threads} threads, so its forks could deadlock.")
    gc.collect()
    gc.freeze()
    gc.set_threshold(garbage.SELDOM)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # guards report to the process that requested them
    control.send(b"ready")
    while True:
        request, descriptors, _, _ = socket.recv_fds(control, 4096, 3)
        if not request:
            return
        if os.fork() == 0:
            control.close()
            try:
                asker, line = (socket.socket(fileno=fd) for fd in descriptors[:2])
                _guard_work(messages.decode(request, [Job]), asker, line, descriptors[2:])
            finally:
                os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)


def closed_package() -> str | None:
    """Return the path of a package in this environment that this user cannot read, or None. This process imported its
    packages as root, but answers, which run as this user, import others."""
    for folder in sys.path:
        with contextlib.suppress(OSError):  # the folder does not exist
            for entry in os.scandir(folder):
                if not os.access(entry.path, os.R_OK | os.X_OK if entry.is_dir() else os.R_OK):
                    return entry.path
    return None


def _warm_up() -> None:
    def layer(w, x):
        return jnp.sum(jax.nn.relu(x @ w) ** 2)

    array = jax.ShapeDtypeStruct((2, 2), jnp.float32)
    render_programs.render_programs(jax.checkpoint(layer), [], Case("a layer", (array, array)), None, ())
    mlir.make_ir_context()  # loads all dialects once, for all forks
    # Without this, JAX would search every installed package for plugins in every fork. No plugin is needed here.
    metadata.entry_points = lambda **_: metadata.EntryPoints()
    for name in registry.names():
        registry.task(name)
    importlib.import_module("IPython.core.inputtransformer2")  # for answers with magics
    about_exception("no error")  # loads and compiles its patterns
    lockdown.prepare()
    importlib.import_module("jax.extend.mlir.dialects.builtin")
    interpreter.run(reader.read(_PROGRAM).text, [np.ones((2, 2), np.float32)])
    # Compile the long pattern that recognizes JAX's own files. This comes last, because an import may extend the
    # pattern, which would discard the compiled one.
    source_info_util.summarize(source_info_util.current())


_PROGRAM = """
func.func public @main(%x: tensor<2x2xf32>) -> tensor<f32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %y = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0]
      : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  %z = stablehlo.multiply %y, %y : tensor<2x2xf32>
  %sum = stablehlo.reduce(%z init: %zero) applies stablehlo.add across dimensions = [0, 1]
      : (tensor<2x2xf32>, tensor<f32>) -> tensor<f32>
  return %sum : tensor<f32>
}
"""


def _guard_work(job: Job, asker: socket.socket, line: socket.socket, joining: list[int]) -> None:
    """Run a job in a worker process, and report to the asker how the worker ended. `joining` contains the file of the
    control group that the worker joins, if there is one."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    limits = ProcessLimits(**job.limits)
    try:
        lockdown.enter_namespaces()
    except OSError as error:
        asker.sendall(messages.encode(NotStarted(str(error))))
        return
    reader, writer = os.pipe()
    there, says = os.pipe()
    memory = Memory(limits.memory)
    worker = os.fork()
    if worker == 0:
        _do_work(_WORK[job.work], limits, line, writer, joining, says)  # does not return
    os.close(writer)
    os.close(says)
    line.close()
    if not os.read(there, 1):  # no code of the answer has run, so the answer did not cause this
        os.waitpid(worker, 0)
        asker.sendall(messages.encode(NotStarted("no control group can be joined anymore")))
        return
    os.close(there)
    memory.of(worker)
    status, seconds, output = _watch_worker(worker, asker, reader, memory)
    # When the first process of a PID namespace uses up its processor time, it gets SIGKILL instead of SIGXCPU. The
    # kernel measures this time with a coarser clock, whose error depends on the load of the machine. The only other
    # cause of SIGKILL would be a system that is out of memory.
    if status == -signal.SIGKILL and seconds > 0.5 * limits.processor_seconds:
        status = -signal.SIGXCPU
    asker.sendall(messages.encode(Ended(status, seconds, output, memory.too_much)))


class Memory:
    """The resident memory and the page tables of a process that is about to be forked from this one, and whether it
    waits for the machine.

    Args:
      most: the limit in bytes, in addition to the memory that this process has now.

    Attributes:
      too_much: whether any check found more memory than the limit.
    """

    def __init__(self, most: int):
        self.too_much = False
        self._processes = os.open("/proc", os.O_PATH)  # the worker will mount another /proc over this one
        self._most = _counted_bytes(self._open_status("self/status")) + most

    def of(self, process: int) -> None:
        """Set the process whose memory `exceeds_limit` checks."""
        self._status, self._threads = self._open_status(f"{process}/status"), self._open_status(f"{process}/task")

    def exceeds_limit(self) -> bool:
        """Check the memory, and return whether any check so far has found more than the limit."""
        self.too_much |= (_counted_bytes(self._status) or self._counted_by_threads()) > self._most
        return self.too_much

    def waits_for_machine(self) -> bool:
        """Return whether a thread of the process is running, or waits for a processor or a disk."""
        return any(_WAITS.search(os.pread(status, 1 << 14, 0)) for status in self._thread_statuses())

    def _counted_by_threads(self) -> int:
        """Return the memory of a process whose first thread has ended, from another thread's status; 0 if all threads
        have ended. The kernel shows no memory for an ended thread."""
        return next(filter(None, map(_counted_bytes, self._thread_statuses())), 0)

    def _thread_statuses(self) -> Iterator[int]:
        """Yield the open status file of each thread of the process."""
        with contextlib.suppress(OSError):
            for thread in os.listdir(self._threads):
                with contextlib.suppress(OSError):  # the thread has ended meanwhile
                    status = os.open(f"{thread}/status", os.O_RDONLY, dir_fd=self._threads)
                    try:
                        yield status
                    finally:
                        os.close(status)

    def _open_status(self, path: str) -> int:
        return os.open(path, os.O_RDONLY, dir_fd=self._processes)


def _counted_bytes(status: int) -> int:
    return 1024 * sum(map(int, _COUNTED.findall(os.pread(status, 1 << 14, 0))))


_COUNTED = re.compile(rb"^(?:VmRSS|VmPTE):\s*(\d+) kB$", re.MULTILINE)
_WAITS = re.compile(rb"^State:\s*[RD]", re.MULTILINE)  # running or ready to run, and waiting for a disk


def _watch_worker(worker: int, asker: socket.socket, reader: int, memory: Memory) -> tuple[int, float, str]:
    """Wait until the worker ends, and return its exit status, processor time and shortened output. Kill the worker if
    the asker closes the connection, if the worker exceeds its memory limit, or if it is idle during its turn."""
    clock, spent, since = ~worker << 3 | 2, 0.0, None  # the process's clock (CPUCLOCK_SCHED), all threads together
    looked, idle = 0.0, False
    head, tail, left_out = bytearray(), bytearray(), 0
    ended = os.pidfd_open(worker)
    poll = select.poll()
    for source in (ended, asker.fileno(), reader):
        poll.register(source, select.POLLIN)
    over = False
    while not over:
        for source, _ in poll.poll(1000 * _LOOK):
            if source == reader:
                piece = os.read(reader, 1 << 16)
                if not piece:
                    poll.unregister(reader)
                    continue
                free = _OUTPUT - len(head)
                head += piece[:free]
                tail += piece[free:] if free > 0 else piece
                left_out += max(len(tail) - _OUTPUT, 0)
                del tail[:-_OUTPUT]
            elif source == ended:
                over = True
            elif turn := asker.recv(64):
                looked = time.monotonic()
                since = looked if turn.endswith(ITS_TURN) else None
            else:
                os.kill(worker, signal.SIGKILL)
                poll.unregister(asker)
                since = None
        if not over and memory.exceeds_limit():
            os.kill(worker, signal.SIGKILL)
        if since is not None and not over:
            now, used = time.monotonic(), time.clock_gettime(clock)
            since += max(now - looked - _BUSY, 0)  # this process got no time either: the machine is busy
            looked = now
            late = now - since > IDLE_SECONDS
            # A process to which a busy machine gives no time is not idle.
            if used - spent > _AWAKE or (late and memory.waits_for_machine()):
                spent, since = used, now
            elif late:
                idle, since = True, None
                os.kill(worker, signal.SIGKILL)
    os.set_blocking(reader, False)
    try:
        while piece := os.read(reader, 1 << 16):
            tail += piece
    except BlockingIOError:
        pass
    _, status, usage = os.wait4(worker, 0)
    gap = f"\n… {left_out:,} bytes left out …\n".encode() if left_out else b""
    output = (bytes(head) + gap + bytes(tail[-_OUTPUT:])).decode(errors="replace")
    return IDLE if idle else os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, output


def _do_work(function, limits: ProcessLimits, line: socket.socket, writer: int, joining: list[int], says: int):
    """Run a job, and exit. Write a byte to `says` before the job starts, when this process has joined its control
    group."""
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        kept = os.dup(line.detach())
        for group in joining:
            os.write(group, b"0")
        os.write(says, b"j")
        for source, target in ((nothing, 0), (writer, 1), (writer, 2), (kept, 3)):
            os.dup2(source, target)
        os.closerange(4, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        line = socket.socket(fileno=3)
        lockdown.lock(limits)
        function(line)
        status = 0
    except BaseException:
        traceback.print_exc()
        status = 1
    _flush_output()
    os._exit(status)


def _flush_output():
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # learners can assign any object to sys.stdout
            stream.flush()


def _answer_ready(line: socket.socket) -> None:
    """Send `Ready`, which shows that sandboxed processes can run here."""
    messages.send(line, Ready())


def _serve_captures(line: socket.socket) -> None:
    """Turn a file into evidence, or into a verdict if there is no evidence.

    Afterwards, accept requests to read the answer again with more of the file, and to render the programs of an answer
    that was read.
    """
    asked, (text,) = messages.receive(line, _REQUEST, [Capture])
    folder = Path("submission")
    folder.mkdir()
    path = folder / asked.name
    path.write_bytes(text.tobytes())
    found = import_answers.find_answer(path, asked.exercise)
    if isinstance(found, Verdict):
        answers: Iterator[import_answers.Answer | Verdict] = iter([found])
    else:
        messages.send(line, AnswerFound(found.exercise, found.is_stub()))
        answers = import_answers.run_answer(found, path)
    tried: list[tuple[import_answers.Answer, Sequence[Case | Question]] | None] = []
    wanted: NextAnswer | Render = NextAnswer()
    while isinstance(wanted, NextAnswer):
        answer = next(answers, None)
        tried.append(None)
        reply: Captured | NoEvidence | NoMoreAnswers = NoMoreAnswers()
        if isinstance(answer, Verdict):
            reply = NoEvidence(answer.to_dict())
        elif answer:
            cases = registry.cases(answer.exercise, asked.seed)
            evidence = capture.evidence_of(answer.function, answer.exercise, cases, asked.seed)
            reply = Captured(evidence.to_json()) if isinstance(evidence, Evidence) else NoEvidence(evidence.to_dict())
            tried[-1] = answer, cases
        _flush_output()
        messages.send(line, reply)
        wanted, _ = messages.receive(line, _REQUEST, [NextAnswer, Render])
    for target in (1, 2):  # the answer is traced once more; discard what it prints this time
        os.dup2(0, target)
    if drawn := tried[wanted.which]:
        answer, seen = drawn
        shown = registry.task(answer.exercise).shown
        messages.send(
            line, Rendered(**render_programs.render_programs(answer.function, seen, shown, wanted.case, wanted.marked))
        )


_WORK = {"try": _answer_ready, "capture": _serve_captures, "execute": execution_server.serve}


if __name__ == "__main__":
    main()
