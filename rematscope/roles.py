"""Which equations of a backward program are recomputed, which are late, and which are the backward pass proper.

Value numbering: two values with the same number are equal on every input. A number stands for a primitive, its
parameters and its operands' numbers, so the forward program's numbers tell whether a value of the backward program was
computed before. Names, barriers and roundings to a value's own precision are transparent.

Inside a loop a number says "this value, as a function of the loop's index". An index is known by how deep its loop is
nested and by its length, so the bodies of two loops can be compared, and a slice of a stack is what was stacked.
"""

from collections.abc import Hashable
from typing import Any

import numpy as np

from rematscope import _jax
from rematscope.program import Equation, Literal, Program, Value

RECOMPUTED, LATE, BACKWARD = "R", "L", "B"


def assign_roles(forward: Program, backward: Program, cotangents: tuple[Value, ...]) -> dict[Value, Value]:
    """Sets the role of every equation of `backward`.

    * `R`, recomputed: does not depend on the incoming cotangents, and the forward pass computed the same value.
    * `L`, late: does not depend on the cotangents, but is computed here first.
    * `B`, backward: the rest.

    A loop has the role that its operations share; `B` if they differ.

    Returns:
      For each value of a recomputed equation, the value of the forward program that it equals.
    """
    numbering = _Numbering()
    numbering.program(forward)
    computed = {numbering.number(v): v for v in forward.inputs}
    named: dict[int, Value] = {}
    for equation in _everything(forward):
        for value in equation.outputs:
            (named if equation.primitive == "name" else computed).setdefault(numbering.number(value), value)
    numbering.program(backward)

    tainted = set(cotangents)
    _taint(backward, tainted)
    twins: dict[Value, Value] = {}

    def assign(program: Program) -> None:
        for equation in program.equations:
            for body in equation.bodies:
                assign(body)
            known = [computed.get(numbering.number(v)) for v in equation.outputs]
            if equation.primitive == "name":
                known = [
                    named.get(numbering.number(v)) or twin for v, twin in zip(equation.outputs, known, strict=True)
                ]
            if equation.bodies:
                inner = {e.role for body in equation.bodies for e in body.equations}
                equation.role = inner.pop() if len(inner) == 1 else BACKWARD
            elif equation.primitive == "optimization_barrier" or not tainted.isdisjoint(equation.outputs):
                equation.role = BACKWARD
            else:
                equation.role = RECOMPUTED if known and all(known) else LATE
            twins.update((v, twin) for v, twin in zip(equation.outputs, known, strict=True) if twin is not None)

    assign(backward)
    return {v: twin for v, twin in twins.items() if v is not twin}


def _everything(program: Program):
    for equation in program.equations:
        yield equation
        for body in equation.bodies:
            yield from _everything(body)


def _taint(program: Program, tainted: set[Value]) -> None:
    """Adds to `tainted` what depends on it; a loop's carries go to a fixpoint.

    A barrier returns its operands under their own names, so its result i depends on operand i only.
    """
    for equation in program.equations:
        if equation.primitive == "optimization_barrier":
            continue
        if not equation.bodies:
            if not tainted.isdisjoint(equation.inputs):
                tainted.update(equation.outputs)
            continue
        if equation.primitive == "cond":
            for body in equation.bodies:
                _taint(body, tainted)
            through = [equation.inputs[0] in tainted] * len(equation.outputs)
            for body in equation.bodies:
                through = [t or v in tainted for t, v in zip(through, body.outputs, strict=True)]
        else:
            through = _taint_loop(equation, tainted)
        tainted.update(v for v, t in zip(equation.outputs, through, strict=True) if t)


def _taint_loop(equation: Equation, tainted: set[Value]) -> list[bool]:
    *condition, body = equation.bodies
    carries = equation.carries
    for array, part in zip(equation.stacked_inputs, body.inputs[carries:], strict=True):
        if array in tainted:
            tainted.add(part)
    carried = [v in tainted for v in equation.initial]
    while True:
        for program in equation.bodies:
            tainted.update(v for v, t in zip(program.inputs[:carries], carried, strict=True) if t)
            _taint(program, tainted)
        if any(program.outputs[0] in tainted for program in condition):
            return [True] * len(equation.outputs)
        grown = [t or v in tainted for t, v in zip(carried, body.outputs[:carries], strict=True)]
        if grown == carried:
            return carried + [v in tainted for v in body.outputs[carries:]]
        carried = grown


