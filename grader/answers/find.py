"""Find the answer in a notebook or Python file that a learner hands in, without running it.

The answer is found by its name anywhere in the file, so cells may be renamed, moved or copied. Only statements that the
answer depends on run: imports, helper functions, constants. The page's checks, demonstrations and plots do not run.
"""

import ast
import dataclasses
import itertools
import json
import keyword
import operator
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from grader.answers.cells import AnswerSource, PlacedStatement, segment, statements_of
from grader.answers.effects import bound_names
from grader.answers.slicing import is_future, is_script, is_stub, slice_of
from grader.exercises import registry

# A page has about a hundred statements. The time to find dependencies grows with the square of their number, and a
# hostile page can be megabytes long.
MOST_STATEMENTS = 5_000

SUFFIXES = (".ipynb", ".py")  # the types of files with answers; `submission_file.SUFFIX` is that of `submit`


class NoAnswer(Exception):
    """Raised if a file contains no answer; the message gives the reason and the next step."""


class AnotherExercise(NoAnswer):
    """Raised if a file has no answer to the given exercise, but to another one. This is not a mistake of the
    learner."""


@dataclass(frozen=True)
class SlicedAnswer:
    """An answer and the statements that it depends on, in the order of the page.

    Attributes:
      exercise: the exercise's name.
      statements: the statements that the answer depends on, as far as its text shows. A definition that is replaced
        before its first use is left out, and so is the answer's stub, unless the page has nothing else. A statement
        above the check that may change the value of a dependency is included.
      before: the statements that run before the answer is checked, in case `statements` are not enough, without checks,
        plots and magics that the answer does not depend on. If the last check is below the answer, these are the
        statements above that check; else they are all statements of the page. Empty if the others only bind their own
        names.
      kept: the statements that are handed in as the text of the answer: `statements`, and if these look up names by
        strings, also the others above the check.
      module: the value of `__name__` for these statements.
      replaced: the places of other definitions of the answer, which are not stubs but have no effect.
    """

    exercise: str
    statements: tuple[PlacedStatement, ...]
    before: tuple[PlacedStatement, ...]
    kept: tuple[PlacedStatement, ...]
    module: str
    replaced: tuple[str, ...] = ()

    def is_stub(self) -> bool:
        """Return whether the answer is still the page's stub."""
        return all(is_stub(statement) for _, statement in self._answer_definitions())

    def place(self) -> str:
        """Return the cell and line where the answer's name is bound last, in words for the learner."""
        return _place_of(self._answer_definitions()[-1])

    @property
    def text(self) -> str:
        """The handed-in statements as a program, with their formatting and comments; "" if there are none."""
        pieces = [segment(source, (s,)) for source, s in self.kept if is_future(s)]  # must come first
        for source, group in itertools.groupby(self.kept, key=operator.itemgetter(0)):
            pieces += [
                segment(source, run) for run in _adjacent_statements(source, [s for _, s in group if not is_future(s)])
            ]
        return "\n\n".join(pieces) + "\n" if pieces else ""

    def _answer_definitions(self) -> list[PlacedStatement]:
        return [each for each in self.statements if self.exercise in bound_names(each.node)]


def _adjacent_statements(source: AnswerSource, kept: Sequence[ast.stmt]) -> Iterator[Sequence[ast.stmt]]:
    """Group statements of a piece of Python: adjacent statements stay together, with the lines between them."""
    places = {(statement.lineno, statement.col_offset) for statement in kept}
    groups = itertools.groupby(ast.parse(source.text).body, key=lambda s: (s.lineno, s.col_offset) in places)
    return (tuple(run) for together, run in groups if together)


def read(path: Path, exercise: str | None = None) -> SlicedAnswer:
    """Find the answer in a file, without running anything.

    Args:
      path: a notebook or a Python file.
      exercise: the exercise whose answer to look for; None if the file has a single answer.

    Raises:
      AnotherExercise: if the file has no answer to this exercise, but to another one.
      NoAnswer: if the file has no answer, or more than one.
    """
    statements, broken = _parse_sources(_refuse_too_many(path, _read_sources(path), "cells"))
    _refuse_too_many(path, statements, "statements")
    statements = [*itertools.chain.from_iterable(_stand_ins_for(*each) for each in broken), *statements]
    if _kind_of(path) == ".py":
        statements = [each for each in statements if not is_script(each.node)]
    defined = {name for _, statement in statements for name in bound_names(statement)}
    found = [name for name in registry.names() if name in defined and exercise in (None, name)]
    if len(found) > 1:
        raise NoAnswer(f"{path.name} defines {' and '.join(found)}. Put each answer in its own file.")
    if not found:
        answered = defined.intersection(registry.names())
        if answered and not any(exercise in s.text for s, _ in broken if exercise):
            raise AnotherExercise(f"{path.name} answers {' and '.join(sorted(answered))}, not {exercise}.")
        raise NoAnswer(_no_answer(path, statements, broken, exercise))
    module = "__main__" if _kind_of(path) == ".ipynb" else "submission"
    sliced = SlicedAnswer(found[0], *slice_of(found[0], statements), module)
    if sliced.is_stub():
        return dataclasses.replace(sliced, before=(), kept=sliced.statements)
    # A binding that the answer builds on, such as `f = jax.jit(f)` after `def f`, is not replaced.
    others = [each for each in statements if found[0] in bound_names(each.node) and not is_stub(each.node)]
    replaced = tuple(_place_of(each) for each in others if each not in sliced.statements)
    return dataclasses.replace(sliced, replaced=replaced)


def _place_of(statement: PlacedStatement) -> str:
    """Return the cell and line of a statement, in words for the learner."""
    return statement.source.line_text(statement.node.lineno)


