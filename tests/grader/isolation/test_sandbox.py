"""An answer in the sandbox: what it can access, how the end of its process becomes a verdict, and its cleanup."""

import ast
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import bubblewrap
import pytest

import rematscope
from grader.classroom.collect import Submission
from grader.classroom.grade_one import SandboxGrader
from grader.isolation import bubblewrap_options, sandbox
from grader.isolation.limits import CheckLimits, TimedOut
from grader.isolation.sandboxed.protocol import IDLE_SECONDS
from grader.judging import illustrate, judge

NAME = "checkpoint_dot_policy"
ROOT = Path(__file__).parents[3]
HEAD = "import ctypes, json, os, resource, signal, socket, subprocess, sys, threading, time\n"


LIMITS = {"seconds": 300, "processor_seconds": 30}


@pytest.fixture(scope="module")
def grader(grader_in_sandbox):
    return grader_in_sandbox(CheckLimits(**LIMITS))


def submission(body):
    text = f"{HEAD}def {NAME}(w1, w2, x):\n{textwrap.indent(textwrap.dedent(body), '    ')}\n"
    return Submission("a learner", "answer.py", text.encode())


def grade(body, grader):
    return grader.grade(submission(body), seed=1)


PROBE = """
libc = ctypes.CDLL(None, use_errno=True)

def error(action, *arguments):
    try:
        return repr(action(*arguments))
    except BaseException as error:
        return type(error).__name__

def fill():
    for number in range(100):
        with open(f"/learner/{number}", "wb") as file:
            file.write(bytes(2**20))

def many_files():
    for number in range(10_000):
        open(f"/learner/many{number}", "w").close()

facts = {
    "pid": os.getpid(),
    "parent": os.getppid(),
    "proc": os.listdir("/proc"),
    "environment": sorted(os.environ),
    "home": os.listdir(os.environ["HOME"]),
    "seen": [path for path in SECRETS if os.path.exists(path)],
    "expect": error(__import__, "grader.catalog.checkpoint_dot_policy.expect"),
    "solution": error(__import__, "solutions.checkpoint_dot_policy"),
    "not written": [error(open, path + "/new", "w") for path in ["/", "/usr", "/dev", sys.prefix, ROOT]],
    "fork": error(os.fork),
    "run": error(subprocess.run, ["true"]),
    "network": error(socket.socket),
    "unshare": error(os.unshare, os.CLONE_NEWUSER),
    "shared memory": libc.shmget(0, 4096, 0o1600),
    "memfd": error(os.memfd_create, "a"),
    "trace": libc.ptrace(0, 0, 0, 0),
    "mount": libc.mount(b"tmpfs", b"/learner", b"tmpfs", 0, None),
    "more memory": error(resource.setrlimit, resource.RLIMIT_AS, (-1, -1)),
    "fill": error(fill),
    "many files": error(many_files),
    "thread": error(lambda: threading.Thread(target=print).start()),
}
print(facts, flush=True)
os._exit(0)
"""


