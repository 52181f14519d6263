"""Grade a class with `python -m grader batch`, nbgrader and otter: a table of docs/classes.md, in Markdown.

    python benchmarks/class.py [COUNT ...]
    python benchmarks/class.py 300 --beside fde29cf    # right and wrong answers only, next to another commit

The classes have 10, 100 and 1,000 answers to `checkpoint_dot_policy`, or the given numbers. nbgrader and otter grade
ten of the same notebooks; the script installs them into an environment of their own under test-output/. They compare
values and gradients with those of the plain function in the exercise's cases, and cannot check what is saved. otter
grades one notebook per process, in as many processes as `batch` uses, one per core; nbgrader grades sequentially. The
memory is that of all processes together, sampled five times per second, with shared pages counted once.

The second table shows how long honest learners wait for their grades (median), if one learner in five is hostile, and
if one learner submits a hundred answers that sleep, also as a multiple of the wait without such answers.

The third table shows how long each step of grading one answer takes (median) on an idle machine. The steps are timed in
this process after a warm-up; in the sandbox each step runs for the first time.

The script fails if an answer does not get the expected grade.
"""

import argparse
import csv
import functools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import nbformat
import numpy as np
import psutil
from nbformat.v4 import new_code_cell, new_notebook

from grader.classroom.collect import Submission
from grader.classroom.grade_one import SandboxGrader
from grader.exercises import registry
from grader.isolation import control_groups, sandbox
from grader.isolation.sandboxed import messages
from grader.isolation.sandboxed.lockdown import ProcessLimits
from grader.isolation.sandboxed.protocol import Ready
from grader.judging import judge
from grader.tracing import capture, render_programs

NAME = "checkpoint_dot_policy"
UNGROUPED = "--without-control-groups"  # grade also where there are none
ROOT = Path(__file__).parents[1]
PEERS = ROOT / "test-output" / "peers"
COUNTS = [10, 100, 1000]
FEW = 10  # notebooks for nbgrader and otter, whose cost per answer does not fall with the number of answers

IMPORTS = "import jax\nimport jax.numpy as jnp\n"
ANSWER = """
def checkpoint_dot_policy(w1, w2, x):
    def pipeline(w1, w2, x):
        y = jax.nn.relu(x @ w1) @ w2
        return {result}

    return jax.checkpoint(pipeline, policy=jax.checkpoint_policies.{policy})(w1, w2, x)
"""
# Each answer has its own number, so that no two programs are equal. The wrong answers leave out the square.
RIGHT = "jnp.sum((y * {number}) ** 2) / {number} ** 2"
WRONG = "jnp.sum((y * {number}) ** 2) / {number}"
SAME = "jnp.sum(y ** 2)"
POLICY = "dots_with_no_batch_dims_saveable"

# The same cases as `batch` uses, compared with the plain function; jit avoids compiling each operation separately.
TEST = """
import numpy as np
def plain(w1, w2, x):
    return jnp.sum((jax.nn.relu(x @ w1) @ w2) ** 2)
def both(function, mapped):
    total = lambda *arguments: jnp.sum(mapped(function)(*arguments))
    return jax.jit(jax.value_and_grad(total, (0, 1, 2)))
def compare(mapped, dtype, tolerance, *shapes):
    rng = np.random.default_rng(0)
    arguments = [jnp.array(rng.normal(size=shape), dtype) for shape in shapes]
    ours, theirs = both(checkpoint_dot_policy, mapped)(*arguments), both(plain, mapped)(*arguments)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs)):
        one, other = np.float32(one), np.float32(other)
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * np.abs(other).max())
compare(lambda f: f, jnp.float32, 1e-4, (7, 7), (7, 7), (2358, 7))
over_x = lambda f: jax.vmap(f, (None, None, 0))
compare(lambda f: jax.vmap(over_x(f), (0, None, None)), jnp.bfloat16, 0.05, (2, 9, 9), (9, 9), (2, 8, 9))
compare(jax.vmap, jnp.float32, 1e-4, (2, 5, 5), (2, 5, 5), (2, 6, 5))
""".strip()


def right(i: int) -> str:
    return IMPORTS + ANSWER.format(result=RIGHT.format(number=2 + i / 1024), policy=POLICY)


