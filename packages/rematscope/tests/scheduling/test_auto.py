"""`auto`: plans are within the limit, not worse than other methods, and preserve the function."""

import functools
import math
import re
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy
from jax import lax
from jax.experimental import io_callback
from matplotlib.figure import Figure
from measurements import measurement_of
from releases import since
from sampling import few
from zoo import normal

from rematscope import Device, PlanError, TraceError, auto, load_schedule, measure, trace, with_schedule
from rematscope.memory.xla_estimate.estimate import estimate_compiled_bytes
from rematscope.scheduling import candidate as candidates
from rematscope.scheduling.blocks import in_blocks, in_iterations
from rematscope.scheduling.candidate import CandidatePool
from rematscope.scheduling.checkpoint_placement import checkpointed as plain_checkpoints
from rematscope.scheduling.checkpoint_placement import placements
from rematscope.scheduling.cuts import saved_at_cuts, stretches
from rematscope.scheduling.linearize import linearize
from rematscope.scheduling.peak_program import PeakProgram, PeakSolution
from rematscope.scheduling.peak_proposer import PeakProposer
from rematscope.scheduling.per_call import GradientCall
from rematscope.scheduling.search import ScheduleSearch
from rematscope.tracing.checkpoints import jaxpr_of


def layer(x, w):
    up, down = w
    y = x @ up
    return x + (jnp.tanh(y) * jnp.exp(-y * y)) @ down


def deep(ws, x):
    for w in zip(*ws, strict=True):
        x = layer(x, w)
    return jnp.mean(x**2)


def looped(ws, x):
    return jnp.mean(lax.scan(lambda x, w: (layer(x, w), None), x, ws)[0] ** 2)


def checkpointed(f):
    """Return the function with a checkpoint around each layer."""
    if f is looped:
        body = jax.checkpoint(lambda x, w: (layer(x, w), None))
        return lambda ws, x: jnp.mean(lax.scan(body, x, ws)[0] ** 2)

    def each(ws, x):
        for w in zip(*ws, strict=True):
            x = jax.checkpoint(layer)(x, w)
        return jnp.mean(x**2)

    return each


WS, X = (normal(300, 6, 16, 64) / 8, normal(301, 6, 64, 16) / 8), normal(302, 512, 16)
FIXED = sum(2 * array.nbytes for array in (*WS, X)) + 4  # with gradients and the loss


def again(passes):
    return passes.recompute_cost.flops + passes.recompute_cost.transcendentals


def saved_bytes(function):
    return trace(function, WS, X).bytes_by_kind().get("computed", 0)


@pytest.mark.slow
@pytest.mark.parametrize("f", few([deep, looped]))
def test_within_a_limit_auto_recomputes_less_than_one_checkpoint_per_layer(f):
    layers = measure(checkpointed(f), WS, X)
    found = auto(f, peak=2 * layers.peak_bytes).plan(WS, X)
    measured = measure(found.function, WS, X)
    assert measured.peak_bytes == found.measurement.peak_bytes <= 2 * layers.peak_bytes
    assert found.recomputed <= 0.85 * (layers.trace.recompute_cost.flops + layers.trace.recompute_cost.transcendentals)
    assert found.bound <= found.recomputed
    gradients, expected = (jax.jit(jax.grad(g, (0, 1)))(WS, X) for g in (found.function, f))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), gradients, expected)


@pytest.mark.slow
def test_the_reported_figures_are_those_of_the_trace_and_the_compiled_program():
    found = auto(looped, saved="600 KiB").plan(WS, X)
    assert found.saved_bytes == saved_bytes(found.function) <= 600 * 1024
    plain, late = trace(looped, WS, X).cost, trace(found.function, WS, X).cost
    more = late.flops + late.transcendentals - plain.flops - plain.transcendentals
    assert found.recomputed == more > 0
    assert " recomputed" in repr(found).splitlines()[0]
    assert "test_auto.py" in repr(found)
    assert "Compiled for cpu" in found.certificate
    ax = Figure().subplots()
    found.plot(ax)
    line = ax.get_lines()[-1]
    highest = int(np.argmax(line.get_ydata()))
    assert ax.get_ylabel() == "MiB" and line.get_ydata()[highest] * 2**20 == found.timeline_baseline.peak_bytes
    assert highest >= found.timeline_baseline.boundary and found.timeline.boundary <= line.get_xdata()[highest] < len(
        found.timeline.samples
    )
    assert (
        line.get_xdata()[found.timeline_baseline.boundary]
        == found.timeline.boundary
        < line.get_xdata()[-1]
        == len(found.timeline.samples) - 1
    )
    assert ax.get_ylim()[1] > line.get_ydata()[highest]
    assert ax.get_legend().get_texts()[-1].get_text() == "everything saved"


