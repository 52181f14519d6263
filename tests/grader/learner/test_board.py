"""The board shows a learner's progress and the next step, alike in a notebook, a terminal and plain text."""

import json
import re

import pytest
import store
from command_line import run_here
from rich.console import Console

from grader.learner import pages
from grader.learner.board import board
from grader.learner.pages import Page
from grader.learner.progress import Progress, default_path
from grader.verdicts.verdict import Outcome, Verdict


@pytest.fixture
def course(monkeypatch, tmp_path):
    """Create a course of four chapters and three exercises."""
    chapters = [
        Page(n, title, tmp_path / f"0{n}.ipynb", minutes=10 * n)
        for n, title in enumerate(["1 · A `b` < c", "2 · D", "3 · E", "4 · F"], 1)
    ]
    exercises = [
        Page(number, f"Exercise {number} · {title}", tmp_path / f"0{number}_{name}.ipynb", chapter, 15)
        for number, title, name, chapter in [(1, "One", "one", 1), (2, "Two", "two", 1), (7, "Seven", "seven", 4)]
    ]
    monkeypatch.setattr(pages, "chapters", lambda: chapters)
    monkeypatch.setattr(pages, "exercises", lambda: exercises)


def did(*attempts):
    for exercise, outcome in attempts:
        Progress().record(exercise, Verdict(exercise, outcome), "")


def said(shown):
    """Return the last paragraph, which says what to do next."""
    return str(shown).rpartition("\n\n")[2]


def test_the_board_as_text_lists_every_page_its_state_and_the_next_page(course):
    did(("one", Outcome.NOT_PASSED), ("one", Outcome.PASSED), ("two", Outcome.NOT_PASSED))
    assert str(board()) == (
        "■◧□ 1 of 3 exercises passed\n"
        "page                  minutes  state             attempts\n"
        "1 · A b < c                10  1 of 2 passed\n"
        "  Exercise 1 · One         15  ■ passed                 2\n"
        "  Exercise 2 · Two         15  ◧ not passed yet         1\n"
        "2 · D                      20\n"
        "3 · E                      30\n"
        "4 · F                      40  0 of 1 passed\n"
        "  Exercise 7 · Seven       15  □ not begun\n"
        "\n"
        "Next: continue with exercise 2."
    )


@pytest.mark.parametrize(
    ("attempts", "next_"),
    [
        ([], "Next: read chapter 1, then solve exercise 1."),
        ([("one", Outcome.PASSED)], "Next: exercise 2."),
        (
            [("two", Outcome.PASSED)],
            "Next: read chapter 2, chapter 3 and chapter 4, then solve exercise 7. (You skipped exercise 1.)",
        ),
        (
            [("two", Outcome.PASSED), ("gone", Outcome.PASSED)],
            "Next: read chapter 2, chapter 3 and chapter 4, then solve exercise 7. (You skipped exercise 1.)",
        ),
        ([("seven", Outcome.PASSED)], "Next: read chapter 1, then solve exercise 1."),
        ([("seven", Outcome.PASSED), ("two", Outcome.PASSED)], "Next: exercise 1."),
        (
            [("one", Outcome.PASSED), ("two", Outcome.PASSED)],
            "Next: read chapter 2, chapter 3 and chapter 4, then solve exercise 7.",
        ),
        (
            [("one", Outcome.NOT_PASSED), ("seven", Outcome.NOT_JUDGED), ("two", Outcome.PASSED)],
            "Next: continue with exercise 7.",
        ),
        ([("one", Outcome.PASSED), ("one", Outcome.NOT_PASSED)], "Next: exercise 2."),
        ([("gone", Outcome.NOT_PASSED)], "Next: read chapter 1, then solve exercise 1."),
        (
            [("seven", Outcome.PASSED), ("one", Outcome.PASSED), ("two", Outcome.PASSED)],
            "You have passed every exercise.",
        ),
    ],
)
def test_started_pages_come_next_then_the_order_of_the_course(course, attempts, next_):
    did(*attempts)
    assert said(board()) == next_


