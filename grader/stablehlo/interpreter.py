"""Interpret a StableHLO program with NumPy: control flow, and a bound on the work.

Two other programs run StableHLO, but they do not fit small, untrusted programs of about a hundred operations. XLA needs
several milliseconds to compile each kernel: 230 ms for the forward program of `checkpoint_dot_policy`, which this
module interprets in 4 ms. StableHLO's reference interpreter (`eval_module` in its bindings) works element by element
and takes 170 ms for that program's matmuls. It cannot be stopped, and it ends the process at an unknown operation. The
tests compare this interpreter with it.

Programs with unsupported operations (`operations`), and programs that would take long, are left to XLA.
"""

import functools
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from jax.extend.mlir import ir
from jax.interpreters import mlir

from grader.stablehlo.bindings import (
    Op,
    Value,
    callee,
    dot_dimensions,
    functions,
    operation_offsets,
    operations,
    shape_of,
)
from grader.stablehlo.devices import (
    COLLECTIVES,
    collective,
    manual_computation,
    meshes_of,
    on_each_device,
    same_on_all,
)
from grader.stablehlo.numpy_operations import OPERATIONS, Array, Uninterpreted

# In elements made, summed or multiplied; an operation counts as a thousand, whatever its size. This is a tenth of a
# second at most: XLA is seldom slower with what takes NumPy more.
MAX_WORK = 2**25
# XLA cannot run a program for several devices here, and each device's operation counts, so that small arrays add up.
# The elements that are made, which bound the memory, stay within MAX_WORK.
_TIMES_ON_DEVICES = 4
_OPERATION = 1_000

type Frame = list[Any]  # the values of one call of a function: arrays, or None before they are computed
# A function of an operation's place (`StableHloProgram.places`) and its result.
type Watch = Callable[[int, Array], None]
type Run = Callable[[Frame, Sequence[Array]], Sequence[Array]]  # a function of a frame and operands
type Mesh = dict[str, int]  # maps axes to their sizes; empty outside of shard_map


def run(text: str, arguments: Sequence[Array], watch: Watch | None = None) -> list[Array]:
    """Run a program.

    Args:
      text: StableHLO that `reader.read` has let pass.
      arguments: arrays of the shapes and dtypes that its `main` takes.
      watch: a function that is called with the result of each run of an operation.

    Returns:
      The arrays that `main` returns.

    Raises:
      Uninterpreted: if the program must be compiled.
    """
    try:
        interpreter = _cached_interpreter(text)
        with interpreter.lock, np.errstate(all="ignore"):  # infinity and NaN are valid results
            return interpreter.main(arguments, watch)
    except (IndexError, TypeError, ValueError, MemoryError) as error:
        raise Uninterpreted("it is nothing for NumPy") from error


def is_on_devices(text: str) -> bool:
    """Return whether a program is for several devices, so that XLA cannot run it here."""
    return "sdy.manual_computation" in text


@functools.lru_cache(maxsize=32)  # a program is run to know what it returns, and once more to see what it makes;
# a class has references for eight sets of shapes
def _cached_interpreter(text: str) -> "_Interpreter":
    return _Interpreter(text)