def of_cells(cells: Sequence[str], exercise: str) -> SlicedAnswer:
    """Find the answer in the cells that a session has run.

    Args:
      cells: the texts of the cells in the order in which they ran, as in IPython's `In`. A cell occurs once per run.
      exercise: the exercise's name.

    Returns:
      The statements that the answer depends on, without definitions that others have replaced since; no statements if
      the answer is not among the cells. Cells that are not Python are left out.
    """
    statements, _ = _parse_sources(AnswerSource(f"In [{number}]", text) for number, text in enumerate(cells))
    return SlicedAnswer(exercise, *slice_of(exercise, statements), "__main__")


def fingerprint(text: str) -> frozenset[str]:
    """Return a fingerprint that ignores comments, formatting and the order of statements."""
    try:
        return frozenset(map(ast.dump, ast.parse(text).body))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset({text})


def _kind_of(path: Path) -> str:
    """Return the file's suffix in lower case, because some systems write `ANSWER.PY`."""
    return path.suffix.lower()


def _read_sources(path: Path) -> list[AnswerSource]:
    if _kind_of(path) not in SUFFIXES:
        raise NoAnswer(f"{path.name} is neither a notebook (.ipynb) nor a Python file (.py).")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise NoAnswer(f"File not found: {path}. Check its name and the current folder.") from None
    except OSError as error:
        raise NoAnswer(f"{path.name} cannot be read ({error.strerror}). Name a file that you can read.") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise NoAnswer(f"{path.name} is not UTF-8 text (line {line:,}). Save it again as UTF-8.") from None
    if _kind_of(path) == ".py":
        return [AnswerSource(path.name, text)]
    try:
        texts = _cell_texts(text, code=True)
    except (ValueError, TypeError, KeyError, RecursionError):
        raise NoAnswer(f"{path.name} is not a valid notebook. Open it in JupyterLab and save it again.") from None
    return [AnswerSource(f"{path.name}, code cell {number}", text) for number, text in enumerate(texts, 1)]


def _cell_texts(notebook: str, code: bool) -> list[str]:
    """Return the texts of a notebook's code cells, or of its other cells. Raises various errors if it is not a
    notebook."""
    cells = json.loads(notebook)["cells"]
    return ["".join(cell["source"]) for cell in cells if (cell["cell_type"] == "code") == code]


def _refuse_too_many[T](path: Path, pieces: list[T], what: str) -> list[T]:
    if len(pieces) > MOST_STATEMENTS:
        raise NoAnswer(
            f"{path.name} has {len(pieces):,} {what}; the grader reads at most {MOST_STATEMENTS:,}. Put the answer and "
            "the code that it needs in a separate file."
        )
    return pieces


def _parse_sources(
    sources: Iterable[AnswerSource],
) -> tuple[list[PlacedStatement], list[tuple[AnswerSource, Exception]]]:
    statements: list[PlacedStatement] = []
    broken: list[tuple[AnswerSource, Exception]] = []
    for source in sources:
        try:
            statements += statements_of(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            broken.append((source, error))
    return statements, broken


_FUNCTION = re.compile(r"^(?:async )?def (\w+)\(", re.MULTILINE)


def _stand_ins_for(source: AnswerSource, error: Exception) -> Iterator[PlacedStatement]:
    """Yield stand-ins for the functions that an invalid cell would define. Each raises an error that names the cell."""
    named = {name for name in _FUNCTION.findall(source.text) if name.isidentifier() and not keyword.iskeyword(name)}
    for name in sorted(named.difference(registry.names())):
        why = f"name {name!r} is not defined; its cell is not valid Python ({_syntax_error_text(source, error)})"
        text = f"def {name}(*_, **__):\n    raise NameError({why!r})\n"
        yield from statements_of(AnswerSource(source.place, text))


def _syntax_error_text(source: AnswerSource, error: Exception) -> str:
    """Return the place and the reason of a syntax error, in words."""
    line = error.lineno if isinstance(error, SyntaxError) else None
    place = source.line_text(line) if line else source.place
    return f"{place}: {getattr(error, 'msg', error)}"


def _no_answer(
    path: Path,
    statements: Sequence[PlacedStatement],
    broken: Sequence[tuple[AnswerSource, Exception]],
    exercise: str | None,
) -> str:
    """Return why a file has no answer, and what to do."""
    page = re.sub(r"^\d+_", "", path.stem)  # a page's file name is a number and the name of its exercise
    meant = exercise or (page if page in registry.names() else None)
    names = [meant] if meant else registry.names()
    for source, error in broken:
        if _kind_of(path) == ".py" or any(name in source.text for name in names):
            return f"The answer is not valid Python ({_syntax_error_text(source, error)})."
    if _kind_of(path) == ".ipynb":
        for text in _cell_texts(path.read_text(encoding="utf-8-sig"), code=False):
            if name := next((name for name in _FUNCTION.findall(text) if name in names), None):
                return f"The cell that defines {name} is not a code cell. Change its type from Markdown to Code."
    functions = ast.FunctionDef | ast.AsyncFunctionDef | ast.Assign
    defined = {name for each in statements if isinstance(each.node, functions) for name in bound_names(each.node)}
    for name in sorted(defined):
        if meant_instead := registry.suggestion_for(name):
            return f"{path.name} defines {name}, which is not an exercise; {meant_instead}"
    needed = f"a function named {meant}" if meant else "a function with the name of an exercise"
    invalid = f" A cell is not valid Python ({_syntax_error_text(*broken[0])})." if broken else ""
    return f"{path.name} has no answer: it needs {needed}, as on the exercise's page.{invalid}"
