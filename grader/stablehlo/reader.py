"""Read StableHLO text into a `Program`, and refuse what must not be judged."""

import dataclasses
import math
import re

from jax.interpreters import mlir

from grader.stablehlo import trip_counter
from grader.stablehlo.program import Barrier, Matmul, StableHloProgram, repeated
from grader.stablehlo.types import ALLOWED, ALLOWED_CUSTOM_CALLS, HIGHEST, ProgramError, ir, tensor_type

MAX_TEXT = 4_000_000  # characters; the largest exercise's evidence is some 100 kB


MAX_VALUES = 50_000  # functions are read once per call, so that nested calls could grow without bound


MAX_TRIP_COUNT = 100_000


MAX_ELEMENTS = 2**24  # of one array, and of all that a program returns; the largest exercise's have some 100,000


def read(text: str, max_trip_count: int | None = None) -> StableHloProgram:
    """Reads StableHLO text.

    Args:
      text: the program.
      max_trip_count: the trips after which a dynamic loop is ended, if such loops are allowed.

    Raises:
      ProgramError: the text is too long, does not parse, uses an operation that is not allowed, or has a dynamic
        loop where there must be none.
    """
    if "dense_resource" in text:
        raise ProgramError("the traced program has constants in a blob of bytes, of which nothing can be checked.")
    if len(text) > MAX_TEXT:
        raise ProgramError(f"the traced program is {len(text):,} characters long; at most {MAX_TEXT:,} are judged.")
    with mlir.make_ir_context():
        try:
            module = ir.Module.parse(text)
        except ir.MLIRError as error:
            raise ProgramError("the traced program is not valid StableHLO.") from error
        _refuse_unknown_operations(module)
        try:
            program = _read(module, text)
        except RecursionError:
            raise ProgramError("the traced program has loops in loops in loops, too many to be judged.") from None
        if not program.dynamic_loops:
            return program
        if max_trip_count is None:
            raise ProgramError("the traced program has a loop whose number of iterations is not a constant.")
        trip_counter.count(module, max_trip_count)
        # Read again: a loop that is dynamic in one call of its function has a counter in every call.
        return _read(module, module.operation.get_asm(), outputs=len(program.outputs))


def _read(module: ir.Module, text: str, outputs: int | None = None) -> StableHloProgram:
    """Reads a module, of whose results only so many are its outputs."""
    reader = _Reader(module)
    block = reader.function("main")
    inputs = [reader.new() for _ in block.arguments]
    returned = reader.block(block, inputs, {})
    types = block.owner.attributes["function_type"].value
    if (size := sum(map(_elements, types.results))) > MAX_ELEMENTS:
        raise ProgramError(f"the traced program returns {size:,} elements.")
    return StableHloProgram(
        text=text,
        inputs=tuple(inputs),
        outputs=tuple(returned[:outputs]),
        input_types=tuple(map(tensor_type, types.inputs)),
        output_types=tuple(map(tensor_type, types.results[:outputs])),
        output_memory=_output_memory(block.owner, len(types.results))[:outputs],
        sources=tuple(map(tuple, reader.sources)),
        matmuls=tuple(reader.matmuls),
        barriers=tuple(reader.barriers),
        dynamic_loops=reader.dynamic_loops,
    )


def _refuse_unknown_operations(module: ir.Module):
    refused, types = set(), set()

    def look(op):
        name, taken, made = op.name, [operand.type for operand in op.operands], [result.type for result in op.results]
        if name == "stablehlo.custom_call":
            target = op.attributes["call_target_name"].value
            # MLIR does not look at the types of what is custom.
            if target not in ALLOWED_CUSTOM_CALLS or len(made) != 1 or taken != made:
                refused.add(f"{name} @{target}")
        elif name not in ALLOWED:
            refused.add(name)
        types.update(made)
        return ir.WalkResult.ADVANCE

    module.operation.walk(look)
    refused |= {view.operation.name for view in module.body.operations} - {"func.func"}  # a module in a module
    if refused:
        raise ProgramError(f"the traced program uses {', '.join(sorted(refused))}, which this exercise does not need.")
    if (size := max(map(_elements, types), default=0)) > MAX_ELEMENTS:
        raise ProgramError(f"the traced program has an array of {size:,} elements.")


