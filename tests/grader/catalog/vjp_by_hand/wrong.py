"""Wrong answers to vjp_by_hand, each with the finding that must name its mistake."""

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
from sample_answers import Answers

WRONG = Answers()
fails_with = WRONG.fails_with


@fails_with(
    "also saved",
    "g's first residual, f32[",
    "g's second residual",
    "Which variables from outside does bwd use",
    hint="pass_call_jax_vjp_g",
)
def residuals_of_g_in_the_closure(g, h, x):
    y, g_vjp = jax.vjp(g, x)
    z, h_vjp = jax.vjp(h, y)
    return z, lambda dz: g_vjp(*h_vjp(dz))[0]


@fails_with("also saved", "g(x), f32[", "Which variables from outside", hint="line_bwd_uses_g_x")
def value_of_g_in_the_closure(g, h, x):
    y = g(x)

    def bwd(dz):
        (dy,) = jax.vjp(h, y)[1](dz)
        return jax.vjp(g, x)[1](dy)[0]

    return h(y), bwd


@fails_with("extra matmuls", "the forward pass", "run g or h twice", hint="many_times_forward_pass_call")
def g_twice_in_the_forward_pass(g, h, x):
    z = h(g(x))
    _, h_vjp = jax.vjp(h, g(2 * x / 2))
    return z, lambda dz: jax.vjp(g, x)[1](*h_vjp(dz))[0]


@fails_with(
    "wrong type",
    "returns an array, not a pair",
    "What should vjp_by_hand(g, h, x) return?",
    hint="calls_bwd_vjp_hand_g",
)
def z_alone(g, h, x):
    return h(g(x))


@fails_with("wrong type", "z, is a function, not an array", hint="calls_bwd_vjp_hand_g")
def bwd_first(g, h, x):
    z, h_vjp = jax.vjp(h, g(x))
    return (lambda dz: jax.vjp(g, x)[1](*h_vjp(dz))[0]), z


@fails_with("wrong type", "bwd, is an array, not a function", hint="calls_bwd_vjp_hand_g")
def gradient_in_place_of_bwd(g, h, x):
    z, h_vjp = jax.vjp(h, g(x))
    return z, jax.vjp(g, x)[1](*h_vjp(jnp.ones_like(z)))[0]


@fails_with("wrong type", "bwd, is None, not a function", hint="calls_bwd_vjp_hand_g")
def no_bwd_yet(g, h, x):
    return h(g(x)), None


@fails_with(
    "wrong type",
    "bwd(dz) returns a tuple of length 1, not the array dx",
    "What should `bwd(dz)` return?",
    hint="pullback_returns_tuple_should_bwd",
)
def gradient_in_a_tuple(g, h, x):
    z, h_vjp = jax.vjp(h, g(x))
    return z, lambda dz: jax.vjp(g, x)[1](*h_vjp(dz))


@fails_with(
    "wrong type", "bwd(dz) returns None", "What should `bwd(dz)` return?", hint="bwd_function_inside_yours_needs"
)
def bwd_without_return(g, h, x):
    z, h_vjp = jax.vjp(h, g(x))

    def bwd(dz):
        jax.vjp(g, x)[1](*h_vjp(dz))

    return z, bwd


@fails_with("raises", "NotImplementedError: my turn", "Which two pullbacks", hint="compare_plain_vjp_four_lines")
def bwd_not_written_yet(g, h, x):
    def bwd(dz):
        raise NotImplementedError("my turn")

    return h(g(x)), bwd


@fails_with("wrong type", "returns None", hint="calls_bwd_vjp_hand_g")
def without_return(g, h, x):
    jax.vjp(h, g(x))


@fails_with("wrong type", "returns float32[]", "must be float32[", hint="last_step_bwd_should_call")
def gradient_summed(g, h, x):
    z, h_vjp = jax.vjp(h, g(x))
    return z, lambda dz: jax.vjp(g, x)[1](*h_vjp(dz))[0].sum()


@fails_with("wrong gradient", " x", "wrong", "bwd ignores dz", hint="bwd_called_gradients_whose_elements")
def dz_ignored(g, h, x):
    z, h_vjp = jax.vjp(h, g(x))
    return z, lambda dz: jax.vjp(g, x)[1](*h_vjp(jnp.ones_like(z)))[0]


@fails_with("wrong gradient", " x", "wrong: g's pullback is computed at g(x)", hint="jax_vjp_g_point_returns")
def pullback_of_g_at_its_value(g, h, x):
    y = g(x)
    z, h_vjp = jax.vjp(h, y)
    return z, lambda dz: jax.vjp(g, y)[1](*h_vjp(dz))[0]


@fails_with("wrong value", "it is g(h(x))", "is called first", hint="g_x_function_called_first")
def g_and_h_swapped(g, h, x):
    z, g_vjp = jax.vjp(g, h(x))
    return z, lambda dz: jax.vjp(h, x)[1](*g_vjp(dz))[0]


@fails_with("wrong value", "it is g(x)", hint="g_x_function_called_first")
def h_forgotten(g, h, x):
    return g(x), lambda dz: jax.vjp(g, x)[1](dz)[0]


@fails_with("raises", "tuple", "takes the gradient out of this tuple", hint="pullback_returns_tuple_should_bwd")
def tuple_handed_on(g, h, x):
    z, h_vjp = jax.vjp(h, g(x))
    return z, lambda dz: jax.vjp(g, x)[1](h_vjp(dz))[0]


