"""The implementations of libraries' own primitives, as JAX programs.

Libraries define their own primitives, such as matmuls with sparse matrices in `jax.experimental.sparse`, or Equinox's
identities that cannot be batched. Most of them are lowered from a JAX function (`mlir.lower_fun`), which no public API
exposes.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
from jax._src.interpreters import mlir
from jax.extend.core import JaxprEqn

from rematscope.jax_compat.equations import AnyJaxpr


def trace_implementation(eqn: JaxprEqn) -> AnyJaxpr | None:
    """Return the jaxpr that a library's primitive is lowered from; None for JAX's own primitives and if it is
    unknown."""
    if (function := _lowered_function(eqn.primitive)) is None:
        return None
    avals = tuple(atom.aval for atom in eqn.invars)
    try:
        jaxpr = _trace_function(function, tuple(eqn.params.items()), avals)
    except TypeError:  # a parameter is not hashable
        jaxpr = _trace_function.__wrapped__(function, tuple(eqn.params.items()), avals)
    results: list[Any] = [v.aval for v in eqn.outvars]
    same = jaxpr is not None and [(v.shape, v.dtype) for v in jaxpr.out_avals] == [(v.shape, v.dtype) for v in results]
    return jaxpr if same else None


@functools.cache
def _lowered_function(primitive: Any) -> Callable[..., Any] | None:
    entry: Any = mlir._lowerings.get(primitive)
    rule: Any = getattr(entry, "rule", entry)  # the rule itself until JAX 0.7
    if getattr(rule, "__qualname__", "") != "lower_fun.<locals>.f_lowered":
        return None
    function: Any = inspect.getclosurevars(rule).nonlocals["fun"]
    innermost = function
    while isinstance(innermost, functools.partial):
        innermost = innermost.func
    return None if (getattr(innermost, "__module__", None) or "").startswith("jax._src") else function


@functools.lru_cache(maxsize=1024)  # always returns the same jaxpr for the same arguments
def _trace_function(function: Callable[..., Any], params: tuple[tuple[str, Any], ...], avals: tuple[Any, ...]) -> Any:
    try:
        return jax.make_jaxpr(functools.partial(function, **dict(params)))(*avals)
    except Exception:  # a library's code may raise anything
        return None
