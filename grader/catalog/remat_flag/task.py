"""What an answer is tried on."""

import functools
import operator

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from grader.exercises.spec import Case

parameters = ("f",)
ranges: dict = {}
signature = "remat_flag(f)"


def cases(rng):
    """Three functions, whose flags stand at three places and have three names, at shapes drawn anew."""
    n, a, b = map(int, rng.permutation([5, 6, 7, 8, 9])[:3])
    two_layers, layer, wave = _arrays((a, b), (b, a), (n, a)), _arrays((a, b), (n, a)), _arrays((2, n, a))
    return (
        # With so few arguments a flag that was counted from the front is missing, and the error speaks of positions.
        Case(
            "f(x, soft) under vmap",
            wave,
            transform=jax.vmap,
            apply=lambda answer: _called(answer(lambda x, soft: _wave(x, soft)), False),
            function=functools.partial(_wave, soft=False),
        ),
        Case("f(w1, w2, x, True)", two_layers, **_with(_two_layers, True)),
        Case("f(w1, w2, x, False)", two_layers, **_with(_two_layers, False)),
        Case(
            "f(w, x, True) and then f(w, x, False)",
            layer,
            apply=lambda answer: _called(answer(lambda w, x, exact: _layer(w, x, exact)), True, False),
            function=lambda w, x, *, name: _layer(w, x, True, name=name) + _layer(w, x, False, name=name),
        ),
    )


def _two_layers(w1, w2, x, training, *, name=checkpoint_name):
    h = name(jnp.sin(x @ w1), "h")
    if training:
        h = name(h * jnp.exp(-2 * h**2), "h, damped")
    z = name(h @ w2, "z")
    return jnp.sum(jnp.sin(z) * z)


def _layer(w, x, exact, *, name=checkpoint_name):
    y = name(x @ w, "x @ w")
    if not exact:
        return jnp.sum(jnp.tanh(y) ** 2)
    return jnp.sum(jnp.sin(y) * y)


def _wave(x, soft, *, name=checkpoint_name):
    return jnp.sum(jnp.tanh(x) if soft else name(jnp.exp(x), "exp(x)"))


def _with(function, flag):
    # What an answer is given has arrays and a flag for arguments, and nothing else.
    return {
        "apply": lambda answer: _called(answer(lambda w1, w2, x, training: function(w1, w2, x, training)), flag),
        "function": functools.partial(function, training=flag),
    }


def _called(g, *flags):
    """The function of arrays alone that `g` is with these flags, summed up; `g` itself where it is no function."""
    if not callable(g):
        return g
    return lambda *arrays: functools.reduce(operator.add, [g(*arrays, flag) for flag in flags])


def _arrays(*shapes):
    return tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)


shown = Case(
    "for two layers of the checker's, the flag being True",
    _arrays((64, 256), (256, 64), (128, 64)),
    **_with(_two_layers, True),
)
