"""Predict which values XLA fuses into their readers and does not write to memory.

* A value that only elementwise operations and reductions read is recomputed in each of them. If it has several readers,
  it has to be cheap (`CpuInstructionFusion::IsExpensive`), even if they read it through other fused values.
* The operation may have at most one array operand, because otherwise the fusion reads more bytes than it saves
  (`EffectivelyAtMostUnary`). Alternatively, all values on the paths from the operation to the reader have to be fused
  too (`CanFuseOnAllPaths`).
* If a fused value also has other readers, it is written for these readers only. An operand that a matmul reads as rows
  and columns is reshaped for the matmul. If the operand is cheap, it is computed together with the reshape, in addition
  to the array that other operations read.
* A concatenation, a dynamic slice or a gather is fused into a single reader.
* In a sum of padded parts with several readers (for example, every second element), the parts are written, and each
  reader adds them.
* A scatter into zeros that is added to an array becomes a scatter into that array, and two such scatters are merged.

A TPU fuses more operations: the operands of matmuls and convolutions, however expensive, and the elementwise operations
on the result of a matmul or convolution if the result has no other readers.
"""

import dataclasses
import heapq
import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from rematscope.ir.primitives import DUPLICABLE, MATMULS, MOVES_FUSED_ONCE, REDUCTIONS, VIEWS
from rematscope.ir.program import Equation, Literal, Value
from rematscope.memory.xla_estimate.broadcasts import value_like
from rematscope.memory.xla_estimate.dot_layout import has_batch_of_one
from rematscope.memory.xla_estimate.hlo_rewrites import FUSED_LIKE_ELEMENTWISE, MIXED
from rematscope.memory.xla_estimate.level import Level
from rematscope.memory.xla_estimate.ynnpack import ynnpack_groups
from rematscope.seconds.devices import is_tpu

_CHEAP, _EXPENSIVE = FUSED_LIKE_ELEMENTWISE & DUPLICABLE, FUSED_LIKE_ELEMENTWISE - DUPLICABLE
_OF_ITSELF = frozenset({"integer_pow", "one_minus_square", "polynomial", "square"})  # multiply an array by itself
CAN_ALIAS_OPERAND = FUSED_LIKE_ELEMENTWISE - {"copy"} | {MIXED}
# XLA limits the number of duplicates of an operation (`CodeDuplicationTooHigh`).
_MOVES = frozenset("concatenate dynamic_update_slice pad rev slice split".split())
FUSES_OPERANDS = FUSED_LIKE_ELEMENTWISE | VIEWS | REDUCTIONS | MOVES_FUSED_ONCE | {"dynamic_update_slice", "transpose"}


@dataclasses.dataclass(frozen=True)
class Fused:
    """The values of one level that a compiler does not write to memory.

    Attributes:
      fused_away: the values that are computed inside their readers, with the equations that compute them.
      duplicated: the values that are written for some readers and recomputed inside others.
      by_library: the equations that a library computes together with a reduction.
      products: for each operation fused into a matmul's output, the matmul.
    """

    fused_away: dict[Value, Equation] = dataclasses.field(default_factory=dict)
    duplicated: dict[Value, Equation] = dataclasses.field(default_factory=dict)
    by_library: set[Equation] = dataclasses.field(default_factory=set)
    products: dict[Equation, Equation] = dataclasses.field(default_factory=dict)


