"""Find the bounds and checks of the grader that no shipped answer tests.

    python tests/grader/mutations.py nested_scan save_named        # bounds and requirements of exercises; all if none
    python tests/grader/mutations.py --judging identity observe           # checks in grader/judging and in requirements
    python tests/grader/mutations.py scan_layers --judging all     # all of them, with one exercise's answers

For an exercise, every numeric bound is loosened and every requirement is dropped, in all cases, until the verdict on a
wrong answer no longer names its mistake. For a module of the judge, the mutants drop a condition, move a comparison by
one step, leave out an operand of `and` or `or`, or increase a number, one at a time, and the shipped answers that run
the mutated line are judged again. With `--tests`, the tests in tests/grader/judging run next. A mutant that nothing
detects is printed as "no answer notices" and makes the exit status 1, unless `mutants_known.py` lists it with a reason.

An answer is traced once, and its programs run once on the same arrays, because a mutant of the judge changes neither.
The bounds of save_named take 21 s of processor time, and the module identity with the answers to save_named 62 s.
"""

import argparse
import ast
import copy
import functools
import hashlib
import importlib
import inspect
import itertools
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import jax
import numpy as np
import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE), str(HERE / "catalog"), str(HERE / "judging")]

import sample_answers  # noqa: E402
from bounds import against, asked, bounds, moved, places, seen, without  # noqa: E402
from mutants_known import KNOWN  # noqa: E402
from sample_answers import cases, named, patches_undone, right, seed_of_inputs, traced, wrong  # noqa: E402

from grader.exercises import registry  # noqa: E402
from grader.judging.findings import failed_requirements  # noqa: E402
from grader.judging.judge import judge  # noqa: E402
from grader.stablehlo.execution import Execution, Function  # noqa: E402
from grader.tracing.evidence import Evidence  # noqa: E402

MODULES = {
    **{path.stem: f"grader.judging.{path.stem}" for path in (HERE.parents[1] / "grader/judging").glob("[a-z]*.py")},
    **{name: f"grader.exercises.{name}" for name in ("requirements", "peaks")},
}
del MODULES["illustrate"]  # its code has no effect on verdicts
# Methods whose results do not depend on the judge's code.
REMEMBERED = {
    Execution: ("run", "gradients", "value_fingerprints", "peak"),
    Function: ("__call__", "interpreted", "value_fingerprints"),
}
MOST_ANSWERS = 60  # answers that run a mutated line and are judged again, at most
LONGEST = 60  # seconds: a mutant may loop forever


def of_exercise(slug: str) -> Iterator[str]:
    """Yield the mutants of an exercise's requirements that none of its answers detects."""
    wanted = asked(slug)
    if not wanted:
        return  # its answers are plain data; test_no_requirement_is_decoration removes its questions, kind by kind
    every = places(wanted)
    left = {(place[1:], bound): "" for place, each in every.items() for bound in (*bounds(each), None)}
    most = max((answer.beyond[1] for answer in wrong(slug).values() if answer.beyond), default=1)
    just_beyond_first = sorted(wrong(slug).items(), key=lambda each: each[1].beyond is None)
    for name, answer in just_beyond_first:
        if all(left.values()):
            break
        if seen(answer.answer, slug) is None or not named(answer, against(answer.answer, slug, wanted)):
            continue
        steps = answer.beyond[1] if answer.beyond else most
        for place, bound in (what for what, noticed in left.items() if not noticed):
            mutated = moved(wanted, bound, steps, place) if bound else without(wanted, *place)
            found = against(answer.answer, slug, mutated)
            left[place, bound] = "" if (found if bound else named(answer, found)) else name
    for name, advised in right(slug).items():
        if advised.advised and not all(left.values()) and (shown := seen(advised.answer, slug)):
            for place, _ in (what for what, noticed in left.items() if not (noticed or what[1])):
                left[place, None] = "" if failed_requirements(without(wanted, *place), shown)[0] else name
    for (place, bound), noticed in left.items():
        said = f"requirement {place[1]} of group {place[0]}: {f'{bound} loosened' if bound else 'dropped'}"
        print(f"{slug}: {said}: {noticed or 'no answer notices'}", flush=True)
        if not noticed:
            yield f"{slug}: {said}"


# The rest of this file: mutants of the judge's code.

_MOVED = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield a node's mutants, each with its description."""
    if isinstance(node, ast.If | ast.IfExp):
        changed = copy.deepcopy(node)
        changed.test = ast.Constant(False)
        yield f"`{ast.unparse(node.test)}` dropped", changed
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _MOVED:
        changed = copy.deepcopy(node)
        changed.ops[0] = _MOVED[type(node.ops[0])]()
        yield f"`{ast.unparse(node)}` → `{ast.unparse(changed)}`", changed
    if isinstance(node, ast.BoolOp):
        for place, value in enumerate(node.values):
            changed = copy.deepcopy(node)
            del changed.values[place]
            yield (
                f"`{ast.unparse(value)}` left out of `{ast.unparse(node)}`",
                changed if len(node.values) > 2 else changed.values[0],
            )
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield f"{node.value} → {node.value * 2 + 1}", ast.Constant(node.value * 2 + 1)


