"""The arguments of a function as a flat list of arrays, and the displayed names of functions and arguments."""

import abc
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.export import is_symbolic_dim

from rematscope.errors import TraceError
from rematscope.ir.specs import across_devices, explicit_sharding
from rematscope.jax_compat import is_in_host_memory

NEEDS_VALUE = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)


class FlatFunction:
    """A function of pytrees as a function of their leaves. It returns the outputs of the original function."""

    def __init__(self, f: Callable[..., Any], tree: Any):
        self._f, self._tree = f, tree

    def __call__(self, *leaves: Any) -> Any:
        args, kwargs = jax.tree.unflatten(self._tree, leaves)
        return self._f(*args, **kwargs)

    def updating(self, *leaves: Any) -> tuple[Any, list[Any]]:
        """Return the outputs of the function and the new state of the objects that it modifies, such as nnx modules.

        If the function also returns such an object, its state is among the outputs only.
        """
        given = jax.tree.unflatten(self._tree, leaves)
        returned = self._f(*given[0], **given[1])
        before = set(map(id, [*leaves, *jax.tree.leaves(returned)]))
        return returned, [leaf for leaf in jax.tree.leaves(given) if id(leaf) not in before]


def flattened(f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[FlatFunction, list[Any]]:
    """Return `f` as a function of the leaves of its arguments, and these leaves.

    Returns:
      The function of flat arguments, and `jax.tree.leaves((args, kwargs))`.

    Raises:
      TraceError: if `f` cannot be called.
    """
    if not callable(f):
        raise TraceError(
            f"the first argument is {type_description(f)}, not a function. Pass the function first, then its arguments."
        )
    leaves, tree = jax.tree.flatten((tuple(args), dict(kwargs)))
    return FlatFunction(f, tree), leaves


class PartlyDifferentiable(abc.ABC):
    """A function with gradients for some of its arguments. A trace differentiates only these arguments."""

    @abc.abstractmethod
    def gradient_mask(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[bool] | None:
        """Return for each leaf of a call whether it gets a gradient; None if all do."""


def vjp_for(flat: Callable[..., Any], leaves: Sequence[Any], grad_mask: Sequence[bool]) -> tuple[Any, Any]:
    """Return `jax.vjp` of a function of leaves with respect to the leaves in the mask; the others are constants."""

    def of_selected(*some: Any) -> Any:
        given = iter(some)
        return flat(*(next(given) if one else leaf for one, leaf in zip(grad_mask, leaves, strict=True)))

    result: tuple[Any, Any] = jax.vjp(of_selected, *(leaf for one, leaf in zip(grad_mask, leaves, strict=True) if one))
    return result


def shapes_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the arguments of a call as `jax.ShapeDtypeStruct`s, so that no array or tracer is held.

    The shapes keep the shardings of arrays on several devices; for a traced value, JAX knows only the sharding over
    explicit mesh axes. The sharding of a shape in host memory says so.
    """
    shapes: tuple[Any, Any] = jax.tree.map(_shape_of, (tuple(args), dict(kwargs)))
    return shapes


def _shape_of(leaf: Any) -> Any:
    aval: Any = jax.typeof(leaf)
    is_traced = isinstance(leaf, jax.core.Tracer)
    sharding: Any = explicit_sharding(aval) if is_traced else across_devices(getattr(leaf, "sharding", None))
    if is_in_host_memory(leaf):
        one_device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        sharding = (sharding or one_device).with_memory_kind("pinned_host")
    return shape_struct(aval, sharding=sharding)


def shape_struct(aval: Any, shape: Sequence[int] | None = None, sharding: Any = None) -> Any:
    """Return a `jax.ShapeDtypeStruct` of an array's type, which may be weak, with another shape or a sharding."""
    make: Callable[..., Any] = jax.ShapeDtypeStruct  # JAX gives its constructor no types
    lengths = aval.shape if shape is None else shape
    return make(lengths, aval.dtype, sharding=sharding, weak_type=getattr(aval, "weak_type", False))


def is_array(leaf: Any) -> bool:
    """Return whether JAX can trace a leaf: an array, a number or a shape."""
    try:
        jax.typeof(leaf)
    except TypeError:
        return False
    return True


def check_arrays(f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise TraceError unless all leaves of the arguments of `f` are arrays or array-like."""
    for position, leaf in enumerate(jax.tree.leaves((tuple(args), dict(kwargs)))):
        if not is_array(leaf):
            raise TraceError(
                f"`{argument_paths(f, args, kwargs)[position]}` is {type_description(leaf)}, and only arrays, numbers "
                "and jax.ShapeDtypeStructs can be traced. Bind it first: functools.partial(f, name=value)."
            )


def check_call(f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], instead: str) -> None:
    """Raise TraceError if an argument of a call has no elements or no constant shape.

    Args:
      instead: what to do with a `jax.ShapeDtypeStruct`, an imperative clause.
    """
    for position, leaf in enumerate(jax.tree.leaves((tuple(args), dict(kwargs)))):
        if isinstance(leaf, jax.ShapeDtypeStruct):
            raise TraceError(
                f"`{argument_paths(f, args, kwargs)[position]}` is a jax.ShapeDtypeStruct, which has a shape and no "
                f"elements, so {callable_name(f)} cannot be computed. Pass an array, or {instead}."
            )
        if any(map(is_symbolic_dim, getattr(leaf, "shape", ()))):
            raise TraceError(
                f"`{argument_paths(f, args, kwargs)[position]}` has the shape {leaf.shape} with symbolic "
                f"sizes, but a schedule needs constant sizes. Export for constant shapes, or export {callable_name(f)} "
                "without a schedule."
            )


def check_differentiable(f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise TraceError unless all leaves of the arguments are arrays or array-like, and one is differentiable."""
    check_arrays(f, args, kwargs)
    leaves = jax.tree.leaves((tuple(args), dict(kwargs)))
    if not leaves:
        raise TraceError("there are no arguments to differentiate with respect to. Pass f's arguments after f.")
    if not any(jnp.issubdtype(jax.typeof(leaf).dtype, np.inexact) for leaf in leaves):
        raise TraceError(
            "every argument is an integer, a boolean or a key, and JAX differentiates with respect to "
            "floating-point numbers only. Pass floats: 2.0 instead of 2, or x.astype(float)."
        )


def argument_paths(
    f: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    is_leaf: Callable[[Any], bool] | None = None,
) -> list[str]:
    """Return the path of each leaf of the arguments, such as `params.w.0`, with the names of the parameters of `f`."""
    names = argument_names(f, len(args))
    with_paths, _ = jax.tree.flatten_with_path((tuple(args), dict(kwargs)), is_leaf)
    return [_root_name(names, keys) + "".join(map(step_of_path, keys[2:])) for keys, _ in with_paths]


def jax_path(f: Callable[..., Any], args: Sequence[Any], keys: Sequence[Any]) -> str:
    """Return the path of a leaf of `(args, kwargs)` as in JAX's messages, such as `params['w'][0]`."""
    return _root_name(argument_names(f, len(args)), keys) + jax.tree_util.keystr(tuple(keys[2:]))


def _root_name(names: Sequence[str], keys: Sequence[Any]) -> str:
    which, first = keys[:2]
    return str(first.key if which.idx else names[first.idx])


def argument_names(f: Callable[..., Any], count: int) -> list[str]:
    """Return the names of the first `count` positional arguments of a function."""
    names: list[str] = []
    try:
        for name, parameter in inspect.signature(f).parameters.items():
            if parameter.kind is parameter.VAR_POSITIONAL:
                names += [f"{name}[{i}]" for i in range(count - len(names))]
            elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                names.append(name)
    except (TypeError, ValueError):
        pass
    return [*names[:count], *(f"arg{i}" for i in range(len(names), count))]


def callable_name(f: Callable[..., Any]) -> str:
    """Return the displayed name of `f`; for a partial, the name of the function in it."""
    while isinstance(f, functools.partial):
        f = f.func
    return getattr(f, "__name__", type(f).__name__)


def step_of_path(key: Any) -> str:
    """Return one step of a path into a pytree: `.w` for a field or a plain key, `.0` for an index, else `['a b']`."""
    text = jax.tree_util.keystr((key,), simple=True)
    return f".{text}" if text.isidentifier() or text.isdecimal() else f"[{getattr(key, 'key', text)!r}]"


def type_description(leaf: object) -> str:
    """Return a description of `leaf` without the memory address that the `repr` of most objects contains."""
    kind = type(leaf).__name__
    if isinstance(leaf, str):
        return f"{leaf!r:.60}, a {kind}"
    if isinstance(leaf, np.ndarray):
        return f"an array of {leaf.dtype}"
    name = getattr(leaf, "__name__", None)
    return f"{name}, a {kind}" if name else f"a value of type {kind}"
