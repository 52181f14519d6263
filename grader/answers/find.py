"""Find the answer in what a learner hands in: a notebook or a Python file, read as text, run only as far as needed.

The answer is found by its name, wherever it stands, so that cells may be renamed, moved or copied. Of the rest of the
page only those statements run that the answer builds on: imports, helper functions, constants. The page's checks,
demonstrations and plots do not.
"""

import __future__

import ast
import functools
import itertools
import json
import linecache
import operator
import symtable
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.answers.slicing import (
    AnswerSource,
    PlacedStatement,
    bound_names,
    is_future,
    is_stub,
    needed_statements,
    segment,
)
from grader.exercises import registry


class NoAnswer(Exception):
    """There is no answer to be found; the message says why and what to do."""


class AnotherExercise(NoAnswer):
    """There is no answer to what is asked, but one to another exercise: a learner's other page, not a mistake."""


@dataclass(frozen=True)
class SlicedAnswer:
    """An answer, with the statements that it builds on, in the order in which they stand."""

    exercise: str
    statements: tuple[PlacedStatement, ...]

    def answer(self) -> Any:
        """Runs the statements and returns what the answer's name is then bound to. Raises whatever they raise."""
        namespace: dict[str, Any] = {"__name__": "submission", "__builtins__": __builtins__}
        for source, statement in self.statements:
            # So that tracebacks can quote the line.
            linecache.cache[source.place] = (len(source.text), None, source.text.splitlines(True), source.place)
            exec(compile(ast.Module([statement], []), source.place, "exec", self._future()), namespace)
        return namespace[self.exercise]

    def is_stub(self) -> bool:
        """Whether there is no answer yet, but the stub that the page came with."""
        return all(is_stub(statement) for _, statement in self.statements if self.exercise in bound_names(statement))

    @property
    def text(self) -> str:
        """The statements as a program of their own, formatted and commented as they were; "" if there are none."""
        pieces = [segment(source, (s,)) for source, s in self.statements if is_future(s)]  # Python wants them first
        for source, group in itertools.groupby(self.statements, key=operator.itemgetter(0)):
            pieces += [segment(source, run) for run in _runs(source, [s for _, s in group if not is_future(s)])]
        return "\n\n".join(pieces) + "\n" if pieces else ""

    def _future(self) -> int:
        """`from __future__ import …` holds for all of a file, and here each statement is compiled by itself."""
        imports = [statement for _, statement in self.statements if is_future(statement)]
        features = [getattr(__future__, alias.name).compiler_flag for s in imports for alias in s.names]
        return functools.reduce(operator.or_, features, 0)


def _runs(source: AnswerSource, kept: Sequence[ast.stmt]) -> Iterator[Sequence[ast.stmt]]:
    """Statements of a piece of Python: what stood together stays together, with the lines between."""
    places = {(statement.lineno, statement.col_offset) for statement in kept}
    groups = itertools.groupby(ast.parse(source.text).body, key=lambda s: (s.lineno, s.col_offset) in places)
    return (tuple(run) for together, run in groups if together)


def read(path: Path, exercise: str | None = None) -> SlicedAnswer:
    """Finds the answer in a file, without running anything.

    Args:
      path: a notebook or a Python file.
      exercise: which exercise's answer to look for; None for the one that there is.

    Raises:
      AnotherExercise: there is none to what is asked, but to another one.
      NoAnswer: there is none, or more than one.
    """
    statements, broken = _parse(_sources(path))
    defined = {name for _, statement in statements for name in bound_names(statement)}
    found = [name for name in registry.names() if name in defined and exercise in (None, name)]
    if len(found) > 1:
        raise NoAnswer(f"{path.name} answers {' and '.join(found)}: put each answer into a file of its own.")
    if not found:
        asked = [exercise] if exercise else registry.names()
        if defined.intersection(registry.names()) and not any(name in s.text for name in asked for s, _ in broken):
            raise AnotherExercise(
                f"{path.name} answers another exercise: {exercise} needs a function of that name, as its page has it."
            )
        raise NoAnswer(_no_answer(path, defined, broken, asked))
    return SlicedAnswer(found[0], tuple(needed_statements(found[0], statements)))


