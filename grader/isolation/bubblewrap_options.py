"""List the files that are visible in the sandbox. All of them are read-only.

These are Python, its packages, the system's libraries, and the parts of this project that are needed to trace an answer
and to run its programs. Solutions, `expect` modules, feedback and other submissions are not visible.
"""

import os
import sys
import sysconfig
from pathlib import Path

import rematscope
from grader.isolation.sandboxed.lockdown import DEVICES, FOLDER
from grader.util.versions import versions

_GRADER = Path(__file__).resolve().parents[1]
_INSTRUMENT = Path(rematscope.__file__).resolve().parent  # completely visible, because answers may call rematscope
_ROOT = _GRADER.parent

# A process that runs a learner's code must not see how answers are judged, how a class is graded, or a learner's
# progress. So `judging`, `learner`, `classroom` and the rest of `isolation` are not visible.
_SHOWN = (
    "__init__.py",  # learners' pages import check, hint, predict and solution
    "util/*.py",
    "stablehlo/*.py",
    "verdicts/*.py",
    "verdicts/*.toml",
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
    """Return the environment variables of sandboxed processes: none of the caller's, because any of them may be a
    secret."""
    ours = {
        "PATH": "/usr/bin:/bin",
        "HOME": FOLDER,
        "TMPDIR": FOLDER,
        "LANG": "C.UTF-8",
        "PYTHONPATH": os.pathsep.join(map(str, (_ROOT, _INSTRUMENT.parent))),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "JAX_PLATFORMS": "cpu",
        "OPENBLAS_NUM_THREADS": "1",  # otherwise, importing NumPy starts threads
        "MALLOC_ARENA_MAX": "4",  # otherwise, glibc reserves 64 MB of address space per thread, which the limit counts
    }
    # JAX_REMAT3 changes what JAX traces, and a grade lists it among its versions.
    return ours | ({"JAX_REMAT3": "1"} if "JAX_REMAT3" in versions() else {})


def folders() -> list[Path]:
    """Return the folders that are visible with all their contents. They must not contain submissions or grades."""
    found = [Path("/", top, name) for top in ("", "usr") for name in ("lib", "lib32", "lib64")]
    found += [Path("/nix/store"), Path("/gnu/store")]
    # Only parts of Python's prefix, which may be /usr, /usr/local or a home folder.
    found += [Path(prefix, name) for prefix in (sys.base_prefix, sys.prefix) for name in ("lib", "lib64")]
    found += [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    found += [Path(sys.prefix, "bin")] if sys.prefix != sys.base_prefix else []  # a virtual environment's commands
    return [folder for folder in dict.fromkeys(found) if folder.is_dir()]


def shown_with(place: Path) -> Path | None:
    """Return the visible folder that contains a path, or None if answers cannot see the path."""
    there = [*folders(), _GRADER, _INSTRUMENT]
    return next((folder for folder in there if place.resolve().is_relative_to(folder.resolve())), None)


def _interpreter_files() -> list[Path]:
    """Return Python's executable file, and the links that lead to it."""
    links = [Path(sys.executable)]
    while links[-1].is_symlink():
        links.append(Path(os.path.normpath(links[-1].parent / links[-1].readlink())))
    return [*links, links[0].resolve()]


def options(as_root: bool) -> list[str]:
    """Return bubblewrap's options. With `as_root`, the process inside starts as root and may become another user."""
    view = _View()
    view.show_folders(inside=False)
    view.put("--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache")
    packages = {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    if _ROOT not in packages:  # a checkout, which also contains tests and pages
        view.hide(_ROOT)
    view.show_folders(inside=True)
    if sys.prefix != sys.base_prefix:
        view.show(Path(sys.prefix, "pyvenv.cfg"))
    for path in _interpreter_files():
        view.show(path)
    view.hide(_GRADER)
    view.hide(_ROOT / "solutions")
    view.put("--ro-bind", _INSTRUMENT, _INSTRUMENT)
    for file in (file for pattern in _SHOWN for file in sorted(_GRADER.glob(pattern))):
        view.put("--ro-bind", file, file)
    for device in DEVICES:
        view.put("--dev-bind", device, device)
    # Otherwise, a process could leave files there for the next one.
    read_only = [option for place in (*view.hidden, "/") for option in ("--remount-ro", place)]
    return [*_namespace_args(as_root), *view.options, "--proc", "/proc", "--dir", FOLDER, "--chdir", FOLDER, *read_only]


def _namespace_args(as_root: bool) -> list[str]:
    options = ["--new-session", "--cap-drop", "ALL"]
    if as_root:
        options += [f"--unshare-{name}" for name in ("ipc", "pid", "net", "uts", "cgroup-try")]
        options += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        options += ["--unshare-all", "--uid", "1000", "--gid", "1000"]
    return [*options, "--hostname", "sandbox"]


class _View:
    """The file system that is visible inside the sandbox, as the options that build it.

    Attributes:
      options: bubblewrap's options so far.
      hidden: the folders that are empty inside the sandbox, except for paths that are shown in them later.
    """

    def __init__(self) -> None:
        self.options: list[str] = []
        self.hidden: list[str] = []
        self._shown: set[Path] = set()
        self._made: set[Path] = set()

    def put(self, option: str, *paths: Path | str) -> None:
        """Add an option about a path, the last of `paths`, after options that create its parent folders."""
        for above in reversed(Path(paths[-1]).parents[:-1]):
            if above not in self._made:  # otherwise, bubblewrap creates it with permissions for itself only
                self._made.add(above)
                self.options += ["--dir", str(above)]
        self.options += [option, *map(str, paths)]

    def show(self, path: Path) -> None:
        """Show a file or folder, read-only, unless a visible folder already contains it."""
        for place in dict.fromkeys((path, path.resolve())):  # a parent folder may be a link
            if self._shown.isdisjoint((place, *place.parents)):
                self._shown.add(place)
                self.put("--ro-bind", path, place)

    def show_folders(self, inside: bool) -> None:
        """Show the folders of Python and the system that are inside the project, or those that are outside."""
        shown = [folder for folder in folders() if folder.is_relative_to(_ROOT) == inside]
        for folder in sorted(shown, key=Path.is_symlink):  # the targets of links come first
            if folder.is_symlink() and not self._shown.isdisjoint((folder.resolve(), *folder.resolve().parents)):
                self._shown.add(folder)
                self.put("--symlink", folder.readlink(), folder)
            else:
                self.show(folder)

    def hide(self, path: Path) -> None:
        """Replace a folder with an empty one."""
        self.put("--tmpfs", path)
        self.hidden.append(str(path))
        self._made.clear()
