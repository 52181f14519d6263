"""Right answers to name_preactivation, spelled in many ways."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes
policies = jax.checkpoint_policies


def wave(y):
    return jnp.sin(y / jnp.sqrt(jnp.mean(y**2, axis=-1, keepdims=True)))


@passes
@functools.partial(jax.checkpoint, policy=policies.save_only_these_names("before"))
def decorated(x, W1, W2):
    return wave(checkpoint_name(x @ W1, "before")) @ W2


@passes
def handed_from_one_to_the_next(x, W1, W2):
    y = x @ W1  # linear: only its arguments are saved
    return jax.checkpoint(lambda y, W2: wave(y) @ W2)(y, W2)


@passes
def divided_by_the_norm(x, W1, W2):
    @functools.partial(jax.checkpoint, policy=policies.save_only_these_names("y"))
    def inner(x, W1, W2):
        y = checkpoint_name(x @ W1, "y")
        return jnp.sin(y * (y.shape[-1] ** 0.5 * jax.lax.rsqrt(jnp.sum(y * y, axis=-1)))[:, None]) @ W2

    return inner(x, W1, W2)


@RIGHT.passes_with_advice
def without_a_barrier(x, W1, W2):
    keep = functools.partial(jax.checkpoint, policy=policies.save_only_these_names("y"), prevent_cse=False)
    return keep(lambda x, W1, W2: wave(checkpoint_name(x @ W1, "y")) @ W2)(x, W1, W2)


@passes
def a_module(x, W1, W2):
    class Block(eqx.Module):
        W1: jax.Array
        W2: jax.Array

        def __call__(self, x):
            return wave(checkpoint_name(x @ self.W1, "y")) @ self.W2

    return eqx.filter_checkpoint(Block(W1, W2), policy=policies.save_only_these_names("y"))(x)


@passes
def products_by_policy(x, W1, W2):
    keep = jax.checkpoint(lambda x, W1, W2: wave(x @ W1) @ W2, policy=policies.dots_with_no_batch_dims_saveable)
    return keep(x, W1, W2)


@passes
@functools.partial(jax.checkpoint, policy=policies.save_only_these_names("y"))
def statistics_in_float32(x, W1, W2):
    y = checkpoint_name(x @ W1, "y")
    wide = y.astype(jnp.float32)
    r = wide * jax.lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True))
    return jnp.sin(r.astype(y.dtype)) @ W2


@passes
@functools.partial(jax.checkpoint, policy=policies.save_only_these_names("y"))
def accumulated_in_float32(x, W1, W2):
    y = checkpoint_name(jnp.dot(x, W1, preferred_element_type=jnp.float32).astype(x.dtype), "y")
    return jnp.dot(wave(y), W2, preferred_element_type=jnp.float32).astype(x.dtype)


@passes
@functools.partial(jax.checkpoint, policy=policies.save_only_these_names("y"))
def an_axis_more(x, W1, W2):
    return (wave(checkpoint_name(x[None] @ W1, "y")) @ W2)[0]


@passes
@functools.partial(jax.checkpoint, policy=policies.save_only_these_names("y"))
def mean_squares_by_vecdot(x, W1, W2):
    y = checkpoint_name(x @ W1, "y")
    return jnp.sin(y / jnp.sqrt(jnp.vecdot(y, y) / y.shape[-1])[:, None]) @ W2


@passes
@functools.partial(jax.checkpoint, policy=policies.save_only_these_names("y"))
def row_by_row(x, W1, W2):
    def row(y):
        return jnp.sin(y / jnp.sqrt(jnp.mean(y**2))) @ W2

    return jax.vmap(row)(checkpoint_name(x @ W1, "y"))


@passes
def nnx_linear_layers(x, W1, W2):
    """They draw kernels before they get theirs, and so there is an error function in the program."""
    rngs = nnx.Rngs(0)
    first, second = (nnx.Linear(*W.shape, use_bias=False, param_dtype=W.dtype, rngs=rngs) for W in (W1, W2))
    first.kernel[...], second.kernel[...] = W1, W2

    @functools.partial(nnx.remat, policy=jax.checkpoint_policies.save_only_these_names("product"))
    def run(x, first, second):
        return second(wave(checkpoint_name(first(x), "product")))

    return run(x, first, second)
