"""Move a function of one device's shards out of the `shard_map` that calls it, into a `shard_map` of its own."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax
from jax.extend.core import jaxpr_as_fun
from jax.sharding import AxisType, PartitionSpec

from rematscope.jax_compat import make_jaxpr, varying
from rematscope.tracing.arguments import shape_struct


def manual_axes() -> dict[str, int]:
    """Return the manual axes of the enclosing `shard_map`s with their sizes; none outside of a `shard_map`."""
    mesh = jax.sharding.get_abstract_mesh()
    kinds = zip(mesh.axis_names, mesh.axis_sizes, mesh.axis_types, strict=True)
    return {name: size for name, size, kind in kinds if kind == AxisType.Manual}


def remap_shard_map(f: Callable[..., Any], parts: Sequence[Any]) -> tuple[Callable[..., Any], list[Any]]:
    """Return a function that calls `f` in a new `shard_map`, and the shapes of the function's arguments.

    Call this inside the `shard_map` around `f`.

    Args:
      f: a function from a flat list of arrays to a flat list of arrays, which closes over no traced values.
      parts: the shards of its arguments on one device.
    """
    sizes = manual_axes()
    checked = bool(varying(jax.typeof(lax.axis_index(next(iter(sizes))))))  # with check_vma=False, no type is varying
    mesh: Any = jax.sharding.get_abstract_mesh()
    mesh = mesh.update_axis_types(dict.fromkeys(sizes, AxisType.Auto))  # a new mesh might have other devices
    return unmap_shard_map(make_jaxpr(f)(*parts), mesh, sizes, checked)


def unmap_shard_map(
    jaxpr: Any, mesh: Any, sizes: dict[str, int], checked: bool
) -> tuple[Callable[..., Any], list[Any]]:
    """Return a function that runs one device's program in a new `shard_map`, and the shapes of its arguments.

    A value that varies over devices becomes the concatenation of all devices' values along the first dimension, sharded
    so that each device gets its own value. A varying scalar becomes an array with one element per device.

    Args:
      checked: whether the types state over which axes a value varies; otherwise, all values count as varying.
    """
    names = tuple(sizes)

    def over(aval: Any) -> tuple[str, ...]:
        return tuple(name for name in names if not checked or name in varying(aval))

    def spec(aval: Any) -> Any:
        divided: Callable[..., Any] = PartitionSpec  # JAX gives its constructor no types
        return divided(over(aval)) if over(aval) else divided()

    def whole(aval: Any) -> Any:
        shape = aval.shape
        if axes := over(aval):
            first, *rest = shape or (1,)
            shape = (first * math.prod(sizes[name] for name in axes), *rest)
        return shape_struct(aval, shape)

    given: list[Any] = jaxpr.in_avals

    def on_each(*parts: Any) -> list[Any]:
        numbers = (x if x.shape == aval.shape else x.reshape(()) for x, aval in zip(parts, given, strict=True))
        results = zip(jaxpr_as_fun(jaxpr)(*numbers), jaxpr.out_avals, strict=True)
        return [x.reshape(1) if over(aval) and not aval.shape else x for x, aval in results]

    function = jax.shard_map(
        on_each,
        mesh=mesh,
        in_specs=tuple(map(spec, given)),
        out_specs=list(map(spec, jaxpr.out_avals)),
        axis_names=set(names),
        check_vma=checked,
    )
    return function, list(map(whole, given))
