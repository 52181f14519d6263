"""The suggested names of a plan, written into the model by hand, save the planned values."""

import inspect
import re

import jax
import jax.numpy as jnp
import pytest
from compiled_programs import array
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from sampling import few

from rematscope import PlanError, auto, measure, trace, with_schedule
from rematscope.scheduling.checkpoint_placement import CheckpointPlacement, in_words, placements
from rematscope.tracing.checkpoints import jaxpr_of


def layer(x, w, i):
    y = x @ w["up"]
    z = jax.nn.gelu(y) * jnp.exp(-y)
    return x + z @ w["down"]


def deep(ws, x):
    for i, w in enumerate(ws):
        x = layer(x, w, i)
    return jnp.mean(x**2)


def looped(w, x):
    def body(carry, _):
        h, total = carry
        z = jnp.tanh(h @ w["up"])
        h = h + z @ w["down"]
        return (h, total + jnp.sum(h)), None

    (h, total), _ = lax.scan(body, (x, 0.0), None, length=5)
    return jnp.mean(h**2) + total


W, X = {"up": array(16, 64), "down": array(64, 16)}, array(256, 16)


def kept(f):
    passes = trace(f, [W] * 4, X)
    return sorted((r.value.shape, str(r.value.dtype)) for r in passes.residuals if r.kind == "computed")


def written(found, **functions):
    """Return functions of this file with the suggested names written into their source."""
    lines = {name.source.line: name.write for name in found.suggested_names.names}
    module = dict(globals())
    for f in functions.values():
        text, first = inspect.getsourcelines(f)
        for line, write in lines.items():
            if first <= line < first + len(text):
                expression = re.fullmatch(r"checkpoint_name\((.*), f?\"[^\"]*\"\)", write)[1]
                assert text[line - first].count(expression) == 1
                text[line - first] = text[line - first].replace(expression, write)
        exec("".join(text), module)
    return [module[name] for name in functions]


@pytest.mark.slow
@pytest.mark.parametrize(("budget", "in_part"), [("100 KiB", False), ("210 KiB", True)])
def test_the_suggested_names_save_the_planned_values(budget, in_part):
    found = auto(deep, saved=budget).plan([W] * 4, X)
    suggested_names = found.suggested_names
    *_, hand = written(found, layer=layer, deep=deep)
    names = [name for line in suggested_names.names for name in line.names]
    assert len(names) == len(set(names)) and any(line.which for line in suggested_names.names) == in_part
    traced = trace(jax.checkpoint(hand, policy=found.policy), [W] * 4, X)
    assert (
        traced.bytes_by_kind()["computed"]
        == suggested_names.saved_bytes
        == sum(line.nbytes for line in suggested_names.names)
    )
    assert suggested_names.saved_bytes <= found.saved_bytes
    assert traced.recompute_cost == suggested_names.trace.recompute_cost
    assert kept(jax.checkpoint(hand, policy=found.policy)) == kept(
        jax.checkpoint(suggested_names.named, policy=found.policy)
    )
    assert kept(with_schedule(hand, found.policy)) == kept(jax.checkpoint(hand, policy=found.policy))


def test_if_every_saved_value_has_a_line_the_names_save_exactly_these_values():
    def f(ws, x):
        for w in ws:
            x = jnp.sin(x @ w["up"]) @ w["down"]
        return jnp.sum(x)

    found = auto(f, saved="80 KiB").plan([W] * 4, X)
    assert found.suggested_names.replaced_bytes == 0 and found.suggested_names.saved_bytes == found.saved_bytes > 0
    assert kept(found.suggested_names.named) == kept(f)  # without a policy names keep nothing
    assert kept(with_schedule(found.suggested_names.named, found.policy)) == kept(found.function)


@pytest.mark.parametrize(
    "activation", few([jnp.tanh, jax.nn.sigmoid, jnp.exp, jnp.sqrt, jnp.sin, jax.nn.softmax, jax.nn.relu], 3)
)
@pytest.mark.parametrize("in_loop", [False, True])
def test_every_suggested_name_avoids_recompute(activation, in_loop):
    """A name on the result of `tanh` would not, because the derivative of `tanh` reads the result without the name."""

    def layer(x, w):
        y = activation(1 + x @ w["up"])
        return x + y @ w["down"], None

    def f(ws, x):
        if in_loop:
            return jnp.sum(lax.scan(layer, x, ws)[0] ** 2)
        for i in range(4):
            x, _ = layer(x, jax.tree.map(lambda a, i=i: a[i], ws))
        return jnp.sum(x**2)

    arguments = {"up": array(4, 16, 64), "down": array(4, 64, 16)}, X
    found = auto(f, saved="330 KiB", compiles=1).plan(*arguments).suggested_names

    def recomputed(names):
        policy = jax.checkpoint_policies.save_only_these_names(*names)
        cost = trace(jax.checkpoint(found.named, policy=policy), *arguments).recompute_cost
        return cost.flops + cost.transcendentals

    names = [name for line in found.names for name in line.names]
    assert all(recomputed({*names} - {name}) > recomputed(names) for name in names)
    assert len(names) >= 2


