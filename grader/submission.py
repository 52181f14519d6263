"""Find the answer in what a learner hands in: a notebook or a Python file, read as text, run only as far as needed.

The answer is found by its name, wherever it stands, so that cells may be renamed, moved or copied. Of the rest of the
page only those statements run that the answer builds on: imports, helper functions, constants. The page's checks,
demonstrations and plots do not.
"""

import __future__

import ast
import bisect
import collections
import functools
import itertools
import json
import linecache
import operator
import symtable
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from grader import exercise as exercises


class SubmissionError(Exception):
    """There is no answer to be found; the message says why and what to do."""


class AnotherExercise(SubmissionError):
    """There is no answer to what is asked, but one to another exercise: a learner's other page, not a mistake."""


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

    def is_stub(self) -> bool:
        """Whether there is no answer yet, but the stub that the page came with."""
        return all(_is_stub(statement) for _, statement in self.statements if self.exercise in _binds(statement))

    @property
    def text(self) -> str:
        """The statements as a program of their own, formatted and commented as they were; "" if there are none."""
        pieces = [_segment(source, (s,)) for source, s in self.statements if _is_future(s)]  # Python wants them first
        for source, group in itertools.groupby(self.statements, key=operator.itemgetter(0)):
            kept = {(s.lineno, s.col_offset) for _, s in group if not _is_future(s)}
            # What stood together stays together, with the lines between.
            for together, run in itertools.groupby(
                ast.parse(source.text).body, key=lambda s, kept=kept: (s.lineno, s.col_offset) in kept
            ):
                if together:
                    pieces.append(_segment(source, tuple(run)))
        return "\n\n".join(pieces) + "\n" if pieces else ""

    def _future(self) -> int:
        """`from __future__ import …` holds for all of a file, and here each statement is compiled by itself."""
        imports = [statement for _, statement in self.statements if _is_future(statement)]
        features = [getattr(__future__, alias.name).compiler_flag for s in imports for alias in s.names]
        return functools.reduce(operator.or_, features, 0)


def read(path: Path, exercise: str | None = None) -> Submission:
    """Finds the answer in a file, without running anything.

    Args:
      path: a notebook or a Python file.
      exercise: which exercise's answer to look for; None for the one that there is.

    Raises:
      AnotherExercise: there is none to what is asked, but to another one.
      SubmissionError: there is none, or more than one.
    """
    statements, broken = _parse(_sources(path))
    defined = {name for _, statement in statements for name in _binds(statement)}
    found = [name for name in exercises.names() if name in defined and exercise in (None, name)]
    if len(found) > 1:
        raise SubmissionError(f"{path.name} answers {' and '.join(found)}: put each answer into a file of its own.")
    if not found:
        asked = [exercise] if exercise else exercises.names()
        if defined.intersection(exercises.names()) and not any(name in s.text for name in asked for s, _ in broken):
            raise AnotherExercise(
                f"{path.name} answers another exercise: {exercise} needs a function of that name, as its page has it."
            )
        raise SubmissionError(_no_answer(path, defined, broken, asked))
    return Submission(found[0], tuple(_needed(found[0], statements)))


def of_cells(cells: Sequence[str], exercise: str) -> Submission:
    """Finds the answer in what a session has run.

    Args:
      cells: the cells' texts in the order in which they ran, each as often as it ran, as in IPython's `In`.
      exercise: the exercise's name.

    Returns:
      What the answer builds on, but for definitions that others have replaced since; no statements if it is not among
      the cells. Cells that are not Python are left out.
    """
    statements, _ = _parse(Source(f"In [{number}]", text) for number, text in enumerate(cells))
    return Submission(exercise, tuple(_needed(exercise, statements)))


def fingerprint(text: str) -> frozenset[str]:
    """What two texts of an answer share if they differ in nothing but comments, formatting and order."""
    try:
        return frozenset(map(ast.dump, ast.parse(text).body))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset({text})


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
            source = _python(source)
            tree = ast.parse(source.text)
            symtable.symtable(source.text, source.place, "exec")  # refuses more: a return outside of a function, say
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            broken.append((source, error))
            continue
        statements += [(source, statement) for statement in tree.body]
    return statements, broken


