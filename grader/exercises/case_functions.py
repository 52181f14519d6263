"""Functions for cases, with named values, and the transformations that pages allow."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

from grader.exercises.spec import Case, OneOf, given


def product(x: jax.Array, w: jax.Array | np.ndarray) -> jax.Array:
    """Return `x @ w`, for an x with at least one axis and a matrix w."""
    return lax.dot_general(x, w, (((x.ndim - 1,), (0,)), ((), ())))


def scaled(x: jax.Array, factor: float) -> jax.Array:
    """Return `factor * x`."""
    return lax.mul(x, lax.full_like(x, factor))


def signed_values(
    low: float, high: float, scale: Callable[[Any], float] = lambda argument: 1.0
) -> Callable[[np.random.Generator, Any], np.ndarray]:
    """Return an `expect.sample_input` that generates elements between two bounds, with random signs.

    Args:
      low, high: the bounds of the magnitudes.
      scale: returns the number that the elements of an argument are multiplied by.
    """

    def sample_input(rng: np.random.Generator, argument: Any) -> np.ndarray:
        size = rng.uniform(low, high, argument.shape) * scale(argument)
        return np.asarray(size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)

    return sample_input


def float32_arrays(*shapes: tuple[int, ...]) -> tuple[jax.ShapeDtypeStruct, ...]:
    """Return a case's arguments: float32 arrays of these shapes."""
    return tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)


def mixing_weights(rng: np.random.Generator, width: int, gain: float, dtype: str) -> np.ndarray:
    """Return a random orthogonal matrix whose rows are scaled by 0.7 to 1 times the gain.

    A chain of such matmuls mixes all elements and amplifies rounding errors little: the spectral norm is at most the
    gain. A matrix of independent random elements has a spectral norm about twice its typical gain, so that after 32
    layers of it two programs that round differently no longer agree in any digit.
    """
    orthogonal, _ = np.linalg.qr(rng.normal(size=(width, width)))
    return np.asarray(gain * rng.uniform(0.7, 1, (width, 1)) * orthogonal, dtype)


CALLED = OneOf(("directly", "jax.jit", "jax.vmap"))


def transform(called: str, in_axes: Any = 0) -> Callable[[Callable], Callable]:
    """Return a case's `transform`.

    Args:
      called: one of `CALLED`.
      in_axes: the `in_axes` of `jax.vmap`.
    """

    def transformed(function: Callable) -> Callable:
        # A new function, because jax.jit hashes its argument, and an answer may be an object that cannot be hashed.
        @functools.wraps(function, updated=())
        def call(*arguments: Any) -> Any:
            return function(*arguments)

        match called:
            case "jax.jit":
                return jax.jit(call)
            case "jax.vmap":
                return jax.vmap(call, in_axes=in_axes)
        return function

    return transformed


def on_devices(called: str, **axes: int) -> Callable[[Callable], Callable]:
    """Return a case's `transform` under which each device runs the function on its shards of the arguments' rows.

    Args:
      called: one of `CALLED`.
      axes: the axes of the mesh, with their sizes.
    """
    mesh = AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))
    rows = P(tuple(axes))
    return lambda function: transform(called)(jax.shard_map(function, mesh=mesh, in_specs=rows, out_specs=rows))


def where(called: str, dtype: str = "float32") -> str:
    """Return the end of a case's name, which states the dtype and the transformation."""
    return ("" if dtype == "float32" else f", in {dtype}") + ("" if called == "directly" else f", under {called}")


MOST = 8  # the maximum number of named values of a function


class Value(NamedTuple):
    """A value that a function names.

    Attributes:
      key: its name in findings.
      name: its checkpoint name, which it may share with other values.
      kind: `"product"` (a matmul), `"curve"`, `"scalar"`, `"mask"` (of booleans) or `"integer"`.
    """

    key: str
    name: str
    kind: str


def values_of(names: Sequence[str], rng: np.random.Generator, half: bool = False) -> tuple[Value, ...]:
    """Return a value of a random kind for each name. If there are many values, all kinds occur. The last value is a
    matmul.

    Args:
      names: the names; several values may have the same name.
      rng: the generator for the kinds.
      half: whether the values have half precision.
    """
    # Kinds that depend on a comparison occur only once, because rounding may change its result. In half precision, only
    # matmuls can be told apart.
    others = [] if half else ["curve", "scalar", "mask", "integer"]
    once = [name for name in names[:-1] if names.count(name) == 1]
    others = [*others, *map(str, rng.choice(["product", *others[:1]], size=MOST))][: len(once)]
    # Values with the same name have the same shape and dtype, so that these do not distinguish the values.
    twice = dict.fromkeys(name for name in names if names.count(name) > 1)
    kinds = {
        **dict.fromkeys(twice, "product" if half else "curve"),
        **dict(zip(once, rng.permutation(others), strict=True)),
    }
    kinds |= dict.fromkeys(names[-1:], "product")
    times = [names[:place].count(name) for place, name in enumerate(names)]
    keys = [f"{name!r}{f' (number {time + 1})' if time else ''}" for name, time in zip(names, times, strict=True)]
    return tuple(Value(key, name, str(kinds[name])) for key, name in zip(keys, names, strict=True))