@bubblewrap.needed
def test_an_answers_view_and_rights_in_the_sandbox(grader, tmp_path):
    secrets = [ROOT / "solutions" / f"{NAME}.py", ROOT / "tests", ROOT / "exercises", tmp_path, Path.home() / ".ssh"]
    secrets += [*ROOT.glob("grader/catalog/*/expect.py"), *ROOT.glob("grader/**/__pycache__"), "/etc/passwd", "/sys"]
    probe = PROBE.replace("SECRETS", repr([str(path) for path in secrets])).replace("ROOT", repr(str(ROOT)))
    facts = ast.literal_eval(grade(probe, grader).printed)
    ours = {"PATH", "HOME", "TMPDIR", "LANG", "PWD", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED"}
    ours |= {"OPENBLAS_NUM_THREADS", "MALLOC_ARENA_MAX"}
    # XLA sets the variables with the last two prefixes when it is imported.
    environment = {name for name in facts.pop("environment") if not name.startswith(("JAX_", "TPU_", "TF_", "LC_"))}
    assert environment <= ours, environment - ours
    assert facts == {
        "pid": 1,
        "parent": 0,
        "proc": ["cpuinfo"],
        "home": ["submission"],
        "seen": [],
        "expect": "ModuleNotFoundError",
        "solution": "ModuleNotFoundError",
        "not written": ["OSError"] * 5,
        "fork": "PermissionError",
        "run": "PermissionError",
        "network": "PermissionError",
        "unshare": "PermissionError",
        "shared memory": -1,
        "memfd": "PermissionError",
        "trace": -1,
        "mount": -1,
        "more memory": "ValueError",
        "fill": "OSError",
        "many files": "OSError",
        "thread": "None",
    }


# The parts of the grader that find, trace and record an answer and run its programs. Judging, other submissions and the
# learner's progress are in other folders, which the sandbox does not have.
FOLDERS = ["answers", "exercises", "isolation/sandboxed", "stablehlo", "tracing", "util", "verdicts"]
FILES = ["__init__.py", "isolation/__init__.py", "catalog/__init__.py", "catalog/*/__init__.py", "catalog/*/task.py"]

WALK = """
walked = [os.path.join(folder, name) for folder, _, names in os.walk(ROOT) for name in names]
instrument = [path for path in walked if path.startswith(INSTRUMENT)]
seen = {os.path.relpath(path, ROOT) for path in walked if not path.startswith((PYTHON, INSTRUMENT))}
print({"more": seen - WANTED or 0, "less": WANTED - seen or 0, "instrument": bool(instrument)}, flush=True)
os._exit(0)
"""


@pytest.mark.slow
@bubblewrap.needed
def test_an_answer_sees_only_the_project_files_that_tracing_and_running_need(grader):
    wanted = [path for folder in FOLDERS for path in (ROOT / "grader" / folder).glob("*.[pt]*")]
    wanted += [path for name in FILES for path in (ROOT / "grader").glob(name)]
    wanted = {str(path.relative_to(ROOT)) for path in wanted}
    assert not any(name in path for path in wanted for name in ("judging", "learner", "classroom", "expect", "cli"))
    walk = WALK.replace("WANTED", repr(wanted)).replace("ROOT", repr(str(ROOT))).replace("PYTHON", repr(sys.prefix))
    walk = walk.replace("INSTRUMENT", repr(str(Path(rematscope.__file__).parent)))
    seen = ast.literal_eval(grade(walk, grader).printed)
    assert seen == {"more": 0, "less": 0, "instrument": True}


@bubblewrap.needed
def test_functions_that_a_page_imports_exist_and_do_nothing_until_called(grader):
    body = """
    from grader import board, check, hint, predict, solution

    for verb in (lambda: check(print), hint, solution, board, lambda: predict("?", int)):
        try:
            verb()
        except ModuleNotFoundError as error:
            print(error.name, flush=True)
    os._exit(0)
    """
    assert set(grade(body, grader).printed.split()) == {"grader.learner"}


@pytest.mark.slow
@bubblewrap.needed
def test_the_beginning_and_the_end_of_printed_text_are_stored(grader):
    graded = grade("print('begin' + 'x' * 10**8 + 'end', flush=True); os._exit(0)", grader)
    assert graded.printed.startswith("beginxxx") and graded.printed.endswith("xxxend\n")
    assert "99,992,009 bytes left out" in graded.printed


@bubblewrap.needed
def test_no_process_remains_when_the_grading_process_is_killed():
    script = f"""
from grader.classroom.collect import Submission
from grader.classroom.grade_one import SandboxGrader
answer = b"import time, os\\ndef {NAME}(w1, w2, x): os.write(1, b'on'); time.sleep(1000)"
grader = SandboxGrader()
grader.begin()
print("ready", flush=True)
input()
grader.grade(Submission("a", "a.py", answer), 1)
"""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, **pipes) as grader:
        assert grader.stdout.readline() == "ready\n"
        sandbox_alone = bubblewrap.descendants(grader.pid)
        grader.stdin.write("\n")
        grader.stdin.flush()
        deadline = time.monotonic() + 300
        # Wait for a guard and the answer.
        while len((started := bubblewrap.descendants(grader.pid)) - sandbox_alone) < 2:
            assert time.monotonic() < deadline, started
            time.sleep(0.05)
        grader.send_signal(signal.SIGKILL)
    assert len(sandbox_alone) >= 2  # bubblewrap and the zygote
    deadline = time.monotonic() + 300
    while alive := {pid for pid in started if Path(f"/proc/{pid}").exists()}:
        assert time.monotonic() < deadline, alive
        time.sleep(0.1)


@bubblewrap.needed
def test_a_process_killed_from_outside_counts_as_the_machines_failure(grader):
    grader.begin()
    before = bubblewrap.descendants(os.getpid())

    with ThreadPoolExecutor(1) as executor:
        grading = executor.submit(grade, "while True: pass", grader)
        while not (pids := bubblewrap.answers(bubblewrap.descendants(os.getpid()) - before)):
            assert not grading.done(), grading.result()
            time.sleep(0.01)
        os.kill(pids[0], signal.SIGKILL)
        graded = grading.result()
    assert graded.verdict.outcome == "could not be judged"
    assert [finding.kind for finding in graded.verdict.findings] == ["machine"]
    assert grade("os._exit(0)", grader).verdict.findings[0].kind != "machine"


@pytest.mark.slow
@bubblewrap.needed
def test_idle_answers_are_not_waited_for_and_slow_answers_only_up_to_their_limit(grader_in_sandbox):
    patient = grader_in_sandbox()  # without a time limit
    assert "it was idle" in grade("while True: time.sleep(0.1)", patient).reason
    with pytest.raises(TimedOut) as late:
        patient.grade(submission("while True: pass"), 1, seconds=2)
    assert 2 <= late.value.seconds < 30, "all that it took is charged"


