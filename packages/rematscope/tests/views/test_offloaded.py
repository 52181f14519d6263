"""Residuals in host memory are listed separately, and are not part of the device's totals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name as named

from rematscope import SideBySide, compare, explore, frontier, lint, liveness, measure, plan, residual_table, trace
from rematscope.views.interactive_programs import InteractivePrograms

POLICY = jax.checkpoint_policies.save_and_offload_only_these_names(
    names_which_can_be_saved=["kept"],
    names_which_can_be_offloaded=["moved"],
    offload_src="device",
    offload_dst="pinned_host",
)
X, W = jax.ShapeDtypeStruct((8, 16), np.float32), jax.ShapeDtypeStruct((16, 16), np.float32)
ONE = 8 * 16 * 4  # bytes of each named value


def layer(x, w):
    return jnp.sin(named(jnp.sin(named(x @ w, "moved")) @ w, "kept"))


def offloading(x, w):
    return jax.checkpoint(layer, policy=POLICY)(x, w)


def in_a_scan(x, w):
    def step(x, _):
        return offloading(x, w), None

    return lax.scan(step, x, None, length=4)[0]


@pytest.mark.parametrize(("f", "times", "kept"), [(offloading, 1, ONE), (in_a_scan, 4, 4 * 2 * ONE)])
def test_no_total_has_the_hosts_bytes(f, times, kept):
    """In the scan, each step also saves its carry."""
    passes = trace(f, X, W)
    moved = [r for r in passes.residuals if r.memory == "host"]
    assert [(r.name, r.nbytes) for r in moved] == [("moved", times * ONE)] and passes.host_bytes() == times * ONE
    assert passes.bytes_by_kind()["computed"] == kept
    assert passes.saved_bytes() == sum(r.nbytes for r in passes.residuals) - times * ONE

    table = residual_table(f, X, W)
    (row,) = [row for row in table.rows if row.memory == "host"]
    assert (row.nbytes, row.share) == (times * ONE, 0)
    assert table.nbytes == passes.saved_bytes()
    assert sum(row.share for row in table.rows) == pytest.approx(1)

    peak = liveness(f, X, W)
    assert max(moment.residuals for moment in peak.samples) <= kept


def test_a_plan_states_that_offloading_policies_are_not_compared():
    said = "Policies that offload values to host memory are not compared, including the function's own"
    assert said in " ".join(str(plan(offloading, X, W, saved=1.0)).split())
    assert "not compared" not in str(plan(layer, X, W, saved=1.0))


def test_the_offloaded_bytes_are_shown_next_to_the_totals():
    passes = trace(offloading, X, W)
    said = "saves 2 KiB: computed 512 B + arguments 1.5 KiB; 512 B in host memory"
    for page in (
        repr(SideBySide(passes)),
        SideBySide(passes).html(),
        repr(residual_table(offloading, X, W)),
        InteractivePrograms(passes).pane()["html"],
    ):
        assert said in page
    assert "512 B → host" in repr(SideBySide(passes))
    assert any("saved in host memory, 512 B" in note for note in InteractivePrograms(passes).pane()["notes"])


def test_explore_tells_them_apart(capsys):
    explore(lambda x, w: offloading(x, w) * 2.0, X, W)
    rows = {line[:20]: line.split()[4:] for line in capsys.readouterr().out.splitlines() if line.startswith("bytes")}
    assert rows["bytes in host memory"] == "0 B 512 B −512 B".split()


def test_variants_are_compared_by_their_device_bytes():
    found = compare({"plain": layer, "offloading": offloading}, X, W)
    assert found["offloading"].saved_bytes == ONE
    header, _, offloaded = found.cells()
    assert offloaded[header.index("Saved")] == offloaded[header.index("In host\nmemory")] == "512 B"


def test_a_policy_that_offloads_saves_something():
    policy = jax.checkpoint_policies.offload_dot_with_no_batch_dims("device", "pinned_host")
    found = lint(jax.checkpoint(lambda x, w: jnp.sum(jnp.sin(jnp.sin(x @ w) @ w)), policy=policy), X, W)
    assert found.findings == ()


def test_an_offloading_policy_is_plotted_at_its_device_bytes():
    found = frontier(offloading, X, W)
    assert found.current.nbytes == ONE


def test_the_users_own_transfers_do_not_count_in_a_budget():
    @jax.custom_vjp
    def doubled(x):
        return 2.0 * x

    doubled.defvjp(
        lambda x: (2.0 * x, jax.device_put(jnp.sin(x), jax.memory.Space.Host)),
        lambda kept, ct: (2.0 * ct + 0.0 * jax.device_put(kept, jax.memory.Space.Device),),
    )

    def f(x, w):
        return jnp.sum(jax.checkpoint(layer)(doubled(x), w))

    made = plan(f, X, W, saved=2 * ONE + ONE)  # both names, and the checkpoint's input
    assert made.names == ("moved", "kept") and made.saved_bytes == 3 * ONE
    assert made.trace.host_bytes() == ONE and made.certificate.verify(f, X, W) == made.cost


def test_measure_says_that_a_cpu_moves_nothing():
    measured = measure(offloading, X, W)
    said = "Offloading is ignored for cpu: 512 B that the trace offloads to host memory stay on the device."
    assert said in measured.warnings and said in repr(measured)
    (row,) = [row for row in measured.rows if row.metric == "host memory"]
    assert (row.predicted, row.compiled) == (ONE, 0)
    plain = measure(layer, X, W)
    assert not any("offload" in note for note in plain.warnings)
    assert all(row.metric != "host memory" for row in plain.rows)
