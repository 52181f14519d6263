"""A function of what one device has, taken out of the `shard_map` that calls it."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax
from jax.extend import source_info_util
from jax.extend.core import jaxpr_as_fun
from jax.sharding import AxisType, PartitionSpec

from rematscope.jax_compat import make_jaxpr, varying

source_info_util.register_exclusion(__file__)


def manual_axes() -> dict[str, int]:
    """The axes that the `shard_map`s around have made their own, and how long each is; none outside of them."""
    mesh = jax.sharding.get_abstract_mesh()
    kinds = zip(mesh.axis_names, mesh.axis_sizes, mesh.axis_types, strict=True)
    return {name: size for name, size, kind in kinds if kind == AxisType.Manual}


def remap_shard_map(f: Callable[..., Any], parts: Sequence[Any]) -> tuple[Callable[..., Any], list[Any]]:
    """A function that calls `f` in a `shard_map` of its own, and the shapes of its arguments.

    To be called inside the `shard_map` around `f`.

    Args:
      f: a function of flat arguments that returns such, and reads no values from around it.
      parts: its arguments, as one device has them.
    """
    sizes = manual_axes()
    checked = bool(varying(jax.typeof(lax.axis_index(next(iter(sizes))))))  # else nobody knows what differs
    mesh: Any = jax.sharding.get_abstract_mesh()
    mesh = mesh.update_axis_types(dict.fromkeys(sizes, AxisType.Auto))  # a new mesh would not be for the same devices
    return unmap_shard_map(make_jaxpr(f)(*parts), mesh, sizes, checked)


def unmap_shard_map(
    jaxpr: Any, mesh: Any, sizes: dict[str, int], checked: bool
) -> tuple[Callable[..., Any], list[Any]]:
    """A function that runs what one device does in a `shard_map` of its own, and the shapes of its arguments.

    What differs from device to device is divided along its first dimension there, so that each device has what it had;
    a scalar that differs is a number of an array.

    Args:
      jaxpr: what one device does, closed.
      mesh: that of the devices.
      sizes: the axes of it that are divided along, and how long each is.
      checked: whether types say what differs.
    """
    names = tuple(sizes)

    def over(aval: Any) -> tuple[str, ...]:
        return tuple(name for name in names if not checked or name in varying(aval))

    def spec(aval: Any) -> Any:
        divided: Callable[..., Any] = PartitionSpec  # JAX gives its constructor no types
        return divided(over(aval)) if over(aval) else divided()

    def whole(aval: Any) -> Any:
        make: Callable[..., Any] = jax.ShapeDtypeStruct  # JAX gives its constructor no types
        shape = aval.shape
        if axes := over(aval):
            first, *rest = shape or (1,)
            shape = (first * math.prod(sizes[name] for name in axes), *rest)
        return make(shape, aval.dtype, weak_type=getattr(aval, "weak_type", False))

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
