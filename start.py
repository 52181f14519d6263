"""The workbook's commands.

    python3 start.py          set up .venv if needed, then open the first chapter in JupyterLab
    python3 start.py test     install the packages for the tests if needed, then run the tests
    python3 start.py book     install the packages for the book if needed, then build it in site/

Arguments after `--` are passed to JupyterLab, pytest or `python -m book`: `python3 start.py -- --port=9000`,
`python3 start.py test -- -x`.
"""

# This file runs on Python 3.8 and later, without any installed package. Older versions, back to 2.7, must be able to
# parse it so that they can print the message below. So it has no f-strings, no `[*a, b]` and no `raise ... from`.
# ruff: noqa: UP010, UP032, UP036, RUF005, B904
from __future__ import print_function

import sys

if sys.version_info < (3, 8):
    sys.exit(
        "start.py: this is Python {}.{}, but start.py needs 3.8 or later: install Python 3.13 and run start.py "
        "with it.".format(*sys.version_info[:2])
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
SETTINGS = VENV / "jupyter"  # Jupyter's and IPython's settings for the workbook, separate from the user's own
STAMP = VENV / "workbook-setup"  # the fingerprints of what is installed, or UNFINISHED during the installation
UNFINISHED = "unfinished"
LEARNERS, TESTERS = "requirements.lock", "requirements-test.lock"  # the second also contains the pins of the first
BOOK = "requirements-book.lock"  # this one too
FIRST_PAGE = "notebooks/00_start_here.ipynb"
COMMAND = "python start.py" if os.name == "nt" else "python3 start.py"

DISK_FULL = (
    "The disk is full: free 2 GB on the disk of {root} and on the disk of your home folder, then run `{command}` again."
)
NOT_WRITABLE = "{root} is not writable: copy the workbook to a folder of your own and run `{command}` there."
NO_NETWORK = (
    "The packages could not be downloaded: connect to the network (behind a proxy, set HTTPS_PROXY), then run "
    "`{command}` again. Packages that were already downloaded are not downloaded again."
)
NO_PYTHON = (
    "Python 3.12 or later is not installed, and it could not be downloaded: install Python 3.13, or connect to the "
    "network, then run `{command}` again."
)
NO_VENV = (
    "uv is not installed, and this Python cannot create a virtual environment to install it in: install uv or Python's "
    "venv module (on Debian and Ubuntu: `apt install python3-venv`), then run `{command}` again."
)
INTEL_MAC = "JAX no longer supports Macs with an Intel processor: use another machine, a JupyterHub or Binder."
ROSETTA = (
    "This Mac has an Apple processor, but this Python is built for Intel Macs, which JAX no longer supports: run "
    "`arch -arm64 /usr/bin/python3 start.py`, or run start.py with a Python for Apple silicon."
)
PORT_TAKEN = (
    "Another program uses port {port}: choose another port, or omit the option so that JupyterLab finds a free port."
)
SETUP_FAILED = "The setup failed for the reason above: fix it, then run `{command}` again."

# Messages of uv, pip and the operating system for each problem. The first match counts: a full disk also makes
# downloads fail.
SIGNS = (
    (r"No space left|os error 112|not enough space|quota exceeded", DISK_FULL),
    (r"ensurepip|No module named '?venv", NO_VENV),
    (r"No interpreter found|No download found|/cpython-3", NO_PYTHON),
    (r"dns error|error sending request|Failed to (fetch|download)|offline|timed out|NewConnectionError", NO_NETWORK),
)
# The output lines of uv that are shown as progress. The other lines are shown only if the setup fails.
PROGRESS = re.compile(r" *(Using|Downloading|Downloaded|Installed|Bytecode)\b")


class Problem(Exception):
    """One sentence for the user that says what went wrong and what to do."""

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
        print("\nStopped. Run `{}` again to continue.".format(COMMAND), file=sys.stderr)
        return 130


def check_machine():
    """Raise Problem if jaxlib has no build for this Python: pip and uv would report this only after a download."""
    if sys.platform == "darwin" and platform.machine() == "x86_64":
        # Under Rosetta, which runs Intel programs on Apple processors, Python reports an Intel Mac.
        translated = output_of(["sysctl", "-n", "sysctl.proc_translated"])[1].strip() == "1"
        raise Problem(ROSETTA if translated else INTEL_MAC)


def set_up(lock):
    """Install the packages of a lock file and the project in .venv, unless they are already installed.

    JupyterLab's settings and the trusted pages are always updated, because a new version of the workbook can change
    them without changing the packages.
    """
    found = STAMP.read_text().split() if STAMP.exists() else []
    try:
        if fingerprint(lock) not in found or not Path(python(VENV)).exists():
            # After an interrupted setup, packages can seem to be installed although files are missing: then create
            # .venv again. Otherwise, other packages that the user installed in .venv stay there.
            install(lock, "--clear" if UNFINISHED in found else "--allow-existing")
        choose_settings()
        trust_pages()
    except OSError as error:
        raise problem_in(str(error))


def install(lock, existing):
    """Install the packages of a lock file. `existing` is uv's option for the files that are already in .venv."""
    uv = find_uv()
    say("Setting up {} (about 1 GB, or 1.5 GB with the tests; a few minutes the first time).".format(VENV))
    make_venv(uv, existing)
    STAMP.write_text(UNFINISHED)
    pip = uv + ["pip", "install", "--python", python(VENV), "--compile-bytecode"]
    attempt(pip + ["--require-hashes", "-r", lock])
    # The lock file contains the build backend, so building the project downloads nothing.
    attempt(pip + ["--no-deps", "--no-build-isolation", "--editable", "packages/rematscope", "--editable", "."])
    subprocess.call(
        [python(VENV), "-m", "compileall", "-q", "packages/rematscope/src", "grader", "solutions"], cwd=str(ROOT)
    )
    STAMP.write_text("\n".join(sorted({fingerprint(LEARNERS), fingerprint(lock)})))


def fingerprint(lock):
    """Return a hash of everything that determines .venv, and of the folder, to which the editable install refers."""
    parts = [str(ROOT).encode()]
    parts += [
        (ROOT / name).read_bytes()
        for name in (LEARNERS, lock, "pyproject.toml", "packages/rematscope/pyproject.toml", ".python-version")
    ]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def find_uv():
    """Return the command that runs uv: from PATH, or from .uv, where it is installed if necessary."""
    on_path = shutil.which("uv")
    if on_path:
        return [on_path]
    own = [python(OWN_UV), "-m", "uv"]
    if output_of(own + ["--version"])[0] != 0:
        say("uv is not installed: installing it in {}.".format(OWN_UV))
        attempt([sys.executable, "-m", "venv", "--clear", str(OWN_UV)])
        attempt([python(OWN_UV), "-m", "pip", "install", "--disable-pip-version-check", "uv"])
    return own


def make_venv(uv, existing):
    """Create .venv with the Python version in .python-version or, if it is not available, with 3.12 or later."""
    # The scripts of a relocatable environment still work after the folder is moved.
    command = uv + ["venv", str(VENV), existing, "--relocatable", "--python"]
    if output_of(command + [(ROOT / ".python-version").read_text().strip()])[0] != 0:
        attempt(command + [">=3.12"])


def choose_settings():
    """Write the workbook's defaults for JupyterLab's settings, which the user's own settings override.

    JupyterLab does not ask about news and updates, follows the system's light or dark theme, and saves widgets in the
    notebook, so that a verdict is still visible when the notebook is opened again. In a narrow window, the first line
    of a folded cell is cut off and long names in text are broken, so that pages do not scroll sideways. Names in tables
    are broken only in a very narrow window. Long lines of printed text wrap between words, and code in text does not
    wrap, like code in cells. In a narrow window, prompts, code and outputs are smaller, so that printed tables of 80
    characters do not wrap, and tables have no scroll bar. A folded output shows three dots without its first line,
    which is HTML.
    """
    folder = SETTINGS / "config" / "labconfig"
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
        "@jupyterlab/apputils-extension:themes": {"adaptive-theme": True},
        "@jupyter-widgets/jupyterlab-manager:plugin": {"saveState": True},
    }
    (folder / "default_setting_overrides.json").write_text(json.dumps(settings))
    (SETTINGS / "config" / "custom").mkdir(exist_ok=True)
    (SETTINGS / "config" / "custom" / "custom.css").write_text(
        ".jp-Placeholder-content { min-width: 0; }\n.jp-OutputPlaceholder .jp-PlaceholderText { display: none; }\n"
        "body .jp-OutputArea-output pre { word-break: normal; overflow-wrap: anywhere; }\n"
        "body .jp-MarkdownCell .jp-MarkdownOutput :is(pre, pre code) { white-space: pre; overflow-x: auto; }\n"
        ".jp-RenderedText { container-type: inline-size; }\n"
        "body .jp-OutputArea .jp-RenderedText pre { font-size: clamp(10px, 2cqi, var(--jp-code-font-size)); }\n"
        "@media (max-width: 1240px) {\n  .jp-RenderedMarkdown code { overflow-wrap: anywhere; }\n"
        "  .jp-RenderedMarkdown td code { overflow-wrap: break-word; }\n}\n"
        "@media (max-width: 1000px) {\n  body { --jp-cell-prompt-width: 32px; --jp-code-font-size: 11px; }\n"
        "  body :is(.jp-InputPrompt, .jp-OutputPrompt) { font-size: 10px; letter-spacing: -0.5px;\n"
        "    padding-inline: 0 1px; }\n"
        "  body .jp-MarkdownCell .jp-MarkdownOutput pre { font-size: var(--jp-code-font-size); }\n"
        "  body .jp-MarkdownCell .jp-MarkdownOutput :is(td, th) { padding-inline: 0.3em; }\n"
        "  body .jp-MarkdownCell .jp-MarkdownOutput td code { font-size: var(--jp-code-font-size);\n"
        "    padding-inline: 2px; }\n"
        "  body :is(.rematscope .rs-table, .rematscope.rematscope > pre) { font-size: 10px; }\n"
        "  body .rematscope .rs-table :is(td, th) { padding-right: 0.4em; }\n"
        "  body .rematscope .rs-table td:last-child { min-width: 8ch; }\n}\n"
        "@media (max-width: 700px) {\n  .jp-RenderedMarkdown td code { overflow-wrap: anywhere; }\n"
        "  .jp-RenderedMarkdown td:has(code) { min-width: 6em; }\n}\n"
    )


