"""How readers come to run a page themselves, which each page says below its title."""

from pathlib import Path

COLAB, BRANCH = "https://colab.research.google.com", "main"
_HERE = Path(__file__).parent


def say_how_to_run(page: dict, path: str, repository: str | None) -> None:
    """Puts it into a notebook, folded until they ask.

    Args:
      page: the notebook, as JSON has it; its first cell begins with the title and one paragraph.
      path: where it is in the workbook.
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
