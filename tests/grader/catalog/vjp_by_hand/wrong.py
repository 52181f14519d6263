"""Wrong answers to vjp_by_hand, each with the finding that must name its mistake."""

import jax
import jax.numpy as jnp
import numpy as np
from sample_answers import Answers

WRONG = Answers()
fails_with = WRONG.fails_with
ALL = ("sines", "h keeps its input", "vmap over x")


@fails_with(
    "also saved", "g's first residual, f32[", "g's second residual", "Which names from outside does bwd use", cases=ALL
)
def residuals_of_g_in_the_closure(g, h, x):
    y, g_vjp = jax.vjp(g, x)
    z, h_vjp = jax.vjp(h, y)
    return z, lambda dz: g_vjp(*h_vjp(dz))[0]


@fails_with("also saved", "g(x), f32[", "Which names from outside", cases=("sines", "vmap over x"))
def value_of_g_in_the_closure(g, h, x):
    y = g(x)

    def bwd(dz):
        (dy,) = jax.vjp(h, y)[1](dz)
        return jax.vjp(g, x)[1](dy)[0]

    return h(y), bwd


@fails_with("also saved", "g(x), f32[", "Which names from outside", cases=("sines", "vmap over x"))
def pullback_of_h_in_bwd(g, h, x):
    y = g(x)
    z = h(y)

    def bwd(dz):
        _, h_vjp = jax.vjp(h, y)
        _, g_vjp = jax.vjp(g, x)
        return g_vjp(*h_vjp(dz))[0]

    return z, bwd


@fails_with("not saved", "what h's pullback holds", "so that bwd need not run h again", cases=ALL)
def everything_again(g, h, x):
    def bwd(dz):
        return jax.vjp(lambda x: h(g(x)), x)[1](dz)[0]

    return h(g(x)), bwd


@fails_with("recomputes", "4 matmuls again", "2 matmuls recomputed", "how often each", cases=ALL)
def g_twice_in_the_backward_pass(g, h, x):
    z, h_vjp = jax.vjp(h, g(x))

    def bwd(dz):
        dy = h_vjp(dz)[0] / 2
        return jax.vjp(g, x)[1](dy)[0] + jax.vjp(g, x)[1](dy)[0]

    return z, bwd


@fails_with("extra matmuls", "the forward pass", "Is g or h run twice", cases=ALL)
def g_twice_in_the_forward_pass(g, h, x):
    z = h(g(x))
    _, h_vjp = jax.vjp(h, g(2 * x / 2))
    return z, lambda dz: jax.vjp(g, x)[1](*h_vjp(dz))[0]


@fails_with("extra matmuls", "with the cotangent mixed in")
def everything_again_behind_the_cotangent(g, h, x):
    z, h_vjp = jax.vjp(h, g(x))

    def bwd(dz):
        hidden = x + 0 * dz.sum()
        (dy,) = h_vjp(dz)
        return jax.vjp(g, x)[1](dy)[0] + 0 * g(hidden)

    return z, bwd


@fails_with("wrong type", "returns an array, not a pair", "What should vjp_by_hand(g, h, x) return?", cases=ALL)
def z_alone(g, h, x):
    return h(g(x))


@fails_with("wrong type", "z, is a function, not an array", cases=ALL)
def bwd_first(g, h, x):
    z, h_vjp = jax.vjp(h, g(x))
    return (lambda dz: jax.vjp(g, x)[1](*h_vjp(dz))[0]), z


@fails_with("wrong type", "bwd, is an array, not a function", cases=ALL)
def gradient_in_place_of_bwd(g, h, x):
    z, h_vjp = jax.vjp(h, g(x))
    return z, jax.vjp(g, x)[1](*h_vjp(jnp.ones_like(z)))[0]


@fails_with("wrong type", "bwd, is None, not a function", cases=ALL)
def no_bwd_yet(g, h, x):
    return h(g(x)), None


@fails_with(
    "wrong type", "bwd(dz) returns a tuple of length 1, not the array dx", "What should bwd(dz) return?", cases=ALL
)
def gradient_in_a_tuple(g, h, x):
    z, h_vjp = jax.vjp(h, g(x))
    return z, lambda dz: jax.vjp(g, x)[1](*h_vjp(dz))


@fails_with("wrong type", "bwd(dz) returns None", "What should bwd(dz) return?", cases=ALL)
def bwd_without_return(g, h, x):
    z, h_vjp = jax.vjp(h, g(x))

    def bwd(dz):
        jax.vjp(g, x)[1](*h_vjp(dz))

    return z, bwd


@fails_with("raises", "NotImplementedError: my turn", "which two pullbacks", cases=ALL)
def bwd_not_written_yet(g, h, x):
    def bwd(dz):
        raise NotImplementedError("my turn")

    return h(g(x)), bwd


@fails_with("wrong type", "bwd(dz) returns None", cases=ALL)
def bwd_with_an_empty_body(g, h, x):
    def bwd(dz):
        """The gradient of x."""

    return h(g(x)), bwd


@fails_with("wrong type", "returns None", cases=ALL)
def without_return(g, h, x):
    jax.vjp(h, g(x))


@fails_with("wrong type", "cannot be dx", "float32[], and x is float32[", cases=ALL)
def gradient_summed(g, h, x):
    z, h_vjp = jax.vjp(h, g(x))
    return z, lambda dz: jax.vjp(g, x)[1](*h_vjp(dz))[0].sum()


@fails_with("wrong gradient", "with respect to x is wrong", "takes part", cases=ALL)
def dz_ignored(g, h, x):
    z, h_vjp = jax.vjp(h, g(x))
    return z, lambda dz: jax.vjp(g, x)[1](*h_vjp(jnp.ones_like(z)))[0]


@fails_with("wrong gradient", "with respect to x is wrong", cases=ALL)
def pullback_of_g_at_its_value(g, h, x):
    y = g(x)
    z, h_vjp = jax.vjp(h, y)
    return z, lambda dz: jax.vjp(g, y)[1](*h_vjp(dz))[0]


@fails_with("wrong value", "this is g(h(x))", "comes first", cases=ALL)
def g_and_h_swapped(g, h, x):
    z, g_vjp = jax.vjp(g, h(x))
    return z, lambda dz: jax.vjp(h, x)[1](*g_vjp(dz))[0]


@fails_with("wrong value", "this is g(x)", cases=ALL)
def h_forgotten(g, h, x):
    return g(x), lambda dz: jax.vjp(g, x)[1](dz)[0]


@fails_with("raises", "tuple", "where do you take the gradient out", cases=ALL)
def tuple_handed_on(g, h, x):
    z, h_vjp = jax.vjp(h, g(x))
    return z, lambda dz: jax.vjp(g, x)[1](h_vjp(dz))[0]


@fails_with("raises", "positional argument", "It gets dz and nothing else", cases=ALL)
def bwd_that_wants_x(g, h, x):
    z, h_vjp = jax.vjp(h, g(x))
    return z, lambda x, dz: jax.vjp(g, x)[1](*h_vjp(dz))[0]


@fails_with("raises", "Tracer", "where only its shape is known")
def kept_as_numbers(g, h, x):
    y, g_vjp = jax.vjp(g, x)
    z, h_vjp = jax.vjp(h, y)
    numbers = np.asarray(y)
    return z, lambda dz: g_vjp(*h_vjp(dz))[0] * np.isfinite(numbers).all()


@fails_with("argument order", "(x, g, h)")
def x_first(x, g, h):
    z, h_vjp = jax.vjp(h, g(x))
    return z, lambda dz: jax.vjp(g, x)[1](*h_vjp(dz))[0]
