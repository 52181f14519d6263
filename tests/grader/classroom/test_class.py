"""A class is graded despite interruptions, kills and lost cluster workers."""

import csv
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import bubblewrap
import pytest

import rematscope
from grader.classroom import collect, executors, grade_class, run_folder, seeds
from grader.classroom.collect import Submission
from grader.classroom.grade import Grade
from grader.classroom.report import Report
from grader.isolation import remote_capture
from grader.judging import judge
from grader.tracing.evidence import Evidence
from grader.util.environment import without_settings
from grader.verdicts.verdict import Finding, FindingKind, Outcome, Verdict

NAME = "checkpoint_dot_policy"
ROOT = Path(__file__).parents[3]
RIGHT = (ROOT / "solutions" / f"{NAME}.py").read_text()
WRONG = RIGHT.replace("jax.checkpoint(", "(lambda f, policy: f)(")

sandboxed = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


@pytest.mark.slow
@sandboxed
def test_feedback_shows_both_programs_and_marks_the_wrong_residual(grader_in_sandbox):
    grader = grader_in_sandbox()
    wrong = grader.grade(Submission("ada", "answer.py", WRONG.encode()), 1)
    right = grader.grade(Submission("ada", "answer.py", RIGHT.encode()), 1)
    assert wrong.verdict.outcome == "not passed" and wrong.picture.title.startswith("Forward and backward program")
    page = wrong.picture.html()
    assert page.count("rs-marked") > 2 and "◀ here" in page and "In [" not in page
    assert right.verdict.passed and "page's shapes" in right.picture.title and "◀ here" not in right.picture.html()


def counting(last, then):
    """Return an answer that prints the number of each call and executes `then` in call number `last`."""
    calls = f"""
import os, sys

calls = []


def counted(policy):
    calls.append(policy)
    print("call", len(calls), flush=True)
    if len(calls) == {last}:
        {then}
    return policy
"""
    text = calls + RIGHT.replace("policy=policy", "policy=counted(policy)")
    return Submission("ada", "answer.py", text.encode())


@pytest.fixture(scope="module")
def judged(grader_in_sandbox):
    """Return the number of calls during judging. Output of the later call for the pictures is discarded."""
    return grader_in_sandbox().grade(counting(0, "int()"), 1).printed.count("call")


@pytest.mark.slow
@sandboxed
@pytest.mark.parametrize(
    ("later", "then", "shown"),
    [
        (1, "os._exit(0)", False),
        (1, "while True: pass", False),
        (1, "raise KeyError", False),
        (1, "print('x' * 10**6)", True),
        (0, "sys.stdout = None", True),
    ],
)
def test_side_effects_of_an_answer_while_it_is_shown_change_nothing(
    later, then, shown, monkeypatch, judged, grader_in_sandbox
):
    """Whether it happens in the last call of judging or in the call for the pictures."""
    monkeypatch.setattr(remote_capture, "SECONDS_TO_DRAW", 2 if "while" in then else 300)
    grade = grader_in_sandbox().grade(counting(judged + later, then), 1)
    assert judged >= 2 * len(seeds.cases_for(NAME, seeds.seed_of_shapes(1, "ada"))), "each case is tried twice"
    assert grade.verdict.passed and grade.printed.split("\n") == [*(f"call {n + 1}" for n in range(judged)), ""]
    assert (grade.picture is not None) == shown


@pytest.mark.slow
@sandboxed
def test_the_same_programs_are_judged_once_and_others_are_not_taken_for_them(monkeypatch, grader_in_sandbox):
    judged, calls = judge.judge_text, []
    monkeypatch.setattr(judge, "judge_text", lambda *arguments: calls.append(1) or judged(*arguments))
    learners = [name for name in map(str, range(99)) if seeds.seed_of_shapes(1, name) == seeds.seed_of_shapes(1, "0")]
    other = next(name for name in map(str, range(99)) if name not in learners)
    lower = "# written lower\n\n\n"

    def graded(learner, text):
        verdict = grader.grade(Submission(learner, "answer.py", text.encode()), 1).verdict
        return verdict.outcome, verdict.findings[0].source if verdict.findings else None, len(calls)

    grader = grader_in_sandbox()
    assert graded(learners[0], RIGHT) == ("passed", None, 1)
    assert graded(learners[1], lower + RIGHT.replace("pipeline", "others")) == ("passed", None, 1)
    assert graded(learners[2], RIGHT.replace("(z**2)", "(z**2) * 1.001"))[::2] == ("not passed", 2)
    assert graded(other, RIGHT) == ("passed", None, 3), "for other shapes it is another program"
    first, again = graded(learners[0], WRONG), graded(learners[1], lower + WRONG)
    assert first[::2] == again[::2] == ("not passed", 4)
    lines = [[int(line) for line in re.findall(r"answer.py:(\d+)", source)] for _, source, _ in (first, again)]
    assert lines[0] and [line + 3 for line in lines[0]] == lines[1], "each is told of lines of its own"


