"""Helpers for tests in JupyterLab: open a page, run and edit cells, press buttons, and inspect the result."""

import contextlib
import itertools
import subprocess
import time
import urllib.request
from pathlib import Path

import nbformat
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import TimeoutError

# A cell's prompt shows [*] while the cell runs, and a number once all its results have arrived; a folded cell has no
# prompt. Stored pages already have numbers, so `run` clears them first: numbers found afterwards are from this run.
_PROMPT = ".jp-InputPrompt:not(.jp-Placeholder-prompt)"
_FORGET = "prompts => prompts.forEach(prompt => prompt.textContent = '')"
_RAN = "prompts => prompts.every(prompt => /[0-9]/.test(prompt.textContent))"
_OUTPUT = Path(__file__).parents[2] / "test-output"


class Server:
    """A JupyterLab server that can be stopped and restarted."""

    def __init__(self, command: list[str], address: str, folder: Path, environment: dict[str, str]):
        self.address = address
        self._command, self._folder, self._environment = command, folder, environment
        self._process = None

    def start(self):
        log = self._folder / "server.log"
        with log.open("a") as out:
            self._process = subprocess.Popen(
                self._command, cwd=self._folder, env=self._environment, stdout=out, stderr=out
            )
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                pytest.fail(f"JupyterLab did not start:\n{log.read_text()}")
            try:
                urllib.request.urlopen(f"{self.address}/api", timeout=5).close()
                return
            except OSError:
                time.sleep(0.05)
        pytest.fail(f"JupyterLab did not answer:\n{log.read_text()}")

    def stop(self):
        if self._process:
            self._process.terminate()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:  # on a busy machine, it may wait long for its kernels to end
                self._process.kill()
                self._process.wait()


class Workbook:
    """A server and one browser context, which caches JupyterLab's scripts between pages.

    Attributes:
      server: the server.
      folder: the folder that it serves.
    """

    def __init__(self, server: Server, context, folder: Path):
        self.server, self.context, self.folder = server, context, folder

    def close_pages(self):
        """Close all pages and shut their kernels down, so that the next test starts from a clean state."""
        for page in self.context.pages:
            page.close()
        token = next(cookie["value"] for cookie in self.context.cookies() if cookie["name"] == "_xsrf")
        sessions = f"{self.server.address}/api/sessions"
        for session in self.context.request.get(sessions).json():
            self.context.request.delete(f"{sessions}/{session['id']}", headers={"X-XSRFToken": token})


class Lab:
    """JupyterLab in a browser, in one theme.

    Attributes:
      server: its server.
      folder: the folder that it serves.
      theme: `"light"` or `"dark"`.
    """

    _opened = itertools.count()

    def __init__(self, workbook: Workbook, theme: str):
        self.server, self.folder, self.theme, self._context = workbook.server, workbook.folder, theme, workbook.context

    def open(self, path: str) -> "OpenPage":
        """Open a notebook in a new workspace."""
        page = self._context.new_page()
        page.emulate_media(color_scheme=self.theme)
        page.set_default_timeout(60_000)
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(f"page error: {error}"))
        page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
        page.goto(f"{self.server.address}/lab/workspaces/{next(self._opened)}/tree/{path}")
        _wait_until_ready(page)
        return OpenPage(page, self.folder / path, problems, self.theme)


