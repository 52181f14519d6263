"""Find the statements of a page that an answer depends on, and the other statements that run before its check.

Running all cells above the answer instead would be simpler, but it does not work for a session, in which cells ran in
any order and several times, and it is slow: 14.3 s of processor time for the 29 exercise pages with their worked
answers, against 0.6 s for the statements that these build on.
"""

import ast
import bisect
import collections
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import TypeGuard

from grader.answers.cells import PlacedStatement
from grader.answers.effects import (
    ANY,
    BY_TEXT,
    DEFINITIONS,
    FUNCTIONS,
    IMPORTS,
    TO_LOOK_AT,
    bound_names,
    effects_of,
    imports_of,
)

type Statements = tuple[PlacedStatement, ...]


def slice_of(answer: str, statements: Sequence[PlacedStatement]) -> tuple[Statements, Statements, Statements]:
    """Return `statements`, `before` and `kept` of `find.SlicedAnswer`.

    This is a backward slice (Weiser, Program slicing, 1981) along reaching definitions. The body of a function uses the
    definitions that exist when it is called. A call may change every value that it reaches: through its arguments, and
    through the names that the page's functions read.
    """
    page = _Page(answer, statements)
    bound = page.needed()
    before = page.before(bound)
    needed = page.needed(set(before))
    kept = needed | set(before) if page.finds_names(needed) else needed
    if not page.makes_a_difference(before, bound):
        before = []
    chosen = sorted(needed), before, sorted(kept)
    of_answer, above, handed_in = (tuple(page.statements[i] for i in indices) for indices in chosen)
    return of_answer, above, handed_in


