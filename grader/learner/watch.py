"""`watch`: show one exercise at a time in a terminal, and check it when its file is saved."""

import json
import os
import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from grader.answers import find
from grader.exercises.registry import UnknownExercise
from grader.learner import board, in_terminal, page_text, pages
from grader.learner.keyboard import Wait, keys
from grader.learner.pages import Page
from grader.learner.progress import Progress
from grader.learner.prose import Prose
from grader.verdicts.verdict import Verdict
from grader.verdicts.views import Note, VerdictView, WithNotes

_LOOK = 0.3  # seconds between two checks of the files; a file that changes in between is still being written


class Watch:
    """The state of `watch`, and the actions of the keys.

    Args:
      page: the first exercise.
      file: the learner's file with the answer; None for the exercise's page and the Python file next to it.
      console: the console for all output.
    """

    def __init__(self, page: Page, file: Path | None, console: Console):
        self.console = console
        self._begin_page(page, file)

    def run(self) -> None:
        """Watch until the learner quits or has passed every exercise."""
        with keys() as wait:
            self._print_greeting(wait is not None)
            while not self._ended:
                for key in self._pressed_key(wait):
                    self._press_key(key)
                self._check_changed_file()
                if self._is_passed and wait is None:  # without a keyboard, nothing more can happen
                    self._go_to_next_page()

    def _begin_page(self, page: Page, file: Path | None) -> None:
        self.page, self._own = page, file
        self._verdict: Verdict | None = None
        self._ended = False
        # At the last time that the files were inspected.
        self._seen = {path: _file_stamp(path) for path in self._watched_files()}
        self._checked = {path: _program_text(path) for path in self._watched_files()}  # at the last check

    @property
    def _is_passed(self) -> bool:
        return self._verdict is not None and self._verdict.passed

    def _watched_files(self) -> list[Path]:
        return [self._own] if self._own else [self.page.path, page_text.python_file(self.page)]

    def _existing_files(self) -> list[Path]:
        return [file for file in self._watched_files() if file.exists()] or self._watched_files()[:1]

    def _print_greeting(self, by_keys: bool) -> None:
        say = self.console.print
        say(Rule(Text(self.page.title.replace("`", ""), style="bold"), style="none"))
        say(Prose(page_text.problem(self.page)))
        files = self._existing_files()
        say(Text(f"\nWatching {' and '.join(map(_relative_path, files))}: your answer is checked whenever you save."))
        if _is_begun(_newest_file(files), self.page.name):
            self._check_newest()
        elif by_keys:
            self._say_keys()

    def _say_keys(self) -> None:
        verbs = {"e": "the whole page as a Python file", "c": "check", "h": "hint", "s": "solution"}
        if self._verdict and any(finding.programs is not None for finding in self._verdict.findings):
            verbs["p"] = "both programs"
        verbs |= {"t": "the problem again", "n": "next exercise" if self._is_passed else "skip", "q": "quit"}
        words = (Text.assemble((key, "bold"), f" {verb}") for key, verb in verbs.items())
        self.console.print(Text(" · ").join(words))

    def _pressed_key(self, wait: Wait | None) -> str:
        if wait is not None:
            return wait(_LOOK)
        time.sleep(_LOOK)
        return ""

    def _press_key(self, key: str) -> None:
        verbs: dict[str, Callable[[], None]] = {
            "e": self._open_editor, "c": self._check_newest, "h": self._show_hint, "s": self._show_solution,
            "p": self._show_programs, "t": lambda: self._print_greeting(True), "n": self._go_to_next_page,
            "q": self._end_watch, "\x04": self._end_watch,
        }  # fmt: skip
        if verb := verbs.get(key.lower()):
            verb()

    def _check_changed_file(self) -> None:
        """Check a file whose program has changed since the last check, as soon as the file no longer changes."""
        for path in self._watched_files():
            stamp, before = _file_stamp(path), self._seen.get(path)
            self._seen[path] = stamp
            if stamp and stamp == before and _program_text(path) != self._checked.get(path):
                self._check_file(path)

    def _check_newest(self) -> None:
        self._check_file(_newest_file(self._existing_files()))

    def _check_file(self, path: Path) -> None:
        self._checked[path] = _program_text(path)
        self.console.print(Text(f"\nChecking {_relative_path(path)} …", style="italic"))
        self._verdict, notices = in_terminal.check(path, self.page.name)
        # Without the programs, which are long, so that the findings stay in view.
        self.console.print(WithNotes(VerdictView(self._verdict.without_programs()), notices))
        if self._is_passed:
            self.console.print(Text(f"\n{board.board().summary}", style="bold"))
        self.console.print()
        self._say_keys()

    def _show_programs(self) -> None:
        if self._verdict:
            self._show_view(VerdictView(self._verdict))

    def _show_hint(self) -> None:
        from grader.learner import assistance  # imports JAX

        progress = Progress()
        self._show_view(WithNotes(assistance.hint(self.page.name, progress), progress.notices))

    def _show_solution(self) -> None:
        from grader.learner import assistance

        progress = Progress()
        self._show_view(WithNotes(assistance.solution(self.page.name, progress, anyway=False), progress.notices))

    def _show_view(self, view) -> None:
        self.console.print()
        self.console.print(view)
        self.console.print()
        self._say_keys()

    def _open_editor(self) -> None:
        try:
            file = self._own or page_text.write_python(self.page)
        except OSError as error:
            self._show_view(
                Note("There is no Python file", f"{error.strerror or error}: {page_text.python_file(self.page)}.")
            )
            return
        self._seen.setdefault(file, None)
        self._checked[file] = self._checked.get(file) or _program_text(file)  # a new file has nothing to check yet
        self.console.print(Text(f"\nThis page as a Python file: {_relative_path(file)}"))
        if editor := os.environ.get("VISUAL") or os.environ.get("EDITOR"):
            try:
                subprocess.call([*shlex.split(editor), str(file)])
            except OSError as error:
                self._show_view(
                    Note(f"{editor} cannot be run", f"{error.strerror}: set the variable EDITOR to an editor.")
                )
        else:
            self.console.print("Open it in your editor. (If the variable EDITOR names an editor, this key opens it.)")

    def _go_to_next_page(self) -> None:
        following = next_page(self.page)
        if following:
            self._begin_page(following, None)
            self._print_greeting(True)
        elif self._is_passed:
            self.console.print("You have passed every exercise.")
            self._end_watch()
        else:
            self.console.print("This is the only exercise left.")

    def _end_watch(self) -> None:
        self._ended = True


