"""Build a `StableHloProgram`: number a module's values, and count its matmuls' FLOPs and its loops' iterations."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from jax.extend.mlir import ir

from grader.stablehlo import trip_counter
from grader.stablehlo.bindings import (
    Op,
    Value,
    callee,
    comparison_direction,
    comparison_type,
    element_type,
    functions,
    integers,
    operation_offsets,
    operations,
    shape_of,
)
from grader.stablehlo.contraction import Contractions
from grader.stablehlo.devices import COLLECTIVES, Sharding, constrained_axes, group_size, manual_computation, meshes_of
from grader.stablehlo.program import Collective, Gather, Matmul, repeated
from grader.stablehlo.types import DTYPES, MAX_INTEGER, ProgramError

MAX_VALUES = 50_000  # limits nested calls, because functions are read once per call
MAX_TRIP_COUNT = 100_000
# Operations that arrange elements or work element by element. XLA shards their results as it shards their operands.
_KEEP_SHARDING = frozenset(
    f"stablehlo.{name}"
    for name in "add broadcast_in_dim concatenate convert divide dynamic_slice dynamic_update_slice gather multiply "
    "negate pad reduce_precision reverse scatter select slice subtract transpose".split()
)


class Builder:
    """Walks a module once and numbers its values. Functions are read once per call, as if they were inlined.

    `StableHloProgram` defines value numbers. Loops without a constant trip count are marked for `trip_counter`.

    Attributes:
      sources: maps a value number to the numbers of the values that it is computed from.
      places: maps a value number to the place of the operation that computes it (`bindings.operation_offsets`), which
        differs between calls of the same function. Values that are only passed through have no place.
      matmuls, collectives, gathers, barriers: those found so far, in program order.
      whole: the numbers of the arrays that every device holds as a whole, as far as sharding constraints show.
      mesh: inside a shard_map, the axes of its mesh with their sizes; otherwise None.
      dynamic_loops: the number of dynamic loops found so far.
    """

    def __init__(self, module: ir.Module):
        self.sources: list[list[int]] = []
        self.places: dict[int, int] = {}
        self.matmuls: list[Matmul] = []
        self.collectives: list[Collective] = []
        self.gathers: list[Gather] = []
        self.whole: set[int] = set()
        self.barriers: list[tuple[int, ...]] = []
        self.mesh: dict[str, int] | None = None
        self.dynamic_loops = 0
        self._functions: dict[str, ir.Block] = {
            name: op.regions[0].blocks[0] for name, op in functions(module).items() if len(op.regions[0].blocks)
        }
        self._calls: list[str] = []
        self._gathered: set[int] = set()
        self._meshes = meshes_of(module)
        self._contractions = Contractions()
        self._offsets = operation_offsets(module)
        self._first_place = 0  # of the current call
        # The values that determine trip counts, by value number: scalar integers, `a < b` and `a + b`.
        self._constants: dict[int, int] = {}
        self._less_than: dict[int, tuple[int, ...]] = {}
        self._sums: dict[int, tuple[int, ...]] = {}

    def new(self, sources: Sequence[int] = ()) -> int:
        """Assign a number to a value that is computed from these values.

        Raises:
          ProgramError: if there are too many values.
        """
        if len(self.sources) >= MAX_VALUES:
            raise ProgramError(f"the traced program has more than {MAX_VALUES:,} values.")
        self.sources.append(list(sources))
        return len(self.sources) - 1

    def function(self, name: str) -> ir.Block:
        """Return the body of a function of the module.

        Raises:
          ProgramError: if there is no such function, or if it has no body.
        """
        if name not in self._functions:
            raise ProgramError(f"the traced program has no function {name}.")
        return self._functions[name]

    def block(self, block: ir.Block, arguments: Sequence[int], outer: dict[Value, int]) -> list[int]:
        """Read a block.

        Args:
          block: the block.
          arguments: the numbers of its arguments.
          outer: the numbers of the enclosing values, which the block may use.

        Returns:
          The numbers of the values that the block returns.

        Raises:
          ProgramError: if the block cannot be judged.
        """
        numbers = dict(outer)
        numbers.update(zip(block.arguments, arguments, strict=True))
        for op in operations(block):
            operands = [numbers[operand] for operand in op.operands]
            if op.name in ("func.return", "sdy.return", "stablehlo.return"):
                return operands
            numbers.update(zip(op.results, self.operation(op, operands, numbers), strict=True))
        raise ProgramError("the traced program has a block that returns nothing.")

    def _build_closed_block(
        self, block: ir.Block, arguments: Sequence[int], outer: dict[Value, int], where: str = "a loop's condition"
    ) -> list[int]:
        """Read a block from which trip counters cannot be returned."""
        before = self.dynamic_loops
        returned = self.block(block, arguments, outer)
        if self.dynamic_loops > before:
            raise ProgramError(f"the traced program has, in {where}, a loop whose length is not a constant.")
        return returned

    def operation(self, op: ir.Operation, operands: list[int], numbers: dict[Value, int]) -> list[int]:
        """Assign numbers to an operation's results. `numbers` are those of the values in scope. Raises ProgramError."""
        match op.name:
            case "func.call":
                return self._build_call(op, operands)
            case "stablehlo.optimization_barrier":
                # Result i depends only on operand i, because a barrier orders its operands but does not combine them.
                # JAX passes the incoming cotangent through the same barrier as the residuals.
                self.barriers.append(tuple(operands))
                return operands
            case "stablehlo.reshape":
                return operands
            case "sdy.sharding_constraint":
                return self._build_constraint(op, operands)
            case "stablehlo.broadcast_in_dim" | "stablehlo.transpose":
                if _moves_nothing(op):
                    return operands
            case "stablehlo.while":
                return self._build_loop(op, operands, numbers)
            case "stablehlo.case" | "stablehlo.if":
                returned = [self.block(region.blocks[0], [], numbers) for region in op.regions]
                return [self.new([*operands, *values]) for values in zip(*returned, strict=True)]
            case "sdy.manual_computation":
                return self._build_manual_computation(op, operands)
            case name if name in COLLECTIVES and self.mesh is None:
                raise ProgramError(f"the traced program has a {name} outside of shard_map.")
        sources = list(operands)
        for region in op.regions:  # the functions that combine elements in reduce, sort, scatter, …
            block = region.blocks[0]
            sources += self._build_closed_block(block, [self.new(operands) for _ in block.arguments], numbers)
        results = [self.new(sources) for _ in op.results]
        self.places |= dict.fromkeys(results, self._first_place + self._offsets[op])
        if op.name in _KEEP_SHARDING and not self.whole.isdisjoint(operands):
            self.whole.update(results)
        self._note_trip_count_parts(op, operands, results)
        if len(results) == 1 and (flops := self._contractions.flops(op, operands, results[0])):
            spelled_out = op.name not in ("stablehlo.dot_general", "stablehlo.convolution")
            self.matmuls.append(Matmul(results[0], flops, trip_count=1, spelled_out=spelled_out))
        if op.name in COLLECTIVES and self.mesh and op.name != "stablehlo.partition_id":
            self.collectives.append(_collective_of(op, results[0], self.mesh))
        return results

    def _note_trip_count_parts(self, op: ir.Operation, operands: list[int], results: list[int]) -> None:
        """Record the values that can determine a loop's trip count: constants, comparisons and sums."""
        match op.name:
            case "stablehlo.constant":
                if (number := _scalar_integer(op)) is not None:
                    self._constants[results[0]] = number
            case "stablehlo.compare":
                if _is_less_than(op):
                    self._less_than[results[0]] = tuple(operands)
            case "stablehlo.add":
                self._sums[results[0]] = tuple(operands)

    def _build_manual_computation(self, op: ir.Operation, operands: list[int]) -> list[int]:
        """Read the computation of each device on its shards. Shards have their own numbers, but a result that is
        assembled from the unchanged shards of an array gets the array's number."""
        if self.mesh is not None:
            raise ProgramError("the traced program has a shard_map in a shard_map.")
        devices = manual_computation(op, self._meshes)
        self.mesh = devices.sizes
        parts = [self.new([operand]) for operand in operands]
        returned = self._build_closed_block(op.regions[0].blocks[0], parts, {}, "a shard_map")
        self.mesh = None
        whole = dict(zip(zip(parts, map(_rows_sharding, devices.taken), strict=True), operands, strict=True))
        joined = zip(returned, map(_rows_sharding, devices.returned), strict=True)
        return [whole[part] if part in whole else self.new(part[:1]) for part in joined]

    def _build_constraint(self, op: ir.Operation, operands: list[int]) -> list[int]:
        """Read a sharding constraint. Its result is the same array, perhaps in another memory. The result gets a new
        number only if the array becomes whole on every device, or is sharded again."""
        (operand,), (result,) = operands, op.results
        axes = constrained_axes(op, self._meshes) if self.mesh is None and shape_of(result) else None
        if axes is None or bool(axes) != (operand in self.whole):
            return operands
        if axes:  # an array that is sharded at once after it was gathered does not need the gather
            return [self.new(self.sources[operand] if operand in self._gathered else operands)]
        self.gathers.append(Gather(value := self.new(operands), value_bytes(result)))
        self._gathered.add(value)
        self.whole.add(value)
        return [value]

    def _build_call(self, call: ir.Operation, operands: list[int]) -> list[int]:
        name = callee(call)
        if name in self._calls:
            raise ProgramError(f"the traced program's function {name} calls itself.")
        self._calls.append(name)
        self._first_place += self._offsets[call] + 1
        results = self.block(self.function(name), operands, {})
        self._first_place -= self._offsets[call] + 1
        self._calls.pop()
        return results

    def _build_loop(self, op: ir.Operation, starts: list[int], numbers: dict[Value, int]) -> list[int]:
        condition, body = (region.blocks[0] for region in op.regions)
        carries = [self.new([start]) for start in starts]
        self.whole.update(carry for start, carry in zip(starts, carries, strict=True) if start in self.whole)
        first, first_collective, first_gather = len(self.matmuls), len(self.collectives), len(self.gathers)
        (going_on,) = self._build_closed_block(condition, carries, numbers)
        nexts = self.block(body, carries, numbers)
        trip_count = self._trip_count(going_on, starts, carries, nexts, list(map(element_type, op.operands)))
        if trip_count is None:
            trip_counter.mark(op)
            for carry in carries:
                self.sources[carry].append(going_on)  # the trip count affects the result
        for place, matmul in enumerate(self.matmuls[first:], first):
            if matmul.loop is None:
                self.matmuls[place] = (
                    dataclasses.replace(matmul, loop=self.dynamic_loops)
                    if trip_count is None
                    else repeated(matmul, trip_count)
                )
        for place, collective in enumerate(self.collectives[first_collective:], first_collective):
            if trip_count is None:
                raise ProgramError("the traced program has a collective in a loop whose length is not a constant.")
            trips = collective.trip_count * trip_count
            self.collectives[place] = dataclasses.replace(collective, trip_count=trips)
        for place, gather in enumerate(self.gathers[first_gather:], first_gather):
            if trip_count is None:
                raise ProgramError("the traced program gathers an array in a loop whose length is not a constant.")
            self.gathers[place] = dataclasses.replace(gather, trip_count=gather.trip_count * trip_count)
        self.dynamic_loops += trip_count is None
        self.whole.update(carry for carry, value in zip(carries, nexts, strict=True) if value in self.whole)
        for carry, value in zip(carries, nexts, strict=True):
            self.sources[carry].append(value)
        return [start if value == carry else carry for start, carry, value in zip(starts, carries, nexts, strict=True)]

    def _trip_count(
        self, going_on: int, starts: list[int], carries: list[int], nexts: list[int], element_types: list[str]
    ) -> int | None:
        """Return the trip count of `while counter < bound: counter += step`, the form of scan and fori_loop; None if it
        is not constant."""
        counter, bound = self._less_than.get(going_on, (-1, -1))
        if counter not in carries:
            return None
        index = carries.index(counter)
        if bound in carries and nexts[carries.index(bound)] == bound:
            bound = starts[carries.index(bound)]
        terms = self._sums.get(nexts[index], ())
        if terms.count(counter) != 1:
            return None
        (step,) = (term for term in terms if term != counter)
        start, end, by = (self._constants.get(value) for value in (starts[index], bound, step))
        if start is None or end is None or by is None or by <= 0:
            return None
        trip_count = max(0, -(-(end - start) // by))
        if trip_count > MAX_TRIP_COUNT:
            raise ProgramError(f"the traced program has a loop of {trip_count:,} iterations.")
        # The counter would overflow and wrap around, and the loop would continue.
        return trip_count if start + trip_count * by <= MAX_INTEGER[element_types[index]] else None


def _rows_sharding(sharding: Sharding) -> Sharding:
    """Return a sharding without the unsharded dimensions after the first: if each device reshapes its rows, the joined
    array has the same elements in the same order."""
    return sharding[:1] if not any(sharding[1:]) else sharding


def value_bytes(value: Value) -> int:
    """Return the size of a value in bytes; 0 for a token."""
    if not isinstance(value.type, ir.RankedTensorType):
        return 0
    return math.prod(shape_of(value)) * np.dtype(DTYPES[element_type(value)]).itemsize


def _collective_of(op: ir.Operation, value: int, mesh: dict[str, int]) -> Collective:
    return Collective(
        value,
        kind=op.name.removeprefix("stablehlo.").replace("_", "-"),
        operand_bytes=sum(map(value_bytes, op.operands)),
        result_bytes=sum(map(value_bytes, op.results)),
        devices=group_size(op, mesh),
    )


def _scalar_integer(constant: Op) -> int | None:
    (result,) = constant.results
    if shape_of(result) or element_type(result) not in MAX_INTEGER:
        return None
    value = constant.attributes["value"]
    return value[0] if isinstance(value, ir.DenseIntElementsAttr) else None


def _is_less_than(compare: Op) -> bool:
    """Return whether an operation is `a < b` with the comparison type of its dtype."""
    unsigned = element_type(compare.operands[0]).startswith("u")
    as_they_are = comparison_type(compare) in (None, "UNSIGNED" if unsigned else "SIGNED")
    return as_they_are and comparison_direction(compare) == "LT"


def _moves_nothing(op: Op) -> bool:
    """Return whether a broadcast or a transpose keeps all elements in order, so that it only adds or moves dimensions
    of size 1."""
    shape, (result,) = shape_of(op.operands[0]), op.results
    if math.prod(shape) != math.prod(shape_of(result)):
        return False
    dims = integers(op, "permutation" if op.name == "stablehlo.transpose" else "broadcast_dimensions")
    if op.name == "stablehlo.transpose":
        kept = [dim for dim in dims if shape[dim] != 1]
    else:
        kept = [dim for dim, size in zip(dims, shape, strict=True) if size != 1]
    return kept == sorted(kept)
