"""How the type of an array says that it lies on a mesh: over which axes each of its dimensions is divided."""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax


class Spec(NamedTuple):
    """How the type of an array says that it lies on a mesh with explicit axes.

    Attributes:
      axes: for each dimension, those over which it is divided.
      unreduced: those over which each device has a part of every number, still to be added up.
      sizes: how long each axis of the mesh is.
    """

    axes: tuple[tuple[str, ...], ...]
    unreduced: frozenset[str]
    sizes: dict[str, int]

    def ways(self, axes: Iterable[str]) -> int:
        """How many devices there are along some axes; 0 for one, which has nobody to exchange anything with."""
        count = math.prod(self.sizes[axis] for axis in axes)
        return count if count > 1 else 0


def spec_of(aval: Any) -> Spec | None:
    """What the type of an array says of how it lies; None where it says nothing."""
    sharding = getattr(aval, "sharding", None)
    if sharding is None or sharding.mesh.empty:
        return None
    axes = [() if entry is None else entry if isinstance(entry, tuple) else (entry,) for entry in sharding.spec]
    axes += [()] * (len(aval.shape) - len(axes))
    unreduced = frozenset(getattr(sharding.spec, "unreduced", None) or ())
    return Spec(tuple(axes), unreduced, dict(sharding.mesh.shape))


def device_shape(aval: Any) -> tuple[tuple[int, ...], bool]:
    """The shape of what one device has of an array of this type at most, and whether that is all there is to say.

    The type says it all on a mesh whose axes are explicit, and of the parts of arrays on which `shard_map` works.
    Automatic axes, and where there is no mesh in it, it leaves to the compiler.
    """
    shape = tuple(getattr(aval, "shape", ()))  # a token has none
    if (spec := spec_of(aval)) is None:
        return shape, False
    kinds = zip(aval.sharding.mesh.axis_types, spec.sizes.values(), strict=True)
    decided = not any(kind == jax.sharding.AxisType.Auto and size > 1 for kind, size in kinds)
    # Not its sharding's shard_shape, which cannot tell on a mesh within a shard_map.
    ways = (spec.ways(axes) or 1 for axes in spec.axes)
    return tuple(-(-length // parts) for length, parts in zip(shape, ways, strict=True)), decided
