"""What an answer is tried on."""

import jax
import jax.numpy as jnp

from grader.exercises.spec import Case

parameters = ("ws", "x")
ranges: dict = {}
signature = "scan_layers(ws, x)"


def cases(rng):
    """Stacks of two heights, of a width drawn anew that is none of them. To compile a case is what takes time."""
    return (
        Case("five layers", _arguments(rng, 5, jnp.float32)),
        Case(
            "three layers in float16 under vmap over x",
            _arguments(rng, 3, jnp.float16, batch=(2,)),
            transform=lambda answer: jax.vmap(answer, in_axes=(None, 0)),
        ),
    )


def _arguments(rng, layers, dtype, batch=()):
    return _shapes(layers, int(rng.integers(6, 10)), dtype, batch)


def _shapes(layers, width, dtype, batch=()):
    return tuple(jax.ShapeDtypeStruct(shape, dtype) for shape in ((layers, width, width), (*batch, width)))


shown = Case("for 48 layers of width 256", _shapes(48, 256, jnp.float32))
