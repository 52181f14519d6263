"""Reports: totals add up, proposals fit and compute the same results, and the text stays within 80 columns."""

import dataclasses
import functools
import html
import html.parser
import itertools
import json
import re
import textwrap
import time
import types
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from normal import normal
from releases import since
from sampling import few
from steps import STEPS

import rematscope
from rematscope import PlanError
from rematscope.memory.xla_estimate.estimate import allocations
from rematscope.render.view import plain_text
from rematscope.reporting import fixes as fixes_module
from rematscope.reporting import rewrite as rewrite_module
from rematscope.reporting import subject as subject_module
from rematscope.reporting.contents import Buffer, Module, grouped_modules
from rematscope.reporting.page import _fitting_label, render_page
from rematscope.reporting.report import Report, _target_for
from rematscope.reporting.rewrite import Changes, Rewritten
from rematscope.reporting.tree import Node, tree_of
from rematscope.seconds.devices import device_called
from rematscope.tracing.trace import trace_call

NAMES = ["float16_with_a_loss_scale", "low_rank_adapters", "scanned_layers_in_bfloat16", "recurrent_over_time"]
SMALL = few(NAMES)
FACTOR = 2.0


def reported(name: str, factor: float = FACTOR) -> Report:
    return _reported(name, factor)  # for the cache, an argument and its default are two calls


@functools.cache
def _reported(name: str, factor: float) -> Report:
    subject = STEPS[name]()
    peak = rematscope.report(subject.step, *subject.args, memory="1 TiB", compiles=1).peak_bytes
    return rematscope.report(subject.step, *subject.args, memory=int(peak / factor))


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_the_parts_add_up_to_the_peak(name):
    report = reported(name)
    assert sum(report.bytes_by_kind.values()) == report.predicted_bytes
    assert sum(buffer.nbytes for buffer in report.peak) == report.predicted_bytes
    assert max(report.timeline.totals) == report.predicted_bytes
    assert sum(module.forward_flops for module in report.modules) > 0


def pasted(text: str) -> str:
    """The snippet in the text of a report: the indented lines after "Paste this"."""
    lines = text[text.index("Paste this") :].splitlines()
    snippet = itertools.takewhile(
        lambda line: not line or line.startswith("    "),
        itertools.dropwhile(lambda line: not line.startswith("    "), lines),
    )
    return textwrap.dedent("\n".join(snippet))


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_the_pasted_proposal_compiles_within_the_capacity(name):
    report, subject = reported(name), STEPS[name]()
    assert not report.fits and report.best is not None
    scope = {"step": subject.step, subject.step.__name__: subject.step}
    exec(pasted(plain_text(report, 100)), scope)
    lowered = scope[subject.step.__name__].lower(*subject.args)
    memory = lowered.compile().memory_analysis()
    peak = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    assert peak - memory.alias_size_in_bytes <= report.limit


def drawn(tree):
    """The arrays of a tree with random values in place of shapes; Adam's second moments, `nu`, are positive."""
    rng = np.random.default_rng(0)

    def one(path, leaf):
        if not isinstance(leaf, jax.ShapeDtypeStruct):
            return leaf
        if jnp.issubdtype(leaf.dtype, jnp.integer):
            return jnp.zeros(leaf.shape, leaf.dtype)
        value = jnp.asarray(0.1 * rng.standard_normal(leaf.shape), leaf.dtype)
        return jnp.abs(value) if ".nu" in jax.tree_util.keystr(path) else value

    return jax.tree_util.tree_map_with_path(one, tree)


@pytest.mark.parametrize("factor", few([FACTOR, 5.0]))
@pytest.mark.parametrize("name", SMALL)
def test_the_proposal_computes_the_same_results_as_the_step(name, factor):
    report, subject = reported(name, factor), STEPS[name]()
    if report.best is None:
        assert "consists of" in report.nothing_fits
        assert all(fix.compiled_bytes is None or fix.compiled_bytes > report.limit for fix in report.fixes)
        return
    args = drawn(subject.args)
    expected = jax.jit(subject.step)(*jax.tree.map(jnp.copy, args))
    found = jax.jit(report.best.function)(*jax.tree.map(jnp.copy, args))
    # Microbatches add up in another order, which few bits round differently.
    few_bits = "16" in name and report.best.changes.microbatches > 1
    for one, other in zip(*(map(np.float64, jax.tree.leaves(v)) for v in (expected, found)), strict=True):
        assert np.all(np.isfinite(one))
        assert np.linalg.norm(one - other) <= (0.1 if few_bits else 1e-3) * np.linalg.norm(one) + 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("width", [80, 120])
