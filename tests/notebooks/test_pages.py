"""Stored chapters and exercise pages are well-formed, and every exercise page passes with its solution in place."""

import ast
import re
import sys

import nbformat
import pytest
from sample_answers import slow_unless_sampled
from store import ROOT, cleaned, pages

from grader.isolation import in_process

EXERCISES = [path for path in pages() if path.parent.name == "exercises"]


def name_of(path) -> str:
    return path.stem


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def texts(cell):
    """Return every text in a cell's outputs, of every MIME type."""
    for output in cell.outputs:
        yield output.get("text", "")
        yield from (data for kind, data in output.get("data", {}).items() if kind.startswith("text/"))


@pytest.mark.parametrize("path", pages(), ids=name_of)
def test_page_is_stored_as_executed_from_top_to_bottom(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3", "without a kernelspec JupyterLab asks for a kernel"
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    kinds = [output.output_type for cell in cells for output in cell.outputs]
    assert "error" not in kinds
    assert not [o for cell in cells for o in cell.outputs if o.get("name") == "stderr"]


@pytest.mark.parametrize("path", pages(), ids=name_of)
def test_a_page_contains_no_data_of_the_machine_or_the_time(path):
    stored = path.read_text()
    assert nbformat.writes(cleaned(nbformat.reads(stored, as_version=4), path.stem)).strip() == stored.strip()
    for cell in code_cells(nbformat.reads(stored, as_version=4)):
        for text in texts(cell):
            found = re.search(r"/(?:tmp|home|root|Users)/|\\Users\\|ipykernel_\d|site-packages|0x[0-9a-f]{6}", text)
            assert found is None, f"{found[0]} in the output of: {cell.source}"


@pytest.mark.parametrize("path", pages(), ids=name_of)
def test_links_lead_somewhere(path):
    notebook = nbformat.read(path, as_version=4)
    prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    links = re.findall(r"\]\((?!https?:)([^)#]+)", prose)
    assert [link for link in links if not (path.parent / link).exists()] == []


@pytest.mark.parametrize("path", pages(), ids=name_of)
def test_links_of_outputs_stay_in_the_workbook(path):
    links = re.findall(r'href=\\"([^"#:\\]+)', path.read_text())
    outside = [link for link in links if not (path.parent / link).resolve().is_relative_to(ROOT)]
    assert outside == [] and all((path.parent / link).exists() for link in links)


@pytest.mark.parametrize("path", pages(), ids=name_of)
def test_every_way_of_showing_says_the_same(path):
    """HTML output has every word of its plain-text alternative, so that readers of either one miss nothing."""
    for cell in code_cells(nbformat.read(path, as_version=4)):
        for output in cell.outputs:
            if "text/html" in (data := output.get("data", {})):
                page = re.sub(r'<img [^>]*alt="([^"]*)"[^>]*>', r" \1 ", data["text/html"].replace("<wbr>", ""))
                page = re.sub(r"<style>.*?</style>|<[^>]+>", " ", page, flags=re.DOTALL)
                # Not in the HTML: list numbers, which the browser adds, and the note on hidden columns, since HTML
                # shows all of them.
                text = re.sub(r"^ *\d+\. |^Not shown at this width", "", data["text/plain"], flags=re.MULTILINE)
                missing = set(re.findall(r"\w+", text)) - set(re.findall(r"\w+", page))
                # Plain text may truncate or break a long word at the edge of a column.
                assert not [word for word in missing if len(word) < 5 or word not in page]


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_unless_sampled([path.name for path in EXERCISES], 3))
def test_exercise_page_passes_with_its_solution_in_place(name, tmp_path, monkeypatch):
    path = ROOT / "exercises" / name
    # nbval runs the stored page. This test runs only the cells that the answer depends on, as the command line does.
    notebook = nbformat.read(path, as_version=4)
    slug = re.sub(r"^\d+_", "", path.stem)
    (stub,) = [cell for cell in code_cells(notebook) if defines(cell.source, slug)]
    assert "NotImplementedError" in stub.source
    assert [cell for cell in code_cells(notebook) if f"check({slug})" in cell.source]
    stub.source = (ROOT / "solutions" / f"{slug}.py").read_text()
    nbformat.write(notebook, tmp_path / path.name)
    monkeypatch.setattr(sys, "path", [*sys.path])  # undone after the test: a check adds the page's folder
    verdict = in_process.grade_file(tmp_path / path.name)
    assert verdict.exercise == slug and verdict.passed, verdict


@pytest.mark.parametrize("path", EXERCISES, ids=name_of)
def test_a_worked_answer_in_its_cell_changes_no_function_that_the_page_calls(path):
    """The comparisons after the answer need the page's functions unmodified."""
    slug = re.sub(r"^\d+_", "", path.stem)
    cells = code_cells(nbformat.read(path, as_version=4))
    page = functions("\n".join(cell.source for cell in cells))
    answer = functions((ROOT / "solutions" / f"{slug}.py").read_text())
    changed = {name for name in page.keys() & answer.keys() - {slug} if code(page[name]) != code(answer[name])}
    called = {node.id for function in page.values() for node in ast.walk(function) if isinstance(node, ast.Name)}
    assert changed & called == set()


def functions(source: str) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}


def code(function: ast.FunctionDef) -> str:
    """Return a function's code without its docstring and comments."""
    body = function.body[ast.get_docstring(function) is not None :]
    return "\n".join(map(ast.unparse, [function.args, *function.decorator_list, *body]))


def defines(source: str, name: str) -> bool:
    return any(isinstance(node, ast.FunctionDef) and node.name == name for node in ast.parse(source).body)
