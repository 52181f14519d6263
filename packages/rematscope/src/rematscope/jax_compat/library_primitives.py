"""What a library's own primitives do, as their authors wrote it in JAX.

Libraries have primitives of their own: products with sparse matrices in `jax.experimental.sparse`, Equinox's identities
that may not be batched. Most are compiled as a function of JAX's (`mlir.lower_fun`), which has no public door.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
from jax._src.interpreters import mlir
from jax.extend import source_info_util
from jax.extend.core import JaxprEqn

from rematscope.jax_compat.equations import AnyJaxpr

source_info_util.register_exclusion(__file__)


def trace_implementation(eqn: JaxprEqn) -> AnyJaxpr | None:
    """The jaxpr of what a library's primitive is compiled as; None for JAX's own, and where nobody says."""
    if (function := _lowered_function(eqn.primitive)) is None:
        return None
    avals = tuple(atom.aval for atom in eqn.invars)
    try:
        jaxpr = _trace_function(function, tuple(eqn.params.items()), avals)
    except TypeError:  # a parameter that cannot be a key
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


@functools.lru_cache(maxsize=1024)  # one program of each, however often it is asked for
def _trace_function(function: Callable[..., Any], params: tuple[tuple[str, Any], ...], avals: tuple[Any, ...]) -> Any:
    try:
        return jax.make_jaxpr(functools.partial(function, **dict(params)))(*avals)
    except Exception:  # a library may do there what it likes
        return None
