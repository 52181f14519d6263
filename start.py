"""The workbook's commands.

    python3 start.py          set up .venv if needed, then open the first chapter in JupyterLab
    python3 start.py test     add what tests need, then run every test
    python3 start.py book     add what the book needs, then build it into site/, pages for any browser

What follows `--` goes to JupyterLab, pytest or `python -m book`: `python3 start.py -- --port=9000`,
`python3 start.py test -- -x`.
"""

# Python 3.8 and later run this file, with nothing installed. Older ones, back to 2.7, must be able to read it, to be
# told so; hence no f-strings, no `[*a, b]` and no `raise ... from`.
# ruff: noqa: UP010, UP032, UP036, RUF005, B904
from __future__ import print_function

import sys

if sys.version_info < (3, 8):
    sys.exit(
        "start.py: this is Python {}.{}, and 3.8 or later is needed to start: install Python 3.13 and run start.py "
        "with that.".format(*sys.version_info[:2])
    )

import hashlib
import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
OWN_UV = ROOT / ".uv"
SETTINGS = VENV / "jupyter"  # what Jupyter and IPython keep for a user, here kept apart from the user's own
STAMP = VENV / "workbook-setup"  # the fingerprints of what was installed, or UNFINISHED while that goes on
UNFINISHED = "unfinished"
LEARNERS, TESTERS = "requirements.lock", "requirements-test.lock"  # the second one has all that the first one has
BOOK = "requirements-book.lock"  # and so has this one
FIRST_PAGE = "notebooks/00_start_here.ipynb"
COMMAND = "python start.py" if os.name == "nt" else "python3 start.py"

DISK_FULL = "The disk is full: free 2 GB where {root} and your home folder are, then run `{command}` again."
NOT_WRITABLE = "{root} cannot be written to: copy the workbook to a folder of your own and run `{command}` there."
NO_NETWORK = (
    "The packages could not be downloaded: connect to the network (behind a proxy, set HTTPS_PROXY), then run "
    "`{command}` again, which keeps what has already arrived."
)
NO_PYTHON = (
    "No Python 3.12 or later is on this machine and none could be downloaded: install Python 3.13, or connect to the "
    "network, then run `{command}` again."
)
NO_VENV = (
    "uv is not installed, and this Python cannot make an environment to install it into: install uv, or what Python "
    "lacks (on Debian and Ubuntu `apt install python3-venv`), then run `{command}` again."
)
INTEL_MAC = "JAX is no longer built for Macs with an Intel processor: use another machine, a JupyterHub or Binder."
ROSETTA = (
    "This Python is one for Intel Macs, for which JAX is no longer built, while this Mac has an Apple processor: run "
    "`arch -arm64 /usr/bin/python3 start.py`, or start.py with another Python for Apple silicon."
)
PORT_TAKEN = "Port {port} is taken by another program: choose another, or leave it out and JupyterLab finds a free one."
SETUP_FAILED = "Setting up failed, for the reason above: when that is dealt with, run `{command}` again."

# What uv, pip and the operating system say in each case; the first that fits counts (a full disk fails downloads too).
SIGNS = (
    (r"No space left|os error 112|not enough space|quota exceeded", DISK_FULL),
    (r"ensurepip|No module named '?venv", NO_VENV),
    (r"No interpreter found|No download found|/cpython-3", NO_PYTHON),
    (r"dns error|error sending request|Failed to (fetch|download)|offline|timed out|NewConnectionError", NO_NETWORK),
)
# The lines worth a look while one waits; the rest of what uv and pip print is shown if it explains a failure.
PROGRESS = re.compile(r" *(Using|Downloading|Downloaded|Installed|Bytecode)\b")


class Problem(Exception):
    """What went wrong and what to do about it, in one sentence for the user."""

    def __init__(self, sentence, **values):
        Exception.__init__(self, sentence.format(root=ROOT, command=COMMAND, **values))