# In these processes, a stand-in without JAX grades. It takes a few milliseconds and reports its arguments.
STAND_IN = """
import hashlib, sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from grader.classroom import collect, executors, grade_class, run_folder
from grader.classroom.grade import Grade
from grader.verdicts import verdict

def grade(submission, seed, secret, seconds):
    time.sleep(0.01)
    number = hashlib.sha256(repr((seed, submission)).encode()).digest()[0]
    outcome = "passed" if number % 2 else "not passed"
    found = () if number % 2 else (verdict.Finding("wrong value", f"It is {number}."),)
    return Grade(submission.learner, submission.name, verdict.Verdict("policy_from_rules", outcome, found, ("Right.",)))

handed_in, out = Path(sys.argv[1]), Path(sys.argv[2])
run = run_folder.Run.resume(out, 7, "policy_from_rules", True)
print("graded before:", len(list((out / "results").iterdir())), flush=True)
with ThreadPoolExecutor(2) as executor:
    place = executors.LocalExecutor(executor, 4, grade)
    report, _ = grade_class.grade_class(collect.collect(handed_in), run, place, lambda report: run.write(report, False))
run.finish(report, False)
print("done")
"""


def until(condition, process):
    end = time.monotonic() + 300
    while time.monotonic() < end:
        if condition():
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    pytest.fail("it took more than five minutes")


def test_killed_at_any_moment_and_resumed_it_ends_with_the_same_grades(tmp_path, seed):
    handed_in = tmp_path / "in"
    for number in range(150):
        (handed_in / f"learner {number}").mkdir(parents=True)
        (handed_in / f"learner {number}" / "answer.py").write_text(f"# {number}")

    def begin(out):
        command = [sys.executable, "-c", STAND_IN, handed_in, tmp_path / out]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)

    whole = begin("whole").communicate(timeout=180)
    assert whole == ("graded before: 0\ndone\n", "")
    draw, before = random.Random(seed), []
    for kill in [True] * 6 + [False]:
        process = begin("killed")
        before.append(int(process.stdout.readline().split()[-1]))  # grading starts now
        if kill:  # after up to thirty more grades, or later, while the report is written
            enough = before[-1] + draw.randrange(30)
            while process.poll() is None and len(list((tmp_path / "killed" / "results").glob("*"))) < enough:
                time.sleep(0.001)
            process.kill()
        assert process.communicate(timeout=180)[1] == ""
    assert before == sorted(before) and len(set(before)) > 2
    assert not any((tmp_path / "killed" / "begun").iterdir())
    for name in ("grades.csv", "grades.json", "feedback/learner 149.html"):
        assert (tmp_path / "killed" / name).read_text() == (tmp_path / "whole" / name).read_text()


@pytest.mark.slow
def test_an_answer_that_ends_every_run_is_graded_last_alone_and_has_a_row(tmp_path):
    (tmp_path / "in").mkdir()
    for number in range(30):
        (tmp_path / "in" / f"learner {number:02}.py").write_text("# poison" if number == 3 else f"# {number}")
    kills = "def grade(submission, seed, secret, seconds):\n    if submission.content == b'# poison':\n        "
    script = STAND_IN.replace("import hashlib,", "import hashlib, os,").replace(
        "def grade(submission, seed, secret, seconds):\n", kills + "time.sleep(0.2), os.kill(os.getpid(), 9)\n"
    )
    # Learners are charged with the seconds that a grade reports. If these were 0, the poisoned answer would be charged
    # nothing either. On a busy machine, where few other answers finish in its 0.2 s, it would then be graded first in
    # every run.
    script = script.replace('("Right.",)))', '("Right.",)), seconds=0.01)')
    assert "seconds=0.01" in script
    command = [sys.executable, "-c", script, tmp_path / "in", tmp_path / "out"]

    def rows():
        with (tmp_path / "out" / "grades.csv").open(newline="") as file:
            return {row["learner"]: (row["verdict"], row["reason"]) for row in csv.DictReader(file)}

    graded, ended = [], []
    for times in range(4):  # the first time, together with other answers
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, cwd=ROOT)
        assert (done.returncode, done.stderr) == (-9, "")
        graded.append(len(list((tmp_path / "out" / "results").iterdir())))
        ended += [rows()["learner 03"][1]] if times > 1 else []
    assert graded == sorted(graded) and graded[2:] == [29] * 2, "it takes nobody's grade along but its own"
    assert ["ended once while" in ended[0], "ended 2 times while" in ended[1]] == [True, True], "it has a row before"
    assert subprocess.run(command, capture_output=True, text=True, timeout=180, cwd=ROOT).stdout.endswith("done\n")
    verdict, reason = rows().pop("learner 03")
    assert verdict == "could not be judged" and "ended 3 times while grading only this answer" in reason
    assert len(rows()) == 30 and not any((tmp_path / "out" / "begun").iterdir())


