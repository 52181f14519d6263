"""Grade a class with hostile answers, kill the run at random moments, and resume it.

    python benchmarks/sabotage.py            # 300 submissions, 20 % of them hostile, 12 kills
    python benchmarks/sabotage.py 60 --kills 10 --seed 3

The class consists of shipped right answers and wrong answers to several exercises, of the hostile answers in
`tests/grader/isolation/test_attacks.py`, and of files that are no answers. The script first grades the class without
its hostile learners, and then the whole class. It kills both runs equally often (SIGKILL for the process that grades;
`--resume` continues the run). It fails unless

- every learner and every file is in the report of both runs,
- every honest learner has the same verdict in both runs, and it is the right one,
- every hostile answer has passed if and only if its test says so,
- the mean wait of honest learners for a grade is at most 1.5 times as long as without hostile learners. Both waits
  depend on what else the machine does, so compare the seconds per honest answer, which are also printed,
- the memory in use on the machine never rises by more than 2 GiB. Other programs count too, so let nothing else run.
  The memory of the script's own processes is also printed (proportional set size, sampled twice per second).
"""

import argparse
import csv
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import psutil

from grader.isolation import control_groups

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / "grader"), str(ROOT / "tests" / "grader" / "isolation")]

MEMORY = 2 * 2**30  # bytes that the memory in use may rise by
WAIT = 1.5  # times as long as without hostile learners
HOSTILE = "hostile: "
EXERCISES = ("checkpoint_dot_policy", "count_residuals", "policy_from_rules", "vjp_by_hand", "save_named")


