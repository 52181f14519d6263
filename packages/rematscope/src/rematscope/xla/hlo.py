"""A compiled program as XLA keeps it: its instructions in the order in which they run, its FLOPs and its buffers.

XLA hands programs and its allocation record over as protocol buffers (`hlo.proto` and `xla_data.proto` of OpenXLA). The
few fields that are needed are read here, by number; that takes less than a library would.
"""

import dataclasses
import functools
import json
import math

import numpy as np

from rematscope.ir.cost import Cost
from rematscope.ir.source import Source, place_of
from rematscope.xla.protobuf import Message, integer_field, integers, message_field, message_fields, parse, text_field


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
            id=integer_field(fields, 35),
            name=text_field(fields, 1),
            opcode=text_field(fields, 2),
            shape=tuple(integers(message_field(fields, 3)[3])),
            op_name=text_field(message_field(fields, 7), 2),
            operands=tuple(integers(fields[36])),
            calls=tuple(integers(fields[38])),
            fields=fields,
        )

    @property
    def config(self) -> dict:
        """What the backend decided about it, where it says so in JSON."""
        try:
            return json.loads(text_field(self.fields, 43))
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
        self.entry = integer_field(module, 6)
        self.computations: dict[int, list[Instruction]] = {}
        self.roots = {}
        for computation in message_fields(module, 3):
            number = integer_field(computation, 5)
            self.computations[number] = list(map(Instruction.of, message_fields(computation, 2)))
            self.roots[number] = integer_field(computation, 6)
        for sequence in message_fields(message_field(module, 7), 1):
            by_id = {instruction.id: instruction for instruction in self.computations[integer_field(sequence, 1)]}
            order = integers(message_field(sequence, 2)[1])
            self.computations[integer_field(sequence, 1)] = [by_id[number] for number in order]
        self.by_id = {i.id: i for computation in self.computations.values() for i in computation}
        self._frames = message_field(module, 17)

    def source(self, instruction: Instruction) -> Source | None:
        """The line that the instruction comes from."""
        frame = integer_field(message_field(instruction.fields, 7), 15)
        if not frame:
            return None

        def entry(field, number):  # numbered from 1
            return self._frames[field][number - 1]

        location = parse(entry(3, integer_field(parse(entry(4, frame)), 1)))
        file, function = entry(1, integer_field(location, 1)).decode(), entry(2, integer_field(location, 2)).decode()
        return Source(place_of(file), integer_field(location, 3), function)

    @functools.cached_property
    def cost(self) -> Cost:
        """FLOPs and transcendentals of what XLA made of the program, all iterations of its loops counted.

        The conventions are `rematscope.ir.cost`'s. XLA's own `cost_analysis` counts a loop's body once.
        """
        return self._cost_of(self.entry)

    @functools.cached_property
    def uncounted(self) -> list[str]:
        """What `cost` cannot look into, in sentences."""
        calls = [i for i in self.by_id.values() if i.opcode == "custom-call" and i.operands and _contracted(i) is None]
        libraries = {text_field(call.fields, 28) for call in calls} - _FREE_CALLS
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
                    size = math.prod(integers(message_fields(message_field(instruction.fields, 3), 4)[0][3]))
                return Cost(2 * size * math.prod(shape[d] for d in contracted))
            case "convolution":
                return Cost(2 * self._multiplications(instruction))
            case "reduce":
                return Cost(math.prod(self.by_id[instruction.operands[0]].shape))
            case "reduce-window" | "select-and-scatter":
                return Cost(
                    size
                    * math.prod(integer_field(d, 1) for d in message_fields(message_field(instruction.fields, 15), 1))
                )
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
        constants = [message_field(i.fields, 8) for i in self.computations[condition] if i.opcode == "constant"]
        bounds = [number for constant in constants for number in integers([*constant[4], *constant[5]])]
        return bounds[0] if len(bounds) == 1 else None

    def _multiplications(self, convolution: Instruction) -> int:
        """Those with numbers of the image: what meets padding, or the holes of a dilation, is not computed."""
        image, kernel = (self.by_id[i].shape for i in convolution.operands)
        where = message_field(convolution.fields, 16)
        result = convolution.shape
        count = kernel[integer_field(where, 3)] * result[integer_field(where, 9)] * result[integer_field(where, 10)]
        window = message_fields(message_field(convolution.fields, 15), 1)
        for dimension, i, o in zip(window, integers(where[11]), integers(where[12]), strict=True):
            base = integer_field(dimension, 6, 1)
            taps = np.arange(integer_field(dimension, 1)) * integer_field(dimension, 5, 1) - integer_field(dimension, 3)
            places = np.arange(result[o])[:, None] * integer_field(dimension, 2, 1) + taps
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
        return integers(message_field(instruction.fields, 30)[1])
    config = instruction.config.get("gemm_backend_config", {})
    numbers = config.get("dot_dimension_numbers")
    return None if numbers is None else list(map(int, numbers.get("lhs_contracting_dimensions", [])))
