"""A learner's way through JupyterLab, in both themes: nothing may fail on the way, in the page or in the kernel."""

import pytest
from playwright.sync_api import expect

ANSWER = """
import jax
import jax.numpy as jnp


def checkpoint_dot_policy(w1, w2, x):
    def pipeline(w1, w2, x):
        return jnp.sum((jax.nn.relu(x @ w1) @ w2) ** 2)

    policy = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    return jax.checkpoint(pipeline, policy=policy)(w1, w2, x)
"""


def text_of(cell) -> str:
    """All that a cell printed or showed, as plain text."""
    return "\n".join(out.get("text") or out.get("data", {}).get("text/plain", "") for out in cell.outputs)


def assert_clean(notebook, cells):
    assert not [out for cell in cells for out in cell.outputs if out.output_type == "error"]
    assert not [out.text for cell in cells for out in cell.outputs if out.get("name") == "stderr"]
    assert notebook.page.locator(".jp-Dialog").all_inner_texts() == []
    assert notebook.problems == []


@pytest.fixture(scope="module")
def two_passes(lab):
    """A chapter that has been run, and its cells as they were saved."""
    notebook = lab.open("notebooks/02_two_passes.ipynb")
    assert not notebook.is_unsaved(), "a page that was just opened has nothing to save"
    return notebook, notebook.run_all()


def test_chapter_runs_and_looks_right(two_passes, lab):
    notebook, cells = two_passes
    assert_clean(notebook, cells)
    assert_looks_right(notebook, lab.theme)
    for letter in "SRD":
        assert notebook.contrast(f".rematscope .rs-{letter}") >= 4.5, letter
    notebook.picture("02_two_passes")


def assert_looks_right(notebook, theme):
    assert notebook.page.locator("body").get_attribute("data-jp-theme-light") == str(theme == "light").lower()
    programs = notebook.show(".rematscope .rs-programs >> visible=true")
    left, right = programs.evaluate("t => [...t.querySelectorAll('td')].map(td => td.getBoundingClientRect().toJSON())")
    assert left["y"] == right["y"] and left["right"] <= right["left"], "the two programs stand side by side"


def test_widget_changes_the_view(two_passes):
    notebook, _ = two_passes
    widget = notebook.show(".jupyter-widgets.widget-vbox:not(.remat-panel)")
    widget.get_by_text("recomputes 5").wait_for()
    widget.locator("select").select_option("no checkpoint")
    widget.get_by_text("recomputes 0").wait_for()
    expect(widget).not_to_contain_text("recomputes 5")


# Other tests open the first page and the panel in the other theme.


@pytest.mark.parametrize("lab", ["dark"], indirect=True)
def test_first_page_runs_and_looks_right(lab):
    notebook = lab.open("notebooks/00_start_here.ipynb")
    assert_clean(notebook, notebook.run_all())
    assert_looks_right(notebook, lab.theme)
    notebook.picture("00_start_here")


@pytest.mark.parametrize("lab", ["dark"], indirect=True)
def test_exercise_from_stub_to_passed(lab):
    notebook = lab.open("exercises/10_checkpoint_dot_policy.ipynb")
    cells = notebook.run_all()
    *_, check = [cell for cell in cells if "check(checkpoint_dot_policy)" in cell.source]
    assert "Not attempted" in text_of(check)
    notebook.replace_cell('raise NotImplementedError("your turn")', ANSWER.strip())
    cells = notebook.run_all()
    *_, check = [cell for cell in cells if "check(checkpoint_dot_policy)" in cell.source]
    assert "Passed" in text_of(check)
    notebook.show("text=Passed")
    assert_clean(notebook, cells)
    notebook.picture("10_checkpoint_dot_policy")
