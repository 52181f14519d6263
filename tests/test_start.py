"""start.py, run as a user runs it: a copy of the real file in a folder with a space in its name.

A shell script replaces uv and prints uv's messages. Pip, the kernel, the browser command and the disk are real.
"""

import ast
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.request
from pathlib import Path

import nbformat
import pytest
from nbformat.sign import NotebookNotary

import start

SOURCE = Path(start.__file__)
pytestmark = pytest.mark.skipif(os.name == "nt", reason="the stand-ins are shell scripts")

# The stand-in for uv logs its arguments and fails with $UV_FAILS. The environment it creates has a python that runs the
# tests' own Python. That python skips pytest without options and JupyterLab's version, because most tests only check
# what happens before.
UV = f"""#!/bin/sh
echo "$*" >> "$UV_LOG"
case "$*" in $UV_FAILS_AT*) printf '%s\\n' "$UV_FAILS" >&2; exit 2;; esac
if [ "$1" = venv ]; then
    mkdir -p .venv/bin
    rm -f .venv/bin/python
    printf '%s\\n' '#!/bin/sh' 'case "$*" in "-m pytest"|*--version) exit 0;; esac' > .venv/bin/python
    echo 'exec "{sys.executable}" "$@"' >> .venv/bin/python
    chmod +x .venv/bin/python
fi
"""


class Workbook:
    """A folder with start.py and the few files that it needs, and the home folder of a user."""

    def __init__(self, folder: Path):
        self.root, self.home, self.uv_log = folder / "my work book", folder / "home", folder / "uv.log"
        self.root.mkdir()
        self.home.mkdir()
        shutil.copy(SOURCE, self.root)
        for package in ("packages/rematscope/src/rematscope", "grader", "solutions"):
            (self.root / package).mkdir(parents=True)
            (self.root / package / "__init__.py").touch()
        (self.root / "pyproject.toml").touch()
        (self.root / "packages/rematscope/pyproject.toml").touch()
        (self.root / "requirements.lock").write_text("# for learners\n")
        (self.root / "requirements-test.lock").write_text("# for tests\n")
        (self.root / ".python-version").write_text("3.13\n")
        (self.root / "test_it.py").write_text("def test_one():\n    pass\n")
        self.bin = folder / "bin"
        self.bin.mkdir()
        (self.bin / "uv").write_text(UV)
        (self.bin / "uv").chmod(0o755)
        self.environment = {
            "HOME": str(self.home),
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "UV_LOG": str(self.uv_log),
            "UV_FAILS_AT": "nothing",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # starts pytest much faster
        }

    def start(self, *arguments, before=(), **environment) -> subprocess.CompletedProcess:
        """Run start.py, optionally prefixed by the command `before`, and return the completed process."""
        return self.run("start.py", *arguments, before=before, **environment)

    def run(self, *arguments, before=(), **environment) -> subprocess.CompletedProcess:
        """Run Python with the same settings as `start`."""
        return subprocess.run(
            [*before, sys.executable, *arguments],
            cwd=self.root,
            env=self.environment | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )

    def uv_calls(self) -> list[str]:
        """Return the calls of uv since the last time this method was called."""
        calls = self.uv_log.read_text().splitlines() if self.uv_log.exists() else []
        self.uv_log.unlink(missing_ok=True)
        return calls


@pytest.fixture
def workbook(tmp_path):
    return Workbook(tmp_path)


@pytest.fixture
def bwrap():
    """Return the start of a bubblewrap command that runs another command with changed mounts, even for root."""
    if not shutil.which("bwrap"):
        pytest.skip("bubblewrap is not installed")
    return ["bwrap", "--dev-bind", "/", "/"]


def problem(done: subprocess.CompletedProcess) -> str:
    """Return the message, a single sentence, with which start.py failed."""
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("start.py: ")
    return line.removeprefix("start.py: ")


# Setting up


def test_the_test_packages_are_installed_and_pytest_runs(workbook):
    done = workbook.start("test", "--", "-p", "no:cacheprovider", "--collect-only", "-q")
    assert "test_it.py::test_one" in done.stdout, done.stderr
    python = f"{workbook.root}/.venv/bin/python"
    assert workbook.uv_calls() == [
        f"venv {workbook.root}/.venv --allow-existing --relocatable --python 3.13",
        f"pip install --python {python} --compile-bytecode --require-hashes -r requirements-test.lock",
        f"pip install --python {python} --compile-bytecode --no-deps --no-build-isolation "
        "--editable packages/rematscope --editable .",
    ]
    for package in ("packages/rematscope/src/rematscope", "grader", "solutions"):
        assert list((workbook.root / package).glob("__pycache__/__init__.*.pyc"))