def main(arguments):
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    own, passed_on = arguments[:cut], arguments[cut + 1 :]
    if own in (["-h"], ["--help"]):
        print(__doc__.strip())
        return 0
    if own not in ([], ["test"], ["book"]):
        print("start.py does not know `{}`.\n\n{}".format(" ".join(own), __doc__.strip()), file=sys.stderr)
        return 2
    try:
        if not os.access(str(ROOT), os.W_OK):
            raise Problem(NOT_WRITABLE)
        check_machine()
        if own == ["test"]:
            set_up(TESTERS)
            return run([python(VENV), "-m", "pytest"] + passed_on)
        if own == ["book"]:
            set_up(BOOK)
            return run([python(VENV), "-m", "book"] + passed_on)
        check_port(passed_on)
        set_up(LEARNERS)
        say("Opening {} in JupyterLab; Ctrl-C stops it.".format(FIRST_PAGE))
        return run(jupyterlab() + passed_on)
    except Problem as problem:
        print("start.py: {}".format(problem), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. `{}` goes on from here.".format(COMMAND), file=sys.stderr)
        return 130


def check_machine():
    """Raises Problem where no jaxlib is built for this Python: pip and uv would say so at length, after a download."""
    if sys.platform == "darwin" and platform.machine() == "x86_64":
        # Rosetta, which runs Intel programs on Apple's processors, has Python believe that it is on an Intel Mac.
        translated = output_of(["sysctl", "-n", "sysctl.proc_translated"])[1].strip() == "1"
        raise Problem(ROSETTA if translated else INTEL_MAC)


def set_up(lock):
    """Installs what a lock file pins, and the project, into .venv; does nothing if that is there already."""
    found = STAMP.read_text().split() if STAMP.exists() else []
    if fingerprint(lock) in found and Path(python(VENV)).exists():
        return
    try:
        uv = find_uv()
        say("Setting up {} (about 1 GB, half as much again for tests; a few minutes the first time).".format(VENV))
        # A run that was cut short leaves packages that look installed but lack files: then begin anew. Otherwise .venv
        # keeps what else is installed there.
        make_venv(uv, "--clear" if UNFINISHED in found else "--allow-existing")
        STAMP.write_text(UNFINISHED)
        install = uv + ["pip", "install", "--python", python(VENV), "--compile-bytecode"]
        attempt(install + ["--require-hashes", "-r", lock])
        # The build backend is among the pins: building the project downloads nothing.
        attempt(install + ["--no-deps", "--no-build-isolation", "--editable", "packages/rematscope", "--editable", "."])
        subprocess.call(
            [python(VENV), "-m", "compileall", "-q", "packages/rematscope/src", "grader", "solutions"], cwd=str(ROOT)
        )
        choose_settings()
        trust_pages()
        STAMP.write_text("\n".join(sorted({fingerprint(LEARNERS), fingerprint(lock)})))
    except OSError as error:
        raise problem_in(str(error))


def fingerprint(lock):
    """Returns a hash of all that .venv follows from, the folder too, since the installed project points to it."""
    parts = [str(ROOT).encode()]
    parts += [
        (ROOT / name).read_bytes()
        for name in (LEARNERS, lock, "pyproject.toml", "packages/rematscope/pyproject.toml", ".python-version")
    ]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def find_uv():
    """Returns the command that runs uv: the one on PATH, or one of our own, which is installed if need be."""
    on_path = shutil.which("uv")
    if on_path:
        return [on_path]
    own = [python(OWN_UV), "-m", "uv"]
    if output_of(own + ["--version"])[0] != 0:
        say("uv is not installed: getting it into {}.".format(OWN_UV))
        attempt([sys.executable, "-m", "venv", "--clear", str(OWN_UV)])
        attempt([python(OWN_UV), "-m", "pip", "install", "--disable-pip-version-check", "uv"])
    return own


def make_venv(uv, existing):
    """Makes .venv with the Python that .python-version asks for or, where that is not to be had, any that will do."""
    # Relocatable: its scripts survive a move of the folder.
    command = uv + ["venv", str(VENV), existing, "--relocatable", "--python"]
    if output_of(command + [(ROOT / ".python-version").read_text().strip()])[0] != 0:
        attempt(command + [">=3.12"])


def choose_settings():
    """Writes our defaults of JupyterLab's settings; the user's own settings override them.

    JupyterLab asks nothing about news and updates, follows the system's light or dark theme, and saves widgets with
    their notebook, so that a verdict is still there when the notebook is opened again.
    """
    folder = SETTINGS / "config" / "labconfig"
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
        "@jupyterlab/apputils-extension:themes": {"adaptive-theme": True},
        "@jupyter-widgets/jupyterlab-manager:plugin": {"saveState": True},
    }
    (folder / "default_setting_overrides.json").write_text(json.dumps(settings))


