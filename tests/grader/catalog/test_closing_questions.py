"""The figures in the answers to the exercises' closing questions are those of the worked answers."""

import ast
import functools
import importlib
import inspect
import math
import re
import subprocess
import sys

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


def in_a_new_process(check):
    """Return a test that runs `check` in a process of its own, where a page can set the number of devices."""

    @functools.wraps(check)
    def test():
        call = f"import {__name__} as tests; tests.{check.__name__}.__wrapped__()"
        program = f"import sys; sys.path[:] = {sys.path}; {call}"
        subprocess.run([sys.executable, "-c", program], check=True)

    return test


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


@pytest.mark.slow
def test_segments_of_the_while_loop(capsys):
    _, _, answer = run_page("checkpointed_while")
    printed = capsys.readouterr().out
    figures = {int(c): (int(saved), int(peak)) for c, saved, peak in map(str.split, printed.splitlines()[-5:])}
    saved, peak = ({c: row[i] for c, row in figures.items()} for i in (0, 1))
    assert f"from {saved[1]} B for `c = 1` to {saved[64]:,} B for `c = 64`" in answer
    best = min(peak, key=peak.get)
    assert f"lowest for `c = {best}`, {peak[best]} B. It is {peak[1]:,} B for `c = 1`" in answer and peak[1] == peak[64]
    assert "39 steps" in printed and "flies for 39 steps, so the other 25 iterations" in answer


def test_when_the_last_matmul_of_a_block_is_saved():
    names, _, answer = run_page("gpt_block_policy")
    plain, arguments = names["blocks"]["plain"]

    def saved(after):
        def block(*arguments):
            return after(checkpoint_name(plain(*arguments), "mlpwo"))

        passes = trace(jax.checkpoint(block, policy=names["gpt_block_policy"]("minimal")), *arguments)
        return {residual.name: residual.nbytes for residual in passes.residuals if residual.kind == "computed"}

    def norm(x):
        return x * jax.lax.rsqrt(jnp.mean(x**2, axis=-1, keepdims=True))

    assert [*saved(lambda x: x)] == ["mlpwi"]
    size = saved(norm)["mlpwo"]
    assert size == saved(jnp.sin)["mlpwo"] and f"JAX saves `mlpwo`, {size / 1024:.0f} KiB here." in answer


def test_shares_of_activation_bytes():
    names, _, answer = run_page("activation_bytes")
    models, modes = names["models"].values(), names["modes"]
    rows = [[names["activation_bytes"](2048, *model, 8, mode) for mode in modes] for model in models]
    shares = [f"{both / tensor:.1%}".replace("%", " %") for tensor, both, _ in rows]
    assert shares[2] == shares[3] and f"{shares[2]} for 530B and 1T" in answer
    assert f'{shares[0]} of the memory of `"tensor"` for 22B and {shares[1]} for 175B' in answer
    assert {f"{both / full:.1f}" for _, both, full in rows} == {"2.1"} and "about 2.1 times" in answer


def test_recompute_that_each_name_avoids():
    names, _, answer = run_page("best_policy")
    block, best_policy = names["block"], names["best_policy"]
    (_, all_of_it), (some, less), (more, least) = (block.evaluate(best_policy(block, most)) for most in (0, 2000, 5000))
    assert (best_policy(block, 2000), sorted(best_policy(block, 10**6))) == (["mid"], ["mid", "up"])
    first, second = all_of_it - less, less - least
    assert f"the first {some:,} bytes (`mid`) avoid {first:,} FLOPs, {first / some:.0f} FLOPs per byte." in answer
    added = more - some
    assert f"The next {added:,} bytes (`up`) avoid {second:,} FLOPs, {second / added:.0f} FLOPs per byte." in answer


def test_peaks_of_shrinking_values(capsys):
    _, _, answer = run_page("backward_order")
    peaks = dict(line.split() for line in capsys.readouterr().out.splitlines()[-2:])
    assert f"`abcd` has a peak of {peaks['abcd']} bytes and `cabd` of {peaks['cabd']} bytes" in answer


def test_width_from_which_offloading_is_hidden(capsys):
    names, _, answer = run_page("offload_carry")
    width = math.ceil(names["rate"] / (12 * names["link"]))
    (row,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith(f"{width} "))
    assert f"From `d = {width:,}` on" in answer
    assert (
        "the transfer takes {} ns per row and the computation {} ns".format(*re.findall(r"([\d.]+) ns", row)) in answer
    )


@pytest.mark.slow
@in_a_new_process
def test_gathers_of_both_passes():
    names, _, answer = run_page("gather_again")
    up, down, x = (names[name] for name in ("up", "down", "x"))
    layer = names["on_mesh"](names["gather_again"])
    passes = trace(layer, (up, down), x)
    assert [each.count("all_gather") for each in (passes.forward, passes.backward)] == [2, 2]
    assert "Each pass has two." in answer

    def backward(params, x, ct):
        return jax.vjp(layer, params, x)[1](ct)

    program = jax.jit(backward).lower((up, down), x, x).as_text()
    (barrier,) = re.findall(r"(%\d+):\d+ = stablehlo.optimization_barrier ", program)
    first = re.findall(rf"stablehlo.dot_general {barrier}#(\d+), ", program)[0]
    gathers = re.findall(rf'"stablehlo.all_gather"\({barrier}#(\d+)\)', program)
    assert len(gathers) == 2 and first not in gathers, "the gathers wait for the barrier, which contains ct"


