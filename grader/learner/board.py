"""The board: chapters and exercises with the learner's progress, and what to do next."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup, escape
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from grader.learner import pages
from grader.learner.pages import Page
from grader.learner.progress import Attempt, Progress
from grader.verdicts.verdict import Outcome
from grader.verdicts.views import Note, text_html
from rematscope.render import View

_MARKS = {"passed": "■", "not passed yet": "◧", "not begun": "□"}


@dataclass(frozen=True)
class Entry:
    """An exercise on the board.

    Attributes:
      page: the exercise's page.
      state: `"passed"`, `"not passed yet"` or `"not begun"`.
      attempts: how many times an answer was checked.
    """

    page: Page
    state: str
    attempts: int


@dataclass(frozen=True, repr=False)
class Board(View):
    """The board, displayed in a notebook or a terminal, or as text.

    Attributes:
      sections: the chapters in order, each with the exercises that need it; None for the exercises that need no
        chapter.
      next: a sentence on what to do next, as a list of texts and pages.
      notices: sentences about the progress file that the learner must read.
    """

    sections: tuple[tuple[Page | None, tuple[Entry, ...]], ...]
    next: tuple[str | Page, ...]
    notices: tuple[str, ...] = ()

    @property
    def entries(self) -> list[Entry]:
        """The exercises in the order of the course."""
        return [entry for _, entries in self.sections for entry in entries]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.summary, style="bold")
        table = Table(box=None, pad_edge=False)
        table.add_column("page", overflow="fold")
        table.add_column("minutes", justify="right", no_wrap=True)
        table.add_column("state", no_wrap=True)
        table.add_column("attempts", justify="right", no_wrap=True)
        for page, state, attempts in self._board_rows():
            chapter = page is None or page.chapter is None
            indent = "" if chapter else "  "
            title = Text(indent + _plain_title(page), style="bold" if chapter else "")
            table.add_row(title, Text(_minutes_text(page)), Text(state), Text(attempts))
        yield table
        yield Text("\n" + "".join(piece if isinstance(piece, str) else piece.label for piece in self.next))
        for notice in self.notices:
            yield Note("Please note", notice)

    def html(self) -> Markup:
        left, right = (Markup('style="text-align: {}; white-space: nowrap"').format(side) for side in ("left", "right"))
        of_chapter = Markup(
            '<tr><th scope="row" style="text-align: left">{}</th><td {}>{}</td><td {}>{}</td><td></td></tr>'
        )
        of_exercise = Markup(
            '<tr><th scope="row" style="text-align: left; padding-left: 2em; font-weight: normal">{}</th>'
            "<td {}>{}</td><td {}>{}</td><td {}>{}</td></tr>"
        )
        rows = Markup().join(
            of_chapter.format(page_link(page), right, _minutes_text(page), left, state)
            if page is None or page.chapter is None
            else of_exercise.format(page_link(page), right, _minutes_text(page), left, state, right, attempts)
            for page, state, attempts in self._board_rows()
        )
        titles = [(left, "page"), (right, "minutes"), (left, "state"), (right, "attempts")]
        head = Markup().join(Markup('<th scope="col" {}>{}</th>').format(*title) for title in titles)
        next_step = Markup().join(
            piece if isinstance(piece, str) else page_link(piece, piece.label) for piece in self.next
        )
        page = Markup(
            '<div style="color: var(--jp-ui-font-color1, inherit)"><p><strong>{}</strong></p>'
            "<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table><p>{}</p></div>"
        ).format(self.summary, head, rows, next_step)
        return page + Markup().join(Note("Please note", notice).html() for notice in self.notices)

    @property
    def summary(self) -> str:
        """The learner's progress in one line: a square per exercise, and the number of passed exercises."""
        squares = "".join(_MARKS[entry.state] for entry in self.entries)
        return f"{squares} {_passed_text(self.entries, 'exercises ')}"

    def _board_rows(self) -> Iterator[tuple[Page | None, str, str]]:
        for chapter, entries in self.sections:
            yield chapter, _passed_text(entries) if entries else "", ""
            for entry in entries:
                yield entry.page, f"{_MARKS[entry.state]} {entry.state}", str(entry.attempts or "")