def fuse(level: Level, target: str = "cpu") -> Fused:
    """Return the values of one level that a compiler computes inside their readers."""
    found = Fused()
    on_tpu = is_tpu(target)
    together = ynnpack_groups(level) if target == "cpu" else {}
    in_place = FUSES_OPERANDS | MATMULS if on_tpu else FUSES_OPERANDS
    fusing, at_a_price = FUSED_LIKE_ELEMENTWISE | MOVES_FUSED_ONCE | {"transpose"}, _EXPENSIVE | MOVES_FUSED_ONCE
    ends = _matmul_epilogues(level) if on_tpu else {}
    found.products.update(ends)
    found.fused_away.update((product.outputs[0], product) for product in ends.values())
    paths = _Paths(level, together)
    padded, parts = _padded_sums(level.equations), set[Value]()
    kernels: dict[Value, set[Equation]] = {}  # for each fused value, up to two of the operations that it is fused into
    for equation in reversed(level.equations):
        if equation in together:
            if together[equation] is not equation:
                found.fused_away[equation.outputs[0]] = equation
            continue
        if equation.primitive not in fusing or len(equation.outputs) != 1:
            continue
        (value,) = equation.outputs
        if value in level.written or level.is_renamed(value) or equation in ends:
            continue
        reading = level.readers.get(value, [])
        flattened = [reader for reader in reading if _is_flattened(value, reader)]
        once = _is_at_most_unary(equation, level.broadcasts)
        expensive = equation.primitive in at_a_price
        if on_tpu and equation.primitive in FUSED_LIKE_ELEMENTWISE:
            once, expensive = True, False
        cheap = not expensive and once
        fusible = [reader.primitive in in_place and reader not in together for reader in reading]
        if equation in padded and all(fusible) and (len(reading) > 1 or value in parts):
            parts.update(map(level.original, equation.inputs))
            if equation.primitive != "pad":
                found.fused_away[value] = equation
            continue
        if not cheap and not expensive:
            others = [reader for reader in reading if reader not in flattened]
            cheap = all(reader.primitive in in_place and reader not in together for reader in others)
            cheap = cheap and (len(reading) <= 1 or paths.are_fused(value, others))
            if not cheap:
                paths.once.add(value)
        if len(reading) > 1 and target == "cpu" and value.dtype.itemsize == 2 and value not in level.broadcasts:
            cheap = False  # a value that is rounded from four bytes is not computed twice
        anywhere = {
            kernel
            for reader in reading
            for kernel in kernels.get(reader.outputs[0] if reader.outputs else value, (reader,))
        }
        if expensive and len(anywhere) > 1:
            continue
        if all(fusible) and (len(anywhere) <= 1 or cheap):
            found.fused_away[value] = equation
            kernels[value] = set(itertools.islice(anywhere, 2))
        elif cheap and any(fusible) and equation.primitive != "pad":
            found.duplicated[value] = equation
            kernels[value] = set(itertools.islice({equation, *anywhere}, 2))
    found.by_library.update(together)
    return found


def _matmul_epilogues(level: Level) -> dict[Equation, Equation]:
    """Map each operation that is fused into a matmul's output to the matmul; to the last one if there are several.

    This operation is the last elementwise operation that all uses of the matmul's result depend on, and whose result is
    no larger than the matmul's.
    """
    equations, readers = level.equations, level.readers
    places = {equation: place for place, equation in enumerate(equations)}

    def end(first: Value) -> Equation | None:
        found = None
        unread = {first: len(readers.get(first, ()))}  # for each dependent value, the number of readers not reached yet
        pending = [places[reader] for reader in readers.get(first, ())]
        heapq.heapify(pending)
        while pending and level.written.isdisjoint(unread):
            equation = equations[place := heapq.heappop(pending)]
            while pending and pending[0] == place:
                heapq.heappop(pending)
            if equation.primitive not in FUSED_LIKE_ELEMENTWISE or len(equation.outputs) != 1:
                break
            for operand in unread.keys() & level.operands(equation):
                unread[operand] -= 1
                if not unread[operand]:
                    del unread[operand]
            (value,) = equation.outputs
            unread[value] = len(readers.get(value, ()))
            if len(unread) == 1 and value.device_bytes <= first.device_bytes:
                found = equation
            for reader in readers.get(value, ()):
                heapq.heappush(pending, places[reader])
        return found

    ends: dict[Equation, Equation] = {}
    for equation in reversed(equations):
        if equation.primitive in MATMULS and (last := end(equation.outputs[0])) is not None:
            ends.setdefault(last, equation)
    return ends


