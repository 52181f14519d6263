"""Value numbering: two values with the same number are equal on every input."""

import itertools
from collections.abc import Hashable
from typing import Any

import numpy as np

from rematscope.ir import jax_internals
from rematscope.ir.dependence import mark_dependence
from rematscope.ir.program import Equation, Literal, Program, Value

_COMMUTES = frozenset({"add", "add_any", "mul", "max", "min", "and", "or", "xor", "eq", "ne"})


class Numbering:
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
        # loop → the carries of each loop like it: the numbers of its start, of itself, and of what an iteration makes
        self._carries: dict[Hashable, list[list[tuple[int, int, int]]]] = {}

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
        tainted = [v in self.tainted for v in body.inputs[:carries]]

        def iterate():
            for program in equation.bodies:
                self.of_value.update(zip(program.inputs[:carries], numbers, strict=True))
                self.program(program, inside)

        if equation not in self._grouped:
            self._grouped[equation] = _groups(body, [i for i in range(carries) if not tainted[i]])
        groups = self._grouped[equation]
        found: dict[int, int] = {}
        for known in self._carries.get(loop, ()):
            if len(found) < carries - sum(tainted):
                found |= self._recognised(known, groups, starts, numbers, found, lambda: (iterate(), body.outputs)[1])

        pending = [(group, needs) for group, needs in groups if not found.keys() >= set(group)]
        while pending:
            waiting = {i for group, _ in pending for i in group}
            ready = [group for group, needs in pending if needs.isdisjoint(waiting - set(group))]
            for group in ready:
                for place, i in enumerate(group):
                    numbers[i] = self._intern("carry", loop, starts[i], place)
            iterate()
            for group in ready:
                system = tuple((starts[i], self.number(body.outputs[i])) for i in group)
                for place, i in enumerate(group):
                    numbers[i] = self._intern("carry", loop, system, place)
            pending = [(group, needs) for group, needs in pending if group not in ready]
        iterate()
        results = list(map(self.number, body.outputs[:carries]))
        made = [
            carry for carry, bad in zip(zip(starts, numbers, results, strict=True), tainted, strict=True) if not bad
        ]
        if made and made not in self._carries.setdefault(loop, []):
            self._carries[loop].append(made)
        return numbers

    def _recognised(self, known, groups, starts, numbers, found, iterate) -> dict[int, int]:
        """Which carries are `known` from another loop, though this one reads some values where they were saved.

        A carry is one seen before if an iteration makes the same of it, supposing that it is: that holds at its start,
        and then after each iteration. Carries that start alike are told apart by trying; `numbers` is set accordingly.
        """
        unknown = list(numbers)

        def holds(guess: dict[int, tuple]) -> bool:
            for i, (_, number, _) in guess.items():
                numbers[i] = number
            outputs = iterate()
            return all(self.number(outputs[i]) == result for i, (_, _, result) in guess.items())

        # Mostly a loop has the same carries in the same order.
        rest = iter(known)
        wanted = sorted(i for group, _ in groups for i in group if i not in found)
        same = {i: match for i in wanted if (match := next((k for k in rest if k[0] == starts[i]), None)) is not None}
        if len(same) == len(wanted) and holds(same):
            return {i: numbers[i] for i in same}
        numbers[:] = unknown

        recognised = {}
        for group, _ in sorted(groups, key=lambda pair: len(pair[1])):  # what a group depends on comes before it
            if found.keys() >= set(group):
                continue
            guesses = itertools.product(*([k for k in known if k[0] == starts[i]] for i in group))
            for guess in itertools.islice(guesses, _GUESSES):
                if holds(dict(zip(group, guess, strict=True))):
                    recognised |= {i: numbers[i] for i in group}
                    break
            else:
                for i in group:
                    numbers[i] = unknown[i]
        return recognised


_GUESSES = 64  # combinations of carries that depend on each other and start alike


def _groups(body: Program, carries: list[int]) -> list[tuple[tuple[int, ...], set[int]]]:
    """Divides carries into groups that depend on each other; with each, all carries that it depends on."""
    marks = {body.inputs[i]: 1 << i for i in carries}
    mark_dependence(body, marks)
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
        jaxpr, _, consts = jax_internals.body_of(params)
        names = {v: i for i, v in enumerate([*jaxpr.constvars, *jaxpr.invars])}

        def read(atom):
            return _literal(atom.val, atom.aval) if jax_internals.is_literal(atom) else names[atom]

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
