"""Statements in README and the other documents hold."""

import contextlib
import io
import re
from pathlib import Path

import pytest
from module_list import HEADING, module_list

ROOT = Path(__file__).resolve().parent.parent
README, ARCHITECTURE = ((ROOT / name).read_text() for name in ("README.md", "ARCHITECTURE.md"))
PAPERS = sorted(
    paper for folder in (".", "docs", "packages/rematscope", "benchmarks") for paper in (ROOT / folder).glob("*.md")
)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def python_blocks(paper: Path) -> list[str]:
    blocks = re.findall(r"```python\n(.*?)```", paper.read_text(), re.DOTALL)
    return [block for block in blocks if "rematscope import" in block]


def test_readme_s_ten_lines_run():
    (block,) = python_blocks(ROOT / "README.md")
    assert len([line for line in block.splitlines() if line.strip() and "import" not in line]) <= 10
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(block, {})
    assert "loss does not fit into 4 GiB" in out.getvalue() and "Paste this: the compiled peak is" in out.getvalue()
    assert "loss saves 10.8 GiB" in out.getvalue() and "loss saves 320 MiB" in out.getvalue()


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("instrument", ["named: no findings", "named: save", "step", "604\n470\n453\n"]),
        ("devices", ["{'all-gather': CollectiveStats(count=2, link_bytes="]),
        ("auto", ["loss: "]),
    ],
)
def test_the_examples_of_the_docs_run(name, printed):
    blocks = python_blocks(ROOT / "docs" / f"{name}.md")
    assert blocks
    with contextlib.redirect_stdout(io.StringIO()) as out:
        namespace = {}
        for block in blocks:
            exec(block, namespace)
    assert [text for text in printed if text not in out.getvalue()] == []


def test_readme_is_short():
    assert len(README.encode()) <= 12_000


def headings(paper: Path) -> set[str]:
    """Return the anchors of a document's headings, as GitHub forms them."""
    titles = re.findall(r"^#+ (.+)$", paper.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("paper", PAPERS, ids=name_of)
def test_links_and_pictures_lead_somewhere(paper):
    text = re.sub(r"```.*?```", "", paper.read_text(), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)]+)\)|(?:src|srcset)=\"([^\"]+)\"", text)
    for link in (link for pair in links for link in pair if link and "://" not in link):
        name, _, place = link.partition("#")
        target = paper.parent / name if name else paper
        assert target.exists(), link
        assert not place or place in headings(target), link


@pytest.mark.parametrize("name", ["LICENSE", "CHANGELOG.md", "CITATION.cff", "ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_readme_leads_to_every_paper(name):
    assert f"]({name})" in README


def test_every_file_and_folder_that_architecture_names_exists():
    text = ARCHITECTURE.replace("grader/catalog/NAME/", "grader/catalog/policy_from_rules/")
    named = [name for name in re.findall(r"`([\w./]+)`", text) if "/" in name or name.endswith(".py")]
    instrument = ROOT / "packages" / "rematscope" / "src" / "rematscope"
    folders = (ROOT, ROOT / "grader", ROOT / "grader" / "catalog" / "policy_from_rules", instrument, instrument.parent)
    folders += (*instrument.glob("*/"), *(ROOT / "grader").glob("*/"))
    assert len(named) > 50
    assert [name for name in named if not any((folder / name).exists() for folder in folders)] == []


def test_the_names_in_architectures_walks_and_table_of_changes_exist():
    tables = ARCHITECTURE.partition("## Walks through the code")[2]
    folders = (ROOT, ROOT / "packages" / "rematscope" / "src" / "rematscope")
    for row in tables.splitlines():
        file = None
        for name in re.findall(r"`([\w./]+)`", row):
            if "/" in name:
                paths = (folder / name.replace("NAME", "policy_from_rules") for folder in folders)
                file = next(path for path in paths if path.exists())
            elif file and file.suffix == ".py" and not name.endswith(".py"):
                assert re.search(rf"\b{name.rpartition('.')[2]}\b", file.read_text()), (row, name)


def test_architecture_lists_all_modules_with_their_docstrings():
    assert ARCHITECTURE.partition(HEADING)[1:] == (HEADING, module_list().removeprefix(HEADING)), (
        "run python tests/module_list.py"
    )


def test_the_layers_of_architecture_are_those_of_import_linter():
    settings = (ROOT / "pyproject.toml").read_text()
    for package in ("rematscope", "grader"):
        kept = re.search(rf'containers = \["{package}"\]\nlayers = \[(.*?)\]', settings, re.DOTALL)[1]
        layers = [name for name in re.findall(r'"(\w+)"', kept) if name != "__main__"]
        table = re.search(rf"^\| `[\w/]*{package}/`, highest first.*?\n\n", ARCHITECTURE, re.DOTALL | re.MULTILINE)[0]
        assert re.findall(r"^\| `(\w+)(?:/|\.py)` \|", table, re.MULTILINE) == layers


def test_drawings_fit_a_terminal():
    drawings = re.findall(r"^```\n(.*?)^```", ARCHITECTURE, re.DOTALL | re.MULTILINE)
    assert len(drawings) == 2
    assert max(len(line) for drawing in drawings for line in drawing.splitlines()) <= 80


def test_ci_runs_the_test_command_of_the_readme():
    command = "python3 start.py test"
    assert re.search(rf"^{command}\b", README, re.MULTILINE)
    assert command in (ROOT / ".ci" / "run").read_text().splitlines()
