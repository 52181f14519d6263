"""Find the statements of a page that an answer depends on, and the other statements that run before its check.

Running all cells above the answer instead would be simpler, but it does not work for a session, in which cells ran in
any order and several times, and it is slow: 14.3 s of processor time for the 29 exercise pages with their worked
answers, against 0.6 s for the statements that these build on.
"""

import ast
import bisect
import collections
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeGuard

from grader.answers.cells import PlacedStatement
from grader.answers.effects import (
    ANY,
    BY_TEXT,
    DEFINITIONS,
    IMPORTS,
    bound_names,
    effects_of,
    imports_of,
    outside_definitions,
)

type Statements = tuple[PlacedStatement, ...]


def slice_of(answer: str, statements: Sequence[PlacedStatement]) -> tuple[Statements, Statements, Statements]:
    """Return `statements`, `before` and `kept` of `find.SlicedAnswer`.

    This is a backward slice (Weiser, Program slicing, 1981) along reaching definitions. The body of a function uses the
    definitions that exist when it is called. The mutations by the functions that a statement calls are found once per
    function, for any arguments (as in Banning, 1979), and again for the actual arguments.
    """
    page = _Page(answer, statements)
    needed = page.needed()
    before = page.before(needed)
    if not page.makes_a_difference(before, needed):
        before = []
    kept = needed | page.needed(page.touching(before, needed))
    chosen = sorted(needed), before, sorted(kept)
    of_answer, above, handed_in = (tuple(page.statements[i] for i in indices) for indices in chosen)
    return of_answer, above, handed_in


_TO_LOOK_AT = {"IPython", "altair", "bokeh", "grader", "ipywidgets", "matplotlib", "plotly", "seaborn"}
_WITHOUT_EFFECT = sys.stdlib_module_names | {"jax", "numpy", "rematscope", "scipy", "solutions"} | _TO_LOOK_AT


