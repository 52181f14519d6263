"""Which values the operations of one level read: those of a program without the bodies of its loops and branches."""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Sequence

from rematscope.ir.primitives import VIEWS
from rematscope.ir.program import Equation, Literal, Program, Value


class Level:
    """A program, with the readers of its values. A name or a reshape of a value counts as the value itself.

    Attributes:
      program: the program.
      equations: its equations.
    """

    def __init__(self, program: Program):
        self.program = program
        self.equations: Sequence[Equation] = program.equations
        self._originals: dict[Value, Value] = {}  # for each alias, the value that it is a name or a reshape of
        for equation in filter(is_alias, program.equations):
            operand, value = equation.inputs[0], equation.outputs[0]
            # In a schedule, two values may name each other.
            if not isinstance(operand, Literal) and (original := self.original(operand)) is not value:
                self._originals[value] = original

    def with_equations(self, equations: list[Equation]) -> "Level":
        """Return the level with other equations."""
        return Level(dataclasses.replace(self.program, equations=equations))

    def original(self, value: Value) -> Value:
        """Return the value that a value is an alias of; the value itself if it is no alias."""
        while value in self._originals:
            value = self._originals[value]
        return value

    def is_renamed(self, value: Value) -> bool:
        """Return whether a value is an alias."""
        return value in self._originals

    def operands(self, equation: Equation) -> list[Value]:
        """Return the originals of the values that an equation reads, without literals."""
        same = self._originals
        return [self.original(v) if v in same else v for v in equation.inputs if not isinstance(v, Literal)]

    @functools.cached_property
    def readers(self) -> dict[Value, list[Equation]]:
        """The operations that read each value or an alias of it, in order."""
        readers: dict[Value, list[Equation]] = {}
        for equation in self.equations:
            if not is_alias(equation):
                for operand in dict.fromkeys(self.operands(equation)):
                    readers.setdefault(operand, []).append(equation)
        return readers

    @functools.cached_property
    def written(self) -> set[Value]:
        """The values that leave the level: its results, and the operands of barriers, loops and branches."""
        found = {self.original(v) for v in self.program.outputs if not isinstance(v, Literal)}
        for equation in self.equations:
            if equation.primitive == "optimization_barrier" or equation.bodies:
                found.update(self.operands(equation))
        return found

    @functools.cached_property
    def counts(self) -> collections.Counter[Value]:
        """How often each value is read; returning a value also reads it."""
        returned = (self.original(v) for v in self.program.outputs if not isinstance(v, Literal))
        read = (v for equation in self.equations if not is_alias(equation) for v in self.operands(equation))
        return collections.Counter(itertools.chain(returned, read))

    @functools.cached_property
    def broadcasts(self) -> set[Value]:
        """The results of broadcasts and iotas, with their aliases."""
        found = {e.outputs[0] for e in self.equations if e.primitive in ("broadcast_in_dim", "iota")}
        return found | {value for value, original in self._originals.items() if self.original(original) in found}


def is_alias(equation: Equation) -> bool:
    """Return whether an equation's result is its operand with another name or shape."""
    return equation.primitive in VIEWS