def _python(source: Source) -> Source:
    text = source.text.replace("\r\n", "\n").replace("\r", "\n")  # as Python counts lines
    try:
        ast.parse(text)
    except SyntaxError:
        # Only now: a line of plain Python may begin with % too, inside a string or an expression.
        text = _without_magics(text)
    return Source(source.place, text)


def _segment(source: Source, statements: Sequence[ast.stmt]) -> str:
    """The text of statements that follow each other, with the comments above them and behind them."""
    lines = [line.encode() for line in source.text.split("\n")]  # columns count bytes
    first, last = statements[0], statements[-1]
    start = min([first.lineno, *(decorator.lineno for decorator in getattr(first, "decorator_list", ()))]) - 1
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


def _without_magics(text: str) -> str:
    """Blanks IPython's own lines, so that the others keep their numbers; `%%time` times a cell that is Python."""
    lines = text.split("\n")
    first = next((line for line in lines if line.strip()), "")
    if first.startswith("%%") and first.split()[0] not in ("%%time", "%%timeit", "%%capture", "%%prun"):
        return ""
    magic = ("%", "!", "?")
    return "\n".join("" if line.lstrip().startswith(magic) or line.rstrip().endswith("?") else line for line in lines)


def _no_answer(path: Path, defined: set[str], broken: list[tuple[Source, Exception]], names: Sequence[str]) -> str:
    for source, error in broken:
        if any(name in source.text for name in names):
            line = f":{error.lineno}" if isinstance(error, SyntaxError) else ""
            return f"The answer is not valid Python: {source.place}{line}: {getattr(error, 'msg', error)}."
    asked = " or ".join(names)
    for name in sorted(defined.difference(exercises.names())):
        if exercises.closest(name).startswith("did you mean"):
            return f"{path.name} defines {name}, which is not an exercise; {exercises.closest(name)}"
    return f"{path.name} has no answer: it needs a function named {asked}, as the exercise's page has it."


def _needed(answer: str, statements: list[tuple[Source, ast.stmt]]) -> list[tuple[Source, ast.stmt]]:
    """The statements that the answer builds on. A definition that is replaced before anything uses it is none of them.

    Neither is a stub of the answer, unless there is nothing else.
    """
    binds = functools.cache(_binds)
    statements = [pair for pair in statements if not _is_script(pair[1])]
    definitions = [statement for _, statement in statements if answer in binds(statement)]
    if not all(map(_is_stub, definitions)):
        statements = [pair for pair in statements if not (answer in binds(pair[1]) and _is_stub(pair[1]))]
    binding, changing = collections.defaultdict(list), collections.defaultdict(list)
    for index, (_, statement) in enumerate(statements):
        for name in binds(statement):
            binding[name].append(index)
        for name in _changes(statement):
            changing[name].append(index)
    everything = binding.pop("*", [])
    binders = {name: sorted({*indices, *everything}) for name, indices in binding.items()}
    replaces = [_replaces(statement) for _, statement in statements]
    uses = functools.cache(lambda index: _uses(*statements[index]))
    kept = {index for index, (_, statement) in enumerate(statements) if _is_future(statement)}
    # A name's value at a moment, counted in statements: what bound it last, and what changed it since.
    todo, done = {(answer, len(statements))}, set()
    while todo:
        done.add(asked := todo.pop())
        name, when = asked
        found, since = [], -1
        for index in _before(binders.get(name, everything), when):
            found.append(index)
            if name in replaces[index]:
                since = index
                break
        if not all(map(_is_constant, (statements[index][1] for index in found))):
            found += itertools.takewhile(lambda index, since=since: index > since, _before(changing[name], when))
        for index in found:
            at_once, whenever = uses(index)
            if index not in kept:
                kept.add(index)
                todo |= {(used, index) for used in at_once} - done
            if whenever:
                todo |= {(used, when) for used in whenever} - done
    return [pair for index, pair in enumerate(statements) if index in kept]


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


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _is_script(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and "__name__" in {getattr(n, "id", None) for n in ast.walk(statement.test)}


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


def _uses(source: Source, statement: ast.stmt) -> tuple[set[str], set[str]]:
    """The names of the page that a statement looks up when it runs, and those that it looks up whenever it is called.

    A local variable of a function is neither.
    """
    tables = list(_tables(symtable.symtable(_segment(source, (statement,)), source.place, "exec")))
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