def of_cells(cells: Sequence[str], exercise: str) -> SlicedAnswer:
    """Finds the answer in what a session has run.

    Args:
      cells: the cells' texts in the order in which they ran, each as often as it ran, as in IPython's `In`.
      exercise: the exercise's name.

    Returns:
      What the answer builds on, but for definitions that others have replaced since; no statements if it is not among
      the cells. Cells that are not Python are left out.
    """
    statements, _ = _parse(AnswerSource(f"In [{number}]", text) for number, text in enumerate(cells))
    return SlicedAnswer(exercise, tuple(needed_statements(exercise, statements)))


def fingerprint(text: str) -> frozenset[str]:
    """What two texts of an answer share if they differ in nothing but comments, formatting and order."""
    try:
        return frozenset(map(ast.dump, ast.parse(text).body))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset({text})


def _sources(path: Path) -> list[AnswerSource]:
    if path.suffix not in (".ipynb", ".py"):
        raise NoAnswer(f"{path.name} is neither a notebook (.ipynb) nor a Python file (.py): name one of those.")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise NoAnswer(f"There is no file {path}: check its name and the folder you are in.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise NoAnswer(f"{path} cannot be read ({error}): save it again, as UTF-8 text.") from None
    if path.suffix == ".py":
        return [AnswerSource(path.name, text)]
    try:
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        texts = ["".join(cell["source"]) for cell in cells]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise NoAnswer(
            f"{path.name} is not a notebook that can be read: open it in JupyterLab and save it again."
        ) from None
    return [AnswerSource(f"{path.name} cell {number}", text) for number, text in enumerate(texts, 1)]


def _parse(
    sources: Iterable[AnswerSource],
) -> tuple[list[PlacedStatement], list[tuple[AnswerSource, Exception]]]:
    statements: list[PlacedStatement] = []
    broken: list[tuple[AnswerSource, Exception]] = []
    for source in sources:
        try:
            source = _python(source)
            tree = ast.parse(source.text)
            symtable.symtable(source.text, source.place, "exec")  # refuses more: a return outside of a function, say
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            broken.append((source, error))
            continue
        statements += [PlacedStatement(source, statement) for statement in tree.body]
    return statements, broken


def _python(source: AnswerSource) -> AnswerSource:
    text = source.text.replace("\r\n", "\n").replace("\r", "\n")  # as Python counts lines
    try:
        ast.parse(text)
    except SyntaxError:
        # Only now: a line of plain Python may begin with % too, inside a string or an expression.
        text = _without_magics(text)
    return AnswerSource(source.place, text)


def _without_magics(text: str) -> str:
    """Blanks IPython's own lines, so that the others keep their numbers; `%%time` times a cell that is Python."""
    lines = text.split("\n")
    first = next((line for line in lines if line.strip()), "")
    if first.startswith("%%") and first.split()[0] not in ("%%time", "%%timeit", "%%capture", "%%prun"):
        return ""
    magic = ("%", "!", "?")
    return "\n".join("" if line.lstrip().startswith(magic) or line.rstrip().endswith("?") else line for line in lines)


def _no_answer(
    path: Path, defined: set[str], broken: list[tuple[AnswerSource, Exception]], names: Sequence[str]
) -> str:
    for source, error in broken:
        if any(name in source.text for name in names):
            line = f":{error.lineno}" if isinstance(error, SyntaxError) else ""
            return f"The answer is not valid Python: {source.place}{line}: {getattr(error, 'msg', error)}."
    asked = " or ".join(names)
    for name in sorted(defined.difference(registry.names())):
        if registry.closest(name).startswith("did you mean"):
            return f"{path.name} defines {name}, which is not an exercise; {registry.closest(name)}"
    return f"{path.name} has no answer: it needs a function named {asked}, as the exercise's page has it."
