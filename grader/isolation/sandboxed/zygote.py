"""Fork every sandboxed process: `python -m grader.isolation.sandboxed.zygote FD`.

Started by `grader.isolation.sandbox`, inside bubblewrap.

It has imported JAX and traced a little, so that a fork need not. It has exported and compiled nothing: that starts
threads, and a fork of a process that has threads may wait for one that it did not get. For each request it forks a
guard, and the guard, in namespaces of its own, forks the process that does the work:

    zygote ── guard ── the work, alone in its namespaces, with limits
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
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax.extend import source_info_util
from jax.interpreters import mlir

from grader.answers import find, import_answers
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

_LOOK = 0.02  # seconds between two looks at what a process has used
_BUSY = 1.0  # seconds between them if the machine is busy
_AWAKE = 0.02  # seconds of processor time; what waits uses none
_OUTPUT = 4_000  # bytes that are kept of the beginning of what is printed, and as many of the end
_REQUEST = 64 * 2**20


def main() -> None:
    """Warm up, say so, and forks a guard for each `Job`, until the other side hangs up."""
    control = socket.socket(fileno=int(sys.argv[1]))
    if os.getuid() == 0:
        lockdown.be_nobody()
        if closed := closed_package():
            raise SystemExit(f"{closed} can be read only by root, so no answer could import it.")
    _warm_up()
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        raise SystemExit(f"the zygote has {threads} threads: a fork may wait for one that it did not get.")
    gc.collect()
    gc.freeze()
    gc.set_threshold(garbage.SELDOM)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # guards report to whoever asked for them
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
    """Return a package of this environment that this user may not read, if there is one. What is imported here was read
    by somebody else; an answer imports more."""
    for folder in sys.path:
        with contextlib.suppress(OSError):  # of what is not there
            for entry in os.scandir(folder):
                if not os.access(entry.path, os.R_OK | os.X_OK if entry.is_dir() else os.R_OK):
                    return entry.path
    return None


def _warm_up() -> None:
    def layer(w, x):
        return jnp.sum(jax.nn.relu(x @ w) ** 2)

    array = jax.ShapeDtypeStruct((2, 2), jnp.float32)
    render_programs.render_programs(jax.checkpoint(layer), [], Case("a layer", (array, array)), None, ())
    mlir.make_ir_context()  # what programs are written down and read in; forks have it with all its dialects loaded
    # To find plugins, of which none is wanted here, JAX would read a file of every installed package, in every fork.
    metadata.entry_points = lambda **_: metadata.EntryPoints()
    for name in registry.names():
        registry.task(name)
    importlib.import_module("IPython.core.inputtransformer2")  # for answers with magics
    about_exception("no error")  # its patterns are read and compiled
    lockdown.prepare()
    importlib.import_module("jax.extend.mlir.dialects.builtin")
    interpreter.run(reader.read(_PROGRAM).text, [np.ones((2, 2), np.float32)])
    # A long pattern is compiled that tells JAX's files apart. Last: what is imported may add to it, which undoes that.
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
    """Run one piece of work, and tell the asker how it ended. `joining` is the file of a control group to join, if
    there is one."""
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
    memory = Memory(limits.resident)
    worker = os.fork()
    if worker == 0:
        _do_work(_WORK[job.work], limits, line, writer, joining, says)  # does not return
    os.close(writer)
    os.close(says)
    line.close()
    if not os.read(there, 1):  # nothing of the answer's has run: this end is no deed of its
        os.waitpid(worker, 0)
        asker.sendall(messages.encode(NotStarted("no control group can be joined anymore")))
        return
    os.close(there)
    memory.of(worker)
    status, seconds, output = _watch_worker(worker, asker, reader, memory)
    # The first process of a namespace does not see SIGXCPU; by the kernel's clock, which is coarser, its time was up.
    # How much coarser depends on what else is running. Besides, only a system out of memory would kill it.
    if status == -signal.SIGKILL and seconds > 0.5 * limits.processor_seconds:
        status = -signal.SIGXCPU
    asker.sendall(messages.encode(Ended(status, seconds, output, memory.too_much)))


class Memory:
    """The memory of a process that is about to be forked from this one: its pages and its page tables.

    Args:
      most: how many bytes it may have beyond those that this process has now.

    Attributes:
      too_much: whether it had more when it was looked at.
    """

    def __init__(self, most: int):
        self.too_much = False
        self._processes = os.open("/proc", os.O_PATH)  # the process covers the folder that has this name
        self._most = _counted_bytes(self._open_status("self/status")) + most

    def of(self, process: int) -> None:
        """Say which process that is."""
        self._status, self._threads = self._open_status(f"{process}/status"), self._open_status(f"{process}/task")

    def look(self) -> bool:
        """Return whether it has more now."""
        self.too_much |= (_counted_bytes(self._status) or self._counted_by_threads()) > self._most
        return self.too_much

    def _counted_by_threads(self) -> int:
        """Return the memory of a process whose first thread has ended, which then shows none; 0 if all have."""
        with contextlib.suppress(OSError):
            for thread in os.listdir(self._threads):
                with contextlib.suppress(OSError):  # it ends
                    status = os.open(f"{thread}/status", os.O_RDONLY, dir_fd=self._threads)
                    try:
                        if counted := _counted_bytes(status):
                            return counted
                    finally:
                        os.close(status)
        return 0

    def _open_status(self, path: str) -> int:
        return os.open(path, os.O_RDONLY, dir_fd=self._processes)


def _counted_bytes(status: int) -> int:
    return 1024 * sum(map(int, _COUNTED.findall(os.pread(status, 1 << 14, 0))))


_COUNTED = re.compile(rb"^(?:VmRSS|VmPTE):\s*(\d+) kB$", re.MULTILINE)


def _watch_worker(worker: int, asker: socket.socket, reader: int, memory: Memory) -> tuple[int, float, str]:
    """Wait for the worker's end, which comes at once when the asker hangs up, when it has too much memory, and when the
    worker does nothing though it is its turn; keeps what it prints at both ends."""
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
                room = _OUTPUT - len(head)
                head += piece[:room]
                tail += piece[room:] if room > 0 else piece
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
        if not over and memory.look():
            os.kill(worker, signal.SIGKILL)
        if since is not None and not over:
            now, used = time.monotonic(), time.clock_gettime(clock)
            since += max(now - looked - _BUSY, 0)  # where this process had no turn either, the machine is busy
            looked = now
            if used - spent > _AWAKE:
                spent, since = used, now
            elif now - since > IDLE_SECONDS:
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
    """Do one piece of work, and end. To `says` it writes that it is where its limits count, before it begins."""
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
        with contextlib.suppress(Exception):  # whatever a learner has put there
            stream.flush()


def _answer_ready(line: socket.socket) -> None:
    """What is asked for first, to see whether there can be such a process at all."""
    messages.send(line, Ready())


def _serve_captures(line: socket.socket) -> None:
    """Turn a file into evidence, or into a verdict if there is none.

    Until it is ended, the process accepts requests to read the answer again with more of the file, and to render the
    programs of an answer that it has read.
    """
    asked, (text,) = messages.receive(line, _REQUEST, [Capture])
    folder = Path("submission")
    folder.mkdir()
    path = folder / asked.name
    path.write_bytes(text.tobytes())

    def found(answer: find.SlicedAnswer) -> None:
        messages.send(line, AnswerFound(answer.exercise, answer.is_stub()))

    read_answers = import_answers.read_answers(path, asked.exercise, found)
    tried: list[tuple[import_answers.Answer, Sequence[Case | Question]] | None] = []
    wanted: NextAnswer | Render = NextAnswer()
    while isinstance(wanted, NextAnswer):
        answer = next(read_answers, None)
        tried.append(None)
        reply: Captured | NoEvidence | NoMoreAnswers = NoMoreAnswers()
        if isinstance(answer, Verdict):
            reply = NoEvidence(answer.to_dict())
        elif answer:
            cases = registry.cases(answer.exercise, asked.seed)
            traced = capture.traced(answer.function, answer.exercise, cases, asked.seed)
            reply = Captured(traced.to_json()) if isinstance(traced, Evidence) else NoEvidence(traced.to_dict())
            tried[-1] = answer, cases
        _flush_output()
        messages.send(line, reply)
        wanted, _ = messages.receive(line, _REQUEST, [NextAnswer, Render])
    for target in (1, 2):  # the answer is traced once more, and what it prints has been printed
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
