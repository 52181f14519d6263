"""The process that checks a file, from outside. It can be begun before anybody knows which file that is: importing JAX
takes it longer than all that the command line does meanwhile."""

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from grader.util import environment

_TEMPORARY = "TMPDIR", "TEMP", "TMP"  # where Python makes temporary files


class CheckChild(AbstractContextManager):
    """A process that checks one file, and ends with the context, whatever it has started too.

    Attributes:
      process: the process.
      written: where it writes the verdict. A file, not standard output: an answer may print as much as it likes.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.written = Path(self._folder.name) / "verdict.json"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "grader.isolation.check_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Its own folder: it may be ended in the middle of something.
            env=_child_environment() | dict.fromkeys(_TEMPORARY, self._folder.name),
            start_new_session=True,
        )

    def ask(self, **asked: Any) -> None:
        """Tell it what to do, in JSON's types: `check_process` says what. It is asked once."""
        assert self.process.stdin is not None
        try:
            with self.process.stdin as line:
                line.write(json.dumps({"written": str(self.written)} | asked).encode())
        except OSError:  # it has ended, which its status says
            pass

    def wait(self, seconds: float) -> int | None:
        """Its exit status; None if it has not ended after so many seconds."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def __exit__(self, *_: object) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        except AttributeError:  # Windows has no process groups
            self.process.kill()
        self.process.wait()
        self._folder.cleanup()


_begun: list[CheckChild] = []


def begin() -> CheckChild:
    """Begin the process that will check the next file."""
    _begun.append(child := CheckChild())
    return child


@atexit.register
def _end_what_was_begun_in_vain() -> None:
    for child in _begun:
        child.__exit__()


def child() -> CheckChild:
    """Return the process that has been begun, else a new one."""
    return _begun.pop() if _begun else CheckChild()


def _child_environment() -> dict[str, str]:
    """Return the caller's environment, without settings that change what JAX, XLA or Python does."""
    # glibc sets aside 64 MB of addresses per thread otherwise, which a memory limit would count; and products are so
    # small that NumPy's threads would wait for each other.
    ours = {"JAX_PLATFORMS": "cpu", "MALLOC_ARENA_MAX": "4", "OPENBLAS_NUM_THREADS": "1"}
    return environment.without_settings(os.environ) | ours
