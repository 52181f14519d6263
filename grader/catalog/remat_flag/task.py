"""What an answer is tried on."""

import functools
import inspect
import operator
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from grader.exercises.case_functions import CALLED, float32_arrays, transform
from grader.exercises.spec import Case, Integers, OneOf

ranges = {
    "n": Integers(1, 6),
    "dtype": OneOf(("float32", "float16")),
    "called": CALLED,
}
signature = "remat_flag(f)"


def cases(rng):
    """Return functions whose flags are at five positions and have several names, with random shapes."""
    n, a, b = map(int, rng.permutation([5, 6, 7, 8, 9])[:3])
    two_layers, layer, wave = (
        float32_arrays((a, b), (b, a), (n, a)),
        float32_arrays((a, b), (n, a)),
        float32_arrays((2, n, a)),
    )
    return (
        # With few arguments, a flag that is counted from the front does not exist, and the error mentions positions.
        Case(
            "f(x, soft) under vmap",
            wave,
            transform=jax.vmap,
            apply=lambda answer: _called(answer(lambda x, soft: _wave(x, soft)), ("x",), False),
            function=functools.partial(_wave, soft=False),
            structure={"n": 1, "dtype": "float32", "called": "jax.vmap"},
        ),
        Case("f(w1, w2, x, True)", two_layers, **_with_flag(_two_layers, True), structure=_structure_of(3)),
        Case("f(w1, w2, x, False)", two_layers, **_with_flag(_two_layers, False), structure=_structure_of(3)),
        Case(
            "f(w, x, True) and then f(w, x, False)",
            layer,
            apply=lambda answer: _called(answer(lambda w, x, exact: _layer(w, x, exact)), ("w", "x"), True, False),
            function=lambda w, x, *, name: _layer(w, x, True, name=name) + _layer(w, x, False, name=name),
            structure=_structure_of(2),
        ),
        Case(
            "f(x, True) and then f(x, False) for a scalar x",
            float32_arrays(()),
            apply=lambda answer: _called(answer(lambda x, sharp: _scalar(x, sharp)), ("x",), True, False),
            function=lambda x, *, name: _scalar(x, True) + _scalar(x, False),
            structure=_structure_of(1),
        ),
        _flags_of_many((6,), (False, True, False), rng),
        _flags_of_many((4, 5), (bool(rng.integers(2)),), rng, dtype="float16", called="jax.jit", gain=()),
    )


def fits(structure):
    """Return whether the function has more than two arrays; the fixed cases cover one and two arrays."""
    return structure["n"] > 2


def case(rng, n, dtype, called):
    """Return a case with a function of a number of arrays and a flag, called with one flag or with both."""
    flags = ((True,), (False,), (True, False), (False, True))[rng.integers(4)]
    return _flags_of_many((n,), flags, rng, dtype, called)


def _structure_of(n):
    return {"n": n, "dtype": "float32", "called": "directly"}


def _flags_of_many(counts, flags, rng, dtype="float32", called="directly", gain=None):
    """Return functions of a number of arrays. Each takes the first arrays and x, with each of these flags."""
    rows, width = map(int, rng.permutation([5, 6, 7, 8])[:2])
    calls = {n: _function_of_n(n, "causal", _stack) for n in counts}
    most = max(counts)

    def together(made):
        """Return the sum of the results of functions of different numbers of arrays."""
        if not all(map(callable, made)):
            return made[0]
        of_each = [_called(g, (*"abcdef"[: n - 1], "x"), *flags) for n, g in zip(counts, made, strict=True)]

        def total(*arrays):
            return functools.reduce(
                operator.add, [g(*arrays[: n - 1], arrays[-1]) for n, g in zip(counts, of_each, strict=True)]
            )

        return _with_parameters(total, (*"abcdef"[: most - 1], "x"))

    reference = together([calls[n] for n in counts])
    shapes = [(width,) if gain is None else gain, *[(width, width)] * (most - 2), (2, rows, width)]
    return Case(
        f"{' and '.join(map(str, counts))} arrays, flag {', then '.join(map(str, flags))}",
        tuple(jax.ShapeDtypeStruct(shape, jnp.dtype(dtype)) for shape in shapes),
        transform=transform(called, (*[None] * (most - 1), 0)),
        apply=lambda answer: together([answer(calls[n]) for n in counts]),
        function=_function_of_n(most, "*, name", lambda weights, x, name: reference(*weights, x)),
        structure={"n": most, "dtype": dtype, "called": called, "products": sum(n - 2 for n in counts) * len(flags)},
    )


def _function_of_n(n, last, function) -> Callable:
    """Return a function of n arrays, each with its own parameter, and of one further argument, that passes them on."""
    weights, of = ", ".join("abcdef"[: n - 1]), last.removeprefix("*, ")
    return eval(f"lambda {weights}, x, {last}: function(({weights},), x, {of})", {"function": function})


def _stack(weights, x, causal):
    """Return an array, because the function may not return a scalar. The first weight is a vector or a scalar."""
    gain, *matrices = weights
    x = gain * x
    for w in matrices:
        x = jnp.sin(x @ w / 2) if causal else jnp.cos(x @ w / 2)
    return x


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


def _scalar(x, sharp):
    return jnp.sin(jnp.exp(x)) if sharp else jnp.tanh(jnp.sin(x))


def _with_flag(function, flag):
    # The function that an answer gets has only arrays and a flag as arguments.
    return {
        "apply": lambda answer: _called(
            answer(lambda w1, w2, x, training: function(w1, w2, x, training)), ("w1", "w2", "x"), flag
        ),
        "function": functools.partial(function, training=flag),
    }


def _called(g, names, *flags):
    """Return a function of these arrays that calls `g` with these flags and sums the results; `g` itself if it is not a
    function."""
    if not callable(g):
        return g
    return _with_parameters(lambda *arrays: functools.reduce(operator.add, [g(*arrays, flag) for flag in flags]), names)


def _with_parameters(function, names):
    """Give a function of any number of arrays the names of its parameters, for listings."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    function.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])
    return function


shown = Case(
    "for two layers of the grader, with the flag True",
    float32_arrays((64, 256), (256, 64), (128, 64)),
    **_with_flag(_two_layers, True),
)
