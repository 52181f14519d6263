"""The book has every page of the course, in order, and no broken links."""

import itertools
import json
import re
import subprocess
import zipfile
from pathlib import Path

import pytest

import book.__main__
import rematscope
import start
from book import excerpts, links, pictures, running
from book.__main__ import gather, main, pack
from grader.learner import pages
from rematscope.render.html import html_page


@pytest.mark.slow
def test_the_book_contains_every_page_of_the_course_once_and_in_order(tmp_path):
    gather(tmp_path)
    index = (tmp_path / "index.md").read_text()
    listed = re.findall(r"(?:^|<)((?:notebooks|exercises)/\w+)>?$", index, re.MULTILINE)
    here = {p.relative_to(tmp_path).with_suffix("").as_posix() for p in tmp_path.glob("*s/*.ipynb")}
    assert set(listed) == here and len(listed) == len(here)
    for exercise in pages.exercises():
        (chapter,) = [c for c in pages.chapters() if c.number == exercise.chapter]
        assert listed.index(f"notebooks/{chapter.path.stem}") < listed.index(f"exercises/{exercise.path.stem}")


def test_the_book_contains_every_page_of_docs():
    index = (start.ROOT / "book" / "index.md").read_text()
    assert {path.stem for path in (start.ROOT / "docs").glob("*.md")} == set(re.findall(r"^docs/(\w+)$", index, re.M))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_readmes_pictures_show_the_current_page(theme):
    found = pictures.fingerprint_in(pictures.README_PICTURES[theme].read_bytes())
    assert found == pictures.fingerprint(), "run python -m book.pictures"


def test_the_figures_of_the_landing_page_are_those_of_chapter_0():
    index = (start.ROOT / "book" / "index.md").read_text().partition("* **Begin")[0]
    cells = json.loads((start.ROOT / start.FIRST_PAGE).read_text())["cells"]
    texts = ["".join(cell["source"]) for cell in cells]
    texts += ["".join(output.get("text", "")) for cell in cells for output in cell.get("outputs", [])]
    chapter = " ".join(texts).replace("%", " %")
    figures = re.findall(r"\d+\.\d+|\d+ %", re.sub(r":alt:.*", "", index))
    assert figures and all(figure in " ".join(chapter.split()) for figure in figures), figures


@pytest.mark.parametrize("served", [False, True], ids=["folder", "server"])
def test_search_has_excerpts_of_the_text_of_pages(tmp_path, browser, served):
    (tmp_path / "_static").mkdir()
    (tmp_path / "search.html").write_text('<html data-content_root="./"><head></head><body></body></html>')
    (tmp_path / "a.html").write_text(
        "<body>menu<article class='bd-article'><section id='s1'><h1>Title &lt;b&gt;"
        "<a class='headerlink' href='#s1'>#</a></h1><details class='to-run'>Run <a href='b'>it</a></details>"
        "<p>in <b>bold</b></p><script>no()</script></section></article>foot</body>"
    )
    excerpts.write_excerpts(tmp_path)
    page = browser.new_page()
    page.route(
        "http://book.test/**", lambda asked: asked.fulfill(path=tmp_path / asked.request.url.partition("/a/")[2])
    )
    page.goto("http://book.test/a/search.html" if served else (tmp_path / "search.html").as_uri())
    text = page.evaluate("fetch('./a.html#s1').then(answer => answer.text())")
    assert text == '<div role="main"><section id="s1">Title &lt;b&gt;in bold</section></div>'
    assert page.evaluate("fetch('./none.html').then(answer => answer.status)") == 404
    page.close()


@pytest.mark.slow
def test_the_book_is_made_of_the_workbooks_files(tmp_path):
    gather(tmp_path)
    for page in [*pages.to_read(), *pages.exercises()]:
        assert (tmp_path / page.path.relative_to(pages.ROOT)).read_bytes() == pages.shipped_page(page)
    for text in tmp_path.glob("*.md"):
        linked = re.findall(r"\]\((?!https?:)([^)#]+)", re.sub(r"```.*?```", "", text.read_text(), flags=re.DOTALL))
        assert not [link for link in linked if not (tmp_path / link).exists()], text.name


