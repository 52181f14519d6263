"""Show an exercise's page without a notebook: its problem as text, and the whole page as a Python file to edit."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

from grader.learner import pages
from grader.learner.pages import Page
from rematscope.render import write_whole


def problem(page: Page) -> str:
    """Return the problem as Markdown with formulas as code: the page from the heading of the problem to the stub."""
    cells = _cells_of(pages.shipped_page(page))
    (first,) = [number for number, (_, text) in enumerate(cells) if text.startswith("## The problem")]
    below = itertools.takewhile(lambda cell: not is_stub(*cell, page), cells[first:])
    texts = [f"```python\n{text}\n```" if kind == "code" else _replace_math(text) for kind, text in below]
    return "\n\n".join(texts).partition("\n")[2].strip()


def is_stub(kind: str, text: str, page: Page) -> bool:
    """Return whether a cell is the original stub."""
    return kind == "code" and f"def {page.name}(" in text and "raise NotImplementedError" in text


def _replace_math(text: str) -> str:
    return re.sub(r"\$([^$`]+)\$", r"`\1`", text)


def python_file(page: Page) -> Path:
    """Return the path to which `write_python` writes an exercise's page."""
    return page.path.with_name(f"my_{page.path.stem}.py")


def write_python(page: Page) -> Path:
    """Write an exercise's page, with the learner's changes, as a Python file without the checks.

    An existing file is kept, because it is the learner's. Cells are marked by `# %%`, which editors recognize.

    Raises:
      OSError: if the file cannot be written.
    """
    file = python_file(page)
    if not file.exists():
        try:
            cells = _cells_of(page.path.read_bytes())
        except (OSError, ValueError, TypeError, LookupError):  # the page is missing or damaged
            cells = _cells_of(pages.shipped_page(page))
        checks = re.compile(rf"^check\({page.name}\)", re.MULTILINE)
        kept = [(kind, text) for kind, text in cells if kind == "markdown" or not checks.search(text)]
        write_whole(file, "\n\n".join(_percent_cell(*cell) for cell in kept) + "\n")
    return file


def _cells_of(notebook: bytes) -> list[tuple[str, str]]:
    cells: list[dict[str, Any]] = json.loads(notebook)["cells"]
    return [(cell["cell_type"], "".join(cell["source"])) for cell in cells]


def _percent_cell(kind: str, text: str) -> str:
    if kind == "code":
        return f"# %%\n{text}"
    return "\n".join(["# %% [markdown]", *(f"# {line}".rstrip() for line in text.splitlines())])
