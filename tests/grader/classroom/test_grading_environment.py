"""Neither environment variables nor the shell's limits influence a grade."""

import contextlib
import csv
import errno
import os
import signal
import subprocess
import sys
import threading
import types
from pathlib import Path

import bubblewrap
import distributed
import pytest

from grader.classroom import executors
from grader.isolation import control_groups, sandbox
from grader.util import environment

NAME = "checkpoint_dot_policy"
ROOT = Path(__file__).parents[3]
RIGHT = (ROOT / "solutions" / f"{NAME}.py").read_text()
ODD = {
    "JAX_PLATFORMS": "tpu",
    "JAX_ENABLE_X64": "1",
    "JAX_DEBUG_NANS": "1",
    "JAX_NO_SUCH": "1",
    "XLA_FLAGS": "--no_such_flag=1",
    "TF_XLA_FLAGS": "--no_such_flag=1",
    "NPY_PROMOTION_STATE": "weak_and_warn",
    "PYTHONOPTIMIZE": "2",
    "PYTHONWARNINGS": "error",
    "PYTHONSTARTUP": "/nonexistent",
    "PYTHONIOENCODING": "ascii",
    "LD_PRELOAD": "/nonexistent.so",
    "LANG": "tr_TR.ISO-8859-9",
    "LC_ALL": "C",
    "TZ": "Mars/Olympus",
    "HOME": "/nonexistent",
    "OMP_NUM_THREADS": "no number",
    "MALLOC_PERTURB_": "7",
}


def batch(tmp_path, answers, environment=(), shell="exec", *options):
    (tmp_path / "in").mkdir(exist_ok=True)
    for learner, text in answers.items():
        (tmp_path / "in" / f"{learner}.py").write_text(text)
    command = ["bash", "-c", f'{shell} "$@"', "bash", sys.executable, "-m", "grader", "batch", tmp_path / "in", "--out"]
    command += [tmp_path / "out", "--exercise", NAME, bubblewrap.UNGROUPED, *options]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, cwd=ROOT, env=os.environ | dict(environment)
    )


def verdicts(tmp_path):
    with (tmp_path / "out" / "grades.csv").open(newline="") as file:
        return {row["learner"]: row["verdict"] for row in csv.DictReader(file)}


@pytest.mark.slow
@bubblewrap.needed
def test_neither_an_odd_environment_nor_limits_that_may_be_raised_change_a_grade(tmp_path):
    wrong = RIGHT.replace("jax.checkpoint(", "(lambda f, policy: f)(")
    shell = "ulimit -S -n 64; ulimit -S -s 512; ulimit -S -u 20; exec <&- >&-; exec"
    if os.geteuid() == 0:  # others could not read the report
        shell = f"umask 777; {shell}"
    for name in ("random", "numpy", "jax"):  # in a folder that PYTHONPATH names, these would hide the real ones
        (tmp_path / f"{name}.py").write_text("raise SystemExit(3)")
    done = batch(tmp_path, {"ada": RIGHT, "ben": wrong}, ODD | {"PYTHONPATH": str(tmp_path)}, shell)
    assert done.returncode == 0, done
    assert verdicts(tmp_path) == {"ada": "passed", "ben": "not passed"}


def test_an_allow_list_is_passed_on_and_the_rest_is_assigned():
    given = ODD | {"A_SECRET": "1", "DASK_DISTRIBUTED__COMM__TLS__CA_FILE": "ca", "JAX_REMAT3": "1", "PATH": "/bin"}
    passed = environment.for_grading(given)
    assert environment.for_grading(passed) == passed, "or the command would start itself for ever"
    assert environment.ASSIGNED.items() <= passed.items() and "A_SECRET" not in passed
    assert {"PATH", "HOME", "JAX_REMAT3", "DASK_DISTRIBUTED__COMM__TLS__CA_FILE"} <= {*passed}
    assert {*passed} & {*ODD} == {"HOME", *environment.ASSIGNED} & {*ODD}


def test_a_check_inherits_paths_and_drops_settings():
    given = ODD | {"PYTHONPATH": "/x", "PYTHONHOME": "/y", "A_NAME": "1", "JAX_REMAT3": "1", "SYSTEMROOT": "z"}
    kept = environment.without_settings(given)
    assert {"PYTHONPATH", "PYTHONHOME", "A_NAME", "JAX_REMAT3", "SYSTEMROOT", "HOME"} <= {*kept}
    assert not {"JAX_PLATFORMS", "XLA_FLAGS", "PYTHONOPTIMIZE", "PYTHONWARNINGS", "NPY_PROMOTION_STATE"} & {*kept}


def test_a_value_of_jax_remat3_that_jax_refuses_ends_the_command_with_a_sentence(tmp_path):
    done = batch(tmp_path, {"ada": RIGHT}, {"JAX_REMAT3": "maybe"})
    assert done.returncode == 2, done
    assert done.stderr == "JAX_REMAT3 is 'maybe', which JAX does not accept. Set it to 1 or 0, or unset it.\n"


