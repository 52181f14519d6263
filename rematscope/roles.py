"""Which equations of a backward program are recomputed, which are late, and which are the backward pass proper.

Value numbering: two values with the same number are equal on every input. A number stands for a primitive, its
parameters and its operands' numbers, so the forward program's numbers tell whether a value of the backward program was
computed before. Names, barriers, moves to another memory and roundings to a value's own precision are transparent.

Inside a loop a number says "this value, as a function of the loop's index". An index is known by its loop's length and
by how many loops of that length are around it, so the bodies of two loops can be compared, and a slice of a stack is
what was stacked.
"""

import functools
import operator
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
    marks = dict.fromkeys(cotangents, 1)
    _mark(backward, marks)
    tainted = {value for value, mark in marks.items() if mark}

    numbering = _Numbering(tainted)
    numbering.program(forward)
    computed = {numbering.number(v): v for v in forward.inputs}
    named: dict[int, list[Value]] = {}
    # What a branch computed was computed only if it was taken: it counts for the branches of the backward pass.
    in_branches: dict[int, Value] = {}
    for equation, in_branch in _everything(forward):
        known = in_branches if in_branch else computed
        for value in equation.outputs:
            if equation.primitive == "name":
                named.setdefault(numbering.number(value), []).append(value)
            else:
                known.setdefault(numbering.number(value), value)
    numbering.program(backward)

    twins: dict[Value, Value] = {}

    def assign(program: Program, in_branch: bool = False) -> None:
        for equation in program.equations:
            for body in equation.bodies:
                assign(body, in_branch or equation.primitive == "cond")
            numbers = [numbering.number(v) for v in equation.outputs]
            known = [computed.get(n) or (in_branches.get(n) if in_branch else None) for n in numbers]
            if equation.primitive == "name":
                # Equal values that are named apart are saved apart, and come again in the order in which they came.
                known = [_next(named[n]) if n in named else twin for n, twin in zip(numbers, known, strict=True)]
            if equation.bodies:
                inner = {e.role for body in equation.bodies for e in body.equations}
                equation.role = inner.pop() if len(inner) == 1 else BACKWARD
            elif equation.primitive == "optimization_barrier" or not tainted.isdisjoint(
                equation.outputs or equation.inputs  # a print has no output
            ):
                equation.role = BACKWARD
            elif equation.primitive == "device_put":
                equation.role = LATE  # fetching what the host kept computes nothing again
            else:
                equation.role = RECOMPUTED if known and all(known) else LATE
            twins.update((v, twin) for v, twin in zip(equation.outputs, known, strict=True) if twin is not None)

    assign(backward)
    return {v: twin for v, twin in twins.items() if v is not twin}


def _next(values: list[Value]) -> Value:
    values.append(values.pop(0))
    return values[-1]


def _everything(program: Program, in_branch: bool = False):
    """Every equation, bodies included, and whether it stands in a branch."""
    for equation in program.equations:
        yield equation, in_branch
        for body in equation.bodies:
            yield from _everything(body, in_branch or equation.primitive == "cond")


def _mark(program: Program, marks: dict[Value, int]) -> None:
    """Gives every value the marks, a set of bits, of all that it depends on; a loop's carries go to a fixpoint.

    A barrier returns its operands under their own names, so its result i depends on operand i only.
    """
    for equation in program.equations:
        if equation.primitive == "optimization_barrier":
            continue
        if not equation.bodies:
            outs = [_union(marks, equation.inputs)] * len(equation.outputs)
        elif equation.primitive == "cond":
            for body in equation.bodies:
                _mark(body, marks)
            rows = zip(*(body.outputs for body in equation.bodies), strict=True)
            outs = [_union(marks, [equation.inputs[0], *row]) for row in rows]
        else:
            outs = _mark_loop(equation, marks)
        marks.update(zip(equation.outputs, outs, strict=True))


def _mark_loop(equation: Equation, marks: dict[Value, int]) -> list[int]:
    *condition, body = equation.bodies
    carries = equation.carries
    marks.update(
        (part, marks.get(array, 0)) for array, part in zip(equation.stacked_inputs, body.inputs[carries:], strict=True)
    )
    carried = [marks.get(v, 0) for v in equation.initial]
    while True:
        for program in equation.bodies:
            marks.update(zip(program.inputs[:carries], carried, strict=True))
            _mark(program, marks)
        # How often a while_loop runs decides everything that it returns.
        stop = _union(marks, [program.outputs[0] for program in condition])
        grown = [mark | stop | marks.get(v, 0) for mark, v in zip(carried, body.outputs[:carries], strict=True)]
        if grown == carried:
            return carried + [marks.get(v, 0) for v in body.outputs[carries:]]
        carried = grown


