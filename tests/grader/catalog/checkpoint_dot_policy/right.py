"""Right answers to checkpoint_dot_policy, spelled in many ways."""

import functools

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes
NO_BATCH = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
without_batch = functools.partial(jax.checkpoint, policy=NO_BATCH)


def pipeline(w1, w2, x):
    return jnp.sum((jax.nn.relu(x @ w1) @ w2) ** 2)


@passes
def called_where_it_is_used(w1, w2, x):
    return jax.checkpoint(pipeline, policy=NO_BATCH)(w1, w2, x)


@passes
@functools.partial(jax.checkpoint, policy=NO_BATCH)
def decorated(w1, w2, x):
    return jnp.sum((jax.nn.relu(x @ w1) @ w2) ** 2)


@passes
@jax.jit
def jit_outside(w1, w2, x):
    return jax.checkpoint(pipeline, policy=NO_BATCH)(w1, w2, x)


@passes
def jit_inside(w1, w2, x):
    return jax.checkpoint(jax.jit(pipeline), policy=NO_BATCH)(w1, w2, x)


@passes
def helper_with_jit_inside(w1, w2, x):
    @jax.jit
    def layer(x, w):
        return jax.nn.relu(x @ w)

    return jax.checkpoint(lambda w1, w2, x: jnp.sum((layer(x, w1) @ w2) ** 2), policy=NO_BATCH)(w1, w2, x)


@passes
@without_batch
def where_for_relu(w1, w2, x):
    y = x @ w1
    return jnp.sum((jnp.where(y > 0, y, 0) @ w2) ** 2)


@passes
@without_batch
def where_and_zeros(w1, w2, x):
    y = x @ w1
    return jnp.sum((jnp.where(y >= 0, y, jnp.zeros_like(y)) @ w2) ** 2)


@passes
def maximum_for_relu(w1, w2, x):
    return jax.checkpoint(lambda w1, w2, x: jnp.sum((jnp.maximum(x @ w1, 0) @ w2) ** 2), policy=NO_BATCH)(w1, w2, x)


@passes
@without_batch
def mask_times_value(w1, w2, x):
    y = x @ w1
    return jnp.sum(((y * (y > 0)) @ w2) ** 2)


@passes
@without_batch
def product_for_square(w1, w2, x):
    z = jax.nn.relu(x @ w1) @ w2
    return (z * z).sum()


@passes
@without_batch
def dot_product_for_sum_of_squares(w1, w2, x):
    z = jax.nn.relu(x @ w1) @ w2
    return jnp.vdot(z, z)


@passes
@without_batch
def transposed_products(w1, w2, x):
    h = jax.nn.relu(w1.T @ x.T)
    return jnp.sum((w2.T @ h) ** 2)


@passes
def row_by_row(w1, w2, x):
    def row(x, w1, w2):
        return jnp.sum((jax.nn.relu(x @ w1) @ w2) ** 2)

    def answer(w1, w2, x):
        return jnp.sum(jax.vmap(row, (0, None, None))(x, w1, w2))

    return jax.checkpoint(answer, policy=NO_BATCH)(w1, w2, x)


@passes
@without_batch
def rows_in_a_scan(w1, w2, x):
    def step(total, row):
        return total + jnp.sum((jax.nn.relu(row @ w1) @ w2) ** 2), None

    return lax.scan(step, jnp.zeros((), x.dtype), x)[0]


@RIGHT.passes_with_advice
def without_a_barrier(w1, w2, x):
    return jax.checkpoint(pipeline, policy=NO_BATCH, prevent_cse=False)(w1, w2, x)


@passes
def constants_closed_over(w1, w2, x):
    zero, two = jnp.zeros((), x.dtype), jnp.full((), 2, x.dtype)
    return jax.checkpoint(
        lambda w1, w2, x: jnp.sum((jnp.maximum(x @ w1, zero) @ w2) ** 2) / two * two, policy=NO_BATCH
    )(w1, w2, x)


@passes
def other_parameter_names(weights_in, weights_out, inputs):
    return jax.checkpoint(pipeline, policy=NO_BATCH)(weights_in, weights_out, inputs)


@passes
def any_number_of_arguments(*args):
    return jax.checkpoint(pipeline, policy=NO_BATCH)(*args)


@passes
def a_module(w1, w2, x):
    class Net(eqx.Module):
        w1: jax.Array
        w2: jax.Array

        def __call__(self, x):
            return pipeline(self.w1, self.w2, x)

    return eqx.filter_checkpoint(Net(w1, w2), policy=NO_BATCH)(x)


@passes
def an_axis_more(w1, w2, x):
    return jax.checkpoint(lambda w1, w2, x: pipeline(w1, w2, x[None]), policy=NO_BATCH)(w1, w2, x)


@passes
@without_batch
def outputs_transposed(w1, w2, x):
    h = jax.nn.relu(jnp.einsum("nd,de->en", x, w1))
    return jnp.sum(jnp.einsum("en,ef->fn", h, w2) ** 2)


@passes
def a_linen_module(w1, w2, x):
    class Block(nn.Module):
        @nn.compact
        def __call__(self, x):
            a, b = (self.param(name, lambda _: None) for name in "ab")
            return jnp.sum(jnp.square(nn.relu(x @ a) @ b))

    return nn.remat(Block, policy=NO_BATCH)().apply({"params": {"a": w1, "b": w2}}, x)


@passes
def an_nnx_module(w1, w2, x):
    class Block(nnx.Module):
        def __init__(self):
            self.a, self.b = nnx.Param(w1), nnx.Param(w2)

        @nnx.remat(policy=NO_BATCH)
        def __call__(self, x):
            return ((nnx.relu(x @ self.a[...]) @ self.b[...]) ** 2).sum()

    return Block()(x)
