"""Run the statements of a file that its answer needs; if the answer then fails, also all statements before it."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import jax

from grader.answers import find
from grader.answers.running import Page
from grader.exercises import registry
from grader.tracing import failures
from grader.util.words import with_article
from grader.verdicts.error_questions import about_exception
from grader.verdicts.verdict import Finding, FindingKind, Outcome, Verdict, not_judged


@dataclass(frozen=True)
class Answer:
    """The value of an answer's name, and the name of the exercise."""

    exercise: str
    function: Callable


def find_answer(path: Path, exercise: str | None) -> find.SlicedAnswer | Verdict:
    """Find the answer in a file, without running anything; return a verdict if there is none.

    Args:
      path: a notebook or a Python file.
      exercise: the exercise whose answer to look for; None for the only one in the file.
    """
    try:
        return find.read(path, exercise)
    except find.AnotherExercise as error:
        finding = Finding(FindingKind.ANOTHER_EXERCISE, str(error))
        return Verdict(exercise or path.stem, Outcome.NOT_ATTEMPTED, (finding,))
    except find.NoAnswer as error:
        return not_judged(exercise or path.stem, str(error))


def run_answer(sliced: find.SlicedAnswer, path: Path) -> Iterator[Answer | Verdict]:
    """Run the statements that an answer needs; on request, also all other statements before the answer's check.

    An answer's dependencies are found without running anything, so effects of calls may be missed. The caller decides:
    if the first answer passes, nothing else in the file runs.

    Args:
      sliced: the answer.
      path: its file, a notebook or a Python file.

    Yields:
      The answer, or a verdict if it cannot be run; a second time if further statements may make a difference.
    """
    if devices := getattr(registry.task(sliced.exercise), "devices", None):
        # JAX already started with fewer devices; code that needs more raises an error.
        with contextlib.suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", devices)
    folder = path.parent.resolve()
    sys.path.insert(0, str(folder))  # notebooks import from their own folder
    with Page(sliced.module) as page:
        yield _run_statements(sliced, page, sliced.statements, False, folder)
    if sliced.before:
        with Page(sliced.module) as page:
            yield _run_statements(sliced, page, sliced.before, True, folder)


def _run_statements(
    sliced: find.SlicedAnswer, page: Page, statements: tuple, keep_on: bool, folder: Path
) -> Answer | Verdict:
    name = sliced.exercise
    try:
        with contextlib.chdir(folder):  # and read files from it
            page.run(statements, keep_on)
        answer = page.names[name]
    except (Exception, SystemExit) as error:
        failure = failures.failure_of(error)
        missing = isinstance(error, ImportError | FileNotFoundError)
        finding = Finding(
            FindingKind.DOES_NOT_RUN,
            f"Your answer cannot be checked, because its cell raises {failure.text}",
            source=failure.source,
            next="Only your page and this course's packages are available during grading. Can you put the missing "
            "code or data into a cell?"
            if missing
            else about_exception(failure.text, failure.source)
            or "Restart the kernel and run the page from top to bottom. At which line does it stop?",
        )
        return Verdict(name, Outcome.NOT_PASSED, (finding,))
    if not callable(answer):
        return not_judged(name, f"{name} is {with_article(type(answer).__name__)}, not a function ({sliced.place()}).")
    return Answer(name, answer)
