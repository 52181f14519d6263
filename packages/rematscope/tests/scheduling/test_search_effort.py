"""The search avoids repeated work."""

import functools

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from releases import since
from zoo import normal

from rematscope import auto, load_schedule, measure
from rematscope.scheduling import checkpoint_proposer, search
from rematscope.scheduling.chain import ChainProposer
from rematscope.scheduling.checkpoint_placement import CheckpointPlacement, placements
from rematscope.scheduling.checkpoint_proposer import CheckpointProposer
from rematscope.scheduling.peak_proposer import PeakProposer
from rematscope.tracing.checkpoints import jaxpr_of
from rematscope.xla import hlo_proto

WS, X = [normal(400 + i, 16, 16) / 4 for i in range(8)], normal(410, 256, 16)


def counted(f):
    """Return `f` and a counter of its calls."""
    calls = []

    def called(*args):
        calls.append(None)
        return f(*args)

    return called, calls


def net(ws, x):
    for w in ws:
        x = jnp.tanh(x @ w) * jnp.exp(x)
    return jnp.mean(x**2)


def nested(ws, x):
    """A loop in a loop, into which no schedule reaches."""

    def outer(x, w):
        x, _ = lax.scan(lambda x, _: (jnp.tanh(x @ w) * jnp.exp(x), None), x, None, length=3)
        return jnp.sin(x @ w), None

    return jnp.mean(lax.scan(outer, x, jnp.stack(ws))[0] ** 2)


measured = functools.cache(lambda f: measure(f, WS, X))


def limit(part, net=net):
    """Return the peak without a checkpoint, with a part of its temporaries.

    Each test has another part, since `auto` remembers its results.
    """
    plain = measured(net)
    return plain.peak_bytes - int((1 - part) * plain.temp_bytes)


@pytest.mark.slow
@since("0.11", "XLA on a CPU recomputes what a checkpoint says")
def test_a_function_is_called_once_however_much_is_tried_of_it(tmp_path):
    f, calls = counted(net)
    found = auto(f, peak=limit(0.6)).plan(WS, X)
    assert found.recomputed > 0 and len(calls) == 1
    found.save(tmp_path / "choice.json")
    f, calls = counted(net)
    load_schedule(tmp_path / "choice.json", f)(WS, X)
    assert len(calls) == 1


@pytest.mark.slow
def test_like_checkpoints_are_traced_once(monkeypatch):
    traced = []

    def noted(f, plain):
        traced.append(plain)
        return checkpointed(f, plain)

    checkpointed = checkpoint_proposer.checkpointed
    monkeypatch.setattr(checkpoint_proposer, "checkpointed", noted)
    auto(nested, peak=limit(0.5, nested)).plan(WS, X)
    assert len(traced) == len({*traced}) > 0


@pytest.mark.slow
def test_an_interrupted_search_reports_its_candidates(monkeypatch):
    room = limit(0.45)
    compiled, compile_both = [], search.measure_call

    def stopped(*args, **kwargs):
        if compiled:
            raise KeyboardInterrupt
        compiled.append(compile_both(*args, **kwargs))
        return compiled[-1]

    monkeypatch.setattr(search, "measure_call", stopped)
    with pytest.raises(KeyboardInterrupt) as noted:
        auto(net, peak=room).plan(WS, X)
    (note,) = noted.value.__notes__
    assert note.startswith("1 of at most 4 choices for net were compiled.")
    assert ("compiles=1 would stop there" in note) == (compiled[0].peak_bytes - 4 <= room)


@pytest.mark.slow
def test_plain_checkpoints_are_not_traced_if_the_bound_proves_that_none_is_better(monkeypatch):
    asked, propose = [], CheckpointProposer.propose

    def noted(self, *args):
        asked.append(args)
        return propose(self, *args)

    monkeypatch.setattr(CheckpointProposer, "propose", noted)
    found = auto(net, peak=limit(0.48)).plan(WS, X)
    assert found.recomputed > 0 and found.bound > 0.98 * found.recomputed and not asked


def scanned(ws, x):
    return jnp.mean(lax.scan(lambda x, w: (jnp.tanh(x @ w) * jnp.exp(x), None), x, jnp.stack(ws))[0] ** 2)


@pytest.mark.slow
def test_checkpoints_are_compiled_before_candidates_that_recompute_everything_twice(monkeypatch):
    propose = ChainProposer.propose

    def often(self, target_bytes, pool):
        """A reversal of the chain of layers within half of the memory."""
        found = [one for one in propose(self, target_bytes / 2, pool) if one.estimated_bytes <= target_bytes]
        yield max(found, key=lambda one: one.recompute_cost)

    def layer(x, w):
        return jnp.tanh(x @ w) * jnp.exp(x)

    def layers(ws, x, layer=layer):
        for w in ws:
            x = layer(x, w)
        return jnp.mean(x**2)

    room = measure(lambda ws, x: layers(ws, x, jax.checkpoint(layer)), WS, X).peak_bytes
    for proposer in (PeakProposer, ChainProposer):
        monkeypatch.setattr(proposer, "propose", often if proposer is ChainProposer else lambda *_: iter(()))
    found = auto(layers, peak=room).plan(WS, X)
    assert not found.trials[0].snapshots and found.trials[0].fits(room)


def test_without_a_loop_no_checkpoint_is_placed_around_iterations():
    places = [*placements(jaxpr_of(net, WS, X), False, False)]
    assert places and all(place.blocks for place in places)
    assert [*placements(jaxpr_of(jnp.sin, X), False, False)] == [CheckpointPlacement()]
    assert CheckpointPlacement(depth=0) in placements(jaxpr_of(scanned, WS, X), False, False)


@pytest.mark.slow
@since("0.11", "XLA on a CPU recomputes what a checkpoint says")
def test_only_the_sizes_of_a_compiled_program_are_read_until_more_is_requested(monkeypatch):
    read, module = [], hlo_proto.Module

    def noted(data):
        read.append(data)
        return module(data)

    monkeypatch.setattr(hlo_proto, "Module", noted)
    found = auto(net, peak=limit(0.55)).plan(WS, X)
    assert found.measurement.peak_bytes and not read
    assert found.measurement.cost.flops and found.measurement.compiled and len(read) == 1
