"""The sharding in the type of an array: the mesh axes that shard each of its dimensions."""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax


class Spec(NamedTuple):
    """The sharding in the type of an array on a mesh with explicit axes.

    Attributes:
      axes: for each dimension, the mesh axes that shard it.
      unreduced: the mesh axes along which each device has a partial sum of every element.
      sizes: the size of each mesh axis.
    """

    axes: tuple[tuple[str, ...], ...]
    unreduced: frozenset[str]
    sizes: dict[str, int]

    def ways(self, axes: Iterable[str]) -> int:
        """Return the number of devices along some axes; 0 if it is 1, because one device has no data to exchange."""
        count = math.prod(self.sizes[axis] for axis in axes)
        return count if count > 1 else 0


def _spec_entries(spec: Any) -> tuple[Any, ...]:
    """Return the entries of a `PartitionSpec`; JAX refuses to iterate over a spec with reduced or unreduced axes."""
    return tuple(getattr(spec, "partitions", spec))


def is_trivial(spec: Any) -> bool:
    """Return whether a `PartitionSpec` shards no dimension and marks no axis as reduced or unreduced."""
    return not (any(_spec_entries(spec)) or getattr(spec, "unreduced", None) or getattr(spec, "reduced", None))


def spec_of(aval: Any) -> Spec | None:
    """Return the sharding in the type of an array; None if the type contains none."""
    sharding = getattr(aval, "sharding", None)
    if sharding is None or sharding.mesh.empty:
        return None
    entries = _spec_entries(sharding.spec)
    axes = [() if entry is None else entry if isinstance(entry, tuple) else (entry,) for entry in entries]
    axes += [()] * (len(aval.shape) - len(axes))
    unreduced = frozenset(getattr(sharding.spec, "unreduced", None) or ())
    return Spec(tuple(axes), unreduced, dict(sharding.mesh.shape))


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
    # The sharding's own shard_shape does not work on the mesh inside a shard_map.
    ways = (spec.ways(axes) or 1 for axes in spec.axes)
    return tuple(-(-length // parts) for length, parts in zip(shape, ways, strict=True)), decided