def hand_in(folder: Path, count: int, rng: random.Random) -> dict[str, str]:
    """Write the submissions of a class, and return each learner's kind: right, wrong, no answer, or hostile. The kind
    of a hostile learner ends with the verdict that the answer must get."""
    from test_attacks import ATTACKS

    hostile = [(source, verdict) for source, verdict, *_ in ATTACKS.values()]
    kinds = {}
    for i in range(count):
        kind = HOSTILE if i % 5 == 0 else "no answer" if i % 50 == 1 else "wrong" if i % 4 == 2 else "right"
        exercise = EXERCISES[(i + i // 5) % len(EXERCISES)]
        text = (ROOT / "solutions" / f"{exercise}.py").read_text()
        if kind == HOSTILE:
            text, verdict = hostile[i // 5 % len(hostile)]
            kind = f"{HOSTILE}{verdict}"
        elif kind == "wrong":  # another function of this name: it raises, or its result is wrong
            text = f"def {exercise}(*arguments):\n    return arguments[0]\n"
        place = (
            folder / f"learner {rng.randrange(10**6):06} {i}" / ("notes.txt" if kind == "no answer" else "answer.py")
        )
        place.parent.mkdir(parents=True)
        place.write_text(f"# {i}\n{text}")
        kinds[place.parent.name] = kind
    return kinds


class Memory:
    """The most bytes that memory rose by since this was made: the memory in use on this machine (`rise`), and the
    memory of this process's descendants (`own`)."""

    def __init__(self) -> None:
        self.start, self.rise, self.own = psutil.virtual_memory().available, 0, 0
        threading.Thread(target=self._watch_machine, daemon=True).start()
        threading.Thread(target=self._watch_own, daemon=True).start()

    def _watch_machine(self) -> None:
        while True:
            self.rise = max(self.rise, self.start - psutil.virtual_memory().available)
            time.sleep(0.1)

    def _watch_own(self) -> None:
        while True:
            found = psutil.Process().children(recursive=True)
            self.own = max(self.own, sum(proportional_set_size(process.pid) for process in found))
            time.sleep(0.5)


def proportional_set_size(process: int) -> int:
    """Return a process's memory in bytes, with shared pages divided by the number of processes that share them."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    except (OSError, StopIteration):  # the process has ended
        return 0


def grade(submitted: Path, out: Path, kills: int, rng: random.Random) -> list[int]:
    """Grade the class, ended so many times. Return how many grades there were at each end."""
    command = [sys.executable, "-m", "grader", "batch", submitted, "--out", out, "--seed", "0", "--resume"]
    command += ["--without-control-groups"] if control_groups.why_none() else []
    ended: list[int] = []
    total = sum(1 for _ in submitted.iterdir())
    while True:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
        before = ended[-1] if ended else 0
        enough, latest = before + rng.randrange(1 + 2 * total // (kills or 1)), time.monotonic() + rng.uniform(10, 60)
        while len(ended) < kills and process.poll() is None:
            done = sum(1 for _ in (out / "results").glob("*.json"))
            if (done >= enough and done > 0) or time.monotonic() > latest:
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.01)
        code = process.wait()
        if code == 0:
            return ended
        if code != -signal.SIGKILL:
            sys.exit(f"the grader ended with status {code}")
        ended.append(sum(1 for _ in (out / "results").glob("*.json")))


def rows(out: Path) -> dict[str, list[tuple[str, str]]]:
    """Return each learner's exercises and verdicts, without exercises that the learner did not attempt."""
    found: dict[str, list[tuple[str, str]]] = {}
    with (out / "grades.csv").open(newline="") as lines:
        for row in csv.DictReader(lines):
            verdicts = found.setdefault(row["learner"], [])
            verdicts += [(row["exercise"], row["verdict"])] if row["verdict"] != "not attempted" else []
    return {learner: sorted(each) for learner, each in found.items()}


def told(out: Path, start: float) -> dict[str, tuple[float, float]]:
    """Return how many seconds after `start` each learner's last grade was saved, and how many seconds grading took."""
    found: dict[str, tuple[float, float]] = {}
    for place in (out / "results").glob("*.json"):
        grade = json.loads(place.read_text())
        last, took = found.get(grade["learner"], (0.0, 0.0))
        found[grade["learner"]] = max(last, place.stat().st_mtime - start), took + grade["seconds"]
    return found


def problems_of(kinds: dict[str, str], alone: Path, whole: Path) -> list[str]:
    """Return what is wrong with the reports of the two runs."""
    problems, graded = [], {out: rows(out) for out in (alone, whole)}
    for out in (alone, whole):
        wanted = {learner for learner, kind in kinds.items() if out == whole or not kind.startswith(HOSTILE)}
        text = (out / "grades.json").read_text()
        missing = [each for each in wanted if each not in text or each not in graded[out]]
        problems += [f"not in the report of {out.name}: {sorted(missing)}"] if missing else []
    for learner, kind in kinds.items():
        first, second = (graded[out].get(learner, []) for out in (alone, whole))
        passed = any(verdict == "passed" for _, verdict in second)
        hostile = kind.startswith(HOSTILE)
        if passed != (kind in ("right", f"{HOSTILE}passed")) or (not hostile and first != second):
            problems.append(f"{learner} ({kind}): {first} alone, {second} in the whole class")
    return problems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, nargs="?", default=300, help="submissions")
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    with tempfile.TemporaryDirectory() as name:
        whole, honest = Path(name, "whole"), Path(name, "honest")
        kinds = hand_in(whole, asked.count, rng)
        good = [learner for learner, kind in kinds.items() if kind in ("right", "wrong")]
        shutil.copytree(
            whole, honest, ignore=lambda _, names: {n for n in names if kinds.get(n, "").startswith(HOSTILE)}
        )
        memory, wait = Memory(), {}
        for submitted in (honest, whole):
            start, load = time.time(), os.getloadavg()[0]
            out = Path(name, f"grades of the {submitted.name} class")
            ended = grade(submitted, out, asked.kills, rng)
            waited, took = zip(*map(told(out, start).get, good), strict=True)
            wait[submitted.name] = statistics.mean(waited)
            print(
                f"{submitted.name}: {time.time() - start:.0f} s, load {load:.1f} at the start; {len(ended)} kills, "
                f"with {ended} grades saved; honest mean wait {wait[submitted.name]:.1f} s, "
                f"{statistics.mean(took):.2f} s per honest answer; most memory: machine "
                f"{memory.rise / 2**20:,.0f} MiB, own processes {memory.own / 2**20:,.0f} MiB",
                flush=True,
            )
        problems = problems_of(kinds, *(Path(name, f"grades of the {each} class") for each in ("honest", "whole")))
    if memory.rise > MEMORY:
        problems.append(f"memory in use rose by {memory.rise / 2**30:.2f} GiB")
    if (ratio := wait["whole"] / wait["honest"]) > WAIT:
        problems.append(f"honest learners waited {ratio:.2f} times as long")
    print(f"learners: {dict(Counter(kind.split(':')[0] for kind in kinds.values()))}; honest mean wait × {ratio:.2f}")
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
