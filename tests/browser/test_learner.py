"""One exercise as a learner does it: two wrong answers and a right one through the panel, then the board, before and
after a restart of JupyterLab. Also the panel's message when the kernel has died."""

import re

import pytest
from playwright.sync_api import expect

STUB = "def checkpoint_dot_policy("
BOARD = "from grader import board\n\nboard()"
PLAIN = """
def checkpoint_dot_policy(w1, w2, x):
    return jnp.sum((jax.nn.relu(x @ w1) @ w2) ** 2)
"""
NO_POLICY = """
@jax.checkpoint
def checkpoint_dot_policy(w1, w2, x):
    return jnp.sum((jax.nn.relu(x @ w1) @ w2) ** 2)
"""
RIGHT = NO_POLICY.replace(
    "@jax.checkpoint",
    "import functools\n\n@functools.partial(jax.checkpoint, "
    "policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable)",
)


# Only the panel is tested in both themes.
in_one_theme = pytest.mark.parametrize("lab", [pytest.param("dark", marks=pytest.mark.slow)], indirect=True)


@pytest.fixture(scope="module")
def exercise(lab):
    notebook = lab.open("exercises/10_checkpoint_dot_policy.ipynb")
    cells = notebook.run_all()
    assert not [out for cell in cells for out in cell.outputs if out.get("name") == "stderr"]
    notebook.show_panel()  # JupyterLab does not render cells out of view
    notebook.panel.get_by_role("button").first.wait_for()  # the panel that is stored with the page has no buttons
    return notebook


def press(notebook, label: str, answer: str):
    """Press one of the panel's buttons with the keyboard and wait for its answer. The button must keep the focus and
    its position and stay in view, and so must the first line of the answer. Until the answer arrives, the panel may not
    become smaller than it is before and after: what follows it would jump up and back."""
    button = notebook.panel.get_by_role("button", name=label, exact=True)
    button.hover(trial=True)  # waits until the layout is stable
    # The answer's text may already be on the page. So wait for the button's label instead: it ends in " …" while the
    # button's action runs, and changes back when the action is done.
    before = button.evaluate("""button => {
        delete button.dataset.atWork;
        new MutationObserver(() => button.dataset.atWork = button.textContent.endsWith(' …'))
            .observe(button, {childList: true, characterData: true, subtree: true});
        const panel = button.closest('.remat-panel');
        const look = () => {
            window.lowest = Math.min(window.lowest, panel.offsetHeight);
            if (panel.isConnected && button.dataset.atWork !== 'false') requestAnimationFrame(look);
        };
        look(window.lowest = panel.offsetHeight);
        return window.lowest;
    }""")
    notebook.press(button)
    place = button.bounding_box()
    notebook.panel.locator("button[data-at-work=false]", has_text=label).wait_for()
    notebook.panel.get_by_text(answer).first.wait_for()
    assert notebook.page.evaluate("document.activeElement.textContent") == label
    assert button.bounding_box() == place
    after = notebook.panel.evaluate("panel => panel.offsetHeight")
    assert notebook.page.evaluate("window.lowest") >= min(before, after) - 1
    said = (
        notebook.panel.get_by_role("status").filter(has_text=answer).first
    )  # the panel may have several matching findings
    assert 0 < place["y"] < said.bounding_box()["y"] < 600


def test_an_answer_finds_its_way_through_the_panel(exercise):
    panel = exercise.panel
    expect(panel.get_by_text("Not attempted")).to_have_count(1)

    exercise.run_cell(STUB, PLAIN)
    exercise.page.set_viewport_size({"width": 900, "height": 900})
    press(exercise, "Check again", "Not passed yet")
    exercise.page.set_viewport_size({"width": 1440, "height": 900})
    expect(panel).to_contain_text("relu's mask, bool[600,32]")
    expect(panel.get_by_role("row", name="no checkpoint")).to_have_count(1)

    # A finding expands to the two programs, in which the equation at fault is marked.
    programs = panel.locator("details")
    mark = programs.get_by_text("◀ here").first
    assert not mark.is_visible()
    buttons = panel.get_by_role("button")
    assert exercise.stops(5) == [*(button.inner_text() for button in buttons.all()[1:5]), programs.inner_text()]
    programs.locator("summary").first.hover()  # hover() waits until the layout is stable
    place = panel.bounding_box()["y"]
    exercise.page.keyboard.press("Enter")
    expect(mark).to_be_visible()
    assert panel.bounding_box()["y"] == place, "opening a finding moves nothing"
    box = programs.get_by_role("group", name="Forward and backward program").first
    assert box.bounding_box()["height"] <= 0.7 * 900, "long programs scroll in their own box"
    left, right = programs.locator(".rs-programs td").all()
    assert left.bounding_box()["y"] == right.bounding_box()["y"], "the two programs stand side by side"
    exercise.picture("panel")
    exercise.assert_accessible(".remat-panel")

    press(exercise, "Hint", "Hint 1")
    press(exercise, "Solution", "The worked answer is not available yet")

    exercise.run_cell(STUB, NO_POLICY)
    press(exercise, "Check again", "Your forward pass does not save x @ w1")
    expect(panel.get_by_text("extra residual")).to_have_count(0)
    expect(panel.get_by_text("not available yet"), "what was said about the answer before is gone").to_have_count(0)

    assert_verdict_stays_while_its_cell_runs(exercise)

    exercise.run_cell(STUB, RIGHT)
    exercise.page.set_viewport_size({"width": 420, "height": 900})
    exercise.page.keyboard.press("Control+b")  # closes the file browser, as README suggests
    exercise.page.locator(".jp-FileBrowser").wait_for(state="hidden")  # the panel becomes wider, and less high
    press(exercise, "Check again", "Values and gradients match the reference")
    assert exercise.width_hidden() <= 0, "nothing scrolls sideways"
    verdict, cell = (panel.locator(of).first.bounding_box() for of in ("li", "xpath=ancestor::*[@class][1]"))
    assert verdict["x"] + verdict["width"] <= cell["x"] + cell["width"], "no text is cut off"
    exercise.picture("panel_passed")
    exercise.page.set_viewport_size({"width": 1440, "height": 900})
    exercise.page.keyboard.press("Control+b")
    press(exercise, "Solution", "Your last attempt")
    own, worked = panel.locator("div:has(> p > strong):visible").all()[:2]
    assert own.bounding_box()["x"] + own.bounding_box()["width"] <= worked.bounding_box()["x"], (
        "neither is on the other"
    )
    exercise.picture("panel_solution")
    for width in (900, 420):
        exercise.page.set_viewport_size({"width": width, "height": 900})
        exercise.assert_accessible(".remat-panel")
        exercise.picture(f"panel_{width}")
    exercise.page.set_viewport_size({"width": 1440, "height": 900})
    assert exercise.problems == []
    exercise.save()


