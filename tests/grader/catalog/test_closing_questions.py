"""The figures in the answers to the exercises' closing questions are those of the worked answers."""

import ast
import importlib
import re

import jax
import jax.numpy as jnp
import nbformat
import pytest
from jax.ad_checkpoint import checkpoint_name

from grader.learner import pages
from rematscope import compare, residual_table, trace


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


def test_cosines_of_saved_names():
    names, _, answer = run_page("save_named")
    passes = trace(names["save_named"](names["f"], ["up", "down"]), *names["arguments"])
    assert (passes.forward.count("cos"), passes.backward.count("cos", role="D"), passes.backward.count("cos")) == (
        0,
        2,
        2,
    )
    assert "Both cosines have the mark **D**" in answer and "The forward pass computes no cosine." in answer


def test_matmuls_of_other_names():
    names, _, answer = run_page("name_preactivation")
    save = jax.checkpoint_policies.save_only_these_names("named")

    def naming(place):
        def mark(value, here):
            return checkpoint_name(value, "named") if here == place else value

        def layer(x, W1, W2):
            y = mark(x @ W1, "matmul")
            r = mark(y / jnp.sqrt(jnp.mean(y**2, axis=-1, keepdims=True)), "input")
            return mark(jnp.sin(r), "output") @ W2

        return jax.checkpoint(layer, policy=save)

    found = [
        trace(f, *names["shapes"]) for f in (names["name_preactivation"], *map(naming, ("matmul", "input", "output")))
    ]
    assert [each.forward.count("dot_general") for each in found] == [2] * 4
    assert [each.backward.count("dot_general") for each in found] == [4, 4, 5, 5]
    assert "two matmuls and the backward pass four" in answer and "the backward pass runs five" in answer


def test_matmuls_of_eight_experts():
    names, _, answer = run_page("checkpoint_dot_policy")
    f32, each = names["f32"], jax.vmap(names["checkpoint_dot_policy"])
    found = [
        trace(names["one_input"], *names["experts"], f32(256, 64)),
        trace(each, *names["experts"], f32(8, 256, 64)),
    ]
    saved = [[r.primitive for r in passes.residuals if r.kind == "computed"] for passes in found]
    assert saved == [["dot_general"], []]
    assert [passes.backward.count("dot_general", role="R") for passes in found] == [1, 2]
    assert "only the second matmul is recomputed" in answer and "both matmuls are recomputed" in answer


def test_stacked_inputs_of_the_layers():
    names, _, answer = run_page("scan_layers")
    passes = trace(names["scan_layers"], names["ws"], names["x"])
    (stacked,) = (residual for residual in passes.residuals if residual.kind == "computed")
    shape = ",".join(map(str, stacked.shape))
    assert f"The only computed residual, `f32[{shape}]`, holds the inputs of the five layers." in answer
    (rows,) = (value for value in passes.forward(names["ws"], names["x"]) if value.shape == stacked.shape)
    assert (rows[0] == names["x"]).all() and (rows[1] != names["x"]).any()
    assert "Its first row is `x`" in answer


def test_slots_and_plans_of_schedules():
    names, _, answer = run_page("revolve_schedule")
    first = {s: next(i for action, i in each if action == "save") for s, each in names["schedules"].items()}
    assert f"state {first[2]} with two slots, {first[3]} with three and {first[5]} with five" in answer
    passes = {s: names["fewest"](100, s) / 99 for s in (11, 12)}
    assert passes[12] <= 2 < passes[11]
    twelve, eleven = f"{passes[12]:.2f} forward passes", f"with 11 slots as much as {passes[11]:.2f}."
    assert f"With 12 slots, 100 steps cost as much as {twelve}, and {eleven}" in answer
    chapter = {}
    defined = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef, ast.Assign)
    for cell in nbformat.read(pages.ROOT / "notebooks" / "09_fewer_checkpoints.ipynb", as_version=4).cells:
        body = ast.parse(cell.source).body if cell.cell_type == "code" else []
        if any(text in cell.source for text in ("import jax\n", "def chain(", "def counts(", "def halves(")):
            exec(compile(ast.Module([node for node in body if isinstance(node, defined)], []), "page", "exec"), chapter)
    (plan,) = re.findall("the plan is `([^`]+)`", answer)
    assert plan == plan_of(importlib.import_module("solutions.revolve_schedule").best, 16, 4)
    sines = [chapter["counts"](chapter["chain"](each)).sines for each in (plan, chapter["halves"](16))]
    assert "It runs {} sines, and `halves(16)` runs {}.".format(*sines) in answer


def plan_of(best, n, slots):
    """Return the plan of chapter 9 with a schedule's cuts."""
    if n == 1:
        return "·"
    cut = n - 1 if slots == 1 else best(n, slots)[1]
    return f"({plan_of(best, cut, slots)}){plan_of(best, n - cut, max(slots - 1, 1))}"


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


def test_residuals_of_a_checkpoint_by_hand(capsys):
    _, _, answer = run_page("vjp_by_hand")
    printed = capsys.readouterr().out.splitlines()
    yours, jaxs = sorted(printed[-10:-5]), sorted(printed[-5:])
    assert yours == jaxs and [line.split()[-1] for line in yours if "weights" not in line] == ["C)", "x"]
    assert "Both save the same residuals: `x`, the cosine of `h`, and the three weights" in answer


def test_which_function_needs_the_static_flag():
    names, _, answer = run_page("remat_flag")
    remat_flag, layer, w, x = (names[name] for name in ("remat_flag", "layer", "w", "x"))
    for step in (
        jax.jit(jax.grad(remat_flag(layer))),
        jax.jit(jax.grad(jax.checkpoint(layer)), static_argnums=2),
    ):
        with pytest.raises(jax.errors.TracerBoolConversionError):
            step(w, x, True)
    (bound,) = re.findall(r"`(jax\.jit\(jax\.grad\(lambda.*?\)\)\))`", answer)
    assert jnp.allclose(eval(bound, names)(w, x), names["expected"])