@pytest.fixture(scope="module")
def handed_in(tmp_path_factory):
    """Return a folder with a small class: right, wrong and hostile answers."""
    folder = tmp_path_factory.mktemp("class") / "submitted"
    exits = f"import os\ndef {NAME}(w1, w2, x): os._exit(0)\n"
    deep = "[" * 100_000
    for number, text in enumerate([RIGHT, WRONG, exits, deep, RIGHT, WRONG]):
        place = folder / f"learner {number}" / "week 1" / ("page.ipynb" if text == deep else "answer.py")
        place.parent.mkdir(parents=True)
        place.write_text(text)
    return folder.parent


@pytest.fixture(scope="module")
def grades(handed_in, tmp_path_factory):
    """Return the class's grades from an uninterrupted run on this machine."""
    out = tmp_path_factory.mktemp("grades")
    with executors.local_executor(2, True, False) as place:
        run = run_folder.Run.begin(out, 3, NAME, True)
        report, lost = grade_class.grade_class(collect.collect(handed_in), run, place)
    assert lost == 0
    text = report.csv()
    assert [text.count(f",{verdict},") for verdict in ("passed", "not passed", "could not be judged")] == [2, 2, 2]
    return text


@pytest.mark.slow
@sandboxed
def test_a_class_is_resumed_after_a_kill_and_an_interrupt_and_nothing_is_left_running(handed_in, grades, tmp_path):
    out = tmp_path / "grades"
    command = [sys.executable, "-m", "grader", "batch", handed_in, "--out", out, "--exercise", NAME, "--jobs", "2"]
    command.append(bubblewrap.UNGROUPED)
    process = subprocess.Popen([*command, "--seed", "3"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT)
    results = out / "results"
    until(lambda: results.exists() and len(list(results.glob("*.json"))) > 1, process)
    zygotes = _child_processes(process.pid)
    process.kill()
    process.communicate()
    assert zygotes and not (out / "grades.csv").exists()
    kept = {path.name: path.stat().st_mtime_ns for path in results.glob("*.json")}
    in_background = [
        "sh",
        "-c",
        "trap '' INT; exec \"$@\"",
        "sh",
    ]  # as in a shell script that starts a background process
    process = subprocess.Popen([*in_background, *command, "--resume"], stderr=subprocess.PIPE, text=True, cwd=ROOT)
    until(lambda: _child_processes(process.pid), process)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=180)[1]
    assert "The grades so far are saved: add --resume" in said and process.returncode == 130
    done = subprocess.run([*command, "--resume"], capture_output=True, text=True, timeout=180, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "") and "the seed was 3" in done.stdout
    assert (out / "grades.csv").read_bytes().decode() == grades
    pages = [path.read_text() for path in sorted((out / "feedback").iterdir())]
    assert ['class="programs"' in page for page in pages] == [True, True, False, False, True, True]
    assert {name: (results / name).stat().st_mtime_ns for name in kept} == kept, "these were not graded again"
    assert not any(Path("/proc", pid).exists() for pid in zygotes)


def test_an_interrupt_ends_a_run_even_if_an_exception_would_be_lost(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "ada.py").write_text(RIGHT)
    interrupts = "import gc, os, signal; gc.callbacks.append(lambda *_: os.kill(os.getpid(), signal.SIGINT)); "
    command = ["batch", str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--unsandboxed"]
    script = f"{interrupts}from grader import cli; cli.app({command})"  # JAX registers a callback there, too
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=180, cwd=ROOT)
    assert done.returncode == 130 and done.stderr.endswith("The grades so far are saved: add --resume to continue.\n")