def alike(rng: np.random.Generator) -> list[str]:
    """Return a random name, a permutation of its letters that differs only in the middle, and names that differ at the
    beginning, at the end (by a space, or by brackets, which have a meaning in regular expressions) or in case."""
    first, second, third, fourth = rng.integers(8, size=4)
    word = "abcdefgh"[first] + "ABCD"[second % 4] + "efgh"[third % 4] + "abcdefgh"[fourth] + "q"
    between = f"{word[0]}{word[2]}{word[1]}{word[3:]}"
    others = [f"{word}[0]", word[0], f"{word}.out", f"x{word}", f"layers/0/{word}", f"{word}/{word}", word[:-1]]
    others += [word.lower(), word.upper(), f"{word} "]
    return [word, between, *map(str, rng.permutation(others))]


def function_of(values: Sequence[Value], weights: int) -> Callable:
    """Return a function of square matrices and rows `x`. It computes the values one after the other, and a matmul
    without a name. Its backward pass needs each of the values.

    Args:
      values: the named values, in order.
      weights: the number of matrices: 0, 1, 3 or 5. With 0, x is multiplied by a constant matrix.
    """
    steps = tuple(values)

    def none(x, *, name):
        return _make_steps(steps, (_make_constant(x.shape[-1], x.dtype),), x, name)

    def one(w, x, *, name):
        return _make_steps(steps, (w,), x, name)

    def three(a, b, c, x, *, name):
        return _make_steps(steps, (a, b, c), x, name)

    def five(a, b, c, d, e, x, *, name):
        return _make_steps(steps, (a, b, c, d, e), x, name)

    of: dict[int, Callable] = {0: none, 1: one, 3: three, 5: five}
    return of[weights]


def _make_steps(values, weights, x, name):
    for place, value in enumerate(values):
        w = weights[place % len(weights)]
        match value.kind:
            case "product":
                x = lax.sin(scaled(name(product(x, w), value.key), 0.5))
            case "curve":
                x = lax.sin(scaled(name(lax.add(lax.mul(x, x), scaled(x, 2)), value.key), 0.5))
            case "scalar":
                mean = scaled(lax.reduce_sum(x, tuple(range(x.ndim))), 1 / x.size)
                x = lax.mul(x, lax.broadcast(lax.cos(name(mean, value.key)), x.shape))
            case "mask":
                x = lax.select(name(_is_above(x, 0.1), value.key), x, scaled(x, 0.3))
            case "integer":
                above = (lax.convert_element_type(_is_above(x, bound), jnp.int32) for bound in (-0.2, 0.2))
                level = name(lax.add(*above), value.key)
                x = lax.select(lax.eq(level, lax.full_like(level, 1)), x, scaled(x, 0.3))
    return jnp.sum(lax.sin(product(x, weights[-1])))


def _make_constant(width, dtype):
    sines = np.sin(np.arange(1, width**2 + 1)).reshape(width, width)
    return np.asarray(sines + 0.3 * np.sign(sines), dtype)


def _is_above(x, bound):
    return lax.gt(x, lax.full_like(x, bound))


def case_of(
    name: str,
    values: Sequence[Value],
    apply: Callable,
    rng: np.random.Generator,
    dtype: str,
    called: str,
    weights: int | None = None,
    **structure,
) -> Case:
    """Return a case for a function that computes these values.

    Args:
      name: the case's name.
      values: the named values of the function.
      apply: returns the differentiated function, given an answer and the function in the form that answers get.
      rng: the generator for the shapes and the number of arguments.
      dtype: the dtype of all arguments.
      called: the transformation, one of `CALLED`.
      weights: the number of arguments in addition to `x`; random if None.
      structure: further entries of the case's structure.
    """
    rows, width = map(int, rng.permutation([5, 6, 7, 8])[:2])
    weights = int(rng.choice([1, 3, 5])) if weights is None else weights
    function = function_of(values, weights)
    batch = (2,) if called == "jax.vmap" else ()
    more = (2,) * int(rng.integers(2))
    shapes = [*[(width, width)] * weights, (*batch, *more, rows, width)]
    names = {value.key: value.name for value in values}
    return Case(
        name,
        tuple(jax.ShapeDtypeStruct(shape, jnp.dtype(dtype)) for shape in shapes),
        transform=transform(called, (*[None] * weights, 0)),
        apply=lambda answer: apply(answer, given(function, names.__getitem__)),
        function=function,
        structure={"m": len(values), "dtype": dtype, "called": called, "values": tuple(values), **structure},
    )
