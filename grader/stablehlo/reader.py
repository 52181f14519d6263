"""Read StableHLO text into a `StableHloProgram`, and refuse programs that must not be judged."""

import math

from jax.extend.mlir import ir
from jax.interpreters import mlir

from grader.stablehlo import bindings, trip_counter
from grader.stablehlo.builder import Builder
from grader.stablehlo.program import StableHloProgram
from grader.stablehlo.types import ALLOWED_CUSTOM_CALLS, SUPPORTED_OPERATIONS, ProgramError, tensor_type

MAX_TEXT = 4_000_000  # characters; the largest exercise's evidence is some 100 kB
MAX_ELEMENTS = 2**24  # of one array, and of all results of a program; those of the largest exercise have about 100,000


def read(text: str, max_trip_count: int | None = None) -> StableHloProgram:
    """Read StableHLO text.

    Args:
      text: the program.
      max_trip_count: the trip count after which a dynamic loop is stopped; None forbids dynamic loops.

    Raises:
      ProgramError: if the text is too long, does not parse, contains a forbidden operation, or contains a dynamic loop
        although these are forbidden.
    """
    if "dense_resource" in text:
        raise ProgramError("the traced program stores constants as raw bytes, which cannot be checked.")
    if len(text) > MAX_TEXT:
        raise ProgramError(f"the traced program is {len(text):,} characters long; the limit is {MAX_TEXT:,}.")
    with mlir.make_ir_context():
        try:
            module = ir.Module.parse(text)
        except ir.MLIRError as error:
            raise ProgramError("the traced program is not valid StableHLO.") from error
        _refuse_unknown_operations(module)
        try:
            program = _read_module(module, text)
        except RecursionError:
            raise ProgramError("the traced program has loops that are nested too deeply.") from None
        if not program.dynamic_loops:
            return program
        if max_trip_count is None:
            raise ProgramError("the traced program has a loop whose number of iterations is not a constant.")
        trip_counter.count(module, max_trip_count)
        # Read again, because a loop that is dynamic in one call of its function has a counter in every call.
        return _read_module(module, str(module.operation.get_asm()), outputs=len(program.outputs))


def _read_module(module: ir.Module, text: str, outputs: int | None = None) -> StableHloProgram:
    """Read a module whose first results are its outputs."""
    builder = Builder(module)
    block = builder.function("main")
    inputs = [builder.new() for _ in block.arguments]
    returned = builder.block(block, inputs, {})
    types = bindings.function_type(block.owner)
    if (size := sum(map(_element_count, types.results))) > MAX_ELEMENTS:
        raise ProgramError(f"the traced program returns {size:,} elements; the limit is {MAX_ELEMENTS:,}.")
    return StableHloProgram(
        text=text,
        inputs=tuple(inputs),
        outputs=tuple(returned[:outputs]),
        input_types=tuple(map(tensor_type, types.inputs)),
        output_types=tuple(map(tensor_type, types.results[:outputs])),
        output_memory=_output_memory(block.owner, len(types.results))[:outputs],
        sources=tuple(map(tuple, builder.sources)),
        places=tuple(builder.places.items()),
        matmuls=tuple(builder.matmuls),
        barriers=tuple(builder.barriers),
        dynamic_loops=builder.dynamic_loops,
        collectives=tuple(builder.collectives),
        gathers=tuple(builder.gathers),
        whole=tuple(sorted(builder.whole)),
    )


def _refuse_unknown_operations(module: ir.Module) -> None:
    refused: set[str] = set()
    types: set[ir.Type] = set()
    for op in bindings.walk_operations(module.operation):
        name, taken, made = op.name, [operand.type for operand in op.operands], [result.type for result in op.results]
        if name == "stablehlo.custom_call":
            target = bindings.text(op, "call_target_name")
            # MLIR does not verify the types of custom operations.
            if target not in ALLOWED_CUSTOM_CALLS or len(made) != 1 or taken != made:
                refused.add(f"{name} @{target}")
        elif name not in SUPPORTED_OPERATIONS:
            refused.add(name)
        types.update(made)
    refused |= {op.name for op in bindings.operations(module.body)} - {"func.func", "sdy.mesh"}  # a nested module
    if refused:
        raise ProgramError(f"the traced program uses {', '.join(sorted(refused))}, which this exercise does not need.")
    if (size := max(map(_element_count, types), default=0)) > MAX_ELEMENTS:
        raise ProgramError(f"the traced program has an array of {size:,} elements; the limit is {MAX_ELEMENTS:,}.")


def _element_count(type_: ir.Type) -> int:
    try:
        tensor = ir.RankedTensorType(type_)
    except ValueError:  # not an array but a token
        return 0
    if not tensor.has_static_shape:
        raise ProgramError(f"the traced program has a {type_}, which is not an array of a fixed shape.")
    return math.prod(tensor.shape)


def _output_memory(main: bindings.Op, count: int) -> tuple[str, ...]:
    """Return the memory space of each output, as JAX notes it next to the function's results."""
    if "res_attrs" not in main.attributes:
        return ("device",) * count
    key = "mhlo.memory_kind"
    notes = map(ir.DictAttr, ir.ArrayAttr(main.attributes["res_attrs"]))
    try:
        return tuple(ir.StringAttr(note[key]).value if key in note else "device" for note in notes)
    except ValueError:
        raise ProgramError("the traced program's outputs are in a memory without a name.") from None
