"""A compiled program: its instructions in the order in which they run, and the source lines that they come from."""

import dataclasses
import functools
import json
from typing import Any

from rematscope.ir.source import Source, place_of
from rematscope.xla import hlo_proto
from rematscope.xla.hlo_proto import Instruction, StackFrameIndex
from rematscope.xla.protobuf import damaged_record


@dataclasses.dataclass(frozen=True, eq=False)
class Module:
    """A compiled program.

    Attributes:
      computations: the instructions of each computation by its id, in the scheduled order if XLA has scheduled them.
      entry: the id of the computation that runs first.
      roots: for the id of each computation, the id of the instruction that is its result.
      frames: the lines of Python that instructions come from.
    """

    computations: dict[int, list[Instruction]]
    entry: int
    roots: dict[int, int]
    frames: StackFrameIndex

    @functools.cached_property
    def by_id(self) -> dict[int, Instruction]:
        """The instructions of all computations, by their ids."""
        return {instruction.id: instruction for part in self.computations.values() for instruction in part}

    def source(self, instruction: Instruction) -> Source | None:
        """Return the source line that an instruction comes from; None without one."""
        if not (number := instruction.metadata.stack_frame_id):
            return None
        frame = self.frames.stack_frames[number - 1]
        location = self.frames.file_locations[frame.file_location_id - 1]
        file = self.frames.file_names[location.file_name_id - 1]
        return Source(place_of(file), location.line, self.frames.function_names[location.function_name_id - 1])


def read(serialized: bytes) -> Module:
    """Parse an `HloModuleProto`.

    Raises:
      TargetError: if it is damaged.
    """
    module = hlo_proto.Module(serialized)
    computations = {computation.id: computation.instructions for computation in module.computations}
    for sequence in module.schedule.sequences:
        scheduled = {instruction.id: instruction for instruction in computations.get(sequence.key, ())}
        order = sequence.value.instruction_ids
        if not scheduled.keys() >= set(order):
            raise damaged_record("its schedule names an instruction that does not exist")
        computations[sequence.key] = [scheduled[number] for number in order]
    roots = {computation.id: computation.root_id for computation in module.computations}
    read = Module(computations, module.entry_computation_id, roots, module.stack_frame_index)
    used = {number for instruction in read.by_id.values() for number in instruction.operand_ids}
    called = {number for instruction in read.by_id.values() for number in instruction.called_computation_ids}
    if not (read.by_id.keys() >= used.union(roots.values()) and computations.keys() >= called | {read.entry}):
        raise damaged_record("it refers to an instruction or computation that does not exist")
    return read


def backend_config(instruction: Instruction) -> dict[str, Any]:
    """Return the backend's configuration of an instruction, if it is JSON; else an empty dictionary."""
    try:
        return dict(json.loads(instruction.backend_config))
    except (ValueError, TypeError):
        return {}
