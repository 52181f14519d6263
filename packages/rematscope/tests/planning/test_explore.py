"""The panel: what it offers, what it shows for a choice, and that it never runs the function."""

import functools
import inspect
import re

import IPython.display
import ipywidgets
import jax
import jax.numpy as jnp
import pytest
from compiled_programs import array
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import io_callback
from matplotlib.figure import Figure

from rematscope import TraceError, compare, explore, frontier, liveness, trace
from rematscope.planning.frontier import POLICIES
from rematscope.render import widget
from rematscope.render.units import bytes_text


class Panel:
    """`explore` as a notebook has it, without a front end."""

    def __init__(self, monkeypatch, f, *args, **kwargs):
        outputs, pages = [], []
        make = ipywidgets.VBox
        with monkeypatch.context() as patch:
            patch.setattr(ipywidgets, "VBox", lambda children: pages.append(make(children)) or pages[-1])
            patch.setattr(widget, "in_notebook", lambda: True)
            patch.setattr(IPython.display, "display", lambda data, raw: outputs.append(data))
            explore(f, *args, **kwargs)
        (self.output,) = outputs
        (page,) = pages
        assert self.output["application/vnd.jupyter.widget-view+json"]["model_id"] == page.model_id
        row, self.pane = page.children
        self.policy, *ticks = row.children
        self.ticks = {tick.description: tick for tick in ticks}

    def costs(self) -> dict[str, list[str]]:
        """The lines of the comparison, by their titles: this choice, no checkpoint, change."""
        text = self.pane.html.partition("<pre>")[2].partition("</pre>")[0]
        table = [line.split("   ") for line in text.splitlines()[3:]]
        return {row[0].strip(): [cell.strip() for cell in row[1:] if cell.strip()] for row in table}


@pytest.fixture
def panel(monkeypatch):
    """Makes panels whose pictures have a description and no pixels, which take most of the time of a choice."""
    monkeypatch.setattr(Figure, "savefig", lambda *_, **__: None)
    return functools.partial(Panel, monkeypatch)


def block(x, W1, W2):
    hidden = checkpoint_name(x @ W1, "hidden")
    return jnp.sin(checkpoint_name(jnp.tanh(hidden) @ W2, "out"))


SHAPES = array(256, 64), array(64, 128), array(128, 64)


def test_offers_every_policy_that_takes_no_arguments():
    """A policy is asked about an operation and its parameters; what makes a policy from arguments takes none such."""
    asked = {
        policy
        for policy in vars(jax.checkpoint_policies).values()
        if any(p.kind is p.VAR_KEYWORD for p in inspect.signature(policy).parameters.values())
    }
    assert {getattr(jax.checkpoint_policies, name) for name in POLICIES} == asked


@pytest.mark.slow
def test_each_policy_shows_the_figures_of_its_trace(panel):
    shown = panel(block, *SHAPES)
    assert shown.policy.options == ("no checkpoint", "no policy", *POLICIES, "save_only_these_names")
    for policy in ("no checkpoint", "no policy", *POLICIES):
        shown.policy.value = policy
        chosen = getattr(jax.checkpoint_policies, policy, None)
        passes = trace(block if policy == "no checkpoint" else jax.checkpoint(block, policy=chosen), *SHAPES)
        assert f"recomputes {passes.backward.count(role='R')}" in shown.pane.html
        assert shown.costs()["saved, with arguments"][0] == display_bytes(passes)


def display_bytes(passes) -> str:
    return f"{passes.saved_bytes() / 1024:.3g} KiB"


def test_costs_of_a_choice_are_shown_next_to_those_without_a_checkpoint(panel):
    shown = panel(block, *SHAPES)
    shown.policy.value = "no checkpoint"
    assert all(row[2] == "none" for row in shown.costs().values())
    shown.policy.value = "no policy"
    costs = shown.costs()
    # Only arguments are saved: 256·64 + 64·128 + 128·64 floats. Both matmuls are recomputed, 2·256·64·128 FLOPs each,
    # and tanh of 256·128 elements; 1 − tanh² and the cosines are deferred. Without a checkpoint three more values are
    # saved: tanh's result, its derivative (128 KiB each) and the cosines (64 KiB).
    assert costs["saved, with arguments"] == ["128 KiB", "448 KiB", "−320 KiB (−71 %)"]
    assert costs["FLOPs recomputed"] == ["8.39 M", "0", "+8.39 M"]
    assert costs["FLOPs deferred"] == ["32.8 k", "0", "+32.8 k"]
    assert costs["transcendentals recomputed"] == ["32.8 k", "0", "+32.8 k"]
    assert costs["transcendentals deferred"] == ["16.4 k", "0", "+16.4 k"]


def test_ticking_a_name_chooses_names(panel):
    shown = panel(block, *SHAPES)
    assert list(shown.ticks) == ["save 'hidden'", "save 'out'"]
    assert shown.policy.value == "save_only_these_names" and "'hidden', 'out'" in shown.pane.html
    shown.policy.value = "dots_saveable"
    shown.ticks["save 'hidden'"].value = False
    assert shown.policy.value == "save_only_these_names"
    only_out = jax.checkpoint(block, policy=jax.checkpoint_policies.save_only_these_names("out"))
    assert shown.costs()["saved, with arguments"][0] == display_bytes(trace(only_out, *SHAPES))
    assert "save_only_these_names('out')" in shown.pane.html