class _Interpreter:
    """Turns a module's functions, blocks and operations into Python functions."""

    def __init__(self, text: str):
        self.lock, self.has_devices = threading.Lock(), is_on_devices(text)
        with mlir.make_ir_context():
            self.module = ir.Module.parse(text)  # keeps the operations alive
            self.offsets = operation_offsets(self.module)
            self.bodies = {name: op.regions[0] for name, op in functions(self.module).items()}
            self.functions: dict[tuple[object, ...], Callable[[Sequence[Array]], Sequence[Array]]] = {}
            self.run = self.function("main", {})

    def main(self, arguments: Sequence[Array], watch: Watch | None) -> list[Array]:
        """Run the program, with the arguments and results of `run`."""
        self.watch, self.work, self.elements, self.first_place = watch, 0, 0, 0
        returned = list(map(np.asarray, self.run(arguments)))
        self.spend(sum(array.size for array in returned))
        return returned

    def spend(self, elements: int, work: int = 0) -> None:
        """Count computed elements and other work. Raises Uninterpreted if the total exceeds the limit."""
        self.elements += elements
        self.work += elements + work
        limit = MAX_WORK * (_TIMES_ON_DEVICES if self.has_devices else 1)
        if self.work > limit or self.elements > MAX_WORK:
            raise Uninterpreted("they do too much work")

    def function(self, name: str, mesh: Mesh) -> Callable[[Sequence[Array]], Sequence[Array]]:
        """Return a function of the module."""
        key = name, *mesh.items()
        if key not in self.functions:
            self.functions[key] = self.framed(self.bodies[name].blocks[0], mesh)
        return self.functions[key]

    def framed(self, block: ir.Block, mesh: Mesh) -> Callable[[Sequence[Array]], Sequence[Array]]:
        """Return a block that uses no enclosing values, as a function of its arguments."""
        places: dict[Value, int] = {}
        body = self.block(block, places, mesh)
        return lambda arguments: body([None] * len(places), arguments)

    def block(self, block: ir.Block, places: dict[Value, int], mesh: Mesh) -> Run:
        """Return a block as a function of a frame and the block's arguments. On a mesh, the first axis of all values
        indexes the devices."""

        def placed(values: Iterable[Value]) -> list[int]:
            return [places.setdefault(value, len(places)) for value in values]

        parameters, steps = placed(block.arguments), []
        *before, last = operations(block)
        for op in before:
            make = _CONTROL_FLOW.get(op.name, _Interpreter.operation)
            steps.append((make(self, op, places, mesh), placed(op.operands), placed(op.results)))
        returned = placed(last.operands)

        def run(frame: Frame, arguments: Sequence[Array]) -> Sequence[Array]:
            for place, value in zip(parameters, arguments, strict=True):
                frame[place] = value
            for function, operands, results in steps:
                values = function(frame, [frame[place] for place in operands])
                for place, value in zip(results, values, strict=True):
                    frame[place] = value
            return [frame[place] for place in returned]

        return run

    # Each of these methods returns a function that runs an operation.

    def operation(self, op: Op, _: dict[Value, int], mesh: Mesh) -> Run:
        elements, work, offset = _elements_of(op), _OPERATION + _multiplications_of(op), self.offsets[op.operation]
        devices = math.prod(mesh.values())
        if op.name in OPERATIONS:
            function = OPERATIONS[op.name](op)
            if mesh:
                function = on_each_device(function, devices)
        elif op.name in COLLECTIVES and mesh:
            function = collective(op, mesh)
        else:
            raise Uninterpreted(op.name)

        def run(_: Frame, operands: Sequence[Array]) -> Sequence[Array]:
            self.spend(elements * devices, work * devices)
            result = function(*operands)
            if self.watch is not None:
                self.watch(self.first_place + offset, result)
            return (result,)

        return run

    def barrier(self, op: Op, _: dict[Value, int], mesh: Mesh) -> Run:
        return lambda _, operands: operands

    def call(self, op: Op, _: dict[Value, int], mesh: Mesh) -> Run:
        function, offset = self.function(callee(op), mesh), self.offsets[op.operation] + 1

        def run(_: Frame, operands: Sequence[Array]) -> Sequence[Array]:
            self.spend(0, _OPERATION)
            self.first_place += offset
            results = function(operands)
            self.first_place -= offset
            return results

        return run

    def on_devices(self, op: Op, _: dict[Value, int], mesh: Mesh) -> Run:
        devices = manual_computation(op, meshes_of(self.module))
        block = op.regions[0].blocks[0]
        function = self.framed(block, devices.sizes)
        elements = devices.devices * sum(math.prod(shape_of(value)) for value in block.arguments)
        elements += sum(math.prod(shape_of(value)) for value in op.results)

        def run(_: Frame, operands: Sequence[Array]) -> Sequence[Array]:
            self.spend(elements, _OPERATION)
            parts = function([devices.divided(*each) for each in zip(operands, devices.taken, strict=True)])
            return [devices.joined(*each) for each in zip(parts, devices.returned, strict=True)]

        return run

    def loop(self, op: Op, places: dict[Value, int], mesh: Mesh) -> Run:
        condition, body = (self.block(region.blocks[0], places, mesh) for region in op.regions)

        def run(frame: Frame, carries: Sequence[Array]) -> Sequence[Array]:
            while same_on_all(condition(frame, carries)[0]):
                self.spend(0, _OPERATION)
                carries = body(frame, carries)
            return carries

        return run

    def case(self, op: Op, places: dict[Value, int], mesh: Mesh) -> Run:
        branches = [self.block(region.blocks[0], places, mesh) for region in op.regions]

        def run(frame: Frame, operands: Sequence[Array]) -> Sequence[Array]:
            index = int(same_on_all(operands[0]))
            # An index out of range selects the last branch.
            return branches[index if 0 <= index < len(branches) else -1](frame, [])

        return run


_CONTROL_FLOW = {
    "sdy.manual_computation": _Interpreter.on_devices,
    "sdy.sharding_constraint": _Interpreter.barrier,  # the memory of a value does not affect results
    "func.call": _Interpreter.call,
    "stablehlo.case": _Interpreter.case,
    "stablehlo.optimization_barrier": _Interpreter.barrier,
    "stablehlo.while": _Interpreter.loop,
}


_VIEWS = {"stablehlo.slice", "stablehlo.dynamic_slice"}  # the operands of these are not copied
_INDEXED = {"stablehlo.gather", "stablehlo.scatter"}


def _elements_of(op: Op) -> int:
    """Return the number of elements that an operation computes, sums or copies."""
    read, made = ([math.prod(shape_of(value)) for value in values] for values in (op.operands, op.results))
    if op.name == "stablehlo.dot_general":  # an operand may be copied even if the result is empty
        return sum(made + read)
    if op.name in _INDEXED:
        return 3 * max(made + read)  # an int64 position per element
    return max([*made, *([] if op.name in _VIEWS else read)], default=0)


def _multiplications_of(op: Op) -> int:
    if op.name != "stablehlo.dot_general":
        return 0
    lhs, contracted = shape_of(op.operands[0]), dot_dimensions(op).lhs_contracting_dimensions
    return math.prod([*shape_of(op.results[0]), *(lhs[dim] for dim in contracted)])
