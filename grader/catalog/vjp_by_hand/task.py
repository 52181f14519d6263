"""What an answer is tried on.

An answer brings its backward pass along: `bwd` is a function, and what it closes over is what the forward pass keeps.
So that it can be differentiated like any other, it is made a `jax.custom_vjp` whose residuals are just that: `bwd` is
traced, and the values that this trace takes from outside are handed from one pass to the other. Nothing else can be.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from grader.exercises import case_functions
from grader.exercises.spec import Case, Integers, OneOf
from grader.tracing.evidence import FailureKind
from grader.tracing.failures import Unusable, failure_of, message_of, refuse_none

ranges = {
    "saved": OneOf(("floats", "its input", "a mask", "integers and floats")),
    "axes": Integers(1, 3),
    "n": Integers(1, 32),
    "w": Integers(1, 32),
    "dtype": OneOf(("float32", "float16")),
    "called": case_functions.CALLED,
}
signature = "vjp_by_hand(g, h, x)"


def cases(rng):
    """Functions whose values all differ: h saves another value in each case, and g has two matmuls that its backward
    pass needs. All weights are square, so that g and h can be mixed up."""
    some, between = map(int, rng.integers(4, 32, 2))
    jit, vmap = map(str, rng.permutation(["jax.jit", "jax.vmap"]))
    flat, deep = ("float16", (between,)), ("float32", (2, 32, 1))
    (dtype, shape), (other_dtype, other_shape) = (flat, deep) if rng.integers(2) else (deep, flat)
    return (
        _make_case("floats", rng, (int(rng.choice([rng.integers(4, 9), 32])), some)),
        _make_case("its input", rng, shape, dtype, jit),
        _make_case("a mask", rng, other_shape, other_dtype, vmap),
        _make_case("integers and floats", rng, (1, 32)),
    )


def case(rng, saved, axes, n, w, dtype, called):
    """Functions of this kind, and an argument of this shape."""
    return _make_case(saved, rng, (2, n, w)[-axes:], dtype, called)


def _sine_of_product(y, c, name):
    u = name(name(y, "g(x)") @ c, "h's matmul")
    name(jnp.cos(u), "h's residual")
    return jnp.sin(u)


def _square(y, c, name):
    name(y, "h's residual")
    return y * y


def _positive_part(y, c, name):
    u = name(name(y, "g(x)") @ c, "h's matmul")
    mask = name(u > 0, "h's residual")
    return jnp.where(mask, u, 0)


def _in_three_pieces(y, c, name):
    piece = name((name(y, "g(x)") > 0).astype(jnp.int32) + (y > 0.5), "h's residual")
    u = name(jax.lax.select_n(piece, y - 1, y / 2, 3 * y), "h's pieces")
    name(jnp.cos(u), "h's other residual")
    return jnp.sin(u)


_H = {
    "floats": _sine_of_product,
    "its input": _square,
    "a mask": _positive_part,
    "integers and floats": _in_three_pieces,
}


def _make_case(saved, rng, shape, dtype="float32", called="directly"):
    batch = (2,) if called == "jax.vmap" else ()
    structure = {"saved": saved, "axes": len(shape), "w": shape[-1], "dtype": dtype, "called": called}
    return _draw_functions(
        f"h saves {saved}{case_functions.where(called)}",
        rng,
        _H[saved],
        jax.ShapeDtypeStruct((*batch, *shape), dtype),
        transform=case_functions.transform(called),
        structure=structure | ({"n": shape[-2]} if len(shape) > 1 else {}),
    )


def _draw_functions(name, rng, last, x, **fields):
    a, b, c = (_draw_weights(rng, x.shape[-1]) for _ in range(3))
    # tanh where h saves its input only: the residual of a sine, a cosine, is not a value of h there.
    activation, derivative = (jnp.tanh, lambda u: 1 - jnp.tanh(u) ** 2) if last is _square else (jnp.sin, jnp.cos)

    def g(x, name=_without_name):
        # Turned over and added: no row of what g returns is made of one row of x alone.
        u = name((x + jnp.flip(x, 0)) @ a.astype(x.dtype), "g's first matmul")
        name(derivative(u), "g's first residual")
        v = name(name(activation(u), "g's inner value") @ b.astype(x.dtype), "g's second matmul")
        name(derivative(v), "g's second residual")
        return activation(v)

    def h(y, name=_without_name):
        return last(y, c.astype(y.dtype), name)

    def function(x, *, name=_without_name):
        return h(g(x, name), name)

    return Case(
        name,
        (x,),
        apply=lambda answer: _differentiable_answer(answer, lambda x: g(x), lambda y: h(y)),
        function=function,
        **fields,
    )


def _without_name(value, name):
    return value


def _draw_weights(rng, width):
    size = 2 / width**0.5
    return (size * rng.uniform(0.5, 1, (width, width)) * rng.choice([-1, 1], (width, width))).astype(np.float32)


def _differentiable_answer(answer, g, h):
    """Return the function of x that an answer computes, whose derivative is the answer's own `bwd`."""

    def forward(x):
        returned = answer(g, h, x)
        refuse_none(answer, returned)
        if not isinstance(returned, tuple | list) or len(returned) != 2:
            _refuse_answer(f"Your answer returns {_kind_of(returned)}, not a pair of z and bwd.")
        z, bwd = returned
        if not isinstance(z, jax.Array):
            _refuse_answer(f"The first value that your answer returns, z, is {_kind_of(z)}, not an array.")
        if not callable(bwd):
            _refuse_answer(f"The second value that your answer returns, bwd, is {_kind_of(bwd)}, not a function.")
        try:
            traced, dx = jax.make_jaxpr(bwd, return_shape=True)(z)
        except NotImplementedError as error:
            # Where the forward pass is there, the answer has been attempted.
            raise Unusable(message_of(error), FailureKind.RAISED, failure_of(error).source) from error
        if not isinstance(dx, jax.ShapeDtypeStruct):
            _refuse_answer(f"bwd(dz) returns {_kind_of(dx)}, not the array dx.")
        if (dx.shape, dx.dtype) != (x.shape, x.dtype):
            got, asked = (f"{array.dtype}{list(array.shape)}" for array in (dx, x))
            _refuse_answer(f"bwd(dz) returns {got}, but dx must be {asked} as x is.")
        return z, jax.tree_util.Partial(functools.partial(_run_jaxpr, traced.jaxpr), traced.consts)

    function = jax.custom_vjp(lambda x: forward(x)[0])
    function.defvjp(forward, lambda saved_vjp, dz: (saved_vjp(dz),))
    return function


def _run_jaxpr(jaxpr, consts, dz):
    return jaxpr_as_fun(ClosedJaxpr(jaxpr, consts))(dz)[0]


def _kind_of(value) -> str:
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of length {len(value)}"
    if value is None:
        return "None"
    return "an array" if isinstance(value, jax.Array) else f"a {type(value).__name__}"


def _refuse_answer(text):
    raise Unusable(text)


shown = _draw_functions(
    "for a g with two matmuls and an h with one",
    np.random.default_rng(0),
    _sine_of_product,
    jax.ShapeDtypeStruct((256, 64), jnp.float32),
)
