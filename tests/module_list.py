"""Write the list of all modules at the end of ARCHITECTURE.md: the first sentence of each module's docstring.

    python tests/module_list.py

`tests/test_readme.py` compares the list with the docstrings.
"""

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEADING = "## All modules\n"
_PREFIXES = {ROOT / "packages/rematscope/src/rematscope": "", ROOT / "grader": "grader/", ROOT / "book": "book/"}
_INTRODUCTION = """
The first sentence of each module's docstring. `python tests/module_list.py` writes these tables.
"""


def module_list() -> str:
    """Return the section of ARCHITECTURE.md that lists all modules but those of single exercises."""
    tables = []
    for folder, prefix in _PREFIXES.items():
        rows = [f"| `{prefix}{file.relative_to(folder)}` | {first_sentences(file)} |" for file in modules_in(folder)]
        tables.append("\n".join([f"\n| modules of {folder.name} | |", "|---|---|", *rows, ""]))
    return "".join([HEADING, _INTRODUCTION, *tables])


def modules_in(folder: Path) -> list[Path]:
    files = [file for file in folder.rglob("*.py") if file.name != "__init__.py"]
    return sorted(file for file in files if file.parent.parent.name != "catalog")


def first_sentences(file: Path) -> str:
    docstring = ast.get_docstring(ast.parse(file.read_text())) or ""
    return " ".join(docstring.partition("\n\n")[0].split())


if __name__ == "__main__":
    path = ROOT / "ARCHITECTURE.md"
    path.write_text(path.read_text().partition(HEADING)[0].rstrip() + "\n\n" + module_list())
    sys.stdout.write(f"wrote {path.name}\n")
