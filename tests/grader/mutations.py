"""Shows which bounds and checks of the grader no shipped answer holds.

    python tests/grader/mutations.py nested_scan sqrt_chain        # bounds and requirements of exercises; all if none
    python tests/grader/mutations.py --judging identity unmet      # checks in grader/judging and in requirements

For an exercise, every numeric bound is loosened and every requirement is dropped, in all cases, and all wrong answers
are judged again. For a module of the judge, every condition is dropped, every comparison moved by one step, every
operand of `and` and `or` left out and every number increased, one at a time, and the shipped answers that run the
mutated line are judged again; with `--tests` the tests in tests/grader/judging come next. What nothing notices is
printed as "no answer notices" and makes the exit status 1, unless it is in `KNOWN`, with the reason.

An exercise takes 5 s to 2 minutes. A module of the judge takes a minute for every exercise that is named, and with
`--tests` half a minute more for every mutant that no answer notices.
"""

import argparse
import ast
import copy
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE), str(HERE / "catalog"), str(HERE / "judging")]

from bounds import Bound, against, asked, bounds, moved, places, seen, without  # noqa: E402
from sample_answers import cases, named, right, seed_of_inputs, traced, wrong  # noqa: E402

from grader.answers.evidence import Evidence  # noqa: E402
from grader.exercises import registry  # noqa: E402
from grader.judging.judge import judge  # noqa: E402
from grader.judging.unmet import unmet  # noqa: E402

MODULES = {
    **{path.stem: f"grader.judging.{path.stem}" for path in (HERE.parents[1] / "grader/judging").glob("[a-z]*.py")},
    **{name: f"grader.exercises.{name}" for name in ("requirements", "peaks")},
}
MOST_ANSWERS = 40  # that run a mutated line and are judged again

# Mutants that nothing needs to notice, as they are printed, and why.
KNOWN: dict[str, str] = {}


def of_exercise(slug: str) -> Iterator[str]:
    """Yield the mutants of an exercise's requirements that none of its answers notices."""
    wanted = asked(slug)
    if not wanted:
        return  # its answers are plain data; test_no_requirement_is_decoration drops its questions, kind by kind
    every = places(wanted)
    loose: dict[Bound, list[str]] = {bound: [] for each in every.values() for bound in bounds(each)}
    dropped: dict[tuple[int, int], list[str]] = {place[1:]: [] for place in every}
    for name, answer in wrong(slug).items():
        if seen(answer.answer, slug) is None or not against(answer.answer, slug, wanted):
            continue
        steps = answer.beyond[1] if answer.beyond else 1
        for bound, noticed in loose.items():
            if not against(answer.answer, slug, moved(wanted, bound, steps)):
                noticed.append(name)
        for place, noticed in dropped.items():
            if not named(answer, against(answer.answer, slug, without(wanted, *place))):
                noticed.append(name)
    for name, advised in right(slug).items():
        if advised.advised and (shown := seen(advised.answer, slug)):
            for place, noticed in dropped.items():
                noticed += [name] * (not unmet(without(wanted, *place), shown)[0])
    for what, noticed in (*loose.items(), *dropped.items()):
        said = f"{what} loosened" if isinstance(what, Bound) else f"requirement {what[1]} of group {what[0]} dropped"
        print(f"{slug}: {said}: {', '.join(noticed[:3]) or 'no answer notices'}", flush=True)
        if not noticed:
            yield f"{slug}: {said}"


# From here on: mutants of the judge's code.

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
    """Replaces the node with a number by another one."""

    def __init__(self, number: int, by: ast.AST) -> None:
        self.number, self.by, self.visited = number, by, -1

    def visit(self, node: ast.AST) -> ast.AST:
        self.visited += 1
        if self.visited == self.number:
            return ast.copy_location(self.by, node)
        return self.generic_visit(node)


def mutants(module: ModuleType) -> Iterator[tuple[int, str, ast.Module]]:
    """Yield a module's mutants: the line, a description, and the tree."""
    tree = ast.parse(inspect.getsource(module))
    numbered = []

    class Numbers(Mutant):
        def visit(self, node: ast.AST) -> ast.AST:
            numbered.append(node)
            return self.generic_visit(node)

    Numbers(-1, tree).visit(tree)
    for number, node in enumerate(numbered):
        for what, by in changes(node):
            yield node.lineno, what, ast.fix_missing_locations(Mutant(number, by).visit(copy.deepcopy(tree)))