class _Numbering:
    def __init__(self):
        self.of_value: dict[Value, int] = {}
        self._keys: dict[Hashable, int] = {}
        self._stacked: dict[int, tuple[Hashable, int]] = {}
        self._params: dict[Equation, Hashable] = {}

    def number(self, value: Value) -> int:
        if isinstance(value, Literal):
            return self._intern("literal", np.asarray(value.value).tobytes(), str(value.dtype), value.shape)
        if value not in self.of_value:
            self.of_value[value] = self._intern("given", value)
        return self.of_value[value]

    def _intern(self, *key: Hashable) -> int:
        return self._keys.setdefault(key, len(self._keys))

    def program(self, program: Program, depth: int = 0) -> None:
        """Numbers what `program` computes; `depth` counts the loops around it."""
        for equation in program.equations:
            if equation.primitive != "optimization_barrier":
                self.of_value.update(zip(equation.outputs, self._outputs(equation, depth), strict=True))

    def _outputs(self, equation: Equation, depth: int) -> list[int]:
        match equation.primitive:
            case "name":
                return [self.number(equation.inputs[0])]
            case "scan":
                return self._scan(equation, depth)
            case "while":
                return self._while(equation, depth)
            case "cond":
                return self._cond(equation, depth)
        if equation.eqn.effects:  # a print or a callback is never "the same value again"
            return [self._intern("effect", equation, i) for i in range(len(equation.outputs))]
        if equation not in self._params:
            self._params[equation] = _frozen(equation.params)
        operands = tuple(map(self.number, equation.inputs))
        key = (equation.primitive, self._params[equation], operands)
        return [self._intern(*key, i) for i in range(len(equation.outputs))]

    def _cond(self, equation: Equation, depth: int) -> list[int]:
        for body in equation.bodies:
            self.program(body, depth)
        which = self.number(equation.inputs[0])
        branches = [map(self.number, body.outputs) for body in equation.bodies]
        return [self._intern("cond", which, out) for out in zip(*branches, strict=True)]

    def _scan(self, equation: Equation, depth: int) -> list[int]:
        (body,) = equation.bodies
        carries = equation.carries
        index = (depth, equation.length)
        for array, part in zip(equation.stacked_inputs, body.inputs[carries:], strict=True):
            number = self.number(array)
            whole, inner = self._stacked.get(number, (None, None))
            self.of_value[part] = inner if whole == index else self._intern("slice", index, number)
        carried = self._carried(equation, ("scan", index, equation.params["reverse"]), depth)
        outs = list(map(self.number, body.outputs))
        stacks = [self._intern("stack", index, out) for out in outs[carries:]]
        self._stacked.update((stack, (index, out)) for stack, out in zip(stacks, outs[carries:], strict=True))
        return [self._intern("last", *pair) for pair in zip(carried, outs[:carries], strict=True)] + stacks

    def _while(self, equation: Equation, depth: int) -> list[int]:
        condition, body = equation.bodies
        carried = self._carried(equation, ("while", depth), depth)
        tested = self.number(condition.outputs[0])
        outs = map(self.number, body.outputs)
        return [self._intern("last", tested, *pair) for pair in zip(carried, outs, strict=True)]

    def _carried(self, equation: Equation, loop: Hashable, depth: int) -> list[int]:
        """Numbers a loop's bodies. A carry is known by its start and by what one iteration makes of it.

        The first round assumes that carries with one start are one; the second tells them apart by what the first made
        of them. More than two carries that start equal and only trade places would need further rounds.
        """
        carries = equation.carries
        body = equation.bodies[-1]
        numbers = [self._intern("carry", loop, self.number(v)) for v in equation.initial]
        for last in (False, True):
            for program in equation.bodies:
                self.of_value.update(zip(program.inputs[:carries], numbers, strict=True))
                self.program(program, depth + 1)
            if not last:
                outs = map(self.number, body.outputs[:carries])
                numbers = [self._intern("carry", start, out) for start, out in zip(numbers, outs, strict=True)]
        return numbers


def _frozen(params: Any) -> Hashable:
    """A hashable stand-in for an equation's parameters; jaxprs stand for what they compute."""
    if isinstance(params, dict):
        return tuple((key, _frozen(params[key])) for key in sorted(params))
    if isinstance(params, (tuple, list)):
        return tuple(map(_frozen, params))
    if hasattr(params, "eqns"):
        jaxpr, _, _ = _jax.body_of(params)
        names = {v: i for i, v in enumerate([*jaxpr.constvars, *jaxpr.invars])}
        lines = []
        for eqn in jaxpr.eqns:
            read = tuple(str(a) if _jax.is_literal(a) else names[a] for a in eqn.invars)
            names.update((v, len(names) + i) for i, v in enumerate(eqn.outvars))
            lines.append((eqn.primitive.name, _frozen(eqn.params), read))
        return tuple(lines), tuple(str(a) if _jax.is_literal(a) else names[a] for a in jaxpr.outvars)
    try:
        hash(params)
    except TypeError:
        return id(params)
    return params
