"""Show the next hint, and the worked answer next to the learner's own."""

import ast
import dataclasses
import importlib
import inspect

from markupsafe import Markup
from rich.console import Console, ConsoleOptions, RenderResult
from rich.syntax import Syntax
from rich.text import Text

import rematscope
from grader.exercises import registry
from grader.exercises.feedback import next_hint
from grader.learner.progress import Progress
from grader.tracing.apply import applied
from grader.verdicts.verdict import Outcome, Verdict
from grader.verdicts.views import Note, as_view, box, python_html, text_html
from rematscope.render import View

HONEST_ATTEMPTS = 3
_FIX_FIRST = "Fix this and check again: hints respond to what an answer computes and saves."


def hint(exercise: str, progress: Progress) -> Note:
    """Show the next hint below the earlier ones, and record that it was shown."""
    hints = registry.expect(exercise).feedback.hints
    attempts = progress.attempts(exercise)
    # A learner who has passed may try a different answer and need hints for it.
    if attempts and attempts[-1].verdict.passed:
        return Note("You have passed this exercise", "`solution()` shows a worked answer next to yours.")
    findings = attempts[-1].verdict.findings if attempts else ()
    given = [key for key in progress.hints(exercise) if key in hints]
    if findings and not attempts[-1].verdict.ran:
        # A hint about the exercise would not help with a misspelled name, so none is used up.
        asks = [finding.next for finding in findings if finding.next]
        earlier = ["Earlier hints, latest first:", *(hints[each].text for each in reversed(given))] if given else []
        judged = attempts[-1].verdict.outcome != Outcome.NOT_JUDGED
        headline = f"Your last answer {'did not run' if judged else 'could not be judged'}"
        return Note(headline, findings[0].text, *asks[:1], _FIX_FIRST, *earlier)
    key = next_hint(hints, findings, given)
    if key is not None:
        progress.note_hint(exercise, key)
        given = [*given, key]
    # The newest hint first, because it may be about a different finding than the earlier ones.
    texts = [hints[each].text for each in reversed(given)]
    if key is not None and len(texts) > 1:
        texts.insert(1, "Earlier hints, latest first:")
    headline = f"Hint {len(given)}" if key is not None else "All hints so far, latest first"
    if next_hint(hints, findings, given) is not None:
        return Note(headline, *texts, "Ask again for the next hint.")
    after = "" if attempts else " Check your answer first, so that hints can respond to the result."
    return Note(
        headline,
        *texts,
        f"No further hint fits the last check.{after} `solution()` tells you when the worked answer is available.",
    )


def solution(exercise: str, progress: Progress, anyway: bool, last: Verdict | None = None) -> View:
    """Return the worked answer next to the learner's own, or what the learner must do to see it.

    Args:
      exercise: the exercise's name.
      progress: the learner's progress.
      anyway: whether to show the worked answer in any case.
      last: the verdict of the last attempt, if available; progress contains only its text.
    """
    attempts = progress.attempts(exercise)
    done = progress.honest_attempts(exercise)
    if not (anyway or progress.passed(exercise) or done >= HONEST_ATTEMPTS):
        so_far = ("none", "one", "two")[done]
        return Note(
            "The worked answer is not available yet",
            f"It becomes available after a pass, or after three different attempts that run (so far: {so_far}). Try a "
            "hint first.",
            "To see it anyway, run `solution(anyway=True)`, or add `--anyway` in a terminal.",
        )
    own = attempts[-1] if attempts else None
    return Worked(exercise, own.source if own else "", (last or own.verdict).residuals if own else None)


class Worked(View):
    """An exercise's worked answer next to the learner's own, and what each of them saves.

    Args:
      exercise: the exercise's name.
      own: the Python code of the learner's answer; "" if there is none.
      saved: the residuals of the learner's answer, as a table or its text, or None.
    """

    def __init__(self, exercise: str, own: str, saved: View | str | None):
        self.exercise = exercise
        module = importlib.import_module(f"solutions.{exercise}")
        case = registry.task(exercise).shown
        answer = getattr(module, exercise)
        table = rematscope.residual_table(applied(answer, case), *case.arguments) if case else None
        self.saves = f"Saved residuals ({case.name})" if case else ""
        # The module's docstring consists of paragraphs, which are wrapped to the available width, unlike code.
        text = inspect.getsource(module)
        head, *_ = ast.parse(text).body
        code = "\n".join(text.splitlines()[head.end_lineno :]).strip()
        self.columns = [_Column("The worked answer", (inspect.getdoc(module) or "").split("\n\n"), code, table)]
        if own:
            self.columns.insert(0, _Column("Your last attempt", [], own.strip(), saved))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for column in self.columns:
            yield Text(f"{column.title}: {self.exercise}\n", style="bold")
            for paragraph in column.paragraphs:
                is_code_or_list = paragraph.startswith(("    ", "* "))
                yield Text((paragraph if is_code_or_list else paragraph.replace("\n", " ")) + "\n")
            yield Syntax(column.code, "python", theme="github-dark", word_wrap=True)
            yield Text()
            if column.saved is not None:
                yield Text(self.saves, style="bold")
                yield as_view(column.saved)
                yield Text()

    def html(self) -> Markup:
        # A wide table scrolls in its column, also with the keyboard.
        column = Markup(
            '<div style="flex: 1 1 30em; min-width: 0; overflow-x: auto" tabindex="0" role="group" aria-label="{}">'
            "{}</div>"
        )
        columns = (column.format(c.title, box(self._column_html(c), headline=c.title)) for c in self.columns)
        row = Markup('<div style="display: flex; flex-wrap: wrap; gap: 1em">{}</div>')
        return row.format(Markup().join(columns))

    def _column_html(self, column: "_Column") -> Markup:
        page = Markup().join(map(_paragraph_html, column.paragraphs)) + python_html(column.code)
        if column.saved is None:
            return page
        headline = Markup("<p><strong>{}</strong></p>").format(text_html(self.saves))
        return page + headline + Markup(as_view(column.saved).html())


@dataclasses.dataclass(frozen=True)
class _Column:
    title: str
    paragraphs: list[str]
    code: str
    saved: View | str | None


def _paragraph_html(paragraph: str) -> Markup:
    if paragraph.startswith("    "):
        return python_html(paragraph)
    if paragraph.startswith("* "):
        points = paragraph.removeprefix("* ").split("\n* ")
        return Markup("<ul>{}</ul>").format(
            Markup().join(Markup("<li>{}</li>").format(text_html(point)) for point in points)
        )
    return Markup("<p>{}</p>").format(text_html(paragraph))
