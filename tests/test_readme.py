"""README says nothing that does not hold."""

import contextlib
import io
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def test_the_ten_lines_run():
    block, names = [text for text in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "rematscope" in text]
    assert len([line for line in block.splitlines() if line.strip() and "import" not in line]) <= 10
    with contextlib.redirect_stdout(io.StringIO()) as out:
        here = {}
        exec(block, here)
        exec(names, here)
    assert "block saves" in out.getvalue() and "Cost(flops=" in out.getvalue()
    assert "named: no findings" in out.getvalue() and "named: save" in out.getvalue()


def test_links_and_pictures_are_there():
    links = re.findall(r"\]\(([^)#]+)\)|(?:src|srcset)=\"([^\"]+)\"", README)
    missing = [link for pair in links for link in pair if link and not (ROOT / link).exists()]
    assert missing == []


def test_files_that_the_layout_names_are_there():
    layout = README.partition("## Layout")[2]
    named = [name for name in re.findall(r"`([\w/.]+)`", layout) if "." in name or "/" in name]
    folders = (ROOT, ROOT / "packages" / "rematscope" / "src" / "rematscope", ROOT / "grader", ROOT / "benchmarks")
    assert [name for name in named if not any((folder / name).exists() for folder in folders)] == []


def test_ci_runs_the_test_command_that_readme_gives():
    command = "python3 start.py test"
    assert re.search(rf"^{command}\b", README, re.MULTILINE)
    assert (ROOT / ".ci" / "run").read_text().rstrip().splitlines()[-1] == command
