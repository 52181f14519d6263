"""Environment variables of processes that grade, so that the caller's variables do not affect grades."""

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path

# Variables that are always set. Evidence is exported for the CPU and compared there. Matrices are small, so several
# threads for one matmul would only wait for processors that other jobs use. Modules are never imported from the
# current folder, because submissions may be there.
ASSIGNED = {
    "JAX_PLATFORMS": "cpu",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONSAFEPATH": "1",
    "LC_ALL": "C.UTF-8",
}
# Variables that are passed on: the paths of files and programs, the terminal, and the connections to systemd and a
# cluster. JAX_REMAT3 changes what JAX traces, so a grade lists it among its versions.
_PASSED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"),
    *("TERM", "COLUMNS", "LINES", "COLORTERM", "NO_COLOR", "FORCE_COLOR"),
    *("XDG_RUNTIME_DIR", "XDG_DATA_HOME", "DBUS_SESSION_BUS_ADDRESS", "JAX_REMAT3"),
)
# Settings of JAX, XLA, NumPy, their threads and Python. PYTHONPATH is not among them, because packages may be there.
_SETTINGS = ("JAX_", "XLA_", "TF_", "NPY_", "OMP_", "OPENBLAS_", "MKL_", "LIBTPU_", "PYTHON")
_NO_SETTINGS = ("JAX_REMAT3", "PYTHONPATH", "PYTHONHOME")
# The values of JAX_REMAT3 that JAX accepts, in lower case.
REMAT3_ON = ("y", "yes", "t", "true", "on", "1")
_REMAT3_OFF = ("n", "no", "f", "false", "off", "0")


def for_grading(caller: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a process that grades a class, given its caller's environment."""
    places = (_folder_of(name) for name in ("grader", "rematscope"))
    passed = {"PYTHONPATH": os.pathsep.join(map(str, places))}
    passed |= {name: caller[name] for name in _PASSED if name in caller}
    cluster = {name: value for name, value in caller.items() if name.startswith("DASK_")}
    return passed | cluster | ASSIGNED


def _folder_of(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec and spec.origin
    return Path(spec.origin).parents[1]


def without_settings(caller: Mapping[str, str]) -> dict[str, str]:
    """Return the caller's environment without the settings of JAX, XLA, NumPy, their threads and Python."""
    return {name: value for name, value in caller.items() if not is_setting(name)}


def is_setting(name: str) -> bool:
    """Return whether a variable configures JAX, XLA, NumPy, their threads or Python."""
    return name.startswith(_SETTINGS) and name not in _NO_SETTINGS


def restart() -> None:
    """Restart this command in the environment for grading, unless it already runs in it. A restart is necessary because
    Python and its libraries read most variables at startup."""
    _open_standard_descriptors()
    if (given := os.environ.get("JAX_REMAT3", "0")).lower() not in (*REMAT3_ON, *_REMAT3_OFF):
        print(f"JAX_REMAT3 is {given!r}, which JAX does not accept. Set it to 1 or 0, or unset it.", file=sys.stderr)
        sys.exit(2)
    wanted = for_grading(os.environ)
    if dict(os.environ) != wanted or sys.flags.optimize or sys.warnoptions:
        if sys.stdout:
            sys.stdout.flush()
        os.execve(sys.executable, [sys.executable, "-m", "grader", *sys.argv[1:]], wanted)


def _open_standard_descriptors() -> None:
    """Open the null device in place of each standard stream that the caller has closed. Otherwise, the next file that
    is opened, such as a grade, would be the standard output of other programs."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:  # it is closed, so the next file gets this number
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
