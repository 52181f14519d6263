"""A backward program for outputs some of which have no cotangent, pruned as JAX prunes it.

`jax.grad(f, has_aux=True)` has a cotangent for the loss alone, and JAX computes nothing for the other outputs. Arrays
of zeros in place of their cotangents would give the same gradient only where every derivative is finite: 0 * inf is
NaN, for example if an auxiliary output is the square root of 0.

A value of the backward program is a *symbolic zero* if it depends only on absent cotangents, and is 0 if they are.
Operations that compute symbolic zeros alone are dropped, and so are carries of loops. `add_any`, with which JAX sums
cotangents, returns its other operand. Any other operation that reads a symbolic zero together with other values, such
as one of a custom rule, gets an array of zeros, as in JAX.

A custom rule may return values other than 0 for cotangents that are 0, such as a constant gradient of an auxiliary
loss. JAX calls the rule if one of its outputs has a cotangent. The inlined program does not show the outputs of a rule,
so `may_depend_on_rule` finds constant gradients, and such rules in a function that calls a custom rule for several
outputs.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from rematscope.ir.dependence import mark_dependence
from rematscope.ir.inline import without_dead_code
from rematscope.ir.primitives import COLLECTIVES, MATMULS, MOVES, VIEWS
from rematscope.ir.program import Equation, Literal, Program, Value
from rematscope.jax_compat import body_of
from rematscope.scheduling.linearize import free_values, reading, substituted

_GIVEN, _ABSENT = 1, 2
# Operations whose results are 0 if the operands that depend on cotangents are 0, except as `may_be_constant` says.
_ZERO_AT_ZERO = (
    (VIEWS | MOVES | MATMULS | COLLECTIVES)
    | frozenset(
        "neg mul div convert_element_type real imag conj complex abs sign square sqrt sin tan tanh sinh".split()
    )
    | frozenset("asin atan expm1 log1p erf floor ceil round reduce_precision fft triangular_solve scan cond".split())
    | frozenset("reduce_sum reduce_max reduce_min reduce_prod reduce_window_sum cumsum cummax cummin cumprod".split())
    | frozenset("select_and_scatter_add select_and_gather_add shard_map".split())
)
_LINEAR_OPERAND = {"gather": 0, "dynamic_slice": 0, "div": 0, "triangular_solve": 1}  # not in the other operands
# Operations whose results contain values of their other operands.
_SUMS = frozenset(
    "add sub add_any concatenate stack select_n pad dynamic_update_slice scatter scatter-add scatter-sub".split()
)


def without(backward: Program, cotangents: Sequence[Value], absent: Collection[Value]) -> Program:
    """Return a backward program without some of its cotangents."""
    marks = _marked(backward, cotangents, absent)
    level = _Level(marks, {})
    equations = level.pruned(backward.equations)
    outputs = tuple(map(level.array, backward.outputs))
    inputs = tuple(v for v in backward.inputs if v not in absent)
    equations = without_dead_code([*equations, *level.new], outputs)
    return dataclasses.replace(backward, inputs=inputs, equations=equations, outputs=outputs)


def zeros_of(program: Program) -> set[Value]:
    """Return the values that a program makes as arrays of zeros."""
    made = (e for e in program.all_equations() if e.primitive == "broadcast_in_dim" and _is_zero_literal(e.inputs[0]))
    return {e.outputs[0] for e in made}


def _marked(backward: Program, cotangents: Sequence[Value], absent: Collection[Value]) -> dict[Value, int]:
    marks = {v: _ABSENT if v in absent else _GIVEN for v in cotangents}
    mark_dependence(backward, marks)
    return marks


def may_depend_on_rule(
    backward: Program, cotangents: Sequence[Value], absent: Collection[Value], several: bool, saved: Collection[Value]
) -> bool:
    """Return whether a gradient may depend on which custom rules JAX calls without the absent cotangents.

    Args:
      several: whether the function calls a custom rule that has several outputs.
      saved: saved values that are 0.
    """
    marks, zeros = _marked(backward, cotangents, absent), {*saved, *zeros_of(backward)}
    equations = [e for e in backward.all_equations() if e.primitive != "optimization_barrier"]

    def is_constant(value: Value) -> bool:
        """Whether a value depends on no cotangent, and may be another floating-point value than 0."""
        is_float = jnp.issubdtype(value.dtype, np.inexact)
        return is_float and not marks.get(value, 0) and value not in zeros and not _is_zero_literal(value)

    def may_be_constant(equation: Equation) -> bool:
        """Whether a result that depends on absent cotangents alone may be another value than 0."""
        name, read = equation.primitive, [marks.get(v, 0) for v in equation.inputs]
        if name == "add_any":
            return any(read) and any(map(is_constant, equation.inputs))
        zero = [i for i, v in enumerate(equation.outputs) if marks.get(v, 0) == _ABSENT]
        if not several or not zero:
            return False
        if not all(jnp.issubdtype(equation.outputs[i].dtype, np.inexact) for i in zero):
            return True
        if name == "scan":
            return any(i < equation.carries and is_constant(equation.initial[i]) for i in zero)
        if name == "cond":
            return bool(read[0]) or any(is_constant(body.outputs[i]) for body in equation.bodies for i in zero)
        if name in _SUMS:
            return any(map(is_constant, equation.inputs))
        if name in _LINEAR_OPERAND and any(r for i, r in enumerate(read) if i != _LINEAR_OPERAND[name]):
            return True  # an absent cotangent is an index, a matrix or a denominator
        return name not in _ZERO_AT_ZERO or _fills(equation)

    return any(map(is_constant, backward.outputs)) or any(map(may_be_constant, equations))


def _fills(equation: Equation) -> bool:
    """Whether a gather returns another value than 0 for indices out of bounds."""
    mode = equation.params.get("mode")
    return mode == jax.lax.GatherScatterMode.FILL_OR_DROP and equation.params.get("fill_value", 0) != 0


def _is_zero_literal(value: Value) -> bool:
    return isinstance(value, Literal) and value.dtype != jax.dtypes.float0 and not np.any(value.value)


class _Level:
    """Prune a program, the body of a loop, or a branch."""

    def __init__(self, marks: Mapping[Value, int], instead: dict[Value, Value]):
        """Args:
        instead: for some values, their replacements.
        """
        self._marks, self._instead = marks, instead
        self.new: list[Equation] = []  # arrays of zeros that were asked for

    def is_zero(self, value: Value) -> bool:
        """Whether a value is a symbolic zero."""
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
                if kept := tuple(v for v in dict.fromkeys(fenced) if not isinstance(v, Literal)):
                    found.append(dataclasses.replace(equation, inputs=kept, outputs=kept))
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
                equation = self._shard_map(equation)
            else:
                for value in zeros:
                    self.array(value)
                equation = substituted(equation, self._instead) if self._instead else equation
            found += self.new
            found.append(equation)
            self.new.clear()
        return found

    def _prune_body(self, body: Program, inputs: tuple[Value, ...], kept: Sequence[int]) -> Program:
        """Return a loop's body or a branch with some of its inputs and results."""
        inside = _Level(self._marks, dict(self._instead))
        equations = inside.pruned(body.equations)
        outputs = tuple(inside.array(body.outputs[i]) for i in kept)
        return dataclasses.replace(body, inputs=inputs, equations=[*equations, *inside.new], outputs=outputs)

    def _prune_cond(self, equation: Equation) -> Equation:
        kept = [i for i, v in enumerate(equation.outputs) if not self.is_zero(v)]
        bodies = tuple(self._prune_body(body, (), kept) for body in equation.bodies)
        around = dict.fromkeys(v for body in bodies for v in free_values(body))
        return dataclasses.replace(
            equation,
            inputs=(self.array(equation.inputs[0]), *around),
            outputs=tuple(equation.outputs[i] for i in kept),
            bodies=bodies,
        )

    def _prune_scan(self, equation: Equation) -> Equation:
        (body,) = equation.bodies
        kept = [i for i, v in enumerate(equation.outputs) if not self.is_zero(v)]
        carried = [i for i in kept if i < equation.carries]
        initial = tuple(self.array(equation.initial[i]) for i in carried)
        slices = zip(equation.stacked_inputs, body.inputs[equation.carries :], strict=True)
        read = [(self.array(stack), part) for stack, part in slices if not self.is_zero(part)]
        inner = self._prune_body(body, (*(body.inputs[i] for i in carried), *(part for _, part in read)), kept)
        around = free_values(inner)
        return dataclasses.replace(
            equation,
            inputs=(*around, *initial, *(stack for stack, _ in read)),
            outputs=tuple(equation.outputs[i] for i in kept),
            first_carry=len(around),
            carries=len(carried),
            bodies=(inner,),
        )

    def _shard_map(self, equation: Equation) -> Equation:
        (body,) = equation.bodies
        kept = [i for i, v in enumerate(equation.outputs) if not self.is_zero(v)]
        read = [i for i, part in enumerate(body.inputs) if not self.is_zero(part)]
        specs_in, specs_out = equation.params["in_specs"], equation.params["out_specs"]
        specs = {"in_specs": tuple(specs_in[i] for i in read), "out_specs": tuple(specs_out[i] for i in kept)}
        return dataclasses.replace(
            equation,
            inputs=tuple(self.array(equation.inputs[i]) for i in read),
            outputs=tuple(equation.outputs[i] for i in kept),
            params=equation.params | specs,
            bodies=(self._prune_body(body, tuple(body.inputs[i] for i in read), kept),),
        )

    def _make_zeros(self, value: Value) -> Value:
        """Return the operation that makes zeros like a value."""
        number = np.zeros((), value.dtype)
        if not value.shape:
            return Literal(jax.ShapeDtypeStruct((), value.dtype), number)
        (eqn,) = body_of(jax.make_jaxpr(lambda: jnp.zeros(value.shape, value.dtype))())[0].eqns
        made = Value(value.aval)
        literal = Literal(jax.ShapeDtypeStruct((), value.dtype), number)
        self.new.append(Equation(eqn.primitive.name, (literal,), (made,), dict(eqn.params), eqn))
        return made
