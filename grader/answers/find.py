"""Find the answer in what a learner hands in: a notebook or a Python file, read as text, run only as far as needed.

The answer is found by its name, wherever it stands, so that cells may be renamed, moved or copied. Of the rest of the
page only those statements run that the answer builds on: imports, helper functions, constants. The page's checks,
demonstrations and plots do not.
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
from typing import Any

from grader.answers.cells import AnswerSource, PlacedStatement, segment, statements_of
from grader.answers.effects import bound_names
from grader.answers.running import Page
from grader.answers.slicing import is_future, is_script, is_stub, slice_of
from grader.exercises import registry

# A page has some hundred. What depends on what is found in the square of them, and a page can be megabytes long.
MOST_STATEMENTS = 5_000


class NoAnswer(Exception):
    """There is no answer to be found; the message says why and what to do."""


class AnotherExercise(NoAnswer):
    """There is no answer to what is asked, but one to another exercise: a learner's other page, not a mistake."""


@dataclass(frozen=True)
class SlicedAnswer:
    """An answer, with the statements that it builds on, in the order in which they stand.

    Attributes:
      exercise: the exercise's name.
      statements: what the answer builds on, as far as that can be read.
      before: all that runs before the answer is checked and may bear on it, should that not be enough; none if there
        is no more to it.
      kept: what is written down as its text.
      module: what `__name__` is to them.
    """

    exercise: str
    statements: tuple[PlacedStatement, ...]
    before: tuple[PlacedStatement, ...]
    kept: tuple[PlacedStatement, ...]
    module: str

    def answer(self) -> Any:
        """Runs the statements and returns what the answer's name is then bound to. Raises whatever they raise."""
        with Page(self.module) as page:
            page.run(self.statements)
            return page.names[self.exercise]

    def is_stub(self) -> bool:
        """Whether there is no answer yet, but the stub that the page came with."""
        return all(is_stub(statement) for _, statement in self._definitions())

    def place(self) -> str:
        """Where the answer's name is bound last, as a learner calls that cell and line."""
        source, node = self._definitions()[-1]
        return f"{source.place}:{node.lineno}"

    @property
    def text(self) -> str:
        """What is kept as a program of its own, formatted and commented as it was; "" if there is nothing."""
        pieces = [segment(source, (s,)) for source, s in self.kept if is_future(s)]  # Python wants them first
        for source, group in itertools.groupby(self.kept, key=operator.itemgetter(0)):
            pieces += [segment(source, run) for run in _runs(source, [s for _, s in group if not is_future(s)])]
        return "\n\n".join(pieces) + "\n" if pieces else ""

    def _definitions(self) -> list[PlacedStatement]:
        return [each for each in self.statements if self.exercise in bound_names(each.node)]


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
    statements, broken = _parse(_few(path, _sources(path), "cells"))
    _few(path, statements, "statements")
    statements = [*itertools.chain.from_iterable(_in_place_of(*each) for each in broken), *statements]
    if path.suffix == ".py":
        statements = [each for each in statements if not is_script(each.node)]
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
    module = "__main__" if path.suffix == ".ipynb" else "submission"
    sliced = SlicedAnswer(found[0], *slice_of(found[0], statements), module)
    return dataclasses.replace(sliced, before=(), kept=sliced.statements) if sliced.is_stub() else sliced


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
    return SlicedAnswer(exercise, *slice_of(exercise, statements), "__main__")


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


def _few[T](path: Path, pieces: list[T], what: str) -> list[T]:
    if len(pieces) > MOST_STATEMENTS:
        raise NoAnswer(
            f"{path.name} has {len(pieces):,} {what}, and at most {MOST_STATEMENTS:,} are looked at: put the answer, "
            "and what it needs, into a file of its own."
        )
    return pieces


def _parse(
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


def _in_place_of(source: AnswerSource, error: Exception) -> Iterator[PlacedStatement]:
    """Functions in place of those that a cell would define which is no Python: whoever calls one is told that cell."""
    line = f":{error.lineno}" if isinstance(error, SyntaxError) else ""
    named = {name for name in _FUNCTION.findall(source.text) if name.isidentifier() and not keyword.iskeyword(name)}
    for name in sorted(named.difference(registry.names())):
        why = f"name {name!r} is not defined; it stands in {source.place}{line}: {getattr(error, 'msg', error)}"
        text = f"def {name}(*_, **__):\n    raise NameError({why!r})\n"
        yield from statements_of(AnswerSource(source.place, text))


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
