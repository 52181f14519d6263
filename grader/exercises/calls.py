"""Ways of calling what an answer computes, where a page promises more than one."""

import functools
from collections.abc import Callable
from typing import Any

import jax

from grader.exercises.spec import OneOf

CALLED = OneOf(("as it is", "jax.jit", "jax.vmap"))


def transform(called: str, in_axes: Any = 0) -> Callable[[Callable], Callable]:
    """A case's `transform`.

    Args:
      called: one of `CALLED`.
      in_axes: over what `jax.vmap` maps, as it takes it.
    """

    def transformed(function: Callable) -> Callable:
        # Neither is given the answer's own object: jax.jit hashes a function, and an answer may be of a class.
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


def where(called: str) -> str:
    """The end of a case's name."""
    return "" if called == "as it is" else f", under {called}"