def test_the_peak_never_rises_as_the_limit_falls_and_nothing_is_recomputed_if_all_fits():
    plain = measure(looped, WS, X)
    limits = [int(plain.peak_bytes * part) for part in (1.1, 0.5)]
    results = [auto(looped, peak=limit).plan(WS, X) for limit in limits]
    peaks = [found.measurement.peak_bytes for found in results]
    assert peaks == sorted(peaks, reverse=True)
    assert all(peak <= limit for peak, limit in zip(peaks, limits, strict=True))
    assert results[0].recomputed == 0
    assert all(len(found.trials) <= 4 for found in results)
    # A measurement with JAX alone includes neither the cotangent nor the compiler's constants.
    made = jax.jit(jax.value_and_grad(results[1].function, (0, 1))).lower(WS, X).compile().memory_analysis()
    alone = made.argument_size_in_bytes + made.output_size_in_bytes + made.temp_size_in_bytes
    same, less = (auto(looped, peak=alone - more).plan(WS, X).measurement.peak_bytes for more in (0, 1))
    assert same == peaks[1] > alone and less < peaks[1]


@pytest.mark.slow
@pytest.mark.parametrize("below", ["arguments, outputs and gradients alone", "no compiled choice for deep on cpu"])
def test_a_limit_that_cannot_be_met_is_refused_with_one_that_can(below):
    f, limit = (looped, 10 * 1024) if "alone" in below else (deep, FIXED + 1024)
    with pytest.raises(PlanError, match=below) as refused:
        auto(f, peak=limit, compiles=2).plan(WS, X)
    would_do = re.search(r"The smallest peak found is ([\d,]+ bytes)", str(refused.value))[1]
    (found,) = auto(f, peak=would_do, compiles=2).plan(WS, X).trials
    assert f"{found.peak_bytes:,} bytes" == would_do


@pytest.mark.slow
def test_a_loaded_schedule_saves_the_planned_bytes_and_a_plan_refuses_other_shapes(tmp_path):
    found = auto(deep, saved="100 KiB").plan(WS, X)
    found.save(tmp_path / "choice.json")
    assert saved_bytes(load_schedule(tmp_path / "choice.json", deep)) == found.saved_bytes
    with pytest.raises(PlanError, match=r"`x` was .* then, and is .* now"):
        found.function(WS, X[:3])


@pytest.mark.slow
def test_layers_of_one_line_are_distinguished_by_module_and_repeated_ones_share_a_row():
    def net(ws, x):
        for i, w in enumerate(ws):
            with jax.named_scope(f"layer{i}"):
                x = jnp.sin(x @ w)
        with jax.named_scope("head"):
            return jnp.sin(x @ ws[0]).sum()

    arguments = [normal(i, 8, 8) for i in range(4)], normal(9, 256, 8)
    found = auto(net, saved="24 KiB").plan(*arguments)
    assert sum(line.amount for line in found.saved_values) == found.saved_bytes and {
        line.when for line in found.saved_values
    } == {None}
    (layers,) = [line for line in found.saved_values if line.module.startswith("layer")]
    runs = [[*map(int, run.split("…"))] for run in layers.module.removeprefix("layer").split(",")]
    assert sum(run[-1] - run[0] + 1 for run in runs) == layers.amount / (256 * 8 * 4), "each that is kept is named"
    assert layers.module in repr(found) and layers.module in found.html()

    nothing_kept = auto(net, saved=0).plan(*arguments).recomputed_values
    layers, head = sorted(nothing_kept, key=lambda line: line.module, reverse=True)
    assert (layers.module, head.module) == ("layer0…3", "head")
    assert sum(line.amount for line in nothing_kept) == 5 * 2 * 256 * 8 * 8 + 4 * 256 * 8
    assert 0 <= layers.when[0] < head.when[0] == head.when[1] < 1


