"""Right answers to checkpoint_each_layer, spelled in many ways."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes


def layer(W, x):
    return jnp.sin(jnp.dot(W, x))


@passes
def wrapped_at_each_call(W1, W2, W3, x):
    x = jax.checkpoint(layer)(W1, x)
    x = jax.checkpoint(layer)(W2, x)
    return jax.checkpoint(layer)(W3, x)


@passes
def in_a_loop(W1, W2, W3, x):
    for W in (W1, W2, W3):
        x = jax.remat(layer)(W, x)
    return x


@passes
def reduced(*arguments):
    *weights, x = arguments
    return functools.reduce(lambda x, W: jax.checkpoint(layer)(W, x), weights, x)


@passes
def weights_closed_over(W1, W2, W3, x):
    for W in (W1, W2, W3):
        x = jax.checkpoint(lambda x, W=W: jnp.sin(jnp.einsum("ij,j->i", W, x)))(x)
    return x


@passes
def names_in_one_checkpoint(W1, W2, W3, x):
    @functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.save_only_these_names("input"))
    def net(W1, W2, W3, x):
        x = checkpoint_name(layer(W1, x), "input")
        x = checkpoint_name(layer(W2, x), "input")
        return layer(W3, x)

    return net(W1, W2, W3, x)


@passes
@jax.jit
def compiled(W1, W2, W3, x):
    layer = jax.checkpoint(jax.jit(lambda W, x: jnp.sin(x @ W.T)))
    return layer(W3, layer(W2, layer(W1, x)))


@RIGHT.passes_with_advice
def without_a_barrier(W1, W2, W3, x):
    for W in (W1, W2, W3):
        x = jax.checkpoint(layer, prevent_cse=False)(W, x)
    return x


@passes
def modules(W1, W2, W3, x):
    class Layer(eqx.Module):
        weight: jax.Array

        def __call__(self, x):
            return jnp.sin(self.weight @ x)

    for W in (W1, W2, W3):
        x = eqx.filter_checkpoint(Layer(W))(x)
    return x


@passes
def recursive(W1, W2, W3, x):
    def run(weights, x):
        first, *others = weights
        x = jax.checkpoint(layer)(first, x)
        return run(others, x) if others else x

    return run((W1, W2, W3), x)


@passes
def columns_inside(W1, W2, W3, x):
    keep = jax.checkpoint(lambda W, x: jnp.sin(W @ x[:, None])[:, 0], policy=jax.checkpoint_policies.nothing_saveable)
    return keep(W3, keep(W2, keep(W1, x)))


@passes
def lax_operations(W1, W2, W3, x):
    keep = jax.checkpoint(lambda W, x: jax.lax.sin(jax.lax.dot(W, x)))
    return keep(W3, keep(W2, keep(W1, x)))


@passes
def a_rule_by_hand(W1, W2, W3, x):
    @jax.custom_vjp
    def keep(W, x):
        return layer(W, x)

    def backward(kept, ct):
        W, x, ct = jax.lax.optimization_barrier((*kept, ct))
        dy = ct * jnp.cos(W @ x)
        return jnp.outer(dy, x), W.T @ dy

    keep.defvjp(lambda W, x: (layer(W, x), (W, x)), backward)
    return keep(W3, keep(W2, keep(W1, x)))


@passes
def columns_between(W1, W2, W3, x):
    keep = jax.checkpoint(layer)
    return keep(W3, keep(W2, keep(W1, x[:, None])))[:, 0]


@passes
def accumulated_in_float32(W1, W2, W3, x):
    def wide(W, x):
        return jnp.sin(jnp.dot(W, x, preferred_element_type=jnp.float32)).astype(x.dtype)

    for W in (W1, W2, W3):
        x = jax.checkpoint(wide)(W, x)
    return x


@passes
def multiplied_and_summed(W1, W2, W3, x):
    for W in (W1, W2, W3):
        x = jax.checkpoint(lambda W, x: jnp.sin((W * x).sum(axis=-1)))(W, x)
    return x


class Layer(nnx.Module):
    def __init__(self, w):
        self.w = nnx.Param(w)

    @nnx.remat
    def __call__(self, x):
        return jnp.sin(self.w[...] @ x)


@passes
def nnx_modules(W1, W2, W3, x):
    for layer_ in map(Layer, (W1, W2, W3)):
        x = layer_(x)
    return x