@bubblewrap.needed
def test_a_temporary_folder_that_cannot_be_written_to_ends_the_command_with_a_sentence(monkeypatch):
    def refuse():
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(sandbox.tempfile, "TemporaryFile", refuse)
    with pytest.raises(sandbox.SandboxError, match=r"No temporary file can be created in .* \(Permission denied\)"):
        sandbox.Zygote()


@pytest.mark.parametrize("folder", [".", "week 1"])
def test_a_current_folder_with_submissions_is_refused_and_none_of_them_runs(folder, tmp_path):
    """`python -m` puts the current folder first on the path of modules."""
    here = tmp_path / "in" / folder
    here.mkdir(parents=True)
    for name in ("random", "glob", "jax", "numpy", "rematscope", "typer"):
        (here / f"{name}.py").write_text("import os\nos.write(2, b'it runs')")
    command = [sys.executable, "-m", "grader", "batch", tmp_path / "in", "--out", tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=here)
    said = f"The current folder, {here.resolve()}, contains submissions."
    assert done.returncode == 2 and done.stderr.startswith(said) and not (tmp_path / "out").exists(), done


def test_a_current_folder_that_has_been_deleted_ends_the_command_with_a_sentence(tmp_path):
    done = batch(
        tmp_path, {"ada": RIGHT}, (), f"mkdir {tmp_path}/gone; cd {tmp_path}/gone; rmdir {tmp_path}/gone; exec"
    )
    assert done.returncode == 2 and done.stderr.startswith("The current folder no longer exists."), done


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shell", "named"),
    [
        ("ulimit -u 20; exec", "`ulimit -Hu` is 20"),
        ("ulimit -u 320; exec", "grading needs 640 for --jobs 2"),  # one answer can use most of it for its threads
        ("ulimit -v 8000000; exec", "`ulimit -Hv` is 8,000,000"),
    ],
)
@bubblewrap.needed
def test_a_limit_that_is_too_low_is_named_and_nothing_is_graded(shell, named, tmp_path):
    done = batch(tmp_path, {"ada": RIGHT}, (), shell, "--jobs", "2")
    assert done.returncode == 2 and named in " ".join(done.stderr.split()) and not (tmp_path / "out").exists(), done


@pytest.mark.slow
@bubblewrap.needed
def test_a_control_group_that_allows_too_few_tasks_is_named_and_nothing_is_graded(tmp_path):
    """Answers and the grader fail in many ways if they cannot start threads, as in a container with such a limit."""
    groups = [*control_groups._own_groups("pids"), *control_groups._own_groups("")]
    parent = next((group for group in groups if (group / "cgroup.procs").exists() and os.access(group, os.W_OK)), None)
    if parent is None:
        pytest.skip("needs root and control groups")
    group = parent / f"few-tasks-{os.getpid()}"
    group.mkdir()
    try:
        if not (group / "pids.max").exists():
            pytest.skip("needs control groups that count tasks")
        (group / "pids.max").write_text("300")
        done = batch(tmp_path, {"ada": RIGHT}, (), f"echo $$ > {group}/cgroup.procs; exec", "--jobs", "1")
    finally:
        group.rmdir()
    said = " ".join(done.stderr.split())
    assert done.returncode == 2 and "may have 300 processes and threads, but grading needs 320" in said, done
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@bubblewrap.needed
def test_answers_that_are_killed_from_outside_are_named_and_regraded(tmp_path):
    learners = dict.fromkeys(("ada", "ben", "cy"), RIGHT)
    over = threading.Event()

    def kill():
        while not over.wait(0.01):
            if (tmp_path / "out" / "begun").exists():  # the sandbox's own test has finished
                for answer in bubblewrap.answers(bubblewrap.descendants(os.getpid()) - before):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(answer, signal.SIGKILL)

    before = bubblewrap.descendants(os.getpid())
    killer = threading.Thread(target=kill)
    killer.start()
    try:
        done = batch(tmp_path, learners)
    finally:
        over.set()
        killer.join()
    assert done.returncode == 2 and "3  could not be judged" in done.stdout, done
    assert "3 answers could not be judged for reasons other than the answer" in done.stdout
    assert '--regrade "could not be judged"' in done.stdout
    again = batch(tmp_path, learners, (), "exec", "--regrade", "could not be judged")
    assert again.returncode == 0 and set(verdicts(tmp_path).values()) == {"passed"}, again


def test_a_worker_whose_environment_changes_programs_is_excluded(monkeypatch):
    monkeypatch.setattr(distributed, "get_worker", lambda: types.SimpleNamespace(address="tcp://worker"))
    monkeypatch.setenv("JAX_PLATFORMS", "tpu")
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    said = executors._grade_on_worker(("ada", "a.py", b"", None), 1, 2, 3.0, {}, True, False)
    assert said["worker"] == "tcp://worker" and "its environment sets XLA_FLAGS" in said["unfit"]
    assert os.environ["JAX_PLATFORMS"] == "cpu"
