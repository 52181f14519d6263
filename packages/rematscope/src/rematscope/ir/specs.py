"""The sharding of an array by a `PartitionSpec`: the mesh axes that shard each of its dimensions."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax


class Spec(NamedTuple):
    """The sharding of an array on a mesh.

    Attributes:
      axes: for each dimension, the mesh axes that shard it, without axes of size 1, which divide nothing.
      unreduced: the mesh axes along which each device has a partial sum of every element.
      sizes: the size of each mesh axis.
    """

    axes: tuple[tuple[str, ...], ...]
    unreduced: frozenset[str]
    sizes: dict[str, int]

    def ways(self, axes: Iterable[str]) -> int:
        """Return the number of devices along some axes; 0 if it is 1, because one device has no data to exchange."""
        count = math.prod(self.sizes.get(axis, 1) for axis in axes)
        return count if count > 1 else 0

    def shard_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the largest shape of a device's shard; JAX's `shard_shape` fails on the mesh inside a `shard_map`."""
        return tuple(-(-n // (self.ways(axes) or 1)) for n, axes in zip(shape, self.axes, strict=True))


def axes_by_dimension(spec: Any) -> tuple[tuple[str, ...], ...]:
    """Return the mesh axes that shard each dimension in a partition spec, equal for `P("d")` and `P(("d",), None)`."""
    entries = getattr(spec, "partitions", spec)  # JAX refuses to iterate over a spec with reduced or unreduced axes
    axes = [() if entry is None else entry if isinstance(entry, tuple) else (entry,) for entry in entries]
    while axes and not axes[-1]:
        axes.pop()
    return tuple(axes)


def is_trivial(spec: Any) -> bool:
    """Return whether a `PartitionSpec` shards no dimension and marks no axis as reduced or unreduced."""
    return not (axes_by_dimension(spec) or getattr(spec, "unreduced", None) or getattr(spec, "reduced", None))


def across_devices(sharding: Any) -> Any:
    """Return the sharding of an array if it is for several devices; else None."""
    return sharding if getattr(sharding, "num_devices", 1) > 1 else None


def explicit_sharding(aval: Any) -> Any:
    """Return the sharding in the type of an array if it is over explicit mesh axes; else None."""
    sharding = getattr(aval, "sharding", None)
    explicit = sharding is not None and jax.sharding.AxisType.Explicit in getattr(sharding.mesh, "axis_types", ())
    return sharding if explicit else None


def spec_of(aval: Any) -> Spec | None:
    """Return the sharding in the type of an array; None if the type contains none."""
    sharding = getattr(aval, "sharding", None)
    return None if sharding is None or sharding.mesh.empty else spec_in(sharding, len(aval.shape))


def spec_in(sharding: Any, ndim: int) -> Spec:
    """Return a `NamedSharding` of arrays with a number of dimensions."""
    sizes = dict(sharding.mesh.shape)
    given = (*axes_by_dimension(sharding.spec), *((),) * ndim)[:ndim]
    axes = tuple(tuple(axis for axis in names if sizes.get(axis, 1) > 1) for names in given)
    unreduced = frozenset(getattr(sharding.spec, "unreduced", None) or ())
    return Spec(axes, unreduced, sizes)


def device_shape(aval: Any) -> tuple[tuple[int, ...], bool]:
    """Return the maximum shape of one device's shard of an array of this type, and whether the type determines it.

    The type determines the shape on a mesh with explicit axes, and in the body of a `shard_map`. On automatic axes, or
    if the type contains no mesh, the compiler decides.
    """
    shape = tuple(getattr(aval, "shape", ()))  # a token has none
    if (spec := spec_of(aval)) is None:
        return shape, False
    kinds = zip(aval.sharding.mesh.axis_types, spec.sizes.values(), strict=True)
    decided = not any(kind == jax.sharding.AxisType.Auto and size > 1 for kind, size in kinds)
    return spec.shard_shape(shape), decided
