"""Functions of the system that Python does not provide: `mount`, `prctl`, `capset`, the address space. Linux only."""

import ctypes
import functools
import os
import signal
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def call(name: str, *arguments: object) -> None:
    """Call a function that returns 0 on success. Otherwise, raise OSError with the function's error."""
    if getattr(library(), name)(*arguments):
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


@functools.cache
def library() -> ctypes.CDLL:
    """Return the C library."""
    return ctypes.CDLL(None, use_errno=True)


def address_space() -> int:
    """Return the bytes of address space that this process uses. Raises OSError on other systems than Linux."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def end_with_parent() -> None:
    """Make the kernel kill this process when its parent ends for any reason."""
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def prctl(what: int, *arguments: int) -> None:
    """Change an attribute of this process; see prctl(2). Raises OSError."""
    call("prctl", what, *(ctypes.c_ulong(argument) for argument in (*arguments, 0, 0, 0)[:4]))
