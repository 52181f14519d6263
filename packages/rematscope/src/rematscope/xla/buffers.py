"""Live bytes over the schedule of a compiled program, from XLA's allocation record."""

import dataclasses
from collections import defaultdict

import numpy as np

from rematscope.memory.timeline import BANDS, Moment, Timeline
from rematscope.xla.hlo import Instruction, Module
from rematscope.xla.protobuf import Message, integer_field, integers, message_field, message_fields, parse

# XLA's allocation record.

Path = tuple[int, ...]  # into a tuple


_PASSED_ON = frozenset({"bitcast", "optimization-barrier", "copy-done", "while"})


_NO_STEP = frozenset({"parameter", "constant", "get-tuple-element", "tuple", "bitcast"})


def allocation(module: Module, record: bytes, title: str) -> Timeline | None:
    """Live bytes over the schedule of a compiled program, from XLA's record of where it put each buffer.

    A buffer is live from the instruction that makes it to the last one that reads it, both included; two that share a
    place count once. What is carried round a loop is live as long as the loop.

    Instructions are told apart by JAX's name for the operation that they come from: residuals are what the forward
    pass makes and the backward pass reads, recomputed is what a checkpoint computes again. XLA fuses operations, and a
    fusion goes by one of them; what has no name is other. The turn is where the backward pass first reads what the
    forward pass made.

    Returns:
      The timeline; None if the record is empty, as a TPU's is.
    """
    assigned = parse(record)
    return _Buffers(module, assigned).timeline(title) if assigned[3] else None