def functions(module: ModuleType) -> dict[str, FunctionType]:
    """Return a module's functions and methods, also those in a cache, by their qualified names."""
    own = [*vars(module).values()]
    own += [each for cls in own if isinstance(cls, type) for each in vars(cls).values()]
    own = [each.fget if isinstance(each, property) else each for each in own]
    plain = (inspect.unwrap(each) for each in own if callable(each))
    return {f.__qualname__: f for f in plain if isinstance(f, FunctionType) and f.__module__ == module.__name__}


def codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a module's functions and methods, not of functions in functions."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            if "." not in each.co_qualname:
                yield from codes(each)


def judged(slug: str, answer: Callable, evidence: Evidence) -> tuple:
    """Return what the tests of an answer look at: its outcome, what it was shown to do, and its findings."""
    verdict = judge(evidence, cases(slug), registry.task(slug), registry.expect(slug), seed_of_inputs())
    return verdict.outcome, verdict.shown, [(each.kind, each.text, each.next, each.cases) for each in verdict.findings]


_QUIETLY = "-q -x -n0 --no-header --no-summary -W ignore::pytest.PytestAssertRewriteWarning".split()


def of_judge(name: str, slugs: list[str], tests: bool) -> Iterator[str]:
    """Yield the mutants of one of the judge's modules that neither an answer nor a test notices."""
    module = importlib.import_module(MODULES[name])
    before = functions(module)
    lines: dict[int, list] = {}
    pool = [(s, n, a.answer) for s in slugs for n, a in (*wrong(s).items(), *right(s).items())]
    for slug, called, answer in pool:
        evidence = traced(answer, slug)
        if isinstance(evidence, Evidence):
            hit: set[int] = set()
            with lines_run(before.values(), hit):
                want = judged(slug, answer, evidence)
            for line in hit:
                lines.setdefault(line, []).append((slug, called, answer, evidence, want))
    for line, what, tree in mutants(module):
        mutated = {code.co_qualname: code for code in codes(compile(tree, module.__file__, "exec"))}
        differing = {q: mutated[q] for q, f in before.items() if q in mutated and mutated[q] != f.__code__}
        said = f"{name}.py:{line}: {what}"
        if not differing:
            continue  # at the module's top level, or in an annotation
        originals = {q: before[q].__code__ for q in differing}
        for q, code in differing.items():
            before[q].__code__ = code
        try:
            noticed = next(filter(None, (notices(*each) for each in lines.get(line, [])[:MOST_ANSWERS])), "")
            if tests and not noticed and pytest.main([str(HERE / "judging"), *_QUIETLY]):
                noticed = "a test"
        finally:
            for q, code in originals.items():
                before[q].__code__ = code
        print(f"{said}: {noticed or 'no answer notices'}", flush=True)
        if not noticed:
            yield said


def notices(slug: str, called: str, answer: Callable, evidence: Evidence, want: tuple) -> str:
    """Return the answer's name if its verdict is another one under a mutant, or none at all; else an empty string."""
    try:
        return "" if judged(slug, answer, evidence) == want else f"{slug} {called}"
    except Exception:
        return f"{slug} {called}"


class lines_run:
    """Collects the lines of some functions that run."""

    def __init__(self, functions, hit: set[int]) -> None:
        self.codes, self.hit = [f.__code__ for f in functions], hit

    def __enter__(self) -> None:
        here, line = sys.monitoring.PROFILER_ID, sys.monitoring.events.LINE
        sys.monitoring.use_tool_id(here, "mutations")
        sys.monitoring.register_callback(here, line, lambda code, number: self.hit.add(number))
        for code in self.codes:
            for each in (code, *self._inside(code)):
                sys.monitoring.set_local_events(here, each, line)

    def __exit__(self, *_: object) -> None:
        sys.monitoring.free_tool_id(sys.monitoring.PROFILER_ID)

    def _inside(self, code: CodeType) -> Iterator[CodeType]:
        for each in code.co_consts:
            if isinstance(each, CodeType):
                yield each
                yield from self._inside(each)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exercises", nargs="*", help="exercises; all if none are given")
    parser.add_argument("--judging", nargs="+", choices=sorted(MODULES), help="modules of the judge to mutate")
    parser.add_argument("--tests", action="store_true", help="try also tests/grader/judging on what no answer notices")
    given = parser.parse_args()
    slugs = given.exercises or list(registry.names())
    found = [of_judge(name, slugs, given.tests) for name in given.judging or ()] or [
        of_exercise(slug) for slug in slugs
    ]
    left = [mutant for several in found for mutant in several if mutant not in KNOWN]
    print(f"{len(left)} mutants that nothing notices", *left, sep="\n  ")
    return bool(left)


if __name__ == "__main__":
    sys.exit(main())
