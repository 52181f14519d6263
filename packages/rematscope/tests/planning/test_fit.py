"""The plan that fits into a device, as compiled."""

import itertools

import jax
import jax.numpy as jnp
import pytest
from compiled_programs import array
from jax.ad_checkpoint import checkpoint_name
from measurements import measurement_of
from sampling import few

from rematscope import Fit, PlanError, estimate_time, fit, measure, plan
from rematscope.planning import fit as fitting
from rematscope.render.units import bytes_text, seconds_text
from rematscope.render.view import plain_text
from rematscope.xla.out_of_memory import OutOfMemory


def layer(x, w):
    for name in "abcd":
        x = jnp.sin(checkpoint_name(x @ w, name))
    return x, None


def net(ws, x):
    return jax.lax.scan(jax.checkpoint(layer), x, ws)[0].sum()


ARGS = array(8, 64, 64), array(256, 64)
MIB = 2**20


@pytest.mark.slow
def test_the_next_better_plan_does_not_fit():
    smallest, largest = (measure(plan(net, *ARGS, saved=b).planned, *ARGS).peak_bytes for b in (0.0, 1.0))
    budget = (smallest + largest) // 2
    found = fit(net, *ARGS, peak=budget, device="tpu v5e")
    assert found.chosen.peak_bytes <= budget < found.above.peak_bytes
    assert found.chosen.peak_bytes == measure(plan(net, *ARGS, saved=found.plan.saved_bytes).planned, *ARGS).peak_bytes
    between = plan(net, *ARGS, saved=found.above.plan.saved_bytes - 1)
    assert between.saved_bytes == found.plan.saved_bytes  # there is no plan between the two
    assert found.names == found.plan.names
    text = plain_text(found)
    over = f"{bytes_text(found.above.peak_bytes - budget)} over"
    assert "✓" in text and over in text and "fits" in text
    assert (
        found.chosen.seconds.recompute
        == estimate_time(found.plan.trace, "tpu v5e").recompute
        > found.above.seconds.recompute
    )
    assert (
        "Recompute" in text and seconds_text(found.chosen.seconds.recompute) in text and "roofline of tpu v5e" in text
    )


def test_all_useful_names_are_saved_if_they_fit():
    found = fit(net, *ARGS, peak="1 GB")
    assert found.above is None
    assert found.plan.cost == plan(net, *ARGS, saved=1.0).cost


@pytest.mark.slow
@pytest.mark.parametrize(
    "peak_of", few([lambda s: (s // 2**16) ** 2, lambda s: MIB + 3 * s, lambda s: s, lambda s: s**0.5], 2)
)
def test_the_best_plan_that_fits_is_found_however_the_peak_grows(monkeypatch, peak_of):
    def pretend(planned, *args, target):
        saved = next(p.saved_bytes for p in all_plans if p.planned is planned)
        return measurement_of(int(peak_of(saved)), predicted=saved)

    all_plans = []
    real = fitting.best_plan
    monkeypatch.setattr(fitting, "best_plan", lambda *a: all_plans.append(real(*a)) or all_plans[-1])
    monkeypatch.setattr(fitting, "measure", pretend)
    points = sorted({plan(net, *ARGS, saved=n / 4).saved_bytes for n in range(3)})
    for low, high in itertools.pairwise(points):
        found = fit(net, *ARGS, peak=int(peak_of(high)) - 1)
        assert isinstance(found, Fit)
        assert found.plan.saved_bytes == low
        assert found.above.plan.saved_bytes == high


@pytest.mark.slow
def test_a_program_that_the_compiler_refuses_does_not_fit(monkeypatch):
    """libtpu refuses a program that needs more memory than a chip has, for any budget."""
    room = measure(plan(net, *ARGS, saved=0.5).planned, *ARGS).peak_bytes

    def refusing(planned, *args, target):
        measured = measure(planned, *args, target=target)
        if measured.peak_bytes > room:
            measured.out_of_memory = OutOfMemory("Ran out of memory on HBM", measured.peak_bytes, room)
            measured.memory = None
        return measured

    monkeypatch.setattr(fitting, "measure", refusing)
    found = fit(net, *ARGS, peak="1 GB")
    assert found.chosen.peak_bytes <= room and found.above.measurement.out_of_memory
    between = plan(net, *ARGS, saved=found.above.plan.saved_bytes - 1)
    assert between.saved_bytes == found.plan.saved_bytes
    assert "does not fit: needs " in repr(found) and "does not fit: needs " in found.html()
    room = 0
    found = fit(net, *ARGS, peak="1 GB", target="cpu")
    assert found.chosen is None and all(trial.measurement.out_of_memory for trial in found.trials)
    assert "net does not fit into the memory of a cpu with any plan" in repr(
        found
    ) and "Ran out of memory on HBM" in repr(found)
    with pytest.raises(PlanError, match=r"Ran out of memory on HBM\. Put checkpoints around smaller parts"):
        _ = found.names


@pytest.mark.slow
@pytest.mark.parametrize("lower", ["most", "between"])
def test_the_peak_may_fall_if_more_is_saved(monkeypatch, lower):
    """Recomputed values take memory too: 252 MiB if less is saved, 207 MiB if more is saved."""
    points = sorted({plan(net, *ARGS, saved=n / 4).saved_bytes for n in range(5)})
    room = {points[-1] if lower == "most" else points[len(points) // 2]: MIB}
    planned = {}
    real = fitting.best_plan

    def remembered(*args):
        made = real(*args)
        planned[made.planned] = made.saved_bytes
        return made

    def pretend(f, *args, target):
        peak = room.get(planned[f], 2 * MIB)
        return measurement_of(peak, predicted=peak)

    monkeypatch.setattr(fitting, "best_plan", remembered)
    monkeypatch.setattr(fitting, "measure", pretend)
    assert fit(net, *ARGS, peak=MIB).plan.saved_bytes == next(iter(room))


@pytest.mark.slow
def test_a_function_that_cannot_fit_reports_the_memory_that_it_needs():
    with pytest.raises(
        PlanError,
        match=r"does not fit into 97.7 KiB on cpu\. Of \d compiled programs, the smallest peak is .* MiB, .* too much",
    ):
        fit(net, *ARGS, peak="100 KB")


@pytest.mark.parametrize("budget", [0.5, "much", -1, None, True])
def test_a_budget_is_bytes(budget):
    with pytest.raises(PlanError, match=r"^peak="):
        fit(net, *ARGS, peak=budget)


def test_no_plan_is_made_twice_for_budgets_in_between(monkeypatch):
    made, real = [], fitting.best_plan
    monkeypatch.setattr(fitting, "best_plan", lambda *given: made.append((given[-1], real(*given))) or made[-1][1])
    with pytest.raises(PlanError, match="does not fit"):
        fit(lambda x: jnp.sin(jnp.sin(x)), array(8, 8), peak=1)
    between = sorted(made, key=lambda each: -each[0])[1:-1]
    assert between
    for (larger, first), (smaller, _) in itertools.pairwise(between):
        assert first.saved_bytes > smaller, f"the plan of {larger} B is also the plan of {smaller} B"


def test_a_function_that_offloads_is_also_compiled_as_written():
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[], names_which_can_be_offloaded=["a"], offload_src="device", offload_dst="pinned_host"
    )
    found = fit(jax.checkpoint(lambda w, x: layer(x, w)[0].sum(), policy=policy), array(64, 64), ARGS[1], peak="1 GiB")
    assert [trial.plan.with_policy for trial in found.trials].count("as written") == 1