def _union(marks: dict[Value, int], values) -> int:
    return functools.reduce(operator.or_, (marks.get(v, 0) for v in values), 0)


_COMMUTES = frozenset({"add", "add_any", "mul", "max", "min", "and", "or", "xor", "eq", "ne"})


class _Numbering:
    def __init__(self, tainted: set[Value]):
        self.tainted = tainted
        self.of_value: dict[Value, int] = {}
        self._keys: dict[Hashable, int] = {}
        self._stacked: dict[int, tuple[Hashable, int]] = {}
        # Kept because the bodies of nested loops are numbered many times.
        self._params: dict[Equation, Hashable] = {}
        self._grouped: dict[Equation, list] = {}
        # What a branch computed is known in the branch of another `cond` that is taken under the same condition.
        self._branches: dict[int, tuple[int, list[int]]] = {}
        self._taken: dict[int, int] = {}
        # (loop, start of a carry) → the carries seen with them: their number, and that of what an iteration makes of it
        self._carries: dict[Hashable, list[tuple[int, int]]] = {}

    def number(self, value: Value) -> int:
        if isinstance(value, Literal):
            return self._intern("literal", *_literal(value.value, value))
        if value not in self.of_value:
            self.of_value[value] = self._intern("given", value)
        number = self.of_value[value]
        while number in self._branches and self._branches[number][0] in self._taken:
            which, results = self._branches[number]
            number = results[self._taken[which]]
        return number

    def _intern(self, *key: Hashable) -> int:
        return self._keys.setdefault(key, len(self._keys))

    def program(self, program: Program, around: tuple = ()) -> None:
        """Numbers what `program` computes; `around` holds the lengths of the loops around it."""
        for equation in program.equations:
            if equation.primitive != "optimization_barrier":
                self.of_value.update(zip(equation.outputs, self._outputs(equation, around), strict=True))

    def _outputs(self, equation: Equation, around: tuple) -> list[int]:
        match equation.primitive:
            case "name" | "device_put":
                return list(map(self.number, equation.inputs))
            case "scan":
                return self._scan(equation, around)
            case "while":
                return self._while(equation, around)
            case "cond":
                return self._cond(equation, around)
        if equation.eqn.effects:  # a print or a callback is never "the same value again"
            return [self._intern("effect", equation, i) for i in range(len(equation.outputs))]
        if equation not in self._params:
            self._params[equation] = _frozen(equation.params)
        operands = tuple(map(self.number, equation.inputs))
        if equation.primitive in _COMMUTES:
            operands = tuple(sorted(operands))
        key = (equation.primitive, self._params[equation], operands)
        return [self._intern(*key, i) for i in range(len(equation.outputs))]

    def _cond(self, equation: Equation, around: tuple) -> list[int]:
        which = self.number(equation.inputs[0])
        outer = self._taken.get(which)
        results = []
        for taken, body in enumerate(equation.bodies):
            self._taken[which] = taken
            self.program(body, around)
            results.append(list(map(self.number, body.outputs)))
        del self._taken[which]
        if outer is not None:
            self._taken[which] = outer
        numbers = [self._intern("cond", which, out) for out in zip(*results, strict=True)]
        self._branches.update(zip(numbers, ((which, out) for out in zip(*results, strict=True)), strict=True))
        return numbers

    def _scan(self, equation: Equation, around: tuple) -> list[int]:
        (body,) = equation.bodies
        carries = equation.carries
        index = (around.count(equation.length), equation.length)
        for array, part in zip(equation.stacked_inputs, body.inputs[carries:], strict=True):
            number = self.number(array)
            whole, inner = self._stacked.get(number, (None, None))
            self.of_value[part] = inner if whole == index else self._intern("slice", index, number)
        carried = self._carried(equation, ("scan", index, equation.params["reverse"]), (*around, equation.length))
        outs = list(map(self.number, body.outputs))
        stacks = [self._intern("stack", index, out) for out in outs[carries:]]
        self._stacked.update((stack, (index, out)) for stack, out in zip(stacks, outs[carries:], strict=True))
        return [self._intern("last", *pair) for pair in zip(carried, outs[:carries], strict=True)] + stacks

    def _while(self, equation: Equation, around: tuple) -> list[int]:
        condition, body = equation.bodies
        carried = self._carried(equation, ("while", len(around)), (*around, None))
        tested = self.number(condition.outputs[0])
        outs = map(self.number, body.outputs)
        return [self._intern("last", tested, *pair) for pair in zip(carried, outs, strict=True)]

    def _carried(self, equation: Equation, loop: Hashable, inside: tuple) -> list[int]:
        """Numbers a loop's bodies. A carry is known by its start and by what one iteration makes of it.

        Carries that depend on each other are known together, by all their starts and what an iteration makes of all
        of them; a group is numbered when what it depends on is. A carry that depends on the cotangent is like no other.
        """
        carries = equation.carries
        body = equation.bodies[-1]
        starts = list(map(self.number, equation.initial))
        numbers = [self._intern("given", v) for v in body.inputs[:carries]]

        def iterate():
            for program in equation.bodies:
                self.of_value.update(zip(program.inputs[:carries], numbers, strict=True))
                self.program(program, inside)

        tainted = [v in self.tainted for v in body.inputs[:carries]]
        # A carry is one seen before if an iteration makes the same of it, supposing that it is: that holds at its
        # start, and then after each iteration. So a loop is known that reads some of its values where they were saved.
        seen = [list(self._carries.get((loop, start), ())) for start in starts]
        seen = [[] if bad else known for bad, known in zip(tainted, seen, strict=True)]
        while any(seen):
            numbers = [known[0][0] if known else number for known, number in zip(seen, numbers, strict=True)]
            iterate()
            wrong = [i for i, known in enumerate(seen) if known and self.number(body.outputs[i]) != known[0][1]]
            if not wrong:
                break
            for i in wrong:
                numbers[i] = self._intern("given", body.inputs[i])
                del seen[i][0]

        if equation not in self._grouped:
            self._grouped[equation] = _groups(body, [i for i in range(carries) if not tainted[i]])
        matched = {i for i in range(carries) if seen[i]}
        pending = [(group, needs) for group, needs in self._grouped[equation] if not matched.issuperset(group)]
        while pending:
            waiting = {i for group, _ in pending for i in group} - matched
            ready = [group for group, needs in pending if needs.isdisjoint(waiting - set(group))]
            ready = [tuple(i for i in group if i not in matched) for group in ready]
            for group in ready:
                for place, i in enumerate(group):
                    numbers[i] = self._intern("carry", loop, starts[i], place)
            iterate()
            for group in ready:
                system = tuple((starts[i], self.number(body.outputs[i])) for i in group)
                for place, i in enumerate(group):
                    numbers[i] = self._intern("carry", loop, system, place)
            done = {i for group in ready for i in group} | matched
            pending = [(group, needs) for group, needs in pending if not done.issuperset(group)]
        iterate()
        for i in range(carries):
            pair = numbers[i], self.number(body.outputs[i])
            known = self._carries.setdefault((loop, starts[i]), [])
            if not tainted[i] and pair not in known:
                known.append(pair)
        return numbers