def scattered_into(level: Level, target: str = "cpu") -> Level:
    """Return the level with each scatter that is added to an array replaced by a scatter into that array.

    If both summands are scatters and the updates are smaller than the result, XLA concatenates the updates and scatters
    them into the sum of the targets. On a CPU, this does not apply to two-byte types, which are added in four bytes.
    """
    if not any(equation.primitive == "scatter-add" for equation in level.equations):
        return level
    makers: dict[Value, Equation] = {}

    def scatter_of(value: Value) -> Equation | None:
        """Return the scatter that computes a summand without other readers; else None."""
        original, short = level.original(value), target == "cpu" and value.dtype.itemsize == 2
        maker = None if short or level.counts[original] > 1 else makers.get(original)
        return maker if maker is not None and maker.primitive == "scatter-add" else None

    def is_of_zeros(value: Value) -> bool:
        maker = makers.get(level.original(value))
        return maker is not None and maker.primitive == "broadcast_in_dim" and maker.inputs[0].name in ("0", "0.0")

    equations: list[Equation] = []

    def write(primitive: str, inputs: Sequence[Value], like: Equation, **changed: Any) -> Value:
        value = value_like(inputs[0], **changed)
        makers[value] = Equation(primitive, tuple(inputs), (value,), {}, like.eqn, role=like.role)
        equations.append(makers[value])
        return value

    gone: set[Equation] = set()
    for equation in level.equations:
        scatters: list[Equation] = []
        if equation.primitive in ("add", "add_any") and equation.inputs[0] is not equation.inputs[-1]:
            scatters = [scatter for v in equation.inputs if (scatter := scatter_of(v)) is not None]
        count = sum(math.prod(scatter.inputs[-1].shape) for scatter in scatters)
        if len(scatters) == 1 or 0 < count < math.prod(equation.outputs[0].shape):
            gone.update(scatters)
            summands = [v for v in equation.inputs if scatter_of(v) is None]
            summands += [scatter.inputs[0] for scatter in scatters]
            summands = [v for v in summands if not is_of_zeros(v)] or summands[:1]
            into = summands[0] if len(summands) == 1 else write("add", summands, equation)
            places = [v for scatter in scatters for v in scatter.inputs[1:-1]]
            values = [scatter.inputs[-1] for scatter in scatters]
            if len(scatters) > 1:
                values = [write("concatenate", values, equation, shape=(count,))]
            equation = dataclasses.replace(scatters[0], inputs=(into, *places, *values), outputs=equation.outputs)
        makers.update(dict.fromkeys(equation.outputs, equation))
        equations.append(equation)
    return level.with_equations([e for e in equations if e not in gone])


def with_flattened(level: Level, target: str = "cpu") -> Level:
    """Return the level with copies of cheap values that matmuls read as rows and columns and others read unchanged.

    A matmul's operand is reshaped to rows and columns, and a cheap operand is computed together with the reshape.
    Batched matmuls and libraries read the operand unchanged.
    """
    makers = {e.outputs[0]: e for e in level.equations if len(e.outputs) == 1}
    together: Collection[Equation] | None = None
    copies: dict[Value, Equation] = {}

    def is_cheap(value: Value) -> bool:
        maker = makers.get(value)
        if maker is not None and maker.primitive == "transpose":
            maker = makers.get(level.original(maker.inputs[0]))
        return maker is not None and maker.primitive in _CHEAP - {"copy"} and _is_at_most_unary(maker, level.broadcasts)

    products = [equation for equation in level.equations if equation.primitive == "dot_general"]
    for value in dict.fromkeys(v for product in products for v in level.operands(product)):
        reading = level.readers[value]
        flattened = [r for r in reading if r.primitive == "dot_general" and _is_flattened(value, r)]
        if not 0 < len(flattened) < len(reading) or not is_cheap(value):
            continue
        if together is None:
            together = ynnpack_groups(level) if target == "cpu" else ()
        others = [r for r in reading if r not in flattened]
        if makers[value].primitive == "pad" or any(r in together or r.primitive == "dot_general" for r in others):
            maker = makers[value]
            copies[value] = Equation("copy", (value,), (value_like(value),), {}, maker.eqn, role=maker.role)
    if not copies:
        return level
    equations: list[Equation] = []
    for equation in level.equations:
        values = list(map(level.original, equation.inputs))
        if equation.primitive == "dot_general" and not copies.keys().isdisjoint(values):
            inputs = [
                copies[first].outputs[0] if first in copies and _is_flattened(first, equation) else v
                for v, first in zip(equation.inputs, values, strict=True)
            ]
            equation = equation.with_inputs(tuple(inputs))
        equations.append(equation)
        if len(equation.outputs) == 1 and (value := equation.outputs[0]) in copies and makers[value] is equation:
            equations.append(copies[value])
    return level.with_equations(equations)


