"""What an answer is tried on."""

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from grader.exercises.spec import Case, renamed

parameters = ("f", "name")
ranges: dict = {}
signature = "all_but(f, name)"


def cases(rng):
    """Two functions and several names to leave out, at shapes drawn anew. All widths of a case differ.

    Names are drawn too, in one case: an answer that has those of the others by heart fails there.
    """
    return (
        _case("one name of three", _gated, "mlp", rng),
        _case("a product without a name", _mixed, "mix", rng),
        _case("a name that is not there", _gated, "router", rng),
        _case(
            "vmap over x, names drawn anew", _gated, "mlp_gate", rng, batch=(2,), prefix=f"layer{rng.integers(10**6)}/"
        ),
    )


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


def _case(case, function, name, rng, batch=(), prefix=""):
    rows, width, hidden = map(int, rng.permutation([5, 6, 7, 8, 9])[:3])
    weights = {
        _gated: [(width, hidden), (width, hidden), (hidden, width)],
        _mixed: [(width, hidden), (width, hidden)],
    }[function]
    in_axes = (*(None for _ in weights), 0)
    return Case(
        case,
        _arrays(*weights, (*batch, rows, width)),
        transform=(lambda f: jax.vmap(f, in_axes=in_axes)) if batch else (lambda f: f),
        apply=lambda answer: answer(renamed(function, prefix), prefix + name),
        function=function,
    )


def _arrays(*shapes):
    return tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)


shown = Case(
    "for a function of the checker's, all but mlp_gate",
    _arrays((64, 256), (64, 256), (256, 64), (128, 64)),
    apply=lambda answer: answer(renamed(_gated), "mlp_gate"),
    function=_gated,
)
