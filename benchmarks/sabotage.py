"""Grade a class with hostile answers, kill the run at random moments, resume it, and compare with an undisturbed run.

    python benchmarks/sabotage.py            # 300 submissions, 20 % of them hostile, 12 kills
    python benchmarks/sabotage.py 60 --kills 10 --seed 3

The class consists of shipped right and wrong answers to several exercises, of the hostile answers in
`tests/grader/isolation/test_attacks.py`, and of files that are no answers. The script grades it once without and once
with kills (SIGKILL for the process that grades; `--resume` continues the run) and fails unless

- every learner and every file is in the report of both runs,
- every answer has the same verdict in both,
- the memory in use on the machine never rises by more than 2 GiB. Other programs count too, so let nothing else run.

For a hostile answer only "passed or not" is compared: an answer that uses all the time there is can end as "not passed"
or as "could not be judged", depending on the load.
"""

import argparse
import csv
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

from grader.isolation import control_groups

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / "grader"), str(ROOT / "tests" / "grader" / "isolation")]

MEMORY = 2 * 2**30  # bytes that the memory in use may rise by
EXERCISES = ("checkpoint_dot_policy", "count_residuals", "policy_from_rules", "vjp_by_hand", "save_named")


def hand_in(folder: Path, count: int, rng: random.Random) -> dict[str, str]:
    """Write the submissions of a class, and return each learner's kind: right, wrong, hostile or no answer."""
    from test_attacks import ATTACKS

    hostile = [source for source, *_ in ATTACKS.values()]
    kinds = {}
    for i in range(count):
        kind = "hostile" if i % 5 == 0 else "no answer" if i % 50 == 1 else "wrong" if i % 4 == 2 else "right"
        exercise = EXERCISES[i % len(EXERCISES)]
        text = (ROOT / "solutions" / f"{exercise}.py").read_text()
        if kind == "hostile":
            text = hostile[i // 5 % len(hostile)]
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
    """The most bytes that the memory in use on this machine rose by since this was made."""

    def __init__(self) -> None:
        self.start, self.rise, self._stop = psutil.virtual_memory().available, 0, threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while not self._stop.wait(0.1):
            self.rise = max(self.rise, self.start - psutil.virtual_memory().available)


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
    """Return each learner's exercises and verdicts."""
    found: dict[str, list[tuple[str, str]]] = {}
    with (out / "grades.csv").open(newline="") as lines:
        for row in csv.DictReader(lines):
            found.setdefault(row["learner"], []).append((row["exercise"], row["verdict"]))
    return {learner: sorted(each) for learner, each in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, nargs="?", default=300, help="submissions")
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    rng, problems = random.Random(asked.seed), []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kinds = hand_in(folder / "submitted", asked.count, rng)
        memory, seconds, graded = Memory(), {}, {}
        for run, kills in (("undisturbed", 0), ("killed", asked.kills)):
            start = time.monotonic()
            ended = grade(folder / "submitted", folder / run, kills, rng)
            seconds[run], graded[run] = time.monotonic() - start, rows(folder / run)
            if missing := kinds.keys() - graded[run].keys():
                problems.append(f"not in the report of the {run} run: {sorted(missing)}")
            text = (folder / run / "grades.json").read_text()
            problems += [f"{each} is not in grades.json of the {run} run" for each in kinds if each not in text]
        for learner, kind in kinds.items():
            one, other = (graded[run].get(learner, []) for run in graded)
            passed, passed_too = (any(verdict == "passed" for _, verdict in each) for each in (one, other))
            same = passed == passed_too if kind == "hostile" else one == other
            expected = kind == "hostile" or passed == (kind == "right")
            if not (same and expected):
                problems.append(f"{learner} ({kind}): {one} undisturbed, {other} killed and resumed")
    if memory.rise > MEMORY:
        problems.append(f"memory in use rose by {memory.rise / 2**30:.2f} GiB")
    counts = {kind: list(kinds.values()).count(kind) for kind in sorted(set(kinds.values()))}
    print(f"learners: {counts}; kills: {len(ended)}, with {ended} grades saved")
    print(f"seconds: {', '.join(f'{run} {each:.0f}' for run, each in seconds.items())}")
    print(f"most that memory in use rose by: {memory.rise / 2**20:,.0f} MiB")
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
