"""Numbers that pages state follow from the table of devices and from the pages' own code."""

import functools
import math
import re

import jax
import jax.numpy as jnp
import nbformat
import pytest
from flax.linen import fp8_ops
from store import ROOT

from rematscope import trace
from rematscope.ir.cost import program_cost
from rematscope.render.units import bytes_text
from rematscope.seconds.devices import DEVICES


def cells(page):
    (path,) = ROOT.glob(f"notebooks/{page}_*.ipynb")
    return nbformat.read(path, as_version=4).cells


def prose(page):
    return " ".join(" ".join(cell.source.split()) for cell in cells(page) if cell.cell_type == "markdown")


def shown(page):
    """Return all text that the cells of a page print and display."""
    outputs = (output for cell in cells(page) if cell.cell_type == "code" for output in cell.outputs)
    return [output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs]


def printed(page, pattern):
    """Return the groups of each match of a pattern in a page's outputs."""
    return re.findall(pattern, "\n".join(shown(page)))


def number(text):
    return float(text.replace(",", ""))


def defined(page, *names):
    """Execute the code cells of a page that contain one of these strings, and return their global names."""
    here = {"bytes_text": bytes_text}  # pages import it in cells that take long
    for cell in cells(page):
        if cell.cell_type == "code" and any(name in cell.source for name in names):
            exec(cell.source, here)
    return here


def test_chapter_13_s_widths_follow_from_the_table():
    """At the break-even width, a layer's forward pass (24·n·d² FLOPs) takes as long as moving its input (2·n·d bytes)
    to the host."""
    rows = printed("13", r"(\S.*?) +(\d+) TFLOP/s, +([\d.]+) GB/s to the host: from a width of +([\d,]+) on")
    assert {name for name, *_ in rows} == {name for name, device in DEVICES.items() if device.host}
    for name, flops, host, width in rows:
        device = DEVICES[name]
        assert number(flops) == pytest.approx(device.matmul["bfloat16"] / 1e12, abs=0.5)
        assert number(host) == pytest.approx(device.host / 1e9, abs=0.05)
        assert number(width) == pytest.approx(2 * device.matmul["bfloat16"] / (24 * device.host), abs=0.5)


def test_chapter_13s_conclusion_states_its_cells_figures():
    rows = {int(width): (float(recompute), float(moved)) for width, recompute, moved in printed(
        "13", r"width +(\d+): recompute +([\d.]+) ms, transfers there and back +([\d.]+) ms"
    )}  # fmt: skip
    assert len(rows) == 4
    for width, (recompute, moved) in rows.items():
        assert moved == pytest.approx(1e3 * 2 * (2 * 4096 * 4 * width) / DEVICES["tpu v5e"].host, abs=0.01)
        assert recompute < moved, "one after the other: recompute is faster at all four widths"
        assert (moved / 2 < recompute) == (width == 16384), "both at once: only at 16384 the transfers win"
    assert "| recompute, at all four widths |" in prose("13")
    assert "| the transfers, at a width of 16384 only |" in prose("13")


def test_chapter_14_s_thresholds_are_flops_over_the_bytes_of_a_ring():
    """A layer multiplies n tokens in 2·n·w FLOPs while it all-gathers 2·w bytes of weights."""
    rows = printed("14", r"(\S.*?) +over (\d) of (\d) ax[ei]s: from +([\d,]+) tokens per device")
    assert [(name, int(axes)) for name, axes, _, _ in rows] == [
        (name, axes) for name in ("tpu v5e", "tpu v5p", "h100") for axes in range(1, DEVICES[name].axes + 1)
    ]
    for name, axes, of, tokens in rows:
        device = DEVICES[name]
        sent = device.link * device.links * int(axes)
        assert int(of) == device.axes
        assert number(tokens) == pytest.approx(device.matmul["bfloat16"] / sent, abs=0.5)


def test_chapter_0s_first_table_contains_its_cells_figures():
    table = cells("00")[0].source
    before, after = (
        re.search(rf"^\| {row} \|(.*)\|$", table, re.MULTILINE)[1].split("|") for row in ("before", "after")
    )
    assert printed("00", r"no checkpoint: Ran out .*\((\d+\.\d+)G\) exceeds") == [before[0].split()[0]]
    assert printed("00", r"per layer: it fits, with a peak of ([\d.]+) GiB") == [after[0].split()[0]]
    (more,) = printed("00", r"(\d+)% more FLOPs")
    assert (before[2].strip(), after[2].strip()) == ("100 %", f"{100 + int(more)} %")
    assert f"{more} % more floating-point operations" in prose("00")


def test_chapter_0_s_residuals_are_the_layers_inputs_and_those_of_the_loss():
    (saved,) = printed("00", r"one checkpoint per layer +(\d+) MiB")[:1]
    inputs = 24 * (8 * 1024 * 1024) * 2 / 2**20
    output_layer = (8 * 1024 * 1024) * 2 + (8 * 1023 * 256) * 4  # the input in bfloat16 and the softmax in float32
    assert inputs == 384 and int(saved) - inputs == pytest.approx(output_layer / 2**20, abs=1.5)
    assert re.findall(r"inputs of the 24 layers take (\d+) MiB", prose("00")) == ["384"]
    assert re.findall(r"save the other (\d+) MiB", prose("00")) == [str(int(saved) - 384)]


