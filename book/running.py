"""The instructions for running a page, which the book shows below the title of each page."""

from pathlib import Path

COLAB, BRANCH = "https://colab.research.google.com", "main"
_HERE = Path(__file__).parent


def say_how_to_run(page: dict, path: str, repository: str | None) -> None:
    """Adds the instructions, folded, to a notebook.

    Args:
      page: the notebook as parsed JSON. Its first cell begins with the title and one paragraph.
      path: its path in the workbook.
      repository: the address of a public repository on GitHub with these pages, if there is one.
    """
    if repository:
        colab = f"{COLAB}/github/{repository.removeprefix('https://github.com/')}/blob/{BRANCH}/{path}"
        text = (_HERE / "run_from_repository.md").read_text(encoding="utf-8")
        how = text.format(page=path, repository=repository, colab=colab)
    else:
        how = (_HERE / "run.md").read_text(encoding="utf-8").format(page=path)
    first = page["cells"][0]
    title, paragraph, *rest = "".join(first["source"]).split("\n\n", 2)
    first["source"] = "\n\n".join([title, paragraph, how, *rest])
