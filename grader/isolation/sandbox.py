"""Run untrusted processes: bubblewrap around a zygote, `grader.isolation.sandboxed.zygote`, and its forks.

`grader.isolation.bubblewrap_options` lists the files that these processes can see. They have no network access, and a
temporary folder in memory.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import asdict
from typing import IO

from grader.isolation import bubblewrap_options
from grader.isolation.control_groups import HOW, ControlGroup, ControlGroups, NotDelegated, limit_of_tasks
from grader.isolation.sandboxed import messages, system_calls
from grader.isolation.sandboxed.lockdown import THREADS, ProcessLimits
from grader.isolation.sandboxed.protocol import ITS_TURN, OUR_TURN, Ended, Job, NotStarted, Ready

_START_SECONDS = 120


class SandboxError(Exception):
    """Raised if the sandbox does not work on this machine; the message gives the reason and the next step."""


class NoControlGroups(SandboxError):
    """Raised if the sandbox works, but no control groups are available for its processes."""

    def __init__(self, why: str):
        super().__init__(
            f"No control group can limit an answer's memory here: {why}. Start grading with `{HOW}`, use another "
            "machine, or add --without-control-groups. In that case, each answer's memory is only checked every "
            "0.02 s, and some of the kernel's memory is not counted: see `python -m grader doctor`."
        )


class SandboxedProcess:
    """A process in the sandbox. `line` is the connection to it.

    Attributes:
      ran_out_of_memory: whether the process was killed because it exceeded its memory limit; set when it has ended.
    """

    def __init__(self, line: socket.socket, guard: socket.socket, group: ControlGroup | None):
        self.line, self._guard, self.group = line, guard, group
        self.ran_out_of_memory = False
        self._how: Ended | None = None

    def end(self) -> Ended:
        """End the process, if it has not ended yet, and return how it ended. Raises SandboxError if it never
        started."""
        if self._how is None:
            # The guard may have sent its report already. Then, closing the connection has no effect.
            report = b""
            try:
                self._guard.shutdown(socket.SHUT_WR)
                self._guard.settimeout(_START_SECONDS)
                while piece := self._guard.recv(1 << 16):
                    report += piece
            except OSError:
                pass
            self.line.close()
            self._guard.close()
            if self.group:
                self.ran_out_of_memory = self.group.ran_out_of_memory
                self.group.remove()
            how: Ended | NotStarted = NotStarted("the process that supervises it ended")
            if report:
                how = messages.decode(report, [Ended, NotStarted])
            if isinstance(how, NotStarted):
                raise SandboxError(_no_sandbox(how.problem))
            self._how = how
            self.ran_out_of_memory |= how.too_much_memory
        return self._how

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Mark the time in the context as the process's turn: the guard kills the process if it is idle for
        `IDLE_SECONDS`."""
        with contextlib.suppress(OSError):  # the guard may have ended
            self._guard.send(ITS_TURN)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                self._guard.send(OUR_TURN)

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds` until the process ends by itself, and return whether it has ended."""
        self._guard.settimeout(max(seconds, 1e-3))
        try:
            self._guard.recv(1, socket.MSG_PEEK)
            return True
        except TimeoutError:
            return False


def _temporary_file() -> IO[bytes]:
    """Return a new temporary file. Raises SandboxError if none can be created."""
    try:
        return tempfile.TemporaryFile()
    except OSError as error:  # for example under a umask that denies access to one's own new folders
        raise SandboxError(
            f"No temporary file can be created in {tempfile.gettempdir()} ({error.strerror}). Check the umask, the "
            "folder's permissions and the free disk space."
        ) from None


class Zygote:
    """The process in bubblewrap that all sandboxed processes are forked from. Use it as a context, or call `close`.

    Args:
      jobs: the number of answers that will run at the same time.

    Attributes:
      without_groups: why the processes have no control groups; "" if they have control groups.
      uncounted: whether the processes run as root, whose threads Linux does not limit. If root starts the zygote, the
        processes run as another user if possible.

    Raises:
      SandboxError: if the sandbox does not start on this machine.
    """

    def __init__(self, jobs: int = 1):
        bwrap = shutil.which("bwrap")
        if not system_calls.is_known_machine():
            raise SandboxError("The sandbox needs Linux on x86-64 or arm64. Grade there, or with --unsandboxed.")
        if bwrap is None:
            raise SandboxError(
                "The sandbox needs bubblewrap: install it with `apt install bubblewrap` or `dnf install bubblewrap`, "
                "or grade with --unsandboxed."
            )
        _raise_limits(jobs)
        self._lock = threading.Lock()
        self._groups: ControlGroups | None = None
        self.without_groups = ""
        try:
            self._groups = ControlGroups()
        except NotDelegated as error:
            self.without_groups = str(error)
        root = os.geteuid() == 0
        groups, why = self._groups, self.without_groups
        try:
            self._start_bubblewrap(bwrap, as_root=root)
            self.uncounted = False
        except SandboxError:
            if not root:
                raise
            self._groups, self.without_groups = groups, why  # the first attempt may have reset both
            # Root of a container has few privileges, or only root can read Python's files.
            self._start_bubblewrap(bwrap, as_root=False)
            self.uncounted = True

    def _start_bubblewrap(self, bwrap: str, as_root: bool) -> None:
        with contextlib.ExitStack() as stack:
            errors = stack.enter_context(_temporary_file())
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._control = ours
            stack.enter_context(theirs)
            self._process = subprocess.Popen(
                [
                    bwrap,
                    *bubblewrap_options.options(as_root),
                    sys.executable,
                    "-m",
                    "grader.isolation.sandboxed.zygote",
                    str(theirs.fileno()),
                ],
                env=bubblewrap_options.environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=[theirs.fileno()],
                # A keyboard interrupt must reach only this process, which then closes the connection.
                start_new_session=True,
            )
            theirs.close()
            ours.settimeout(_START_SECONDS)
            try:
                ready = ours.recv(16)
            except OSError:
                ready = b""
            if ready != b"ready":
                self.close()
                if self._process.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL):
                    raise SandboxError(
                        "The sandbox was killed before it was ready. Free some memory or lower --jobs, then start "
                        "again. If there are grades already, add --resume."
                    )
                errors.seek(0)
                lines = errors.read()[-1000:].decode(errors="replace").strip().splitlines()
                raise SandboxError(_no_sandbox(lines[-1] if lines else "it printed no message"))
        try:
            self._try_out()
        except BaseException:
            self.close()
            raise

    def _try_out(self):
        inmate = self.start("try", ProcessLimits(processor_seconds=60, address_space=2**30))
        try:
            messages.receive(inmate.line, 1000, [Ready], _START_SECONDS)
        except (OSError, messages.WireError):
            if self._groups:  # some kernels require privileges that processes in the sandbox do not have
                self._groups, self.without_groups = None, "no process inside the sandbox can join one"
                with contextlib.suppress(SandboxError):
                    inmate.end()
                return self._try_out()
            ended = inmate.end()
            raise SandboxError(_no_sandbox(ended.output.strip().splitlines()[-1] if ended.output else "")) from None
        inmate.end()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """End the zygote. Each of its workers ends when the process that requested it closes the connection."""
        self._control.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def alive(self) -> bool:
        """Whether the zygote still runs."""
        return self._process.poll() is None

    def start(self, work: str, limits: ProcessLimits) -> SandboxedProcess:
        """Start a process for one of the zygote's kinds of work. Raises SandboxError if the zygote has ended, or if no
        more control groups can be created."""
        try:
            group = self._groups.group(limits) if self._groups else None
        except OSError as error:
            raise SandboxError(_no_sandbox(f"it can make no more control groups: {error.strerror}")) from None
        guard, guards_end = socket.socketpair()
        line, workers_end = socket.socketpair()
        request = messages.encode(Job(work, asdict(limits)))
        joining = [group.joining.fileno()] if group else []
        with guards_end, workers_end:
            try:
                with self._lock:
                    socket.send_fds(self._control, [request], [guards_end.fileno(), workers_end.fileno(), *joining])
            except OSError:
                guard.close()
                line.close()
                if group:
                    group.remove()
                raise SandboxError(_no_sandbox("its first process has ended")) from None
        return SandboxedProcess(line, guard, group)


def _raise_limits(jobs: int) -> None:
    """Raise this process's own limits to the values that sandboxed processes need, which inherit them. Raises
    SandboxError if a hard limit is too low, because answers would otherwise fail for this reason."""
    import resource  # does not exist on Windows

    # All sandboxed processes have the same user, so one answer's threads must leave enough for the others.
    tasks = jobs * (THREADS + 64)
    lower_jobs = "lower --jobs, " if jobs > 1 else ""
    if (limit := limit_of_tasks()) is not None and limit < tasks:
        raise SandboxError(
            f"A limit of this machine is too low: the control group of this process may have {limit:,} processes and "
            f"threads, but grading needs {tasks:,} for --jobs {jobs}. Raise the limit (in a container with "
            f"`docker run --pids-limit`), {lower_jobs}or grade on another machine."
        )
    needed = [
        ("u", resource.RLIMIT_NPROC, tasks, 1),
        ("n", resource.RLIMIT_NOFILE, 512, 1),
        ("s", resource.RLIMIT_STACK, 8 * 2**20, 1024),
        ("v", resource.RLIMIT_AS, 16 * 2**30, 1024),
        ("d", resource.RLIMIT_DATA, 16 * 2**30, 1024),
        ("f", resource.RLIMIT_FSIZE, 2**30, 1024),
        ("t", resource.RLIMIT_CPU, 3600, 1),
    ]
    for letter, what, least, unit in needed:
        soft, hard = (2**64 if limit == resource.RLIM_INFINITY else limit for limit in resource.getrlimit(what))
        if hard < least:
            raise SandboxError(
                f"A limit of this machine is too low: `ulimit -H{letter}` is {hard // unit:,}, but grading needs "
                f"{least // unit:,} for --jobs {jobs}. Raise the limit and start a new shell, "
                f"{lower_jobs if letter == 'u' else ''}or grade on another machine."
            )
        if soft < least:
            resource.setrlimit(what, (least, resource.getrlimit(what)[1]))


def _no_sandbox(why: str) -> str:
    return (
        f"The sandbox does not start here ({why}). It needs user namespaces, also inside bubblewrap. Ask an "
        "administrator to allow them (kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu; in a container, see "
        "docs/isolation.md), or grade with --unsandboxed."
    )
