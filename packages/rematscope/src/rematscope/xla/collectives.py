"""The collectives of a compiled program, and what each device sends over its links for them."""

import itertools
import math
from collections.abc import Iterator, Set

from rematscope.ir import collectives
from rematscope.ir.collectives import CollectiveStats, most_sent, tally_by_kind
from rematscope.xla.hlo import Module
from rematscope.xla.hlo_proto import Instruction, PrimitiveType, Shape
from rematscope.xla.trip_counts import trip_count

# The bytes of an element, for types of more than one byte.
_SIZES: dict[int, int] = {
    **dict.fromkeys((PrimitiveType.S16, PrimitiveType.U16, PrimitiveType.F16, PrimitiveType.BF16), 2),
    **dict.fromkeys((PrimitiveType.S32, PrimitiveType.U32, PrimitiveType.F32), 4),
    **dict.fromkeys((PrimitiveType.S64, PrimitiveType.U64, PrimitiveType.F64, PrimitiveType.C64), 8),
    PrimitiveType.C128: 16,
}
_KINDS = frozenset(collectives.KINDS.values())


def collectives_in(module: Module, devices: int) -> dict[str, CollectiveStats]:
    """Return how many times each kind of collective runs in a program, and the bytes that a device sends for it.

    Loops are multiplied by their trip counts where these are known. Of branches, the branch that sends most counts.

    For a TPU, XLA writes a collective that overlaps with other operations several times, in a chain of fusions: one
    starts it, any number run while it advances, and one waits for its end. The start alone counts.
    """
    return tally_by_kind(_find_collectives(module, module.entry, 1, devices, _started_by_fusions(module)))


def chains_not_counted(module: Module) -> list[str]:
    """Return a sentence for each kind of collective of which `collectives_in` does not find the start of a chain."""
    starts = _started_by_fusions(module)
    chains: dict[bool, set[tuple[str, str]]] = {True: set(), False: set()}
    for instruction in module.by_id.values():
        if (chain := _chain_of(instruction)) is not None:
            chains[instruction.id in starts].add((instruction.opcode, chain))
    return [
        f"Some {kind}s that overlap with other operations are not counted, because XLA does not mark their start."
        for kind in sorted({kind for kind, _ in chains[False] - chains[True]})
    ]


def _started_by_fusions(module: Module) -> set[int]:
    """Return the ids of the collectives that the first fusion of a chain starts."""
    starts = (each for each in module.by_id.values() if each.custom_call_target == "AsyncCollectiveStart")
    return {number for start in starts for number in start.operand_ids}


def _chain_of(instruction: Instruction) -> str | None:
    """Return the chain that a collective is written in several times; None for all other instructions."""
    if instruction.opcode not in _KINDS:
        return None
    return next((each.value for each in instruction.frontend_attributes.map if each.key == "chain_id"), None)


def _find_collectives(
    module: Module, computation: int, times: int, devices: int, started: Set[int]
) -> Iterator[tuple[str, int, int]]:
    for instruction in module.computations[computation]:
        if _chain_of(instruction) is not None and instruction.id not in started:
            continue
        name = instruction.opcode.removesuffix("-start")  # its end is an operation of its own, -done
        if name in _KINDS:
            result = _shape_bytes(instruction.shape)
            operand = sum(_shape_bytes(module.by_id[number].shape) for number in instruction.operand_ids)
            if instruction.opcode != name and instruction.shape.tuple_shapes and name != "all-reduce":
                result -= operand  # it also returns its operands
            size = collectives.link_bytes(name, operand, result, _group_size(instruction, devices))
            yield name, times, times * size
            continue  # the computation that it calls adds two elements
        inside = times
        if instruction.opcode == "while" and (known := trip_count(module, instruction)) is not None:
            inside *= known
        each = [
            _find_collectives(module, called, inside, devices, started) for called in instruction.called_computation_ids
        ]
        if instruction.opcode == "conditional":
            yield from most_sent(each)
        else:
            yield from itertools.chain.from_iterable(each)


def _shape_bytes(shape: Shape) -> int:
    if shape.tuple_shapes:
        return sum(map(_shape_bytes, shape.tuple_shapes))
    return math.prod(shape.dimensions) * _SIZES.get(shape.element_type, 1)


def _group_size(instruction: Instruction, devices: int) -> int:
    """Return how many devices exchange data: XLA lists the groups, gives their size, or names axes of a mesh."""
    if groups := instruction.replica_groups or instruction.collective_device_list.replica_groups:
        return len(groups[0].replica_ids)
    if size := instruction.collective_device_list.iota_replica_group_list.num_devices_per_group:
        return size
    named = instruction.mesh_axes_replica_group_list
    sizes = [axis.sub_axis_info.size or named.mesh.axes[axis.mesh_axis_index].size for axis in named.axes]
    return math.prod(sizes) if sizes else devices