@pytest.mark.slow
@bubblewrap.needed
def test_an_answer_is_not_idle_while_a_busy_machine_gives_it_no_time(grader):
    grader.begin()
    before, allowed = bubblewrap.descendants(os.getpid()), os.sched_getaffinity(0)

    def schedule(process, processors, policy):
        for thread in os.listdir(f"/proc/{process}/task"):
            os.sched_setaffinity(int(thread), processors)
            os.sched_setscheduler(int(thread), policy, os.sched_param(0))
        with contextlib.suppress(OSError):  # a kernel that gives each session its own share of the processors
            Path(f"/proc/{process}/autogroup").write_text("19" if policy == os.SCHED_IDLE else "0")

    body = "end = time.thread_time() + 3\nwhile time.thread_time() < end: pass\nos._exit(3)"
    with ThreadPoolExecutor(1) as executor:
        grading = executor.submit(grade, body, grader)
        while not (pids := bubblewrap.answers(bubblewrap.descendants(os.getpid()) - before)):
            assert not grading.done(), grading.result()
        schedule(pids[0], {min(allowed)}, os.SCHED_IDLE)
        code = f"import os; os.sched_setaffinity(0, {{{min(allowed)}}})\nwhile True: pass"
        busy = [subprocess.Popen([sys.executable, "-S", "-c", code], start_new_session=True) for _ in range(8)]
        try:
            time.sleep(1 + 1.6 * IDLE_SECONDS)
            assert not grading.done(), grading.result()
            schedule(pids[0], allowed, os.SCHED_OTHER)
        finally:
            for process in busy:
                process.kill()
                process.wait()
        assert "exited with status 3" in grading.result().reason, grading.result()


@pytest.mark.slow
@bubblewrap.needed
def test_a_sandbox_that_is_lost_is_replaced():
    before = bubblewrap.descendants(os.getpid())
    with SandboxGrader(CheckLimits(**LIMITS)) as grader:
        zygote = grader.begin()
        for pid in bubblewrap.descendants(os.getpid()) - before:
            with contextlib.suppress(ProcessLookupError):  # it may have ended together with its parent
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 300
        while zygote.alive:
            assert time.monotonic() < deadline
        assert "exited with status 0" in grade("os._exit(0)", grader).reason


@pytest.mark.slow
@bubblewrap.needed
def test_where_the_grader_itself_fails_that_is_the_machines_failure_and_ends_no_run(grader, monkeypatch):
    def fails(*_, **__):
        raise MemoryError

    answer = Submission("a learner", "answer.py", (ROOT / "solutions" / f"{NAME}.py").read_bytes())
    assert grader.grade(answer, seed=1).verdict.passed
    for place, name, seed in ((illustrate, "choose_scene", 1), (judge, "judge_text", 2)):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, fails)
            failed = grader.grade(answer, seed)
        assert [finding.kind for finding in failed.verdict.findings] == ["machine"]
        assert "this machine is out of resources (MemoryError)" in failed.reason


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs root")
@bubblewrap.needed
def test_where_a_package_is_for_root_alone_answers_are_roots(monkeypatch):
    """Otherwise an answer that imports the package would fail because someone installed it with a strict umask."""
    package, options = Path(pytest.__file__).parent, bubblewrap_options.options
    closed = ["--perms", "0700", "--tmpfs", str(package)]
    monkeypatch.setattr(
        bubblewrap_options, "options", lambda as_root: [*options(as_root), *(closed if as_root else ())]
    )
    with sandbox.Zygote() as zygote:
        assert zygote.uncounted and zygote.alive


def test_without_bubblewrap_there_is_a_sentence(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(sandbox.SandboxError, match=r"apt install bubblewrap.*--unsandboxed"):
        sandbox.Zygote()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            "echo bwrap: setting up uid map: Permission denied >&2; exit 1",
            r"uid map: Permission denied.*user namespaces.*--unsandboxed",
        ),
        ("kill -9 $$", r"was killed before it was ready.*add --resume"),
    ],
    ids=["forbidden", "killed"],
)
def test_a_sandbox_that_does_not_start_is_explained(command, message, monkeypatch, tmp_path):
    (tmp_path / "bwrap").write_text(f"#!/bin/sh\n{command}")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(sandbox.SandboxError, match=message):
        sandbox.Zygote()


class Groups:
    """Control groups that processes can join only `joinable` times."""

    ran_out_of_memory = False

    def __init__(self, joinable):
        self.left = joinable

    def group(self, limits):
        self.left -= 1
        self._file = os.open(os.devnull, os.O_RDONLY if self.left < 0 else os.O_WRONLY)
        return self

    @property
    def joining(self):
        return self

    def fileno(self):
        return self._file

    def remove(self):
        os.close(self._file)


@pytest.mark.slow
@pytest.mark.parametrize("joinable", [0, 1])
def test_a_control_group_that_cannot_be_joined_is_the_machines_failure(monkeypatch, joinable):
    """If joining fails at the start, no control groups are used. If it fails later, the answer is not blamed."""
    monkeypatch.setattr(sandbox, "ControlGroups", lambda: Groups(joinable))
    with SandboxGrader(CheckLimits(**LIMITS)) as grader:
        verdict = grade("return x", grader).verdict
    assert verdict.outcome == ("could not be judged" if joinable else "not passed"), verdict
    assert (verdict.findings[0].kind == "machine") == bool(joinable)