@pytest.mark.slow
def test_the_authors_checkpoints_are_candidates():
    """The plan is no worse than these checkpoints, with or without a schedule."""
    own = checkpointed(deep)
    early, late = measure(own, WS, X), measure(with_schedule(own), WS, X)
    limit = min(early.peak_bytes, late.peak_bytes)
    found = auto(own, peak=limit).plan(WS, X)
    assert found.measurement.peak_bytes <= limit
    assert found.recomputed <= again(early.trace)


def experts(ps, x, checkpoint=lambda layer: layer):
    def layer(x, gate, up, down):
        gates = jax.nn.softmax(x @ gate)
        hidden = jax.nn.gelu(jnp.einsum("td,edf->tef", x, up))
        return x + jnp.einsum("te,tef,efd->td", gates, hidden, down)

    for p in ps:
        x = checkpoint(layer)(x, *p)
    return jnp.mean(x**2)


EXPERTS = [(normal(310, 16, 4), normal(311, 4, 16, 16) / 4, normal(312, 4, 16, 16) / 4)] * 3, normal(313, 64, 16)


@pytest.mark.slow
def test_plain_checkpoints_around_layers_meet_a_limit_that_no_schedule_meets(tmp_path):
    """The function does not mark its layers."""
    layers = measure(lambda ps, x: experts(ps, x, jax.checkpoint), *EXPERTS)
    found = auto(experts, peak=layers.peak_bytes).plan(*EXPERTS)
    assert found.measurement.peak_bytes <= layers.peak_bytes
    assert found.recomputed <= 1.01 * again(layers.trace)  # which does not count a sum of the loss
    found.save(tmp_path / "choice.json")
    loaded = load_schedule(tmp_path / "choice.json", experts)
    assert measure(loaded, *EXPERTS).peak_bytes == found.measurement.peak_bytes
    assert auto(experts, peak=layers.peak_bytes).plan(*EXPERTS).measurement == found.measurement  # from the cache


def with_dots(layer):
    return jax.checkpoint(layer, policy=jax.checkpoint_policies.dots_saveable)


def mapped(checkpoint=lambda layer: layer):
    """Layers on each of four devices."""

    def parts(ws, x):
        for w in ws:
            x = checkpoint(lambda x, w: x + jnp.tanh(jnp.sin(x @ w) * jnp.exp(-x * x)))(x, w)
        return lax.psum((x**2).sum(), "data")

    mesh = jax.make_mesh((4,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    specs = jax.sharding.PartitionSpec(), jax.sharding.PartitionSpec("data")
    return jax.shard_map(parts, mesh=mesh, in_specs=specs, out_specs=specs[0])


def nested(checkpoint=lambda body: body):
    """A scan in a scan."""

    def outer(x, w):
        return lax.scan(checkpoint(lambda x, _: (jnp.sin(x @ w) * jnp.exp(-x * x), None)), x, None, length=4)[0], None

    return lambda ws, x: lax.scan(outer, x, ws)[0].sum()


def branched(checkpoint=lambda layer: layer):
    """Layers that each contain a branch."""

    def layer(x, w):
        return lax.cond(x[0, 0] > 0, lambda: jnp.sin(jnp.exp(-(jnp.sin(x @ w) ** 2))), lambda: jnp.tanh(x @ w) * x)

    def net(ws, x):
        for w in ws:
            x = checkpoint(layer)(x, w)
        return x.sum()

    return net


@pytest.mark.slow
def test_in_a_shard_map_it_is_no_worse_than_a_policy_in_each_layer(tmp_path):
    args = normal(320, 3, 8, 8) / 3, normal(321, 256, 8)
    dots = measure(mapped(with_dots), *args)
    found = auto(mapped(), peak=dots.peak_bytes).plan(*args)
    assert found.measurement.peak_bytes <= dots.peak_bytes
    assert 0 < found.recomputed <= again(dots.trace)
    assert "shard_maps count as one operation each" in found.certificate
    found.save(tmp_path / "choice.json")
    loaded = load_schedule(tmp_path / "choice.json", mapped())
    gradients, expected = (jax.jit(jax.grad(f, (0, 1)))(*args) for f in (loaded, mapped()))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), gradients, expected)


