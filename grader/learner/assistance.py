"""What helps a learner on: the next hint, and the worked answer beside their own."""

import ast
import importlib
import inspect

import rematscope
from grader.answers.apply import applied
from grader.exercises import registry
from grader.exercises.hints import next_hint
from grader.learner.progress import Progress
from grader.verdicts.display import Displayed, Remark, box, python_html, text_html, view_html, view_rich
from grader.verdicts.verdict import Verdict

HONEST_ATTEMPTS = 3


def hint(exercise: str, progress: Progress) -> Remark:
    """Gives the next hint, below those that were given before, and notes that it was given."""
    hints = registry.expect(exercise).hints
    if progress.passed(exercise):
        return Remark("You have passed this exercise", "`solution()` shows a worked answer beside yours.")
    attempts = progress.attempts(exercise)
    findings = attempts[-1].verdict.findings if attempts else ()
    given = progress.hints(exercise)
    index = next_hint(hints, findings, given)
    if index is not None:
        progress.note_hint(exercise, index)
        given = [*given, index]
    # The newest first, since it may be about another finding than those before.
    texts = [hints[i].text for i in reversed(given)]
    if index is not None and len(texts) > 1:
        texts.insert(1, "Those before, the latest first:")
    headline = f"Hint {len(given)}" if index is not None else "All hints so far, the latest first"
    if next_hint(hints, findings, given) is not None:
        return Remark(headline, *texts, "Ask again for the next one.")
    after = "" if attempts else " They know more once you have checked an answer."
    return Remark(
        headline,
        *texts,
        f"There is no other that fits what was found.{after} `solution()` says when the worked answer opens.",
    )


def solution(exercise: str, progress: Progress, anyway: bool, last: Verdict | None = None) -> Displayed:
    """The worked answer beside the learner's own, or what is to be done before it opens.

    Args:
      exercise: the exercise's name.
      progress: where the learner's attempts are.
      anyway: True opens it in any case.
      last: the verdict of the last attempt as it was shown, if it is at hand; progress has its text.
    """
    attempts = progress.attempts(exercise)
    done = progress.honest_attempts(exercise)
    if not (anyway or progress.passed(exercise) or done >= HONEST_ATTEMPTS):
        so_far = ("none", "one", "two")[done]
        return Remark(
            "The worked answer is still closed",
            f"It opens once you have passed, or after three different attempts: {so_far} so far. A hint may be the "
            "better next step.",
            "To see it anyway: `solution(anyway=True)`, or `--anyway` in a terminal.",
        )
    own = attempts[-1] if attempts else None
    return Worked(exercise, own.source if own else "", (last or own.verdict).residuals if own else None)


class Worked(Displayed):
    """An exercise's worked answer beside the learner's own, and what each of them saves.

    Args:
      exercise: the exercise's name.
      own: the learner's answer, Python, or "" if there is none.
      saved: what the learner's answer saves, a table or its text, or None.
    """

    def __init__(self, exercise: str, own: str, saved):
        self.exercise = exercise
        module = importlib.import_module(f"solutions.{exercise}")
        case = registry.task(exercise).shown
        table = case and rematscope.residual_table(applied(getattr(module, exercise), case), *case.arguments)
        self.saves = case and f"It saves, {case.name}:"
        # What the module says of itself are paragraphs, which flow into whatever room there is; code does not.
        text = inspect.getsource(module)
        head, *_ = ast.parse(text).body
        code = "\n".join(text.splitlines()[head.end_lineno :]).strip()
        self.columns = [("The worked answer", inspect.cleandoc(module.__doc__).split("\n\n"), code, table)]
        if own:
            self.columns.insert(0, ("Your last attempt", [], own.strip(), saved))

    def __rich_console__(self, console, options):
        from rich.syntax import Syntax
        from rich.text import Text

        for title, paragraphs, code, saved in self.columns:
            yield Text(f"{title}: {self.exercise}\n", style="bold")
            for paragraph in paragraphs:
                yield Text((paragraph if _keeps_its_lines(paragraph) else paragraph.replace("\n", " ")) + "\n")
            yield Syntax(code, "python", background_color="default", theme="ansi_dark", word_wrap=True)
            yield Text()
            if saved is not None:
                yield Text(self.saves, style="bold")
                yield view_rich(saved)
                yield Text()

    def html(self) -> str:
        columns = "".join(
            f'<div style="flex: 1 1 30em; min-width: 0">{box(self._column(*column), headline=title)}</div>'
            for title, *column in self.columns
        )
        return f'<div style="display: flex; flex-wrap: wrap; gap: 1em">{columns}</div>'

    def _column(self, paragraphs: list[str], code: str, saved) -> str:
        table = "" if saved is None else f"<p><strong>{text_html(self.saves)}</strong></p>{view_html(saved)}"
        return "".join(map(_paragraph_html, paragraphs)) + python_html(code) + table


def _keeps_its_lines(paragraph: str) -> bool:
    """Whether a paragraph of a docstring is code or a list."""
    return paragraph.startswith(("    ", "* "))


def _paragraph_html(paragraph: str) -> str:
    if paragraph.startswith("    "):
        return python_html(paragraph)
    if paragraph.startswith("* "):
        points = paragraph.removeprefix("* ").split("\n* ")
        return f"<ul>{''.join(f'<li>{text_html(point)}</li>' for point in points)}</ul>"
    return f"<p>{text_html(paragraph)}</p>"
