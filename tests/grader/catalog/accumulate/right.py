"""Right answers to accumulate, spelled in many ways."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax.flatten_util import ravel_pytree
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes


def cut(batch, k):
    return jax.tree.map(lambda array: array.reshape(k, -1, *array.shape[1:]), batch)


def divided(total, weight, gradients):
    return total / weight, jax.tree.map(lambda gradient: gradient / weight, gradients)


def zeros(loss, params, rows):
    like = (*jax.eval_shape(loss, params, rows), params)
    return jax.tree.map(lambda array: jnp.zeros(array.shape, array.dtype), like)


@passes
def rows_by_number(loss, params, batch, k):
    def rows(place):
        return jax.tree.map(lambda array: jax.lax.dynamic_slice_in_dim(array, place, len(array) // k), batch)

    def turn(place, sums):
        (total, weight), gradients = jax.value_and_grad(loss, has_aux=True)(params, rows(place * (len(batch[0]) // k)))
        return jax.tree.map(jnp.add, sums, (total, weight, gradients))

    return divided(*jax.lax.fori_loop(0, k, turn, zeros(loss, params, rows(0))))


@passes
def while_there_are_rows(loss, params, batch, k):
    each = cut(batch, k)

    def turn(state):
        place, *sums = state
        rows = jax.tree.map(lambda array: array[place], each)
        (total, weight), gradients = jax.value_and_grad(loss, has_aux=True)(params, rows)
        return place + 1, *jax.tree.map(jnp.add, tuple(sums), (total, weight, gradients))

    first = zeros(loss, params, jax.tree.map(lambda array: array[0], each))
    return divided(*jax.lax.while_loop(lambda state: state[0] < k, turn, (0, *first))[1:])


@passes
def pullbacks(loss, params, batch, k):
    def body(sums, rows):
        (total, weight), pullback = jax.vjp(lambda params: loss(params, rows), params)
        (gradients,) = pullback((jnp.ones_like(total), jnp.zeros_like(weight)))
        return jax.tree.map(jnp.add, sums, (total, weight, gradients)), None

    each = cut(batch, k)
    first = zeros(loss, params, jax.tree.map(lambda array: array[0], each))
    return divided(*jax.lax.scan(body, first, each)[0])


@passes
def one_vector_of_gradients(loss, params, batch, k):
    flat, unravel = ravel_pytree(params)

    def body(sums, rows):
        def one(flat):
            total, weight = loss(unravel(flat), rows)
            return total, jnp.stack([total, weight])

        gradient, both = jax.grad(one, has_aux=True)(flat)
        return (sums[0] + both, sums[1] + gradient), None

    (both, gradient), _ = jax.lax.scan(body, (jnp.zeros(2, flat.dtype), jnp.zeros_like(flat)), cut(batch, k))
    return both[0] / both[1], unravel(gradient / both[1])


@passes
def weights_known_before(loss, params, batch, k):
    """Count the tokens first, like some trainers; then each microbatch's gradient is that of its part of the mean."""
    each = cut(batch, k)
    weight = jnp.sum(jax.lax.map(lambda rows: loss(params, rows)[1], each))

    def body(sums, rows):
        both = jax.value_and_grad(lambda params: loss(params, rows)[0] / weight)(params)
        return jax.tree.map(jnp.add, sums, both), None

    return jax.lax.scan(body, (jnp.zeros_like(weight), jax.tree.map(jnp.zeros_like, params)), each)[0]


@passes
def nnx_gradients(loss, params, batch, k):
    def turn(sums, rows):
        (total, weight), gradients = nnx.value_and_grad(loss, has_aux=True)(params, rows)
        return jax.tree.map(jnp.add, sums, (total, weight, gradients)), None

    zero = jnp.zeros((), batch[0].dtype)
    rows = jax.tree.map(lambda each: jnp.stack(jnp.split(each, k)), batch)
    (total, weight, sums), _ = jax.lax.scan(turn, (zero, zero, jax.tree.map(jnp.zeros_like, params)), rows)
    return total / weight, jax.tree.map(lambda each: each / weight, sums)


@passes
def sums_in_float32(loss, params, batch, k):
    def add(sums, rows):
        (total, weight), gradients = jax.value_and_grad(loss, has_aux=True)(params, rows)
        return jax.tree.map(lambda a, b: a + b.astype(jnp.float32), sums, (total, weight, gradients)), None

    zero = jnp.zeros(())
    sums = zero, zero, jax.tree.map(lambda p: jnp.zeros(p.shape), params)
    (total, weight, gradients), _ = jax.lax.scan(add, sums, cut(batch, k))
    return total / weight, jax.tree.map(lambda a, p: (a / weight).astype(p.dtype), gradients, params)
