"""What there is to be seen in the sandbox, all of it read-only.

Python, its packages and the system's libraries; of this project what tracing an answer and running its programs needs.
No solutions, no `expect` modules, no other submission.
"""

import os
import sys
import sysconfig
from pathlib import Path

import rematscope
from grader.isolation.inside.lockdown import FOLDER

_GRADER = Path(__file__).resolve().parents[1]
_INSTRUMENT = Path(rematscope.__file__).resolve().parent  # all of it: an answer may call it
_ROOT = _GRADER.parent

# Nobody who runs a learner's code may see how it is judged, how others are graded, or what a learner has done before:
# so no `judging`, no `learner`, no `classroom`, and of the rest of `isolation` nothing.
_SHOWN = (
    "__init__.py",  # learners' pages import check, hint and solution
    "util/*.py",
    "stablehlo/*.py",
    "verdicts/*.py",
    "exercises/*.py",
    "answers/*.py",
    "catalog/__init__.py",
    "catalog/*/__init__.py",
    "catalog/*/task.py",
    "isolation/__init__.py",
    "isolation/inside/*.py",
)


def environment() -> dict[str, str]:
    """The environment's variables inside: none of the caller's but JAX's own."""
    ours = {
        "PATH": "/usr/bin:/bin",
        "HOME": FOLDER,
        "TMPDIR": FOLDER,
        "LANG": "C.UTF-8",
        "PYTHONPATH": os.pathsep.join(map(str, (_ROOT, _INSTRUMENT.parent))),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "JAX_PLATFORMS": "cpu",
        "OPENBLAS_NUM_THREADS": "1",  # or importing NumPy starts threads
        "MALLOC_ARENA_MAX": "4",  # glibc sets aside 64 MB of addresses a thread otherwise, which a limit would count
    }
    # What changes what JAX traces, as its next rematerialization does, must be the same on both sides.
    return {name: value for name, value in os.environ.items() if name.startswith("JAX_")} | ours


def options() -> list[str]:
    """bubblewrap's options."""
    options = ["--unshare-all", "--new-session", "--cap-drop", "ALL", "--uid", "1000", "--gid", "1000"]

    def show(path: Path) -> None:
        options.extend(["--ro-bind", str(path), str(path)])

    show(Path("/usr"))
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        path = Path("/", name)
        if path.is_symlink():
            options.extend(["--symlink", str(path.readlink()), str(path)])
        elif path.is_dir():
            show(path)
    for place in ("/etc/ld.so.cache", "/nix/store", "/gnu/store"):
        options.extend(["--ro-bind-try", place, place])
    packages = {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    installed = _ROOT in packages  # as a package, not as a folder with tests and pages beside it
    show(Path(sys.base_prefix).resolve())
    hidden = []

    def hide(path: Path) -> None:
        options.extend(["--tmpfs", str(path)])
        hidden.append(str(path))

    if not installed:
        hide(_ROOT)
    show(Path(sys.prefix))
    hide(_GRADER)
    hide(_ROOT / "solutions")
    show(_INSTRUMENT)
    for pattern in _SHOWN:
        for file in sorted(_GRADER.glob(pattern)):
            show(file)
    for name in ("null", "zero", "random", "urandom"):
        options.extend(["--dev-bind", f"/dev/{name}", f"/dev/{name}"])
    options.extend(["--proc", "/proc", "--dir", FOLDER, "--chdir", FOLDER])
    for place in (*hidden, "/"):  # whatever one process leaves there the next one would find
        options.extend(["--remount-ro", place])
    return options
