"""Run chapters and exercise pages from top to bottom and save them with their outputs, reproducibly byte by byte.

    python tests/notebooks/store.py                               every page
    python tests/notebooks/store.py notebooks/01_residuals.ipynb  one

The saved pages omit everything that differs between runs: execution times, temporary cell ids and widget models, whose
static copies remain. Your progress is neither shown nor changed. The pages are also packed into the grader, so that
`python -m grader reset` and `update` can restore them. The archive includes the fingerprints of all cells that the
pages have ever had, from which `update` recognizes the cells that a learner wrote.
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
    """Run the notebook in its own folder and save it with its outputs."""
    notebook = nbformat.read(path, as_version=4)
    # coalesce_streams: how a cell's printed text is split into messages differs between runs.
    client = NotebookClient(notebook, timeout=300, kernel_name="python3", coalesce_streams=True)
    with tempfile.TemporaryDirectory() as progress:
        client.execute(cwd=path.parent, env=os.environ | {"REMAT_WORKBOOK_DATA": progress})
    nbformat.write(cleaned(notebook, path.stem), path)


def cleaned(notebook, stem: str):
    """Return the notebook without everything that depends on when and where it ran."""
    notebook.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    notebook.nbformat_minor = 5
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"{stem[:40]}-{number}"
        cell.metadata = {key: value for key, value in cell.metadata.items() if key in ("tags", "jupyter")}
        if "outputs" in cell:
            # A progress message that was removed at the end of a long call leaves an empty output.
            cell.outputs = coalesce_streams([output for output in cell.outputs if output.get("data") != {}])
        for output in cell.get("outputs", []):
            if "data" in output:
                output.data.pop(WIDGET, None)
    return notebook


def minutes(chapter: Path) -> float:
    """Return the minutes needed to read a chapter at 180 words per minute, run its cells and look at the outputs."""
    cells = nbformat.read(chapter, as_version=4).cells
    words = sum(len(re.findall(r"\S*\w\S*", cell.source)) for cell in cells if cell.cell_type == "markdown")
    return words / 180 + 1.5 * sum(cell.cell_type == "code" for cell in cells)


def pages() -> list[Path]:
    """Return the paths of all chapters, the cheat sheet and all exercise pages."""
    return [*chapters(), *exercises()]


def chapters() -> list[Path]:
    """Return the paths of the chapters and the cheat sheet, without copies of learners' pages that `update` makes."""
    return [*sorted(ROOT.glob("notebooks/[0-9][0-9]_*.ipynb")), ROOT / "notebooks" / "cheat_sheet.ipynb"]


def exercises() -> list[Path]:
    """Return the paths of the exercise pages, without the copies of learners' pages that `reset` makes."""
    return sorted(ROOT.glob("exercises/[0-9][0-9]_*.ipynb"))


def pack() -> None:
    """Pack all pages into the grader, with the same bytes on every machine."""
    packed = io.BytesIO()
    # Uncompressed, because git compresses its objects itself and can then store the differences between versions.
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        members = [(path.name, path.read_bytes()) for path in exercises()]
        members += [(f"notebooks/{path.name}", path.read_bytes()) for path in chapters()]
        for name, content in [*members, (update.SHIPPED, update.cells_to_pack(pages()))]:
            member = zipfile.ZipInfo(name)  # ZipInfo's default date, 1980, keeps the bytes reproducible
            member.create_system = 3
            archive.writestr(member, content)
    write_whole(ARCHIVE, packed.getvalue())


if __name__ == "__main__":
    for path in [Path(name).resolve() for name in sys.argv[1:]] or pages():
        print(f"running {path.relative_to(ROOT)}", flush=True)
        store(path)
    pack()