@pytest.mark.parametrize("git", [True, False], ids=["git", "no git"])
def test_the_workbook_in_the_book_contains_no_other_files(tmp_path, monkeypatch, git):
    here, as_it_came = tmp_path / "here", tmp_path / "came"
    came = [*book.__main__.TEXTS, *book.__main__.FILES, *(f"{folder}/x" for folder in book.__main__.FOLDERS)]
    others = ["grades/grades.csv", "submissions/ada.json", "exercises/my_07_x.ipynb", "notebooks/Untitled.ipynb"]
    others += ["remat-workbook-2026-11-23.json", ".venv/lib/x.py", "grader/__pycache__/cli.pyc", "site/index.html"]
    with_git = ["grader/grades/grades.csv", "solutions/mine.py", "packages/rematscope/dist/x.whl"]
    for name in [*came, *others, *with_git, "exercises/07_x.ipynb", "notebooks/01_x.ipynb"]:
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text("a learner's")
    if git:
        for command in (["init", "--quiet"], ["add", "--force", *came]):
            subprocess.run(["git", *command], cwd=here, check=True)
    pages_that_came = ["exercises/07_x.ipynb", "notebooks/01_x.ipynb"]
    for name in pages_that_came:
        (as_it_came / name).parent.mkdir(parents=True)
        (as_it_came / name).write_text("as it came")
    monkeypatch.setattr(book.__main__, "ROOT", here)
    pack(tmp_path / "workbook.zip", as_it_came)
    with zipfile.ZipFile(tmp_path / "workbook.zip") as packed:
        files = {name.removeprefix("remat-workbook/") for name in packed.namelist() if not name.endswith("/")}
        assert files == {*came, *pages_that_came, *([] if git else with_git)}
        assert {packed.read(f"remat-workbook/{name}") for name in pages_that_came} == {b"as it came"}


@pytest.mark.slow
def test_the_workbook_in_the_book_contains_all_files_in_git(tmp_path):
    gather(tmp_path)
    with zipfile.ZipFile(tmp_path / "remat-workbook.zip") as packed:
        files = {name.removeprefix("remat-workbook/") for name in packed.namelist()}
    assert {start.FIRST_PAGE, "exercises/10_checkpoint_dot_policy.ipynb", "packages/rematscope/pyproject.toml"} <= files
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=start.ROOT, capture_output=True, text=True
    )  # empty outside a git checkout
    assert set(listed.stdout.split("\0")[:-1]) <= files


@pytest.mark.parametrize("repository", [None, "https://github.com/owner/name"])
def test_each_page_says_below_its_title_how_to_run_it(repository):
    for page in [*pages.chapters(), *pages.exercises()]:
        name = f"{page.path.parent.name}/{page.path.name}"
        notebook = json.loads(pages.shipped_page(page) if page.chapter is not None else page.path.read_text())
        running.say_how_to_run(notebook, name, repository)
        said = notebook["cells"][0]["source"]
        title, minutes, how, *_ = said.split("\n\n")
        assert title.startswith("# ") and "minutes" in minutes and how.startswith('<details class="to-run">')
        assert f"`{name}`" in said and "](../remat-workbook.zip)" in said and "start.py" in said
        colab = f"https://colab.research.google.com/github/owner/name/blob/main/{name}"
        assert (colab in said) == (f"git clone {repository} workbook" in said) == bool(repository)


def test_the_reference_has_each_public_name_once():
    named = [
        re.findall(r"^\.\. auto(?:function|class):: (\w+)$", page.read_text(), flags=re.MULTILINE)
        for page in (start.ROOT / "book" / "reference").glob("*.rst")
    ]
    assert sorted(itertools.chain.from_iterable(named)) == sorted(rematscope.__all__)


