"""What an answer is tried on."""

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from grader.exercises.spec import Case, renamed

parameters = ("f", "names")
ranges: dict = {}
signature = "save_named(f, names)"


def cases(rng):
    """Two functions and several choices of names, at shapes drawn anew. All widths of a case differ.

    Names are drawn too, in one case: an answer that has those of the others by heart fails there.
    """
    return (
        _case("one name of three", _gated, ("mlp",), rng),
        _case("two names of three", _gated, ("mlp_gate", "out"), rng),
        _case("a list, with a name that is not there", _layer, ["h", "out"], rng),
        _case(
            "vmap over x, names drawn anew",
            _gated,
            ("out", "mlp"),
            rng,
            batch=(2,),
            prefix=f"layer{rng.integers(10**6)}/",
        ),
        _case("an empty list", _layer, [], rng),
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


def _case(name, function, names, rng, batch=(), prefix=""):
    rows, width, hidden = map(int, rng.permutation([5, 6, 7, 8, 9])[:3])
    shapes = {
        _gated: [(width, hidden), (width, hidden), (hidden, width), (*batch, rows, width)],
        _layer: [(width, hidden), (hidden,), (*batch, rows, width)],
    }[function]
    return Case(
        name,
        _arrays(*shapes),
        transform=(lambda f: jax.vmap(f, in_axes=(None, None, None, 0))) if batch else (lambda f: f),
        apply=lambda answer: answer(renamed(function, prefix), type(names)(prefix + name for name in names)),
        function=function,
    )


def _arrays(*shapes):
    return tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)


shown = Case(
    "for a function of the checker's, saving mlp and out",
    _arrays((64, 256), (64, 256), (256, 64), (256, 64)),
    apply=lambda answer: answer(renamed(_gated), ("mlp", "out")),
    function=_gated,
)
