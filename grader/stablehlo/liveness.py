"""Compute the peak memory of a program in the order of its text, without a compiler.

A value takes memory from the operation that makes it to the last one that uses it. XLA may order operations otherwise
and fuse them; but the turns of a loop follow each other, and what each of them leaves behind lies in one array,
whatever a compiler does. Numbers that are only repeated are fused with what uses them, and take no more than they did.
A loop changes its carries in place, and so does `dynamic_update_slice`. In a `shard_map`, a value takes memory on every
device, and what is counted is the sum over all devices.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from jax.extend.mlir import ir
from jax.interpreters import mlir

from grader.stablehlo.bindings import Value
from grader.stablehlo.builder import Builder, value_bytes
from grader.stablehlo.program import reach


@dataclass(frozen=True)
class _Step:
    """An operation.

    Attributes:
      first: what is made before has a lower number.
      made, used: the numbers of values.
      returned: of a loop, the next value of each carry; of branches, what they return.
      within: what happens there, one after the other.
      uses: all that is used there.
    """

    first: int
    made: Sequence[int]
    used: Sequence[int]
    returned: Sequence[tuple[int, int]]
    within: Sequence["_Step"]
    uses: Collection[int]


class _Recorder(Builder):
    """Notes what is done in which order, and how large it is, while it numbers values.

    Attributes:
      steps: what is done.
      nbytes: value → its size.
      in_place: value → the one in whose memory it is.
    """

    def __init__(self, module: ir.Module):
        super().__init__(module)
        self.steps: list[_Step] = []
        self.nbytes: dict[int, int] = {}
        self.in_place: dict[int, int] = {}
        self._overwritten: dict[int, int] = {}  # value → the one that was put into its memory

    def operation(self, op: ir.Operation, operands: list[int], numbers: dict[Value, int]) -> list[int]:
        if op.name in ("func.call", "sdy.manual_computation"):
            return super().operation(op, operands, numbers)
        for operand in operands:
            self._keep_value(operand)
        first, before, self.steps = len(self.sources), self.steps, []
        results = super().operation(op, operands, numbers)
        within, self.steps = self.steps, before
        made = {
            new: self._bytes_on_all_devices(value)
            for new, value in zip(results, op.results, strict=True)
            if new >= first
        }
        returned: list[tuple[int, int]] = []
        match op.name:
            case "stablehlo.while":
                for carry, start in enumerate(operands, first):
                    if carry in made:
                        returned.append((carry, self.sources[carry][-1]))
                    else:
                        self.in_place[carry] = start
            case "stablehlo.case" | "stablehlo.if":
                returned = [(new, value) for new in made for value in self.sources[new][len(operands) :]]
            case "stablehlo.dynamic_update_slice" if self.nbytes.get(self.buffer(operands[0]), 0) == made[results[0]]:
                self.in_place[results[0]] = operands[0]
                self._overwritten[operands[0]] = results[0]
            case "stablehlo.broadcast_in_dim" if made:
                self.in_place[results[0]] = operands[0]
        if op.name not in ("stablehlo.constant", "stablehlo.iota"):
            self.nbytes |= made
        uses = {value for step in within for value in (*step.used, *step.uses)}
        self.steps.append(_Step(first, [*made], operands, returned, within, uses))
        return results

    def _bytes_on_all_devices(self, value: Value) -> int:
        return value_bytes(value) * math.prod((self.mesh or {}).values())

    def _on_devices(self, op: ir.Operation, operands: list[int]) -> list[int]:
        """Read what each device does. A device's part is in the memory of the array that it is a part of."""
        first = len(self.sources)
        results = super()._on_devices(op, operands)
        self.in_place |= dict(zip(range(first, first + len(operands)), operands, strict=True))
        self.in_place |= {new: self.sources[new][0] for new in results if new >= first}
        return results

    def _keep_value(self, value: int) -> None:
        """What is read after something was put into its memory was not overwritten: that was put into a copy."""
        over = None
        while (written := self._overwritten.get(value)) in (None, over):
            if value not in self.in_place:
                return
            value, over = self.in_place[value], value
        del self._overwritten[value], self.in_place[written]

    def buffer(self, value: int) -> int:
        """Return the value in whose memory a value is."""
        while value in self.in_place:
            value = self.in_place[value]
        return value


class Recorded:
    """A program, as far as its memory goes.

    Attributes:
      inputs, outputs: the numbers of what `main` takes and returns.
      buffer: takes a value's number, and returns that of the value in whose memory it is.
    """

    def __init__(self, text: str):
        """Read StableHLO text that `reader.read` has let pass."""
        with mlir.make_ir_context():
            module = ir.Module.parse(text)
            recorder = _Recorder(module)
            block = recorder.function("main")
            self.inputs = [recorder.new() for _ in block.arguments]
            self.outputs = recorder.block(block, self.inputs, {})
            recorder.nbytes |= {new: value_bytes(own) for new, own in zip(self.inputs, block.arguments, strict=True)}
        self._steps, self._sources = recorder.steps, recorder.sources
        self._value_bytes, self.buffer = recorder.nbytes, recorder.buffer

    def nbytes(self, value: int) -> int:
        """Return the bytes that a value takes."""
        return self._value_bytes.get(self.buffer(value), 0)

    def peak(self, asked: Collection[int], free: Collection[int]) -> int:
        """Return the most bytes that are live at once until these values are there, but for those that are free."""
        walk = _Walk(self, reach(asked, self._sources), set(map(self.buffer, free)))
        walk.back(self._steps, walk.buffers(asked))
        return walk.most


class _Walk:
    """Goes from the last step to the first and knows what is live: values that stand for their memory.

    Attributes:
      most: the most bytes so far that were live between two steps.
    """

    def __init__(self, program: Recorded, needed: set[int], free: set[int]):
        self._program, self._needed, self._free = program, needed, free
        self.most = 0

    def buffers(self, values: Iterable[int]) -> set[int]:
        """Return the needed values that take memory of their own."""
        return {self._program.buffer(value) for value in values if value in self._needed} - self._free

    def back(self, steps: Sequence[_Step], live: set[int]) -> None:
        """Count what is live before and behind each step, by what is live behind the last one."""
        live = set(live)
        total = self._buffer_bytes(live)
        self.most = max(self.most, total)
        for step in reversed(steps):
            if self._needed.isdisjoint(step.made):
                continue
            made, used = self.buffers(step.made), self.buffers(step.used)
            if step.within:
                # What is made before a loop, and used in one of its turns, is there in every turn.
                around = {buffer for buffer in self.buffers(step.uses) if buffer < step.first}
                returned = self.buffers(value for new, value in step.returned if new in self._needed)
                self.back(step.within, (live - made) | around | returned)
                used |= around
            total += self._buffer_bytes(used - live) - self._buffer_bytes((made & live) - used)
            live = (live - made) | used
            self.most = max(self.most, total)

    def _buffer_bytes(self, buffers: Iterable[int]) -> int:
        return sum(map(self._program.nbytes, buffers))
