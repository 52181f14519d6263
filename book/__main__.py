"""Builds the book: a static website of the stored chapters and exercises.

    python -m book                                                   writes site/; open site/index.html
    python -m book OUT --repository https://github.com/owner/name    each page also links to Colab and Binder

The build runs no page and downloads nothing. It needs the packages of the extra `book`. If Chromium is installed, the
book also contains the cheat sheet as a PDF file. Each page links to an archive of the workbook.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from book import excerpts, links, pictures
from grader.learner import pages

ROOT = Path(__file__).parents[1]
HERE = Path(__file__).parent
TEXTS = [
    *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))),
    "README.md", "benchmarks/README.md", "packages/rematscope/README.md", "packages/rematscope/CHANGELOG.md",
    "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "LICENSE", "CITATION.cff",
]  # fmt: skip
# The other files and folders of the archive that readers download.
FILES = [
    ".dockerignore", ".gitignore", ".python-version", "Dockerfile", "conftest.py", "environment.yml", "pyproject.toml",
    "requirements-book.lock", "requirements-test.lock", "requirements.lock", "start.py", "notebooks/.ruff.toml",
    "exercises/.ruff.toml",
]  # fmt: skip
FOLDERS = [
    ".binder", ".ci", ".devcontainer", ".github", "benchmarks", "book", "docs", "grader", "packages", "solutions",
    "tests",
]  # fmt: skip
_CACHES = {"__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints"}

WORKBOOK = "remat-workbook"
SHEET = "cheat_sheet.pdf"
PRINTED = f'To print: <a href="{SHEET}">the cheat sheet</a>, one sheet of paper.'


def gather(source: Path) -> None:
    """Copies the sources of the book to an empty folder, with the same relative paths, so that links still work."""
    for name in TEXTS:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, source / name)
    texts = shutil.ignore_patterns("*.md")  # README includes its pictures as HTML, which Sphinx ignores
    shutil.copytree(ROOT / "docs", source / "as_it_is" / "docs", ignore=texts)
    for page in [*pages.to_read(), *pages.exercises()]:  # as published, without the reader's changes
        place = source / page.path.relative_to(pages.ROOT)
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(pages.shipped_page(page))
    pack(source / f"{WORKBOOK}.zip", source)
    shutil.copytree(HERE / "static", source / "static")
    (source / "memory_over_time.png").write_bytes(pictures.memory_over_time())
    for name in ("index.md", "reference.rst", *(str(page.relative_to(HERE)) for page in HERE.glob("reference/*.rst"))):
        (source / name).parent.mkdir(exist_ok=True)
        text = (HERE / name).read_text(encoding="utf-8")
        text = text.replace("COURSE", "\n".join(_pages_in_order())).replace("PRINTED", PRINTED * bool(_find_browser()))
        (source / name).write_text(text, encoding="utf-8")


def pack(archive: Path, came: Path) -> None:
    """Packs the workbook as published, without the user's own files, such as answers, submissions or grades.

    Args:
      archive: the path of the zip file.
      came: a folder with `notebooks` and `exercises`: the published pages, without answers.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, WORKBOOK)
        for name in [*TEXTS, *FILES, *_list_files()]:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
        for name in ("notebooks", "exercises"):
            shutil.copytree(came / name, copy / name, dirs_exist_ok=True)
        shutil.make_archive(str(archive.with_suffix("")), "zip", folder, WORKBOOK)


def _list_files() -> list[str]:
    """The workbook's files in FOLDERS: those that git tracks or, without git, all files that are not in caches."""
    listed = subprocess.run(["git", "ls-files", "-z", *FOLDERS], cwd=ROOT, capture_output=True, text=True)
    if (ROOT / ".git").exists() and listed.returncode == 0:
        return [name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]
    files = (path.relative_to(ROOT) for name in FOLDERS for path in (ROOT / name).rglob("*") if path.is_file())
    return [str(path) for path in files if not _CACHES.intersection(path.parts)]


def _pages_in_order() -> list[str]:
    """The pages in reading order: each chapter precedes the exercises that need it."""
    exercises = pages.exercises()
    order = []
    for chapter in (page for page in pages.to_read() if page.number):
        order += [chapter.path, *(page.path for page in exercises if page.chapter == chapter.number)]
    return [path.relative_to(pages.ROOT).with_suffix("").as_posix() for path in order]


def build(out: Path, repository: str | None = None) -> int:
    """Builds the book and returns an exit status: 0 if Sphinx built it and it has no broken internal link.

    Args:
      out: the folder for the site. Existing files there are replaced.
      repository: the address of a public repository with these pages. With None, the pages have no links to Colab and
        Binder.
    """
    try:
        from sphinx.cmd.build import build_main
    except ImportError:
        sys.exit("python -m book needs Sphinx and its theme: run pip install -e '.[book]', then run it again.")
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder, "source"), Path(folder, "site")
        source.mkdir()
        gather(source)
        settings = [f"-Drepository={repository}"] if repository else []
        status = build_main(["-q", "-b", "html", "-c", str(HERE), *settings, str(source), str(made)])
        if (made / "index.html").exists():
            shutil.rmtree(out, ignore_errors=True)
            shutil.copytree(made, out, ignore=shutil.ignore_patterns(".doctrees", ".buildinfo", "*webpack-macros.html"))
            _lead_to_pages(out)
            excerpts.write_excerpts(out)
            _print_cheat_sheet(out.resolve())
    nowhere = links.broken(out)
    for link in nowhere:
        print(f"broken link: {link}", file=sys.stderr)
    return status or bool(nowhere)


def _lead_to_pages(site: Path) -> None:
    """Changes links to notebooks in stored outputs, such as the progress board, to the book's pages."""

    def page(found: re.Match) -> str:
        return found[0].replace(".ipynb", ".html") if (path.parent / f"{found[1]}.html").exists() else found[0]

    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        path.write_text(re.sub(r'href="([^":]+)\.ipynb"', page, text), encoding="utf-8")


def _find_browser() -> str | None:
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def _print_cheat_sheet(site: Path) -> None:
    """Prints the cheat sheet to a PDF file if a browser is installed. `book.css` has the print layout."""
    if browser := _find_browser():
        # The browser's sandbox does not work for root in a container. The browser opens only a page of the book.
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer"]
        page = (site / "notebooks" / "cheat_sheet.html").as_uri()
        subprocess.run([*command, f"--print-to-pdf={site / SHEET}", page], capture_output=True, timeout=120)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m book", description=__doc__.partition("\n")[0])
    parser.add_argument("out", nargs="?", type=Path, default=ROOT / "site", help="the folder for the book")
    parser.add_argument("--repository", help="the address of a public repository on GitHub with these pages")
    asked = parser.parse_args()
    if asked.repository and not re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+", asked.repository):
        parser.error(
            "--repository must be an address on GitHub, such as https://github.com/owner/name: Colab opens pages from "
            "there"
        )
    status = build(asked.out, asked.repository)
    print(f"The book is in {asked.out}: open {asked.out / 'index.html'} in a browser, or serve the folder.")
    sys.exit(status)


if __name__ == "__main__":
    main()
