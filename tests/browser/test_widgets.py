"""The interactive programs and the panel, with the pointer and with the keyboard."""

import re

import nbformat
import pytest
from lab import tab_to
from playwright.sync_api import expect

PAGE = """
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from rematscope import explore, interactive_programs


def layer(W, x):
    return jnp.sin(checkpoint_name(W @ x, "product"))


def net(W1, W2, x):
    return layer(W2, layer(W1, x))


arguments = jnp.ones((5, 4)), jnp.ones((6, 5)), jnp.ones(4)
interactive_programs(jax.checkpoint(net, policy=jax.checkpoint_policies.dots_saveable), *arguments)
"""


QUESTION = """
from grader import predict

predict("How many equations in two layers?", lambda: 6)
"""


LONG = """
from rematscope import SideBySide, trace

SideBySide(trace(lambda x: [x := jnp.sin(x) * (i + 0.5) for i in range(60)][-1].sum(), jnp.ones(4)))
"""


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def notebook(lab):
    """Open a page with both widgets, and run it once."""
    codes = PAGE.strip(), "explore(net, *arguments)", LONG.strip(), QUESTION.strip(), "print('six' + 'teen')"
    prose = nbformat.v4.new_markdown_cell("Three per layer.\n\n## The next section\n\nSomething else.")
    page = nbformat.v4.new_notebook(
        cells=[*(nbformat.v4.new_code_cell(code) for code in codes), prose],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}},
    )
    nbformat.write(page, lab.folder / "notebooks" / "widgets.ipynb")
    notebook = lab.open("notebooks/widgets.ipynb")
    notebook.run_all()
    notebook.page.locator(".rs-pane").nth(1).wait_for()
    return notebook


def assert_lit(pane, name: str):
    """Assert that exactly this value is highlighted in a pane."""
    expect(pane.locator(".rs-lit").first).to_have_text(re.compile(rf"\s*{name}\b"))
    assert {text.split()[0] for text in pane.locator(".rs-lit").all_inner_texts()} == {name}


def test_pointing_at_a_value_lights_both_programs_and_the_table(notebook):
    pane = notebook.page.locator(".rs-pane").first
    forward, backward = pane.get_by_role("listbox").all()
    backward.get_by_text("a", exact=True).first.hover()
    expect(forward.locator(".rs-lit")).to_have_text(["a", "a"])
    expect(backward.locator(".rs-lit")).to_have_count(1)
    assert pane.locator("tr.rs-lit").all_inner_texts()[0].startswith("a\tf32[5]\t20 B")
    expect(pane.get_by_role("status")).to_contain_text("a · f32[5] · saved, 20 B")
    assert notebook.contrast(".rs-value.rs-lit") >= 4.5 and notebook.contrast("tr.rs-lit td") >= 4.5
    notebook.picture("linked")
    notebook.page.mouse.move(2, 2)
    expect(pane.locator(".rs-lit")).to_have_count(0)


def test_keyboard_walks_lines_and_crosses_over(notebook):
    pane, press = notebook.page.locator(".rs-pane").first, notebook.page.keyboard.press
    forward, backward = pane.get_by_role("listbox").all()
    pane.get_by_role("status").click()
    tab_to(notebook.page, forward.get_by_role("option").first)
    press("ArrowDown")
    assert_lit(pane, "W2")
    press("ArrowRight")
    expect(backward.locator(":focus"), "to where the other program mentions it").to_contain_text("W2")
    press("Home")
    assert_lit(pane, "ct")
    press("Escape")
    expect(pane.locator(".rs-lit")).to_have_count(0)
    expect(backward.locator(":focus")).to_have_count(1)
    press("Shift+Tab")
    expect(forward.locator(":focus"), "Tab comes back to the line that was left").to_contain_text("W2")


def test_choosing_a_policy_or_a_name_changes_the_table(notebook):
    panel = notebook.page.locator(".jupyter-widgets.widget-vbox").nth(1)
    panel.scroll_into_view_if_needed()
    panel.get_by_text("recomputes 1").wait_for()
    expect(panel.locator(".rs-table")).to_contain_text(re.compile("product.*product", re.DOTALL))
    panel.get_by_label("save 'product'").uncheck()
    panel.get_by_text("save_only_these_names())").wait_for()
    expect(panel.locator(".rs-table")).not_to_contain_text("product")
    panel.get_by_label("policy").select_option("everything_saveable")
    panel.get_by_text("recomputes 0").wait_for()
    expect(panel.get_by_role("status")).to_have_text(re.compile("This choice saves"))
    panel.locator(".rs-table tr", has_text="cos").first.hover()
    expect(panel.locator(".rs-value.rs-lit").nth(1), "a row lights its values").to_be_visible()
    notebook.picture("explore")


def test_a_long_program_is_searched_without_a_kernel(notebook):
    search, press = notebook.page.get_by_role("search"), notebook.page.keyboard.press
    search.get_by_label("Find in the programs").click()
    notebook.page.keyboard.type("cos(")
    press("Enter")
    expect(search.get_by_role("status")).to_have_text("1 of 60 lines")
    expect(notebook.page.locator(".rs-row.rs-current")).to_contain_text("cos(")
    notebook.page.locator(".rs-row.rs-current").click()
    press("u")
    current = notebook.page.locator(".rs-row.rs-current")
    expect(current, "no shortcut of JupyterLab's").to_have_text(re.compile("B "))
    assert notebook.contrast(".rs-row.rs-current") >= 4.5
    notebook.picture("search")


def test_a_prediction_is_answered_by_keyboard(notebook):
    question = notebook.page.locator(".remat-panel", has_text="How many equations")
    question.scroll_into_view_if_needed()
    question.get_by_text("How many equations").first.click()
    tab_to(notebook.page, question.get_by_label("number"))
    notebook.page.keyboard.type("5")
    notebook.page.keyboard.press("Enter")
    question.get_by_text("Not 5: it is more.").wait_for()
    output = notebook.page.get_by_text("sixteen", exact=True)
    explanation = notebook.page.locator(".jp-RenderedMarkdown p", has_text="Three per layer.")
    for hidden in (output, explanation):
        expect(hidden, "hidden until the question is answered").to_be_hidden()
    expect(notebook.page.locator(".jp-RenderedMarkdown p", has_text="Something else.")).to_be_visible()
    notebook.picture("unanswered")
    notebook.page.keyboard.press("Control+a")
    notebook.page.keyboard.type("6")
    notebook.press(question.get_by_role("button", name="Check"))
    question.get_by_text("Right: 6.").wait_for()
    for shown in (output, explanation):
        expect(shown).to_be_visible()
    notebook.assert_accessible(".remat-panel")
    notebook.picture("prediction")


def test_the_widgets_are_accessible_and_the_browser_reports_no_error(notebook):
    notebook.assert_accessible(".jupyter-widgets.widget-vbox")
    notebook.assert_accessible(".rs-search")
    assert notebook.problems == []