@pytest.mark.slow
def test_stored_outputs_of_a_new_version_are_trusted(workbook):
    assert workbook.start("test").returncode == 0
    page = workbook.root / "notebooks" / "page.ipynb"
    page.parent.mkdir()
    output = nbformat.v4.new_output("display_data", {"text/html": "<style>b {color: red}</style>"})
    cell = nbformat.v4.new_code_cell("1", outputs=[output])
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), page)
    assert workbook.start("test").returncode == 0
    notary = NotebookNotary(data_dir=str(workbook.root / ".venv" / "jupyter" / "data"))
    assert notary.check_signature(nbformat.read(page, as_version=4))
    notary.store.close()


def test_a_second_run_installs_nothing(workbook):
    assert workbook.start("test").returncode == 0
    assert workbook.uv_calls()
    done = workbook.start("test", PATH="/usr/bin:/bin")
    assert (done.returncode, workbook.uv_calls()) == (0, [])
    assert "Setting up" not in done.stdout


def locks_installed(workbook) -> list[str]:
    """Return the lock files that were installed since the last call."""
    return [call.split()[-1] for call in workbook.uv_calls() if "--require-hashes" in call]


def test_learners_get_their_packages_and_tests_add_theirs(workbook):
    learn = ("--", "--version")  # JupyterLab prints its version and exits
    assert workbook.start(*learn).returncode == 0
    assert locks_installed(workbook) == ["requirements.lock"]
    workbook.start("test")
    assert locks_installed(workbook) == ["requirements-test.lock"]
    workbook.start(*learn)
    assert locks_installed(workbook) == [], "all of it is among what tests need"


def test_a_change_for_tests_alone_does_not_reach_learners(workbook):
    workbook.start("test")
    (workbook.root / "requirements-test.lock").write_text("\n")
    workbook.uv_calls()
    workbook.start("--", "--version")
    assert locks_installed(workbook) == []
    workbook.start("test")
    assert locks_installed(workbook) == ["requirements-test.lock"]


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-test.lock", "pyproject.toml", ".python-version"])
def test_changed_requirements_are_reinstalled(workbook, name):
    workbook.start("test")
    workbook.uv_calls()
    with (workbook.root / name).open("a") as file:
        file.write("\n")
    workbook.start("test")
    assert len(workbook.uv_calls()) == 3


def test_a_moved_folder_is_reinstalled(workbook):
    workbook.start("test")
    workbook.uv_calls()
    workbook.root = workbook.root.rename(workbook.root.with_name("moved"))
    workbook.start("test")
    assert len(workbook.uv_calls()) == 3


def test_a_deleted_python_is_replaced(workbook):
    workbook.start("test")
    workbook.uv_calls()
    python = workbook.root / ".venv/bin/python"
    python.unlink()
    python.symlink_to("/no/such/python")
    workbook.start("test")
    assert len(workbook.uv_calls()) == 3


def test_an_interrupted_installation_is_restarted(workbook):
    workbook.start("test", UV_FAILS_AT="pip install", UV_FAILS="Killed")
    workbook.uv_calls()
    assert workbook.start("test").returncode == 0
    assert "--clear" in workbook.uv_calls()[0]
    (workbook.root / "requirements.lock").write_text("\n")
    workbook.start("test")
    assert "--allow-existing" in workbook.uv_calls()[0], "only after a cut"


def test_another_python_is_used_if_the_requested_one_is_unavailable(workbook):
    workbook.start("test", UV_FAILS_AT=f"venv {workbook.root}/.venv --allow-existing --relocatable --python 3.13")
    assert [call.split()[-1] for call in workbook.uv_calls()[:2]] == ["3.13", ">=3.12"]


@pytest.mark.slow
def test_the_status_of_pytest_is_passed_on(workbook):
    (workbook.root / "test_it.py").write_text("def test_one():\n    assert False\n")
    assert workbook.start("test", "--", "-q").returncode == 1
    assert workbook.start("test", "--", "-k", "nothing").returncode == 5


# Failures, each reported in one sentence


@pytest.mark.parametrize(("translated", "sentence"), [("0", start.INTEL_MAC), ("1", start.ROSETTA)])
def test_a_python_for_intel_macs_is_refused_before_anything_is_downloaded(workbook, translated, sentence):
    (workbook.root / "run.py").write_text(
        "import platform, runpy, sys\n"
        "sys.platform, platform.machine = 'darwin', lambda: 'x86_64'\n"
        "runpy.run_path('start.py', run_name='__main__')\n"
    )
    sysctl = workbook.bin / "sysctl"
    sysctl.write_text(f'#!/bin/sh\n[ "$*" = "-n sysctl.proc_translated" ] && echo {translated}\n')
    sysctl.chmod(0o755)
    done = workbook.run("run.py", "test")
    assert problem(done) == sentence
    assert workbook.uv_calls() == []


