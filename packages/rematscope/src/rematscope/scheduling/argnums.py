"""The arguments that get a gradient: `argnums`, as for `jax.grad`, applied to the leaves of a call."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from rematscope.errors import PlanError
from rematscope.tracing.arguments import argument_paths, callable_name, check_arrays

ArgNums = int | Sequence[int] | None


def check_argnums(argnums: ArgNums) -> tuple[int, ...] | None:
    """Return `argnums` as a tuple, or None for all arguments.

    Raises:
      PlanError: if `argnums` is neither an integer nor a non-empty sequence of integers.
    """
    if argnums is None:
        return None
    given: Sequence[Any] = argnums if isinstance(argnums, Sequence) else (argnums,)
    if not given or not all(isinstance(i, int | np.integer) and not isinstance(i, bool) for i in given):
        raise PlanError(
            f"argnums={argnums!r} does not say which arguments get a gradient. Give an integer, a tuple of integers, "
            "or None for all floating-point arguments."
        )
    return tuple(map(int, given))


def gradient_mask(
    f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], argnums: tuple[int, ...] | None
) -> tuple[bool, ...] | None:
    """Return for each leaf of a call whether it gets a gradient, or None if all do.

    An integer is the index of a positional argument of the call; negative integers count from the end. If the call has
    fewer positional arguments, the integer is the index of a parameter of `f` that the call passes by keyword.

    Raises:
      PlanError: if an integer is out of range, or is the index of an argument without floating-point values.
      TraceError: if an argument is not an array.
    """
    check_arrays(f, args, kwargs)
    if argnums is None:
        return None
    parameters = _positional_parameters(f)
    chosen = {_argument_at(i, f, args, kwargs, parameters) for i in argnums}
    grad_mask: list[bool] = []
    for key, value in [*enumerate(args), *((name, kwargs[name]) for name in sorted(kwargs))]:
        leaves = jax.tree.leaves(value)
        if key in chosen and not any(jnp.issubdtype(jax.typeof(leaf).dtype, np.inexact) for leaf in leaves):
            name = parameters[key] if isinstance(key, int) and key < len(parameters) else key
            raise PlanError(
                f"argnums includes {name!r}, an argument of {callable_name(f)} without floating-point values, but JAX "
                "only differentiates with respect to floating-point values. Remove it from argnums."
            )
        grad_mask += [key in chosen] * len(leaves)
    return tuple(grad_mask)


def _argument_at(
    i: int, f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], parameters: Sequence[str]
) -> int | str:
    """Return the position, or the keyword, of the argument with an index."""
    if -len(args) <= i < len(args):
        return i % len(args)
    if 0 <= i < len(parameters) and parameters[i] in kwargs:
        return parameters[i]
    count = f"{len(args)} positional argument{'s' if len(args) != 1 else ''}"
    raise PlanError(
        f"argnums includes index {i}, but this call of {callable_name(f)} has {count}. Count from 0, and pass the "
        "arguments that get a gradient by position."
    )


def _positional_parameters(f: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(f).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def guarded(
    f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], grad_mask: Sequence[bool] | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call; differentiating one without a gradient raises PlanError.

    A plan has no gradient code for these arguments. JAX applies their derivative rule wherever a nonzero tangent
    reaches them. During tracing it knows which tangents are zero, so a gradient with respect to other arguments raises
    no error.
    """
    if grad_mask is None or all(grad_mask):
        return tuple(args), dict(kwargs)
    leaves, tree = jax.tree.flatten((tuple(args), dict(kwargs)))
    paths = argument_paths(f, args, kwargs)
    found = [
        leaf
        if one or not jnp.issubdtype(jax.typeof(leaf).dtype, np.inexact)
        else without_gradient(leaf, functools.partial(_not_in_argnums_text, callable_name(f), path))
        for leaf, path, one in zip(leaves, paths, grad_mask, strict=True)
    ]
    result: tuple[tuple[Any, ...], dict[str, Any]] = jax.tree.unflatten(tree, found)
    return result


def _not_in_argnums_text(function: str, path: str) -> str:
    return (
        f"{function} was planned without a gradient for `{path}`, and this call differentiates with respect to it. Add "
        f"the argument to argnums, or wrap it: jax.lax.stop_gradient({path})."
    )


def without_gradient(leaf: Any, message: Callable[[], str]) -> Any:
    """Return a value that raises PlanError with this message when it is differentiated."""

    @jax.custom_jvp
    def guard(leaf: Any) -> Any:
        return leaf

    def jvp_rule(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        if not isinstance(tangents[0], SymbolicZero):
            raise PlanError(message())
        return primals[0], tangents[0]

    guard.defjvp(jvp_rule, symbolic_zeros=True)
    return guard(leaf)
