"""Fixtures: Debian's Chromium, for all tests that open a page in a browser."""

import os
import shutil

import pytest
from playwright.sync_api import expect, sync_playwright

# Chromium contacts Google's servers in the background, and its own sandbox does not work for root in a container.
CHROMIUM = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.fixture(scope="session")
def browser():
    """Start one browser per process: starting it takes seconds, and Playwright cannot be started twice."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        if os.environ.get("CI"):
            pytest.fail("chromium is missing, and CI must run the browser tests: install it in .ci/run")
        pytest.skip("needs Chromium on PATH (on Debian: apt install chromium)")
    expect.set_options(timeout=60_000)  # generous, so that no test depends on the machine's speed
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM)
        yield browser
        browser.close()