class Mutant(ast.NodeTransformer):
    """Replace the node with this number by another one."""

    def __init__(self, number: int, by: ast.AST) -> None:
        self.number, self.by, self.visited = number, by, -1

    def visit(self, node: ast.AST) -> ast.AST:
        self.visited += 1
        if self.visited == self.number:
            return ast.copy_location(self.by, node)
        return self.generic_visit(node)


def mutants(module: ModuleType) -> Iterator[tuple[int, int, str, ast.Module]]:
    """Yield a module's mutants: the line, the last line of its statement, a description, and the tree."""
    tree = ast.parse(inspect.getsource(module))
    numbered = []

    class Numbers(Mutant):
        def visit(self, node: ast.AST) -> ast.AST:
            numbered.append(node)
            return self.generic_visit(node)

    Numbers(-1, tree).visit(tree)
    statements = [(each.lineno, each.end_lineno) for each in numbered if isinstance(each, ast.stmt)]
    for number, node in enumerate(numbered):
        for what, by in changes(node):
            last = min((end for start, end in statements if start <= node.lineno <= end), default=node.lineno)
            yield node.lineno, last, what, ast.fix_missing_locations(Mutant(number, by).visit(copy.deepcopy(tree)))


def functions(module: ModuleType) -> dict[str, FunctionType]:
    """Return a module's functions and methods by qualified name, including cached ones."""
    own = [*vars(module).values()]
    own += [each for cls in own if isinstance(cls, type) for each in vars(cls).values()]
    own = [each.fget if isinstance(each, property) else each for each in own]
    own = [each.func if isinstance(each, functools.cached_property) else each for each in own]
    plain = (inspect.unwrap(each) for each in own if callable(each))
    return {f.__qualname__: f for f in plain if isinstance(f, FunctionType) and f.__module__ == module.__name__}


def codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code objects of a module's functions and methods, without nested functions."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            if "." not in each.co_qualname:
                yield from codes(each)


def judged(slug: str, evidence: Evidence) -> tuple:
    """Return the parts of a verdict that tests of an answer look at: its outcome, the observations and the findings."""
    verdict = judge(evidence, cases(slug), registry.task(slug), registry.expect(slug), seed_of_inputs(), execution)
    return verdict.outcome, verdict.shown, [(each.kind, each.text, each.next, each.cases) for each in verdict.findings]


@functools.cache
def _cached_execution(forward: str, backward: str, sizes: tuple[int, ...], limit: int | None) -> Execution:
    return Execution(forward, backward, sizes, limit)


def execution(forward: str, backward: str, sizes: list[int], limit: int | None = None) -> Execution:
    """Return an execution of two programs; parsed once and cached."""
    return _cached_execution(forward, backward, tuple(sizes), limit)


def run_once(cls: type, *names: str) -> None:
    """Cache methods' results by the bytes of their arrays."""

    def digest(arguments: tuple) -> str:
        found = hashlib.sha256(str(jax.tree.structure(arguments)).encode())
        for leaf in jax.tree.leaves(arguments):
            if isinstance(leaf, np.ndarray):
                found.update(f"{leaf.dtype}{leaf.shape}".encode() + leaf.tobytes())
            else:
                found.update(str(id(leaf) if isinstance(leaf, Function) else leaf).encode())
        return found.hexdigest()

    def remembering(method: Callable) -> Callable:
        known: dict[tuple, tuple] = {}

        def remembered(self: object, *arguments: Any) -> Any:
            key = id(self), digest(arguments)
            if key not in known:
                # Keeps these objects alive, so that Python does not reuse an id.
                own = self, *(each for each in arguments if isinstance(each, Function))
                known[key] = own, method(self, *arguments)
            return known[key][1]

        return remembered

    for name in names:
        setattr(cls, name, remembering(getattr(cls, name)))


_QUIETLY = "-q -x -n0 --no-header --no-summary -W ignore::pytest.PytestAssertRewriteWarning".split()


def _tests_fail() -> bool:
    forget(sample_answers)  # it caches verdicts
    return bool(pytest.main([str(HERE / "judging"), *_QUIETLY]))