def test_finds_names_wherever_they_are_given(panel):
    @jax.custom_vjp
    def ruled(x):
        return jnp.sin(x)

    ruled.defvjp(lambda x: (jnp.sin(x), checkpoint_name(jnp.cos(x), "in a rule")), lambda c, g: (g * c,))

    @jax.jit
    def f(x):
        x = jax.checkpoint(lambda x: checkpoint_name(jnp.sin(x), "in a checkpoint"))(x)
        x, _ = jax.lax.scan(lambda x, _: (checkpoint_name(jnp.sin(x), "in scan"), None), x, length=3)
        x = jax.lax.cond(x > 0, lambda x: checkpoint_name(jnp.sin(x), "in a branch"), jnp.cos, x)
        checkpoint_name(x, "dropped")
        return ruled(x)

    assert list(panel(f, 1.0).ticks) == [
        "save 'in a checkpoint'", "save 'in scan'", "save 'in a branch'", "save 'dropped'", "save 'in a rule'",
    ]  # fmt: skip


def test_without_names_there_is_nothing_to_tick(panel):
    shown = panel(jnp.tanh, 1.0)
    assert shown.ticks == {} and "save_only_these_names" not in shown.policy.options
    assert shown.policy.value == "no policy"


def test_toggling_back_traces_nothing(panel):
    traced = []

    def f(x):
        traced.append(x)
        return jnp.sin(jnp.sin(x))

    shown = panel(f, 1.0)
    pages = {}
    for policy in ("no checkpoint", "no policy", "everything_saveable"):
        shown.policy.value = policy
        pages[policy] = shown.pane.html
    traced_once = len(traced)
    assert all(isinstance(x, jax.core.Tracer) for x in traced), "f is never run"
    for policy, page in pages.items():
        shown.policy.value = policy
        assert shown.pane.html == page
    assert len(traced) == traced_once and len(set(pages.values())) == 3


def test_an_outer_checkpoint_overrides_inner_ones(panel):
    generous = jax.checkpoint(block, policy=jax.checkpoint_policies.everything_saveable)
    shown = panel(lambda *args: generous(*args), *SHAPES)
    shown.policy.value = "no policy"
    assert shown.costs()["saved, with arguments"][0] == "128 KiB"


def test_a_choice_that_fails_says_so_and_the_next_one_works(panel):
    def f(x):
        io_callback(print, None, jax.lax.stop_gradient(x), ordered=True)  # which no checkpoint can hold
        return jnp.sin(x)

    shown = panel(f, 1.0)
    assert shown.pane.idle.startswith("jax.checkpoint(f) does not work here: Effects not supported")
    assert not re.search(r"\n|0x", shown.pane.idle) and shown.pane.html == ""
    shown.policy.value = "no checkpoint"
    assert "f saves" in shown.pane.html and "does not work" not in shown.pane.idle
    # No plan can be made, so there is no Pareto front to compare with.
    assert re.findall(r'<img [^>]*alt="([^":]*)', shown.pane.html) == ["bytes live over time"]


def test_a_function_that_cannot_be_traced_is_an_error():
    with pytest.raises(TraceError, match="floating-point"):
        explore(lambda n: n, 1)


def test_the_static_view_shows_the_panels_initial_state(panel, capsys):
    shown = panel(block, *SHAPES)
    text = shown.output["text/plain"]  # arguments 64 + 32 + 32 KiB, hidden 128, out 64
    assert text.startswith(
        "jax.checkpoint(block, policy=jax.checkpoint_policies.save_only_these_names('hidden', 'out'))"
    )
    assert "block saves 320 KiB" in text and "return dW2" in text and 'class="rs-table"' in shown.output["text/html"]
    explore(block, *SHAPES)
    printed = capsys.readouterr().out
    assert "block saves 320 KiB" in printed and "no checkpoint" in printed


def test_keywords_partials_and_pytrees(panel):
    def f(params, x, *, scale):
        return scale * jnp.tanh(x @ params["w"])

    shown = panel(functools.partial(f, {"w": jnp.ones((4, 4))}), jnp.ones(4), scale=2.0)
    assert "jax.checkpoint(f)" in shown.pane.html and "f saves" in shown.pane.html


@pytest.mark.slow
def test_a_choice_is_shown_among_the_best_ones_and_over_time(panel):
    """Each choice is compared with the points of `frontier`, and the peaks in the text are those of `liveness`."""

    def gated(x, w, v, u):
        gate, up = checkpoint_name(x @ w, "gate"), checkpoint_name(x @ v, "up")
        return jnp.sum(jnp.tanh(checkpoint_name(jax.nn.silu(gate) * up, "act") @ u))

    shapes = array(512, 256), array(256, 1024), array(256, 1024), array(1024, 256)
    shown, best = panel(gated, *shapes), frontier(gated, *shapes)
    for policy, names in (("save_only_these_names", ("gate", "up", "act")), ("dots_saveable", ()), ("no policy", ())):
        shown.policy.value = policy
        chosen = getattr(jax.checkpoint_policies, policy, None)
        wrapped = jax.checkpoint(gated, policy=chosen(*names) if names else chosen)
        way = compare({"": wrapped}, *shapes).rows[0]
        cost = way.recompute_cost.flops + way.recompute_cost.transcendentals
        other = best.within(way.saved_bytes)
        said = re.search(
            r"With no more bytes saved, (\w+) would recompute .* instead of|Pareto-optimal: every", shown.pane.html
        )
        assert said and (said[1] == other.with_policy if other.cost < cost else said[1] is None)
        captions = re.findall(r'<img [^>]*alt="([^"]*)"', shown.pane.html)
        assert (
            len(captions) == 2 and f"gated: {len(best.points)} points on the Pareto front of its 3 names" in captions[0]
        )
        before = liveness(gated, *shapes).peak_bytes
        assert captions[1].endswith(
            f"the peak is {bytes_text(way.peak_bytes)}, and {bytes_text(before)} without a checkpoint"
        )
    assert said[1] is None and other.cost == cost, "nothing kept is the first of the best"