@pytest.mark.parametrize("make", few([nested, branched]))
def test_checkpoints_around_layers_are_candidates_if_a_schedule_cannot_open_the_layers(make):
    args = normal(320, 4, 8, 8) / 3, normal(321, 256, 8)
    assert linearize(trace(make(), *args)).closed
    suggested_names = [trace(make(wrapped), *args) for wrapped in (jax.checkpoint, with_dots)]
    found = [
        trace(plain_checkpoints(make(), plain), *args)
        for plain in placements(jaxpr_of(make(), *args), False, True)
        if not plain.policy or plain.policy == "dots_saveable"
    ]
    for hand in suggested_names:
        as_small = (p for p in found if p.bytes_by_kind()["computed"] <= hand.bytes_by_kind()["computed"])
        assert min(map(again, as_small)) <= again(hand)


def test_a_training_step_is_refused_with_advice_to_plan_the_loss():
    def step(ws, x):
        return ws[0] - 0.1 * jax.grad(deep)(ws, x)[0], jnp.sum(x)

    for how in ({"peak": "1 GiB"}, {"saved": 0}):
        with pytest.raises(PlanError, match=r"step takes gradients itself.* Plan the loss"):
            auto(step, **how).plan(WS, X)


@pytest.mark.slow
def test_a_model_is_cut_between_its_layers():
    between = stretches(jaxpr_of(experts, *EXPERTS), False)
    assert len(between) == len(EXPERTS[0])
    divided, layers = (
        trace(f, *EXPERTS) for f in (in_blocks(experts, between), lambda ps, x: experts(ps, x, jax.checkpoint))
    )
    assert divided.bytes_by_kind() == layers.bytes_by_kind()
    gradients, expected = (jax.grad(f)(*EXPERTS) for f in (in_blocks(experts, between), experts))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), gradients, expected)
    assert stretches(jaxpr_of(jnp.sin, X), False) == ()
    turns, own = (trace(f, WS, X) for f in (in_iterations(jax.jit(looped)), checkpointed(looped)))
    assert turns.bytes_by_kind() == own.bytes_by_kind() != trace(looped, WS, X).bytes_by_kind()
    (boundaries, *_) = saved_at_cuts(linearize(trace(deep, WS, X)))
    assert {value.shape for value in boundaries} == {X.shape}
    assert len(boundaries) == len(WS[0]) - 1


@pytest.mark.slow
@since("0.11", "XLA on a CPU recomputes what a checkpoint says")
def test_with_one_compile_the_0_1_program_decides():
    plain = measure(looped, WS, X)
    found = auto(looped, peak=int(0.9 * plain.peak_bytes), compiles=1).plan(WS, X)
    (candidate,) = found.trials
    assert candidate.placement is None
    assert candidate.recompute_cost < again(trace(checkpointed(looped), WS, X))


@pytest.mark.slow
def test_a_trimmed_candidate_is_compiled_only_if_its_estimate_is_not_larger(monkeypatch):
    """Without a mean, which takes few bytes, its whole operand may have to be recomputed."""

    def net(ws, x):
        for up, down in ws:
            y = x @ up
            x = x + jnp.tanh((y - y.mean(0)) * lax.rsqrt(y.var(0) + 1e-5)) @ down
        return jnp.mean(x**2)

    shape = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.float32)
    args = [(shape((8, 64)), shape((64, 8)))] * 4, shape((256, 8))
    given = sum(4 * math.prod(s.shape) for s in jax.tree.leaves(args))
    limit = estimate_compiled_bytes(trace(net, *args)) // 2
    taken = iter([limit + 64])  # by the first compiled candidate; the others take their estimates

    def compiled(function, args, *_):
        peak = next(taken, None) or estimate_compiled_bytes(trace(function, *args))
        return measurement_of(peak, peak - 2 * given - 8)

    monkeypatch.setattr("rematscope.scheduling.search.measure_call", compiled)
    first, *others = auto(net, peak=limit).plan(*args).trials
    smaller = [t for t in others if t.schedule.saved_bytes < first.schedule.saved_bytes]
    assert others and all(t.estimated_bytes <= first.estimated_bytes for t in smaller)


def test_if_everything_fits_no_other_candidate_is_estimated(monkeypatch):
    asked, predict = [], candidates.estimate_temporary_bytes
    monkeypatch.setattr(candidates, "estimate_temporary_bytes", lambda *args: asked.append(args) or predict(*args))
    assert auto(deep, peak="1 GiB").plan(WS, X).recomputed == 0
    assert len(asked) == 1


