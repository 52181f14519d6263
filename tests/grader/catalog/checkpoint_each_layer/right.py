"""Right answers to checkpoint_each_layer, spelled in many ways."""

import functools

import jax
import jax.numpy as jnp
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