@pytest.mark.slow
@in_a_new_process
def test_memory_of_layers_with_fsdp():
    names, _, answer = run_page("fsdp_layers")
    source = inspect.getsource(importlib.import_module("solutions.fsdp_layers"))
    (line,) = re.findall(r"shards = (.*)\n", source)
    without = {}
    exec(source.replace(line, "weight"), without)
    variants = {
        "plain": names["plain_layers"],
        "yours": names["your_layers"],
        "no shards": lambda params, x: without["fsdp_layers"](params, x, names["mesh"]),
    }
    arguments = (names["up"], names["down"]), names["x"]
    rows = {
        name: {row.metric: row.compiled for row in names["measure"](f, *arguments).rows} for name, f in variants.items()
    }
    plain, yours, whole = ({key: value / 2**20 for key, value in row.items()} for row in rows.values())
    assert f"saves {yours['saved']} MiB instead of {plain['saved']} MiB" in answer
    assert f"its peak is {yours['peak']:.0f} MiB instead of {plain['peak']:.1f} MiB" in answer
    sent = [sum(value for key, value in row.items() if key.endswith("sent")) for row in (yours, plain)]
    assert "collectives send {:.0f} MiB instead of {:.0f} MiB".format(*sent) in answer
    assert rows["yours"]["all-gather"] == 24 and "24 all-gathers" in answer
    outputs, peak = (f"from {yours[key]:.0f} to {whole[key]:.1f} MiB" for key in ("outputs", "peak"))
    assert f"the outputs grow {outputs}, and the peak {peak}" in answer


def test_recompute_that_lse_avoids():
    _, (found,), answer = run_page("flash_like")
    both, out = (found[name] for name in ("both", "out only"))
    flops = out.recompute_cost.flops - both.recompute_cost.flops
    exponentials = out.recompute_cost.transcendentals - both.recompute_cost.transcendentals
    assert f"{flops / 1e9:.2f} GFLOPs and {exponentials / 1e6:.1f} M transcendental evaluations" in answer
    assert f"{flops / 4096 / 1e3:.0f} kFLOPs per token" in answer
    assert round(out.recompute_cost.flops / both.recompute_cost.flops, 2) == 2 and "Half of it" in answer
    assert f"`lse` takes {(both.saved_bytes - out.saved_bytes) / 1024:.0f} KiB" in answer


@pytest.mark.slow
@in_a_new_process
def test_memory_of_rings():
    names, _, answer = run_page("ring_attention")
    temporary, ring = names["temporary_bytes"], names["ring_attention"]

    def checkpointed(q, k, v):
        p = jax.lax.axis_size("devices")

        @jax.checkpoint
        def step(carry, _):
            k, v, out = carry
            scores = q @ k.T / k.shape[1] ** 0.5
            out = out + jax.nn.sigmoid(scores - jnp.log(p * len(k))) @ v
            return (names["to_next_device"](k), names["to_next_device"](v), out), None

        return jax.lax.scan(step, (k, v, jnp.zeros_like(q)), length=p)[0][2]

    (same,) = {temporary(p, ring) for p in (2, 4, 8)}
    two, four, eight = (temporary(p, checkpointed) for p in (2, 4, 8))
    assert f"allocates {same:,} bytes per device" in answer
    assert f"allocates {two:,}, {four:,} and {eight:,} bytes: {(eight - four) // 4:,} bytes more" in answer
    rows = jnp.ones((8 * 128, 64))
    (stats,) = trace(names["on_mesh"](ring), rows, rows, rows).collectives().values()
    assert stats.link_bytes == 6 * 8 * 32 * 1024 and "1.25 MiB instead of 1.5 MiB" in answer


@pytest.mark.slow
def test_memory_of_chunks(capsys):
    _, _, answer = run_page("chunked_loss")
    memory = printed_mebibytes(capsys)
    assert f"from {memory[1]:.0f} MiB with one chunk to {memory[64]:.1f} MiB with 64 chunks" in answer
    assert f"only to {memory[1024]:.1f} MiB with 1,024 chunks" in answer
    rows, width, entries = 2048, 64, 8192
    assert f"`hidden` ({rows * width * 4 / 2**20} MiB here)" in answer
    assert f"`vocabulary` ({entries * width * 4 / 2**20:.0f} MiB)" in answer
    assert f"logits together take {rows * entries * 4 / 2**20:.0f} MiB" in answer
    assert f"for `d` from {rows * entries // (rows + entries) + 1:,} on" in answer


