"""Without an extra, what can be shown is shown, with a sentence that names the extra: never a traceback."""

import html
import subprocess
import sys

import nbformat
import pytest
from nbclient import NotebookClient

WITHOUT = "import sys; sys.modules |= dict.fromkeys(['anywidget', 'ipywidgets', 'libtpu', 'matplotlib'])"  # to None
FUNCTION = """
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from rematscope import TargetError, explore, frontier, interactive_programs, liveness, measure

def f(x):
    return jnp.sin(checkpoint_name(jnp.sin(x), "h"))
"""


def in_a_terminal(code: str) -> str:
    script = f"{WITHOUT}\n{FUNCTION}\n{code}"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


@pytest.mark.slow
def test_in_a_terminal_nothing_is_missing():
    printed = in_a_terminal(
        "explore(f, 1.0); interactive_programs(f, 1.0); print(liveness(f, 1.0)); print(frontier(f, 1.0))"
    )
    assert "save_only_these_names('h')" in printed and "no checkpoint" in printed, "explore's first choice"
    assert "return dx" in printed and "peak" in printed and "For comparison" in printed
    assert "pip install" not in printed


@pytest.mark.slow
def test_an_absent_tpu_needs_the_extra_tpu():
    code = "try: measure(f, 1.0, target='tpu v5e')\nexcept TargetError as error: print(error)"
    assert "pip install 'jax[tpu]' flatbuffers" in in_a_terminal(code)


@pytest.fixture(scope="module")
def page() -> dict[str, list[dict]]:
    """Return the output of each line in a notebook whose kernel has no extras."""
    lines = ["explore(f, 1.0)", "interactive_programs(f, 1.0)", "liveness(f, 1.0)", "frontier(f, 1.0)"]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(line) for line in [WITHOUT, FUNCTION, *lines]])
    NotebookClient(book, timeout=120).execute()
    return {cell.source: cell.outputs for cell in book.cells}


@pytest.mark.parametrize(
    ("line", "shown", "extra"),
    [
        ("explore(f, 1.0)", "save_only_these_names('h')", "notebook"),
        ("interactive_programs(f, 1.0)", "return dx", "notebook"),
        ("liveness(f, 1.0)", "peak", "plot"),
        ("frontier(f, 1.0)", "For comparison", "plot"),
    ],
)
def test_a_notebook_without_an_extra_shows_a_static_view_and_names_the_extra(page, line, shown, extra):
    texts = [output["data"]["text/plain"] for output in page[line]]
    pages = [html.unescape(output["data"]["text/html"]) for output in page[line]]
    assert not any("<img" in each for each in pages)
    assert shown in "\n".join(texts) and f"pip install 'rematscope[{extra}]'" in pages[-1]