def trust_pages():
    """Signs the pages, so that JupyterLab shows their stored outputs as they are, colours included."""
    pages = [str(page) for folder in ("notebooks", "exercises") for page in sorted((ROOT / folder).glob("*.ipynb"))]
    if pages:  # without any, it would wait for one to be typed
        output_of([python(VENV), "-m", "jupyter", "trust"] + pages)


def check_port(arguments):
    """Raises Problem if the port asked for is taken: JupyterLab would quietly use another one."""
    asked = re.search(r"(?:^| )--(?:\w+\.)?port[= ](\d+)(?: |$)", " ".join(arguments))
    if asked and int(asked.group(1)) < 2**16:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", int(asked.group(1)))) == 0:
                raise Problem(PORT_TAKEN, port=asked.group(1))


def jupyterlab():
    """Returns the command that serves this folder and opens the first page in the browser."""
    return [
        python(VENV),
        "-m",
        "jupyterlab",
        "--ServerApp.root_dir={}".format(ROOT),
        "--LabApp.default_url=/lab/tree/{}".format(FIRST_PAGE),
        "--ServerApp.contents_manager_class=grader.learner.contents_manager.WorkbookContentsManager",
        "--LabApp.extension_manager=readonly",  # the other one asks a registry what there is
        "--LanguageServerManager.autodetect=False",  # there are none here, and looking for them runs npm
        "--ServerApp.allow_root=True",  # in a container one often is root, and JupyterLab would refuse
        "--ServerApp.answer_yes=True",  # so that one Ctrl-C is enough
    ]


def environment():
    """Returns our environment variables without those that would bring in other packages, kernels or settings."""
    foreign = ["PYTHONHOME", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE"]
    foreign += ["PYENV_VERSION", "PYENV_DIR"]  # the one that pyenv ran this file with; .python-version asks for another
    result = {k: v for k, v in os.environ.items() if k not in foreign and not k.startswith("JUPYTER")}
    result["VIRTUAL_ENV"] = str(VENV)
    result["PATH"] = os.pathsep.join([str(Path(python(VENV)).parent), os.environ.get("PATH", os.defpath)])
    for name, folder in (("JUPYTER_CONFIG_DIR", "config"), ("JUPYTER_DATA_DIR", "data"), ("IPYTHONDIR", "ipython")):
        result[name] = str(SETTINGS / folder)
    if not shutil.which("uv"):  # then the Python that our own uv downloads stays in this folder as well
        result.setdefault("UV_PYTHON_INSTALL_DIR", str(OWN_UV / "python"))
    return result


def python(venv):
    """Returns the path of an environment's Python."""
    return str(venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))


def run(command):
    """Runs a command in the foreground and returns its exit status."""
    child = subprocess.Popen(command, cwd=str(ROOT), env=environment())
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    while True:
        try:
            status = child.wait()
            return status if status >= 0 else 128 - status
        except KeyboardInterrupt:
            pass  # the child got it too, and takes its leave


def attempt(command):
    """Runs a step of setting up; raises Problem if it fails."""
    status, output = output_of(command)
    if status != 0:
        raise problem_in(output)


def output_of(command):
    """Runs a command, showing its progress; returns its exit status and all that it printed."""
    lines = []
    try:
        child = subprocess.Popen(
            command,
            cwd=str(ROOT),
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        )
    except FileNotFoundError as error:
        return 127, str(error)
    with child:
        for line in child.stdout:
            lines.append(line)
            if PROGRESS.match(line):
                say("  " + line.strip())
    return child.returncode, "".join(lines)


def problem_in(output):
    """Returns the Problem that an output or error text shows; prints the text if it is none we know."""
    for sign, sentence in SIGNS:
        if re.search(sign, output, re.IGNORECASE):
            return Problem(sentence)
    print(output, file=sys.stderr)
    return Problem(SETUP_FAILED)


def say(text):
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