@pytest.mark.slow
def test_the_first_limit_of_the_0_1_program_is_corrected_by_the_previous_estimate(monkeypatch):
    """The ratio of a program's estimate to that of the 0/1 program is similar for the next limit and for other cuts."""
    limits, best = [], PeakProgram.best
    monkeypatch.setattr(PeakProgram, "best", lambda rows, **limit: limits.append(limit) or best(rows, **limit))
    search = ScheduleSearch(GradientCall(deep, (WS, X), {}), "cpu", 1)
    predicted = trace(deep, WS, X).saved_bytes()
    shares = []
    for aim in (predicted // 2, predicted // 3):
        search._fill_pool(aim)
        shares.append([limit["peak"] / aim for limit in limits if "peak" in limit])
        limits.clear()
    assert shares[0][0] == 1 != shares[1][0]


def test_if_the_0_1_program_overestimates_it_is_solved_for_its_smallest_limit(monkeypatch):
    proposer, asked = PeakProposer(mock.Mock(), []), []

    def best(peak):
        asked.append(peak)
        return PeakSolution(frozenset(), frozenset(), 1.0) if peak > 130 else None

    monkeypatch.setattr(proposer, "_make_candidate", lambda *_: mock.Mock(estimated_bytes=99, recompute_cost=1.0))
    found = [*proposer._approach_target(mock.Mock(best=best, least=131), 100, CandidatePool())]
    assert asked[:2] == [100, 131] and all(limit > 131 for limit in asked[2:])
    assert {candidate.estimated_bytes for candidate in found} == {99}


@pytest.mark.slow
def test_after_two_failures_a_candidate_larger_than_the_fallback_is_compiled(monkeypatch):
    taken = iter([1.2, 1.4])

    def compiled(search, candidate):
        temporaries = int(next(taken, 1.4) * candidate.estimated_bytes)
        peak = search.fixed_bytes + temporaries
        candidate.measurement = measurement_of(peak, temporaries)
        search.compiled.append(candidate)
        return candidate

    monkeypatch.setattr(ScheduleSearch, "_compile_candidate", compiled)
    search = ScheduleSearch(GradientCall(deep, (WS, X), {}), "cpu", 4)
    limit = search.fixed_bytes + trace(deep, WS, X).saved_bytes() * 2 // 3
    search._compile_candidates(limit)
    *above, first = search.compiled[:3]
    assert all(candidate.peak_bytes > limit for candidate in above)
    assert first.peak_bytes <= limit and first.recompute_cost < search._fallback_candidate(limit).recompute_cost


def test_an_operation_that_both_passes_compute_is_estimated_once():
    """The last cast of the loss runs in both passes: it reads a saved value, and no barrier precedes it."""

    def half(ws, x):
        x, _ = lax.scan(lambda x, w: (jnp.sin(x @ w), None), x, ws)
        return jnp.mean(x.astype(jnp.float32) ** 2)

    shapes = (jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in ((4, 8, 8), (64, 8)))
    assert auto(half, saved="4 KiB").plan(*shapes).trials[0].estimated_bytes > 0


def test_the_solver_stops_after_a_number_of_nodes_so_slow_machines_choose_the_same(monkeypatch):
    asked, solve = [], scipy.optimize.milp

    def milp(*args, options, **how):
        asked.append(dict(options))
        return solve(*args, options=options, **how)

    monkeypatch.setattr(scipy.optimize, "milp", milp)
    rows = PeakProgram(linearize(trace(looped, WS, X)))
    first, again = (rows.best(saved=600 * 1024) for _ in range(2))
    assert first == again
    assert all(options["node_limit"] <= 1000 and options["time_limit"] >= 60 for options in asked)
    assert len(asked) == 2


@pytest.mark.parametrize("slices", [{}, {"unroll": 2}], ids=["loop", "two iterations at a time"])
def test_a_limit_on_saved_bytes_that_is_too_small_is_refused_with_the_least(slices):
    def f(ws, x):
        x, means = lax.scan(lambda x, w: (jnp.tanh(x @ w) * jnp.sin(x), x.mean()), x, ws, **slices)
        return x.sum() + means.sum()

    args = normal(303, 6, 5, 5), normal(304, 3, 5)
    with pytest.raises(PlanError, match="is too small: the smallest choice for f saves") as refused:
        auto(f, saved=0).plan(*args)
    least = int(re.search(r"saves ([\d,]+) bytes", str(refused.value))[1].replace(",", ""))
    assert auto(f, saved=least).plan(*args).saved_bytes == least
    with pytest.raises(PlanError, match="is too small"):
        auto(f, saved=least - 4).plan(*args)


@pytest.mark.parametrize("limit", few([{"saved": 0}, {"peak": "1 KiB"}]))
def test_a_function_without_operations_has_a_gradient(limit):
    assert jax.grad(auto(lambda x: x, **limit))(2.0) == 1.0


def test_a_while_loop_with_one_condition_per_example_stops_each_example_by_itself(seed):
    def doubled(row):  # until its sum exceeds 3, so a different number of times per row
        _, row = lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + jnp.abs(c[1]).sum(), 2 * c[1]), (0.0, row))
        return lax.stop_gradient(row)

    def loss(w, x):
        x = jnp.sin(x @ w)
        return jnp.sum(jnp.sin((jax.vmap(doubled)(x) * x) @ w))

    w, x = jnp.eye(4) / 2, jax.random.normal(jax.random.key(seed), (6, 4)) * jnp.arange(1.0, 7)[:, None] / 7
    expected, rewritten = jax.value_and_grad(loss)(w, x), auto(loss, saved="1 KiB")
    for found in (jax.value_and_grad(rewritten)(w, x), jax.jit(jax.value_and_grad(rewritten))(w, x)):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), expected, found)


