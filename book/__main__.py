"""Builds the book: a folder of pages that any browser reads, from the chapters and exercises as they are stored.

    python -m book                                                   into site/; open site/index.html
    python -m book OUT --repository https://github.com/owner/name    each page also opens in Colab and Binder

Nothing is run, and nothing is fetched. It takes what the extra `book` brings; where there is Chromium, the cheat sheet
is there to print, too. The workbook itself is in it, as an archive that each page offers to download.
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
# What else the workbook is, for who downloads it from the book, beside its pages.
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
    """Copies what the book is made of into an empty folder, where each page keeps its path, so that links stay true."""
    for name in TEXTS:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, source / name)
    texts = shutil.ignore_patterns("*.md")  # README refers to its pictures in HTML, which Sphinx does not follow
    shutil.copytree(ROOT / "docs", source / "as_it_is" / "docs", ignore=texts)
    for page in [*pages.to_read(), *pages.exercises()]:  # as they came, whatever readers have made of theirs
        place = source / page.path.relative_to(pages.ROOT)
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(pages.as_it_came(page))
    pack(source / f"{WORKBOOK}.zip", source)
    shutil.copytree(HERE / "static", source / "static")
    (source / "memory_over_time.png").write_bytes(pictures.memory_over_time())
    for name in ("index.md", "reference.rst", *(str(page.relative_to(HERE)) for page in HERE.glob("reference/*.rst"))):
        (source / name).parent.mkdir(exist_ok=True)
        text = (HERE / name).read_text(encoding="utf-8")
        text = text.replace("COURSE", "\n".join(_course())).replace("PRINTED", PRINTED * bool(_browser()))
        (source / name).write_text(text, encoding="utf-8")


def pack(archive: Path, came: Path) -> None:
    """Packs the workbook as it came, and nothing that somebody has put beside it: answers, submissions or grades.

    Args:
      archive: the zip to write.
      came: a folder with `notebooks` and `exercises`, the pages without anybody's answers.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, WORKBOOK)
        for name in [*TEXTS, *FILES, *_files()]:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
        for name in ("notebooks", "exercises"):
            shutil.copytree(came / name, copy / name, dirs_exist_ok=True)
        shutil.make_archive(str(archive.with_suffix("")), "zip", folder, WORKBOOK)


def _files() -> list[str]:
    """What belongs to the workbook in its folders: what git knows of, or where there is no git all but caches."""
    listed = subprocess.run(["git", "ls-files", "-z", *FOLDERS], cwd=ROOT, capture_output=True, text=True)
    if (ROOT / ".git").exists() and listed.returncode == 0:
        return [name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]
    files = (path.relative_to(ROOT) for name in FOLDERS for path in (ROOT / name).rglob("*") if path.is_file())
    return [str(path) for path in files if not _CACHES.intersection(path.parts)]


def _course() -> list[str]:
    """The pages in the order in which one reads them: each chapter before the exercises that need it."""
    exercises = pages.exercises()
    order = []
    for chapter in (page for page in pages.to_read() if page.number):
        order += [chapter.path, *(page.path for page in exercises if page.chapter == chapter.number)]
    return [path.relative_to(pages.ROOT).with_suffix("").as_posix() for path in order]


def build(out: Path, repository: str | None = None) -> int:
    """Builds the book, and returns an exit status: 0 if Sphinx built it, and every link within it leads somewhere.

    Args:
      out: the folder for the site; what is in it is replaced.
      repository: the address of a public repository with these pages; None leaves out the links that need one.
    """
    try:
        from sphinx.cmd.build import build_main
    except ImportError:
        sys.exit("python -m book takes Sphinx and its theme: pip install -e '.[book]', then run it again.")
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
            _print(out.resolve())
    nowhere = links.broken(out)
    for link in nowhere:
        print(f"leads nowhere: {link}", file=sys.stderr)
    return status or bool(nowhere)


def _lead_to_pages(site: Path) -> None:
    """Has links in outputs lead to the book's own page where they name a notebook: the board has such."""

    def page(found: re.Match) -> str:
        return found[0].replace(".ipynb", ".html") if (path.parent / f"{found[1]}.html").exists() else found[0]

    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        path.write_text(re.sub(r'href="([^":]+)\.ipynb"', page, text), encoding="utf-8")


def _browser() -> str | None:
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def _print(site: Path) -> None:
    """Prints the cheat sheet, where there is a browser; `book.css` says how it looks on paper."""
    if browser := _browser():
        # The browser's sandbox does not work for root in a container, and it opens nothing but a page of ours.
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer"]
        page = (site / "notebooks" / "cheat_sheet.html").as_uri()
        subprocess.run([*command, f"--print-to-pdf={site / SHEET}", page], capture_output=True, timeout=120)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m book", description=__doc__.partition("\n")[0])
    parser.add_argument("out", nargs="?", type=Path, default=ROOT / "site", help="the folder to write")
    parser.add_argument("--repository", help="the address of a public repository on GitHub with these pages")
    asked = parser.parse_args()
    if asked.repository and not re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+", asked.repository):
        parser.error("Colab opens pages on GitHub: --repository takes an address such as https://github.com/owner/name")
    status = build(asked.out, asked.repository)
    print(f"The book is in {asked.out / 'index.html'}: open that in a browser, or serve the folder.")
    sys.exit(status)


if __name__ == "__main__":
    main()
