"""Blocks are calls of functions: authors usually put a checkpoint around each call."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from sampling import few
from zoo import normal

from rematscope import rewrite, trace
from rematscope.scheduling.blocks import in_blocks
from rematscope.scheduling.calls import partitions
from rematscope.tracing.checkpoints import jaxpr_of

WS = [(normal(330 + i, 8, 16) / 3, normal(340 + i, 16, 8) / 4) for i in range(4)]
X = normal(350, 32, 8)


def layer(w, x):
    return x + jnp.tanh(jnp.exp(-jnp.tanh(x @ w[0]))) @ w[1]


def middle(x):
    return jnp.sin(jnp.tanh(x) * jnp.exp(x) @ jnp.ones((8, 8)))


def joined(w, x, y):
    return jnp.tanh((x * y) @ w[0]) @ w[1]


def skipping(checkpoint):
    """Return a U-Net, whose skip connections leave no narrow place between two blocks."""

    def net(ws, x):
        skips = []
        for w in ws[:2]:
            x = checkpoint(layer)(w, x)
            skips.append(x)
            x = x[::2]
        x = checkpoint(middle)(x)
        for w, y in zip(ws[2:], skips[::-1], strict=True):
            x = checkpoint(joined)(w, jnp.repeat(x, 2, 0), y)
        return jnp.mean(x**2)

    return net


def in_loop(checkpoint):
    """Unrolled layers in the body of a loop over parts of a batch."""

    def part(ws, x):
        for w in ws:
            x = checkpoint(layer)(w, x)
        return jnp.mean(x**2)

    return lambda ws, x: lax.scan(lambda sum_, x: (sum_ + part(ws, x), None), 0.0, x.reshape(4, 8, 8))[0]


def twice(checkpoint):
    """Each block begins with a loop of its own."""

    def block(w, x):
        y = x
        for each in (w[0] @ w[1], w[0] @ w[1] / 2):
            y = jnp.tanh(y @ each)
        return x + y

    def net(ws, x):
        for w in ws:
            x = checkpoint(block)(w, x)
        return jnp.mean(x**2)

    return net


def of_jits(checkpoint):
    """Each layer is a jit of its own, and so is all of it."""

    def net(ws, x):
        for w in ws:
            x = checkpoint(jax.jit(layer))(w, x)
        return jnp.mean(x**2)

    return jax.jit(net)


@pytest.mark.slow
@pytest.mark.parametrize("make", few([skipping, in_loop, twice, of_jits]))
def test_blocks_are_the_usual_places_of_checkpoints(make):
    plain, suggested_names = make(lambda f: f), make(jax.checkpoint)
    theirs = trace(suggested_names, WS, X)
    assert theirs.bytes_by_kind() != trace(plain, WS, X).bytes_by_kind()
    found = partitions(jaxpr_of(plain, WS, X))
    ours = [trace(in_blocks(plain, blocks), WS, X) for blocks in found]
    assert any(
        passes.bytes_by_kind() == theirs.bytes_by_kind() and passes.recompute_cost == theirs.recompute_cost
        for passes in ours
    )
    gradients, expected = (jax.grad(f)(WS, X) for f in (in_blocks(plain, found[0]), plain))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), gradients, expected)


def test_a_function_without_repeated_calls_has_no_blocks():
    assert partitions(jaxpr_of(jnp.sin, X)) == []
    assert partitions(jaxpr_of(lambda ws, x: layer(ws[0], x), WS, X)) == []


def test_a_function_that_calls_itself_in_a_jit_has_disjoint_blocks():
    def nested(w, x, depth=1):
        x = jnp.cos(jnp.sin(x @ w[0]) @ w[1])
        if depth:
            x = jax.jit(lambda w, x: nested(w, x, depth - 1))(w, x)
        return jnp.tanh(x @ w[0]) @ w[1] * x

    def net(ws, x):
        for w in ws:
            x = nested(w, x)
        return x.sum()

    (found,) = partitions(jaxpr_of(net, WS, X))
    assert len(found) == len(WS)
    changed = rewrite(jax.grad(net), checkpoint="halves of layers")
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-7), changed(WS, X), jax.grad(net)(WS, X)
    )