REFUSED = {
    "an unknown number of iterations": (
        lambda x: lax.while_loop(lambda s: s.sum() < 9, jnp.sin, x).sum(),
        {},
        "Use jax",
    ),
    "integers": (lambda n: n.sum(), {}, "every argument is an integer"),
    "effects": (lambda x: (io_callback(print, None, x), x.sum())[1], {}, "has no backward pass: IO callbacks"),
    "a limit below nothing": (jnp.sum, {"peak": "-1 GiB"}, "peak='-1 GiB' cannot be read"),
    "a limit that is no number": (jnp.sum, {"peak": float("nan")}, r"peak=nan is not a number of bytes.*'12 MB'\.$"),
    "not a single compile": (jnp.sum, {"compiles": 0}, "compiles=0 is not valid"),
    "half a compile": (jnp.sum, {"compiles": 2.5}, "compiles=2.5 is not valid"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_invalid_functions_and_options_are_refused_with_a_sentence(what):
    f, options, sentence = REFUSED[what]
    with pytest.raises((PlanError, TraceError), match=sentence):
        auto(f, **{"peak": "1 MiB"} | options).plan(np.arange(3) if what == "integers" else X)


def test_a_string_as_an_array_is_refused():
    with pytest.raises(TraceError, match="'relu', a str"):
        auto(lambda x, how: (x @ how).sum(), peak="1 MiB").plan(X, "relu")


@pytest.mark.slow
def test_slow_operations_are_saved_although_others_have_more_flops():
    """If memory is slow, a sum over a large array takes longer than a matmul of twice as many FLOPs."""

    def net(w, x, large):
        return jnp.mean(jnp.sin(x @ w) * jnp.sin(large.sum(-1)))

    arguments = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((256, 64), (64, 256), (64, 64, 256))]
    slow = Device("slow", {"float32": 1e12}, bandwidth=1e9)
    operations = auto(net, saved="16 KiB").plan(*arguments)
    seconds = auto(net, saved="16 KiB", cost="seconds", device=slow).plan(*arguments)
    again = ({what for line in found.recomputed_values for what in line.what} for found in (operations, seconds))
    (summed,), (multiplied,) = (what - {"sin", "cos"} for what in again)
    assert (summed, multiplied) == ("reduce_sum", "dot_general")
    moved = sum(math.prod(shape) * 4 for shape in ((256, 64), (64, 256), *[(64, 64)] * 3))  # two sines read, too
    assert seconds.recomputed == pytest.approx(moved / 1e9)
    assert seconds.bound <= seconds.recomputed
    assert "180 µs recomputed" in repr(seconds)
    assert "a roofline of slow" in seconds.certificate
    suggested_names = auto(net, saved="16 KiB", cost=lambda equation: 7 * (equation.primitive == "reduce_sum")).plan(
        *arguments
    )
    assert suggested_names.recomputed == 0


def test_no_matmul_computes_the_gradient_of_a_stopped_argument():
    def stopped(ws, x):
        return deep(ws, lax.stop_gradient(x))

    every, fewer = (linearize(trace(f, WS, X)).backward.count("dot_general") for f in (deep, stopped))
    assert fewer == every - 1
