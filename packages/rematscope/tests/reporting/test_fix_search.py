"""The search of `report`: which changes it tries, when it ends, and what the report says about both."""

import dataclasses
import functools
import types

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P
from normal import normal

import rematscope
from rematscope import PlanError
from rematscope.ir.cost import operations
from rematscope.reporting import fixes
from rematscope.reporting.arrays import Arguments
from rematscope.reporting.fixes import Search
from rematscope.reporting.flat_step import OtherSizeError
from rematscope.reporting.report import Proposal
from rematscope.reporting.rewrite import NESTED, Changes, losses_of
from rematscope.reporting.subject import Subject, divisors
from rematscope.tracing.static_values import is_not_array
from rematscope.tracing.trace import whole_cost

policies = jax.checkpoint_policies
ALONE = "By hand, the checkpoints alone, without the other changes: jax.checkpoint"


def repeated_layers(ws, x):
    """A step with four equal layers, whose loss is not a mean, so that it has no microbatches."""

    def loss(ws):
        h = x
        for w in ws:
            h = h + jnp.tanh(jnp.tanh(h @ w) @ w.T)
        return jnp.mean(h**2) / jnp.max(h)

    return jax.tree.map(lambda w, g: w - g, ws, jax.grad(loss)(ws))


REPEATED = [jax.ShapeDtypeStruct((32, 128), jnp.float32)] * 4, jax.ShapeDtypeStruct((4096, 32), jnp.float32)


def test_the_peak_is_predicted_once_for_changes_with_donation(monkeypatch):
    programs = []
    monkeypatch.setattr("rematscope.reporting.subject.allocations", lambda passes, _: programs.append(passes))
    found = Subject(repeated_layers, REPEATED, {}, None, "cpu").traced(Changes("layers", donate_argnums=(0,)))
    assert found.memory is found.memory
    assert programs == [found.passes]


def test_a_smaller_limit_is_not_tried_if_no_result_fits_into_the_first():
    subject = Subject(repeated_layers, REPEATED, {}, None, "cpu")
    search = Search(subject, subject.traced(Changes("layers")).memory.peak_bytes - 1, 4, lambda *_: None)
    search._trace_with_saved(Changes("layers"), free=4096)  # a result of a layer takes 4096 × 32 floats or more
    assert [changes.saved for changes in search.tried if changes.saved] == [3 * 1024]


@pytest.mark.parametrize(
    ("changes", "start"),
    [
        (Changes("layers"), "By hand: jax.checkpoint, one around"),
        (
            Changes("layers", policies.dots_saveable),
            "By hand: jax.checkpoint with policy=jax.checkpoint_policies.dots_saveable, one around",
        ),
        (Changes("layers", donate_argnums=(0,)), f"{ALONE}, one around"),
        (Changes("layers", chunks=2, in_axes=(None, 0)), f"{ALONE}, one around"),
    ],
    ids=str,
)
def test_the_sentence_on_checkpoints_by_hand_says_what_it_leaves_out(changes, start):
    subject = Subject(repeated_layers, REPEATED, {}, None, "cpu")
    found = subject.traced(changes)
    assert Proposal(subject, found, subject.traced(Changes()), None).by_hand.startswith(start)


@pytest.mark.parametrize("smallest", ["segments", "whole"])
def test_chunks_are_also_tried_with_a_checkpoint_per_layer(monkeypatch, smallest):
    """The checkpoints with the lowest peak without chunks need not have it with chunks."""
    subject = Subject(repeated_layers, REPEATED, {}, None, "cpu")
    chunked = Changes("layers", chunks=8, in_axes=(None, 0), donate_argnums=(0,))
    limit = int(1.1 * subject.traced(chunked).memory.peak_bytes)
    search = Search(subject, limit, 6, lambda *_: None)
    monkeypatch.setattr(Search, "_smallest_undivided", lambda self: [Changes(smallest, donate_argnums=(0,))])
    monkeypatch.setattr(Search, "_compile_changes", lambda self, changes: self.tried[changes].memory.peak_bytes)
    trace_parts = Search._trace_parts

    def refuse_others(self, chosen, *parts):
        return trace_parts(self, chosen, *parts) if chosen[0].checkpoint == "layers" else []

    monkeypatch.setattr(Search, "_trace_parts", refuse_others)
    found = search.run()
    assert found is not None and found.checkpoint == "layers" and found.chunks > 1


