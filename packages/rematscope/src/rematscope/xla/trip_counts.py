"""The trip counts of a compiled program's loops, as XLA states them, or for loops that count to a constant."""

from typing import NamedTuple

from rematscope.ir import trip_counts
from rematscope.xla.hlo import Module, backend_config
from rematscope.xla.hlo_proto import Instruction

_PASSED_ON = frozenset({"copy", "bitcast", "reshape", "optimization-barrier"})


class _Call(NamedTuple):
    """The instruction that calls the computation at hand, and the call around it."""

    instruction: Instruction
    around: "_Call | None"


class _Found(NamedTuple):
    """The origin of a value: an instruction, or a carry of the loop."""

    instruction: Instruction | None
    around: _Call | None
    carry: int = -1


def trip_count(module: Module, loop: Instruction) -> int | None:
    """Return the trip count of a loop; None if XLA does not state it and the loop does not count to a constant."""
    if known := backend_config(loop).get("known_trip_count"):
        return int(known["n"])
    body, condition = (module.by_id[module.roots[number]] for number in loop.called_computation_ids)
    test = _find_origin(module, condition, None)
    if test.instruction is None or test.instruction.opcode != "compare":
        return None
    direction = test.instruction.comparison_direction.lower()
    if direction not in trip_counts.SWAPPED:
        return None
    first, second = (_find_origin(module, each, test.around) for each in _operands_of(module, test.instruction))
    for comparison, counter, bound in ((direction, first, second), (trip_counts.SWAPPED[direction], second, first)):
        if counter.instruction is None:
            start = _constant_of(_initial_value(module, loop, counter.carry))
            if bound.instruction is not None:
                end = _constant_of(bound)
            else:
                end = _unchanged_constant(module, loop, body, bound.carry)
            step = _carry_step(module, body, counter.carry)
            if start is not None and end is not None and step is not None:
                return trip_counts.count_iterations(comparison, start, end, step)
    return None


def _operands_of(module: Module, instruction: Instruction) -> list[Instruction]:
    return [module.by_id[number] for number in instruction.operand_ids]


def _find_origin(module: Module, instruction: Instruction, around: _Call | None, element: int | None = None) -> _Found:
    """Follow a value, or an element of a tuple, back through calls, tuples and copies."""
    while True:
        opcode = instruction.opcode
        if opcode == "parameter" and around is not None:
            caller = around.instruction
            instruction, around = _operands_of(module, caller)[instruction.parameter_number], around.around
        elif opcode == "parameter":
            return _Found(None, None, 0 if element is None else element)
        elif opcode in ("call", "fusion"):
            around = _Call(instruction, around)
            instruction = module.by_id[module.roots[instruction.called_computation_ids[0]]]
        elif opcode == "get-tuple-element" and element is None:
            element = instruction.tuple_index
            (instruction,) = _operands_of(module, instruction)
        elif opcode == "tuple" and element is not None:
            instruction, element = _operands_of(module, instruction)[element], None
        elif opcode in _PASSED_ON:
            instruction = _operands_of(module, instruction)[0]
        else:
            return _Found(instruction, around)


def _constant_of(found: _Found) -> int | None:
    if found.instruction is None or found.instruction.opcode != "constant" or found.instruction.shape.dimensions:
        return None
    numbers = (*found.instruction.literal.s32s, *found.instruction.literal.s64s)
    return int(numbers[0]) if len(numbers) == 1 else None


def _initial_value(module: Module, loop: Instruction, carry: int) -> _Found:
    (state,) = _operands_of(module, loop)
    return _carry_in(module, state, carry)


def _carry_in(module: Module, state: Instruction, carry: int) -> _Found:
    """Return the origin of a carry in a loop's state: its initial state, or the result of its body."""
    return _find_origin(module, state, None, carry if state.shape.tuple_shapes else None)


def _unchanged_constant(module: Module, loop: Instruction, body: Instruction, carry: int) -> int | None:
    """Return the constant that a carry holds in every iteration; None if it changes."""
    after = _carry_in(module, body, carry)
    if after.instruction is not None or after.carry != carry:
        return None
    return _constant_of(_initial_value(module, loop, carry))


def _carry_step(module: Module, body: Instruction, carry: int) -> int | None:
    """Return the constant that each iteration adds to a carry; None if there is none."""
    made = _carry_in(module, body, carry)
    if made.instruction is None or made.instruction.opcode not in ("add", "subtract"):
        return None
    first, second = (_find_origin(module, each, made.around) for each in _operands_of(module, made.instruction))
    if first.instruction is None and first.carry == carry and (step := _constant_of(second)) is not None:
        return step if made.instruction.opcode == "add" else -step
    if made.instruction.opcode == "add" and second.instruction is None and second.carry == carry:
        return _constant_of(first)
    return None