def _elements(type_: ir.Type) -> int:
    try:
        tensor = ir.RankedTensorType(type_)
    except ValueError:  # a token
        return 0
    if not tensor.has_static_shape:
        raise ProgramError(f"the traced program has a {type_}, which is not an array to judge.")
    return math.prod(tensor.shape)


def _output_memory(main, count: int) -> tuple[str, ...]:
    attributes = main.attributes["res_attrs"] if "res_attrs" in main.attributes else [{}] * count
    key = "mhlo.memory_kind"
    try:
        return tuple(ir.StringAttr(result[key]).value if key in result else "device" for result in attributes)
    except ValueError:
        raise ProgramError("the traced program's outputs lie in a memory without a name.") from None


class _Reader:
    """Walks a module once, numbering values; every call of a function is read anew, as if it stood inline."""

    def __init__(self, module: ir.Module):
        self.functions = {
            op.attributes["sym_name"].value: op.regions[0].blocks[0]
            for op in (view.operation for view in module.body.operations)
            if len(op.regions[0].blocks)
        }
        self.calls: list[str] = []
        self.sources: list[list[int]] = []
        self.constants: dict[int, int] = {}  # scalar integers: bounds, starts and steps of loops
        self.made_by: dict[int, tuple[str, list[int]]] = {}
        self.matmuls: list[Matmul] = []
        self.barriers: list[Barrier] = []
        self.dynamic_loops = 0

    def new(self, sources=()) -> int:
        if len(self.sources) >= MAX_VALUES:
            raise ProgramError(f"the traced program has more than {MAX_VALUES:,} values.")
        self.sources.append(list(sources))
        return len(self.sources) - 1

    def function(self, name: str):
        if name not in self.functions:
            raise ProgramError(f"the traced program has no function {name}.")
        return self.functions[name]

    def block(self, block, arguments: list[int], outer: dict) -> list[int]:
        """Reads a block whose arguments have these numbers; returns the numbers of what it returns."""
        numbers = dict(outer)
        numbers.update(zip(block.arguments, arguments, strict=True))
        for view in block.operations:
            op = view.operation
            operands = [numbers[operand] for operand in op.operands]
            if op.name in ("func.return", "stablehlo.return"):
                return operands
            results = self.operation(op, operands, numbers)
            numbers.update(zip(op.results, results, strict=True))
        raise ProgramError("the traced program has a block that returns nothing.")

    def closed(self, block, arguments: list[int], outer: dict) -> list[int]:
        """Reads a block out of which no count can be handed."""
        before = self.dynamic_loops
        returned = self.block(block, arguments, outer)
        if self.dynamic_loops > before:
            raise ProgramError("the traced program has, in a loop's condition, a loop whose length is not a constant.")
        return returned

    def operation(self, op, operands: list[int], numbers: dict) -> list[int]:
        match op.name:
            case "func.call":
                return self.call(op.attributes["callee"].value, operands)
            case "stablehlo.optimization_barrier":
                # Result i depends on operand i only: the barrier orders, it does not mix. JAX puts the incoming
                # cotangent through the same barrier as the residuals.
                self.barriers.append(Barrier(tuple(operands)))
                return operands
            case "stablehlo.reshape":
                return operands  # the same array under another shape
            case "stablehlo.while":
                return self.loop(op, operands, numbers)
            case "stablehlo.case" | "stablehlo.if":
                returned = [self.block(region.blocks[0], [], numbers) for region in op.regions]
                return [self.new([*operands, *values]) for values in zip(*returned, strict=True)]
        sources = list(operands)
        for region in op.regions:  # reduce, sort, scatter, …: how elements are combined
            block = region.blocks[0]
            sources += self.closed(block, [self.new(operands) for _ in block.arguments], numbers)
        results = [self.new(sources) for _ in op.results]
        if op.name == "stablehlo.constant":
            self.note_constant(op, results[0])
        elif op.name in _MATMUL_FLOPS:
            self.matmuls.append(Matmul(results[0], _MATMUL_FLOPS[op.name](op), trip_count=1))
        if len(results) == 1:
            self.made_by[results[0]] = (_with_direction(op), operands)
        return results

    def call(self, name: str, operands: list[int]) -> list[int]:
        if name in self.calls:
            raise ProgramError(f"the traced program's function {name} calls itself.")
        self.calls.append(name)
        results = self.block(self.function(name), operands, {})
        self.calls.pop()
        return results

    def note_constant(self, op, value: int):
        kind = ir.RankedTensorType(op.results[0].type)
        if kind.rank == 0 and str(kind.element_type) in HIGHEST:
            self.constants[value] = int(op.attributes["value"][0])

    def loop(self, op, starts: list[int], numbers: dict) -> list[int]:
        condition, body = (region.blocks[0] for region in op.regions)
        carries = [self.new([start]) for start in starts]
        first = len(self.matmuls)
        (going_on,) = self.closed(condition, carries, numbers)
        nexts = self.block(body, carries, numbers)
        trips = self.trips(going_on, starts, carries, nexts, [_element_type(value) for value in op.operands])
        if trips is None:
            trip_counter.mark(op)
            for carry in carries:
                self.sources[carry].append(going_on)  # how many trips there are decides what comes out
        for place, matmul in enumerate(self.matmuls[first:], first):
            if matmul.loop is None:
                self.matmuls[place] = (
                    dataclasses.replace(matmul, loop=self.dynamic_loops) if trips is None else repeated(matmul, trips)
                )
        self.dynamic_loops += trips is None
        for carry, value in zip(carries, nexts, strict=True):
            self.sources[carry].append(value)
        return [start if value == carry else carry for start, carry, value in zip(starts, carries, nexts, strict=True)]

    def trips(
        self, going_on: int, starts: list[int], carries: list[int], nexts: list[int], kinds: list[str]
    ) -> int | None:
        """The trip count of `while counter < bound: counter += step`, which is what scan and fori_loop become; None if
        it is no constant."""
        comparison, (counter, bound) = self.made_by.get(going_on, ("", [-1, -1]))
        if comparison == "stablehlo.compare LT" and counter in carries:
            index = carries.index(counter)
            if bound in carries and nexts[carries.index(bound)] == bound:
                bound = starts[carries.index(bound)]
            made, terms = self.made_by.get(nexts[index], ("", []))
            if made == "stablehlo.add" and counter in terms:
                (step,) = (term for term in terms if term != counter) if terms.count(counter) == 1 else (-1,)
                known = [self.constants.get(value) for value in (starts[index], bound, step)]
                if None not in known and known[2] > 0:
                    trips = max(0, -(-(known[1] - known[0]) // known[2]))
                    if trips > MAX_TRIP_COUNT:
                        raise ProgramError(f"the traced program has a loop of {trips:,} iterations.")
                    # Beyond its highest number the counter goes on from its lowest, and so does the loop.
                    return trips if known[0] + trips * known[2] <= HIGHEST[kinds[index]] else None
        return None


def _with_direction(op) -> str:
    """An operation's name; that of a comparison with its direction, if numbers are compared as what they are."""
    if op.name != "stablehlo.compare":
        return op.name
    if "compare_type" in op.attributes:
        compared = str(op.attributes["compare_type"]).rstrip(">").split()[-1]
        if compared != ("UNSIGNED" if _element_type(op.operands[0]).startswith("u") else "SIGNED"):
            return f"{op.name} as {compared}"
    return f"{op.name} {str(op.attributes['comparison_direction']).rstrip('>').split()[-1]}"


def _element_type(value) -> str:
    return str(ir.RankedTensorType(value.type).element_type)


def _shape(value) -> list[int]:
    return list(ir.RankedTensorType(value.type).shape)


def _dot_flops(op) -> int:
    numbers = str(op.attributes["dot_dimension_numbers"])
    contracting = re.search(r"lhs_contracting_dimensions = \[([\d, ]*)\]", numbers)
    dims = [int(dim) for dim in contracting[1].split(",")] if contracting and contracting[1] else []
    lhs = _shape(op.operands[0])
    return 2 * math.prod(_shape(op.results[0])) * math.prod(lhs[dim] for dim in dims)


def _convolution_flops(op) -> int:
    kernel = _shape(op.operands[1])
    layout = re.search(r"x\[([^\]]*)\]", str(op.attributes["dimension_numbers"]))[1].split(", ")
    return 2 * math.prod(_shape(op.results[0])) * math.prod(kernel) // max(1, kernel[layout.index("o")])


_MATMUL_FLOPS = {"stablehlo.dot_general": _dot_flops, "stablehlo.convolution": _convolution_flops}
