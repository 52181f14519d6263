"""Executes chapters and exercise pages from top to bottom and stores their outputs, the same bytes for the same input.

    python tests/notebooks/store.py                               every page
    python tests/notebooks/store.py notebooks/01_residuals.ipynb  one

What would differ from run to run is left out: execution times, cell identities of the moment and widget models, whose
static twin stays. Nobody's progress is shown or changed. The pages are packed into the grader too, so that
`python -m grader reset` and `update` can bring them, and with them the fingerprints of all cells that they ever had,
from which `update` knows what a learner wrote.
"""

import io
import os
import re
import sys
import tempfile
import zipfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbval.plugin import coalesce_streams

from grader.learner import update
from grader.learner.pages import ARCHIVE
from rematscope.render.files import write_whole

ROOT = Path(__file__).resolve().parents[2]
WIDGET = "application/vnd.jupyter.widget-view+json"
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}


def store(path: Path) -> None:
    """Runs the notebook in its own folder and writes it back."""
    notebook = nbformat.read(path, as_version=4)
    # coalesce_streams: what a cell prints arrives in pieces that differ from run to run.
    client = NotebookClient(notebook, timeout=300, kernel_name="python3", coalesce_streams=True)
    with tempfile.TemporaryDirectory() as progress:
        client.execute(cwd=path.parent, env=os.environ | {"REMAT_WORKBOOK_DATA": progress})
    nbformat.write(cleaned(notebook, path.stem), path)


def cleaned(notebook, stem: str):
    """The notebook without what depends on when and where it ran."""
    notebook.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    notebook.nbformat_minor = 5
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"{stem[:40]}-{number}"
        cell.metadata = {key: value for key, value in cell.metadata.items() if key in ("tags", "jupyter")}
        if "outputs" in cell:
            # What says how far a long call is leaves an output without anything in it.
            cell.outputs = coalesce_streams([output for output in cell.outputs if output.get("data") != {}])
        for output in cell.get("outputs", []):
            if "data" in output:
                output.data.pop(WIDGET, None)
    return notebook


def minutes(chapter: Path) -> float:
    """How long it takes to read a chapter at 180 words a minute, and to run each cell and look at what it shows."""
    cells = nbformat.read(chapter, as_version=4).cells
    words = sum(len(re.findall(r"\S*\w\S*", cell.source)) for cell in cells if cell.cell_type == "markdown")
    return words / 180 + 1.5 * sum(cell.cell_type == "code" for cell in cells)


def pages() -> list[Path]:
    """All chapters, the cheat sheet and exercise pages."""
    return [*chapters(), *exercises()]


def chapters() -> list[Path]:
    """The chapters and the cheat sheet; what `update` kept of them is none."""
    return [*sorted(ROOT.glob("notebooks/[0-9][0-9]_*.ipynb")), ROOT / "notebooks" / "cheat_sheet.ipynb"]


def exercises() -> list[Path]:
    """The exercise pages; what `reset` kept of them is none."""
    return sorted(ROOT.glob("exercises/[0-9][0-9]_*.ipynb"))


def pack() -> None:
    """Packs all pages into the grader, the same bytes on every machine."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:  # git compresses, and then sees what changed
        members = [(path.name, path.read_bytes()) for path in exercises()]
        members += [(f"notebooks/{path.name}", path.read_bytes()) for path in chapters()]
        for name, content in [*members, (update.SHIPPED, update.cells_to_pack(pages()))]:
            member = zipfile.ZipInfo(name)  # dated 1980
            member.create_system = 3
            archive.writestr(member, content)
    write_whole(ARCHIVE, packed.getvalue())


if __name__ == "__main__":
    for path in [Path(name).resolve() for name in sys.argv[1:]] or pages():
        print(f"running {path.relative_to(ROOT)}", flush=True)
        store(path)
    pack()
