"""The primal and backward loops of a linearized function, and the operations to rewrite them."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
from jax.extend import source_info_util

from rematscope.ir.program import Equation, Literal, Program, Value
from rematscope.jax_compat import body_of, is_literal, literal_value
from rematscope.scheduling.linearize import Linearized, substituted

source_info_util.register_exclusion(__file__)


# Which loop of `loops_of`, how many iterations each segment has, and how many behind the segments are in none.
Segments = tuple[int, int, int]


def loops_of(linearized: Linearized) -> list[Equation]:
    """Return the primal loops that a backward loop reverses, in the order of the program."""
    loops = set(linearized.loops.values())
    return [equation for equation in linearized.primal.equations if equation in loops]


def backward_of(linearized: Linearized, loop: Equation) -> Equation | None:
    """Return the backward loop that reverses a primal loop; None if there is not exactly one."""
    found = [backward for backward, primal in linearized.loops.items() if primal is loop]
    return found[0] if len(found) == 1 and found[0].reverse != loop.reverse else None


def copied(program: Program, names: dict[Value, Value], copies: dict[Equation, Equation]) -> Program:
    """Return a copy of a body with new values; `names` maps the values, and `copies` the operations."""

    def named(values: Iterable[Value]) -> tuple[Value, ...]:
        for value in values:
            if value not in names:
                names[value] = Value(value.aval, value.name)
                names[value].sharding = value.sharding
        return tuple(names[value] for value in values)

    inputs, equations = named(program.inputs), list[Equation]()
    for equation in program.equations:
        copy = substituted(equation, names)
        if equation.primitive != "optimization_barrier":
            copy = dataclasses.replace(copy, outputs=named(equation.outputs))
        copies[equation] = copy
        equations.append(copy)
    return Program(inputs, equations, tuple(names.get(v, v) for v in program.outputs))


def replaced(program: Program, equation: Equation, instead: Sequence[Equation]) -> Program:
    """Return a program with other operations in the place of one."""
    equations = [new for e in program.equations for new in (instead if e is equation else [e])]
    return dataclasses.replace(program, equations=equations)


def array(value: Value, *shape: int) -> Any:
    """Return an array type of a value's dtype and a shape."""
    return jax.ShapeDtypeStruct(shape, value.dtype)


def stacked(value: Value, length: int) -> Any:
    """Return the stack of such values for a number of iterations."""
    return array(value, length, *value.shape)


def operations(f: Callable[..., Any], operands: Sequence[Value], result: Value) -> list[Equation]:
    """Return the operations of a function of arrays with one result."""
    jaxpr = body_of(jax.make_jaxpr(f)(*(jax.ShapeDtypeStruct(v.shape, v.dtype) for v in operands)))[0]
    values: dict[Any, Value] = dict(zip(jaxpr.invars, operands, strict=True))
    values[jaxpr.outvars[0]] = result

    def read(atom: Any) -> Value:  # a variable or a literal of the jaxpr
        return Literal(atom.aval, literal_value(atom)) if is_literal(atom) else values[atom]

    made = []
    for eqn in jaxpr.eqns:
        for var in eqn.outvars:
            values.setdefault(var, Value(var.aval))
        inputs = tuple(map(read, eqn.invars))
        outputs = tuple(values[var] for var in eqn.outvars)
        made.append(Equation(eqn.primitive.name, inputs, outputs, dict(eqn.params), eqn))
    return made
