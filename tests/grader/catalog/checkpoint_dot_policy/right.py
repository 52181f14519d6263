"""Right answers to checkpoint_dot_policy, spelled in many ways."""

import functools

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax
from jax.ad_checkpoint import checkpoint_name
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
@functools.partial(jax.remat, policy=jax.checkpoint_policies.checkpoint_dots_with_no_batch_dims)
def remat_and_alias(w1, w2, x):
    return jnp.sum((jax.nn.relu(x @ w1) @ w2) ** 2)


@passes
def own_policy(w1, w2, x):
    def matmuls_without_batch(prim, *_, **params):
        if prim.name != "dot_general":
            return False
        (_, _), (batch, _) = params["dimension_numbers"]
        return not batch

    return jax.checkpoint(pipeline, policy=matmuls_without_batch)(w1, w2, x)


@passes
def policies_combined(w1, w2, x):
    policies = jax.checkpoint_policies
    both = policies.save_from_both_policies(NO_BATCH, policies.nothing_saveable)
    return jax.checkpoint(pipeline, policy=both)(w1, w2, x)


@passes
@without_batch
def names_that_change_nothing(w1, w2, x):
    h = checkpoint_name(jax.nn.relu(checkpoint_name(x @ w1, "y")), "h")
    return jnp.sum((h @ w2) ** 2)


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
def einsum(w1, w2, x):
    h = jax.nn.relu(jnp.einsum("nd,de->ne", x, w1))
    return jnp.sum(jnp.einsum("ne,ef->nf", h, w2) ** 2)


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
def square_function(w1, w2, x):
    return jnp.square(jax.nn.relu(jnp.dot(x, w1)).dot(w2)).sum()


@passes
@without_batch
def dot_product_for_sum_of_squares(w1, w2, x):
    z = jax.nn.relu(x @ w1) @ w2
    return jnp.vdot(z, z)


@passes
@without_batch
def lax_operations(w1, w2, x):
    z = lax.dot(lax.max(lax.dot(x, w1), jnp.zeros((), x.dtype)), w2)
    return jnp.sum(lax.integer_pow(z, 2))


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


@passes
def weights_as_a_tree(w1, w2, x):
    def answer(weights, x):
        return pipeline(weights["in"], weights["out"], x)

    return jax.checkpoint(answer, policy=NO_BATCH)({"in": w1, "out": w2}, x)


@passes
def layers_in_a_loop(w1, w2, x):
    def answer(weights, x):
        for last, w in enumerate(weights):
            x = x @ w if last else jax.nn.relu(x @ w)
        return (x**2).sum()

    return jax.checkpoint(answer, policy=NO_BATCH)((w1, w2), x)


@passes
def weights_closed_over(w1, w2, x):
    return jax.checkpoint(lambda x: pipeline(w1, w2, x), policy=NO_BATCH)(x)


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
def a_partial_policy(w1, w2, x):
    def only(name, prim, *_, dimension_numbers=None, **__):
        return prim.name == name and not any(dimension_numbers[1])

    return jax.checkpoint(pipeline, policy=functools.partial(only, "dot_general"))(w1, w2, x)


@passes
def steps_one_after_another(w1, w2, x):
    steps = (lambda v: v @ w1, jax.nn.relu, lambda v: v @ w2, jnp.square, jnp.sum)
    return jax.checkpoint(lambda x: functools.reduce(lambda v, step: step(v), steps, x), policy=NO_BATCH)(x)


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