def of_judge(names: list[str], slugs: list[str], tests: bool) -> Iterator[str]:
    """Yield the mutants of some of the judge's modules that neither an answer nor a test detects."""
    modules = {name: importlib.import_module(MODULES[name]) for name in names}
    if tests and _tests_fail():
        raise SystemExit("the tests in tests/grader/judging fail without a mutant")
    running = run_by_line(list(modules.values()), evidence_of(tuple(slugs)))
    for name, module in modules.items():
        before = functions(module)
        for line, last, what, tree in mutants(module):
            mutated = {code.co_qualname: code for code in codes(compile(tree, module.__file__, "exec"))}
            differing = {q: mutated[q] for q, f in before.items() if q in mutated and mutated[q] != f.__code__}
            if not differing:
                continue  # at the module's top level, or in an annotation
            here = running.get((module.__file__, line)) or [
                answer for each in range(line, last + 1) for answer in running.get((module.__file__, each), ())
            ]
            originals = {q: before[q].__code__ for q in differing}
            for q, code in differing.items():
                before[q].__code__ = code
            forget(module)
            try:
                noticed = next(filter(None, (notices(*each) for each in here[:MOST_ANSWERS])), "")
                if tests and not noticed and _tests_fail():
                    noticed = "a test"
            finally:
                for q, code in originals.items():
                    before[q].__code__ = code
                forget(module)
            said = f"{name}.py:{line}: {what}"
            print(f"{said}: {noticed or f'no answer notices, of {len(here[:MOST_ANSWERS])} that run it'}", flush=True)
            if not noticed:
                yield said


type Tried = tuple[str, str, Evidence, tuple]  # an answer's name, its exercise, its evidence and its verdict


def run_by_line(
    modules: list[ModuleType], answers: list[tuple[str, str, Evidence]]
) -> dict[tuple[str, int], list[Tried]]:
    """Return for each line of some modules, by file and number, the answers that run it when they are judged. The order
    mixes exercises, because the first few answers then detect most of what all of them would."""
    running: dict[tuple[str, int], list[Tried]] = {}
    every = [function for module in modules for function in functions(module).values()]
    before = None
    for called, slug, evidence in answers:
        if slug != before:  # clear the caches, so that some answer to each exercise runs the cached functions
            before = slug
            for module in modules:
                forget(module)
        hit: set[tuple[str, int]] = set()
        with lines_run(every, hit):
            want = judged(slug, evidence)
        for line in hit:
            running.setdefault(line, []).append((called, slug, evidence, want))
    for tried in running.values():
        random.Random(0).shuffle(tried)
    return running


@functools.cache
def evidence_of(slugs: tuple[str, ...]) -> list[tuple[str, str, Evidence]]:
    """Return the name, the exercise and the evidence of every shipped answer."""
    found = []
    for slug in slugs:
        for name, answer in (*wrong(slug).items(), *right(slug).items()):
            with patches_undone():
                evidence = traced(answer.answer, slug)
            if isinstance(evidence, Evidence):
                found.append((f"{slug} {name}", slug, evidence))
    return found


def forget(module: ModuleType) -> None:
    """Clear a module's caches: a mutant may return another result."""
    for each in vars(module).values():
        getattr(each, "cache_clear", int)()


def notices(called: str, slug: str, evidence: Evidence, want: tuple) -> str:
    """Return the answer's name if a mutant changes its verdict or makes judging fail; else an empty string."""
    signal.alarm(LONGEST)
    try:
        return "" if judged(slug, evidence) == want else called
    except Exception:
        return called
    finally:
        signal.alarm(0)


def _too_long(*_: object) -> None:
    raise TimeoutError


class lines_run:
    """Collect the lines of some functions that run, by file and number."""

    def __init__(self, functions: list[FunctionType], hit: set[tuple[str, int]]) -> None:
        self.codes, self.hit = [f.__code__ for f in functions], hit

    def __enter__(self) -> None:
        here, line = sys.monitoring.PROFILER_ID, sys.monitoring.events.LINE
        sys.monitoring.use_tool_id(here, "mutations")
        sys.monitoring.register_callback(here, line, lambda code, number: self.hit.add((code.co_filename, number)))
        for code in self.codes:
            for each in (code, *self._nested_code(code)):
                sys.monitoring.set_local_events(here, each, line)

    def __exit__(self, *_: object) -> None:
        sys.monitoring.free_tool_id(sys.monitoring.PROFILER_ID)

    def _nested_code(self, code: CodeType) -> Iterator[CodeType]:
        for each in code.co_consts:
            if isinstance(each, CodeType):
                yield each
                yield from self._nested_code(each)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exercises", nargs="*", help="exercises; all if none are given")
    parser.add_argument(
        "--judging", nargs="+", choices=[*sorted(MODULES), "all"], help="modules of the judge to mutate"
    )
    parser.add_argument("--tests", action="store_true", help="try also tests/grader/judging on what no answer notices")
    given = parser.parse_args()
    slugs = given.exercises or list(registry.names())
    os.environ.setdefault("REMAT_SEED", "0")
    signal.signal(signal.SIGALRM, _too_long)
    if given.judging:
        for cls, methods in REMEMBERED.items():
            run_once(cls, *methods)
    names = sorted(MODULES) if "all" in (given.judging or ()) else given.judging or ()
    found = of_judge(names, slugs, given.tests) if names else itertools.chain.from_iterable(map(of_exercise, slugs))
    left = [*found]
    unknown = [mutant for mutant in left if mutant not in KNOWN]
    print(f"{len(left)} mutants that nothing notices, {len(left) - len(unknown)} of them known:")
    for mutant in left:
        print(f"  {mutant}: {KNOWN.get(mutant, 'UNKNOWN')}")
    return bool(unknown)


if __name__ == "__main__":
    sys.exit(main())
