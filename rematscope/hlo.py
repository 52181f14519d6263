"""A compiled program as XLA keeps it: its instructions in the order in which they run, its FLOPs and its buffers.

XLA hands programs and its allocation record over as protocol buffers (`hlo.proto` and `xla_data.proto` of OpenXLA). The
few fields that are needed are read here, by number; that takes less than a library would.
"""

import dataclasses
import functools
import json
import math
from collections import defaultdict

import numpy as np

from rematscope.cost import Cost
from rematscope.source import Source, place_of
from rematscope.timeline import BANDS, Moment, Timeline

Message = dict[int, list]


def parse(message: bytes) -> Message:
    """Field number → its values, in order: integers, or bytes for whatever has a length."""
    found: Message = defaultdict(list)
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        match tag & 7:
            case 0:
                value, at = _varint(message, at)
            case 2:
                size, at = _varint(message, at)
                value, at = message[at : at + size], at + size
            case kind:  # fixed 64 or 32 bits: a float, and none is needed
                value, at = None, at + {1: 8, 5: 4}[kind]
        found[tag >> 3].append(value)
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value - (value >> 63 << 64), at  # negative numbers are the two's complement in 64 bits


def integers(values: list) -> list[int]:
    """Repeated integers, packed or not."""
    found = []
    for value in values:
        if isinstance(value, int):
            found.append(value)
            continue
        at = 0
        while at < len(value):
            number, at = _varint(value, at)
            found.append(number)
    return found


def _number(message: Message, field: int, default: int = 0) -> int:
    return message[field][0] if message[field] else default


def _text(message: Message, field: int) -> str:
    return message[field][0].decode() if message[field] else ""


def _parts(message: Message, field: int) -> list[Message]:
    return list(map(parse, message[field]))


def _part(message: Message, field: int) -> Message:
    return parse(message[field][0]) if message[field] else defaultdict(list)


@dataclasses.dataclass(frozen=True, eq=False)
class Instruction:
    """One instruction of a computation.

    Attributes:
      id: its number in the module.
      name, opcode: XLA's.
      shape: of its result; empty for a scalar or a tuple.
      op_name: JAX's path to the operation that it comes from, or "".
      operands: ids of the instructions that it reads.
      calls: ids of the computations that it runs.
      fields: the rest, by field number.
    """

    id: int
    name: str
    opcode: str
    shape: tuple[int, ...]
    op_name: str
    operands: tuple[int, ...]
    calls: tuple[int, ...]
    fields: Message

    @classmethod
    def of(cls, fields: Message) -> "Instruction":
        return cls(
            id=_number(fields, 35),
            name=_text(fields, 1),
            opcode=_text(fields, 2),
            shape=tuple(integers(_part(fields, 3)[3])),
            op_name=_text(_part(fields, 7), 2),
            operands=tuple(integers(fields[36])),
            calls=tuple(integers(fields[38])),
            fields=fields,
        )

    @property
    def config(self) -> dict:
        """What the backend decided about it, where it says so in JSON."""
        try:
            return json.loads(_text(self.fields, 43))
        except ValueError:
            return {}