def board() -> Board:
    """Return the current board."""
    progress = Progress()
    chapters, exercises, attempts = pages.chapters(), pages.exercises(), progress.attempts()
    sections = [(None, 0), *((chapter, chapter.number) for chapter in chapters)]
    known = {number for _, number in sections}
    filled = []
    for chapter, number in sections:
        here = [page for page in exercises if (page.chapter if page.chapter in known else 0) == number]
        if chapter or here:
            filled.append((chapter, tuple(_board_entry(page, attempts) for page in here)))
    return Board(tuple(filled), _next_entry(filled, attempts), tuple(progress.notices))


def _board_entry(page: Page, attempts: Sequence[Attempt]) -> Entry:
    outcomes = [attempt.verdict.outcome for attempt in attempts if attempt.exercise == page.name]
    state = "passed" if Outcome.PASSED in outcomes else "not passed yet" if outcomes else "not begun"
    return Entry(page, state, len(outcomes))


def _next_entry(sections, attempts: Sequence[Attempt]) -> tuple[str | Page, ...]:
    """Return a sentence with links about the exercise to do next, and about exercises that the learner skipped.

    The next exercise is the one that was attempted last among those that are not passed. If all attempted exercises are
    passed, it is the first new one that follows the last attempt in the course's order; if there is none, the first new
    one.
    """
    entries = {entry.page.name: entry for _, entries in sections for entry in entries}
    for attempt in reversed(attempts):
        entry = entries.get(attempt.exercise)
        if entry and entry.state != "passed":
            return "Next: continue with ", entry.page, "."
    ordered = list(entries.values())
    passed_last = next((ordered.index(entries[a.exercise]) for a in reversed(attempts) if a.exercise in entries), -1)
    new = [position for position, entry in enumerate(ordered) if entry.state == "not begun"]
    if not new:
        return ("You have passed every exercise.",)
    position = next((each for each in new if each > passed_last), new[0])
    skipped = [ordered[each].page for each in new if each < position]
    to_read: list[Page] = []  # the chapters after the last chapter with a begun exercise
    for chapter, here in sections:
        to_read += [chapter] if chapter else []
        if any(entry.state != "not begun" for entry in here):
            to_read.clear()
        if ordered[position] in here:
            break
    return *_read_entries(to_read, ordered[position].page), *_skipped_entries(skipped)


def _skipped_entries(skipped: Sequence[Page]) -> tuple[str | Page, ...]:
    if not skipped:
        return ()
    return " (You skipped ", skipped[0] if len(skipped) == 1 else f"{len(skipped)} exercises", ".)"


def _read_entries(chapters: Sequence[Page], exercise: Page) -> tuple[str | Page, ...]:
    if not chapters:
        return "Next: ", exercise, "."
    pieces: list[str | Page] = ["Next: read "]
    for index, chapter in enumerate(chapters):
        pieces += [chapter, ", " if index < len(chapters) - 2 else " and " if index < len(chapters) - 1 else ""]
    return *pieces, ", then solve ", exercise, "."


def _passed_text(entries: Sequence[Entry], what: str = "") -> str:
    number = sum(entry.state == "passed" for entry in entries)
    return f"{number} of {len(entries)} {what}passed"


def _plain_title(page: Page | None) -> str:
    return page.title.replace("`", "") if page else "Exercises"


def _minutes_text(page: Page | None) -> str:
    return str(page.minutes or "") if page else ""


def page_link(page: Page | None, text: str | None = None) -> Markup:
    """Return a link to a page, relative to the calling notebook's folder; "Exercises" without a link for None."""
    if page is None:
        return escape(_plain_title(page))
    # A kernel runs in its notebook's folder. Links in a copy of the pages lead to pages of the copy.
    address = Path("..", page.path.parent.name, page.path.name)
    if not address.exists():
        address = Path(os.path.relpath(page.path))
    return Markup('<a href="{}">{}</a>').format(quote(address.as_posix()), text_html(text or page.title))