@pytest.fixture(scope="module")
def too_small():
    """Return a report in which nothing fits."""
    report = rematscope.report(repeated_layers, *REPEATED, memory="1 MiB")
    assert report.best is None
    return report


def test_a_verdict_that_none_fits_says_whether_combinations_were_left_out(too_small, monkeypatch):
    for is_complete in (True, False):
        monkeypatch.setattr(too_small._search, "is_complete", is_complete)
        assert ("Not all combinations were traced" in too_small.nothing_fits) == (not is_complete)


@pytest.mark.parametrize(("donated", "useful"), [((), (0,)), ((0,), ())])
def test_arguments_of_a_few_bytes_are_not_donated(donated, useful):
    """The caller may pass the same counter, learning rate or table to the next step."""

    def step(w, count, x, rate, key, table):
        gradient = jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)
        noise = jax.random.normal(key, w.shape) * table.sum()
        return w - rate * (gradient + noise) / (count + 1), count + 1, rate * jnp.sum(gradient)

    args = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((64, 64), (), (64, 64), ())]
    args += [jax.eval_shape(lambda: jax.random.key(0)), jax.ShapeDtypeStruct((512, 8), jnp.float32)]
    subject = Subject(jax.jit(step, donate_argnums=donated), args, {}, None, "cpu")
    search = Search(subject, 2**16, 6, lambda *_: None)
    search.tried[Changes()] = subject.traced(Changes())
    assert search._useful_donation == useful


def layers_and_head(ws, head, x):
    """A step with nine layers and a head, which starts with the operations of a layer."""

    def loss(ws, head):
        h = x
        for w in ws:
            h = h + jnp.sin(jnp.tanh(h @ w)) @ w.T
        return jnp.mean(jax.nn.logsumexp(h / (1 + h**2) @ head, -1))

    return jax.tree.map(lambda w, g: w - g, (ws, head), jax.grad(loss, (0, 1))(ws, head))


WITH_HEAD = (
    [jax.ShapeDtypeStruct((16, 128), jnp.float32)] * 9,
    jax.ShapeDtypeStruct((16, 2048), jnp.float32),
    jax.ShapeDtypeStruct((512, 16), jnp.float32),
)


@pytest.mark.parametrize(("share", "may_fit"), [(0.7, True), (0.01, False)])
def test_nested_checkpoints_are_combined_with_the_head_in_chunks_if_both_may_fit(share, may_fit):
    subject = Subject(layers_and_head, WITH_HEAD, {}, None, "cpu")
    search = Search(subject, int(share * subject.traced(Changes("layers")).memory.peak_bytes), 6, lambda *_: None)
    search.tried = {changes: subject.traced(changes) for changes in (Changes(), Changes("layers"))}
    search._nest_checkpoints()
    assert any(c.checkpoint in NESTED and c.head_chunks > 1 for c in search.tried) is may_fit
    assert any(t.memory.peak_bytes <= search.limit for t in search.tried.values()) is may_fit


def test_a_head_inside_of_nested_checkpoints_is_computed_in_chunks():
    leaves, structure = jax.tree.flatten(WITH_HEAD)
    args = structure.unflatten(0.2 * each for each in normal(0, *(leaf.shape for leaf in leaves)))
    changed = rematscope.rewrite(layers_and_head, checkpoint="halves of layers", head_chunks=4)
    for one, other in zip(jax.tree.leaves(layers_and_head(*args)), jax.tree.leaves(changed(*args)), strict=True):
        assert jnp.allclose(one, other, rtol=1e-5, atol=1e-6)


def test_the_report_says_why_the_batch_is_not_divided_if_another_axis_is():
    def step(ws, x):
        def loss(ws):
            each = jnp.mean(jnp.tanh(jnp.tanh(x @ ws[0]) @ ws[1]), (1, 2))
            return -jnp.mean(jax.nn.log_sigmoid(each[:4] - each[4:]))  # a pair of 4 examples, stated as a number

        return jax.tree.map(lambda w, g: w - g, ws, jax.grad(loss)(ws))

    args = [jnp.eye(64)] * 2, jnp.ones((8, 32, 64))
    found = rematscope.report(step, *args, memory=args[1].nbytes + 4 * args[0][0].nbytes)
    assert found.best is None
    assert found._subject.in_axes == (None, 1)
    (advice,) = (text for text in found.advice if text.startswith("The batch was divided along in_axes=(None, 1)"))
    assert "in_axes=(None, 0). It raises TypeError" in advice
    assert "take this number from the shape" in advice


