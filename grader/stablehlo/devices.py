"""Programs for several devices: `shard_map`'s manual computations, and the collectives in them.

The arrays of all devices are represented by one array whose first axis indexes the devices, in the mesh's order. A mesh
is a list of names and sizes, so no real devices are needed.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy, stablehlo

from grader.stablehlo.bindings import Op, device_pairs, integer, operations, shape_of, text
from grader.stablehlo.numpy_operations import Array, Uninterpreted, combination
from grader.stablehlo.types import ProgramError

MAX_DEVICES = 64

# For each dimension, the mesh axes that it is sharded across, the major axis first.
type Sharding = tuple[tuple[str, ...], ...]
type Collective = Callable[..., Array]  # a function of the operands of all devices


@dataclass(frozen=True)
class ManualComputation:
    """The devices and shardings of a `sdy.manual_computation`.

    Attributes:
      sizes: maps the mesh's axes to their sizes, the major axis first.
      taken: the sharding of each operand.
      returned: the sharding of each result.
    """

    sizes: dict[str, int]
    taken: tuple[Sharding, ...]
    returned: tuple[Sharding, ...]

    @property
    def devices(self) -> int:
        """The number of devices."""
        return math.prod(self.sizes.values())

    def divided(self, array: Array, sharding: Sharding) -> Array:
        """Return each device's shard of an array, along a new first axis of size `devices`."""
        return np.stack([array[window] for window in self._shard_windows(array.shape, sharding)])

    def joined(self, parts: Array, sharding: Sharding) -> Array:
        """Return the array whose shards are along the first axis of `parts`.

        If several devices have the same shard, the first device's shard is used.
        """
        counts = [math.prod(self.sizes[axis] for axis in axes) for axes in sharding]
        shape = [size * count for size, count in zip(parts.shape[1:], counts, strict=True)]
        array = np.empty(shape, parts.dtype)
        for part, window in reversed(list(zip(parts, self._shard_windows(shape, sharding), strict=True))):
            array[window] = part
        return array

    def _shard_windows(self, shape: Sequence[int], sharding: Sharding) -> Iterator[tuple[slice, ...]]:
        for numbers in np.ndindex(*self.sizes.values()):
            number_of = dict(zip(self.sizes, numbers, strict=True))
            yield tuple(self._shard_window(size, axes, number_of) for size, axes in zip(shape, sharding, strict=True))

    def _shard_window(self, size: int, axes: Sequence[str], number_of: dict[str, int]) -> slice:
        place, parts = 0, 1
        for axis in axes:
            place, parts = place * self.sizes[axis] + number_of[axis], parts * self.sizes[axis]
        return slice(place * size // parts, (place + 1) * size // parts)


def manual_computation(op: Op, meshes: Mapping[str, Op]) -> ManualComputation:
    """Read the devices of a `sdy.manual_computation`, given the meshes of its module.

    Raises:
      ProgramError: if a sharding is not one that `shard_map` produces.
    """
    shardings = [
        list(map(sdy.TensorShardingAttr, sdy.TensorShardingPerValueAttr(op.attributes[name]).shardings))
        for name in ("in_shardings", "out_shardings")
    ]
    try:
        named = {ir.FlatSymbolRefAttr(sharding.mesh_or_ref).value for part in shardings for sharding in part}
    except ValueError:  # an unnamed mesh
        named = set()
    if len(named) != 1 or not named <= meshes.keys():
        raise ProgramError("the traced program has a shard_map that has no mesh, or several.")
    mesh = sdy.MeshAttr(meshes[named.pop()].attributes["mesh"])
    sizes = {axis.name: axis.size for axis in map(sdy.MeshAxisAttr, mesh.axes)}
    if list(mesh.device_ids) or math.prod(sizes.values()) > MAX_DEVICES:
        raise ProgramError(f"the traced program has a mesh of more than {MAX_DEVICES} devices, or in an unusual order.")
    if set(sdy.ManualAxesAttr(op.attributes["manual_axes"])) != sizes.keys():
        raise ProgramError("the traced program has a shard_map over only some of its mesh's axes.")
    return ManualComputation(sizes, *(tuple(map(_parse_sharding, part)) for part in shardings))


def constrained_axes(op: Op, meshes: Mapping[str, Op]) -> set[str] | None:
    """Return the mesh axes across which a `sdy.sharding_constraint` shards an array.

    The set is empty if every device gets the whole array. The result is None if the mesh has only one device, or if the
    constraint leaves a dimension to the compiler and shards no other one.

    Raises:
      ProgramError: if the sharding is not one that JAX produces.
    """
    sharding = sdy.TensorShardingAttr(op.attributes["sharding"])
    try:
        name = ir.FlatSymbolRefAttr(sharding.mesh_or_ref).value
        mesh = sdy.MeshAttr(meshes[name].attributes["mesh"])
    except (KeyError, ValueError):
        raise ProgramError("the traced program has a sharding constraint without a mesh.") from None
    dims = list(map(sdy.DimensionShardingAttr, sharding.dimension_shardings))
    axes = {axis for dim in dims for axis in _parse_axes(dim.axes, sdy.AxisRefAttr)}
    if math.prod(axis.size for axis in map(sdy.MeshAxisAttr, mesh.axes)) == 1:
        return None
    return axes if axes or all(dim.is_closed for dim in dims) else None


def meshes_of(module: ir.Module) -> dict[str, Op]:
    """Return the meshes of a module by name."""
    return {text(each, "sym_name"): each for each in operations(module.body) if each.name == "sdy.mesh"}


def _parse_sharding(sharding: sdy.TensorShardingAttr) -> Sharding:
    if list(sharding.unreduced_axes):
        raise ProgramError("the traced program has a shard_map whose results still have to be summed.")
    return tuple(
        _parse_axes(sdy.DimensionShardingAttr(dim).axes, sdy.AxisRefAttr) for dim in sharding.dimension_shardings
    )


def _parse_axes(axes: Sequence[ir.Attribute], kind: type) -> tuple[str, ...]:
    references = list(map(kind, axes))
    if any(axis.sub_axis_info is not None for axis in references):
        raise ProgramError("the traced program splits an axis of its mesh.")
    return tuple(axis.name for axis in references)


def collective(op: Op, sizes: dict[str, int]) -> Collective:
    """Return a function that runs an operation of `COLLECTIVES` on a mesh of these sizes.

    Raises:
      Uninterpreted: if the operation does not have the form that JAX produces.
    """
    if len(op.results) != 1:
        raise Uninterpreted("a collective of several arrays")
    run, declared = COLLECTIVES[op.name](op, sizes), shape_of(op.results[0])

    def checked(*operands: Array) -> Array:
        # The verifier does not know the mesh's sizes, and the work of all later operations is counted from the declared
        # shapes.
        if (result := run(*operands)).shape[1:] != tuple(declared):
            raise Uninterpreted("a collective whose result has another shape")
        return result

    return checked


def _all_gather(op: Op, sizes: dict[str, int]) -> Collective:
    groups, dim = _device_groups(op, sizes), integer(op, "all_gather_dim")
    part, whole = (shape_of(value)[dim] for value in (op.operands[0], op.results[0]))
    if whole != part * groups.shape[1]:  # before the array is allocated
        raise Uninterpreted("a gathered array of another size")
    return _map_groups(groups, lambda own: [np.concatenate(own, dim)] * len(own))


def _all_reduce(op: Op, sizes: dict[str, int]) -> Collective:
    groups, combine = _device_groups(op, sizes), combination(op)
    return _map_groups(groups, lambda own: [combine(own)] * len(own))


def _reduce_scatter(op: Op, sizes: dict[str, int]) -> Collective:
    groups, combine, dim = _device_groups(op, sizes), combination(op), integer(op, "scatter_dimension")
    return _map_groups(groups, lambda own: np.split(combine(own), len(own), dim))


def _all_to_all(op: Op, sizes: dict[str, int]) -> Collective:
    groups = _device_groups(op, sizes)
    split, join = integer(op, "split_dimension"), integer(op, "concat_dimension")

    def exchange(own: Array) -> list[Array]:
        pieces = [np.split(array, len(own), split) for array in own]
        return [np.concatenate(pieces_for_one, join) for pieces_for_one in zip(*pieces, strict=True)]

    return _map_groups(groups, exchange)


def _collective_permute(op: Op, _: dict[str, int]) -> Collective:
    pairs = device_pairs(op)

    def permute(parts: Array) -> Array:
        moved = np.zeros_like(parts)  # devices that receive nothing get zeros
        for source, target in pairs:
            moved[target] = parts[source]
        return moved

    return permute


def _partition_id(_: Op, sizes: dict[str, int]) -> Collective:
    devices = math.prod(sizes.values())
    return lambda: np.arange(devices, dtype=np.uint32)


def _map_groups(groups: Array, function: Callable[[Array], Sequence[Array]]) -> Collective:
    """Apply a function to the arrays of each group of devices."""

    def run(parts: Array) -> Array:
        results: list[Array] = [parts[0]] * len(parts)
        for group in groups:
            for device, result in zip(group, function(parts[group]), strict=True):
                results[device] = result
        return np.stack(results)

    return run


def _device_groups(op: Op, sizes: dict[str, int]) -> Array:
    """Return the device groups of a collective, one row per group."""
    attribute = op.attributes["replica_groups"]
    if not stablehlo.ReplicaGroupMeshAxesAttr.isinstance(attribute):
        raise Uninterpreted("groups that are no axes of the mesh")
    axes = _parse_axes(list(ir.ArrayAttr(stablehlo.ReplicaGroupMeshAxesAttr(attribute).axes)), stablehlo.AxisRefAttr)
    if not set(axes) <= sizes.keys():
        raise Uninterpreted("groups of another mesh")
    devices = np.arange(math.prod(sizes.values())).reshape(list(sizes.values()))
    within = list(map(list(sizes).index, axes))
    groups: Array = np.moveaxis(devices, within, range(-len(within), 0))
    return groups.reshape(-1, math.prod(sizes[axis] for axis in axes))


COLLECTIVES: dict[str, Callable[[Op, dict[str, int]], Collective]] = {
    "stablehlo.all_gather": _all_gather,
    "stablehlo.all_reduce": _all_reduce,
    "stablehlo.all_to_all": _all_to_all,
    "stablehlo.collective_permute": _collective_permute,
    "stablehlo.partition_id": _partition_id,
    "stablehlo.reduce_scatter": _reduce_scatter,
}


def group_size(op: Op, sizes: dict[str, int]) -> int:
    """Return how many devices of a mesh of these sizes exchange data with each other in an operation of
    `COLLECTIVES`."""
    if op.name == "stablehlo.partition_id":
        return 1
    try:
        return int(_device_groups(op, sizes).shape[1])
    except (KeyError, Uninterpreted):  # a permutation has no groups
        return math.prod(sizes.values())


def on_each_device(function: Callable[..., Array], devices: int) -> Collective:
    """Return a function of all devices' arrays that applies a function to each device's arrays."""

    def run(*operands: Array) -> Array:
        if not operands:
            return np.stack([function()] * devices)
        return np.stack([function(*own) for own in zip(*operands, strict=True)])

    return run


def same_on_all(value: Array) -> Array:
    """Return a scalar that must be equal on all devices, such as a loop's condition. Raises Uninterpreted if it
    differs."""
    if value.ndim and (value != value[0]).any():
        raise Uninterpreted("devices that go different ways")
    return value[0] if value.ndim else value