def trust_pages():
    """Mark the pages as trusted, so that JupyterLab shows their stored outputs unchanged, with colors."""
    pages = [str(page) for folder in ("notebooks", "exercises") for page in sorted((ROOT / folder).glob("*.ipynb"))]
    if pages:  # without arguments, the command would read from standard input
        output_of([python(VENV), "-m", "jupyter", "trust"] + pages)


def check_port(arguments):
    """Raise Problem if the requested port is in use: JupyterLab would use another port without a message."""
    asked = re.search(r"(?:^| )--(?:\w+\.)?port[= ](\d+)(?: |$)", " ".join(arguments))
    if asked and int(asked.group(1)) < 2**16:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", int(asked.group(1)))) == 0:
                raise Problem(PORT_TAKEN, port=asked.group(1))


def jupyterlab():
    """Return the command that starts JupyterLab in this folder and opens the first page in the browser."""
    return [
        python(VENV),
        "-m",
        "jupyterlab",
        "--ServerApp.root_dir={}".format(ROOT),
        "--LabApp.default_url=/lab/tree/{}".format(FIRST_PAGE),
        "--ServerApp.contents_manager_class=grader.learner.contents_manager.WorkbookContentsManager",
        "--LabApp.custom_css=True",
        "--LabApp.extension_manager=readonly",  # the default manager queries a package registry
        "--LanguageServerManager.autodetect=False",  # no language server is installed, and detection runs npm
        "--ServerApp.allow_root=True",  # containers often run as root, which JupyterLab rejects by default
        "--ServerApp.answer_yes=True",  # one Ctrl-C stops the server, without a question
    ]