def test_the_text_fits_the_width_of_the_terminal(name, width):
    text = plain_text(reported(name), width)
    assert max(map(len, text.splitlines())) <= width
    assert re.findall(r"^\d\. .*", text, re.MULTILINE) == [
        "1. Does it fit?", "2. What fills it?", "3. What to change?", "4. What was assumed?",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_step_that_fits_is_not_changed():
    report = reported(NAMES[0], 0.5)
    assert report.fits and report.best is None and "Nothing: it fits" in plain_text(report)


def test_progress_names_the_function_itself_while_it_compiles():
    said = []
    subject = subject_module.Subject(lambda x: jnp.sum(jnp.sin(x)), (jnp.ones(8),), {}, None, "cpu")
    fixes_module.Search(subject, 1 << 20, 1, lambda text, done: said.append(text)).run()
    assert said == ["tracing the function", "compiling the function as written"]


def test_a_step_whose_arguments_do_not_fit_is_refused_immediately():
    def step(w, state, x):
        gradient = jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)
        state = 0.9 * state + gradient
        return w - state, state

    report = rematscope.report(step, jnp.eye(128), jnp.zeros((128, 128)), jnp.ones((4, 128)), memory="100 KiB")
    assert report.best is None and len(report._search.tried) <= 2
    assert "take 130 KiB, even if everything that can be donated is." in report.nothing_fits
    assert "take 130 KiB" in render_page(report).partition("1. Does it fit?")[0]
    larger = rematscope.report(step, jnp.eye(128), jnp.zeros((128, 128)), jnp.ones((4, 128)), memory="180 KiB")
    assert larger.best is None
    assert "the gradients take 64 KiB: together 194 KiB, if all gradients are live at once." in larger.nothing_fits
    assert "reduce the batch size" not in larger.nothing_fits
    assert "Parameters, optimizer state and gradients alone take 192 KiB" in larger.nothing_fits
    # Donation removes the outputs, so the advice does not count them.
    assert any("Parameters and optimizer state take 128 KiB. Shard" in sentence for sentence in larger.advice)


def test_a_capacity_is_needed_and_explained():
    with pytest.raises(rematscope.PlanError, match="needs a capacity"):
        rematscope.report(jnp.sin, 1.0)
    with pytest.raises(rematscope.PlanError, match=r"memory=16 is 16 bytes\. Did you mean '16 GiB'\?"):
        rematscope.report(jnp.sin, 1.0, memory=16)
    with pytest.raises(rematscope.PlanError, match="memory='much'"):
        rematscope.report(jnp.sin, 1.0, memory="much")
    with pytest.raises(rematscope.TargetError, match=r"Give one of .*report needs only its memory: memory='24 GiB'"):
        rematscope.report(jnp.sin, 1.0, device="rtx 4090")


@pytest.mark.parametrize(
    ("backend", "device", "target"),
    [("gpu", None, "gpu"), ("gpu", "h100", "gpu"), ("cpu", "h100", "cpu"), ("cpu", None, "cpu")],
)
def test_the_program_is_compiled_for_the_device_that_jax_uses(monkeypatch, backend, device, target):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    assert _target_for(device and device_called(device), None) == target


def test_the_call_that_reproduces_a_report_names_its_device():
    report = rematscope.report(jnp.sin, jnp.ones(8), device="h100", memory="1 KiB")
    assert f"report(sin, …, memory=1024, device='h100'), with JAX {jax.__version__}" in " ".join(report.assumptions)


@pytest.mark.parametrize(("device", "capacity"), [("h100", 0.75 * 80e9), ("tpu v5e", 15.75 * 2**30)])
def test_the_capacity_of_a_device_is_what_a_program_can_use(device, capacity):
    report = rematscope.report(jnp.sin, jnp.ones(8), device=device, target="cpu")
    assert report.limit == int(capacity)
    assert ("memory='70.8 GiB'" in " ".join(report.assumptions)) == (device == "h100")
    assert f"({device})" in report.headline


def test_microbatches_are_refused_if_they_would_change_the_gradient():
    def step(w, x, mask):
        def loss(w):
            weights = mask * jax.nn.sigmoid(x @ w[0])
            return jnp.sum(weights * jnp.tanh(x @ w).sum(-1)) / jnp.sum(weights)

        return w - jax.grad(loss)(w)

    args = jnp.ones((8, 8)), jnp.ones((4096, 8)), jnp.ones(4096)
    report = rematscope.report(step, *args, memory="150 KiB")
    assert report.best is None or report.best.changes.microbatches == 1
    assert any("no rule covers div" in sentence for sentence in report.advice)
    assert not any("Use chunks=" in sentence for sentence in report.advice)