def find_watched_file(what: str) -> tuple[Page, Path | None]:
    """Return the exercise to watch, and the learner's file if it is not the exercise's page.

    Args:
      what: an exercise's name, number or page, or a file with an answer.

    Raises:
      UnknownExercise: if it is neither the name of an exercise nor a file.
      NoAnswer: if the file contains no answer, and its name does not identify the exercise.
    """
    path = pages.answered_in(what)
    try:
        page = pages.find(find.read(path).exercise)
    except find.NoAnswer as error:
        try:
            page = pages.find(path.name)
        except UnknownExercise:
            raise error from None
    usual = path.resolve() in (page.path.resolve(), page_text.python_file(page).resolve())
    return page, None if usual else path


def first_page() -> Page:
    """Return the exercise that the board suggests next; the first one if all are passed."""
    meant = [piece for piece in board.board().next if isinstance(piece, Page) and piece.chapter is not None]
    return meant[-1] if meant else pages.exercises()[0]


def next_page(page: Page) -> Page | None:
    """Return the next exercise that is not passed, in the course's order, continuing with the first one after the last
    one; None if there is no other."""
    entries = board.board().entries
    (at,) = [number for number, entry in enumerate(entries) if entry.page.name == page.name]
    return next((entry.page for entry in entries[at + 1 :] + entries[:at] if entry.state != "passed"), None)


def _newest_file(files: list[Path]) -> Path:
    return max(files, key=lambda file: _file_stamp(file) or (0,))


def _file_stamp(path: Path) -> tuple[int, ...] | None:
    """Return a stamp that changes with the file, even if an editor replaces the file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _program_text(path: Path) -> str | None:
    """Return a file's program. For a page, this is only the code, because outputs change without it."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    if path.suffix != ".ipynb":
        return text
    try:
        return "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code")
    except (ValueError, TypeError, LookupError):
        return text


def _is_begun(path: Path, exercise: str) -> bool:
    try:
        return not find.read(path, exercise).is_stub()
    except find.NoAnswer:
        return False


def _relative_path(path: Path) -> str:
    """Return a path relative to the current folder."""
    near = os.path.relpath(path)
    return str(path) if near.startswith(os.pardir) else near