class _Page:
    """The statements of a page with their effects on its names. A moment is the number of statements that have run."""

    def __init__(self, answer: str, statements: Sequence[PlacedStatement]):
        definitions = [each for each in statements if answer in bound_names(each.node)]
        if not all(is_stub(each.node) for each in definitions):
            statements = [each for each in statements if not (answer in bound_names(each.node) and is_stub(each.node))]
        self._answer = answer
        self.statements = statements
        self.effects = [effects_of(each) for each in statements]
        binding = collections.defaultdict[str, list[int]](list)
        self._reading = collections.defaultdict[str, list[int]](list)  # the statements that read a name when they run
        # For each name: the names that its value can reach, those from whose values it can be reached, and the
        # functions that read it.
        reached, self._reached_from, self._callers = (collections.defaultdict[str, set[str]](set) for _ in range(3))
        for index, effects in enumerate(self.effects):
            through = effects.reads_on_call | effects.binds_on_call
            through |= set() if effects.constant else effects.reads_on_run
            for name in effects.binds:
                binding[name].append(index)
                reached[name] |= through
                for each in through:
                    self._reached_from[each].add(name)
            for name in effects.reads_on_run:
                self._reading[name].append(index)
            if isinstance(self.statements[index].node, FUNCTIONS):
                for name in effects.reads_on_call:
                    self._callers[name] |= effects.binds
        self._defined = max(binding[answer], default=-1)
        self._any_name = binding.pop(ANY, [])
        self._binding = {IMPORTS: binding.pop(IMPORTS, [])}
        self._binding |= {name: sorted({*indices, *self._any_name}) for name, indices in binding.items()}
        self._bound_by_calls = set().union(*(effects.binds_on_call for effects in self.effects))
        # The functions that the answer calls; other calls of these functions are demonstrations.
        self._called = _reachable_names({answer}, reached)
        self._changes: dict[str, list[int]] = {}

    def needed(self, changing: Set[int] = frozenset()) -> set[int]:
        """Return the indices of the statements that the answer depends on: statements that bind names, and
        statements in `changing` that may change the names' values."""
        kept = {index for index, each in enumerate(self.statements) if is_future(each.node)}
        todo = {(self._answer, len(self.statements))}
        done: set[tuple[str, int]] = set()
        while todo:
            done.add(asked := todo.pop())
            name, when = asked
            for index in self._reaching_definitions(name, when, changing):
                effects = self.effects[index]
                if index not in kept:
                    kept.add(index)
                    todo |= {(used, index) for used in effects.reads_on_run} - done
                if effects.reads_on_call:
                    todo |= {(used, when) for used in effects.reads_on_call} - done
        return kept

    def before(self, needed: set[int]) -> list[int]:
        """Return the indices of the statements before the answer's check, except statements that only display."""
        verbs = _reachable_names(self._imported_from({"grader"}), self._callers)
        shown = _reachable_names({"get_ipython", "display", *self._imported_from(TO_LOOK_AT)}, self._callers)
        checks = [
            i for i, each in enumerate(self.effects) if self._answer in each.reads_on_run and each.reads_on_run & verbs
        ]
        end = next((i for i in reversed(checks) if i > self._defined), len(self.statements))
        looks = [bool(each.reads_on_run & shown) or set() < each.binds <= shown for each in self.effects]
        return [i for i in range(end) if i in needed or not looks[i]]

    def makes_a_difference(self, before: list[int], bound: set[int]) -> bool:
        """Return whether running all statements before the answer may give a different answer than those that bind its
        names.

        A call that may change a value makes a difference although the first try runs it, too: if it raises, the first
        try stops, and the second try goes on.
        """
        if self.finds_names(bound):
            return before != sorted(bound)
        return [i for i in before if i in bound or not self.effects[i].idle] != sorted(bound)

    def finds_names(self, indices: Iterable[int]) -> bool:
        """Return whether any of these statements looks up names by strings."""
        return any(BY_TEXT & (self.effects[i].reads_on_run | self.effects[i].reads_on_call) for i in indices)

    def _imported_from(self, packages: Collection[str]) -> set[str]:
        """Return the names that imports from these packages bind."""
        return {
            (alias.asname or alias.name).split(".")[0]
            for each in self.statements
            for package, alias in imports_of(each.node)
            if package in packages
        }

    def _reaching_definitions(self, name: str, when: int, changing: Set[int]) -> list[int]:
        """Return the statements that determine a name's value at a moment: the last statement that bound it, and
        statements that changed it since, also after the moment, because other values may refer to the same object."""
        found, since = [], -1
        for index in _indices_before(self._binding.get(name, self._any_name), when):
            found.append(index)
            if name in self.effects[index].replaces:
                since = index
                break
        if self._bound_by_calls & {name, ANY} or not all(self.effects[index].constant for index in found):
            later = self._changes_of(name)
            found += [index for index in later[bisect.bisect_right(later, since) :] if index in changing]
        return found

    def _changes_of(self, name: str) -> list[int]:
        """Return the statements that may change a name's value with a call, from wherever they reach the value."""
        if name not in self._changes:
            through = _reachable_names({name, ANY}, self._reached_from)
            found = {i for used in through for i in self._reading[used] if self._may_change(i, name, used)}
            self._changes[name] = sorted(found)
        return self._changes[name]

    def _may_change(self, index: int, name: str, used: str) -> bool:
        """Return whether a statement may change a name's value, which it reaches through a name that it uses."""
        node = self.statements[index].node
        if self.effects[index].idle or isinstance(node, ast.Import | ast.ImportFrom):
            return False
        if name == self._answer:  # other calls of the answer are demonstrations
            calls = [node.value] if isinstance(node, ast.Expr) else getattr(node, "decorator_list", ())
            return any(ast.unparse(call).startswith(f"{name}.") for call in calls)  # `answer.defvjp(…)`
        return used == name or used not in self._called or isinstance(node, DEFINITIONS)


def _reachable_names(names: Collection[str], related: Mapping[str, Set[str]]) -> set[str]:
    """Return the names and all names that are related to them, directly or through others."""
    found, todo = set(), set(names)
    while todo:
        found.add(name := todo.pop())
        todo |= related.get(name, frozenset()) - found
    return found


def _indices_before(indices: Sequence[int], when: int) -> Iterator[int]:
    """Yield the indices less than `when` from sorted indices, the last one first."""
    return (indices[place] for place in range(bisect.bisect_left(indices, when) - 1, -1, -1))


def is_future(statement: ast.stmt) -> TypeGuard[ast.ImportFrom]:
    """Return whether a statement is `from __future__ import …`, which applies to the whole file."""
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def is_script(statement: ast.stmt) -> bool:
    """Return whether a statement is `if __name__ == "__main__": …`, which runs in a notebook, but not in a checked
    file."""
    return isinstance(statement, ast.If) and "__name__" in {getattr(n, "id", None) for n in ast.walk(statement.test)}


def is_stub(statement: ast.stmt) -> bool:
    """Return whether a definition is a function that does nothing yet: a docstring, `...`, `pass`, `return`,
    NotImplementedError."""
    if not isinstance(statement, ast.FunctionDef):
        return False
    return all(
        isinstance(line, ast.Pass)
        or (isinstance(line, ast.Return) and ast.unparse(line) in ("return", "return None"))
        or (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))
        or (isinstance(line, ast.Raise) and line.exc is not None and "NotImplementedError" in ast.unparse(line.exc))
        for line in statement.body
    )
