"""Fixtures: JupyterLab, served as `start.py` serves it, opened in Debian's Chromium."""

import shutil
import socket
import sys
from pathlib import Path

import pytest
from lab import Lab, Server, Workbook

import start

ROOT = Path(start.__file__).parent


@pytest.fixture(scope="session")
def workbook(tmp_path_factory, browser):
    """Start JupyterLab's server on a copy of the pages and a browser window, once for all tests to save time."""
    folder = tmp_path_factory.mktemp("workbook")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REMAT_WORKBOOK_DATA", str(folder / "data"))
        patch.setattr(start, "SETTINGS", folder / ".settings")
        start.choose_settings()
        port = _free_port()
        command = [sys.executable, *start.jupyterlab()[1:]]
        command = [word for word in command if "root_dir" not in word]
        command += [f"--ServerApp.root_dir={folder}", "--no-browser", f"--port={port}", "--IdentityProvider.token="]
        server = Server(command, f"http://127.0.0.1:{port}", folder, start.environment())
    try:
        server.start()
        with browser.new_context(viewport={"width": 1440, "height": 900}) as window:
            yield Workbook(server, window, folder)
    finally:
        server.stop()


@pytest.fixture(scope="module", params=["light", pytest.param("dark", marks=pytest.mark.slow)])
def lab(request, workbook):
    """Return JupyterLab in one theme, with unchanged pages and no saved progress."""
    for name in ("notebooks", "exercises", "solutions"):
        shutil.copytree(ROOT / name, workbook.folder / name, dirs_exist_ok=True)
    yield Lab(workbook, request.param)
    workbook.close_pages()
    shutil.rmtree(workbook.folder / "data", ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