class _Page:
    """The statements of a page with their effects on its names. A moment is the number of statements that have run."""

    def __init__(self, answer: str, statements: Sequence[PlacedStatement]):
        definitions = [each for each in statements if answer in bound_names(each.node)]
        if not all(is_stub(each.node) for each in definitions):
            statements = [each for each in statements if not (answer in bound_names(each.node) and is_stub(each.node))]
        self._answer = answer
        self.statements = statements
        self.effects = [effects_of(each) for each in statements]
        self._defining: dict[str, list[int]] = collections.defaultdict(list)
        for index, effects in enumerate(self.effects):
            for name in effects.binds:
                self._defining[name].append(index)
        self._done_by = self._done_by_names()
        binding, changing = collections.defaultdict(list), collections.defaultdict(list)
        called = self._called_by_the_answer()
        for index, effects in enumerate(self.effects):
            stores, changes = self._through_calls(index, called)
            for name in effects.binds | stores:
                binding[name].append(index)
            for name in effects.on_run.mutated | changes:
                changing[name].append(index)
        self._any_name = binding.pop(ANY, [])
        self._binding = {
            name: indices if name == IMPORTS else sorted({*indices, *self._any_name})
            for name, indices in binding.items()
        }
        self._changing = changing

    def needed(self, others: Collection[int] = ()) -> set[int]:
        """Return the indices of the statements that the answer and some other statements depend on."""
        kept = {index for index, each in enumerate(self.statements) if is_future(each.node)} | set(others)
        todo = {(self._answer, len(self.statements))} | {(n, i) for i in others for n in self.effects[i].reads_on_run}
        done: set[tuple[str, int]] = set()
        while todo:
            done.add(asked := todo.pop())
            name, when = asked
            for index in self._reaching_definitions(name, when):
                effects = self.effects[index]
                if index not in kept:
                    kept.add(index)
                    todo |= {(used, index) for used in effects.reads_on_run} - done
                if effects.reads_on_call:
                    todo |= {(used, when) for used in effects.reads_on_call} - done
        return kept

    def before(self, needed: set[int]) -> list[int]:
        """Return the indices of the statements before the answer's check, except statements that only display."""
        verbs = self._functions_calling(self._imported_from({"grader"}))
        shown = self._functions_calling({"get_ipython", "display", *self._imported_from(_TO_LOOK_AT)})
        defined = max(self._defining[self._answer], default=-1)
        checks = [
            i for i, each in enumerate(self.effects) if self._answer in each.reads_on_run and each.reads_on_run & verbs
        ]
        end = next((i for i in reversed(checks) if i > defined), len(self.statements))
        looks = [bool(each.reads_on_run & shown) or set() < each.binds <= shown for each in self.effects]
        return [i for i in range(end) if i in needed or not looks[i]]

    def makes_a_difference(self, before: list[int], needed: set[int]) -> bool:
        """Return whether running all statements before the answer may give a different answer than the needed ones."""
        if self._find_names(needed):
            return before != sorted(needed)
        return [i for i in before if i in needed or not _is_idle(self.statements[i].node)] != sorted(needed)

    def touching(self, before: list[int], needed: set[int]) -> list[int]:
        """Return the indices of statements before the answer that get its dependencies as arguments and may change
        them."""
        if self._find_names(needed):
            return before
        exposed = {  # maps each name to the moment since which it may be changed
            name: i
            for i in sorted(needed)
            if not self.effects[i].constant or isinstance(self.statements[i].node, ast.ClassDef)
            for name in self.effects[i].replaces - {self._answer}
        }
        found = []
        for i in before:
            node = self.statements[i].node
            if i in needed or all(exposed.get(name, i) >= i for name in self.effects[i].reads_on_run):
                continue
            if not _is_idle(node):
                found.append(i)
            elif isinstance(node, ast.Assign):  # both names may refer to the same object
                exposed |= dict.fromkeys(self.effects[i].binds, i)
        return found

    def _find_names(self, indices: Iterable[int]) -> bool:
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

    def _functions_calling(self, names: Collection[str]) -> set[str]:
        """Return these names, and the names of functions that read them when they are called."""
        found = set(names)
        while more := {
            name
            for each, effects in zip(self.statements, self.effects, strict=True)
            if effects.reads_on_call & found and isinstance(each.node, ast.FunctionDef | ast.AsyncFunctionDef)
            for name in effects.binds - found
        }:
            found |= more
        return found

    def _reaching_definitions(self, name: str, when: int) -> list[int]:
        """Return the statements that determine a name's value at a moment: the last one that bound it, and those that
        changed it since."""
        found, since = [], -1
        for index in _indices_before(self._binding.get(name, [] if name == IMPORTS else self._any_name), when):
            found.append(index)
            if name in self.effects[index].replaces:
                since = index
                break
        if not all(self.effects[index].constant for index in found):
            found += [index for index in _indices_before(self._changing[name], when) if index > since]
        return found

    def _called_by_the_answer(self) -> set[str]:
        """Return the names that the answer reads when it is called. Other calls of these functions are
        demonstrations."""
        found, todo = set(), {self._answer}
        while todo:
            found.add(name := todo.pop())
            for index in self._defining.get(name, ()):
                todo |= self.effects[index].reads_on_call - found
                if name == self._answer and isinstance(self.statements[index].node, ast.Assign):
                    todo |= self.effects[index].reads_on_run - found
        return found

    def _through_calls(self, index: int, called: set[str]) -> tuple[set[str], set[str]]:
        """Return the names that are assigned and mutated by the functions that a statement calls."""
        effects, stores, changes = self.effects[index], set(), set()
        defines = isinstance(self.statements[index].node, DEFINITIONS)
        for name in effects.reads_on_run if defines else effects.reads_on_run - called:
            done = self._done_by[name]
            stores |= {each for what, each in done if what == "stores"}
            changes |= {each for what, each in done if what == "changes"}
            if ("arguments", "") in done:
                changes |= effects.on_run.passed.get(name, set())
        return stores, changes

    def _done_by_names(self) -> Mapping[str, set[tuple[str, str]]]:
        """Return for each name the mutations by its functions, including those by the functions that these read and
        call, and so on."""
        done = collections.defaultdict[str, set[tuple[str, str]]](set)
        users = collections.defaultdict[str, set[str]](set)
        for name, indices in self._defining.items():
            for effects in (self.effects[index] for index in indices):
                later = effects.on_call
                done[name] |= {("stores", each) for each in later.assigned}
                done[name] |= {("changes", each) for each in later.mutated}
                done[name] |= {("arguments", "")} if later.mutates_arguments else set()
                for used in effects.reads_on_call if effects.constant else effects.reads_on_run | effects.reads_on_call:
                    users[used].add(name)
        todo = [name for name in done if done[name]]
        while todo:  # a function has the effects of the functions it calls: propagate until nothing changes
            name = todo.pop()
            for user in users[name]:
                if not done[name] <= done[user]:
                    done[user] |= done[name]
                    todo.append(user)
        return done


def _indices_before(indices: Sequence[int], when: int) -> Iterator[int]:
    """Yield the indices less than `when` from sorted indices, the last one first."""
    return (indices[place] for place in range(bisect.bisect_left(indices, when) - 1, -1, -1))


def _is_idle(statement: ast.stmt) -> bool:
    """Return whether a statement only binds its own names."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {package for package, _ in imports_of(statement)} <= _WITHOUT_EFFECT
    if isinstance(statement, DEFINITIONS):
        return not statement.decorator_list
    active = ast.Call | ast.Await | ast.Delete | ast.AugAssign | ast.Import | ast.ImportFrom
    return not any(
        isinstance(node, active)
        or (isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store))
        for node in outside_definitions(statement)
    )


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
