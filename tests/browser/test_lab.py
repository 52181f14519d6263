"""Chapters in JupyterLab, in both themes: they run without an error in the page or in the kernel."""

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


@pytest.mark.slow
@in_light
@pytest.mark.parametrize(
    "name, wide", [("05_names", ".jp-InputPlaceholder"), ("06_policies", ".jp-RenderedMarkdown table")]
)
def test_a_narrow_page_does_not_scroll_sideways(lab, name, wide):
    page = lab.open(f"notebooks/{name}.ipynb").page
    page.set_viewport_size({"width": 900, "height": 900})
    page.locator(".jp-RenderedMarkdown table").wait_for(state="attached")  # the last cell but one: the others exist too
    scrolling = page.locator(".jp-WindowedPanel-outer, .jp-RenderedMarkdown")
    for element in page.locator(wide).all():
        element.scroll_into_view_if_needed()
        page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")  # it is laid out
        assert scrolling.evaluate_all("all => Math.max(...all.map(each => each.scrollWidth - each.clientWidth))") <= 0


@pytest.mark.slow
@in_light
def test_a_folded_output_shows_no_html(lab):
    first_line = lab.open("notebooks/03_checkpoint.ipynb").page.locator(".jp-OutputPlaceholder .jp-PlaceholderText")
    expect(first_line).to_have_css("display", "none", timeout=10_000)


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
