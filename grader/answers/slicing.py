"""Which statements of a page an answer builds on."""

import ast
import bisect
import collections
import functools
import symtable
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeGuard


@dataclass(frozen=True)
class AnswerSource:
    """A piece of Python: a notebook's cell or a whole file. `place` is what a learner calls it."""

    place: str
    text: str


class PlacedStatement(NamedTuple):
    """A statement, and the piece of Python that it stands in."""

    source: AnswerSource
    node: ast.stmt


def segment(source: AnswerSource, statements: Sequence[ast.stmt]) -> str:
    """The text of statements that follow each other, with the comments above them and behind them."""
    lines = [line.encode() for line in source.text.split("\n")]  # columns count bytes
    first, last = statements[0], statements[-1]
    start = min([first.lineno, *(decorator.lineno for decorator in getattr(first, "decorator_list", ()))]) - 1
    assert last.end_lineno is not None and last.end_col_offset is not None  # it has been parsed
    end, column = last.end_lineno - 1, last.end_col_offset
    rest = lines[end][column:].strip()
    if not rest or rest.startswith(b"#"):
        column = len(lines[end].rstrip())
    if end > start:
        piece = [lines[start][first.col_offset :], *lines[start + 1 : end], lines[end][:column]]
    else:
        piece = [lines[start][first.col_offset : column]]
    above = start
    while first.col_offset == 0 and above and lines[above - 1].startswith(b"#"):
        above -= 1
    return b"\n".join([*lines[above:start], *piece]).decode()


def needed_statements(answer: str, statements: Sequence[PlacedStatement]) -> list[PlacedStatement]:
    """The statements that the answer builds on. A definition that is replaced before anything uses it is none of them.

    Neither is a stub of the answer, unless there is nothing else. This is a backward slice (Weiser, Program slicing,
    1981) along the definitions that reach each use, where a function's body uses whatever there is when it is called.
    """
    statements = [each for each in statements if not _is_script(each.node)]
    definitions = [each for each in statements if answer in bound_names(each.node)]
    if not all(is_stub(each.node) for each in definitions):
        statements = [each for each in statements if not (answer in bound_names(each.node) and is_stub(each.node))]
    page = _Page(statements)
    kept = {index for index, each in enumerate(statements) if is_future(each.node)}
    todo, done = {(answer, len(statements))}, set()
    while todo:
        done.add(asked := todo.pop())
        name, when = asked
        for index in page.reaching(name, when):
            at_once, whenever = page.uses(index)
            if index not in kept:
                kept.add(index)
                todo |= {(used, index) for used in at_once} - done
            if whenever:
                todo |= {(used, when) for used in whenever} - done
    return [each for index, each in enumerate(statements) if index in kept]


class _Page:
    """A page's statements, by what they do to its names. A moment is a number of statements that have run."""

    def __init__(self, statements: Sequence[PlacedStatement]):
        self._statements = statements
        binding, changing = collections.defaultdict(list), collections.defaultdict(list)
        for index, (_, statement) in enumerate(statements):
            for name in bound_names(statement):
                binding[name].append(index)
            for name in _changes(statement):
                changing[name].append(index)
        self._any_name = binding.pop("*", [])
        self._binding = {name: sorted({*indices, *self._any_name}) for name, indices in binding.items()}
        self._changing = changing
        self._replaces = [_replaces(statement) for _, statement in statements]
        self.uses = functools.cache(lambda index: _uses(*statements[index]))

    def reaching(self, name: str, when: int) -> list[int]:
        """The statements that a name's value at a moment comes from: what bound it last, and what changed it since."""
        found, since = [], -1
        for index in _before(self._binding.get(name, self._any_name), when):
            found.append(index)
            if name in self._replaces[index]:
                since = index
                break
        if not all(_is_constant(self._statements[index].node) for index in found):
            found += [index for index in _before(self._changing[name], when) if index > since]
        return found


