"""The figures in the answers to the exercises' closing questions are those of the worked answers."""

import ast
import importlib
import re

import jax
import jax.numpy as jnp
import nbformat
import pytest

from grader.learner import pages
from rematscope import compare, residual_table


def run_page(stem):
    """Run a page's code with the worked answer, then the code of its last section.

    Returns:
      The page's names, the values of the last section's expressions, and the section's answer in one line.
    """
    (path,) = (pages.ROOT / "exercises").glob(f"*_{stem}.ipynb")
    cells = nbformat.read(path, as_version=4).cells
    names = {}
    for cell in cells:
        if cell.cell_type == "code":
            if cell.source.startswith("from grader import check"):
                break
            exec(cell.source, names)
    names[stem] = getattr(importlib.import_module(f"solutions.{stem}"), stem)
    (section,) = (cell.source for cell in cells if cell.source.startswith("## After you pass"))
    values = []
    for code in re.findall(r"```python\n(.*?)```", section, re.DOTALL):
        for node in ast.parse(code).body:
            if isinstance(node, ast.Expr):
                values.append(eval(compile(ast.Expression(node.value), "page", "eval"), names))
            else:
                exec(compile(ast.Module([node], []), "page", "exec"), names)
    return names, values, " ".join(section.partition("<details>")[2].split())


def test_bytes_of_gelu():
    names, _, answer = run_page("predict_residuals")
    x = names["x"]
    rows = residual_table(jax.nn.gelu, x).rows
    counts = [sum(len(row.values) for row in rows if row.kind == kind) for kind in ("computed", "constant", "argument")]
    assert counts == [3, 2, 1]
    assert f"three computed values and two constants: {sum(row.nbytes for row in rows)} bytes" in answer
    assert f"it saves only `x`: {residual_table(jax.checkpoint(jax.nn.gelu), x).nbytes} bytes" in answer


def test_boundaries_of_two_checkpoints():
    names, (found,), answer = run_page("two_checkpoints")

    def wider(W1, W2, W3, x):
        first = jax.checkpoint(lambda W1, x: jnp.sin(W1 @ x))(W1, x)
        return jax.checkpoint(lambda W2, W3, x: jnp.sin(W3 @ jnp.sin(W2 @ x)))(W2, W3, first)

    other = compare({"wider": wider}, *names["weights"], jnp.ones(64))["wider"]
    rows = [found["per layer"], found["yours"], other]
    saved = [row.saved_bytes for row in rows]
    assert saved == [1280, 256, 1024] and "saves 1.25 KiB, with your boundary 256 bytes" in answer
    assert len({row.recompute_cost.flops for row in rows}) == 1
    sines = [row.recompute_cost.transcendentals for row in rows[1:]]
    assert f"with your boundary recomputes the {sines[0]} sines of the wider output" in answer
    assert f"at the wider output recomputes only the {sines[1]} sines" in answer


@pytest.mark.slow
def test_bytes_of_the_repaired_loss():
    _, (found,), answer = run_page("repaired_loss")
    before, after = (found[name].saved_bytes for name in ("loss", "repaired"))
    assert f"`loss` saves {before / 2**20:.0f} MiB and the worked answer {after / 2**20:.2f} MiB" in answer


def test_matmuls_of_each_layer():
    names, _, answer = run_page("cse_lab")
    layers = {"page": names["layer"], "sine first": lambda w, x: jnp.sin(x) @ w}
    added = {}
    for name, layer in layers.items():
        counts = [names["cse_lab"](layer, names["w"], names["x"], n)["compiled"] for n in (2, 3)]
        added[name] = [after - before for before, after in zip(*counts, strict=True)]
    assert added == {"page": [4, 3], "sine first": [3, 3]}
    assert "each additional layer adds four matmuls. Without barriers, it adds three" in answer


def test_best_groups_of_the_nested_scan(capsys):
    _, (*_, found), answer = run_page("nested_scan")
    printed = re.findall(r"n = 100 (\d+) groups .* peak +([\d,]+) B", capsys.readouterr().out)
    peaks = {int(groups): int(peak.replace(",", "")) for groups, peak in printed}
    best = min(peaks, key=peaks.get)
    assert f"{best} groups have the lowest peak, {peaks[best]:,} B" in answer
    peak, lower = (row.peak_bytes / 2**20 for row in found.rows)
    assert f"falls from {peak:.0f} to {lower:.0f} MiB" in answer
    flops, more = (row.recompute_cost.flops / 1e9 for row in found.rows)
    assert f"recomputes {more:.2f} instead of {flops:.2f} GFLOPs" in answer
