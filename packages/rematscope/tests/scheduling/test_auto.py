"""`auto`: within the limit, never worse than what it is compared with, and still the function that it was."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy
from jax import lax
from jax.experimental import io_callback
from zoo import normal

from rematscope import PlanError, TraceError, auto, load, measure, scheduled, trace
from rematscope.scheduling.cuts import in_stretches, kept_at_cuts, stretches
from rematscope.scheduling.linearize import linearize
from rematscope.scheduling.rows import Rows


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
    """The same with a checkpoint around each layer."""
    if f is looped:
        body = jax.checkpoint(lambda x, w: (layer(x, w), None))
        return lambda ws, x: jnp.mean(lax.scan(body, x, ws)[0] ** 2)

    def each(ws, x):
        for w in zip(*ws, strict=True):
            x = jax.checkpoint(layer)(x, w)
        return jnp.mean(x**2)

    return each


WS, X = (normal(300, 6, 16, 64) / 8, normal(301, 6, 64, 16) / 8), normal(302, 512, 16)


def again(passes):
    return passes.recompute_cost.flops + passes.recompute_cost.transcendentals


def kept_bytes(function):
    return trace(function, WS, X).bytes_by_kind().get("computed", 0)


@pytest.mark.parametrize("f", [deep, looped])
def test_within_a_limit_less_is_computed_again_than_with_a_checkpoint_a_layer(f):
    layers = measure(checkpointed(f), WS, X)
    found = auto(f, WS, X, peak=2 * layers.peak_bytes)
    measured = measure(found.function, WS, X)
    assert measured.peak_bytes == found.measurement.peak_bytes <= 2 * layers.peak_bytes
    assert found.recomputed <= 0.85 * (
        layers.passes.recompute_cost.flops + layers.passes.recompute_cost.transcendentals
    )
    assert found.bound <= found.recomputed
    gradients, expected = (jax.jit(jax.grad(g, (0, 1)))(WS, X) for g in (found.function, f))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), gradients, expected)


def test_what_is_said_is_what_is_traced_and_compiled():
    found = auto(looped, WS, X, budget="600 KiB")
    assert found.kept_bytes == kept_bytes(found.function) <= 600 * 1024
    plain, late = trace(looped, WS, X).cost, trace(found.function, WS, X).cost
    more = late.flops + late.transcendentals - plain.flops - plain.transcendentals
    assert found.recomputed == more > 0
    assert "computed again" in repr(found)
    assert "test_auto.py" in repr(found)
    assert "Compiled for cpu" in found.certificate


def test_the_peak_never_rises_as_the_limit_falls_and_room_for_all_is_used():
    plain = measure(looped, WS, X)
    limits = [int(plain.peak_bytes * part) for part in (1.1, 0.5)]
    results = [auto(looped, WS, X, peak=limit) for limit in limits]
    peaks = [found.measurement.peak_bytes for found in results]
    assert peaks == sorted(peaks, reverse=True)
    assert all(peak <= limit for peak, limit in zip(peaks, limits, strict=True))
    assert results[0].recomputed == 0
    assert all(len(found.trials) <= 4 for found in results)


def test_a_limit_that_cannot_be_kept_is_refused_with_one_that_can():
    with pytest.raises(PlanError, match=r"for its arguments, outputs and gradients alone, .* would do"):
        auto(deep, WS, X, peak="10 KiB")
    fixed = auto(deep, WS, X, budget=0).measurement
    with pytest.raises(PlanError, match=r"no choice for deep .* The smallest that was found takes"):
        auto(deep, WS, X, peak=fixed.peak_bytes - fixed.temp_bytes + 1024)
    with pytest.raises(PlanError, match="either peak="):
        auto(deep, WS, X)
    with pytest.raises(TraceError, match="no floating-point value"):
        auto(lambda x: x > 0, X, budget=0)


def test_a_choice_is_saved_and_loaded_for_the_same_function_alone(tmp_path):
    found = auto(deep, WS, X, budget="100 KiB")
    found.save(tmp_path / "choice.json")
    loaded = load(tmp_path / "choice.json", deep, WS, X)
    assert kept_bytes(loaded) == found.kept_bytes
    with pytest.raises(PlanError, match="about another function than looped"):
        load(tmp_path / "choice.json", looped, WS, X)
    with pytest.raises(PlanError, match="other shapes"):
        loaded(WS, X[:3])
    (tmp_path / "choice.json").write_text("{}")
    with pytest.raises(PlanError, match="holds no choice"):
        load(tmp_path / "choice.json", deep, WS, X)


def test_checkpoints_of_the_authors_own_are_taken_for_proposals():
    own = checkpointed(deep)
    late = measure(scheduled(own), WS, X)
    found = auto(own, WS, X, peak=late.peak_bytes)
    assert found.measurement.peak_bytes <= late.peak_bytes
    assert found.recomputed <= again(trace(own, WS, X))


def experts(ps, x, checkpoint=lambda layer: layer):
    def layer(x, gate, up, down):
        gates = jax.nn.softmax(x @ gate)
        hidden = jax.nn.gelu(jnp.einsum("td,edf->tef", x, up))
        return x + jnp.einsum("te,tef,efd->td", gates, hidden, down)

    for p in ps:
        x = checkpoint(layer)(x, *p)
    return jnp.mean(x**2)


EXPERTS = [(normal(310, 16, 4), normal(311, 4, 16, 16) / 4, normal(312, 4, 16, 16) / 4)] * 4, normal(313, 64, 16)


def test_what_no_schedule_keeps_to_plain_checkpoints_around_layers_do(tmp_path):
    """Nobody has said where a layer ends."""
    layers = measure(lambda ps, x: experts(ps, x, jax.checkpoint), *EXPERTS)
    found = auto(experts, *EXPERTS, peak=layers.peak_bytes)
    assert found.measurement.peak_bytes <= layers.peak_bytes
    assert found.recomputed <= 1.01 * again(layers.passes)  # which leaves out a sum of the loss's
    found.save(tmp_path / "choice.json")
    loaded = load(tmp_path / "choice.json", experts, *EXPERTS)
    assert measure(loaded, *EXPERTS).peak_bytes == found.measurement.peak_bytes
    assert auto(experts, *EXPERTS, peak=layers.peak_bytes).measurement == found.measurement  # as it is remembered


def test_a_net_is_cut_where_its_layers_end():
    cuts = stretches(experts, *EXPERTS)
    assert len(cuts) == len(EXPERTS[0])
    divided, layers = (
        trace(f, *EXPERTS) for f in (in_stretches(experts, cuts), lambda ps, x: experts(ps, x, jax.checkpoint))
    )
    assert divided.bytes_by_kind() == layers.bytes_by_kind()
    gradients, expected = (jax.grad(f)(*EXPERTS) for f in (in_stretches(experts, cuts), experts))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), gradients, expected)
    assert stretches(jnp.sin, X) == ()
    (boundaries, *_) = kept_at_cuts(linearize(trace(deep, WS, X)))
    assert {value.shape for value in boundaries} == {X.shape}
    assert len(boundaries) == len(WS[0]) - 1


def test_of_a_function_with_checkpoints_it_is_no_worse_than_that():
    own = checkpointed(deep)
    measured = measure(own, WS, X)
    found = auto(own, WS, X, peak=measured.peak_bytes)
    assert found.recomputed <= again(measured.passes)


def test_what_is_compiled_but_once_is_chosen_by_the_rows():
    plain = measure(looped, WS, X)
    found = auto(looped, WS, X, peak=int(0.9 * plain.peak_bytes), compiles=1)
    (trial,) = found.trials
    assert trial.stretches is None
    assert trial.recomputed < again(trace(checkpointed(looped), WS, X))


def test_where_the_solver_stops_is_counted_so_that_a_slow_machine_chooses_the_same(monkeypatch):
    asked, solve = [], scipy.optimize.milp

    def milp(*args, options, **how):
        asked.append(dict(options))
        return solve(*args, options=options, **how)

    monkeypatch.setattr(scipy.optimize, "milp", milp)
    rows = Rows(linearize(trace(looped, WS, X)))
    first, again = (rows.cheapest(kept=600 * 1024) for _ in range(2))
    assert first == again
    assert all(options["node_limit"] <= 1000 and options["time_limit"] >= 60 for options in asked)
    assert len(asked) == 2


REFUSED = {
    "an unknown number of iterations": (
        lambda x: lax.while_loop(lambda s: s.sum() < 9, jnp.sin, x).sum(),
        {},
        "Use jax",
    ),
    "integers": (lambda n: n.sum(), {}, "every argument is an integer"),
    "effects": (lambda x: (io_callback(print, None, x), x.sum())[1], {}, "has no backward pass: IO callbacks"),
    "a limit below nothing": (jnp.sum, {"peak": "-1 GiB"}, "'-1 GiB' cannot be read"),
    "a limit that is no number": (jnp.sum, {"peak": float("nan")}, "nan is no number of bytes"),
    "not a single compile": (jnp.sum, {"compiles": 0}, "compiles=0 is too few"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_done_is_refused_in_a_sentence(what):
    f, options, sentence = REFUSED[what]
    with pytest.raises((PlanError, TraceError), match=sentence):
        auto(f, np.arange(3) if what == "integers" else X, **{"peak": "1 MiB"} | options)


def test_a_function_of_what_is_no_number_is_refused():
    with pytest.raises(TraceError, match="'relu', a str"):
        auto(lambda x, how: x.sum(), X, "relu", peak="1 MiB")
