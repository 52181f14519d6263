"""Compute the peak memory of a program in the order of its text, without a compiler.

A value takes memory from the operation that computes it to its last use. XLA may reorder and fuse operations. But every
compiler runs the iterations of a loop in order, and stores the values that they save in one stacked array. A broadcast
is fused with its users and takes no memory of its own. A loop updates its carries in place, and so does
`dynamic_update_slice`. In a `shard_map`, a value takes memory on every device, and the result is the sum over all
devices.
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
      first: the first value number of the operation; values of earlier operations have lower numbers.
      made, used: the numbers of the computed and of the used values.
      returned: for a loop, the next value of each carry; for branches, the values that they return.
      within: the operations in its bodies, in order.
      uses: all values that are used in its bodies.
    """

    first: int
    made: Sequence[int]
    used: Sequence[int]
    returned: Sequence[tuple[int, int]]
    within: Sequence["_Step"]
    uses: Collection[int]


class _Recorder(Builder):
    """Numbers values, and records the order of operations and the sizes of values.

    Attributes:
      steps: the operations.
      nbytes: maps a value to its size.
      in_place: maps a value to the value whose memory it reuses.
    """

    def __init__(self, module: ir.Module):
        super().__init__(module)
        self.steps: list[_Step] = []
        self.nbytes: dict[int, int] = {}
        self.in_place: dict[int, int] = {}
        self._overwritten: dict[int, int] = {}  # maps a value to the value that reuses its memory

    def operation(self, op: ir.Operation, operands: list[int], numbers: dict[Value, int]) -> list[int]:
        if op.name in ("func.call", "sdy.manual_computation"):
            return super().operation(op, operands, numbers)
        for operand in operands:
            self._keep_value(operand)
        first, before, self.steps = len(self.sources), self.steps, []
        results = super().operation(op, operands, numbers)
        within, self.steps = self.steps, before
        devices = math.prod((self.mesh or {}).values())
        made = {
            new: devices * value_bytes(value) for new, value in zip(results, op.results, strict=True) if new >= first
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

    def _build_manual_computation(self, op: ir.Operation, operands: list[int]) -> list[int]:
        """Read the computation of each device. A shard is in the memory of the whole array."""
        first = len(self.sources)
        results = super()._build_manual_computation(op, operands)
        self.in_place |= dict(zip(range(first, first + len(operands)), operands, strict=True))
        self.in_place |= {new: self.sources[new][0] for new in results if new >= first}
        return results

    def _keep_value(self, value: int) -> None:
        """Undo the reuse of a value's memory if the value is read later: the other value is then in a copy."""
        over = None
        while (written := self._overwritten.get(value)) in (None, over):
            if value not in self.in_place:
                return
            value, over = self.in_place[value], value
        del self._overwritten[value], self.in_place[written]

    def buffer(self, value: int) -> int:
        """Return the value whose memory a value uses."""
        while value in self.in_place:
            value = self.in_place[value]
        return value


class Recorded:
    """The memory use of a program.

    Attributes:
      inputs, outputs: the value numbers of the arguments and results of `main`.
      buffer: a function from a value's number to that of the value whose memory it uses.
    """

    def __init__(self, text: str):
        """Read StableHLO text that `reader.read` has accepted."""
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
        """Return the size of a value in bytes."""
        return self._value_bytes.get(self.buffer(value), 0)

    def peak(self, asked: Collection[int], free: Collection[int]) -> int:
        """Return the peak of live bytes until these values are computed, without values that take no memory."""
        walk = _Walk(self, reach(asked, self._sources), set(map(self.buffer, free)))
        walk.back(self._steps, walk.buffers(asked))
        return walk.most


class _Walk:
    """Walks backwards over the steps and tracks the live values, each of which represents its memory.

    Attributes:
      most: the peak of live bytes between two steps so far.
    """

    def __init__(self, program: Recorded, needed: set[int], free: set[int]):
        self._program, self._needed, self._free = program, needed, free
        self.most = 0

    def buffers(self, values: Iterable[int]) -> set[int]:
        """Return the needed values that have their own memory."""
        return {self._program.buffer(value) for value in values if value in self._needed} - self._free

    def back(self, steps: Sequence[_Step], live: set[int]) -> None:
        """Count the live bytes before and after each step, given the values that are live after the last step."""
        live = set(live)
        total = self._buffer_bytes(live)
        self.most = max(self.most, total)
        for step in reversed(steps):
            if self._needed.isdisjoint(step.made):
                continue
            made, used = self.buffers(step.made), self.buffers(step.used)
            if step.within:
                # A value from before a loop that any iteration uses is live in every iteration.
                around = {buffer for buffer in self.buffers(step.uses) if buffer < step.first}
                returned = self.buffers(value for new, value in step.returned if new in self._needed)
                self.back(step.within, (live - made) | around | returned)
                used |= around
            total += self._buffer_bytes(used - live) - self._buffer_bytes((made & live) - used)
            live = (live - made) | used
            self.most = max(self.most, total)

    def _buffer_bytes(self, buffers: Iterable[int]) -> int:
        return sum(map(self._program.nbytes, buffers))