def environment():
    """Return the environment variables, except those that would select other packages, kernels or settings."""
    foreign = ["PYTHONHOME", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE"]
    foreign += ["PYENV_VERSION", "PYENV_DIR"]  # set by pyenv for start.py; .python-version can name another version
    result = {k: v for k, v in os.environ.items() if k not in foreign and not k.startswith("JUPYTER")}
    result["VIRTUAL_ENV"] = str(VENV)
    result["PATH"] = os.pathsep.join([str(Path(python(VENV)).parent), os.environ.get("PATH", os.defpath)])
    for name, folder in (("JUPYTER_CONFIG_DIR", "config"), ("JUPYTER_DATA_DIR", "data"), ("IPYTHONDIR", "ipython")):
        result[name] = str(SETTINGS / folder)
    if not shutil.which("uv"):  # then the Python that uv downloads is also stored in this folder
        result.setdefault("UV_PYTHON_INSTALL_DIR", str(OWN_UV / "python"))
    return result


def python(venv):
    """Return the path of the Python in a virtual environment."""
    return str(venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))


def run(command):
    """Run a command in the foreground and return its exit status."""
    child = subprocess.Popen(command, cwd=str(ROOT), env=environment())
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    while True:
        try:
            status = child.wait()
            return status if status >= 0 else 128 - status
        except KeyboardInterrupt:
            pass  # the child process also received the signal, and exits


def attempt(command):
    """Run a command of the setup. Raises Problem if it fails."""
    status, output = output_of(command)
    if status != 0:
        raise problem_in(output)


def output_of(command):
    """Run a command, show its progress, and return its exit status and its output."""
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
    """Return the Problem that the text of an error describes. Print the text if it matches no known problem."""
    for sign, sentence in SIGNS:
        if re.search(sign, output, re.IGNORECASE):
            return Problem(sentence)
    print(output, file=sys.stderr)
    return Problem(SETUP_FAILED)


def say(text):
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