def _padded_sums(equations: Sequence[Equation]) -> set[Equation]:
    """Return the sums all of whose summands are padded values, and the padded values."""
    made, found = set[Value](), set[Equation]()
    for equation in equations:
        if equation.primitive == "pad" or (
            equation.primitive in ("add", "add_any") and made.issuperset(equation.inputs)
        ):
            made.update(equation.outputs)
            found.add(equation)
    return found


class _Paths:
    """Decides whether a value can be fused along all paths to a reader (XLA's `CanFuseOnAllPaths`).

    Attributes:
      once: values that are computed in at most one reader.
    """

    def __init__(self, level: Level, together: Collection[Equation]):
        self.once: set[Value] = set()
        self._level = level
        self._together = together
        self._makers = {v: equation for equation in level.equations for v in equation.outputs}
        self._bits: dict[Value, int] = {}
        self._behind: dict[Value, int] = {}  # for each value, the bits of the values that it depends on
        for equation in level.equations:
            behind = 0
            for operand in level.operands(equation):
                behind |= self._behind.get(operand, 0)
            for value in equation.outputs:
                if equation.primitive in _CHEAP and len(level.readers.get(value, ())) > 1:
                    self._bits[value] = 1 << len(self._bits)
                self._behind[value] = behind | self._bits.get(value, 0)

    def are_fused(self, value: Value, reading: Iterable[Equation]) -> bool:
        """Return whether every reader can fuse all of its operands that depend on the value."""
        bit, known = self._bits[value], set[Equation]()
        pending = list(reading)
        while pending:
            equation = pending.pop()
            if equation in known:
                continue
            known.add(equation)
            if equation.primitive in _MOVES:
                return False
            for operand in self._level.operands(equation):
                if operand is value or not self._behind.get(operand, 0) & bit:
                    continue
                maker = self._makers[operand]
                if not self._is_path_fused(operand, maker, equation):
                    return False
                pending.append(maker)
        return True

    def _is_path_fused(self, value: Value, maker: Equation, reader: Equation) -> bool:
        return (
            maker.primitive in FUSED_LIKE_ELEMENTWISE
            and maker not in self._together
            and reader.primitive in FUSES_OPERANDS
            and reader not in self._together
            and value not in self.once
        )


def is_usually_fused(equation: Equation) -> bool:
    """Return whether XLA fuses an operation into its readers; a division is fused only into a single reader."""
    return (
        equation.primitive in FUSED_LIKE_ELEMENTWISE & (DUPLICABLE | {"div", "rem"})
        and len(equation.outputs) == 1
        and _is_at_most_unary(equation)
    )


def _is_at_most_unary(equation: Equation, spread: Collection[Value] = ()) -> bool:
    """Return whether an operation reads at most one array as large as its result, ignoring the values in `spread`."""
    if equation.primitive in _OF_ITSELF and (equation.primitive != "integer_pow" or equation.params["y"] > 1):
        return False
    (value,) = equation.outputs
    size = math.prod(value.shape)
    return (
        sum(math.prod(v.shape) >= size for v in equation.inputs if not isinstance(v, Literal) and v not in spread) <= 1
    )


def _is_flattened(value: Value, reader: Equation) -> bool:
    """Return whether a matmul reads a value with more than two axes, which XLA reshapes to rows and columns."""
    if len(value.shape) <= 2 or reader.primitive == "copy":
        return len(value.shape) > 2
    return reader.primitive == "dot_general" and (
        not reader.params["dimension_numbers"][1][0] or has_batch_of_one(reader)
    )