@pytest.mark.slow
def test_memory_of_microbatches(capsys):
    _, _, answer = run_page("accumulate")
    memory = printed_mebibytes(capsys)
    assert f"from {memory[1]} MiB to {memory[16]:.2f} MiB with 16 microbatches" in answer
    assert f"only to {memory[64]:.2f} MiB with 64 and {memory[256]:.2f} MiB with 256" in answer
    assert f"{2 * 64 * 256 * 4 / 2**20} MiB for both matrices" in answer


def printed_mebibytes(capsys):
    """Return the lines `number MiB MiB` of a page's last section as a dictionary."""
    lines = re.findall(r"^(\d+) ([\d.]+) MiB$", capsys.readouterr().out, re.MULTILINE)
    return {int(number): float(size) for number, size in lines}


def test_bytes_and_flops_of_adapters():
    names, _, answer = run_page("lora_layer")
    frozen, adapters = names["frozen"], names["adapters"]
    costs = {
        rows: [trace(f, frozen, adapters, jnp.ones((rows, 512))) for f in names["variants"].values()]
        for rows in (1024, 8192)
    }
    merged, separate = (each.bytes_by_kind()["computed"] / 2**20 for each in costs[1024])
    assert f"The definition saves {merged:.0f} MiB" in answer
    assert f"The worked answer saves {separate:.2f} MiB" in answer
    more = {f"{merged.cost.flops / separate.cost.flops - 1:.0%}" for merged, separate in costs.values()}
    assert more == {"48%"} and "takes 48 % more FLOPs in both passes" in answer
    weight = frozen["up"].nbytes
    rows = 10 * weight // (2048 * 4)
    assert f"with {rows:,} rows" in answer and f"One weight takes {weight / 2**20:.0f} MiB" in answer


@pytest.mark.slow
@in_a_new_process
def test_peak_of_microbatches_with_fsdp():
    names, _, answer = run_page("microbatch_fsdp")
    table = compare(names["variants"], names["weights"], names["x"])
    peaks = [row.peak_bytes / 2**20 for row in table.rows]
    assert "falls from {:.1f} to {:.1f} and {:.2f} MiB".format(*peaks) in answer
    one, all_rows = names["one"], names["found"]
    saved = [each.device_bytes_by_kind()["computed"] / 2**20 for each in (one, all_rows)]
    assert "save {:.2f} instead of {:.1f} MiB of layer inputs".format(*saved) in answer
    sent = [sum(stats.link_bytes for stats in each.collectives().values()) / 2**20 for each in (one, all_rows)]
    assert f"16 times {sent[0]} MiB, {16 * sent[0]:.0f} instead of {sent[1]} MiB" in answer


def test_attention_weights_of_many_heads():
    names, (found,), answer = run_page("read_oom")
    assert found["unmodified"].saved_bytes > found["yours"].saved_bytes
    shape = names["shape"]
    projection = shape(6, 512, 64, 8)
    params = names["params"] | {"query": projection, "key": projection, "value": projection}
    params |= {"out": shape(6, 64, 8, 512), "scale": shape(6, 16), "shift": shape(6, 16), "bias": shape(6, 16, 64)}
    x, pairs = names["x"], shape(4, 1024, 1024, 16)
    rows = residual_table(names["read_oom"], params, x, pairs, x).rows
    large = [row for row in rows if row.nbytes >= 6 * 2**30]
    assert sum(len(row.values) for row in large) == 2
    assert "two arrays `f32[6,4,64,1024,1024]`, 6 GiB each" in answer


@pytest.mark.slow
@in_a_new_process
def test_configurations_of_sequence_lengths():
    _, _, answer = run_page("choose_configuration")
    module = importlib.import_module("solutions.choose_configuration")

    def choices():
        return {
            (length, gib): module.choose_configuration(4096, length, 32, batch, 64, gib * 2**30)[:2]
            for length, batch in ((2048, 128), (8192, 32), (32768, 8))
            for gib in (24, 32, 64)
        }

    before = choices()
    assert all(before[2048, gib] == before[8192, gib] for gib in (24, 32, 64))
    (first, a), (second, b), (third, c) = (before[2048, gib] for gib in (24, 32, 64))
    assert (
        f"`{first}` with {a} microbatches for 24 GiB, `{second}` with {b} for 32 GiB, and `{third}` with {c}" in answer
    )
    assert [before[32768, gib][1] for gib in (24, 32, 64)] == [8] * 3
    assert "`{}`, `{}` and `{}`, each with 8".format(*(before[32768, gib][0] for gib in (24, 32, 64))) in answer
    module.FLOPS_PER_BYTE = 0
    changed = {key: choice for key, choice in choices().items() if choice != before[key]}
    assert changed == {
        (2048, 24): ("minimal_with_context", 64),
        (2048, 32): ("minimal_with_context", 32),
        (8192, 32): ("minimal_with_context", 32),
    }
    assert "with 2,048 tokens, to 64 microbatches for 24 GiB and to 32 for 32 GiB; with 8,192 tokens, to 32" in answer
