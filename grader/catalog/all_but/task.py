"""What an answer is tried on."""

import functools

import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from grader.exercises.case_functions import CALLERS, MOST, alike, case_of, float32_arrays, values_of
from grader.exercises.spec import Case, Integers, OneOf, given

parameters = ("f", "name")
ranges = {
    "m": Integers(0, MOST),
    "dtype": OneOf(("float32", "bfloat16", "float16")),
    "called": OneOf(tuple(CALLERS)),
}
signature = "all_but(f, name)"


def cases(rng):
    """Return cases with two functions, and others that name up to eight values, with a name to leave out, with
    random shapes.

    All widths of a case differ. The others' names are drawn, and nearly the same; some stand for two values. One
    function has x alone for an argument.
    """
    word, *others = alike(rng)
    prefix, half = f"layer{rng.integers(10**6)}/", others[6 : rng.integers(8, 10)]
    return (
        _plain_case("one of three names", _gated, "mlp", rng),
        _plain_case("a matmul without a name", _mixed, "mix", rng),
        _plain_case("a name that f does not have", _gated, "router", rng),
        _plain_case("vmap over x, random names", _gated, "mlp_gate", rng, batch=(2,), prefix=prefix),
        _make_case("no names", [], word, rng, "jax.jit"),
        _make_case(
            "names similar to the one left out", [*others[:5], *[word] * 3], word, rng, "jax.vmap", no_floats=True
        ),
        _make_case(
            "similar names, but not the one left out", [others[0], *others[5:], others[5]], word, rng, weights=0
        ),
        _make_case("float16, the empty name left out", [word, *half], "", rng, "jax.jit", "float16"),
        _make_case("bfloat16", [others[0], *half, word[0]], word[0], rng, dtype="bfloat16"),
    )


def case(rng, m, dtype, called):
    """Return a function that names so many values, of which one name is left out, if it is there."""
    names = alike(rng)
    has = [str(name) for name in rng.permutation(names[:-1])[:m]]
    left_out = str(rng.choice([*has, names[-1]]))
    many = f"{m or 'no'} name{'s' * (m != 1)}"
    call = "called directly" if called == "directly" else f"under {called}"
    return _make_case(f"{many} in {dtype}, {left_out!r} left out, {call}", has, left_out, rng, called, dtype)


_POINTED = {"mlp": "mlp_gate", "mlp_gate": "mlp.gate"}  # one is the other, if a point stands for any character


def _plain_case(case, function, name, rng, batch=(), prefix=""):
    rows, width, hidden = map(int, rng.permutation([5, 6, 7, 8, 9])[:3])
    weights = {
        _gated: [(width, hidden), (width, hidden), (hidden, width)],
        _mixed: [(width, hidden), (width, hidden)],
    }[function]
    called = "jax.vmap" if batch else "directly"

    def renamed(own):
        return prefix + _POINTED.get(own, own) if prefix else own

    return Case(
        case,
        float32_arrays(*weights, (*batch, rows, width)),
        transform=functools.partial(CALLERS[called], weights=len(weights)),
        apply=lambda answer: answer(given(function, renamed), renamed(name)),
        function=function,
        structure={"m": 3 if function is _gated else 2, "called": called, "dtype": "float32"},
    )


def _make_case(case, has, name, rng, called="directly", dtype="float32", no_floats=False, weights=None):
    """With `no_floats`, the mask and the integers among the values are left out."""
    values = [*values_of([*map(str, has)], rng, half=dtype != "float32")]
    left_out = [place for place, each in enumerate(values) if each.name == name]
    if no_floats:  # of each kind there is one, as two masks may be alike: they change places
        for place, other in enumerate([i for i, each in enumerate(values) if each.kind in ("mask", "integer")]):
            own, one = values[left_out[place]], values[other]
            values[left_out[place]], values[other] = own._replace(kind=one.kind), one._replace(kind=own.kind)
    return case_of(case, values, lambda answer, f: answer(f, name), rng, dtype, called, weights, left_out=name)


def _gated(up, gate, down, x, *, name=checkpoint_name):
    y = name(x @ up, "mlp")
    g = name(x @ gate, "mlp_gate")
    z = name((jnp.sin(y) * jnp.tanh(g)) @ down, "out")
    return jnp.sum(jnp.sin(z))


def _mixed(w, v, x, *, name=checkpoint_name):
    y = name(x @ w, "pre_mix")
    z = x @ v
    mix = name(jnp.sin(y) * jnp.sin(z), "mix")
    return jnp.sum(jnp.sin(mix))


shown = Case(
    "for a function of the grader that saves all its names except mlp_gate",
    float32_arrays((64, 256), (64, 256), (256, 64), (128, 64)),
    apply=lambda answer: answer(given(_gated), "mlp_gate"),
    function=_gated,
)