def test_chapter_6_s_share_of_recompute_is_of_the_forward_pass():
    here = defined("06", "import jax", "def f32", "def block(weights, x)", "tokens, width = 128, 64")
    block, arguments = here["block"], here["arguments"]
    policy = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    again = trace(jax.checkpoint(block, policy=policy), *arguments).recompute_cost.flops
    plain = trace(block, *arguments)
    forward = program_cost(plain.forward).flops
    assert printed("06", r"recompute: (\d+)% of the forward pass") == [f"{again / forward:.0%}"[:-1]]
    assert printed("06", r"(\d+)% of the FLOPs of both passes") == [f"{again / plain.cost.flops:.0%}"[:-1]]


@pytest.mark.slow
def test_chapter_10_s_third_and_fourth_rule_hold_at_its_shapes():
    here = defined(
        "10", "import math", "def layer_norm", "def unfused_attention", "def block(", "def arguments",
        "def saved_by_name", "save_all_names = ", "matrices = ", "gpt3, mt_nlg = ", "def recomputed_matmuls",
        "projections = ", "def save_names", "shapes = {", "def recompute_share", "def cudnn_attention",
        "def save_kernel_and",
    )  # fmt: skip
    block, fused, share, saved = (here[n] for n in ("block", "fused_block", "recompute_share", "saved_sbh"))
    full, context, minimal = (here["save_names"](*names) for names in ((), ("context",), here["projections"]))
    kernel = here["save_kernel_and"]()
    wide, _, long = here["shapes"].values()
    for layer, attention_only in ((block, context), (fused, kernel)):
        avoided = [share(layer, full, wide) - share(layer, policy, wide) for policy in (attention_only, minimal)]
        assert 20 * avoided[0] < avoided[1], "wide: the projections avoid the most recompute"
        assert share(layer, attention_only, long) == pytest.approx(share(layer, minimal, long), rel=0.01)
        assert saved(layer, minimal, long) == pytest.approx(8 * saved(layer, attention_only, long), rel=0.02)
    for sizes in here["shapes"].values():
        assert share(fused, context, sizes) == share(fused, full, sizes), "the name on a kernel's output avoids nothing"
    rules = prose("10")
    assert "attention output first if the sequence is longer than the layer is wide" in rules
    assert "on its output alone avoids nothing" in rules


@pytest.mark.filterwarnings("ignore:The Fp8DotGeneralOp is deprecated")
def test_chapter_15_s_table_states_the_residuals_of_quantized_matmuls():
    """The checked libraries are those of the test environment: JAX and Flax."""
    stated = dict(
        re.findall(r"^\| ([^|]*[`\w]) \| (.* operand[^|]*) \|$", "\n".join(c.source for c in cells("15")), re.M)
    )
    x, w = jnp.ones((64, 32), jnp.bfloat16), jnp.ones((32, 32), jnp.bfloat16)
    config = jax.nn.get_scaled_dot_general_config("mxfp8")
    numbers = (((1,), (0,)), ((), ()))
    scaled = functools.partial(
        jax.nn.scaled_dot_general, dimension_numbers=numbers, preferred_element_type=x.dtype, configs=[config] * 3
    )

    def flax(matmul):
        variables = matmul.init(jax.random.key(0), x, w, numbers)
        return lambda x, w: matmul.apply(variables, x, w, numbers, mutable=True)[0]

    def saved(matmul):
        """Return the dtypes of residuals of the size of the left operand, which a sine computes."""
        residuals = trace(lambda x, w: jnp.sum(matmul(jnp.sin(x), w).astype(jnp.float32)), x, w).residuals
        found = [each for each in residuals if each.kind == "computed" and math.prod(each.shape) == x.size]
        return sorted(str(each.dtype) for each in found)

    bfloat16, fp8 = "bfloat16", "float8_e4m3fn"
    cosine = [bfloat16]  # the sine's own residual
    expected = {
        "`jax.nn.scaled_dot_general`": (scaled, "the bfloat16 operand", [bfloat16]),
        "Flax, `Fp8DotGeneralOp`": (
            flax(fp8_ops.Fp8DotGeneralOp()), "the operand, rounded to fp8 and stored in bfloat16", [bfloat16],
        ),
        "Flax, `Fp8DirectDotGeneralOp`": (
            flax(fp8_ops.Fp8DirectDotGeneralOp()), "the bfloat16 and the fp8 operand", [bfloat16, fp8],
        ),
    }  # fmt: skip
    for library, (matmul, text, dtypes) in expected.items():
        assert stated[library] == text
        assert saved(matmul) == sorted(cosine + dtypes), library
