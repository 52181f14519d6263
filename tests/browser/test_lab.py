"""Chapters in JupyterLab, in both themes: they run without an error in the page or in the kernel."""

import contextlib

import nbformat
import pytest
from playwright.sync_api import expect


def assert_clean(notebook, cells):
    assert not [out for cell in cells for out in cell.outputs if out.output_type == "error"]
    assert not [out.text for cell in cells for out in cell.outputs if out.get("name") == "stderr"]
    assert notebook.page.locator(".jp-Dialog").all_inner_texts() == []
    assert notebook.problems == []


in_light = pytest.mark.parametrize("lab", ["light"], indirect=True)


@pytest.fixture(scope="module")
def two_passes(lab):
    """Open and run a chapter; return the page and its cells as they were saved."""
    notebook = lab.open("notebooks/02_two_passes.ipynb")
    assert not notebook.is_unsaved(), "a page that was just opened has nothing to save"
    return notebook, notebook.run_all()


@pytest.mark.slow
@in_light
def test_chapter_runs_and_looks_right(two_passes, lab):
    notebook, cells = two_passes
    assert_clean(notebook, cells)
    assert_looks_right(notebook, lab.theme)
    for letter in "SRD":
        assert notebook.contrast(f".rematscope .rs-{letter} >> visible=true") >= 4.5, letter
    notebook.picture("02_two_passes")


def assert_looks_right(notebook, theme):
    assert notebook.page.locator("body").get_attribute("data-jp-theme-light") == str(theme == "light").lower()
    programs = notebook.show(".rematscope .rs-programs >> visible=true")
    left, right = programs.evaluate("t => [...t.querySelectorAll('td')].map(td => td.getBoundingClientRect().toJSON())")
    assert left["y"] == right["y"] and left["right"] <= right["left"], "the two programs stand side by side"


@pytest.mark.slow
@in_light
def test_widget_changes_the_view(two_passes):
    notebook, _ = two_passes
    widget = notebook.show(".jupyter-widgets.widget-vbox:not(.remat-panel)")
    widget.get_by_text("recomputes 3").wait_for()
    widget.locator("select").select_option("no checkpoint")
    widget.get_by_text("recomputes 0").wait_for()
    expect(widget).not_to_contain_text("recomputes 3")


@contextlib.contextmanager
def open_narrow(lab, path):
    """Open a page in a window that is 900 px wide, and so high that JupyterLab renders all cells; then close it."""
    cells = nbformat.read(lab.folder / path, as_version=4).cells
    notebook = lab.open(path)
    notebook.page.set_viewport_size({"width": 900, "height": 20_000})
    expect(notebook.page.locator(".jp-Notebook .jp-Cell")).to_have_count(len(cells), timeout=300_000)
    texts = sum(cell.cell_type == "markdown" for cell in cells)
    expect(notebook.page.locator(".jp-MarkdownCell .jp-RenderedMarkdown")).to_have_count(texts)
    yield notebook
    notebook.page.close()  # a window of this height slows the browser down


@pytest.mark.slow
@in_light
@pytest.mark.parametrize(
    "path",
    ["notebooks/06_policies", "notebooks/13_offload", "notebooks/19_from_your_framework", "exercises/24_fsdp_layers"],
)
def test_a_narrow_page_does_not_scroll_sideways(lab, path):
    with open_narrow(lab, f"{path}.ipynb") as notebook:
        scrolling = notebook.page.locator(".jp-WindowedPanel-outer, .jp-RenderedMarkdown, .jp-RenderedMarkdown pre")
        assert scrolling.evaluate_all("all => Math.max(...all.map(each => each.scrollWidth - each.clientWidth))") == 0


# The parts of elements, such as words, that are on more than one line.
BROKEN = """(elements, part) => elements.flatMap(element => {
    const range = document.createRange(), texts = document.createTreeWalker(element, NodeFilter.SHOW_TEXT), broken = [];
    while (texts.nextNode())
        for (const found of texts.currentNode.data.matchAll(new RegExp(part, "g"))) {
            range.setStart(texts.currentNode, found.index);
            range.setEnd(texts.currentNode, found.index + found[0].length);
            const tops = new Set([...range.getClientRects()].map(rectangle => rectangle.top));  // may be equal
            if (tops.size > 1) broken.push(found[0]);
        }
    return broken;
})"""


@pytest.mark.slow
@in_light
@pytest.mark.parametrize(
    "path, where, part",
    [
        ("notebooks/03_checkpoint", ".jp-RenderedMarkdown td", r"\w+"),
        ("notebooks/19_from_your_framework", ".jp-RenderedMarkdown td", r"[^\W_]+"),
        ("notebooks/12_without_names", ".rematscope > pre", "forward.*backward"),
        ("exercises/01_predict_residuals", ".jp-RenderedMarkdown td code", r"\S+"),
        ("exercises/03_remat_flag", ".jp-RenderedText pre", r"\S+"),
        ("exercises/11_scan_layers", ".jp-RenderedText pre", ".+"),
        ("exercises/19_activation_bytes", ".jp-RenderedText pre", ".+"),
        ("exercises/31_read_oom", ".jp-RenderedMarkdown pre", ".+"),
    ],
)
def test_words_and_lines_are_not_broken_in_a_narrow_window(lab, path, where, part):
    with open_narrow(lab, f"{path}.ipynb") as notebook:
        shown = notebook.page.locator(where)
        assert shown.count() and shown.evaluate_all(BROKEN, part) == []


# The left edges of each table's cells, row by row.
EDGES = "all => all.map(table => [...table.rows].map(row => [...row.cells].map(e => e.getBoundingClientRect().left)))"


@pytest.mark.slow
@in_light
def test_in_a_narrow_window_tables_have_columns_and_stacked_programs_start_at_one_edge(lab):
    with open_narrow(lab, "exercises/04_two_checkpoints.ipynb") as notebook:
        notebook.run_all()  # JupyterLab drops the style sheet of stored outputs, because this copy is not trusted
        tables = notebook.page.locator(".rs-table").evaluate_all(EDGES)
        assert tables and all(row == table[0] for table in tables for row in table)
        programs = notebook.page.locator(".rs-programs pre")
        left_edges = programs.evaluate_all("all => all.map(each => each.getBoundingClientRect().left)")
        assert len(left_edges) == 2 and left_edges[0] == left_edges[1]


@pytest.mark.slow
@in_light
def test_a_folded_output_shows_no_html(lab):
    first_line = lab.open("notebooks/03_checkpoint.ipynb").page.locator(".jp-OutputPlaceholder .jp-PlaceholderText")
    expect(first_line).to_have_css("display", "none")


# Each chapter runs in one theme only; test_learner.py tests an exercise in both, test_widgets.py the widgets.


@pytest.mark.slow
@pytest.mark.parametrize("lab", ["dark"], indirect=True)
def test_first_page_runs_and_looks_right(lab):
    notebook = lab.open("notebooks/00_start_here.ipynb")
    assert_clean(notebook, notebook.run_all())
    assert_looks_right(notebook, lab.theme)
    for letter in "SR":
        assert notebook.contrast(f".rematscope .rs-{letter} >> visible=true") >= 4.5, letter
    notebook.picture("00_start_here")
