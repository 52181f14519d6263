"""Group the operations that YNNPACK, a library for CPUs, computes together with a sum or a maximum.

XLA passes a reduction to YNNPACK together with neighboring operations that YNNPACK supports: operations (including
matmuls) whose results only the reduction reads, and an operation that is the only reader of the reduction's result. XLA
forms the groups from the last reduction of a program to the first, and each operation is in at most one group
(`LibraryRewriter` in `xla/backends/cpu/transforms`, `IsInstructionPreferredByYnn` in `xla/backends/cpu`). The operands
and the result of a group are written to memory; values inside the group are not.
"""

import math
from collections.abc import Collection

import jax
import numpy as np

from rematscope.ir.program import Equation, Literal, Value
from rematscope.memory.xla_estimate.hlo_rewrites import YNNPACK_MIN_ELEMENTS
from rematscope.memory.xla_estimate.level import Level

_SUMS = frozenset({"reduce_sum", "reduce_max", "reduce_min"})
_OF_ANY_SIZE = frozenset({"broadcast_in_dim", "dot_general"})
_COMPUTED = _SUMS | _OF_ANY_SIZE
_COMPUTED |= frozenset(
    "abs add add_any ceil convert_element_type cos div erf exp expm1 floor integer_pow log log1p "
    "logistic max min mul neg pow rsqrt sign sin sqrt square sub tan tanh".split()
)
_DTYPES = frozenset([np.dtype(np.float32), np.dtype(np.float64), np.dtype(jax.numpy.bfloat16)])


def ynnpack_groups(level: Level) -> dict[Equation, Equation]:
    """Return the equations that the library computes in groups, each with the last equation of its group."""
    makers = {v: equation for equation in level.equations for v in equation.outputs}
    last: dict[Equation, Equation] = {}

    def is_read_only_in(value: Value, group: Collection[Equation]) -> bool:
        return value not in level.written and all(map(group.__contains__, level.readers.get(value, ())))

    for start in reversed(level.equations):
        if start in last or start.primitive not in _SUMS or not _is_computed(start):
            continue
        group, end = {start: None}, start
        grown = True
        while grown:
            grown = False
            pending = list(group)
            while pending:
                for value in level.operands(pending.pop()):
                    maker = makers.get(value)
                    if maker is None or maker in last or maker in group:
                        continue
                    if is_read_only_in(value, group) and _is_computed(maker):
                        group[maker] = None
                        pending.append(maker)
                        grown = True
            (value,) = end.outputs
            reading = level.readers.get(value, ())
            if value not in level.written and len(reading) == 1 and reading[0] not in last and _is_computed(reading[0]):
                end = reading[0]
                group[end] = None
                grown = True
        while end.primitive == "broadcast_in_dim":  # computed by its readers, outside of the library
            del group[end]
            (end,) = (maker for v in level.operands(end) if (maker := makers[v]) in group)
        last.update(dict.fromkeys(group, end))
    return last


def _is_computed(equation: Equation) -> bool:
    """Return whether the library implements an operation for its dtypes."""
    if len(equation.outputs) != 1 or equation.bodies:
        return False
    if equation.primitive not in _COMPUTED:
        return False
    values = [v for v in (*equation.inputs, *equation.outputs) if not isinstance(v, Literal)]
    if not all(v.dtype in _DTYPES for v in values):
        return False
    if equation.primitive in _OF_ANY_SIZE:
        return True
    return any(math.prod(v.on_device.shape) >= YNNPACK_MIN_ELEMENTS for v in values)
