"""Track which values are broadcast along an axis, and which scalars are known before a program runs.

XLA moves broadcasts after elementwise operations: an operation on scalars and on arrays that are broadcast along the
same axes runs on the small arrays, and its result is broadcast. XLA replaces a division by a broadcast array with a
multiplication by the reciprocal.
"""

import collections
import dataclasses
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from rematscope.ir.program import RENAMES, Equation, Literal, Program, Value

# Operations on scalars that are evaluated at compile time: JAX's variance tests whether there is more than one element.
_SCALARS: dict[str, Callable[..., Any]] = {
    "convert_element_type": lambda x: x,
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "square": lambda x: x * x,
    "gt": operator.gt,
    "lt": operator.lt,
}
_MOVED = frozenset("broadcast_in_dim copy iota pad rev slice".split())


class Broadcasts:
    """The broadcast values and the scalars known at compile time, recorded equation by equation."""

    def __init__(self, program: Program):
        read = (v for e in program.equations for v in e.inputs if not isinstance(v, Literal) and not v.shape)
        self._readers = collections.Counter(read)
        self._numbers: dict[Value, Any] = {}  # the known scalars
        self._repeats: dict[Value, Equation] = {}

    def note(self, equation: Equation) -> None:
        """Record that the result of an equation is a broadcast value or a known number, if it is."""
        if len(equation.outputs) != 1 or equation.bodies or not equation.inputs:
            return
        operand, (result,) = equation.inputs[0], equation.outputs
        if equation.primitive in RENAMES:
            if operand in self._repeats:
                self._repeats[result] = dataclasses.replace(self._repeats[operand], outputs=(result,))
            if (number := self.number(operand)) is not None:
                self._numbers[result] = number
        elif equation.primitive == "broadcast_in_dim" and math.prod(operand.shape) < math.prod(result.shape):
            self._repeats[result] = equation
        elif equation.primitive in _SCALARS and not result.shape:
            numbers = list(map(self.number, equation.inputs))
            if all(number is not None for number in numbers):
                self._numbers[result] = _SCALARS[equation.primitive](*numbers)

    def number(self, value: Value) -> Any:
        """Return the number that a scalar equals or an array is filled with; None if it is not known."""
        if value in self._repeats:
            value = self._repeats[value].inputs[0]
        if isinstance(value, Literal):
            return None if value.shape else np.asarray(value.value).item()
        return self._numbers.get(value)

    def of_number(self, value: Value) -> Equation | None:
        """Return the equation that broadcasts a known number to this value; None if there is none."""
        return None if self.number(value) is None else self._repeats.get(value)

    def is_inverted(self, divisor: Value, result: Value) -> bool:
        """Return whether XLA multiplies by a divisor's reciprocal: a broadcast, or a scalar without other readers."""
        if divisor in self._repeats:
            divisor = self._repeats[divisor].inputs[0]
        if isinstance(divisor, Literal):
            return True
        return divisor.shape != result.shape and (divisor.shape != () or self._readers[divisor] == 1)

    def later(self, equation: Equation) -> list[Equation] | None:
        """Return an elementwise equation moved before its operands' broadcasts, and the broadcast of its result.

        Return None if XLA does not move the broadcasts.
        """
        if equation.primitive in _MOVED or self._repeats.keys().isdisjoint(equation.inputs):
            return None
        arrays = [v for v in equation.inputs if not isinstance(v, Literal) and v.shape]
        repeats = [self._repeats[v] for v in arrays if v in self._repeats]
        large = [e for e in repeats if e.inputs[0].shape] or repeats
        if not large or len(repeats) < len(arrays):
            return None
        first, source = large[0], large[0].inputs[0]
        if any(e.params != first.params for e in large):
            return None
        before = {e.outputs[0]: e.inputs[0] for e in repeats}
        (result,) = equation.outputs
        small = value_like(result, shape=source.shape)
        if not isinstance(source, Literal):
            small.sharding = source.sharding
        inputs = tuple(before.get(v, v) for v in equation.inputs)
        found = [
            dataclasses.replace(equation, inputs=inputs, outputs=(small,)),
            dataclasses.replace(first, inputs=(small,), outputs=(result,), role=equation.role),
        ]
        for each in found:
            self.note(each)
        return found


def value_like(value: Value, **changed: Any) -> Value:
    """Return a new value with the type of another value, except for the given changes."""
    made = Value(value.aval.update(**changed) if changed else value.aval, value.name)
    if "shape" not in changed:
        made.sharding = value.sharding
    return made
