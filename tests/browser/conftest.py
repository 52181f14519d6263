"""A real JupyterLab, served as `start.py` serves it, in Debian's Chromium."""

import json
import os
import shutil
import socket
import sys
from pathlib import Path

import pytest
from lab import Lab, Server
from playwright.sync_api import sync_playwright

import start

ROOT = Path(start.__file__).parent
# Chromium asks its maker's hosts for this and that, and a sandbox of its own does not work for root in a container.
CHROMIUM = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.fixture(scope="module", params=["light", "dark"])
def lab(request, tmp_path_factory):
    """JupyterLab in one theme, on a copy of the pages, so that what a test types and saves stays in the test."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        if os.environ.get("CI"):
            pytest.fail("chromium is missing, and CI must run the browser tests: install it in .ci/run")
        pytest.skip("needs Chromium on PATH (on Debian: apt install chromium)")
    folder = tmp_path_factory.mktemp("workbook")
    for name in ("notebooks", "exercises", "solutions"):
        shutil.copytree(ROOT / name, folder / name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REMAT_WORKBOOK_DATA", str(folder / "data"))
        patch.setattr(start, "SETTINGS", folder / ".settings")
        start.choose_settings()
        _choose_theme(folder / ".settings" / "config" / "labconfig", request.param)
        port = _free_port()
        command = [sys.executable, *start.jupyterlab()[1:]]
        command = [word for word in command if "root_dir" not in word]
        command += [f"--ServerApp.root_dir={folder}", "--no-browser", f"--port={port}", "--IdentityProvider.token="]
        server = Server(command, f"http://127.0.0.1:{port}", folder, start.environment())
    try:
        server.start()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM)
            yield Lab(browser, server, folder, request.param)
            browser.close()
    finally:
        server.stop()


def _choose_theme(folder: Path, theme: str):
    overrides = folder / "default_setting_overrides.json"
    settings = json.loads(overrides.read_text())
    settings["@jupyterlab/apputils-extension:themes"] = {"theme": f"JupyterLab {theme.capitalize()}"}
    overrides.write_text(json.dumps(settings))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
