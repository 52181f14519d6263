"""`python -m grader check`: exit statuses, messages, limits."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import psutil
import pytest
from command_line import run_here

from grader.isolation import in_process
from grader.isolation.check_file import check_file
from grader.isolation.limits import CheckLimits
from grader.learner.progress import Progress
from grader.verdicts.views import VerdictView

NAME = "checkpoint_dot_policy"
HEAD = "import os, sys, time, signal\nimport jax, jax.numpy as jnp\n"


def script(folder, body, head=""):
    path = folder / "answer.py"
    path.write_text(f"{HEAD}{head}\ndef {NAME}(w1, w2, x):\n{textwrap.indent(textwrap.dedent(body), '    ')}\n")
    return path


def run(*arguments):
    command = [sys.executable, "-m", "grader", *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "COLUMNS": "1000"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    return done.returncode, " ".join(done.stdout.split()), done.stderr


def test_a_right_answer_passes_with_exit_status_0():
    status, out, err = run("check", "solutions/checkpoint_dot_policy.py")
    assert (status, err) == (0, "") and out.startswith("Passed: checkpoint_dot_policy")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="sends signals")
def test_grading_without_a_sandbox_leaves_no_temporary_folder_behind_when_it_is_interrupted(tmp_path):
    (handed_in := tmp_path / "submissions").mkdir()
    (temporary := tmp_path / "temporary").mkdir()
    begun = tmp_path / "begun"
    body = f"__import__('tempfile').mkdtemp()\nopen({str(begun)!r}, 'w').close()\ntime.sleep(600)"
    script(handed_in, body)
    command = [sys.executable, "-m", "grader", "batch", handed_in, "--out", tmp_path / "grades", "--unsandboxed"]
    with subprocess.Popen(command, env=os.environ | {"TMPDIR": str(temporary)}, stderr=subprocess.DEVNULL) as grader:
        while not begun.exists():
            assert grader.poll() is None
            time.sleep(0.1)
        grader.send_signal(signal.SIGINT)
    assert grader.returncode == 130 and list(temporary.iterdir()) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no device that is always full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_where_nothing_can_be_printed_a_sentence_says_so(unbuffered):
    command = [sys.executable, "-m", "grader", "next"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": unbuffered}
        )
    assert (done.returncode, done.stderr.count("\n")) == (74, 1)
    assert done.stderr.startswith("The output cannot be written (No space left on device)")


@pytest.mark.parametrize("meant", ["10", f"elsewhere/06_{NAME}.ipynb"])
def test_an_exercises_name_means_its_page(meant, tmp_path, monkeypatch, check_in_process):
    monkeypatch.chdir(tmp_path)
    status, out, err = run_here("check", meant)
    assert (status, err) == (1, "") and out.startswith(f"Not attempted: {NAME}")


def test_an_existing_file_takes_precedence_over_an_exercise_of_its_name(tmp_path, monkeypatch, check_in_process):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "7").write_text("a file of its own")
    status, out, err = run_here("check", "7")
    assert (status, err) == (2, "") and "7 is neither a notebook (.ipynb) nor a Python file (.py)" in out


def test_a_name_that_is_neither_a_file_nor_an_exercise_is_refused_with_a_list(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, err = run_here("check", "99")
    assert (status, out) == (2, "") and "There is no exercise 99; the exercises are: 1, predict_residuals; 2," in err
    status, out, err = run_here("check", f"07_{NAME}s.ipynb")
    assert (status, out) == (2, "") and f"Did you mean {NAME}" not in err and "File not found" in err


def test_a_wrong_answer_has_exit_status_1_and_its_findings_as_json(tmp_path):
    """The JSON does not contain what an answer prints."""
    body = "print('y' * 10**7)\nreturn jnp.sum((jax.nn.relu(x @ w1) @ w2) ** 2)"
    status, out, err = run("check", script(tmp_path, body), "--json")
    verdict = json.loads(out)
    assert (status, err) == (1, "") and verdict["outcome"] == "not passed"
    finding = verdict["findings"][0]
    assert finding["kind"] == "also saved" and finding["nbytes"] > 0 and finding["source"].startswith("answer.py:6")


def test_the_verdict_follows_the_programs_that_explain_it(tmp_path):
    status, out, _ = run("check", script(tmp_path, "return jnp.sum((jax.nn.relu(x @ w1) @ w2) ** 2)"))
    programs, verdict = out.split("Not passed yet: ")
    assert status == 1 and "backward" in programs and "residuals of this finding marked" in programs
    assert verdict.count("Forward and backward programs") == 0 and "next: " in verdict


def test_a_failing_cell_names_its_line(tmp_path):
    verdict = in_process.grade_file(script(tmp_path, "return w", head="w = jax.no_such_thing"))
    text = str(VerdictView(verdict))
    assert "AttributeError" in text and "answer.py:3 (<module>): w = jax.no_such_thing" in text


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("missing.py", None, "File not found"),
        ("page.ipynb", "{", "is not a valid notebook"),
        ("page.ipynb", '{"cells": []}', "has no answer"),
        ("page.md", "", "neither a notebook"),
        ("answer.py", f"{NAME} = 3", "is an int, not a function"),
    ],
)
def test_a_file_that_cannot_be_judged_has_a_reason(tmp_path, name, text, message):
    if text is not None:
        (tmp_path / name).write_text(text)
    verdict = in_process.grade_file(tmp_path / name)
    assert verdict.outcome == "could not be judged" and message in verdict.findings[0].text


def test_the_reason_reaches_the_terminal(tmp_path):
    status, out, err = run_here("check", tmp_path / "missing.py")
    assert (status, out) == (2, "") and "File not found" in err


def test_a_misspelled_file_is_answered_with_the_closest_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script(tmp_path, "return x")
    status, out, err = run_here("check", "anwser.py")
    assert (status, out) == (2, "") and err == "File not found: anwser.py. Did you mean answer.py?\n"


@pytest.mark.parametrize("command", ["check", "batch", "doctor"])
def test_help_fits_80_columns_and_states_exit_statuses(command):
    status, out, _ = run_here(command, "--help", columns=80)
    assert status == 0 and "Exit status: 0 if" in out
    assert max(map(len, out.splitlines())) <= 80 and "…" not in out.replace("tcp://…", "")


@pytest.mark.slow
def test_an_attempt_is_written_down_but_no_stub_and_no_mere_name(tmp_path):
    """Progress records an answer that was judged or that ended its process, but neither a stub nor a file that only has
    the exercise's name."""
    path = tmp_path / f"{NAME}.py"
    for text in ("x = 1", f"def {NAME}(w1, w2, x): ...", f"import os\ndef {NAME}(w1, w2, x): os._exit(0)"):
        path.write_text(text)
        status, out, err = run_here("check", path)
        stub = text.endswith("...")
        assert (status, err) == (1 if stub else 2, "") and ("Not attempted" in out) == stub
    (attempt,) = Progress().attempts()
    assert (attempt.exercise, attempt.verdict.outcome, attempt.source) == (NAME, "could not be judged", text + "\n")