def assert_verdict_stays_while_its_cell_runs(exercise):
    """Assert that the last verdict stays in place, dimmed, until the new one arrives: the page must not jump."""
    cell = exercise.page.locator(".jp-CodeCell:has-text('from grader import check')")
    cell.locator(".cm-content").click()
    cell.evaluate("""cell => {
        const seen = window.seen = {busy: false, low: false};
        const area = cell.querySelector('.jp-Cell-outputArea'), height = area.offsetHeight;
        const look = () => {
            const text = cell.querySelector('.remat-copy')?.textContent ?? '';
            if (text.includes('Checking your answer') && text.includes('Not passed yet')) {
                seen.busy = true;
                seen.low ||= area.offsetHeight < height - 20;
            }
            requestAnimationFrame(look);
        };
        look();
    }""")
    with exercise.run(cell.locator(".jp-InputPrompt").element_handles()):
        exercise.page.keyboard.press("Control+Enter")
    seen = exercise.page.evaluate("window.seen")
    # The test starts to look when the running check shows the last verdict: before that, JupyterLab clears the output.
    assert seen == {"busy": True, "low": False}
    expect(exercise.panel).to_have_count(1)


@in_one_theme
def test_a_pass_leads_to_the_next_page_in_one_click(exercise):
    link = exercise.panel.get_by_role("link").first
    link.scroll_into_view_if_needed()
    exercise.page.evaluate("window.sameDocument = true")
    link.click()
    tab = exercise.page.locator(
        ".lm-TabBar-tab.jp-mod-current", has_text=re.compile("07_scan|11_scan_layers")
    )  # what follows exercise 10
    tab.wait_for()
    assert exercise.page.evaluate("window.sameDocument"), "JupyterLab opens the page itself"
    # Close the page only once it has loaded: in one of many runs, the panel stayed hidden after this.
    exercise.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell").first.wait_for()
    exercise.page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
    tab.locator(".lm-TabBar-tabCloseIcon").click()
    tab.wait_for(state="detached")
    exercise.page.locator(".lm-TabBar-tab", has_text="10_checkpoint_dot_policy.ipynb").click()
    exercise.panel.wait_for()


@in_one_theme
def test_the_panel_says_when_its_kernel_has_ended(exercise):
    lost = exercise.panel.get_by_text("The kernel that ran this check has ended")
    expect(lost).not_to_be_visible()
    exercise.replace_cell("print_fwd_bwd(dots_policy, w, x)", "import os\nos._exit(1)")
    exercise.page.keyboard.press("Control+Enter")
    lost.wait_for()
    expect(exercise.panel.get_by_role("button").first).not_to_be_visible()
    exercise.page.locator(".jp-Dialog button").click()  # JupyterLab's notice that it restarts the kernel
    exercise.picture("panel_lost")


@in_one_theme
def test_the_board_knows_and_remembers(exercise, lab):
    for restarted in (False, True):
        if restarted:
            lab.server.stop()
            lab.server.start()
        notebook = lab.open("notebooks/00_start_here.ipynb")
        notebook.run_cell("from grader import board", BOARD)  # the board needs no other cell of the chapter
        row = notebook.page.locator(".jp-OutputArea").get_by_role("row", name="Checkpoint with a save policy")
        row.scroll_into_view_if_needed()
        expect(row.get_by_role("cell")).to_contain_text(["passed", "4"])
        notebook.picture("board")
        assert notebook.problems == []
        notebook.page.close()


@in_one_theme
def test_a_reopened_page_shows_its_last_verdict(exercise, lab):
    exercise.save()  # the kernel has died, so JupyterLab no longer knows the page's widgets
    again = lab.open("exercises/10_checkpoint_dot_policy.ipynb")
    again.show_panel()
    again.panel.get_by_text("Passed", exact=True).wait_for()
    expect(again.panel.get_by_text("The kernel that ran this check has ended")).to_be_visible()
