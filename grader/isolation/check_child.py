"""Control the process that checks a file. It can be started before the file is known, because importing JAX takes
longer than everything that the command line does in the meantime."""

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

_TEMPORARY = "TMPDIR", "TEMP", "TMP"  # the variables that set Python's folder for temporary files


class CheckChild(AbstractContextManager):
    """A process that checks one file. When the context ends, this process and all processes that it started are killed.

    Attributes:
      process: the process.
      written: the file that it writes the verdict to. It is not standard output, because answers may print to that.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.written = Path(self._folder.name) / "verdict.json"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "grader.isolation.check_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Temporary files go into a folder that is deleted even if the process is killed.
            env=_child_environment() | dict.fromkeys(_TEMPORARY, self._folder.name),
            start_new_session=True,
        )

    def ask(self, **asked: Any) -> None:
        """Send the request, as values of JSON's types; see `check_process`. A process accepts only one request."""
        assert self.process.stdin is not None
        try:
            with self.process.stdin as line:
                line.write(json.dumps({"written": str(self.written)} | asked).encode())
        except OSError:  # the process has ended; `wait` returns its status
            pass

    def wait(self, seconds: float) -> int | None:
        """Return the exit status; None if the process has not ended after `seconds`."""
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


def _child_environment() -> dict[str, str]:
    """Return the caller's environment, without settings that change what JAX, XLA or Python does."""
    # Otherwise, glibc reserves 64 MB of address space per thread, which the memory limit counts. The matmuls are so
    # small that NumPy's threads would only wait for each other.
    ours = {"JAX_PLATFORMS": "cpu", "MALLOC_ARENA_MAX": "4", "OPENBLAS_NUM_THREADS": "1"}
    return environment.without_settings(os.environ) | ours
