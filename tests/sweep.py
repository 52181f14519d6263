"""Grade the shipped answers at fresh seeds, on every path, and print a table of rates.

    python -m tests.sweep                                # worked, right and wrong answers, on every path, at one seed
    python -m tests.sweep --worked --seeds 50            # the worked answers alone, at 50 seeds
    python -m tests.sweep --right --paths page,class save_named

Paths:
    page      the answer is a function in this process, as for `check` in a notebook
    terminal  the answer is read from a file, as `python -m grader check FILE` does
    class     the answer is a submission in the sandbox, as `python -m grader batch` grades it
    rounding  as page, but XLA runs the answer's programs and NumPy the reference, as if on two machines

Worked and right answers must pass, wrong answers must not. The exit status is 1 if any answer gets the other verdict.
The output lists such answers with path and seed, and `--first SEED --seeds 1` repeats one. Answers that are keyed on a
size or a dtype are graded too (`tests/grader/catalog/keyed.py`), but only the rate at which they fail is reported.
"""

import argparse
import collections
import functools
import multiprocessing
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "grader"), str(ROOT / "tests" / "grader" / "catalog")]

import sample_answers  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from grader.classroom.collect import Submission  # noqa: E402
from grader.classroom.grade_one import SandboxGrader  # noqa: E402
from grader.exercises import registry  # noqa: E402
from grader.isolation.in_process import grade, grade_file  # noqa: E402
from grader.verdicts.verdict import Verdict  # noqa: E402

KINDS = ("worked", "right", "wrong", "keyed")
PATHS = ("page", "terminal", "class", "rounding")
_JOBS = 2


class Graded(NamedTuple):
    """One verdict, and whether the answer got the verdict it must have."""

    exercise: str
    kind: str
    name: str
    path: str
    seed: int
    as_it_must: bool
    said: str


def graded(exercise: str, kinds: list[str], paths: list[str], seeds: list[int]) -> list[Graded]:
    """Grade an exercise's answers of the given kinds, on the given paths, at the given seeds."""
    return [*_grade_answers(exercise, kinds, paths, seeds)]


def _grade_answers(exercise: str, kinds: list[str], paths: list[str], seeds: list[int]) -> Iterator[Graded]:
    with tempfile.TemporaryDirectory() as folder:
        for kind in kinds:
            for name, answer in sample_answers.shipped(exercise, kind).items():
                file = Path(folder) / f"{exercise}.py"
                file.write_bytes(sample_answers.as_submission(exercise, kind, name).content)
                for path in paths:
                    for seed in seeds:
                        with sample_answers.patches_undone():
                            verdict = _ON[path](answer, file, exercise, seed)
                        if verdict:
                            right = verdict.passed if kind in ("worked", "right") else verdict.outcome == "not passed"
                            said = "; ".join(finding.text for finding in verdict.findings[:2])[:300]
                            yield Graded(exercise, kind, name, path, seed, right, f"{verdict.outcome}: {said}")


def _on_page(answer: Callable, _: Path, exercise: str, seed: int) -> Verdict:
    return grade(answer, exercise, seed)


def _in_terminal(_: Callable, file: Path, exercise: str, seed: int) -> Verdict:
    before = [*sys.path]
    try:
        return grade_file(file, exercise, seed)
    finally:
        sys.path[:] = before  # the file's folder would hide the package with the exercise's shipped answers


@functools.cache
def _sandbox_grader() -> SandboxGrader:
    return SandboxGrader()


def _in_class(_: Callable, file: Path, exercise: str, seed: int) -> Verdict:
    submission = Submission("a learner", file.name, file.read_bytes(), exercise)
    return _sandbox_grader().grade(submission, seed, seed).verdict


def _rounded_otherwise(answer: Callable, _: Path, exercise: str, seed: int) -> Verdict | None:
    return sample_answers.rounded_otherwise(answer, exercise, seed)


_ON: dict[str, Callable[[Any, Path, str, int], Verdict | None]] = {
    "page": _on_page, "terminal": _in_terminal, "class": _in_class, "rounding": _rounded_otherwise,
}  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exercises", nargs="*", help="the exercises (default: all)")
    for kind in KINDS:
        parser.add_argument(f"--{kind}", action="store_true", help=f"grade {kind} answers (default: all kinds)")
    parser.add_argument("--paths", default=",".join(PATHS), help="the paths, separated by commas (default: all)")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds (default: 1)")
    parser.add_argument("--first", type=int, help="the first seed (default: drawn)")
    asked = parser.parse_args(arguments)
    paths = asked.paths.split(",")
    exercises = asked.exercises or list(registry.names())
    if unknown := ({*exercises} - {*registry.names()}) | ({*paths} - {*PATHS}):
        parser.error(f"there is no exercise or path named {', '.join(sorted(unknown))}")
    kinds = [kind for kind in KINDS if getattr(asked, kind)] or list(KINDS)
    first = secrets.randbits(31) if asked.first is None else asked.first
    seeds = list(range(first, first + asked.seeds))
    print(f"seeds {seeds[0]} to {seeds[-1]}", flush=True)
    start, everything = time.monotonic(), []
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(_JOBS, spawn) as pool:
        running = {pool.submit(graded, exercise, kinds, paths, seeds): exercise for exercise in exercises}
        for number, done in enumerate(as_completed(running), 1):
            everything += (found := done.result())
            failed = sum(not each.as_it_must for each in found)
            took = f"{time.monotonic() - start:.0f} s"
            print(f"{number}/{len(running)} {running[done]}: {len(found)} graded, {failed} wrong, {took}", flush=True)
            for each in found:
                if not each.as_it_must and each.kind != "keyed":
                    print(_one_line(each), flush=True)
    return _print_report(everything, kinds, paths)


def _one_line(each: Graded) -> str:
    return f"{each.kind} {each.exercise} {each.name}, path {each.path}, seed {each.seed}: {each.said}"


def _print_report(everything: list[Graded], kinds: list[str], paths: list[str]) -> int:
    """Print a table per kind and every answer with the wrong verdict; return the exit status."""
    counts: dict[tuple[str, str, str], list[bool]] = collections.defaultdict(list)
    for each in everything:
        counts[each.exercise, each.kind, each.path].append(each.as_it_must)
    console = Console(width=120, soft_wrap=True)
    for kind in kinds:
        what = "passed" if kind in ("worked", "right") else "did not pass"
        table = Table("exercise", *paths, title=f"{kind} answers: how many {what}, of how many gradings")
        for exercise in sorted({each.exercise for each in everything if each.kind == kind}):
            cells = (counts.get((exercise, kind, path), []) for path in paths)
            table.add_row(exercise, *(f"{sum(own)}/{len(own)}" if own else "" for own in cells))
        console.print(table)
    failed = [each for each in everything if not each.as_it_must and each.kind != "keyed"]
    for each in failed:
        print(_one_line(each))
    print(f"{len(everything)} gradings, {len(failed)} with another verdict than the answer must have")
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
