"""What an answer is tried on."""

import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from grader.exercises.case_functions import CALLED, MOST, alike, case_of, float32_arrays, transform, values_of
from grader.exercises.spec import Case, Integers, OneOf, given

ranges = {
    "m": Integers(0, MOST),
    "dtype": OneOf(("float32", "bfloat16", "float16")),
    "called": CALLED,
    "n": Integers(0, MOST),
    "type": OneOf(("tuple", "list")),
}
signature = "save_named(f, names)"


def cases(rng):
    """Return cases with two functions, and others that name up to eight values, with as many names to save, with
    random shapes.

    All widths of a case differ. The others' names are drawn, and nearly the same; some stand for two values, some are
    given twice, some stand for none. One function has x alone for an argument.
    """
    word, *others = alike(rng)
    nowhere, prefix = alike(rng), f"layer{rng.integers(10**6)}/"
    first, last, half = others[:6], [*others[6:], others[0]], others[6 : rng.integers(8, 10)]
    return (
        _plain_case("one of three names", _gated, ("mlp",), rng),
        _plain_case("two of three names", _gated, ("mlp_gate", "out"), rng),
        _plain_case("a list with a name that f does not have", _layer, ["h", "out"], rng),
        _plain_case("vmap over x, random names", _gated, ("out", "mlp"), rng, batch=(2,), prefix=prefix),
        _plain_case("an empty list", _layer, [], rng),
        _make_case("eight names that f does not have", [], nowhere[:MOST], rng, "jax.jit"),
        _make_case("two similar names", [*first, word, word], [nowhere[0], word], rng, "jax.vmap", type=list),
        _make_case("eight similar names", [last[1], *last, word], [last[1], nowhere[0], *last], rng, weights=0),
        # A point in a name is no regular expression's.
        _make_case("float16", [*half, f"{word}_out", word], [f"{word}.out", word], rng, "jax.jit", "float16"),
        # A name of one letter is a name, too.
        _make_case("bfloat16", [word, word[0], *half], [word[0], *half], rng, dtype="bfloat16", type=list),
    )


def case(rng, m, dtype, called, n, type):
    """Return a function that names so many values, and so many names to save, of which it has some."""
    words = alike(rng)
    has, names = ([str(name) for name in rng.permutation(words)[:count]] for count in (m, n))
    given = {"tuple": tuple, "list": list}[type]
    call = "called directly" if called == "directly" else f"under {called}"
    title = f"{m or 'no'} name{'s' * (m != 1)} in {dtype}, a {type} of {n} to save, {call}"
    return _make_case(title, has, names, rng, called, dtype, given)


def _plain_case(name, function, names, rng, batch=(), prefix=""):
    rows, width, hidden = map(int, rng.permutation([5, 6, 7, 8, 9])[:3])
    shapes = {
        _gated: [(width, hidden), (width, hidden), (hidden, width), (*batch, rows, width)],
        _layer: [(width, hidden), (hidden,), (*batch, rows, width)],
    }[function]
    called = "jax.vmap" if batch else "directly"
    structure = {"m": 3 if function is _gated else 2, "n": len(names), "type": type(names).__name__}
    return Case(
        name,
        float32_arrays(*shapes),
        transform=transform(called, (*[None] * (len(shapes) - 1), 0)),
        apply=lambda answer: answer(given(function, prefix.__add__), type(names)(prefix + name for name in names)),
        function=function,
        structure={"called": called, "dtype": "float32", **structure},
    )


def _make_case(case, has, names, rng, called="directly", dtype="float32", type=tuple, weights=None):
    names = type(map(str, names))
    return case_of(
        case,
        values_of([*map(str, has)], rng, half=dtype != "float32"),
        lambda answer, f: answer(f, names),
        rng,
        dtype,
        called,
        weights,
        n=len(names),
        type=type.__name__,
        names=names,
    )


def _gated(up, gate, down, x, *, name=checkpoint_name):
    y = name(x @ up, "mlp")
    g = name(x @ gate, "mlp_gate")
    z = name((jnp.sin(y) * jnp.tanh(g)) @ down, "out")
    return jnp.sum(jnp.sin(z))


def _layer(w, b, x, *, name=checkpoint_name):
    h = name(x @ w + b, "h")
    scale = name(jnp.exp(-jnp.sum(h**2, axis=-1, keepdims=True) / 8), "h_scale")
    return jnp.sum(jnp.sin(h) * scale)


shown = Case(
    "for a function of the grader that saves mlp and out",
    float32_arrays((64, 256), (64, 256), (256, 64), (256, 64)),
    apply=lambda answer: answer(given(_gated), ("mlp", "out")),
    function=_gated,
)
