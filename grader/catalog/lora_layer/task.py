"""What an answer is tried on."""

import inspect
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient

from grader.exercises import case_functions
from grader.exercises.spec import Case, Integers, OneOf

ranges = {
    "adapted": OneOf(("up", "down", "both")),
    "n": Integers(3, 8),
    "d": Integers(4, 8),
    "m": Integers(4, 16),
    "r": Integers(1, 3),
    "dtype": OneOf(("float32", "float16")),
    "called": OneOf(("directly", "jax.jit")),
}
signature = "lora_layer(frozen, adapters, x)"


def cases(rng):
    """Draw an adapter at each of the weights and at both, the smallest and the largest sizes, and sizes in between."""
    return (
        case(rng, "up", int(rng.integers(4, 8)), int(rng.integers(5, 8)), int(rng.integers(9, 16)), 2),
        case(rng, "down", 8, 8, 16, 3, called="jax.jit"),
        case(rng, "both", int(rng.integers(4, 8)), 6, int(rng.integers(9, 16)), 2, dtype="float16"),
        case(rng, "both", 3, 4, 4, 1, called="jax.jit"),
    )


def _compute_layer(up, down, adapters, x, name):
    def product(x, weight, key, narrow):
        wide = x @ stop_gradient(weight)
        if key not in adapters:
            return wide
        a, b = adapters[key]
        name(stop_gradient(weight) + a @ b, f"the merged {key}")
        return name(wide, f"the frozen matmul of {key}") + name(x @ a, narrow) @ b

    h = name(product(x, up, "up", "x @ a of up"), "h")
    activated = name(jax.nn.silu(h), "silu(h)")
    name(jax.nn.sigmoid(h), "sigmoid(h)")
    return product(activated, down, "down", "silu(h) @ a of down")


def _unnamed(value, called):
    return value


def _adapted_up(up, down, up_a, up_b, x, *, name=_unnamed):
    return _compute_layer(up, down, {"up": (up_a, up_b)}, x, name)


def _adapted_down(up, down, down_a, down_b, x, *, name=_unnamed):
    return _compute_layer(up, down, {"down": (down_a, down_b)}, x, name)


def _adapted_both(up, down, up_a, up_b, down_a, down_b, x, *, name=_unnamed):
    return _compute_layer(up, down, {"up": (up_a, up_b), "down": (down_a, down_b)}, x, name)


_FUNCTIONS: dict[str, Callable] = {"up": _adapted_up, "down": _adapted_down, "both": _adapted_both}


def case(rng, adapted, n, d, m, r, dtype="float32", called="directly", title=None):
    """Return a case of these sizes."""
    keys = ("up", "down") if adapted == "both" else (adapted,)
    weights = {"up": (d, m), "down": (m, d)}
    adapters = [shape for key in keys for shape in ((weights[key][0], r), (r, weights[key][1]))]

    def apply(answer):
        def layer(up, down, *others):
            *factors, x = others
            pairs = zip(factors[::2], factors[1::2], strict=True)
            return answer({"up": up, "down": down}, dict(zip(keys, pairs, strict=True)), x)

        layer.__signature__ = inspect.signature(_FUNCTIONS[adapted])  # type: ignore[attr-defined]  # names in listings
        return layer

    place = "adapters at up and down" if adapted == "both" else f"an adapter at {adapted}"
    return Case(
        title or f"{place}, {n} rows, widths {d} and {m}, rank {r}" + case_functions.where(called, dtype),
        tuple(jax.ShapeDtypeStruct(shape, jnp.dtype(dtype)) for shape in (*weights.values(), *adapters, (n, d))),
        transform=case_functions.transform(called),
        apply=apply,
        function=_FUNCTIONS[adapted],
        structure={"adapted": adapted, "n": n, "d": d, "m": m, "r": r, "dtype": dtype, "called": called},
    )


shown = case(None, "up", 512, 128, 512, 8, title="for an adapter of rank 8 at up, 512 rows, widths 128 and 512")