def test_a_full_disk_and_a_damaged_run_are_reported(tmp_path, monkeypatch):
    run = run_folder.Run.begin(tmp_path / "grades", 3, NAME, True)
    submission = Submission("ada", "answer.py", b"")
    verdict = Verdict(NAME, Outcome.NOT_JUDGED, (Finding(FindingKind.NOT_JUDGED, "There is no reason."),))
    grade = Grade("ada", "answer.py", verdict)
    (run.folder / "results").rename(run.folder / "elsewhere")
    with pytest.raises(run_folder.RunError, match="The grades so far are saved"):
        run.keep(submission.digest, grade)
    (run.folder / "elsewhere").rename(run.folder / "results")
    (run.folder / "grades.csv").mkdir()
    with pytest.raises(run_folder.RunError, match=r"grades.csv cannot be written \(Is a directory\)"):
        run.write(Report(3, True, [grade]), gradescope=False)
    (run.folder / "grades.csv").rmdir()
    run.folder.rename(tmp_path / "renamed")
    with pytest.raises(run_folder.RunError, match=r"grades no longer exists\. If you renamed it, give its new name"):
        run.keep(submission.digest, grade)
    (tmp_path / "renamed").rename(run.folder)
    run.keep(submission.digest, grade)
    assert run.grade_of(submission.digest).reason.endswith("no reason.")
    assert run.grade_of(Submission("ben", "answer.py", b"").digest) is None
    kept = next((run.folder / "results").iterdir())
    assert json.loads(kept.read_text())["code"] == run.settings["versions"]["code"]
    kept.write_text(json.dumps(grade.to_dict() | {"code": "of another version"}))
    assert run.grade_of(submission.digest) is None, "what other code made is graded again"
    next((run.folder / "results").iterdir()).write_text('["half"]')
    assert run.grade_of(submission.digest) is None, "it is graded again"
    assert run_folder.Run.resume(run.folder, None, NAME, True) == run
    with pytest.raises(run_folder.RunError, match="Add --resume"):
        run_folder.Run.begin(run.folder, 3, NAME, True)
    with pytest.raises(run_folder.RunError, match=r"another seed \(--seed\) and another isolation \(--unsandboxed\)"):
        run_folder.Run.resume(run.folder, 4, NAME, False)
    monkeypatch.setattr(run_folder, "versions", lambda: {"jax": "1.0"})
    with pytest.raises(run_folder.RunError, match="another version of Python, JAX"):
        run_folder.Run.resume(run.folder, None, NAME, True)
    for text in ("", "{}", "[]"):
        (run.folder / "run.json").write_text(text)
        with pytest.raises(run_folder.RunError, match="cannot be read"):
            run_folder.Run.resume(run.folder, None, NAME, True)
    (run.folder / "run.json").unlink()
    for seed in (3, None):
        with pytest.raises(run_folder.RunError, match=r"run\.json, .*is missing"):
            run_folder.Run.resume(run.folder, seed, NAME, True)
    (run.folder / "results").rename(run.folder / "elsewhere")
    assert run_folder.Run.resume(run.folder, 4, NAME, True).grade_of(submission.digest) is None


def test_the_secret_of_the_inputs_is_only_in_the_instructors_file(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "ada.py").write_text("")

    def graded_with(run):
        given = []

        def grade(submission, seed, secret, seconds):
            given.append((seed, secret))
            return Grade(submission.learner, submission.name, Verdict("policy_from_rules", Outcome.NOT_PASSED))

        with ThreadPoolExecutor(1) as executor:
            place = executors.LocalExecutor(executor, 1, grade)
            report, _ = grade_class.grade_class(collect.collect(tmp_path / "in"), run, place)
        run.finish(report, gradescope=True)
        return given

    begun = [run_folder.Run.begin(tmp_path / name, 7, None, True) for name in ("one", "other")]
    ((seed, secret),), ((_, another),) = map(graded_with, begun)
    assert seed == 7 and secret != another and begun[0].settings["secret"] == secret
    told = [
        path for path in (tmp_path / "one").rglob("*") if path.is_file() and str(secret).encode() in path.read_bytes()
    ]
    assert told == [tmp_path / "one" / "run.json"] and told[0].stat().st_mode & 0o077 == 0
    (tmp_path / "again").mkdir()
    told[0].rename(tmp_path / "again" / "run.json")
    assert graded_with(run_folder.Run.resume(tmp_path / "again", None, None, True)) == [(7, secret)]
    evidence = Evidence("policy_from_rules", (), "", "", ())
    assert len({seeds.seed_of_inputs(7, evidence, number) for number in (secret, another, 0)}) == 3


