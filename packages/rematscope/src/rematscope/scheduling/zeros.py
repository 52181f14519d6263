"""A backward program for outputs some of which have no cotangent, pruned as JAX prunes it.

`jax.grad(f, has_aux=True)` has a cotangent for the loss alone, and JAX computes nothing for the other outputs. Arrays
of zeros in place of their cotangents would give the same gradient only where every derivative is finite: 0 * inf is
NaN, for example if an auxiliary output is the square root of 0.

A value of the backward program is a *symbolic zero* if it depends only on absent cotangents, and is 0 if they are.
Operations that compute symbolic zeros alone are dropped, and so are carries of loops. `add_any`, with which JAX sums
cotangents, returns its other operand. Any other operation that reads a symbolic zero together with other values, such
as one of a custom rule, gets an array of zeros, as in JAX.

A custom rule may return values other than 0 for cotangents that are 0, and JAX calls it with arrays of zeros for the
outputs without a cotangent. The inlined program does not show the outputs of a rule; `symbolic_zeros.py` compares it
with JAX's.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from rematscope.ir.dependence import mark_dependence
from rematscope.ir.inline import without_dead_code
from rematscope.ir.program import Equation, Literal, Program, Value, free_values, reading
from rematscope.jax_compat import body_of
from rematscope.scheduling.linearize import substitute_values

_GIVEN, _ABSENT = 1, 2


def without_cotangents(backward: Program, cotangents: Sequence[Value], absent: Collection[Value]) -> Program:
    """Return a backward program without some of its cotangents."""
    marks = {v: _ABSENT if v in absent else _GIVEN for v in cotangents}
    mark_dependence(backward, marks)
    level = _Level(marks, {})
    equations = level.pruned(backward.equations)
    outputs = tuple(map(level.array, backward.outputs))
    inputs = tuple(v for v in backward.inputs if v not in absent)
    equations = without_dead_code([*equations, *level.new], outputs)
    return dataclasses.replace(backward, inputs=inputs, equations=equations, outputs=outputs)


class _Level:
    """Prune a program, the body of a loop, or a branch."""

    def __init__(self, marks: Mapping[Value, int], instead: dict[Value, Value]):
        """Args:
        instead: for some values, their replacements.
        """
        self._marks, self._instead = marks, instead
        self.new: list[Equation] = []  # arrays of zeros that were asked for

    def is_zero(self, value: Value) -> bool:
        return self._marks.get(value, 0) == _ABSENT

    def array(self, value: Value) -> Value:
        """Return a value, or its replacement; an array of zeros for a symbolic zero."""
        if self.is_zero(value) and value not in self._instead:
            self._instead[value] = self._make_zeros(value)
        return self._instead.get(value, value)

    def pruned(self, equations: Iterable[Equation]) -> list[Equation]:
        """Return the operations that do not compute symbolic zeros alone."""
        found: list[Equation] = []
        for equation in equations:
            if equation.primitive == "optimization_barrier":
                fenced = (self._instead.get(v, v) for v in equation.inputs if not self.is_zero(v))
                if operands := tuple(v for v in dict.fromkeys(fenced) if not isinstance(v, Literal)):
                    found.append(dataclasses.replace(equation, inputs=operands, outputs=operands))
                continue
            if equation.outputs and all(map(self.is_zero, equation.outputs)):
                continue
            zeros = [v for v in reading(equation) if self.is_zero(v)]
            if zeros and equation.primitive == "add_any":
                (other,) = (v for v in equation.inputs if not self.is_zero(v))
                self._instead[equation.outputs[0]] = self._instead.get(other, other)
                continue
            if equation.primitive == "scan":
                equation = self._prune_scan(equation)
            elif equation.primitive == "cond":
                equation = self._prune_cond(equation)
            elif equation.primitive == "shard_map":
                equation = self._prune_shard_map(equation)
            else:
                for value in zeros:
                    self.array(value)
                equation = substitute_values(equation, self._instead) if self._instead else equation
            found += self.new
            found.append(equation)
            self.new.clear()
        return found

    def _prune_body(self, body: Program, results: Sequence[Value], inputs: tuple[Value, ...] | None = None) -> Program:
        """Return a body that does not compute the symbolic zeros among its results.

        `without_dead_code` removes these results, with the carries and slices that only they depend on.
        """
        inside = _Level(self._marks, dict(self._instead))
        equations = inside.pruned(body.equations)
        pairs = zip(body.outputs, results, strict=True)
        outputs = tuple(v if self.is_zero(result) else inside.array(v) for v, result in pairs)
        inputs = body.inputs if inputs is None else inputs
        return dataclasses.replace(body, inputs=inputs, equations=[*equations, *inside.new], outputs=outputs)

    def _prune_cond(self, equation: Equation) -> Equation:
        bodies = tuple(self._prune_body(body, equation.outputs) for body in equation.bodies)
        around = dict.fromkeys(v for body in bodies for v in free_values(body))
        return dataclasses.replace(equation, inputs=(self.array(equation.inputs[0]), *around), bodies=bodies)

    def _prune_scan(self, equation: Equation) -> Equation:
        inner = self._prune_body(equation.bodies[0], equation.outputs)
        around = free_values(inner)
        given = zip((*equation.initial, *equation.stacked_inputs), inner.inputs, strict=True)
        operands = (outer if self.is_zero(own) else self.array(outer) for outer, own in given)
        return dataclasses.replace(equation, inputs=(*around, *operands), first_carry=len(around), bodies=(inner,))

    def _prune_shard_map(self, equation: Equation) -> Equation:
        (body,) = equation.bodies
        read = [i for i, part in enumerate(body.inputs) if not self.is_zero(part)]
        specs = tuple(equation.params["in_specs"][i] for i in read)
        return dataclasses.replace(
            equation,
            inputs=tuple(self.array(equation.inputs[i]) for i in read),
            params=equation.params | {"in_specs": specs},
            bodies=(self._prune_body(body, equation.outputs, tuple(body.inputs[i] for i in read)),),
        )

    def _make_zeros(self, value: Value) -> Value:
        """Return the operation that makes zeros like a value."""
        literal = Literal(jax.ShapeDtypeStruct((), value.dtype), np.zeros((), value.dtype))
        if not value.shape:
            return literal
        (eqn,) = body_of(jax.make_jaxpr(lambda: jnp.zeros(value.shape, value.dtype))())[0].eqns
        made = Value(value.aval)
        self.new.append(Equation(eqn.primitive.name, (literal,), (made,), dict(eqn.params), eqn))
        return made