def _is_constant(statement: ast.stmt) -> bool:
    """Whether no call changes what is defined. One may change what a decorator makes, as `f.defvjp(…)` does."""
    match statement:
        case ast.Import() | ast.ImportFrom():
            return True
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return not statement.decorator_list
    return False


def _before(indices: Sequence[int], when: int) -> Iterator[int]:
    """Those of sorted indices that are less than `when`, last first."""
    return (indices[place] for place in range(bisect.bisect_left(indices, when) - 1, -1, -1))


def is_future(statement: ast.stmt) -> TypeGuard[ast.ImportFrom]:
    """Whether a statement is a `from __future__ import …`, which holds for all of a file."""
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _is_script(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and "__name__" in {getattr(n, "id", None) for n in ast.walk(statement.test)}


def is_stub(statement: ast.stmt) -> bool:
    """Whether a definition is a function that does nothing yet: a docstring, `...`, `pass`, NotImplementedError."""
    if not isinstance(statement, ast.FunctionDef):
        return False
    return all(
        isinstance(line, ast.Pass)
        or (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))
        or (isinstance(line, ast.Raise) and line.exc is not None and "NotImplementedError" in ast.unparse(line.exc))
        for line in statement.body
    )


def bound_names(statement: ast.stmt) -> set[str]:
    """The names that a top-level statement gives a value; `"*"` for an import of whatever a module has."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    names = set()
    for node in _outside_functions(statement):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.Attribute(ctx=ast.Store()) | ast.Subscript(ctx=ast.Store()):
                names |= _root(node)  # helper.cache = {}, table["a"] = 1
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names |= {(alias.asname or alias.name).split(".")[0] for alias in aliases}
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.ExceptHandler(name=str(name)):
                names.add(name)
            case ast.MatchMapping(rest=str(name)):
                names.add(name)
    return names


def _replaces(statement: ast.stmt) -> set[str]:
    """Those of the names that a statement binds of which no earlier value is left."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.ImportFrom(names=aliases):
            return {alias.asname or alias.name for alias in aliases}
        case ast.Import(names=aliases):  # `import a.b` leaves a.c as it is
            return {alias.asname or alias.name for alias in aliases if alias.asname or "." not in alias.name}
        case ast.Assign(targets=targets):
            nodes = [node for target in targets for node in ast.walk(target)]
            return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
            return {name}
    return set()  # an if, a loop, `x += 1`, `table["a"] = 1`


def _changes(statement: ast.stmt) -> set[str]:
    """The variables that calls for their effect change, as in `names.append("a")`."""
    names = set()
    for node in _outside_functions(statement):
        match node:
            case ast.Expr(value=ast.Call(func=ast.Attribute() as method)):
                names |= _root(method)
    return names


def _root(node: ast.expr) -> set[str]:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return {node.id} if isinstance(node, ast.Name) else set()


def _outside_functions(statement: ast.stmt) -> Iterable[ast.AST]:
    todo: list[ast.AST] = [statement]
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            todo += ast.iter_child_nodes(node)


def _uses(source: AnswerSource, statement: ast.stmt) -> tuple[set[str], set[str]]:
    """The names of the page that a statement looks up when it runs, and those that it looks up whenever it is called.

    A local variable of a function is neither.
    """
    tables = list(_tables(symtable.symtable(segment(source, (statement,)), source.place, "exec")))
    at_once = set().union(*(_looked_up(table) for table in tables if table.get_type() in ("module", "class")))
    called = set().union(*(_looked_up(table) for table in tables if table.get_type() not in ("module", "class")))
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and not statement.decorator_list:
        return at_once, called
    return (
        at_once | called,
        called,
    )  # a lambda, a comprehension, what a decorator is given: it may be called at once too


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    todo = [table]
    while todo:
        yield (table := todo.pop())
        todo += table.get_children()


def _looked_up(table: symtable.SymbolTable) -> set[str]:
    return {
        symbol.get_name()
        for symbol in table.get_symbols()
        if symbol.is_referenced() and (symbol.is_global() or table.get_type() == "module")
    }