def wrong(i: int) -> str:
    return IMPORTS + ANSWER.format(result=WRONG.format(number=2 + i / 1024), policy=POLICY)


def same(i: int) -> str:
    """Return answers with the same program in different files."""
    return f"# Answer {i}\n" + IMPORTS + ANSWER.format(result=SAME, policy=POLICY)


def usual(i: int) -> str:
    """Return answers of which 80 % have the same program, 10 % another right one, and 10 % a wrong one."""
    return right(i) if i % 10 == 0 else wrong(i) if i % 10 == 5 else same(i)


CLASSES: dict[str, Callable[[int], str]] = {
    "right, all different": right,
    "wrong, all different": wrong,
    "right, all the same": same,
    "four in five the same": usual,
}


# None of these ever ends.
HOSTILE = [
    "import time\n    while True: time.sleep(0.1)",
    "while True: pass",
    "held = []\n    while True:\n        try: held.append(bytearray(2**20))\n        except MemoryError: pass",
    "import os\n    while True:\n        try: os.fork()\n        except OSError: pass",
    "while True: print('x' * 10**6)",
]


def hostile(i: int) -> str:
    return f"# Answer {i}\ndef {NAME}(w1, w2, x):\n    {HOSTILE[i % len(HOSTILE)]}\n"


class Watched:
    """Measure the seconds of a block, and the peak memory of this process's children in it, in bytes."""

    def __enter__(self):
        self.nbytes, self._stop = 0, threading.Event()
        self._watcher = threading.Thread(target=self._watch_memory)
        self._watcher.start()
        self._start = time.perf_counter()
        return self

    def __exit__(self, *_):
        self.seconds = time.perf_counter() - self._start
        self._stop.set()
        self._watcher.join()

    def _watch_memory(self):
        while not self._stop.wait(0.2):
            held = 0
            for process in psutil.Process().children(recursive=True):
                try:
                    held += process.memory_full_info().pss
                except psutil.NoSuchProcess:
                    continue  # the process has ended
            self.nbytes = max(self.nbytes, held)


def hand_in(folder: Path, answers: list[str]) -> Path:
    """Write answers in nbgrader's layout of collected submissions, and return their folder."""
    for i, answer in enumerate(answers):
        place = folder / "submitted" / f"learner{i:04}" / "week1" / "answer.ipynb"
        place.parent.mkdir(parents=True)
        nbformat.write(notebook(answer), place)
    return folder / "submitted"


def notebook(answer: str) -> nbformat.NotebookNode:
    def cell(source: str, name: str, **kind):
        about = {"schema_version": 3, "grade_id": name, "grade": False, "solution": False, "locked": False, **kind}
        return new_code_cell(source, id=name, metadata={"nbgrader": about})

    cells = [cell(answer, "answer", solution=True), cell(TEST, "test", grade=True, locked=True, points=1)]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel})


def without_groups(root: Path) -> list[str]:
    """Return the option of this version of the grader for machines without control groups, if it has one."""
    option = "--without-control-groups"
    return [option] if control_groups.why_none() and option in (root / "grader" / "cli.py").read_text() else []


# Each of these grades a folder, and returns seconds, bytes, and who got full marks, in the order of the learners.


def batch(submitted: Path, root: Path = ROOT) -> tuple[Watched, list[bool]]:
    out = submitted.parent / "grades"
    command = [sys.executable, "-m", "grader", "batch", submitted, "--out", out, "--exercise", NAME, "--seed", "0"]
    if UNGROUPED in (root / "grader" / "cli.py").read_text():  # older commits do not know it
        command.append(UNGROUPED)
    own = {"PYTHONPATH": os.pathsep.join(map(str, (root, root / "packages" / "rematscope" / "src")))}
    with Watched() as watched:
        subprocess.run(command, check=True, cwd=root, env=os.environ | own, stdout=subprocess.DEVNULL)
    with (out / "grades.csv").open() as lines:
        return watched, [row["verdict"] == "passed" for row in csv.DictReader(lines)]


