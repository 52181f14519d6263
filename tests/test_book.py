"""The book has every page of the course, in its order, and none of its links leads nowhere."""

import re
from pathlib import Path

import start
from book import links
from book.__main__ import gather
from grader.learner import pages


def test_every_page_of_the_course_stands_in_the_book_once_and_in_order(tmp_path):
    gather(tmp_path)
    index = (tmp_path / "index.md").read_text()
    listed = re.findall(r"(?:^|<)((?:notebooks|exercises)/\w+)>?$", index, re.MULTILINE)
    here = {p.relative_to(tmp_path).with_suffix("").as_posix() for p in tmp_path.glob("*s/*.ipynb")}
    assert set(listed) == here and len(listed) == len(here)
    for exercise in pages.exercises():
        (chapter,) = [c for c in pages.chapters() if c.number == exercise.chapter]
        assert listed.index(f"notebooks/{chapter.path.stem}") < listed.index(f"exercises/{exercise.path.stem}")


def test_what_the_book_is_made_of_is_what_the_workbook_brought(tmp_path):
    gather(tmp_path)
    for exercise in pages.exercises():
        assert (tmp_path / "exercises" / exercise.path.name).read_bytes() == pages.as_it_came(exercise)
    for text in tmp_path.glob("*.md"):
        linked = re.findall(r"\]\((?!https?:)([^)#]+)", re.sub(r"```.*?```", "", text.read_text(), flags=re.DOTALL))
        assert not [link for link in linked if not (tmp_path / link).exists()], text.name


def test_a_link_that_leads_nowhere_is_named(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one.html").write_text('<p id="here"><a href="../two.html#there">x</a><a href="#here">y</a>')
    (tmp_path / "two.html").write_text('<a href="a/one.html#gone">x</a><img src="no.png"><a href="https://host/">z</a>')
    assert sorted(links.broken(tmp_path)) == [
        "a/one.html: ../two.html#there",
        "two.html: a/one.html#gone",
        "two.html: no.png",
    ]


def test_the_books_lock_has_what_learners_have():
    """So that start.py may install the one over the other."""
    learners, book = (
        set(re.findall(r"^([\w.-]+==\S+)", Path(start.ROOT, name).read_text(), re.MULTILINE))
        for name in (start.LEARNERS, start.BOOK)
    )
    assert learners <= book and {name.partition("==")[0] for name in book - learners} >= {"sphinx", "myst-nb"}