@pytest.mark.slow
def test_a_proposal_refuses_arguments_that_the_report_did_not_check():
    def step(ws, x, is_mean):
        def loss(ws):
            y = x
            for w in ws:
                y = jnp.tanh(y @ w)
            return jnp.mean(y**2) if is_mean else jnp.max(y**2)

        return jax.tree.map(lambda w, g: w - g, ws, jax.grad(loss)(ws))

    args = [jnp.eye(8)] * 4, jnp.ones((4096, 8))
    best = rematscope.report(step, *args, True, memory="300 KiB").best
    assert best is not None and best.changes.microbatches > 1
    with pytest.raises(PlanError, match="not proved to be an average"):
        best.function(*args, False)
    expected, found = step(*args, True), best.function(*jax.tree.map(jnp.copy, args), True)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def normalized_layers():
    """A step with statistics of the batch in each layer, and its arguments."""

    def loss(ws, x, y):
        h = x
        for w in ws:
            z = h @ w
            h = h + jax.nn.gelu((z - z.mean(0)) / jnp.sqrt(z.var(0) + 1e-3))
        return jnp.mean((h - y) ** 2), h

    def step(ws, state, x, y):
        (value, h), grads = jax.value_and_grad(loss, has_aux=True)(ws, x, y)
        state = jax.tree.map(lambda m, g: 0.9 * m + g, state, grads)
        return jax.tree.map(lambda w, m: w - 0.1 * m, ws, state), state, value, h.max()

    ws = [jnp.eye(32) + 0.1 * jnp.sin(jnp.arange(1024.0) + i).reshape(32, 32) for i in range(10)]
    return step, (ws, [0.1 * w for w in ws], jnp.cos(jnp.arange(512 * 32.0)).reshape(512, 32), jnp.ones((512, 32)))


