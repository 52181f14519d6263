"""Let JupyterLab open a page without marking it as unsaved, and keep the page's verdict without a kernel."""

import contextlib
import json
import re
from typing import Any

from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelspec import KERNEL_NAME
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager
from tornado import web

_LAST_RUN = "<p>This is from the last time this cell ran. Later changes were not saved. To see them, run it again.</p>"
_VIEW, _STATE = (f"application/vnd.jupyter.widget-{what}+json" for what in ("view", "state"))


class WorkbookContentsManager(AsyncLargeFileManager):
    """The contents manager of the server, which `start.py` configures.

    JupyterLab writes the kernel's language information, including Python's version, into a page and then marks the page
    as changed. Saved pages are identical on every machine, so they cannot contain that version.

    JupyterLab saves widgets with their page, but not those of a kernel that has ended. Such a page, opened again, would
    show "model not found" instead of the last verdict. So this class keeps the saved widgets that the page still shows.
    Instead of a widget that was never saved, the page shows the HTML that is stored with it, and says that this HTML is
    from the last time the cell ran: a button of the widget may have shown another verdict since.
    """

    async def get(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return a file's or a folder's model, as the class above returns it."""
        model = await super().get(*args, **kwargs)
        if model["type"] == "notebook" and model["content"]:
            metadata = model["content"]["metadata"]
            if metadata.get("kernelspec", {}).get("name") == KERNEL_NAME:
                metadata["language_info"] = IPythonKernel.language_info
            lost = _shown_models(model["content"]) - _saved_models(model["content"]).keys()
            for data in _output_data(model["content"]):
                if "text/html" in data and data.get(_VIEW, {}).get("model_id") in lost:
                    del data[_VIEW]
                    data["text/html"] = _LAST_RUN + "".join(data["text/html"])
        return model

    async def save(self, model: dict[str, Any], path: str = "") -> dict[str, Any]:
        """Save a file's model, and return it, as the class above does."""
        page = model.get("content")
        if model.get("type") == "notebook" and page:
            lost = _shown_models(page) - _saved_models(page).keys()
            if lost and await self.file_exists(path):
                with contextlib.suppress(web.HTTPError):  # something other than a notebook is overwritten
                    _take_over(lost, (await super().get(path, type="notebook"))["content"], page)
        return await super().save(model, path)


def _output_data(page: dict[str, Any]) -> list[dict[str, Any]]:
    return [output.get("data", {}) for cell in page["cells"] for output in cell.get("outputs", ())]


def _shown_models(page: dict[str, Any]) -> set[str]:
    return {data[_VIEW].get("model_id") for data in _output_data(page) if _VIEW in data}


def _saved_models(page: dict[str, Any]) -> dict[str, Any]:
    return page["metadata"].get("widgets", {}).get(_STATE, {}).get("state", {})


def _take_over(lost: set[str], before: dict[str, Any], page: dict[str, Any]) -> None:
    """Restore lost widget models, and the models that they refer to, from the previous version of a page."""
    models, found = _saved_models(before), dict(_saved_models(page))
    while lost:
        name = lost.pop()
        if name in models and name not in found:
            found[name] = models[name]
            lost |= set(re.findall(r"IPY_MODEL_(\w+)", json.dumps(models[name])))
    if len(found) > len(_saved_models(page)):
        state = {"version_major": 2, "version_minor": 0, "state": found}
        page["metadata"].setdefault("widgets", {})[_STATE] = state