class Module:
    """A compiled program.

    Attributes:
      computations: id → its instructions, in the order in which they run where XLA has decided on one.
      entry: the id of the computation that runs first.
      roots: id of a computation → id of the instruction that is its result.
    """

    def __init__(self, serialized: bytes):
        module = parse(serialized)
        self.entry = _number(module, 6)
        self.computations: dict[int, list[Instruction]] = {}
        self.roots = {}
        for computation in _parts(module, 3):
            number = _number(computation, 5)
            self.computations[number] = list(map(Instruction.of, _parts(computation, 2)))
            self.roots[number] = _number(computation, 6)
        for sequence in _parts(_part(module, 7), 1):
            by_id = {instruction.id: instruction for instruction in self.computations[_number(sequence, 1)]}
            order = integers(_part(sequence, 2)[1])
            self.computations[_number(sequence, 1)] = [by_id[number] for number in order]
        self.by_id = {i.id: i for computation in self.computations.values() for i in computation}
        self._frames = _part(module, 17)

    def source(self, instruction: Instruction) -> Source | None:
        """The line that the instruction comes from."""
        frame = _number(_part(instruction.fields, 7), 15)
        if not frame:
            return None

        def entry(field, number):  # numbered from 1
            return self._frames[field][number - 1]

        location = parse(entry(3, _number(parse(entry(4, frame)), 1)))
        file, function = entry(1, _number(location, 1)).decode(), entry(2, _number(location, 2)).decode()
        return Source(place_of(file), _number(location, 3), function)

    @functools.cached_property
    def cost(self) -> Cost:
        """FLOPs and transcendentals of what XLA made of the program, all iterations of its loops counted.

        The conventions are `rematscope.cost`'s. XLA's own `cost_analysis` counts a loop's body once.
        """
        return self._cost_of(self.entry)

    @functools.cached_property
    def uncounted(self) -> list[str]:
        """What `cost` cannot look into, in sentences."""
        calls = [i for i in self.by_id.values() if i.opcode == "custom-call" and i.operands and _contracted(i) is None]
        libraries = {_text(call.fields, 28) for call in calls} - _FREE_CALLS
        sentences = [f"What the library call {name} computes is not counted." for name in sorted(libraries)]
        if any(i.opcode == "while" and self._trips(i) is None for i in self.by_id.values()):
            sentences.append("A loop of unknown length counts as one iteration.")
        return sentences

    def _cost_of(self, computation: int) -> Cost:
        return sum(map(self._cost, self.computations[computation]), Cost())

    def _cost(self, instruction: Instruction) -> Cost:
        size = math.prod(instruction.shape)
        match instruction.opcode:
            case "fusion" | "call" | "async-start":
                return sum(map(self._cost_of, instruction.calls), Cost())
            case "while":
                return sum(map(self._cost_of, instruction.calls), Cost()) * (self._trips(instruction) or 1)
            case "conditional":
                return max(map(self._cost_of, instruction.calls), key=lambda cost: cost.flops)
            case "dot" | "custom-call":
                contracted = _contracted(instruction)
                if contracted is None:
                    return Cost()
                shape = self.by_id[instruction.operands[0]].shape
                if (
                    instruction.opcode == "custom-call" and not instruction.shape
                ):  # a tuple: the result, and a workspace
                    size = math.prod(integers(_parts(_part(instruction.fields, 3), 4)[0][3]))
                return Cost(2 * size * math.prod(shape[d] for d in contracted))
            case "convolution":
                return Cost(2 * self._multiplications(instruction))
            case "reduce":
                return Cost(math.prod(self.by_id[instruction.operands[0]].shape))
            case "reduce-window" | "select-and-scatter":
                return Cost(size * math.prod(_number(d, 1) for d in _parts(_part(instruction.fields, 15), 1)))
            case opcode if opcode in _TRANSCENDENTAL:
                return Cost(transcendentals=size)
            case opcode if opcode in _ARITHMETIC:
                return Cost(size)
        return Cost()

    def _trips(self, loop: Instruction) -> int | None:
        """How often a loop runs: as XLA found out, or the one bound that its condition compares with."""
        if known := loop.config.get("known_trip_count"):
            return int(known["n"])
        _, condition = loop.calls
        constants = [_part(i.fields, 8) for i in self.computations[condition] if i.opcode == "constant"]
        bounds = [number for constant in constants for number in integers([*constant[4], *constant[5]])]
        return bounds[0] if len(bounds) == 1 else None

    def _multiplications(self, convolution: Instruction) -> int:
        """Those with numbers of the image: what meets padding, or the holes of a dilation, is not computed."""
        image, kernel = (self.by_id[i].shape for i in convolution.operands)
        where = _part(convolution.fields, 16)
        result = convolution.shape
        count = kernel[_number(where, 3)] * result[_number(where, 9)] * result[_number(where, 10)]
        window = _parts(_part(convolution.fields, 15), 1)
        for dimension, i, o in zip(window, integers(where[11]), integers(where[12]), strict=True):
            base = _number(dimension, 6, 1)
            taps = np.arange(_number(dimension, 1)) * _number(dimension, 5, 1) - _number(dimension, 3)
            places = np.arange(result[o])[:, None] * _number(dimension, 2, 1) + taps
            count *= int(np.sum((places >= 0) & (places <= (image[i] - 1) * base) & (places % base == 0)))
        return count


_TRANSCENDENTAL = frozenset(
    "cbrt cosine erf exponential exponential-minus-one log log-plus-one logistic power rsqrt sine sqrt tan tanh atan2 "
    "acos acosh asin asinh atanh cosh sinh".split()
)
_ARITHMETIC = frozenset(
    "abs add and clamp compare divide maximum minimum multiply negate not or popcnt remainder round-nearest-afz "
    "round-nearest-even floor ceil sign subtract xor shift-left shift-right-arithmetic shift-right-logical".split()
)
# Calls that compute nothing.
_FREE_CALLS = frozenset({"Sharding", "ConcatBitcast", "AllocateBuffer", "MoveToHost", "MoveToDevice"})


def _contracted(instruction: Instruction) -> list[int] | None:
    """Of a matrix product, the dimensions of its left operand that it sums over; a GPU's are calls of a library."""
    if instruction.opcode == "dot":
        return integers(_part(instruction.fields, 30)[1])
    config = instruction.config.get("gemm_backend_config", {})
    numbers = config.get("dot_dimension_numbers")
    return None if numbers is None else list(map(int, numbers.get("lhs_contracting_dimensions", [])))


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
        for buffer in _parts(record, 1):
            place = _part(buffer, 3)
            self._own[_number(place, 4)].append((tuple(integers(place[3])), _number(buffer, 1)))
        self._walk(module.entry, [])
        self._read(self._held[module.roots[module.entry]], len(self.steps))

    def _walk(self, computation: int, arguments: list[dict[Path, set[int]]]) -> None:
        for instruction in self.module.computations[computation]:
            if instruction.opcode == "parameter" and arguments:
                held = dict(arguments[_number(instruction.fields, 9)])
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
                index = (_number(instruction.fields, 13),)
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
        for block in _parts(self.record, 3):
            if _number(block, 3) or _number(block, 11):  # a thread's own, or a tuple of addresses
                continue
            if _number(block, 5) or _number(block, 12):  # an argument, or a constant
                totals["arguments"] += _number(block, 2)
                continue
            buffers = [(_number(b, 1), _number(b, 2), _number(b, 3)) for b in _parts(block, 9)]
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