def _groups(body: Program, carries: list[int]) -> list[tuple[tuple[int, ...], set[int]]]:
    """Divides carries into groups that depend on each other; with each, all carries that it depends on."""
    marks = {body.inputs[i]: 1 << i for i in carries}
    _mark(body, marks)
    reach = {i: {j for j in carries if marks.get(body.outputs[i], 0) >> j & 1} for i in carries}
    for j in carries:
        for i in carries:
            if j in reach[i]:
                reach[i] |= reach[j]
    groups = {tuple(j for j in carries if j == i or (j in reach[i] and i in reach[j])): reach[i] for i in carries}
    return list(groups.items())


def _frozen(params: Any) -> Hashable:
    """A hashable stand-in for an equation's parameters; jaxprs stand for what they compute."""
    if isinstance(params, dict):
        return tuple((key, _frozen(params[key])) for key in sorted(params))
    if isinstance(params, (tuple, list)):
        return tuple(map(_frozen, params))
    if hasattr(params, "eqns"):
        jaxpr, _, consts = _jax.body_of(params)
        names = {v: i for i, v in enumerate([*jaxpr.constvars, *jaxpr.invars])}

        def read(atom):
            return _literal(atom.val, atom.aval) if _jax.is_literal(atom) else names[atom]

        lines = [tuple(map(id, consts))]
        for eqn in jaxpr.eqns:
            lines.append((eqn.primitive.name, _frozen(eqn.params), *map(read, eqn.invars)))
            names.update((v, len(names) + i) for i, v in enumerate(eqn.outvars))
        return tuple(lines), tuple(map(read, jaxpr.outvars))
    try:
        hash(params)
    except TypeError:
        return id(params)
    return params


def _literal(array, aval) -> tuple[Hashable, ...]:
    return np.asarray(array).tobytes(), str(aval.dtype), tuple(aval.shape)
