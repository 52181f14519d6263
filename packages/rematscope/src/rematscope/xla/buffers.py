"""Live bytes over the schedule of a compiled program, from XLA's allocation record."""

import dataclasses
from collections import defaultdict
from typing import Any

import numpy as np

from rematscope.memory.timeline import BANDS, MemorySample, Timeline
from rematscope.xla.hlo import Module
from rematscope.xla.hlo_proto import BufferAllocation, BufferAssignment, Instruction

_PAINTED = ["temporaries", "recomputed", "residuals"]  # where buffers of several bands overlap, the last one counts


def allocation(module: Module, record: bytes, title: str) -> Timeline | None:
    """Return the live bytes over the schedule of a compiled program, from XLA's buffer assignment.

    A buffer is live from the instruction that writes it to the last instruction that reads it, both included. Buffers
    that share memory count once. A loop's carry is live as long as the loop.

    JAX's name of the operation that an instruction comes from tells its pass. Residuals are written by the forward pass
    and read by the backward pass; recomputed buffers are written by a checkpoint's recompute. XLA names a fusion after
    one of its operations. The boundary is where the backward pass first reads a residual after the bytes of residuals
    have reached their maximum: XLA may schedule backward operations that need few residuals before the forward pass.

    Returns:
      The timeline; None if the record is empty, as for a TPU.

    Raises:
      TargetError: if the record is damaged.
    """
    assignment = BufferAssignment(record)
    if not assignment.buffer_allocations:
        return None
    schedule = _build_schedule(module, assignment)
    bands = {buffer: _band_of(buffer, schedule) for buffer in schedule.ranges}
    totals = _live_bytes(assignment, schedule, bands)

    def moment(operation, step, source=None):
        amounts: dict[str, Any] = {band: int(total[step]) for band, total in totals.items()}
        return MemorySample(operation, source, **amounts)

    samples = [moment(_instruction_label(i), step, module.source(i)) for step, i in enumerate(schedule.steps)]
    boundary = _boundary_step(schedule, bands, totals["residuals"])
    samples.insert(boundary, dataclasses.replace(samples[max(0, boundary - 1)], operation="boundary", source=None))
    start = MemorySample("start", None, arguments=samples[0].arguments)
    return Timeline(title, [start, *samples, moment("end", len(schedule.steps))], boundary + 1)


def given_bytes(record: bytes) -> int | None:
    """Return the bytes of a program's arguments and constants; None if its `BufferAssignmentProto` is empty."""
    blocks = BufferAssignment(record).buffer_allocations
    return sum(block.size for block in blocks if _holds_arrays(block) and _is_given(block)) if blocks else None


def _holds_arrays(block: BufferAllocation) -> bool:
    addresses = block.is_tuple and len(block.assigned) <= 1
    return not (block.is_thread_local or addresses)


def _is_given(block: BufferAllocation) -> bool:
    return bool(block.is_entry_computation_parameter or block.is_constant)


@dataclasses.dataclass
class LiveRange:
    """The steps, counted from 0, at which a buffer is live.

    Attributes:
      maker: the instruction that writes it.
      first: the step at which that instruction runs.
      last: the step at which it is read last; None if nothing reads it.
      readers: the instructions that read it.
    """

    maker: Instruction
    first: int
    last: int | None = None
    readers: list[Instruction] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Schedule:
    """A program as one sequence of steps, with called computations inlined.

    Attributes:
      steps: the instructions that compute something, in order. The results are read one step after the last of them.
      ranges: the live range of each buffer.
      in_one_place: for each buffer, the buffers that hold the same carry of a loop, itself included.
    """

    steps: list[Instruction] = dataclasses.field(default_factory=list)
    ranges: dict[int, LiveRange] = dataclasses.field(default_factory=dict)
    in_one_place: dict[int, set[int]] = dataclasses.field(default_factory=dict)


Path = tuple[int, ...]  # into a tuple
Held = dict[Path, set[int]]  # for each part of an instruction's result, the buffers that may hold it

_PASSED_ON = frozenset({"bitcast", "optimization-barrier", "copy-done", "while"})
_NO_STEP = frozenset({"parameter", "constant", "get-tuple-element", "tuple", "bitcast"})
_RUNS = frozenset({"while", "call", "conditional"})


def _build_schedule(module: Module, assignment: BufferAssignment) -> Schedule:
    walk = _Walk(module, assignment)
    walk.computation(module.entry, [])
    walk.read(walk.held[module.roots[module.entry]])
    return walk.schedule