def _wait_until_ready(page):
    page.wait_for_selector(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell")
    # JupyterLab loses requests to run a cell that are made before the kernel is ready.
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()


def tab_to(page, element):
    """Move the focus to an element with the Tab key alone."""
    for _ in range(60):
        if element.evaluate("element => element === document.activeElement"):
            return
        page.keyboard.press("Tab")
    pytest.fail(f"Tab does not lead to {element}")


class OpenPage:
    """A notebook that is open in JupyterLab.

    Attributes:
      page: Playwright's page.
      problems: errors that the browser reported so far.
    """

    def __init__(self, page, file: Path, problems: list[str], theme: str):
        self.page, self.problems = page, problems
        self._file, self._theme = file, theme

    def run_all(self) -> list:
        """Run all cells through the menu, save, and return the code cells as they were saved."""
        with self.run(self.page.locator(f".jp-CodeCell {_PROMPT}").element_handles()):
            self.page.get_by_role("menuitem", name="Run", exact=True).click()
            self.page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        self.save()
        return [c for c in nbformat.read(self._file, as_version=4).cells if c.cell_type == "code"]

    @contextlib.contextmanager
    def run(self, prompts: list):
        """Start cells in the body of the `with` statement, then wait until the cells with these prompts have run."""
        self.page.evaluate(_FORGET, prompts)
        yield
        self.page.wait_for_function(_RAN, arg=prompts)

    def width_hidden(self) -> int:
        """Return by how many pixels the widest output exceeds its visible area."""
        return self.page.evaluate("""() => Math.max(0, ...[...document.querySelectorAll('.jp-OutputArea-output')]
            .map(output => output.scrollWidth - output.clientWidth))""")

    def save(self):
        """Save the notebook and wait until the request is done. An earlier save in progress could miss changes."""
        with self.page.expect_request(lambda sent: sent.method == "PUT" and "/api/contents/" in sent.url) as asked:
            self.page.keyboard.press("Control+s")
        assert asked.value.response().ok

    def is_unsaved(self) -> bool:
        """Return whether JupyterLab marks the notebook's tab as unsaved."""
        return self.page.locator(".lm-TabBar-tab.jp-mod-current.jp-mod-dirty").count() > 0

    def replace_cell(self, containing: str, code: str):
        """Replace the source of the cell that contains a text by `code`, and return that cell."""
        cell = self.page.locator(".jp-CodeCell", has_text=containing).first.element_handle()
        editor = cell.query_selector(".cm-content")
        editor.scroll_into_view_if_needed()
        editor.click()
        self.page.wait_for_function("editor => editor === document.activeElement", arg=editor)
        self.page.keyboard.press("Control+a")
        self.page.keyboard.insert_text(code)
        return cell

    def run_cell(self, containing: str, code: str):
        """Replace the source of the cell that contains a text by `code`, and run it."""
        with self.run(self.replace_cell(containing, code).query_selector_all(_PROMPT)):
            self.page.keyboard.press("Control+Enter")

    def press(self, button):
        """Move the focus to a button with the keyboard and press Enter."""
        tab_to(self.page, button)
        self.page.keyboard.press("Enter")

    def stops(self, count: int) -> list[str]:
        """Press Tab `count` times and return the text of each element that gets the focus."""
        found = []
        for _ in range(count):
            self.page.keyboard.press("Tab")
            found.append(self.page.evaluate("document.activeElement.textContent.trim()"))
        return found

    @property
    def panel(self):
        """Return the check's panel on the page."""
        return self.page.locator(".remat-panel")

    def assert_accessible(self, selector: str):
        """Assert that axe-core finds no violation of WCAG 2.2 AA within an element."""
        levels = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
        results = Axe().run(self.page, selector, {"runOnly": levels, "resultTypes": ["violations"]})
        assert results.response["passes"], f"axe-core found nothing to look at: {selector}"
        assert not results.violations_count, results.generate_report()

    def show(self, selector: str):
        """Scroll to the first element that matches a selector, and return it."""
        element = self.page.locator(selector).first
        element.scroll_into_view_if_needed()
        return element

    def show_panel(self):
        """Scroll to the check's panel until it is visible. Outputs above it may still grow and push it out of view.

        If the kernel's answer to JupyterLab's question for its widgets is lost, a stored panel says "Loading widget..."
        for ever. This happens rarely, on busy machines; then reload the page, as a reader would.
        """
        cell = self.page.locator(".jp-CodeCell:has-text('from grader import check')").first
        for tries in range(60):
            cell.scroll_into_view_if_needed()
            with contextlib.suppress(TimeoutError):
                return self.panel.wait_for(timeout=2000)
            if tries % 15 == 14 and "Loading widget" in cell.inner_text():
                self.page.reload()
                _wait_until_ready(self.page)
        self.picture("no_panel")
        pytest.fail(f"The panel does not appear. Its cell shows: {cell.inner_text()!r}")

    def picture(self, name: str):
        """Save a screenshot to test-output/ for visual inspection."""
        _OUTPUT.mkdir(exist_ok=True)
        self.page.screenshot(path=_OUTPUT / f"{name}-{self._theme}.png")

    def contrast(self, selector: str) -> float:
        """Return the contrast ratio (WCAG 2.2) between an element's text and its background, from 1 to 21."""
        colours = self.show(selector).evaluate("""element => {
            const channels = text => text.match(/[\\d.]+/g).map(Number);
            let behind = element, background;
            do {
                background = channels(getComputedStyle(behind).backgroundColor);
                behind = behind.parentElement;
            } while (behind && background.length === 4 && background[3] === 0);
            return [channels(getComputedStyle(element).color), background];
        }""")
        text, ground = sorted(map(_relative_luminance, colours), reverse=True)
        return (text + 0.05) / (ground + 0.05)


def _relative_luminance(colour) -> float:
    channels = [c / 255 for c in colour[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