def test_no_name_is_suggested_in_a_function_that_is_differentiated_inside():
    """Its lines compute derivatives too, which no `checkpoint_name` on the line would save."""

    def energy(x, w):
        h = x @ w["up"]
        return jnp.sum(jnp.tanh(h) @ w["down"])

    def forces(w, x):
        for _ in range(2):
            x = x - jax.grad(energy)(x, w)
            x = jnp.sin(x)
        return jnp.sum(x**2)

    found = auto(forces, saved="150 KiB", compiles=1).plan({"up": array(16, 64), "down": array(64, 16)}, X)
    assert {name.source.function.rpartition(".")[2] for name in found.suggested_names.names} == {"forces"}


@pytest.mark.slow
def test_in_a_loop_names_state_the_saved_values_of_each_iteration():
    found = auto(looped, saved="180 KiB").plan(W, X)
    carry, *others = found.suggested_names.names
    assert carry.write == f'at the start of the body of lax.scan: carry 0 as checkpoint_name(…, "{carry.names[0]}")'
    assert carry.types == ("f32[256,16]",) and carry.nbytes == 5 * 256 * 16 * 4

    def hand(w, x):
        def body(both, _):
            h, total = both
            h = checkpoint_name(h, carry.names[0])
            z = jnp.tanh(h @ w["up"])
            h = h + z @ w["down"]
            return (h, total + jnp.sum(h)), None

        (h, total), _ = lax.scan(body, (x, 0.0), None, length=5)
        for name in others:
            assert name.write.startswith("on leaf 0 of the result of lax.scan: checkpoint_name(")
            h = checkpoint_name(h, name.names[0])
        return jnp.mean(h**2) + total

    traced = trace(jax.checkpoint(hand, policy=found.policy), W, X)
    assert traced.bytes_by_kind()["computed"] == found.suggested_names.saved_bytes
    peaks = [measure(f, W, X).temp_bytes for f in (with_schedule(hand, found.policy), found.function)]
    assert peaks[0] <= 1.1 * peaks[1]


def test_a_plan_that_saves_nothing_states_it():
    found = auto(lambda w, x: jnp.sum(jnp.sin(jnp.tanh(x @ w))), saved=0).plan(W["up"], X)
    assert found.suggested_names.names == () and found.suggested_names.saved_bytes == 0
    assert "Nothing is saved" in str(found.suggested_names)


@pytest.mark.slow
def test_a_plan_that_saves_everything_needs_no_names_and_plain_checkpoints_are_refused():
    found = auto(deep, peak="1 GiB").plan([W] * 4, X)
    assert found.suggested_names.names == () and "no checkpoint is needed" in str(found.suggested_names)
    assert kept(jax.checkpoint(deep, policy=found.policy)) == kept(deep)

    def branched(w, x):
        for _ in range(4):
            x = lax.cond(x.sum() > 0, lambda x: jnp.sin(jnp.tanh(x @ w["up"]) @ w["down"]), jnp.cos, x)
        return jnp.sum(x)

    limit = measure(branched, W, X).peak_bytes
    assert auto(branched, peak=limit).plan(W, X).suggested_names.names == ()
    found = auto(branched, peak=limit * 99 // 100).plan(W, X)
    with pytest.raises(
        PlanError,
        match=r"which names cannot express: .* test_suggested_names\.py:\d+ \(branched\)(, \d times)?.* Write",
    ):
        _ = found.policy


def test_plain_checkpoints_are_described_by_the_function_that_contains_the_block():
    ws = [W] * 4
    blocks = next(plain.blocks for plain in placements(jaxpr_of(deep, ws, X), False, False) if len(plain.blocks) == 4)
    where = in_words(jaxpr_of(deep, ws, X), CheckpointPlacement(blocks, saved=((blocks[0][0],),)))
    first = layer.__code__.co_firstlineno
    assert f"test_suggested_names.py:{first + 1}-{first + 3} (layer), 4 times" in where, where
    assert where.endswith(f", which saves the values computed in test_suggested_names.py:{first + 1} (layer)")
    assert in_words(jaxpr_of(deep, ws, X), CheckpointPlacement(own=True, policy="dots_saveable")).endswith(
        "policy=jax.checkpoint_policies.dots_saveable"
    )
    assert in_words(jaxpr_of(deep, ws, X), CheckpointPlacement(depth=0)) == "one around the body of each loop"