def test_the_parts_of_the_smallest_peak_add_up_to_its_prediction(too_small, monkeypatch):
    """The compiled peak is another number, and nothing is known about its parts."""
    search = too_small._search
    least = min(search.tried, key=search.peak_bytes)
    predicted = fixes.bytes_text(search.tried[least].memory.peak_bytes)
    monkeypatch.delitem(search.measured, least, raising=False)
    assert f"The smallest peak, {predicted} (predicted, " in too_small.nothing_fits
    monkeypatch.setitem(search.measured, least, types.SimpleNamespace(peak_or_infinity=999))
    assert "The smallest peak is 999 B (compiled, " in too_small.nothing_fits
    assert f"Its prediction, {predicted}, consists of " in too_small.nothing_fits


@pytest.mark.parametrize(("limit", "traced"), [(0, 2), (10**9, 6)])
def test_beyond_the_limit_on_operations_one_refusal_ends_the_search_for_parts(monkeypatch, limit, traced):
    asked = []
    monkeypatch.setattr(fixes, "_DIVISION_OPERATIONS", limit)
    monkeypatch.setattr(Search, "_first_that_may_fit", lambda self, chosen, option, counts: counts[0])
    monkeypatch.setattr(Search, "_trace_parts", lambda self, chosen, option, count: asked.append(count) or [])
    subject = types.SimpleNamespace(in_axes=(0,), batch_size=lambda in_axes: 64, operations=1)
    search = Search(subject, 1, 6, lambda *_: None)
    assert not search._trace_in_parts([Changes()], "chunks", [2, 4, 8, 16, 32, 64])
    assert len(asked) == traced and search.is_complete == (limit > 0)


@pytest.mark.parametrize(
    ("size", "numbers"), [(1, []), (7, [7]), (14, [2, 7, 14]), (16, [2, 4, 8, 16]), (24, [2, 4, 8, 12, 24])]
)
def test_a_length_is_divided_by_powers_of_two_and_into_more_parts(size, numbers):
    assert divisors(size) == numbers


def test_a_batch_that_two_parts_do_not_divide_enough_is_divided_further():
    """14 = 2 * 7: two microbatches do not fit, and seven do."""

    def step(ws, x):
        def loss(ws):
            h = x
            for w in ws:
                h = jnp.tanh(jnp.tanh(h @ w) @ w.T)
            return jnp.mean(h**2)

        return jax.tree.map(lambda w, g: w - g, ws, jax.grad(loss)(ws))

    args = [jax.ShapeDtypeStruct((32, 128), jnp.float32)] * 4, jax.ShapeDtypeStruct((14, 256, 32), jnp.float32)
    subject = Subject(step, args, {}, None, "cpu")
    seven = subject.traced(Changes("layers", microbatches=7, in_axes=(None, 0)))
    best = rematscope.report(step, *args, memory=int(1.3 * seven.memory.peak_bytes)).best
    assert best is not None and best.changes.microbatches == 7


def test_a_refusal_of_single_examples_does_not_refuse_other_microbatches():
    """Even two examples per microbatch are predicted not to fit, and the proof fails for single examples."""

    def step(w, x):
        def loss(w):
            h = jax.nn.softmax(jnp.tanh(x @ w), axis=1)  # the batch is the only axis that can be divided
            return jnp.mean(h[:-1] * h[1:]) if len(x) == 1 else jnp.mean(h**2)

        return w - jax.grad(loss)(w)

    args = jax.ShapeDtypeStruct((32, 32), jnp.float32), jax.ShapeDtypeStruct((8, 256, 32), jnp.float32)
    subject = Subject(step, args, {}, None, "cpu")
    assert subject.why_no_microbatches(8) and not subject.why_no_microbatches(4)
    limit = int(0.9 * subject.traced(Changes(microbatches=4, in_axes=(None, 0))).memory.peak_bytes)
    search = Search(subject, limit, 6, lambda *_: None)
    search.tried[Changes()] = subject.traced(Changes())
    search._trace_microbatches()
    assert "microbatches" not in search.refused