class _Walk:
    """Walk a program in the order in which it runs, and record which steps write and read each buffer."""

    def __init__(self, module: Module, assignment: BufferAssignment):
        self.module = module
        self.schedule = Schedule()
        self.held: dict[int, Held] = {}
        self.defined: dict[int, list[tuple[Path, int]]] = defaultdict(list)
        for buffer in assignment.logical_buffers:
            place = buffer.defined_at
            self.defined[place.instruction_id].append((tuple(place.shape_index), buffer.id))

    def computation(self, number: int, arguments: list[Held]) -> None:
        for instruction in self.module.computations[number]:
            if instruction.opcode == "parameter" and arguments:
                held = dict(arguments[instruction.parameter_number])
            else:
                held = self.passed_on(instruction)
            given = [self.held[operand] for operand in instruction.operand_ids]
            for k, part in enumerate(instruction.called_computation_ids if instruction.opcode in _RUNS else ()):
                self.computation(part, given[k + 1 : k + 2] if instruction.opcode == "conditional" else given)
                result = self.held[self.module.roots[part]]
                if (instruction.opcode, k) != ("while", 1):  # a loop's second computation is its condition
                    self.read(result)
                    held = {path: held.get(path, set()) | result.get(path, set()) for path in {**held, **result}}
            for path, buffer in self.defined[instruction.id]:
                self.make(buffer, instruction)
                held[path] = held.get(path, set()) | {buffer}
            self.held[instruction.id] = held
            if instruction.opcode in ("while", "parameter"):
                for buffers in held.values():
                    self.join(buffers)
            if instruction.opcode not in _NO_STEP:
                for operand in given:
                    self.read(operand, instruction)
                self.schedule.steps.append(instruction)

    def passed_on(self, instruction: Instruction) -> Held:
        """Return the buffers in an instruction's result that other instructions wrote."""
        given = [self.held[operand] for operand in instruction.operand_ids]
        match instruction.opcode:
            case "tuple":
                return {(i, *path): buffers for i, part in enumerate(given) for path, buffers in part.items()}
            case "get-tuple-element":
                index = (instruction.tuple_index,)
                return {path[1:]: buffers for path, buffers in given[0].items() if path[:1] == index}
            case opcode if opcode in _PASSED_ON:
                return dict(given[0])
        return {}

    def make(self, buffer: int, maker: Instruction) -> None:
        """Record that the next step writes a buffer. A later call of the same computation overrides the record."""
        live = self.schedule.ranges.setdefault(buffer, LiveRange(maker, 0))
        live.maker, live.first = maker, len(self.schedule.steps)

    def read(self, held: Held, reader: Instruction | None = None) -> None:
        """Record that the next step reads these buffers."""
        for buffer in set().union(*held.values()):
            live = self.schedule.ranges[buffer]
            live.last = len(self.schedule.steps)
            if reader is not None:
                live.readers.append(reader)

    def join(self, buffers: set[int]) -> None:
        """Record that buffers hold the same carry of a loop."""
        together = self.schedule.in_one_place
        group = set().union(buffers, *(together.get(buffer, ()) for buffer in buffers))
        together.update(dict.fromkeys(group, group))


_BACKWARD = frozenset({"recomputed", "backward"})


def _pass_of(instruction: Instruction) -> str:
    """Return the pass that an instruction belongs to, by the name of JAX's operation; "" without a name."""
    name = instruction.metadata.op_name
    if "rematted_computation" in name:
        return "recomputed"
    return "backward" if "transpose(" in name else "forward" if "/" in name else ""


def _band_of(buffer: int, schedule: Schedule) -> str:
    """Return the band of a buffer, which is the same for all buffers of one carry."""
    group = schedule.in_one_place.get(buffer, {buffer})
    ranges = [schedule.ranges[other] for other in group]
    makers = [_pass_of(live.maker) for live in ranges]
    if "forward" in makers and any(_pass_of(reader) in _BACKWARD for live in ranges for reader in live.readers):
        return "residuals"
    return "recomputed" if "recomputed" in makers else "temporaries"


def _live_bytes(assignment: BufferAssignment, schedule: Schedule, bands: dict[int, str]) -> dict[str, np.ndarray]:
    """Return the bytes of each band at each step, int64[steps + 1].

    Each allocation is an array: its bytes, divided where a buffer begins or ends, by the steps of the schedule.
    """
    size = len(schedule.steps) + 1
    totals = {band: np.zeros(size, np.int64) for band in BANDS}
    for block in assignment.buffer_allocations:
        if not _holds_arrays(block):
            continue
        if _is_given(block):
            totals["arguments"] += block.size
            continue
        buffers = [part for part in block.assigned if part.logical_buffer_id in schedule.ranges]
        edges = np.unique([edge for part in buffers for edge in (part.offset, part.offset + part.size)])
        paint = np.zeros((size, max(0, len(edges) - 1)), np.int8)
        for part in sorted(buffers, key=lambda part: _PAINTED.index(bands[part.logical_buffer_id])):
            live = schedule.ranges[part.logical_buffer_id]
            rows = slice(live.first, (live.first if live.last is None else live.last) + 1)
            columns = slice(*np.searchsorted(edges, [part.offset, part.offset + part.size]))
            paint[rows, columns] = _PAINTED.index(bands[part.logical_buffer_id]) + 1
        for i, band in enumerate(_PAINTED):
            totals[band] += (paint == i + 1) @ np.diff(edges)
    return totals


def _boundary_step(schedule: Schedule, bands: dict[int, str], residual_bytes: np.ndarray) -> int:
    """Return the step at which the backward pass first reads a residual once the most bytes of residuals are live.

    The first such read of the whole schedule can be earlier than the forward pass, for example an operation of the
    backward pass that reads only the sum of a mask.
    """
    kept = {
        reader for buffer, band in bands.items() if band == "residuals" for reader in schedule.ranges[buffer].readers
    }
    passes = list(map(_pass_of, schedule.steps))
    for step in range(int(np.argmax(residual_bytes)), len(schedule.steps)):
        if passes[step] in _BACKWARD and schedule.steps[step] in kept:
            return step
    return max((step + 1 for step, of in enumerate(passes) if of == "forward"), default=0)


def _instruction_label(instruction: Instruction) -> str:
    """`fusion.3 (dot_general)`."""
    operation = instruction.metadata.op_name.rpartition("/")[2]
    return f"{instruction.name} ({operation})" if operation else instruction.name