@pytest.mark.parametrize(
    ("at", "text", "sentence"),
    [
        (
            "pip install",
            "error: Request failed after 3 retries in 3.8s\n  cause: Failed to fetch: `https://example.org/jax/`\n"
            "  cause: client error (Connect)\n  cause: dns error\n  cause: error resolving DNS",
            start.NO_NETWORK,
        ),
        (
            "venv",
            "error: No interpreter found for Python >=3.12 in managed installations or search path\n\n"
            "hint: A managed Python download is available for Python >=3.12, but uv is set to offline mode",
            start.NO_PYTHON,
        ),
        (
            "venv",
            "error: Request failed after 3 retries in 6.5s\n  cause: Failed to download `https://example.org/"
            "cpython-3.14.2-x86_64-unknown-linux-gnu-install_only_stripped.tar.gz`\n  cause: dns error",
            start.NO_PYTHON,
        ),
        (
            "pip install",
            "error: Failed to install: jax-0.12.0.1-py3-none-any.whl (jax==0.12.0.1)\n"
            "  cause: failed to copy file: No space left on device (os error 28)",
            start.DISK_FULL,
        ),
        (
            "pip install",
            "error: Failed to download `jaxlib`\n  cause: There is not enough space on the disk. (os error 112)",
            start.DISK_FULL,
        ),
    ],
)
def test_uvs_messages_become_sentences(workbook, at, text, sentence):
    done = workbook.start(UV_FAILS_AT=at, UV_FAILS=text)
    assert problem(done) == sentence.format(root=workbook.root, command="python3 start.py")


def test_unknown_messages_of_uv_are_shown(workbook):
    done = workbook.start(UV_FAILS_AT="pip install", UV_FAILS="error: the moon {is} in the way")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "error: the moon {is} in the way",
        "",
        "start.py: The setup failed for the reason above: fix it, then run `python3 start.py` again.",
    ]


@pytest.mark.slow
def test_without_network_uv_cannot_be_had(workbook):
    done = workbook.start(
        PATH="/usr/bin:/bin", PIP_INDEX_URL="http://127.0.0.1:9/", PIP_RETRIES="1", PIP_CONFIG_FILE=os.devnull
    )
    assert problem(done).startswith("The packages could not be downloaded: connect to the network")
    assert f"uv is not installed: installing it in {workbook.root}/.uv." in done.stdout


def test_a_python_without_ensurepip_cannot_get_uv(workbook, bwrap):
    ensurepip = Path(sysconfig.get_path("stdlib")) / "ensurepip"
    done = workbook.start(PATH="/usr/bin:/bin", before=[*bwrap, "--tmpfs", str(ensurepip)])
    assert "apt install python3-venv" in problem(done)


def test_a_full_disk_is_reported_with_a_sentence(workbook, bwrap):
    (workbook.root / ".venv").mkdir()
    # One page of memory holds the stand-in's python, but nothing that start.py writes next.
    done = workbook.start(before=[*bwrap, "--size", "4096", "--tmpfs", str(workbook.root / ".venv")])
    assert problem(done).startswith(
        f"The disk is full: free 2 GB on the disk of {workbook.root} and on the disk of your home folder"
    )


def test_a_read_only_folder_is_reported_with_a_sentence(workbook, bwrap):
    done = workbook.start(before=[*bwrap, "--ro-bind", str(workbook.root), str(workbook.root)])
    assert problem(done).startswith(f"{workbook.root} is not writable: copy the workbook to a folder of your own")


@pytest.mark.parametrize("spelling", ["--port={}", "--port {}", "--ServerApp.port={}"])
def test_a_port_in_use_is_reported_before_the_installation(workbook, spelling):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = workbook.start("--", "--no-browser", *spelling.format(port).split())
    assert problem(done).startswith(f"Another program uses port {port}: choose another port, or omit the option")
    assert workbook.uv_calls() == [], "said before the long part"


def test_a_port_that_is_free_is_not_refused():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    start.check_port([f"--port={port}"])
    start.check_port(["--port=99999"])  # JupyterLab rejects this port itself


def test_an_unknown_command_is_refused_with_a_list_of_commands(workbook):
    done = workbook.start("tset")
    assert done.returncode == 2
    assert done.stderr == f"start.py does not know `tset`.\n\n{start.__doc__.strip()}\n"
    assert workbook.start("--help").stdout == f"{start.__doc__.strip()}\n"


# Old versions of Python


def test_an_old_python_is_refused():
    code = f"import sys; sys.version_info = (3, 6, 9); exec(open({str(SOURCE)!r}).read())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert problem(done) == (
        "this is Python 3.6, but start.py needs 3.8 or later: install Python 3.13 and run start.py with it."
    )