def test_many_skipped_exercises_are_counted():
    did(("predict_residuals", Outcome.PASSED), ("nested_scan", Outcome.PASSED))
    assert said(board()) == "Next: exercise 15. (You skipped 12 exercises.)"


def test_passed_once_is_passed_and_every_check_is_counted(course):
    did(("one", Outcome.NOT_PASSED), ("one", Outcome.PASSED), ("one", Outcome.NOT_PASSED), ("two", Outcome.NOT_JUDGED))
    assert [(entry.state, entry.attempts) for entry in board().entries] == [
        ("passed", 3),
        ("not passed yet", 1),
        ("not begun", 0),
    ]


def test_every_way_of_showing_says_the_same(course):
    did(("one", Outcome.PASSED), ("two", Outcome.NOT_PASSED))
    bundle = board()._repr_mimebundle_()
    plain = re.sub(r"</?(a|code)\b[^>]*>", "", bundle["text/html"])
    plain = re.sub(r"<[^>]+>", " ", plain).replace("&lt;", "<")
    assert sorted(plain.split()) == sorted(bundle["text/plain"].split())
    with (console := Console(width=80, force_terminal=True, color_system=None)).capture() as capture:
        console.print(board())
    assert sorted(re.sub(r"\x1b\[\d*m", "", capture.get()).split()) == sorted(plain.split())


def test_html_follows_the_theme_and_leads_to_the_pages(monkeypatch):
    monkeypatch.chdir(pages.ROOT / "notebooks")
    html = board()._repr_mimebundle_()["text/html"]
    assert "var(--jp-ui-font-color1, inherit)" in html and "color: #" not in html and "background" not in html
    links = re.findall(r'href="([^"]+)"', html)
    assert "../notebooks/01_residuals.ipynb" in links and "../exercises/01_predict_residuals.ipynb" in links
    assert all((pages.ROOT / "notebooks" / link).exists() for link in links)


def test_pages_of_a_copy_lead_to_each_other(monkeypatch, tmp_path):
    for page in pages.chapters() + pages.exercises():
        (tmp_path / page.path.relative_to(pages.ROOT)).parent.mkdir(exist_ok=True)
        (tmp_path / page.path.relative_to(pages.ROOT)).touch()
    monkeypatch.chdir(tmp_path / "exercises")
    links = re.findall(r'href="([^"]+)"', board()._repr_mimebundle_()["text/html"])
    assert links and all((tmp_path / "exercises" / link).resolve().is_relative_to(tmp_path) for link in links)


def test_the_fate_of_a_damaged_progress_file_is_reported(course):
    did(("one", Outcome.PASSED))
    default_path().write_bytes(b"damaged" * 100)
    shown = board()
    assert "was damaged. It is saved as" in " ".join(str(shown).split())
    assert "was damaged. It is saved as" in shown._repr_mimebundle_()["text/html"]
    assert shown.entries[0].state == "not begun"


def test_the_board_fits_a_terminal_of_80_columns():
    did(("checkpoint_dot_policy", Outcome.PASSED))
    status, out, _ = run_here("progress", columns=80)
    assert status == 0 and max(map(len, out.splitlines()[:-1])) <= 80
    assert "Exercise 10 · Checkpoint with a save policy" in out and "■ passed" in out
    assert out.splitlines()[-1] == f"Your progress is saved in {default_path()}"


def test_a_long_title_wraps_and_loses_nothing(course, monkeypatch, tmp_path):
    long = Page(1, "Exercise 1 · " + "long " * 30, tmp_path / "01_one.ipynb", 1)
    monkeypatch.setattr(pages, "exercises", lambda: [long])
    with (console := Console(width=80)).capture() as capture:
        console.print(board())
    assert "not begun" in capture.get() and capture.get().count("long") == 30


# The workbook's pages


def test_every_page_is_on_the_board():
    shown = board()
    on_it = {page.path for page, _ in shown.sections if page} | {entry.page.path for entry in shown.entries}
    numbered = {
        path for path in pages.ROOT.glob("*/[0-9][0-9]_*.ipynb") if path.parent.name in ("notebooks", "exercises")
    }
    assert on_it == {path for path in numbered if path.name != "00_start_here.ipynb"}


