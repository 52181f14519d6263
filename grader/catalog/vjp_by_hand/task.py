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

from grader.answers.evidence import FailureKind
from grader.answers.failures import Unusable, failure_of, message_of, refuse_none
from grader.exercises.spec import Case

parameters = ("g", "h", "x")
ranges: dict = {}
signature = "vjp_by_hand(g, h, x)"


def cases(rng):
    """Functions at shapes drawn anew. All weights of a case are square, so that g and h can be mixed up; g has two
    products that its backward pass needs, and h keeps one value, another one in each case."""
    return (
        _case("sines", rng, jnp.sin, jnp.cos, _sine_of_product),
        _case("h keeps its input", rng, jnp.tanh, lambda u: 1 - jnp.tanh(u) ** 2, _square),
        _case("vmap over x", rng, jnp.sin, jnp.cos, _positive_part, batch=(2,)),
    )


def _sine_of_product(y, c, name):
    u = name(name(y, "g(x)") @ c, "h's product")
    name(jnp.cos(u), "what h's pullback holds")
    return jnp.sin(u)


def _square(y, c, name):
    name(y, "what h's pullback holds")
    return y * y


def _positive_part(y, c, name):
    u = name(name(y, "g(x)") @ c, "h's product")
    mask = name(u > 0, "what h's pullback holds")
    return jnp.where(mask, u, 0)


def _case(name, rng, activation, derivative, last, batch=(), shape=None):
    rows, width = shape or map(int, rng.permutation([5, 6, 7, 8, 9])[:2])
    a, b, c = (_weights(rng, width) for _ in range(3))

    def g(x, name=_unnamed):
        u = name(x @ a, "g's first product")
        name(derivative(u), "g's first residual")
        v = name(name(activation(u), "g's inner value") @ b, "g's second product")
        name(derivative(v), "g's second residual")
        return activation(v)

    def h(y, name=_unnamed):
        return last(y, c, name)

    def function(x, *, name=_unnamed):
        return h(g(x, name), name)

    return Case(
        name,
        (jax.ShapeDtypeStruct((*batch, rows, width), jnp.float32),),
        transform=jax.vmap if batch else lambda f: f,
        apply=lambda answer: _differentiable(answer, lambda x: g(x), lambda y: h(y)),
        function=function,
    )


def _unnamed(value, name):
    return value


def _weights(rng, width):
    return (rng.uniform(0.5, 1, (width, width)) * rng.choice([-1, 1], (width, width))).astype(np.float32)


def _differentiable(answer, g, h):
    """The function of x that an answer computes, whose derivative is the answer's own `bwd`."""

    def forward(x):
        returned = answer(g, h, x)
        refuse_none(answer, returned)
        if not isinstance(returned, tuple | list) or len(returned) != 2:
            _refuse(f"Your answer returns {_kind(returned)}, not a pair of z and bwd.")
        z, bwd = returned
        if not isinstance(z, jax.Array):
            _refuse(f"The first of the two that your answer returns, z, is {_kind(z)}, not an array.")
        if not callable(bwd):
            _refuse(f"The second of the two that your answer returns, bwd, is {_kind(bwd)}, not a function.")
        try:
            traced, dx = jax.make_jaxpr(bwd, return_shape=True)(z)
        except NotImplementedError as error:
            # Where the forward pass is there, the answer has been attempted.
            raise Unusable(message_of(error), FailureKind.RAISED, failure_of(error).source) from error
        if not isinstance(dx, jax.ShapeDtypeStruct):
            _refuse(f"bwd(dz) returns {_kind(dx)}, not the array dx.")
        if (dx.shape, dx.dtype) != (x.shape, x.dtype):
            got, asked = (f"{array.dtype}{list(array.shape)}" for array in (dx, x))
            _refuse(f"bwd(dz) returns an array that cannot be dx: it is {got}, and x is {asked}.")
        return z, jax.tree_util.Partial(functools.partial(_run, traced.jaxpr), traced.consts)

    function = jax.custom_vjp(lambda x: forward(x)[0])
    function.defvjp(forward, lambda kept, dz: (kept(dz),))
    return function


def _run(jaxpr, consts, dz):
    return jaxpr_as_fun(ClosedJaxpr(jaxpr, consts))(dz)[0]


def _kind(value) -> str:
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of length {len(value)}"
    if value is None:
        return "None"
    return "an array" if isinstance(value, jax.Array) else f"a {type(value).__name__}"


def _refuse(text):
    raise Unusable(text)


shown = _case(
    "where g is two products with a sine between, h a cosine",
    np.random.default_rng(0),
    jnp.sin,
    jnp.cos,
    _sine_of_product,
    shape=(256, 64),
)