def test_a_link_that_leads_nowhere_is_named(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one.html").write_text('<p id="here"><a href="../two.html#there">x</a><a href="#here">y</a>')
    (tmp_path / "two.html").write_text('<a href="a/one.html#gone">x</a><img src="no.png"><a href="https://host/">z</a>')
    assert sorted(links.broken(tmp_path)) == [
        "a/one.html: ../two.html#there",
        "two.html: a/one.html#gone",
        "two.html: no.png",
    ]


@pytest.mark.parametrize("address", ["owner/name", "https://host.example/owner/name", "https://github.com/owner"])
def test_a_repository_that_no_page_opens_from_is_refused_in_a_sentence(address, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["book", "--repository", address])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2 and "such as https://github.com/owner/name" in capsys.readouterr().err


def test_a_narrow_page_of_the_book_wraps_code_and_a_printed_page_shows_only_the_text(browser):
    """Use the class names of Sphinx, which does not wrap inline code, and of its theme."""
    sheet = (Path(start.ROOT) / "book" / "static" / "book.css").read_text()
    page = browser.new_page(viewport={"width": 420, "height": 700})
    code = f'<code><span class="pre">{"a_long_name_of_something(" * 5}</span></code>'
    page.set_content(
        "<style>.pre { white-space: nowrap }</style><div class=bd-sidebar-primary>pages</div>"
        f"<div class=bd-content><p>{code}</p><table><tr><td>exercise 4</td><td>{code}</td></tr></table></div>"
    )
    wide = "document.scrollingElement.scrollWidth"
    assert page.evaluate(wide) > 420
    page.add_style_tag(content=sheet)
    assert page.evaluate(wide) == 420 and page.get_by_text("pages").is_visible()
    assert page.get_by_text("exercise 4").bounding_box()["width"] > 50, "no word is broken letter by letter"
    page.emulate_media(media="print")
    assert not page.get_by_text("pages").is_visible()
    page.close()


def test_a_narrow_page_of_the_book_shows_programs_from_their_left_edge(browser):
    sheet = (Path(start.ROOT) / "book" / "static" / "book.css").read_text()
    page = browser.new_page(viewport={"width": 420, "height": 700})
    programs = rematscope.SideBySide(rematscope.trace(lambda x: x * x, 1.0)).html()
    page.set_content(f"<style>{sheet}</style><div class=bd-content>{programs}</div>")
    left = "all => all.map(each => each.getBoundingClientRect().left)"
    (table,), lines = (page.locator(where).evaluate_all(left) for where in (".rs-programs", ".rs-programs pre"))
    assert lines and min(lines) >= table
    page.close()


def test_names_in_tables_of_the_book_break_only_after_punctuation(browser):
    static = Path(start.ROOT) / "book" / "static"
    names = "".join(f"<td><code><span class=pre>{name}</span></code></td>" for name in ("context", "save_only_these"))
    page = browser.new_page(viewport={"width": 700, "height": 700})
    sheet, script = ((static / name).read_text() for name in ("book.css", "book.js"))
    table = f"<table style='width: 9em'><tr>{names}</table>"
    page.set_content(f"<style>{sheet}</style><script>{script}</script><div class=bd-content>{table}</div>")
    lines = page.locator("code").evaluate_all("all => all.map(code => code.getClientRects().length)")
    assert lines[0] == 1 and lines[1] > 1
    assert page.locator("code").all_text_contents() == ["context", "save_only_these"]
    page.close()


def test_only_the_cheat_sheet_is_printed_in_two_columns(browser):
    """Two programs, or a table of residuals, need the whole width of a printed page."""
    page = browser.new_page()
    page.emulate_media(media="print")
    page.set_content("".join(f"<article class=bd-article><p id={name}></article>" for name in ("cheat-sheet", "scan")))
    page.add_style_tag(path=Path(start.ROOT) / "book" / "static" / "book.css")
    columns = page.locator("article").evaluate_all("all => all.map(each => getComputedStyle(each).columnCount)")
    assert columns == ["2", "auto"]
    page.close()


def test_programs_in_the_book_show_their_first_character(browser):
    page = browser.new_page()
    shown = html_page([[[("S", "rs-S"), ("b = cos(a)", "")]]], [])
    page.set_content(f"<div class=bd-content><div class=cell_output>{shown}</div></div>")
    page.add_style_tag(path=Path(start.ROOT) / "book" / "static" / "book.css")
    left, letter = (page.locator(f".rs-{name}").first.bounding_box()["x"] for name in ("programs", "S"))
    assert letter >= left
    page.close()


def test_tables_in_the_book_have_bars_but_no_stripes(browser):
    page = browser.new_page()
    bar = "<table><tr><td style='background: linear-gradient(red, red)'></table>"
    page.set_content(f"<style>tr {{ background-color: red }}</style><div class=cell_output>{bar}</div>")
    page.add_style_tag(path=Path(start.ROOT) / "book" / "static" / "book.css")
    assert page.locator("tr").evaluate("row => getComputedStyle(row).backgroundColor") == "rgba(0, 0, 0, 0)"
    assert "gradient" in page.locator("td").evaluate("cell => getComputedStyle(cell).backgroundImage")
    page.close()


def test_the_books_lock_file_includes_the_learners_pins():
    """start.py can therefore install the book's lock file over the learners' one."""
    learners, book = (
        set(re.findall(r"^([\w.-]+==\S+)", Path(start.ROOT, name).read_text(), re.MULTILINE))
        for name in (start.LEARNERS, start.BOOK)
    )
    assert learners <= book and {name.partition("==")[0] for name in book - learners} >= {"sphinx", "myst-nb"}
