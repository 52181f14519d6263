"""A backward program for cotangents of which some are zero, such as those of auxiliary results.

JAX does not multiply with a cotangent that it knows to be zero, so a derivative that is infinite does not make NaN of
it, also in loops and branches.
"""

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rematscope.ir import jax_internals
from rematscope.ir.dependence import mark_dependence
from rematscope.ir.inline import without_dead_code
from rematscope.ir.program import Equation, Literal, Program, Value
from rematscope.scheduling.linearize import reading, substituted


def without(backward: Program, cotangents: Sequence[Value], zero: Collection[Value]) -> Program:
    """Return a backward program without the operations that only pass zeros on.

    Args:
      backward: linear in the cotangents.
      cotangents: those that it is given.
      zero: the ones among these that are zero, which the program returned is not given.
    """
    marks = dict.fromkeys(cotangents, 1)
    mark_dependence(backward, marks)
    pruning = _Pruning({value for value, mark in marks.items() if mark}, set(zero))
    pruning.spread(backward, pruning.zeros)
    made = pruning.pruned(backward)
    inputs = tuple(v for v in backward.inputs if v not in zero)
    return dataclasses.replace(made, inputs=inputs, equations=without_dead_code(made.equations, made.outputs))


class _Pruning:
    """A program as it is pruned.

    Attributes:
      flowing: what depends on a cotangent.
      zeros: those of it that are zero.
    """

    def __init__(self, flowing: set[Value], zeros: set[Value]):
        self.flowing, self.zeros = flowing, zeros
        self._stands_for: dict[Value, Value] = {}

    def spread(self, program: Program, zeros: set[Value]) -> None:
        """Add to some zeros what else is zero then in a program and in its bodies."""
        for equation in program.equations:
            if equation.primitive == "optimization_barrier":
                continue
            if equation.primitive in ("scan", "shard_map"):
                self._spread_loop(equation, zeros)
            elif equation.primitive == "cond":
                for body in equation.bodies:
                    self.spread(body, zeros)
                results = zip(equation.outputs, *(body.outputs for body in equation.bodies), strict=True)
                zeros.update(v for v, *parts in results if zeros.issuperset(parts))
            else:
                read = self.flowing.intersection(reading(equation))
                if read and read <= zeros and self.flowing.issuperset(equation.outputs):
                    zeros.update(equation.outputs)

    def _spread_loop(self, loop: Equation, zeros: set[Value]) -> None:
        (body,) = loop.bodies
        slices = zip(loop.stacked_inputs, body.inputs[loop.carries :], strict=True)
        zeros.update(part for stack, part in slices if stack in zeros)
        carried = zip(body.inputs, body.outputs, loop.initial, strict=False)
        pairs = [(given, result) for given, result, first in carried if first in zeros]
        while True:  # a carry is zero if it is so before the loop and after each iteration
            inside = zeros.union(given for given, _ in pairs)
            self.spread(body, inside)
            stay = [pair for pair in pairs if pair[1] in inside]
            if len(stay) == len(pairs):
                break
            pairs = stay
        zeros |= inside
        carries = {given for given, _ in pairs}
        results = enumerate(zip(loop.outputs, body.outputs, strict=True))
        zeros.update(
            out for i, (out, part) in results if (body.inputs[i] in carries if i < loop.carries else part in zeros)
        )

    def pruned(self, program: Program, carries: int = 0) -> Program:
        """A program, or a loop's body with so many carries, without the operations that make zeros alone."""
        equations: list[Equation] = []

        def written(values: Iterable[Value]) -> dict[Value, Value]:
            found = {}
            for value in values:
                made, found[value] = _zeros_like(value)
                equations.extend(made)
            return found

        for equation in program.equations:
            if equation.primitive == "optimization_barrier":
                fenced = tuple(v for v in equation.inputs if v not in self.zeros)
                equation = dataclasses.replace(equation, inputs=fenced, outputs=fenced)
                equations.append(substituted(equation, self._stands_for))
                continue
            if equation.outputs and self.zeros.issuperset(equation.outputs):
                continue
            none = [v for v in dict.fromkeys(equation.inputs) if v in self.zeros]
            if none and equation.primitive == "add_any":
                (other,) = (v for v in equation.inputs if v not in self.zeros)
                self._stands_for[equation.outputs[0]] = self._stands_for.get(other, other)
                continue
            bodies = tuple(self.pruned(body, equation.carries) for body in equation.bodies)
            equation = dataclasses.replace(equation, bodies=bodies)
            equations.append(substituted(equation, self._stands_for | written(none)))
        # A carry that stays zero is passed through.
        outputs = [self._stands_for.get(v, v) for v in program.outputs]
        for i, value in enumerate(outputs):
            if value in self.zeros:
                given = program.inputs[i] if i < carries else None
                outputs[i] = given if given in self.zeros and given is not None else written([value])[value]
        return dataclasses.replace(program, equations=equations, outputs=tuple(outputs))


def _zeros_like(value: Value) -> tuple[list[Equation], Value]:
    """What makes zeros of the type of a value, and these."""
    number = np.zeros((), value.dtype)
    zero = Literal(jax.typeof(number), number)
    if not value.shape:
        return [], zero
    jaxpr: Any = jax.make_jaxpr(lambda x: jnp.broadcast_to(x, value.shape))(number)
    (eqn,) = jax_internals.body_of(jaxpr)[0].eqns
    result = Value(value.aval, value.name)
    result.placed = value.placed
    return [Equation(eqn.primitive.name, (zero,), (result,), eqn.params, eqn)], result