def _child_processes(pid):
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_without_dask_a_cluster_is_refused_in_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)  # as without the extra `cluster`
    with (
        pytest.raises(run_folder.RunError, match=r"needs Dask\. .*\[cluster\]"),
        executors.on_cluster("tcp://127.0.0.1:9", True, False),
    ):
        pass


@pytest.fixture
def dask(tmp_path):
    """Return a function that starts a process of a Dask cluster, with additional environment variables."""
    started = []

    def start(*command, **environment):
        # Other tests of this process may have set XLA_FLAGS, and the grader excludes workers with such settings.
        environment = without_settings(os.environ) | {"DASK_DISTRIBUTED__DIAGNOSTICS__NVML": "false"} | environment
        command = [sys.executable, "-m", "distributed.cli." + command[0], *command[1:]]
        with (tmp_path / f"{len(started)}.log").open("w") as log:
            started.append(subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path, env=environment))
        return started[-1]

    yield start
    for process in reversed(started):
        process.kill()  # kill, because a process that is asked to end may wait for a scheduler that no longer runs
        process.wait()


WORKER = "--no-nanny", "--nthreads", "2", "--no-dashboard"


@pytest.mark.slow
@sandboxed
def test_a_cluster_that_loses_workers_and_has_unfit_ones_gives_the_same_grades(
    handed_in, grades, dask, tmp_path, monkeypatch
):
    import distributed  # here, because the import takes a third of a second

    place = tmp_path / "scheduler.json"
    scheduler = dask("dask_scheduler", "--scheduler-file", place, "--port", "0", "--no-dashboard")
    until(lambda: place.exists() and place.read_text().endswith("}"), scheduler)
    address = json.loads(place.read_text())["address"]
    # The first unfit worker has no bubblewrap; the second one has another version of the catalogue.
    for package in ("grader", "solutions"):
        shutil.copytree(ROOT / package, tmp_path / "other" / package, ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "other" / "grader" / "catalog" / NAME / "expect.py").open("a") as expect:
        expect.write("requirements = lambda case: []\n")
    paths = os.pathsep.join([str(tmp_path / "other"), str(Path(rematscope.__file__).parents[1])])
    unfit = [
        dask("dask_worker", address, *WORKER, PATH="/none"),
        dask("dask_worker", address, *WORKER, PYTHONPATH=paths),
    ]
    fit = [dask("dask_worker", address, *WORKER) for _ in range(2)]
    with distributed.Client(address, set_as_default=False) as client:
        client.wait_for_workers(4, timeout=300)  # a run ends if its only worker so far cannot grade
    results = tmp_path / "grades" / "results"

    def lose_one():
        until(lambda: any(results.glob("*.json")), fit[0])
        fit[0].kill()

    monkeypatch.setattr(executors, "SECONDS_TO_CONNECT", 5)
    with executors.on_cluster(address, True, False) as cluster:
        run = run_folder.Run.begin(tmp_path / "grades", 3, NAME, True)
        loser = threading.Thread(target=lose_one)
        loser.start()
        report, lost = grade_class.grade_class(collect.collect(handed_in), run, cluster)
        loser.join()
        assert fit[0].wait(300) == -9 and (report.csv(), lost) == (grades, 0)
        assert {why.split()[0] for why in cluster.set_aside.values()} <= {"it", "its", "The"}, (
            "each is named, with a reason"
        )
        (tmp_path / "more").mkdir()
        for number in range(8):  # enough answers that both unfit workers get one
            (tmp_path / "more" / f"{number}.py").write_text(f"# {number}\n{RIGHT}")
        run = run_folder.Run.begin(tmp_path / "more grades", 3, NAME, True)
        report, lost = grade_class.grade_class(collect.collect(tmp_path / "more"), run, cluster)
        assert lost == 0 and all(grade.verdict.passed for grade in report.grades)
        found = " ".join(cluster.set_aside.values())
        assert len(cluster.set_aside) == len(unfit) and "needs bubblewrap" in found and "its versions differ" in found

        scheduler.kill()
        run = run_folder.Run.begin(tmp_path / "no grades", 4, NAME, True)
        with pytest.raises(run_folder.RunError, match=r"scheduler at tcp://.* no longer answers.*--resume"):
            grade_class.grade_class(collect.collect(tmp_path / "more"), run, cluster)