def test_a_donation_that_rewrite_refuses_is_not_proposed():
    """The donation alone would fit, but `rewrite` needs static values that it can compare in later calls."""

    def step(settings, w, momentum, x):
        momentum = 0.9 * momentum + jax.grad(lambda w: jnp.mean(jnp.sin(x @ w)))(w)
        return w - settings.rate * momentum, momentum

    w, x = jax.ShapeDtypeStruct((256, 256), jnp.float32), jax.ShapeDtypeStruct((4, 256), jnp.float32)
    best = {}
    for frozen in (False, True):
        settings = dataclasses.make_dataclass("Settings", ["rate"], frozen=frozen)(0.1)
        best[frozen] = rematscope.report(step, settings, w, w, x, memory="900 KiB").best
    assert best[False] is None
    assert best[True] is not None and best[True].changes == Changes(donate_argnums=(1, 2))
    settings = dataclasses.make_dataclass("Settings", ["rate"])(0.1)
    with pytest.raises(PlanError, match="cannot be hashed"):
        Subject(step, [settings, w, w, x], {}, None, "cpu").traced(Changes("whole", donate_argnums=(1, 2)))


def test_proofs_for_several_numbers_of_microbatches_trace_the_whole_batch_once():
    lengths = []

    def step(w, x):
        lengths.append(len(x))
        return w - jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w)))(w)

    args = jax.ShapeDtypeStruct((32, 32), jnp.float32), jax.ShapeDtypeStruct((8, 32), jnp.float32)
    subject = Subject(step, args, {}, None, "cpu")
    assert subject.in_axes == (None, 0)
    lengths.clear()
    assert not any(map(subject.why_no_microbatches, (2, 4, 2)))
    assert lengths == [8, 4, 2]


def test_a_number_of_chunks_that_the_step_refuses_counts_as_no_trace():
    def of_eight_or_more(ws, x):
        if len(x) < 8:
            raise ValueError("fewer examples than devices")
        return repeated_layers(ws, x)

    subject = Subject(of_eight_or_more, REPEATED, {}, None, "cpu")
    search = Search(subject, 1, 6, lambda *_: None)
    search.tried[Changes()] = subject.traced(Changes())
    before = subject.operations
    assert search._trace_changes(Changes(chunks=1024, in_axes=(None, 0)), within_limit=False) is None
    assert subject.operations == before
    assert search._is_impossible("chunks", 1024) and not search._is_impossible("chunks", 512)


def test_a_number_of_chunks_that_the_step_refuses_is_not_tried_with_other_changes(monkeypatch):
    tried = []

    def refuse(changes):
        tried.append(changes.checkpoint)
        raise OtherSizeError("fewer examples than devices")

    subject = types.SimpleNamespace(in_axes=(0,), operations=0, traced=refuse)
    search = Search(subject, 1, 6, lambda *_: None)
    monkeypatch.setattr(search, "_least_peak", lambda changes, option, count: 0.0)
    assert search._trace_parts([Changes(), Changes("layers"), Changes("whole")], "chunks", 8) == []
    assert tried == [None]


def test_one_example_for_each_of_several_devices_comes_last(monkeypatch):
    asked = []

    def refuse(self, chosen, option, count):
        asked.append(count)
        if count > 8:
            self._errors[Changes(chunks=count)] = OtherSizeError("fewer examples than devices")
        return []

    monkeypatch.setattr(fixes, "_DIVISION_OPERATIONS", 0)
    monkeypatch.setattr(Search, "_first_that_may_fit", lambda self, chosen, option, counts: counts[0])
    monkeypatch.setattr(Search, "_trace_parts", refuse)
    subject = types.SimpleNamespace(in_axes=(0,), batch_size=lambda in_axes: 128, operations=1)
    search = Search(subject, 1, 6, lambda *_: None)
    for expected in ([2, 64, 32, 16, 8], [2, 4]):
        asked.clear()
        search._trace_in_parts([Changes()], "chunks", [2, 4, 8, 16, 32, 64])
        assert asked == expected


