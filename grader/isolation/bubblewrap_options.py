"""What there is to be seen in the sandbox, all of it read-only.

Python, its packages and the system's libraries; of this project what tracing an answer and running its programs needs.
No solutions, no `expect` modules, no feedback, no other submission.
"""

import os
import sys
import sysconfig
from pathlib import Path

import rematscope
from grader.isolation.sandboxed.lockdown import DEVICES, FOLDER
from grader.util.versions import versions

_GRADER = Path(__file__).resolve().parents[1]
_INSTRUMENT = Path(rematscope.__file__).resolve().parent  # all of it: an answer may call it
_ROOT = _GRADER.parent

# Nobody who runs a learner's code may see how it is judged, how others are graded, or what a learner has done before:
# so no `judging`, no `learner`, no `classroom`, and of the rest of `isolation` nothing.
_SHOWN = (
    "__init__.py",  # learners' pages import check, hint, predict and solution
    "util/*.py",
    "stablehlo/*.py",
    "verdicts/*.py",
    "exercises/*.py",
    "answers/*.py",
    "tracing/*.py",
    "catalog/__init__.py",
    "catalog/*/__init__.py",
    "catalog/*/task.py",
    "isolation/__init__.py",
    "isolation/sandboxed/*.py",
)


def environment() -> dict[str, str]:
    """The environment's variables inside: none of the caller's, whose names do not say which hold a secret."""
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
    # It changes what JAX traces, and a grade names it among its versions.
    return ours | ({"JAX_REMAT3": "1"} if "JAX_REMAT3" in versions() else {})


def folders() -> list[Path]:
    """The folders that are shown with whatever is in them. Neither submissions nor grades may lie there."""
    found = [Path("/", top, name) for top in ("", "usr") for name in ("lib", "lib32", "lib64")]
    found += [Path("/nix/store"), Path("/gnu/store")]
    # Of Python not all, since that may be /usr, /usr/local or somebody's home.
    found += [Path(prefix, name) for prefix in (sys.base_prefix, sys.prefix) for name in ("lib", "lib64")]
    found += [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    found += [Path(sys.prefix, "bin")] if sys.prefix != sys.base_prefix else []  # of an environment
    return [folder for folder in dict.fromkeys(found) if folder.is_dir()]


def shown_with(place: Path) -> Path | None:
    """The shown folder that a place lies in, or None if answers do not see it."""
    there = [*folders(), _GRADER, _INSTRUMENT]
    return next((folder for folder in there if place.resolve().is_relative_to(folder.resolve())), None)


def _interpreter_files() -> list[Path]:
    """Python's own file, and the links that lead to it."""
    links = [Path(sys.executable)]
    while links[-1].is_symlink():
        links.append(Path(os.path.normpath(links[-1].parent / links[-1].readlink())))
    return [*links, links[0].resolve()]


def options(as_root: bool) -> list[str]:
    """bubblewrap's options. `as_root`: what runs inside is root at first, and may become another user."""
    options = ["--new-session", "--cap-drop", "ALL"]
    if as_root:
        options += [f"--unshare-{name}" for name in ("ipc", "pid", "net", "uts", "cgroup-try")]
        options += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        options += ["--unshare-all", "--uid", "1000", "--gid", "1000"]
    options += ["--hostname", "sandbox"]
    hidden: list[str] = []
    there: set[Path] = set()
    made: set[Path] = set()

    def put(option: str, *paths: Path | str) -> None:
        for above in reversed(Path(paths[-1]).parents[:-1]):
            if above not in made:  # or bubblewrap makes it for itself alone
                made.add(above)
                options.extend(["--dir", str(above)])
        options.extend([option, *map(str, paths)])

    def show(path: Path) -> None:
        for place in dict.fromkeys((path, path.resolve())):  # a folder above it may be a link
            if there.isdisjoint((place, *place.parents)):
                there.add(place)
                put("--ro-bind", path, place)

    def show_folders(inside: bool) -> None:
        shown = [folder for folder in folders() if folder.is_relative_to(_ROOT) == inside]
        for folder in sorted(shown, key=Path.is_symlink):  # what links lead to comes first
            if folder.is_symlink() and not there.isdisjoint((folder.resolve(), *folder.resolve().parents)):
                there.add(folder)
                put("--symlink", folder.readlink(), folder)
            else:
                show(folder)

    def hide(path: Path) -> None:
        put("--tmpfs", path)
        hidden.append(str(path))
        made.clear()

    show_folders(inside=False)
    put("--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache")
    packages = {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    if _ROOT not in packages:  # not installed as a package: a folder with tests and pages beside it
        hide(_ROOT)
    show_folders(inside=True)
    if sys.prefix != sys.base_prefix:
        show(Path(sys.prefix, "pyvenv.cfg"))
    for path in _interpreter_files():
        show(path)
    hide(_GRADER)
    hide(_ROOT / "solutions")
    put("--ro-bind", _INSTRUMENT, _INSTRUMENT)
    for pattern in _SHOWN:
        for file in sorted(_GRADER.glob(pattern)):
            put("--ro-bind", file, file)
    for device in DEVICES:
        put("--dev-bind", device, device)
    options.extend(["--proc", "/proc", "--dir", FOLDER, "--chdir", FOLDER])
    for place in (*hidden, "/"):  # whatever one process leaves there the next one would find
        options.extend(["--remount-ro", place])
    return options
