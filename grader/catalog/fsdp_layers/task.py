"""What an answer is tried on."""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType

from grader.exercises import case_functions
from grader.exercises.spec import Case, Integers, OneOf

ranges = {
    "L": Integers(2, 12),
    "n": Integers(1, 3),
    "u": Integers(1, 2),
    "v": Integers(1, 3),
    "dtype": OneOf(("float32", "float16")),
    "called": OneOf(("directly", "jax.jit")),
}
signature = "fsdp_layers(params, x, mesh)"
devices = 8


def cases(rng):
    """Draw few and many layers, narrow and wide."""
    return (
        case(rng, int(rng.integers(3, 7)), 1, 1, int(rng.integers(2, 4))),
        case(rng, 12, int(rng.integers(1, 4)), int(rng.integers(1, 3)), 1, called="jax.jit"),
        case(rng, 2, 3, 2, 3, dtype="float16"),
    )


def _function(up, down, x, *, name=lambda value, called: value):
    def layer(x, weights):
        own_up, own_down = weights
        h = x @ own_up
        sine, cosine = jnp.sin(h), jnp.cos(h)
        second = sine @ own_down
        return x + second, jax.lax.stop_gradient((x, h, sine, cosine, second))

    result, stacked = jax.lax.scan(layer, x, (up, down))
    for value, called in zip(stacked, _NAMES, strict=True):
        name(value, called)
    return result


_NAMES = (
    "every layer's x",
    "every layer's h",
    "every layer's sine of h",
    "every layer's cosine of h",
    "every layer's second matmul",
)


def case(rng, L, n, u, v, dtype="float32", called="directly", title=None):
    """Return a case for a stack of this height and these widths."""
    mesh = AbstractMesh((8,), ("devices",), axis_types=(AxisType.Auto,))
    rows, d, m = 8 * n, 8 * u, 8 * v
    across = case_functions.transform(called)

    def on_mesh(function):
        @functools.wraps(function)
        def call(*arguments):
            with jax.sharding.use_abstract_mesh(mesh):  # for constraints that are PartitionSpecs
                return function(*arguments)

        return across(call)

    what = f"{L} layers of width {d}, hidden width {m}, {rows} rows"
    return Case(
        title or what + case_functions.where(called, dtype),
        tuple(jax.ShapeDtypeStruct(shape, dtype) for shape in ((L, d, m), (L, m, d), (rows, d))),
        apply=lambda answer: lambda up, down, x: answer((up, down), x, mesh),
        transform=on_mesh,
        function=_function,
        structure={"L": L, "n": n, "u": u, "v": v, "dtype": dtype, "called": called},
    )


shown = case(None, 12, 64, 16, 64, title="for 12 layers of width 128 on eight devices")