class _Buffers:
    """When the buffers of a compiled program are made and read, over the steps of its schedule."""

    def __init__(self, module: Module, record: Message):
        self.module = module
        self.record = record
        self.steps: list[Instruction] = []
        self.maker: dict[int, Instruction] = {}
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}
        self.readers: dict[int, list[Instruction]] = defaultdict(list)
        self._one_place: dict[int, set[int]] = {}
        self._own: dict[int, list[tuple[Path, int]]] = defaultdict(list)
        self._held: dict[int, dict[Path, set[int]]] = {}
        for buffer in message_fields(record, 1):
            place = message_field(buffer, 3)
            self._own[integer_field(place, 4)].append((tuple(integers(place[3])), integer_field(buffer, 1)))
        self._walk(module.entry, [])
        self._read(self._held[module.roots[module.entry]], len(self.steps))

    def _walk(self, computation: int, arguments: list[dict[Path, set[int]]]) -> None:
        for instruction in self.module.computations[computation]:
            if instruction.opcode == "parameter" and arguments:
                held = dict(arguments[integer_field(instruction.fields, 9)])
            else:
                held = self._passed_on(instruction)
            given = [self._held[operand] for operand in instruction.operands]
            for k, part in enumerate(instruction.calls if instruction.opcode in _RUNS else ()):
                self._walk(part, given[k + 1 : k + 2] if instruction.opcode == "conditional" else given)
                result = self._held[self.module.roots[part]]
                if (instruction.opcode, k) != ("while", 1):  # the second of a loop is its condition
                    self._read(result, len(self.steps))
                    held = {path: held.get(path, set()) | result.get(path, set()) for path in {**held, **result}}
            for path, buffer in self._own[instruction.id]:
                self.maker[buffer], self.first[buffer] = instruction, len(self.steps)
                held[path] = held.get(path, set()) | {buffer}
            self._held[instruction.id] = held
            if instruction.opcode in ("while", "parameter"):
                for buffers in held.values():
                    self._join(buffers)
            if instruction.opcode not in _NO_STEP:
                for operand in given:
                    self._read(operand, len(self.steps), instruction)
                self.steps.append(instruction)

    def _passed_on(self, instruction: Instruction) -> dict[Path, set[int]]:
        """The buffers in an instruction's result that others have made, by where they are in it."""
        given = [self._held[operand] for operand in instruction.operands]
        match instruction.opcode:
            case "tuple":
                return {(i, *path): buffers for i, part in enumerate(given) for path, buffers in part.items()}
            case "get-tuple-element":
                index = (integer_field(instruction.fields, 13),)
                return {path[1:]: buffers for path, buffers in given[0].items() if path[:1] == index}
            case opcode if opcode in _PASSED_ON:
                return dict(given[0])
        return {}

    def _read(self, held: dict[Path, set[int]], step: int, reader: Instruction | None = None) -> None:
        for buffer in set().union(*held.values()):
            self.last[buffer] = step
            if reader is not None:
                self.readers[buffer].append(reader)

    def _join(self, buffers: set[int]) -> None:
        """Buffers that go round a loop in one place belong together."""
        group = set().union(buffers, *(self._one_place.get(buffer, ()) for buffer in buffers))
        self._one_place.update(dict.fromkeys(group, group))

    def _band(self, buffer: int) -> str:
        group = self._one_place.get(buffer, {buffer})
        makers = [_pass_of(self.maker[b]) for b in group if b in self.maker]
        if "forward" in makers and any(_pass_of(r) in _BACKWARD for b in group for r in self.readers[b]):
            return "residuals"
        return "recomputed" if "recomputed" in makers else "other"

    def timeline(self, title: str) -> Timeline:
        bands = {buffer: self._band(buffer) for buffer in self.first}
        size = len(self.steps) + 1
        totals = {band: np.zeros(size, np.int64) for band in BANDS}
        for block in message_fields(self.record, 3):
            if integer_field(block, 3) or integer_field(block, 11):  # a thread's own, or a tuple of addresses
                continue
            if integer_field(block, 5) or integer_field(block, 12):  # an argument, or a constant
                totals["arguments"] += integer_field(block, 2)
                continue
            buffers = [
                (integer_field(b, 1), integer_field(b, 2), integer_field(b, 3)) for b in message_fields(block, 9)
            ]
            buffers = [b for b in buffers if b[0] in self.first]
            edges = np.unique([edge for _, offset, length in buffers for edge in (offset, offset + length)])
            paint = np.zeros((size, max(0, len(edges) - 1)), np.int8)
            order = ["other", "recomputed", "residuals"]
            for buffer, offset, length in sorted(buffers, key=lambda b: order.index(bands[b[0]])):
                rows = slice(self.first[buffer], self.last.get(buffer, self.first[buffer]) + 1)
                columns = slice(*np.searchsorted(edges, [offset, offset + length]))
                paint[rows, columns] = order.index(bands[buffer]) + 1
            for i, band in enumerate(order):
                totals[band] += (paint == i + 1) @ np.diff(edges)

        def moment(operation, step, source=None):
            return Moment(operation, source, **{band: int(total[step]) for band, total in totals.items()})

        moments = [moment(_called(i), step, self.module.source(i)) for step, i in enumerate(self.steps)]
        turn = self._turn(bands)
        moments.insert(turn, dataclasses.replace(moments[max(0, turn - 1)], operation="turn", source=None))
        start = Moment("start", None, arguments=moments[0].arguments)
        return Timeline(title, [start, *moments, moment("end", size - 1)], turn + 1)

    def _turn(self, bands: dict[int, str]) -> int:
        kept = {reader for buffer, band in bands.items() if band == "residuals" for reader in self.readers[buffer]}
        passes = list(map(_pass_of, self.steps))
        for step, instruction in enumerate(self.steps):
            if passes[step] in _BACKWARD and instruction in kept:
                return step
        return max((step + 1 for step, of in enumerate(passes) if of == "forward"), default=0)


_RUNS = frozenset({"while", "call", "conditional"})


_BACKWARD = frozenset({"recomputed", "backward"})


def _pass_of(instruction: Instruction) -> str:
    """Which pass an instruction belongs to, by the name of JAX's operation; "" if it has none."""
    name = instruction.op_name
    if "rematted_computation" in name:
        return "recomputed"
    return "backward" if "transpose(" in name else "forward" if "/" in name else ""


def _called(instruction: Instruction) -> str:
    """`fusion.3 (dot_general)`."""
    operation = instruction.op_name.rpartition("/")[2]
    return f"{instruction.name} ({operation})" if operation else instruction.name