@pytest.mark.slow
def test_a_step_that_fits_only_with_a_plan_of_auto_gets_one(monkeypatch):
    monkeypatch.setattr(fixes_module, "_PLAN_OPERATIONS", float("inf"))
    step, args = normalized_layers()
    found = rematscope.report(step, *args, memory="730 KiB")
    assert found.best is not None and "auto=" in found.best.snippet, found.nothing_fits
    assert found.best.peak_bytes <= found.limit
    whole = [changes for changes in found._search.tried if changes.checkpoint == "whole" and changes.chunks > 1]
    assert not whole, "a plan recomputes less than chunks that recompute the whole loss for each loop"
    expected = step(*args)
    for one, other in zip(jax.tree.leaves(expected), jax.tree.leaves(found.best.function(*args)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", "tpu v5e"])
def test_carries_are_offloaded_if_the_device_has_its_own_memory_and_nothing_else_fits(monkeypatch, target):
    """The loss is no mean, so it has no microbatches, and its carries are most of what checkpoints save."""

    def body(x, w):
        return x + jnp.tanh(x @ w["up"]) @ w["down"], None

    def loss(ws, x):
        x = lax.scan(body, x, ws)[0]
        return jnp.mean(x**2) / jnp.max(x)

    def step(ws, x):
        return jax.tree.map(lambda w, g: w - g, ws, jax.grad(loss)(ws, x))

    def compiled(self, changes):
        memory = self.traced(changes).memory
        return types.SimpleNamespace(peak_or_infinity=memory.peak_bytes, memory=memory)

    monkeypatch.setattr(subject_module.Subject, "compiled", compiled)
    ws = {
        "up": jax.ShapeDtypeStruct((16, 64, 256), jnp.float32),
        "down": jax.ShapeDtypeStruct((16, 256, 64), "float32"),
    }
    args = ws, jax.ShapeDtypeStruct((4096, 64), jnp.float32)
    subject = subject_module.Subject(step, args, {}, device_called("tpu v5e"), target)
    carries = 16 * 4096 * 64 * 4
    loops = subject.traced(Changes("loops", donate_argnums=(0,))).memory.peak_bytes
    search = fixes_module.Search(subject, loops - carries // 2, 6, lambda *_: None)
    found = search.run()
    if target == "cpu":
        assert not any(changes.checkpoint == "offloaded loops" for changes in search.tried)
        return
    assert found == Changes("offloaded loops", donate_argnums=(0,))
    fix = next(fix for fix in search.fixes() if fix.changes == found)
    assert fix.extra_link_bytes == 2 * carries
    assert fix.extra_seconds > carries / device_called("tpu v5e").host
    assert fix.peak_bytes <= loops - 0.8 * carries


def test_parameters_that_shard_map_gathers_are_gathered_again():
    """The proposal saves the matmuls' results, but not the gathered weights, so it gathers each weight once more."""
    mesh = jax.make_mesh((8,), ("d",), axis_types=(AxisType.Auto,))

    def body(x, ws):
        up, down = (lax.all_gather(w, "d", tiled=True) for w in ws)
        return x + jnp.tanh(x @ up) @ down, None

    @functools.partial(jax.shard_map, mesh=mesh, in_specs=(P(None, "d"), P("d")), out_specs=P())
    def loss(ws, x):
        return lax.pmean(jnp.mean(lax.scan(body, x, ws)[0] ** 2), "d")

    def step(ws, x):
        value, grads = jax.value_and_grad(loss)(ws, x)
        return value, jax.tree.map(lambda w, g: w - g, ws, grads)

    up, down, x = (each / 16 for each in normal(0, (4, 64, 256), (4, 256, 64), (256, 64)))
    split = NamedSharding(mesh, P(None, "d"))
    args = (jax.device_put(up, split), jax.device_put(down, split)), jax.device_put(x, NamedSharding(mesh, P("d")))
    base = rematscope.report(step, *args, memory="1 GiB").peak_bytes
    report = rematscope.report(step, *args, memory=int(base / 1.5))
    assert report.best.changes.policy is jax.checkpoint_policies.dots_saveable
    assert report.best.extra_link_bytes == (up.nbytes + down.nbytes) * 7 // 8
    assert report.best.extra_share < 0.01
    assert "more over the links of each device" in str(report).replace("\n", " ")
    assert "All bytes are those on each of 8 devices; the shapes are those of whole arrays." in report.assumptions
    for one, other in zip(*map(jax.tree.leaves, (step(*args), report.best.function(*args))), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_the_reduction_is_that_of_compiled_peaks_if_they_are_known():
    report = reported(NAMES[0])
    compiled = [fix for fix in report.fixes if fix.compiled_bytes is not None]
    assert compiled and all(fix.reduction_bytes == report.peak_bytes - fix.compiled_bytes > 0 for fix in compiled)


@pytest.mark.parametrize("batch", [64, 24])
def test_each_device_computes_a_part_of_each_microbatch(batch):
    """So microbatches cost no FLOPs, although the parts of a batch that follow each other are on different devices.

    With 24 examples, the 8 devices do not divide a microbatch of 12.
    """
    mesh = jax.make_mesh((8,), ("d",), axis_types=(AxisType.Auto,))
    split = NamedSharding(mesh, P("d"))

    @jax.jit
    def step(w, x):
        return w - jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)

    args = jnp.eye(32), jax.device_put(jnp.sin(jnp.arange(32.0 * batch)).reshape(batch, 32), split)
    subject = subject_module.Subject(step, args, {}, None, "cpu")
    changes = Changes(microbatches=2, in_axes=(None, 0))
    if batch == 64:
        assert subject.traced(changes).work < 1.1 * subject.traced(Changes()).work
    np.testing.assert_allclose(subject.changed(changes)(*args), step(*args), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_plan_of_auto_that_would_take_too_long_is_not_made(monkeypatch):
    monkeypatch.setattr(fixes_module, "_PLAN_OPERATIONS", 0)
    step, args = normalized_layers()
    found = rematscope.report(step, *args, memory="400 KiB")
    assert found.best is None and all(changes.auto is None for changes in found._search.tried)
    assert any("No plan of auto" in sentence for sentence in found.advice)


def ppo_step(params, key):
    """Scan over minibatches of a batch that the step closes over, as in PPO."""
    batch = jnp.arange(512.0).reshape(64, 8)

    def minibatch(params, x):
        return params - 0.1 * jax.grad(lambda w: jnp.mean(jnp.tanh(jnp.sin(x @ w))))(params), None

    def epoch(carry, _):
        params, key = carry
        key, own = jax.random.split(key)
        x = jax.random.permutation(own, batch).reshape(4, 16, 8)
        return (jax.lax.scan(minibatch, params, x)[0], key), None

    return jax.lax.scan(epoch, (params, key), None, 2)[0]


def test_the_axis_of_a_key_is_not_that_of_a_batch():
    key = jax.random.PRNGKey(0)
    subject = subject_module.Subject(ppo_step, (jnp.ones((8, 4)), key), {}, None, "cpu")
    assert subject.in_axes == ()
    why = subject.why_no_microbatches(2)
    assert "The last axis of `key`, u32[2], counts as that of a PRNG key" in why and "invalid" not in why
    assert why.endswith("If ppo_step closes over its batch, make the batch an argument.")
    for options in ({"microbatches": 2}, {"chunks": 2}):
        with pytest.raises(
            PlanError, match=r"in_axes= divides axis 0 of an argument of ppo_step of type u32\[2\], but"
        ):
            rematscope.rewrite(ppo_step, in_axes=(None, 0), **options)(jnp.ones((8, 4)), key)
    # The axis of several keys, one for each example, may be that of a batch.
    keys, x = jax.random.split(key, 6), jnp.ones((6, 8))

    def step(w, keys, x):
        def loss(w):
            return jnp.mean(jnp.tanh(x @ w) * jax.vmap(lambda key: jax.random.uniform(key, (4,)))(keys))

        return w - jax.grad(loss)(w)

    assert subject_module.Subject(step, (jnp.ones((8, 4)), keys, x), {}, None, "cpu").in_axes == (None, 0, 0)


@pytest.mark.parametrize("stated", [True, False])
def test_a_batch_size_that_the_code_states_is_named_as_the_obstacle(stated):
    def step(w, x):
        def loss(w):
            y = x.reshape(8, 4, 16) if stated else x.reshape(-1, 4, 16)
            return jnp.mean(jnp.tanh(jnp.tanh(y @ w) @ w))

        return w - jax.grad(loss)(w)

    args = jax.ShapeDtypeStruct((16, 16), jnp.float32), jax.ShapeDtypeStruct((8, 4, 16), jnp.float32)
    why = subject_module.Subject(step, args, {}, None, "cpu").why_no_microbatches(2)
    if stated:
        line = step.__code__.co_firstlineno + 2
        assert f"({Path(__file__).name}:{line}). If its code states the batch size as a number" in why
    else:
        assert why == ""


@pytest.mark.slow
def test_a_batch_of_keyword_arguments_is_divided():
    def step(w, *, x, mask):
        def loss(w):
            return jnp.sum(mask * jnp.tanh(jnp.tanh(x @ w) @ w).sum(-1)) / jnp.sum(mask)

        return w - jax.grad(loss)(w)

    x, mask = jnp.cos(jnp.arange(4096 * 8.0)).reshape(4096, 8), jnp.arange(4096) % 3 * 1.0
    best = rematscope.report(step, jnp.eye(8), x=x, mask=mask, memory="250 KiB").best
    assert best is not None and 'in_axes=(None, {"x": 0, "mask": 0})' in best.snippet
    expected, found = (f(jnp.eye(8), x=x, mask=mask) for f in (step, best.function))
    np.testing.assert_allclose(expected, found, rtol=1e-5, atol=1e-6)


class Tags(html.parser.HTMLParser):
    """The elements of a page that are open, and what the page would fetch."""

    VOID = frozenset({"meta", "input", "br", "wbr", "!doctype"})

    def __init__(self):
        super().__init__()
        self.open, self.fetched, self.ids = [], [], []

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open.append(tag)
        self.fetched += [value for name, value in attrs if name in ("src", "href", "srcset")]
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@since("0.11", "XLA on a CPU recomputes what a checkpoint says")
@pytest.mark.parametrize("name", SMALL[:2])
def test_the_page_is_well_formed_and_needs_nothing_else(name, tmp_path):
    report = reported(name)
    report.save(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    page = Tags()
    page.feed(text)
    assert not page.open and not page.fetched and len(set(page.ids)) == len(page.ids)
    assert "url(" not in text and "@import" not in text
    assert str(report.best.changes) in html.unescape(text.replace("<wbr>", ""))


def test_the_tree_adds_up_at_every_node():
    report = reported(NAMES[0])
    tree = tree_of(report.peak)
    assert tree.nbytes == report.predicted_bytes
    for node, _, _ in tree.walk():
        assert not node.children or node.nbytes >= sum(child.nbytes for child in node.children.values())
    pruned = tree_of(report.peak, 20)
    assert pruned.nbytes == tree.nbytes and sum(1 for _ in pruned.walk()) < sum(1 for _ in tree.walk())


def test_a_node_has_the_kind_of_most_of_its_bytes():
    def buffer(nbytes, kind, operation="dot_general", source="model.py:3 → model.py:9"):
        return Buffer("", "f32[8]", nbytes, kind, ("block",), operation, source)

    saved = [buffer(100, "saved activations") for _ in range(8)]
    others = [buffer(300, "temporaries"), buffer(90, "gradients", "tanh"), buffer(10, "temporaries", "tanh", "")]
    for buffers in [*saved, *others], [*others, *saved]:
        kinds = {node.name: node.kind for node, _, _ in tree_of(buffers).walk() if node.nbytes > 100}
        expected = dict.fromkeys(["peak", "block", "dot_general", "model.py:3"], "saved activations")
        assert kinds == expected
        pruned = {node.name: node.kind for node, _, _ in tree_of(buffers, 2).walk()}
        assert pruned["smaller buffers"] == "saved activations"


def test_buffers_of_a_model_name_its_classes_and_the_operations_that_make_them():
    class Block(NamedTuple):
        w: jax.Array

        def __call__(self, x):
            return jnp.sin(x @ self.w)

    class Net(NamedTuple):
        blocks: list[Block]

        def __call__(self, x):
            for block in self.blocks:
                x = block(x)
            return x

    def loss(net, x):
        return jnp.sum(net(x))

    net = Net([Block(jnp.ones((64, 64)))] * 3)
    report = rematscope.report(loss, net, jnp.ones((512, 64)), memory="1 TiB")
    computed = {(*buffer.module[-2:], buffer.operation) for buffer in report.peak if buffer.operation}
    assert ("Net", "Block", "dot_general") in computed or ("Net", "Block", "cos") in computed, computed
    assert "Operation" in str(report) and "Net/Block" in str(report)


def test_grouped_modules_add_up_and_repeated_layers_are_one_group():
    layers = [Module(("net", f"layer_{i}"), i, 2 * i, 3 * i, 4) for i in range(12)]
    head = Module(("net", "head_0"), 1, 0, 2, 100)
    assert grouped_modules([head, *layers]) == [(1, head), (12, Module(("net", "layer_*"), 66, 132, 198, 48))]


@since("0.11", "XLA on a CPU recomputes what a checkpoint says")
def test_a_page_names_its_legend_and_stays_light_in_print(tmp_path):
    text = render_page(reported(SMALL[0]))
    assert text.count('class="key"') == 2 and "@media screen and (prefers-color-scheme: dark)" in text


def test_labels_of_narrow_parts_keep_the_number_of_a_repeated_layer():
    assert _fitting_label(Node("Block_11", 1024), 30) == "Block_11 1 KiB"
    assert _fitting_label(Node("Block_11", 1024), 9) == "Block_11"
    assert _fitting_label(Node("Block_11", 1024), 5) == "Bl…11" and _fitting_label(Node("Block_11", 1024), 3) == "…11"
    assert _fitting_label(Node("Block_11", 1024), 2) == "" and _fitting_label(Node("attention", 1024), 4) == "att…"


def test_buffers_of_equal_size_are_listed_in_the_order_of_the_arguments():
    weights = [jax.ShapeDtypeStruct((4, 4), jnp.float32)] * 32
    found = rematscope.report(lambda ws: sum(jnp.sum(jnp.sin(w)) for w in ws), weights, memory="1 MiB", compiles=1)
    indices = [int(index) for b in found.peak if b.kind == "arguments" for index in re.findall(r"\d+", b.name)]
    assert indices == list(range(32))


def test_perfetto_gets_a_counter_that_reaches_the_peak(tmp_path):
    report = reported(NAMES[0])
    report.to_perfetto(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert max(sum(e["args"].values()) for e in events if e["ph"] == "C") == report.predicted_bytes


@pytest.mark.slow
@pytest.mark.parametrize("limit", ["_OPERATIONS", "_DIVISION_OPERATIONS"])
def test_a_report_does_not_depend_on_the_speed_of_the_machine(limit, monkeypatch):
    """Its search ends after a number of operations, even if its clock runs a thousand times faster."""
    step, args, _ = STEPS["low_rank_adapters"]()
    peak = rematscope.report(step, *args, memory="1 TiB", compiles=1).peak_bytes
    monkeypatch.setattr(fixes_module, limit, 1)
    texts, clock = [], time.process_time
    for speed in (1, 1_000):
        monkeypatch.setattr(time, "process_time", lambda speed=speed: speed * clock())
        found = rematscope.report(step, *args, memory=int(peak / 4))
        texts.append(str(found))
        assert not found._search.is_complete
    assert texts[0] == texts[1]


@pytest.mark.slow
def test_the_limit_counts_the_search_for_the_batch_axis_and_the_proof():
    step, args, _ = STEPS["low_rank_adapters"]()
    found = subject_module.Subject(step, args, {}, None, "cpu")
    counts = [found.operations]
    for work in (lambda: found.in_axes, lambda: found.why_no_microbatches(2), lambda: found.traced(Changes("whole"))):
        work()
        counts.append(found.operations)
    assert counts == sorted(set(counts)), "each of them counts"


@pytest.mark.slow
@pytest.mark.parametrize("factor", few([1.3, 8.0]))
def test_a_proposal_is_compared_with_cheaper_changes(factor):
    report = reported("low_rank_adapters", factor)
    cost = report._search.cost(report.best.changes)
    before = sum(report._search.cost(c) < cost for c in report._search.tried if c != Changes())
    text = report.proposal_text
    unknown = [c for c in report._search.tried if report._search.cost(c) < cost and c not in report._search.measured]
    expected = [c for c in unknown if report._search.peak_bytes(c) <= report.limit]
    assert ("predicted to fit but w" in text) is bool(expected)
    if report.best.changes.microbatches * report.best.changes.chunks > 1:
        assert "cheaper changes" not in text
        assert f"tried {before} changes that split the batch into fewer parts" in text
    elif before > 1:
        assert (f"Of {before} cheaper changes" if expected else f"Each of the {before} cheaper changes") in text


@pytest.mark.parametrize("name", SMALL)
def test_donation_needs_no_other_trace_and_is_predicted_like_the_rewritten_step(name, monkeypatch):
    step, args, _ = STEPS[name]()
    found = subject_module.Subject(step, args, {}, None, "cpu")
    changes = Changes(donate_argnums=found.updated_argnums)
    passes = trace_call(Rewritten(step, changes), args, {}, False)
    monkeypatch.delattr(subject_module, "trace_call")
    memory = found.traced(changes).memory
    assert memory.peak_bytes == allocations(passes, "cpu").peak_bytes
    assert (memory.fixed_bytes < found.traced(Changes()).memory.fixed_bytes) is bool(changes.donate_argnums)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_parts_lower_no_predicted_peak_below_the_bound(name):
    search = reported(name, 8.0)._search
    for changes, found in list(search.tried.items()):
        for option in ("microbatches", "chunks", "head_chunks"):
            if (count := getattr(changes, option)) > 1:
                assert search._least_peak(changes, option, count) <= found.memory.peak_bytes


@pytest.mark.slow
@pytest.mark.parametrize(("classes", "factor", "may_fit"), [(1024, 1.5, True), (160, 6.0, False)])
@pytest.mark.parametrize("skipped", [0, 1])
def test_the_head_is_computed_in_chunks_only_if_the_step_may_fit_without_its_arrays(classes, factor, may_fit, skipped):
    def step(ws, x, y):
        def loss(ws):
            logits = functools.reduce(lambda x, w: jnp.tanh(x @ w), ws[:-1], x) @ ws[-1]
            logits = logits[:, : 64 - skipped]
            return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, skipped:, None], 2))

        return jax.tree.map(lambda w, g: w - g, ws, jax.grad(loss)(ws))

    args = [jnp.eye(16)] * 24 + [jnp.ones((16, classes))], jnp.ones((8, 64, 16)), jnp.zeros((8, 64), int)
    peak = rematscope.report(step, *args, memory="1 TiB", compiles=1).peak_bytes
    tried = rematscope.report(step, *args, memory=int(peak / factor))._search.tried
    assert any(changes.head_chunks > 1 for changes in tried) is may_fit


@pytest.mark.slow
def test_checkpoints_that_save_more_are_traced_only_if_those_that_save_less_may_fit():
    def layer(y, w):
        return jnp.tanh(jnp.tanh(y @ w) @ w)

    def step(ws, x):
        gradient = jax.grad(lambda ws: jnp.mean(functools.reduce(layer, ws, x) ** 2))(ws)
        return jax.tree.map(lambda w, g: w - g, ws, gradient)

    args = [jnp.eye(8)] * 16, jnp.ones((4096, 8))
    peak = rematscope.report(step, *args, memory="1 TiB", compiles=1).peak_bytes
    tried = rematscope.report(step, *args, memory=int(peak / 8))._search.tried
    assert tried[Changes("layers")].memory.peak_bytes > peak / 8
    assert {changes.checkpoint for changes in tried} <= {None, "layers", "segments", *rewrite_module.NESTED}


@pytest.mark.parametrize("name", SMALL)
def test_checkpoints_that_save_less_are_traced_only_if_those_that_save_more_do_not_fit(name):
    report = reported(name)
    found = {changes: t.memory.peak_bytes for changes, t in report._search.tried.items() if changes.saved is not None}
    for changes, peak in found.items():
        if peak <= fixes_module._MARGIN * report.limit:
            others = [c for c in found if c == dataclasses.replace(changes, saved=c.saved)]
            # Without donation, the search tries to save a little less.
            assert all(c.saved > 0.9 * changes.saved for c in others)


def deep_mean(ws, x):
    def loss(ws):
        y = x
        for w in ws:
            y = jnp.tanh(y @ w)
        return jnp.mean(y**2)

    return jax.tree.map(lambda w, g: w - g, ws, jax.grad(loss)(ws))


def test_donation_is_added_to_traced_changes_beyond_the_limit(monkeypatch):
    args = [jnp.eye(8)] * 16, jnp.ones((4096, 8))
    search = fixes_module.Search(subject_module.Subject(deep_mean, args, {}, None, "cpu"), 1, 1, lambda *_: None)
    policies = jax.checkpoint_policies
    first, *others = (Changes("whole", policy) for policy in (None, policies.dots_saveable, policies.nothing_saveable))
    assert all(search._trace_changes(changes) for changes in (Changes(), Changes(donate_argnums=(0,)), first, *others))
    monkeypatch.setattr(fixes_module, "_OPERATIONS", -1)
    assert search._trace_changes(dataclasses.replace(first, donate_argnums=(0,)))
    assert not search._trace_changes(Changes("whole", policies.everything_saveable)) and not search.is_complete


@pytest.mark.slow
def test_no_more_microbatches_than_needed_are_proposed_beyond_the_limit(monkeypatch):
    monkeypatch.setattr(fixes_module, "_DIVISION_OPERATIONS", -1)
    args = [jnp.eye(8)] * 16, jnp.ones((4096, 8))
    peak = rematscope.report(deep_mean, *args, memory="1 TiB", compiles=1).peak_bytes
    best = rematscope.report(deep_mean, *args, memory=int(peak / 2)).best
    assert best is not None and best.changes.microbatches == 4


@pytest.mark.slow
def test_microbatches_of_one_example_are_tried_only_if_larger_ones_do_not_fit(monkeypatch):
    counts, original = set(), subject_module.Subject.why_no_microbatches

    def recorded(self, count):
        counts.add(count)
        return original(self, count)

    monkeypatch.setattr(subject_module.Subject, "why_no_microbatches", recorded)
    args = [jnp.eye(8)] * 16, jnp.ones((16, 256, 8))
    peak = rematscope.report(deep_mean, *args, memory="1 TiB", compiles=1).peak_bytes
    for factor, tried in ((2, False), (8, True)):
        counts.clear()
        best = rematscope.report(deep_mean, *args, memory=int(peak / factor)).best
        assert best is not None and best.changes.microbatches > 1
        assert (16 in counts) is tried


@pytest.mark.slow
def test_the_table_lists_one_of_several_fixes_with_equal_peaks_and_flops():
    report = reported("recurrent_over_time")
    rows = [(fix.peak_bytes, fix.extra_work) for fix in report.shown_fixes if fix.compiled_bytes is None]
    assert len(rows) == len(set(rows)) < len(report.fixes)
    assert {(fix.peak_bytes, fix.extra_work) for fix in report.fixes[:5]} <= {
        (fix.peak_bytes, fix.extra_work) for fix in report.shown_fixes
    }


def test_the_batch_axis_of_one_argument_may_have_the_length_of_another_axis_of_another_argument():
    def step(w, xs, first):
        _, targets = lax.scan(lambda carry, x: (carry + x, carry + x), first, xs)

        def loss(w):
            return jnp.square(jnp.tanh(xs.reshape(-1, 4) @ w) - targets.reshape(-1, 4)).mean()

        return w - jax.grad(loss)(w)

    args = jnp.ones((4, 4)), jnp.ones((8, 8, 4)), jnp.ones((8, 4))
    assert subject_module.Subject(step, args, {}, None, "cpu").in_axes == (None, 0, None)


def sines(ws, x):
    def loss(ws):
        return jnp.mean(functools.reduce(lambda x, w: jnp.sin(x @ w), ws, x))

    return jax.tree.map(lambda w, g: w - g, ws, jax.grad(loss)(ws))


class Trainer:
    def sines(self, ws, x):
        return sines(ws, x)


@since("0.11", "XLA on a CPU recomputes what a checkpoint says")
@pytest.mark.parametrize("f", [sines, Trainer().sines, functools.partial(sines)])
def test_a_function_that_may_have_another_name_is_said_to_be_the_one_of_the_report(f):
    args = [jnp.ones((16, 16))] * 8, jnp.ones((256, 16))
    text = " ".join(plain_text(rematscope.report(f, *args, memory="160 KiB")).split())
    assert ("In this code, sines is the function that you passed to report." in text) == (f is not sines)


@jax.tree_util.register_pytree_node_class
class Scale:
    def __init__(self, value):
        self.value, self.dtype = value, jax.typeof(value).dtype

    def tree_flatten(self):
        return [self.value], None

    @classmethod
    def tree_unflatten(cls, _, leaves):
        return cls(*leaves)


@since("0.11", "XLA on a CPU recomputes what a checkpoint says")
def test_a_container_that_accepts_only_arrays_gets_no_placeholders():
    def step(scale, ws, x):
        return jax.tree.map(lambda w: w * scale.value, sines(ws, x)), scale

    args = Scale(jnp.float32(8)), [jnp.ones((16, 16))] * 8, jnp.ones((256, 16))
    assert rematscope.report(step, *args, memory="160 KiB").best is not None


def test_an_error_of_the_step_itself_is_raised_as_it_is():
    def step(w, x):
        gradient = jax.grad(lambda w: jnp.sum(x @ w))(w)
        return w if jnp.sum(gradient) > 0 else w - gradient

    with pytest.raises(jax.errors.TracerBoolConversionError):
        rematscope.report(step, jnp.ones((4, 4)), jnp.ones((2, 4)), memory="1 KiB")


def too_high_under_automatic_sharding():
    """Return a step whose predicted peak is 42 % too high, and its weights."""
    mesh = jax.make_mesh((8,), ("columns",), axis_types=(AxisType.Auto,))

    def constraint(x, *spec):
        return lax.with_sharding_constraint(x, NamedSharding(mesh, P(*spec)))

    @jax.checkpoint
    def layer(x, w):
        hidden = constraint(jnp.tanh(x @ w["up"]), None, "columns")
        return constraint(x + hidden @ w["down"], None, None)

    def loss(weights):
        x = jnp.sin(jnp.arange(1024 * 32, dtype=jnp.float32)).reshape(1024, 32)
        for w in weights:
            x = layer(x, w)
        return jnp.mean(x * x)

    def step(weights, momentum):
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, jax.grad(loss)(weights))
        return jax.tree.map(lambda w, m: w - 0.1 * m, weights, momentum), momentum

    def like(shape, *spec):
        return jax.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh, P(*spec)))

    weights = [{"up": like((32, 512), None, "columns"), "down": like((512, 32), "columns", None)}] * 3
    return step, weights


def test_changes_are_compiled_before_the_verdict_that_none_fits():
    step, weights = too_high_under_automatic_sharding()
    found = rematscope.report(step, weights, weights, memory=int(1.08 * 2**20))
    assert found.best is not None
    assert found.best.peak_bytes <= found.limit
    (row,) = [fix for fix in found.fixes if fix.changes == found.best.changes]
    assert row.peak_bytes > 1.1 * found.limit


@pytest.mark.slow
def test_the_verdict_that_none_fits_says_which_peaks_are_predictions():
    step, weights = too_high_under_automatic_sharding()
    found = rematscope.report(step, weights, weights, memory=int(1.05 * 2**20))
    counts = (
        r"rematscope compiled [1-9]\d* of them; the peaks of the other \d+ are predictions, which may be far too high\."
    )
    assert re.search(counts, found.nothing_fits)
