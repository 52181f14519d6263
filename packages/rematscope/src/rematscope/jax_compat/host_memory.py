"""Arguments in host memory.

`jax.typeof` and traces treat a `jax.ShapeDtypeStruct` as an array in device memory, also if its sharding says
`pinned_host`. An array in host memory has a type that says so.
"""

from typing import Any

import jax


def is_in_host_memory(leaf: Any) -> bool:
    """Return whether an argument, an array or a shape, is in host memory."""
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return getattr(leaf.sharding, "memory_kind", None) == "pinned_host"
    return getattr(getattr(jax.typeof(leaf), "memory_space", None), "name", "") == "Host"


def type_in_host_memory(leaf: Any) -> Any:
    """Return the type of an argument in host memory."""
    aval: Any = jax.typeof(leaf)
    return aval.update(memory_space=jax.memory.Space.Host)


def with_memory(leaf: Any) -> Any:
    """Return an argument to trace a function with: for a shape in host memory, its type."""
    return type_in_host_memory(leaf) if isinstance(leaf, jax.ShapeDtypeStruct) and is_in_host_memory(leaf) else leaf
