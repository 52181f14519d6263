"""Microbatches: a gradient that does not depend on the batch is computed once, and the results are those as written."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from rematscope import PlanError, jax_compat, rewrite

BATCH, WIDTH = 8, 4


def loss(w, x):
    return (jnp.tanh(x @ w) ** 2).mean()


def penalty(w):
    return jnp.cosh(w @ w.T).mean()


def decay_first(w, x):
    w = w - 0.1 * jax.grad(penalty)(w)
    return w - jax.grad(loss)(w, x)


def decay_last(w, x):
    w = w - jax.grad(loss)(w, x)
    value, gradient = jax.value_and_grad(penalty)(w)
    return w - 0.1 * gradient, value


def both_at_once(w, x):
    value, gradient = jax.value_and_grad(loss)(w, x)
    return w - gradient - 0.1 * jax.grad(penalty)(w), value


def generator(w, x):
    w = w - jax.grad(loss)(w, x)
    z = jax.random.normal(jax.random.key(0), (2 * BATCH, WIDTH))
    return w, jax.grad(lambda g: loss(w, jnp.cosh(z @ g)))(w.T)


def between_two_losses(w, x):
    w = w - jax.grad(loss)(w, x)
    w = w - 0.1 * jax.grad(penalty)(w)
    return w - jax.grad(loss)(w, 2 * x)


def between_two_passes(w, x):
    value, pullback = jax.vjp(lambda w: loss(w, x), w)
    decay = jax.grad(penalty)(w)
    (gradient,) = pullback(jnp.ones_like(value))
    return w - gradient - 0.1 * decay


def in_a_loop(w, x):
    def of_layers(w):
        return penalty(lax.scan(lambda h, _: (jnp.tanh(h @ w), None), w, None, length=3)[0])

    return w - jax.grad(loss)(w, x) - jax.grad(of_layers)(w)


def with_gradients_per_example(w, x):
    each = jax.vmap(jax.grad(lambda w, row: (jnp.tanh(row @ w) ** 2).sum()), (None, 0))(w, x)
    return w - each.sum(0) - 0.1 * jax.grad(penalty)(w)


ONCE = [decay_first, decay_last, both_at_once, generator, between_two_losses, between_two_passes, in_a_loop]
ONCE += [with_gradients_per_example]


def scaled_by_the_loss(w, x):
    value, gradient = jax.value_and_grad(loss)(w, x)
    return w - gradient - jax.grad(lambda w: value * penalty(w))(w)


def divided_by_the_batch(w, x):
    w = w - jax.grad(lambda w: penalty(w) / len(x))(w)
    return w - jax.grad(loss)(w, x)


def divided_by_the_batch_at_the_end(w, x):
    w = w - jax.grad(loss)(w, x)
    return w - jax.grad(lambda w: penalty(w) / len(x))(w)


def noise_of_the_batch(w, x):
    z = jax.random.normal(jax.random.key(0), x.shape)
    w = w - jax.grad(lambda w: jnp.cosh(z @ w).mean())(w)
    return w - jax.grad(loss)(w, x)


def ones_of_the_batch(w, x):
    w = w - jax.grad(lambda w: jnp.cosh(jnp.ones_like(x) @ w).mean())(w)
    return w - jax.grad(loss)(w, x)


def positions_of_the_batch(w, x):
    z = jnp.arange(len(x))[:, None] * jnp.ones(WIDTH)
    return w - jax.grad(loss)(w, x) - jax.grad(lambda w: jnp.tanh(z @ w).mean())(w)


def statistics(w, x):
    mean = x.mean()
    return w - jax.grad(loss)(w, x) - jax.grad(lambda w: penalty(w * mean))(w)


OTHERS = [scaled_by_the_loss, divided_by_the_batch, divided_by_the_batch_at_the_end, noise_of_the_batch]
OTHERS += [ones_of_the_batch, positions_of_the_batch, statistics]


def arguments():
    keys = jax.random.split(jax.random.key(1))
    return jax.random.normal(keys[0], (WIDTH, WIDTH)) / 2, jax.random.normal(keys[1], (BATCH, WIDTH))


def assert_same(found, expected):
    for one, other in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        assert jnp.allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("step", ONCE)
def test_a_gradient_without_the_batch_is_computed_once(step):
    with jax.enable_x64(True):
        changed, given = rewrite(step, microbatches=4, in_axes=(None, 0)), arguments()
        assert_same(changed(*given), step(*given))
        program = jax.make_jaxpr(changed)(*given)
    loops = [eqn for eqn, _ in jax_compat.walk_equations(program) if eqn.primitive.name == "scan"]
    loops = [eqn for eqn in loops if jax_compat.scan_of(eqn).length == 4]
    assert loops
    assert not any(inner.primitive.name == "cosh" for eqn in loops for inner in jax_compat.equations_in(eqn))


@pytest.mark.parametrize("step", OTHERS)
def test_other_gradients_are_those_as_written_or_refused(step):
    with jax.enable_x64(True):
        given = arguments()
        try:
            found = rewrite(step, microbatches=4, in_axes=(None, 0))(*given)
        except PlanError as error:
            assert "not proved" in str(error) or "depend on the batch" in str(error)
        else:
            assert_same(found, step(*given))


def test_a_step_without_a_gradient_of_the_batch_is_refused():
    with pytest.raises(PlanError, match="No gradient of decay depends on its batch"):

        def decay(w, x):
            return w - jax.grad(penalty)(w), x.mean()

        rewrite(decay, microbatches=4, in_axes=(None, 0))(*arguments())
