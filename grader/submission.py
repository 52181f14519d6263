"""Find the answer in what a learner hands in: a notebook or a Python file, read as text, run only as far as needed.

The answer is found by its name, wherever it stands, so that cells may be renamed, moved or copied. Of the rest of the
page only those statements run that the answer builds on: imports, helper functions, constants. The page's checks,
demonstrations and plots do not.
"""

import __future__

import ast
import functools
import json
import linecache
import operator
import symtable
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from grader import exercise as exercises


class SubmissionError(Exception):
    """There is no answer to be found; the message says why and what to do."""


@dataclass(frozen=True)
class Source:
    """A piece of Python: a notebook's cell or a whole file. `place` is what a learner calls it."""

    place: str
    text: str


@dataclass(frozen=True)
class Submission:
    """An answer, with the statements that it builds on, in the order in which they stand."""

    exercise: str
    statements: tuple[tuple[Source, ast.stmt], ...]

    def answer(self) -> Callable:
        """Runs the statements and returns what the answer's name is then bound to. Raises whatever they raise."""
        namespace = {"__name__": "submission", "__builtins__": __builtins__}
        for source, statement in self.statements:
            # So that tracebacks can quote the line.
            linecache.cache[source.place] = (len(source.text), None, source.text.splitlines(True), source.place)
            exec(compile(ast.Module([statement], []), source.place, "exec", self._future()), namespace)
        return namespace[self.exercise]

    def _future(self) -> int:
        """`from __future__ import …` holds for all of a file, and here each statement is compiled by itself."""
        imports = [statement for _, statement in self.statements if _is_future(statement)]
        features = [getattr(__future__, alias.name).compiler_flag for s in imports for alias in s.names]
        return functools.reduce(operator.or_, features, 0)


def read(path: Path) -> Submission:
    """Finds the answer in a file, without running anything. Raises SubmissionError."""
    sources = _sources(path)
    statements, broken = _parse(sources)
    defined = {name for _, statement in statements for name in _binds(statement)}
    found = [name for name in exercises.names() if name in defined]
    if len(found) > 1:
        raise SubmissionError(f"{path.name} answers {' and '.join(found)}: put each answer into a file of its own.")
    if not found:
        raise SubmissionError(_no_answer(path, defined, broken))
    return Submission(found[0], tuple(_needed(found[0], statements)))


def _sources(path: Path) -> list[Source]:
    if path.suffix not in (".ipynb", ".py"):
        raise SubmissionError(f"{path.name} is neither a notebook (.ipynb) nor a Python file (.py): name one of those.")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise SubmissionError(f"There is no file {path}: check its name and the folder you are in.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SubmissionError(f"{path} cannot be read ({error}): save it again, as UTF-8 text.") from None
    if path.suffix == ".py":
        return [Source(path.name, text)]
    try:
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        texts = ["".join(cell["source"]) for cell in cells]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise SubmissionError(
            f"{path.name} is not a notebook that can be read: open it in JupyterLab and save it again."
        ) from None
    return [Source(f"{path.name} cell {number}", text) for number, text in enumerate(texts, 1)]


def _parse(sources: Iterable[Source]) -> tuple[list[tuple[Source, ast.stmt]], list[tuple[Source, Exception]]]:
    statements, broken = [], []
    for source in sources:
        try:
            tree = _tree(source.text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            broken.append((source, error))
            continue
        statements += [(source, statement) for statement in tree.body]
    return statements, broken


def _tree(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError:
        # Only now: a line of plain Python may begin with % too, inside a string or an expression.
        return ast.parse(_without_magics(text))


def _without_magics(text: str) -> str:
    """Blanks IPython's own lines, so that the others keep their numbers; `%%time` times a cell that is Python."""
    lines = text.split("\n")
    first = next((line for line in lines if line.strip()), "")
    if first.startswith("%%") and first.split()[0] not in ("%%time", "%%timeit", "%%capture", "%%prun"):
        return ""
    magic = ("%", "!", "?")
    return "\n".join("" if line.lstrip().startswith(magic) or line.rstrip().endswith("?") else line for line in lines)


def _no_answer(path: Path, defined: set[str], broken: list[tuple[Source, Exception]]) -> str:
    for source, error in broken:
        if any(name in source.text for name in exercises.names()):
            line = f":{error.lineno}" if isinstance(error, SyntaxError) else ""
            return f"The answer is not valid Python: {source.place}{line}: {getattr(error, 'msg', error)}."
    asked = " or ".join(exercises.names())
    for name in sorted(defined):
        if exercises.closest(name).startswith("did you mean"):
            return f"{path.name} defines {name}, which is not an exercise; {exercises.closest(name)}"
    return f"{path.name} has no answer: it needs a function named {asked}, as the exercise's page has it."


def _needed(answer: str, statements: list[tuple[Source, ast.stmt]]) -> list[tuple[Source, ast.stmt]]:
    """The statements that the answer builds on, and all definitions of the answer but stubs (unless all are)."""
    statements = [pair for pair in statements if not _is_script(pair[1])]
    definitions = [statement for _, statement in statements if answer in _binds(statement)]
    if not all(map(_is_stub, definitions)):
        statements = [pair for pair in statements if not (answer in _binds(pair[1]) and _is_stub(pair[1]))]
    wanted, done, variables = {answer}, set(), set()
    while wanted != done:
        done = set(wanted)
        for _, statement in statements:
            binds = _binds(statement)
            if binds & wanted or "*" in binds or _changes(statement) & variables:
                wanted |= _uses(statement)
                if not isinstance(statement, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef):
                    variables |= binds
    return [
        (source, statement)
        for source, statement in statements
        if _binds(statement) & wanted
        or "*" in _binds(statement)
        or _changes(statement) & variables
        or _is_future(statement)
    ]


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _is_script(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and "__name__" in _uses(statement)


def _is_stub(statement: ast.stmt) -> bool:
    """Whether a definition is a function that does nothing yet: a docstring, `...`, `pass`, NotImplementedError."""
    if not isinstance(statement, ast.FunctionDef):
        return False
    return all(
        isinstance(line, ast.Pass)
        or (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))
        or (isinstance(line, ast.Raise) and line.exc is not None and "NotImplementedError" in ast.unparse(line.exc))
        for line in statement.body
    )


def _binds(statement: ast.stmt) -> set[str]:
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


def _changes(statement: ast.stmt) -> set[str]:
    """The variable that a call for its effect changes, as in `names.append("a")`."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute() as method)):
            return _root(method)
    return set()


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


def _uses(statement: ast.stmt) -> set[str]:
    """The names of the page that a statement looks up, in functions too, where a local variable is none of them."""
    names, tables = set(), [symtable.symtable(ast.unparse(statement), "<page>", "exec")]
    while tables:
        table = tables.pop()
        names |= {
            symbol.get_name()
            for symbol in table.get_symbols()
            if symbol.is_referenced() and (symbol.is_global() or table.get_type() == "module")
        }
        tables += table.get_children()
    return names
