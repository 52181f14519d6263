"""Run the statements of a file that its answer needs and, if that does not pass, all that come before it."""

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
    """What an answer's name is bound to, and the exercise's name."""

    exercise: str
    function: Callable


def read_answers(
    path: Path, exercise: str | None, found: Callable[[find.SlicedAnswer], None] = lambda answer: None
) -> Iterator[Answer | Verdict]:
    """Run a file as far as its answer needs; then, if asked for more, all of it that comes before the answer's check.

    What an answer builds on is found without running anything, and so may miss what a call does on the way. Whoever
    judges decides: where the first answer passes, nothing else of the file runs.

    Args:
      path: a notebook or a Python file.
      exercise: which exercise's answer to look for; None for the one that there is.
      found: called with the sliced answer before anything of the learner's runs.

    Yields:
      The answer, or the verdict that there is none: once, and once more if more statements may make a difference.
    """
    try:
        sliced = find.read(path, exercise)
    except find.AnotherExercise as error:
        yield Verdict(
            exercise or path.stem, Outcome.NOT_ATTEMPTED, (Finding(FindingKind.ANOTHER_EXERCISE, str(error)),)
        )
        return
    except find.NoAnswer as error:
        yield not_judged(exercise or path.stem, str(error))
        return
    found(sliced)
    if devices := getattr(registry.task(sliced.exercise), "devices", None):
        with contextlib.suppress(RuntimeError):  # JAX has begun with fewer: what needs more says so
            jax.config.update("jax_num_cpu_devices", devices)
    folder = path.parent.resolve()
    sys.path.insert(0, str(folder))  # a notebook's own folder is where it imports from
    with Page(sliced.module) as page:
        yield (first := _run_statements(sliced, page, sliced.statements, False, folder))
    # Where the same ones raise, the answer may be one without the line that does.
    if sliced.before and (isinstance(first, Verdict) or sliced.before != sliced.statements):
        with Page(sliced.module) as page:
            yield _run_statements(sliced, page, sliced.before, True, folder)


def _run_statements(
    sliced: find.SlicedAnswer, page: Page, statements: tuple, keep_on: bool, folder: Path
) -> Answer | Verdict:
    name = sliced.exercise
    try:
        with contextlib.chdir(folder):  # and where it finds files
            page.run(statements, keep_on)
        answer = page.names[name]
    except (Exception, SystemExit) as error:
        failure = failures.failure_of(error)
        missing = isinstance(error, ImportError | FileNotFoundError)
        finding = Finding(
            FindingKind.RAISES,
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