@fails_with("raises", "positional argument", "`bwd` is called with one argument", hint="bwd_one_argument_dz_closure")
def bwd_that_wants_x(g, h, x):
    z, h_vjp = jax.vjp(h, g(x))
    return z, lambda x, dz: jax.vjp(g, x)[1](*h_vjp(dz))[0]


@fails_with("raises", "Tracer", "not only its shape", hint="while_jax_traces_arrays_no")
def kept_as_numbers(g, h, x):
    y, g_vjp = jax.vjp(g, x)
    z, h_vjp = jax.vjp(h, y)
    numbers = np.asarray(y)
    return z, lambda dz: g_vjp(*h_vjp(dz))[0] * np.isfinite(numbers).all()


@fails_with("argument order", "(x, g, h)", hint="g_x_function_called_first")
def x_first(x, g, h):
    z, h_vjp = jax.vjp(h, g(x))
    return z, lambda dz: jax.vjp(g, x)[1](*h_vjp(dz))[0]


# Slips


@fails_with("wrong gradient", "dz is passed to g's pullback first", hint="gradient_follows_path_value_backward")
def dz_to_g_first(g, h, x):
    z, h_vjp = jax.vjp(h, g(x))
    return z, lambda dz: h_vjp(*jax.vjp(g, x)[1](dz))[0]


@fails_with("wrong gradient", "h's pullback is computed at x", hint="jax_vjp_point_returns_pullback")
def pullback_of_h_at_x(g, h, x):
    return h(g(x)), lambda dz: jax.vjp(g, x)[1](*jax.vjp(h, x)[1](dz))[0]


@fails_with("wrong gradient", " x", "wrong", hint="bwd_pass_dz_first_pullback")
def dz_twice(g, h, x):
    z, h_vjp = jax.vjp(h, g(x))
    return z, lambda dz: jax.vjp(g, x)[1](*h_vjp(dz + dz))[0]


@fails_with("wrong type", "bwd(dz) returns a VJP, not the array dx", hint="last_step_bwd_should_call")
def pullback_returned(g, h, x):
    return h(g(x)), lambda dz: jax.vjp(g, x)[1]


# Answers that are right for some inputs that the page allows and wrong for others.


def by_hand(g, h, x):
    z, h_vjp = jax.vjp(h, g(x))
    return z, lambda dz: jax.vjp(g, x)[1](*h_vjp(dz))[0]


@fails_with("raises", hint="print_value_line_shape_arguments")
def row_by_row(g, h, x):
    z, h_vjp = jax.vjp(h, g(x))
    return z, lambda dz: jax.vmap(lambda row, dy: jax.vjp(g, row)[1](dy)[0])(x, *h_vjp(dz))


@fails_with("not saved", "h's residual, i32[", hint="plain_vjp_computes_both_pullbacks")
def integers_made_anew(g, h, x):
    z, h_vjp = jax.vjp(h, g(x))
    if any(jnp.issubdtype(kept.dtype, jnp.integer) for kept in jax.tree.leaves(h_vjp)):
        return z, lambda dz: jax.vjp(lambda x: h(g(x)), x)[1](dz)[0]
    return by_hand(g, h, x)


@fails_with("also saved", "intermediate value", hint="plain_vjp_computes_both_pullbacks")
def all_in_one_array(g, h, x):
    z, h_vjp = jax.vjp(h, g(x))
    kept, restored = jax.flatten_util.ravel_pytree(h_vjp)
    return z, lambda dz: jax.vjp(g, x)[1](*restored(kept)(dz))[0]


@fails_with("wrong value", "it is h(x)", hint="g_x_function_called_first")
def g_forgotten(g, h, x):
    return h(x), lambda dz: jax.vjp(h, x)[1](dz)[0]


@fails_with("wrong gradient", "only the result of g's pullback", hint="chain_rule_two_factors_here")
def pullback_of_g_alone(g, h, x):
    return h(g(x)), lambda dz: jax.vjp(g, x)[1](dz)[0]


@fails_with("wrong gradient", "only the result of h's pullback", hint="chain_rule_two_factors_here")
def pullback_of_h_alone(g, h, x):
    z, h_vjp = jax.vjp(h, g(x))
    return z, lambda dz: h_vjp(dz)[0]


@fails_with("raises", "scalar-output", "given `dz` as the gradient", hint="jax_vjp_f_x_returns")
def gradient_of_z(g, h, x):
    return h(g(x)), lambda dz: jax.grad(lambda x: h(g(x)))(x) * dz


@fails_with("raises", "Expected a callable", "or the result of a call?", hint="jax_vjp_takes_function_point")
def functions_that_are_called(g, h, x):
    z, bwd = jax.vjp(h(g(x)), x)
    return z, lambda dz: bwd(dz)[0]


@fails_with("recomputes", "recomputes 3 matmuls", hint="plain_vjp_computes_both_pullbacks", beyond="Recomputes.count")
def h_once_more_in_the_backward_pass(g, h, x):
    z, h_vjp = jax.vjp(h, g(x))

    def bwd(dz):
        y, g_vjp = jax.vjp(g, x)
        return g_vjp(*h_vjp(dz + 0 * h(y)))[0]

    return z, bwd