def test_readme_lists_every_page():
    text = (pages.ROOT / "README.md").read_text()
    listed = re.findall(r"^\| (\d+) \| \[[^\]]+\]\(([^)]+)\) \| (\d+) \|", text, re.MULTILINE)
    found = {(pages.ROOT / link).resolve(): (int(number), int(took)) for number, link, took in listed}
    found.pop(pages.ROOT / "notebooks" / "00_start_here.ipynb", None)
    expected = [*pages.chapters(), *pages.exercises()]
    assert found == {page.path: (page.number, page.minutes) for page in expected}


def test_chapter_0_is_stored_with_the_board_of_a_new_learner():
    """The page's own test ignores this output, because it shows the reader's progress."""
    cells = json.loads((pages.ROOT / "notebooks" / "00_start_here.ipynb").read_text())["cells"]
    (output,) = next(cell["outputs"] for cell in cells if "".join(cell["source"]).endswith("board()"))
    assert "".join(output["data"]["text/plain"]) == str(board())


@pytest.mark.parametrize("chapter", pages.chapters(), ids=lambda page: page.path.stem)
def test_a_chapter_leads_to_all_exercises_that_the_board_lists_under_it(chapter):
    prose = "".join(json.loads(chapter.path.read_text())["cells"][-1]["source"])
    listed = {int(number) for number in re.findall(r"^\* \[Exercise (\d+) ·", prose, re.MULTILINE)}
    assert listed >= {page.number for page in pages.exercises() if page.chapter == chapter.number}


def test_the_links_of_an_exercise_follow_the_board():
    """After the last exercise of a chapter comes the next chapter."""
    order = [page for chapter, entries in board().sections for page in (chapter, *(entry.page for entry in entries))]
    for previous, page, following in zip(order, order[1:], order[2:], strict=False):
        if page.chapter is not None:
            footer = "".join(json.loads(page.path.read_text())["cells"][-1]["source"])
            links = re.findall(r"\*\*(?:Previous|Next):\*\* \[(.*?)\]\(([^)]+)\)", footer)
            found = [(title, (page.path.parent / link).resolve()) for title, link in links]
            assert found == [(each.title, each.path) for each in (previous, following)], page.path.name


@pytest.mark.parametrize("path", sorted((pages.ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")), ids=lambda p: p.stem)
def test_a_chapter_takes_about_as_long_as_it_says(path):
    head = json.loads(path.read_text())["cells"][0]["source"]
    (said,) = re.findall(r"^\*About (\d+) minutes\.\*$", "".join(head), re.MULTILINE)
    assert int(said) % 5 == 0 and int(said) == pytest.approx(store.minutes(path), abs=2.5)


@pytest.mark.parametrize("page", pages.exercises(), ids=lambda page: page.path.stem)
def test_an_exercise_takes_at_least_the_time_to_read_its_page(page):
    assert page.minutes >= store.minutes(page.path) - 2.5


def test_titles_and_chapters_are_the_pages_own():
    chapters = {page.number: page.title for page in pages.chapters()}
    assert chapters[2] == "2 · Two passes" and list(chapters) == sorted(chapters)
    for page in pages.exercises():
        assert page.title.startswith(f"Exercise {page.number} · ") and page.chapter in chapters


def test_an_unreadable_chapter_keeps_its_place_on_the_board(monkeypatch, tmp_path):
    (tmp_path / "notebooks").mkdir()
    for name, content in [("01_first_one", "{"), ("02_two", json.dumps({"cells": []})), ("00_start", "{}")]:
        (tmp_path / "notebooks" / f"{name}.ipynb").write_text(content)
    (tmp_path / "notebooks" / "my own.ipynb").write_text("{}")
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    assert [page.title for page in pages.chapters()] == ["1 · first one", "2 · two"]


def test_exercises_are_on_the_board_without_their_chapters(monkeypatch, tmp_path):
    """Simulate an installation that has the packages only."""
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    shown = board()
    assert [page for page, _ in shown.sections] == [None] and len(shown.entries) == len(pages.exercises())
    assert "Next: exercise 1." in str(shown)
