"""Trace a `jax.vmap` as a loop over its examples, which runs the same function for each of them.

JAX has no public API for this, so this module replaces a private function.
"""

import contextlib
import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from rematscope.jax_compat.contexts import is_named_axis

_batching: Any = inspect.unwrap(jax.vmap).__globals__["batching"]
_patching = threading.RLock()
_user_context: Callable[[Any], Any] = jax.make_user_context
_trace_cache_key = _user_context(None)  # separates JAX's caches of traces with loops from all others


@contextlib.contextmanager
def maps_as_loops(length: int) -> Iterator[Callable[[], int]]:
    """Trace each outermost `jax.vmap` over `length` examples as a `scan` without carries within the context.

    This excludes maps with an axis name, because collectives may combine their examples. The value of the context is a
    function that returns the number of these maps.
    """
    original, thread, is_inside, loops = _batching.batch, threading.get_ident(), False, 0

    def batch(fun: Any, axis: Any, in_dims: Any, out_dims: Any, *args: Any, **settings: Any) -> Any:
        is_plain = all(dim is None or type(dim) is int for dim in in_dims) and not is_named_axis(axis.name)
        is_whole = axis.size == length and axis.spmd_name is None and not is_inside
        if threading.get_ident() != thread or not (is_plain and is_whole):
            return original(fun, axis, in_dims, out_dims, *args, **settings)
        nonlocal loops
        loops += 1
        return _Loop(in_loop(fun.call_wrapped), in_dims, out_dims)

    def in_loop(f: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            nonlocal is_inside
            is_inside = True
            try:
                return f(*args)
            finally:
                is_inside = False

        return run

    with _patching, _trace_cache_key(object()):
        _batching.batch = batch
        try:
            yield lambda: loops
        finally:
            _batching.batch = original


class _Loop:
    """A loop in place of a mapped function, called like the latter."""

    def __init__(self, f: Callable[..., Any], in_dims: Any, out_dims: Callable[[], Any]):
        self._f, self._in_dims, self._out_dims = f, in_dims, out_dims

    def call_wrapped(self, *args: Any) -> tuple[list[Any], list[Any]]:
        mapped = [jnp.moveaxis(a, dim, 0) for a, dim in zip(args, self._in_dims, strict=True) if dim is not None]

        def one(_: None, examples: list[Any]) -> tuple[None, list[Any]]:
            given = iter(examples)
            pairs = zip(args, self._in_dims, strict=True)
            return None, list(self._f(*(a if dim is None else next(given) for a, dim in pairs)))

        _, stacks = lax.scan(one, None, mapped)
        dims = list(self._out_dims())
        return [v[0] if d is None else jnp.moveaxis(v, 0, d) for v, d in zip(stacks, dims, strict=True)], dims
