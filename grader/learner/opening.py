"""How JupyterLab gets a page: with what it would write into it at once, so that a page just opened is not unsaved."""

from typing import Any

from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelspec import KERNEL_NAME
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager


class Pages(AsyncLargeFileManager):
    """The server's files; `start.py` has JupyterLab use it.

    JupyterLab puts into a page what its kernel says of the language, the Python's version among it, and calls the page
    changed. Stored pages are the same on every machine, and cannot know that version.
    """

    async def get(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """A file's or a folder's model, as the class above returns it."""
        model = await super().get(*args, **kwargs)
        if model["type"] == "notebook" and model["content"]:
            metadata = model["content"]["metadata"]
            if metadata.get("kernelspec", {}).get("name") == KERNEL_NAME:
                metadata["language_info"] = IPythonKernel.language_info
        return model
