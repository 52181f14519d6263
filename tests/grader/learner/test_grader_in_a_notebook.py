"""In a kernel, a verdict displays itself as text and as HTML, with line numbers of the notebook's cells."""

import nbclient
import nbformat

CELLS = [
    "import jax, jax.numpy as jnp\nfrom grader import check",
    "def checkpoint_dot_policy(w1, w2, x):\n    y = jnp.maximum(x @ w1, 0)\n    return jnp.sum((y @ w2) ** 2)",
    "check(checkpoint_dot_policy)",
    "def checkpoint_dot_policy(w1, w2, x):\n    return x @ w1 @ no_such_name\ncheck(checkpoint_dot_policy)",
    "def checkpoint_dot_policy(w1, w2, x):\n    raise NotImplementedError\ncheck(checkpoint_dot_policy)",
    "del checkpoint_dot_policy\ncheck(checkpoint_dot_policy)",  # as if the cell that defines it has not been run
    "no_such_name",
    "def checkpoint_dot_policy(w1, w2, x):\n    return x @ w1\nprint('mine')\ncheck(checkpoint_dot_policy)",
    # Wait until the copy of the previous results has been removed.
    "import threading\nfor each in threading.enumerate():\n    if isinstance(each, threading.Timer): each.join()",
]


def test_a_verdict_in_a_kernel_shows_itself_and_names_the_cells_lines():
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    # Run from the repository's root, like the tests, so that the kernel can import the packages.
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", allow_errors=True).execute()
    shown = [[output.data for output in cell.outputs if "data" in output] for cell in notebook.cells]
    plain, raising, stub, missing = (outputs[-1] for outputs in shown[2:6])
    assert "Run the cell above that begins with def checkpoint_dot_policy" in missing["text/plain"]
    assert [output.ename for output in notebook.cells[6].outputs] == ["NameError"]
    assert "In [2], line 3 (checkpoint_dot_policy)" in plain["text/plain"]
    assert plain["text/html"].startswith("<div") and "In [2], line 3" in plain["text/html"]
    assert "NameError" in raising["text/plain"]
    assert "In [4], line 2 (checkpoint_dot_policy): return x @ w1 @ no_such_name" in raising["text/plain"]
    assert stub["text/plain"].startswith("Not attempted: checkpoint_dot_policy")
    said, copy, verdict = notebook.cells[7].outputs
    assert said.text == "mine\n" and verdict.output_type == "execute_result"
    assert copy.data["text/plain"] == "" and "Not attempted" not in copy.data["text/html"]
    assert all(output.output_type == "execute_result" for cell in notebook.cells[:3] for output in cell.outputs)
