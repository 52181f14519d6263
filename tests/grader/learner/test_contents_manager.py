"""What JupyterLab receives of a saved page, and what it saves."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy

import nbformat
import pytest
from nbformat.sign import MemorySignatureStore, NotebookNotary

from grader.learner.contents_manager import _LAST_RUN, WorkbookContentsManager

WIDGET = "application/vnd.jupyter.widget"
PANEL = {f"{WIDGET}-view+json": {"model_id": "panel"}, "text/html": "<p>Not attempted", "text/plain": "Not attempted"}
TWIN = {
    "text/html": _LAST_RUN + PANEL["text/html"],
    "text/plain": PANEL["text/plain"],
}  # shown without its widget
MODELS = {
    "panel": {"state": {"children": ["IPY_MODEL_verdict"]}},
    "verdict": {"state": {"value": "Passed"}},
    "other": {"state": {}},
}


@pytest.fixture
def server(tmp_path):
    # Use a separate notary instead of the signatures of the user who runs the tests.
    notary = NotebookNotary(secret=b"ours", store_factory=MemorySignatureStore)
    return WorkbookContentsManager(root_dir=str(tmp_path), notary=notary)


def page(outputs, models):
    cell = nbformat.v4.new_code_cell("check(answer)")
    cell.outputs = [nbformat.v4.new_output("display_data", data=data) for data in outputs]
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)"}
    made = nbformat.v4.new_notebook(cells=[cell], metadata={"kernelspec": kernel})
    if models is not None:
        made.metadata["widgets"] = {f"{WIDGET}-state+json": {"state": models}}
    return made


def save(server, *pages):
    """Save pages over each other, and return what the server then sends."""

    async def saved():
        for each in pages:
            await server.save({"type": "notebook", "format": "json", "content": deepcopy(each)}, "page.ipynb")
        return (await server.get("page.ipynb"))["content"]

    # Use another thread, because Playwright's event loop may be running in this one.
    with ThreadPoolExecutor() as thread:
        return thread.submit(asyncio.run, saved()).result()


def shown(opened):
    return [output["data"] for output in opened["cells"][0]["outputs"]]


@pytest.mark.parametrize("models", [None, {}, {"other": MODELS["other"]}])
def test_a_page_keeps_its_widgets_after_their_kernel_has_ended(server, models):
    opened = save(server, page([PANEL], MODELS), page([PANEL], models), page([PANEL], models))
    assert shown(opened) == [PANEL]
    kept = opened["metadata"]["widgets"][f"{WIDGET}-state+json"]["state"]
    assert kept == {"panel": MODELS["panel"], "verdict": MODELS["verdict"]} | (models or {})


@pytest.mark.parametrize("models", [None, {}, {"other": MODELS["other"]}])
def test_for_a_widget_that_was_never_saved_the_static_output_is_shown(server, models):
    alone = {f"{WIDGET}-view+json": {"model_id": "slider"}, "text/plain": "IntSlider()"}
    opened = save(server, page([PANEL, alone], models))
    assert shown(opened) == [TWIN, alone]
    assert shown(save(server, opened)) == [TWIN, alone]


def test_a_widget_that_was_never_saved_is_not_written(server):
    assert "widgets" not in save(server, *[page([PANEL], None)] * 2)["metadata"]


def test_a_page_can_overwrite_a_file_that_is_no_notebook(server, tmp_path):
    (tmp_path / "page.ipynb").write_text("<<<<<<< ours")
    assert shown(save(server, page([PANEL], MODELS))) == [PANEL]
    (tmp_path / "page.ipynb").write_text("<<<<<<< ours")
    assert shown(save(server, page([PANEL], None))) == [TWIN]


def test_a_page_records_the_metadata_that_its_kernel_would_write(server):
    assert save(server, page([], None))["metadata"]["language_info"]["name"] == "python"