def newer_than_python_2(source: str) -> list[str]:
    """Return the kinds of syntax in a source that Python 2.7 cannot parse, as far as start.py might use them."""
    found = {type(node).__name__ for node in ast.walk(ast.parse(source, feature_version=(3, 8)))}
    found &= {"JoinedStr", "NamedExpr", "Nonlocal", "AsyncFunctionDef", "Await", "YieldFrom"}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise) and node.cause:
            found.add("raise from")
        if isinstance(node, ast.List | ast.Tuple | ast.Set) and any(isinstance(e, ast.Starred) for e in node.elts):
            found.add("Starred")
        if isinstance(node, ast.arguments) and (node.kwonlyargs or node.posonlyargs):
            found.add("kinds of arguments")
        if getattr(node, "annotation", None) or getattr(node, "returns", None):
            found.add("annotation")
    return sorted(found | ({"not ASCII"} if not source.isascii() else set()))


def test_python_2_can_parse_the_script_and_is_refused():
    assert newer_than_python_2(SOURCE.read_text()) == []
    newer = "def f(a: int, *, b):\n    raise E(f'{a}×') from None\nx = [*a]"
    assert len(newer_than_python_2(newer)) == 6


# Starting JupyterLab


@pytest.mark.slow
def test_only_the_kernel_of_this_environment_is_used(workbook, monkeypatch):
    """A user's own kernel may also be called python3."""
    foreign = workbook.home / "kernels" / "python3"
    foreign.mkdir(parents=True)
    (foreign / "kernel.json").write_text('{"argv": ["no"], "display_name": "foreign", "language": "python"}')
    monkeypatch.setenv("JUPYTER_PATH", str(workbook.home))

    def kernel(environment):
        command = [sys.executable, "-m", "jupyter_client.kernelspecapp", "list", "--json"]
        output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        return json.loads(output)["kernelspecs"]["python3"]["resource_dir"]

    assert kernel(dict(os.environ)) == str(foreign)
    assert kernel(start.environment()) == str(Path(sys.prefix) / "share/jupyter/kernels/python3")


def test_the_users_python_settings_do_not_reach_started_processes(monkeypatch):
    foreign = "PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE PYENV_VERSION JUPYTER_TOKEN JUPYTERLAB_SETTINGS_DIR"
    for name in foreign.split():
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("JAX_REMAT3", "1")
    assert "x" not in start.environment().values()
    assert start.environment()["JAX_REMAT3"] == "1"


@pytest.fixture
def lab(workbook):
    """Start JupyterLab; return the running process and the address that it opens in the browser."""
    way = Path("grader/learner/contents_manager.py")  # the server reads pages with this
    (workbook.root / way).parent.mkdir()
    shutil.copyfile(start.ROOT / way, workbook.root / way)
    opened = workbook.home.with_name("opened")
    browser = workbook.home.with_name("browser")
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > "{opened}.part" && mv "{opened}.part" "{opened}"\n')
    browser.chmod(0o755)
    keyboard, terminal = os.openpty()  # JupyterLab asks for confirmation on Ctrl-C only if it has a terminal
    process = subprocess.Popen(
        [sys.executable, "start.py"],
        cwd=workbook.root,
        env=workbook.environment | {"BROWSER": f"{browser} %s"},
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 300
        while not opened.exists():
            assert process.poll() is None and time.monotonic() < deadline, "it opened no browser"
            time.sleep(0.05)
        yield process, opened.read_text()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        os.close(keyboard)
        os.close(terminal)


def test_the_first_page_opens_without_a_prompt(workbook, lab):
    process, opened = lab
    with urllib.request.urlopen(opened) as page:  # a file that redirects to the server's address with its token
        url = re.search(r'href="(http[^"]+)"', page.read().decode())[1]
    address, token = url.split("?token=")
    server, page = address.split("/lab/tree/")
    assert page == "notebooks/00_start_here.ipynb"
    with urllib.request.urlopen(url) as answer:
        assert answer.url == url, "led to a login page"
    notification = f"{server}/lab/api/settings/@jupyterlab/apputils-extension:notification?token={token}"
    with urllib.request.urlopen(notification) as answer:
        defaults = json.load(answer)["schema"]["properties"]
    assert (defaults["fetchNews"]["default"], defaults["checkForUpdates"]["default"]) == ("false", False)

    process.terminate()
    output, _ = process.communicate(timeout=120)
    assert "Traceback" not in output
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url)
    assert list(workbook.home.iterdir()) == [], "something was written outside the folder"


@pytest.mark.slow
def test_ctrl_c_ends_it_without_a_traceback(lab):
    process, _ = lab
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "Traceback" not in output and "KeyboardInterrupt" not in output