def test_a_plan_that_is_refused_before_its_search_counts_as_no_operations():
    @jax.jit
    @functools.partial(jax.shard_map, mesh=jax.make_mesh((1,), ("i",)), in_specs=P(), out_specs=P(), check_vma=False)
    def step(w):
        return w - jax.grad(lambda w: jnp.sum(lax.psum(jnp.sin(jnp.sin(w) @ w), "i")))(w)

    subject = Subject(step, [jax.ShapeDtypeStruct((64, 64), jnp.float32)], {}, None, jax.default_backend())
    search = Search(subject, 2**20, 6, lambda *_: None)
    search.tried[Changes()] = subject.traced(Changes())
    assert search._plan_gradient() is None
    assert "uses the axis i" in str(search._errors)
    assert subject.operations < 5 * subject.size


def test_the_reason_is_given_if_microbatches_are_proved_but_cannot_be_made(monkeypatch):
    traced = Subject.traced

    def refuse(self, changes):
        if changes.microbatches > 1:
            raise PlanError("It draws random numbers in a loop.")
        return traced(self, changes)

    monkeypatch.setattr(Subject, "why_no_microbatches", lambda self, count: "")
    monkeypatch.setattr(Subject, "traced", refuse)
    report = rematscope.report(repeated_layers, *REPEATED, memory="3 MiB")
    assert "No microbatches: It draws random numbers in a loop." in report.advice


def test_proofs_along_several_axes_trace_the_whole_batch_once():
    lengths = []

    def step(w, x):
        lengths.append(x.shape)
        # Only the second axis can be that of microbatches.
        return w - jax.grad(lambda w: jnp.mean(jnp.mean(jnp.tanh(x * w), 0) ** 2))(w)

    args = jax.ShapeDtypeStruct((), jnp.float32), jax.ShapeDtypeStruct((8, 16), jnp.float32)
    subject = Subject(step, args, {}, None, "cpu")
    assert subject.in_axes == (None, 0)
    lengths.clear()
    assert subject.why_no_microbatches(2)
    assert subject.find_other_axes() and subject.microbatch_axes == (None, 1)
    assert lengths == [(8, 16), (4, 16), (8, 8)]


def test_a_step_with_several_losses_runs_zeros_in_place_of_its_first_loss_only():
    calls = []

    def step(w, x):
        for number in range(3):
            loss = lambda w, number=number: calls.append(number) or jnp.mean(jnp.tanh(x @ w))  # noqa: E731
            w = w - jax.grad(loss)(w)
        return w

    args = jax.ShapeDtypeStruct((32, 32), jnp.float32), jax.ShapeDtypeStruct((8, 32), jnp.float32)
    arguments = Arguments(args, {}, is_not_array)
    assert len(losses_of(step, arguments, [None, None], Changes(), True)) == 3
    assert calls == [0, 1, 0, 1, 2]


def test_the_work_of_chunks_includes_loops_outside_of_the_gradient():
    def loss(w, x):
        h = jnp.tanh(x @ w)
        for _ in range(4):
            h = jnp.tanh(h @ w)
        codes = jax.nn.softmax(h)
        return jnp.mean(h**2), codes.T @ h  # as the codebook of a VQ-VAE, which the step updates without a gradient

    def step(w, average, x):
        gradient, new = jax.grad(loss, has_aux=True)(w, x)
        return w - gradient, 0.9 * average + 0.1 * new / jnp.max(new)

    args = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((32, 32), (32, 32), (64, 32))]
    subject = Subject(step, args, {}, None, "cpu")
    base = subject.traced(Changes())
    for changes in (Changes("whole"), Changes(chunks=4, in_axes=(None, None, 0))):
        found = subject.traced(changes)
        assert base.work < found.work < 2 * base.work


def test_the_work_of_a_step_with_two_gradients_is_that_of_both():
    def loss(w, x):
        h = jnp.sin(jnp.tanh(x @ w) @ w)
        return jnp.mean((h - h.mean(0)) ** 2), h

    def step(w, v, x):
        (_, h), gradient = jax.value_and_grad(loss, has_aux=True)(w, x)
        return w - gradient, v - jax.grad(loss, has_aux=True)(v, jnp.tanh(h @ w))[0]

    args = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((32, 32), (32, 32), (64, 32))]
    subject = Subject(step, args, {}, None, "cpu")
    base = subject.traced(Changes())
    assert base.work == operations(whole_cost(base.passes))
    for changes in (Changes("whole"), Changes(chunks=4, in_axes=(None, None, 0))):
        assert base.work < subject.traced(changes).work < 2 * base.work