LIMITS = CheckLimits(seconds=300, processor_seconds=60, address_space=2**30)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("sys.stdout.write('x' * 10**8); print(sys.stderr.write('x' * 10**8)); os._exit(3)", "status 3"),
    ],
)
def test_a_child_that_dies_is_a_verdict(tmp_path, body, reason):
    verdict = check_file(script(tmp_path, body), LIMITS)
    assert verdict.outcome == "could not be judged" and reason in verdict.findings[0].text
    assert verdict.findings[0].next


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "limits", "reason"),
    [
        ("time.sleep(1000)", CheckLimits(seconds=2), "longer than 2 s"),
        ("while True: pass", CheckLimits(seconds=300, processor_seconds=1), "more than 1 s of processor time"),
    ],
)
def test_an_answer_that_takes_too_long_is_ended(tmp_path, body, limits, reason):
    start = time.monotonic()
    verdict = check_file(script(tmp_path, body), limits)
    assert time.monotonic() - start < 250  # well below the 1000 s that the answer sleeps
    assert verdict.outcome == "could not be judged" and reason in verdict.findings[0].text


@pytest.mark.slow
def test_an_answer_that_takes_too_much_memory_is_ended(tmp_path):
    verdict = check_file(script(tmp_path, "return jnp.sum(x) + len(b'x' * 10**10)"), LIMITS)
    assert verdict.outcome == "not passed" and "MemoryError" in verdict.findings[0].text
    verdict = check_file(script(tmp_path, "return jnp.sum(jax.device_put(jnp.zeros(10**10)))"), LIMITS)
    assert verdict.outcome in ("could not be judged", "not passed")


@pytest.mark.slow
def test_processes_started_by_an_answer_end_with_it(tmp_path):
    started = tmp_path / "started"
    body = f"""
        import subprocess
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
        with open({str(started)!r}, "w") as file:
            file.write(str(process.pid))
        os._exit(0)
    """
    assert check_file(script(tmp_path, body), LIMITS).outcome == "could not be judged"
    psutil.wait_procs([psutil.Process(pid) for pid in [int(started.read_text())] if psutil.pid_exists(pid)], timeout=60)
    assert not runs(int(started.read_text()))


def runs(pid):
    with contextlib.suppress(psutil.NoSuchProcess):
        # A process that has ended remains a zombie until its parent waits for it.
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


@pytest.mark.slow
def test_the_parent_does_not_import_jax():
    code = "import sys, grader.cli; print('jax' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False False"
