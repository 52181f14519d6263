"""Right answers to vjp_by_hand, spelled in many ways."""

import functools

import jax
import jax.numpy as jnp
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes


@passes
def closure(g, h, x):
    z, h_vjp = jax.vjp(h, g(x))
    return z, lambda dz: jax.vjp(g, x)[1](*h_vjp(dz))[0]


@passes
def gradient_of_a_product(g, h, x):
    z, h_vjp = jax.vjp(h, g(x))

    @jax.jit
    def bwd(dz):
        (dy,) = h_vjp(dz)
        return jax.grad(lambda x: (g(x) * dy).sum())(x)

    return z, bwd


@passes
def linear_transpose(g, h, x):
    y = g(x)
    z, h_jvp = jax.linearize(h, y)

    def bwd(dz):
        (dy,) = jax.linear_transpose(h_jvp, y)(dz)
        return jax.linear_transpose(jax.linearize(g, x)[1], x)(dy)[0]

    return z, bwd


@passes
def checkpoint(g, h, x):
    z, f_vjp = jax.vjp(lambda x: h(jax.checkpoint(g)(x)), x)
    return z, lambda dz: f_vjp(dz)[0]


@passes
def as_a_class(g, h, x):
    class Backward:
        def __init__(self):
            self.h_vjp = functools.partial(jax.vjp, h)(g(x))[1]

        def __call__(self, dz):
            return jax.vjp(g, x)[1](self.h_vjp(dz)[0])[0]

    backward = Backward()
    z, backward.h_vjp = jax.vjp(h, g(x))
    return [z, backward]


@passes
def a_generator(g, h, x):
    def passes():
        z, h_vjp = jax.vjp(h, g(x))
        dz = yield z
        yield jax.vjp(g, x)[1](*h_vjp(dz))[0]

    both = passes()
    return next(both), both.send


@passes
def with_a_barrier(g, h, x):
    z, h_vjp = jax.vjp(h, g(x))

    def bwd(dz):
        again, (dy,) = jax.lax.optimization_barrier((x, h_vjp(dz)))
        return jax.vjp(g, again)[1](dy)[0]

    return z, bwd


@passes
def gradient_of_a_dot_product(g, h, x):
    z, h_vjp = jax.vjp(h, g(x))
    return z, lambda dz: jax.grad(lambda x: jnp.vdot(g(x), *h_vjp(dz)))(x)