def nbgrader(submitted: Path) -> tuple[Watched, list[bool]]:
    course = submitted.parent
    release = course / "source" / "week1" / "answer.ipynb"
    release.parent.mkdir(parents=True)
    nbformat.write(notebook(IMPORTS), release)
    by_peer(["nbgrader", "generate_assignment", "week1"], course)
    with Watched() as watched:
        by_peer(["nbgrader", "autograde", "week1"], course)
    by_peer(["nbgrader", "export"], course)
    with (course / "grades.csv").open() as lines:
        return watched, [float(row["score"]) == 1 for row in csv.DictReader(lines)]


def otter(submitted: Path) -> tuple[Watched, list[bool]]:
    course = submitted.parent
    (course / "tests").mkdir()
    doctest = "".join(f"{'...' if line.startswith(' ') else '>>>'} {line}\n" for line in TEST.splitlines())
    suite = {"cases": [{"code": doctest}], "scored": True, "setup": "", "teardown": "", "type": "doctest"}
    test = {"name": "answer", "points": 1, "suites": [suite]}
    (course / "tests" / "answer.py").write_text(f"OK_FORMAT = True\ntest = {test!r}\n")
    by_peer(["otter", "generate", "-o", "autograder.zip"], course)

    def run(page: Path) -> bool:
        by_peer(["otter", "run", "--no-logo", "-a", course / "autograder.zip", "-o", page.parent, page], course)
        [result] = [t for t in json.loads((page.parent / "results.json").read_text())["tests"] if t.get("max_score")]
        return result["score"] == 1

    with Watched() as watched, ThreadPoolExecutor(os.cpu_count()) as executor:
        return watched, list(executor.map(run, sorted(submitted.glob("*/*/*.ipynb"))))


