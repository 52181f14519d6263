"""The FLOPs and transcendentals of a compiled program, with all iterations of its loops.

The conventions are `rematscope.ir.cost`'s. XLA's own `cost_analysis` counts a loop's body once.
"""

import math
from collections.abc import Sequence

from rematscope.ir.conv_windows import conv_window_reads
from rematscope.ir.cost import Cost
from rematscope.ir.cost_rules import comparison_count, fft_flops
from rematscope.ir.decompositions import DECOMPOSITIONS
from rematscope.ir.program import Part
from rematscope.xla.hlo import Module, backend_config
from rematscope.xla.hlo_proto import Instruction, PrimitiveType, WindowDimension
from rematscope.xla.trip_counts import trip_count

_TRANSCENDENTAL = frozenset(
    "cbrt cosine erf exponential exponential-minus-one log log-plus-one logistic power rsqrt sine sqrt tan tanh atan2 "
    "acos acosh asin asinh atanh cosh sinh".split()
)
_ARITHMETIC = frozenset(
    "abs add and clamp compare divide maximum minimum multiply negate not or popcnt remainder round-nearest-afz "
    "round-nearest-even floor ceil sign subtract xor shift-left shift-right-arithmetic shift-right-logical".split()
)
_COMPLEX = (PrimitiveType.C64, PrimitiveType.C128)
# Calls that compute nothing.
_FREE_CALLS = frozenset(
    "AllocateBuffer AsyncCollectiveDone AsyncCollectiveStart ConcatBitcast MoveToDevice MoveToHost Sharding".split()
)


def cost(module: Module) -> Cost:
    """Return the cost of a compiled program."""
    return _cost_of(module, module.entry)


def uncounted(module: Module) -> list[str]:
    """Return sentences about the instructions that `cost` does not count."""
    instructions = module.by_id.values()
    calls = [i for i in instructions if i.opcode == "custom-call" and i.operand_ids]
    calls = [i for i in calls if _contracted_dimensions(i) is None]
    libraries = {call.custom_call_target for call in calls} - _FREE_CALLS
    sentences = [f"The FLOPs of the library call {name} are not counted." for name in sorted(libraries)]
    if any(i.opcode == "while" and trip_count(module, i) is None for i in instructions):
        sentences.append("Of a loop of unknown length, only one iteration is counted.")
    return sentences


def _cost_of(module: Module, computation: int) -> Cost:
    return sum((_instruction_cost(module, instruction) for instruction in module.computations[computation]), Cost())


def _instruction_cost(module: Module, instruction: Instruction) -> Cost:
    size = math.prod(instruction.shape.dimensions)
    match instruction.opcode:
        case "fusion" | "call" | "async-start":
            return _called_cost(module, instruction)
        case "while":
            known = trip_count(module, instruction)
            return _called_cost(module, instruction) * (1 if known is None else known)
        case "conditional":
            branches = [_cost_of(module, branch) for branch in instruction.called_computation_ids]
            return max(branches, key=lambda cost: cost.flops)
        case "dot" | "custom-call":
            return _matmul_cost(module, instruction)
        case "convolution":
            return Cost(2 * _convolution_multiplications(module, instruction))
        case "reduce":
            return Cost(math.prod(module.by_id[instruction.operand_ids[0]].shape.dimensions))
        case "reduce-window":
            results = instruction.shape.tuple_shapes or [instruction.shape]
            return Cost(_in_windows(module, instruction, results[0].dimensions))
        case "select-and-scatter":  # an element is chosen in each window, and one is added there
            windows = module.by_id[instruction.operand_ids[1]].shape.dimensions
            return Cost(_in_windows(module, instruction, windows) + math.prod(windows))
        case "sort":
            operand = module.by_id[instruction.operand_ids[0]].shape.dimensions
            return Cost(comparison_count(math.prod(operand), operand[instruction.dimensions[0]]))
        case "fft":
            shapes = module.by_id[instruction.operand_ids[0]].shape, instruction.shape
            reals = [math.prod(shape.dimensions) for shape in shapes if shape.element_type not in _COMPLEX]
            return Cost(fft_flops(instruction.fft_length, size, reals[0] if reals else None))
        case "cholesky" | "triangular-solve" as opcode:
            operands = [Part(tuple(module.by_id[i].shape.dimensions), None) for i in instruction.operand_ids]
            return Cost(DECOMPOSITIONS[opcode.replace("-", "_")](operands, [], {}))
        case opcode if opcode in _TRANSCENDENTAL:
            return Cost(transcendentals=size)
        case opcode if opcode in _ARITHMETIC:
            return Cost(size)
    return Cost()


def _matmul_cost(module: Module, instruction: Instruction) -> Cost:
    contracted = _contracted_dimensions(instruction)
    if contracted is None:  # a custom call that is no matmul
        return Cost()
    result = instruction.shape.dimensions
    if instruction.opcode == "custom-call" and not result:
        result = instruction.shape.tuple_shapes[0].dimensions  # of a tuple: the result, and a workspace
    lhs = module.by_id[instruction.operand_ids[0]].shape.dimensions
    return Cost(2 * math.prod(result) * math.prod(lhs[dimension] for dimension in contracted))


def _called_cost(module: Module, instruction: Instruction) -> Cost:
    return sum((_cost_of(module, part) for part in instruction.called_computation_ids), Cost())


def _contracted_dimensions(instruction: Instruction) -> list[int] | None:
    """Return the dimensions of the left operand that a matmul contracts; on a GPU, matmuls are library calls."""
    if instruction.opcode == "dot":
        return instruction.dot_dimension_numbers.lhs_contracting_dimensions
    numbers = backend_config(instruction).get("gemm_backend_config", {}).get("dot_dimension_numbers")
    return None if numbers is None else list(map(int, numbers.get("lhs_contracting_dimensions", [])))


def _convolution_multiplications(module: Module, convolution: Instruction) -> int:
    """Return the number of multiplications, without those with padding or with holes of a dilation."""
    image, kernel = (module.by_id[i].shape.dimensions for i in convolution.operand_ids)
    result, where = convolution.shape.dimensions, convolution.convolution_dimension_numbers
    count = kernel[where.kernel_input_feature_dimension]
    count *= result[where.output_batch_dimension] * result[where.output_feature_dimension]
    for window, i, o in zip(
        convolution.window.dimensions, where.input_spatial_dimensions, where.output_spatial_dimensions, strict=True
    ):
        count *= _window_reads(window, image[i], result[o])
    return count


def _in_windows(module: Module, instruction: Instruction, windows: Sequence[int]) -> int:
    """Return the operations on the elements that windows read.

    For a TPU, XLA writes a reduction with a broadcast result, as in a softmax, as a window over a whole axis with
    padding. It is computed once.
    """
    operand = module.by_id[instruction.operand_ids[0]].shape.dimensions
    axes = list(zip(instruction.window.dimensions, operand, windows, strict=True))
    if all(window.size == 1 or window.size >= axis for window, axis, _ in axes):
        return math.prod(operand)
    return max(0, math.prod(_window_reads(*each) for each in axes) - math.prod(windows))


def _window_reads(window: WindowDimension, axis: int, outputs: int) -> int:
    spacing = window.stride, window.padding_low, window.base_dilation, window.window_dilation
    return conv_window_reads(axis, outputs, window.size, *spacing)