def by_peer(command: list, course: Path):
    # Use the environment's own kernels and other Jupyter files, not the user's.
    own = {"PATH": f"{PEERS / 'bin'}{os.pathsep}{os.environ['PATH']}", "HOME": str(course)}
    done = subprocess.run(command, cwd=course, env=os.environ | own, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")


def install_peers():
    if not (PEERS / "installed").exists():
        print("installing nbgrader and otter", file=sys.stderr)
        shutil.rmtree(PEERS, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", PEERS], check=True)
        packages = ["nbgrader==0.9.6", "otter-grader==7.0.0", f"jax=={jax.__version__}", "ipykernel"]
        subprocess.run([PEERS / "bin" / "pip", "install", "--quiet", *packages], check=True)
        (PEERS / "installed").touch()


def graded(by: Callable, answers: Callable[[int], str], count: int) -> tuple[float, int]:
    """Return the seconds per submission and the peak memory in bytes; exit if a grade is not the expected one."""
    with tempfile.TemporaryDirectory() as folder:
        written = [answers(i) for i in range(count)]
        watched, passed = by(hand_in(Path(folder), written))
    if passed != [answer != wrong(i) for i, answer in enumerate(written)]:
        sys.exit(f"a grade of {answers.__name__} is not what it should be: {passed}")
    return watched.seconds / count, watched.nbytes


def compared(commit: str, counts: list[int]) -> None:
    """Print the seconds per submission, now and in another commit, measured alternately."""
    print(f"| class | submissions | s per submission | in {commit} | ratio |\n|---|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder, "before")
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", before, commit], check=True, cwd=ROOT)
        try:
            for kind in list(CLASSES)[:2]:
                for count in counts:
                    then, _ = graded(functools.partial(batch, root=before), CLASSES[kind], count)
                    now, _ = graded(batch, CLASSES[kind], count)
                    print(f"| {kind} | {count:,} | {now:.3f} | {then:.3f} | {now / then:.2f} |", flush=True)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", before], check=True, cwd=ROOT)


def waited(count: int, beside: dict[str, list[str]]) -> float:
    """Return the seconds until half of the learners with right answers have their grades, next to the answers of
    other learners."""
    with tempfile.TemporaryDirectory() as folder:
        handed_in, out = Path(folder, "submitted"), Path(folder, "grades")
        honest = {f"learner{i:04}": [right(i)] for i in range(count)}
        for learner, answers in (honest | beside).items():
            (handed_in / learner).mkdir(parents=True)
            for place, answer in enumerate(answers):
                (handed_in / learner / f"{place}.py").write_text(answer)
        command = [sys.executable, "-m", "grader", "batch", handed_in, "--out", out, "--exercise", NAME, "--seed", "0"]
        command += [UNGROUPED]
        start = time.time()
        subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        graded = {place: json.loads(place.read_text()) for place in (out / "results").iterdir()}
        theirs = {place.stat().st_mtime - start: grade for place, grade in graded.items() if grade["learner"] in honest}
    if {grade["verdict"]["outcome"] for grade in theirs.values()} != {"passed"} or len(theirs) != count:
        sys.exit("an honest learner's grade is not what it should be")
    return statistics.median(theirs)


def parts() -> dict[str, float]:
    """Return the seconds of each step of grading one answer."""
    task = registry.task(NAME)
    cases = task.cases(np.random.default_rng(0))
    seconds: dict[str, list[float]] = {}

    def step(what: str, function: Callable, *arguments):
        start = time.perf_counter()
        result = function(*arguments)
        seconds.setdefault(what, []).append(time.perf_counter() - start)
        return result

    def two_processes():
        for _ in range(2):
            inmate = zygote.start("try", ProcessLimits(processor_seconds=60, address_space=2**30))
            messages.receive(inmate.line, 1000, [Ready], 60)
            inmate.end()

    with sandbox.Zygote() as zygote, SandboxGrader() as grader:
        for i in range(30):
            names: dict = {}
            exec(right(i), names)
            submission = Submission("ada", "answer.ipynb", nbformat.writes(notebook(right(i))).encode(), NAME)
            step("in all", grader.grade, submission, 0)
            step("two processes in the sandbox, begun and ended", two_processes)
            evidence = step("tracing it in four cases, exported", capture.evidence_of, names[NAME], NAME, cases)
            step("judging the two programs", judge.judge_text, evidence.to_json(), cases, NAME, i)
            step(
                "tracing it as its feedback shows it",
                render_programs.render_programs,
                names[NAME],
                cases,
                task.shown,
                None,
                (),
            )
    return {what: statistics.median(times) for what, times in seconds.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("counts", metavar="COUNT", type=int, nargs="*", default=COUNTS, help="answers of a class")
    parser.add_argument("--beside", metavar="COMMIT", help="compare right and wrong answers with another version only")
    asked = parser.parse_args()
    counts = asked.counts
    if asked.beside:
        return compared(asked.beside, counts)
    install_peers()
    print("| graded by | class | submissions | s per submission | nbgrader / this | otter / this | peak memory |")
    print("|---|---|---:|---:|---:|---:|---:|")

    def row(by: Callable, kind: str, count: int, *others: float) -> float:
        seconds, nbytes = graded(by, CLASSES[kind], count)
        ratios = [f"{other / seconds:.0f}" for other in others] or ["", ""]
        cells = [by.__name__, kind, f"{count:,}", f"{seconds:.3f}", *ratios, f"{nbytes / 2**20:,.0f} MiB"]
        print("|", " | ".join(cells), "|", flush=True)
        return seconds

    first = next(iter(CLASSES))
    peers = [row(peer, first, FEW) for peer in (nbgrader, otter)]
    for kind in CLASSES:
        for count in counts:
            row(batch, kind, count, *peers)
    count = max(counts)
    alone = waited(count, {})
    sleeping = [f"# {i}\n{hostile(0)}" for i in range(100)]
    # Hostile names come first in any list.
    hostiles = {f"a{i:04}": [hostile(i)] for i in range(count // 4)}
    print(f"\n| {count:,} honest learners and | median wait, s | ratio to without |\n|---|---:|---:|")
    for kind, beside in [
        ("none", None),
        ("a quarter as many hostile ones", hostiles),
        ("one with a hundred answers that sleep", {"a": sleeping}),
    ]:
        seconds = alone if beside is None else waited(count, beside)
        print(f"| {kind} | {seconds:.1f} | {seconds / alone:.2f} |", flush=True)
    print("\n| grading one answer | ms |\n|---|---:|")
    whole, *steps = parts().items()
    rest = "doing all that for the first time in a process, and carrying it from one to the other"
    for what, seconds in [whole, *steps, (rest, whole[1] - sum(seconds for _, seconds in steps))]:
        print(f"| {what} | {1000 * seconds:.0f} |")


if __name__ == "__main__":
    main()
