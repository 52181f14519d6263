"""Optimistic value numbering: two values with the same number are equal on every input.

Numbers come from a hash table of expressions: the key of an equation's result consists of the primitive, the parameters
and the numbers of the operands. This does not work for a loop's carry, which depends on itself. Carries are numbered
optimistically, as in Alpern, Wegman and Zadeck, "Detecting equality of variables in programs" (POPL 1988): carries are
assumed to be equal, and an iteration shows whether they stay equal; see `rematscope.ir.loop_carries`. In the same pass,
the numbering inside a branch uses that this branch was taken, in the spirit of Click and Cooper, "Combining analyses,
combining optimizations" (TOPLAS 1995).

Inside a loop, a number identifies a value as a function of the loop's index. An index is identified by the length of
its loop and the number of enclosing loops of that length. Inside a `shard_map`, a number identifies a value as a
function of the device.
"""

from collections.abc import Hashable, Mapping, Set

from rematscope.ir.inline import ForwardRule
from rematscope.ir.loop_carries import Carry, CarrySearch, Group, groups_of
from rematscope.ir.number_table import NumberTable
from rematscope.ir.program import RENAMES, Equation, Program, Value
from rematscope.ir.specs import axes_by_dimension

# A loop is tried under many suppositions, and under each of them so are the loops in it: the work is multiplied with
# every level of nesting. It is counted in equations numbered, so that it ends at the same point on every machine. An
# outermost loop may take so many for each of its equations; an implicit solver of differential equations, with loops
# four levels deep, takes about 60. What a loop does not take is left to those after it, and a function has some to
# start with: small loops are tried under as many suppositions as large ones.
STEPS_PER_EQUATION = 256
STEPS_AT_FIRST = 20_000

# The lengths of the loops around, outermost first; None for a while_loop.
_Around = tuple[int | None, ...]


class ValueNumbering:
    """Numbers programs that share values: first the forward program, then the backward program.

    Attributes:
      undecided: loops whose carries were not all compared with those of other loops, because this took too many steps.
        Their carries have unique numbers. So equal values may have different numbers, but different values never share
        a number.
    """

    def __init__(self, unknown: Set[Value], rules: Mapping[Value, ForwardRule] | None = None):
        """Start with no numbers.

        Args:
          unknown: values that depend on the cotangent. A loop's carry among them gets a unique number.
          rules: the forward rules of functions that the forward program calls undifferentiated, by their outputs.
        """
        self.unproven_equalities: set[Equation] = set()
        self._unknown = unknown
        self._rules = rules or {}
        self._table = NumberTable()
        # Maps a stack to the index of its loop and the number of the value that an iteration stacks; maps a result of a
        # shard_map to its mesh and sharding, and the number of a device's shard.
        self._stacked: dict[int, tuple[Hashable, int]] = {}
        # Maps the key of a loop to the carries of each loop with this key.
        self._known: dict[Hashable, list[list[Carry]]] = {}
        # Kept because the bodies of nested loops are numbered many times.
        self._groups: dict[Equation, list[Group]] = {}
        self._mesh: Hashable = None  # that of the shard_map around
        self._suppositions = 0  # how many loops around are being tried
        self._steps_left = STEPS_AT_FIRST

    def number(self, value: Value) -> int:
        """Return the number of a value; a unique number if no numbered equation computes the value."""
        return self._table.number(value)

    def unboxes(self, equation: Equation) -> bool:
        """Return whether an equation takes a scalar out of an array of one element that a `shard_map` returned."""
        return equation.primitive == "squeeze" and self._table.is_boxed(self.number(equation.inputs[0]))

    def program(self, program: Program, around: _Around = ()) -> None:
        """Number the values of `program`; `around` contains the lengths of the enclosing loops."""
        self._steps_left -= len(program.equations)
        for equation in program.equations:
            if equation.primitive != "optimization_barrier":
                self._table.assign(equation.outputs, self._number_outputs(equation, around))
                for rule in {id(rule): rule for v in equation.outputs if (rule := self._rules.get(v))}.values():
                    self._equate_rule(rule, around)

    def _number_outputs(self, equation: Equation, around: _Around) -> list[int]:
        match equation.primitive:
            case primitive if primitive in RENAMES or primitive == "device_put":
                return self._numbers_of(equation.inputs)
            case "scan":
                return self._number_scan(equation, around)
            case "shard_map":
                return self._shard_map(equation, around)
            case "while":
                return self._number_while(equation, around)
            case "cond":
                return self._number_cond(equation, around)
            case "axis_index":  # it reads nothing that would tell an axis from one of another mesh by the same name
                return [self._table.intern("axis_index", self._mesh, equation.params["axis_name"])]
        return self._table.results(equation)

    def _equate_rule(self, rule: ForwardRule, around: _Around) -> None:
        """Give the results of a forward rule the numbers of the function's outputs: `custom_vjp` requires equality.

        With remat3, the recompute runs the rule, but the forward pass runs the function.
        """
        self.program(rule.program, around)
        for output, result in rule.outputs:
            if self._table.is_numbered(result):
                self._table.equate(self.number(output), self.number(result))

    def _numbers_of(self, values: tuple[Value, ...]) -> list[int]:
        return [self.number(v) for v in values]

    def _number_cond(self, equation: Equation, around: _Around) -> list[int]:
        which = self.number(equation.inputs[0])
        results = []
        for taken, body in enumerate(equation.bodies):
            with self._table.taking(which, taken):
                self.program(body, around)
                results.append(self._numbers_of(body.outputs))
        return [self._table.choice(which, branches) for branches in zip(*results, strict=True)]

    def _number_scan(self, equation: Equation, around: _Around) -> list[int]:
        (body,) = equation.bodies
        carries = equation.carries
        index = (around.count(equation.length), equation.length)
        for array, part in zip(equation.stacked_inputs, body.inputs[carries:], strict=True):
            number = self.number(array)
            whole, inner = self._stacked.get(number, (None, -1))
            self._table.assign([part], [inner if whole == index else self._table.intern("slice", index, number)])
        loop = ("scan", index, equation.reverse)
        carried = self._number_carries(equation, loop, (*around, equation.length))
        outs = self._numbers_of(body.outputs)
        stacks = [self._table.intern("stack", index, out) for out in outs[carries:]]
        self._stacked.update((stack, (index, out)) for stack, out in zip(stacks, outs[carries:], strict=True))
        return [self._table.intern("last", *pair) for pair in zip(carried, outs[:carries], strict=True)] + stacks

    def _shard_map(self, equation: Equation, around: _Around) -> list[int]:
        """Number a `shard_map`.

        If an operand was assembled from shards in the same way as it is split here, its shard is the original value.
        """
        (body,) = equation.bodies
        mesh, specs_in, specs_out = (equation.params[key] for key in ("mesh", "in_specs", "out_specs"))
        for spec, array, part in zip(specs_in, equation.inputs, body.inputs, strict=True):
            how, number = (mesh, *axes_by_dimension(spec)), self.number(array)
            whole, inner = self._stacked.get(number, (None, -1))
            self._table.assign([part], [inner if whole == how else self._table.intern("part", how, number)])
        outer, self._mesh = self._mesh, mesh
        self.program(body, around)
        self._mesh = outer
        results = []
        for spec, out in zip(specs_out, self._numbers_of(body.outputs), strict=True):
            how = (mesh, *axes_by_dimension(spec))
            results.append(self._table.intern("whole", how, out))
            self._stacked[results[-1]] = how, out
        return results

    def _number_while(self, equation: Equation, around: _Around) -> list[int]:
        condition, body = equation.bodies
        carried = self._number_carries(equation, ("while", len(around)), (*around, None))
        tested = self.number(condition.outputs[0])
        outs = self._numbers_of(body.outputs)
        return [self._table.intern("last", tested, *pair) for pair in zip(carried, outs, strict=True)]

    def _number_carries(self, equation: Equation, loop: Hashable, inside: _Around) -> list[int]:
        """Number a loop's bodies, and return the numbers of its carries at the start of an iteration.

        Args:
          equation: the loop.
          loop: a key that is equal for loops that can be compared with this loop.
          inside: the lengths of the loops around its body, including this loop.
        """
        if len(inside) == 1:
            self._steps_left = max(0, self._steps_left) + STEPS_PER_EQUATION * len([*equation.nested()])
        body, carries = equation.bodies[-1], equation.carries
        own = body.inputs[:carries]
        decidable = [i for i, v in enumerate(own) if v not in self._unknown]
        if equation not in self._groups:
            self._groups[equation] = groups_of(body, decidable)

        def iterate(numbers: list[int]) -> list[int]:
            for program in equation.bodies:
                self._table.assign(program.inputs[:carries], numbers)
                self.program(program, inside)
            return self._numbers_of(body.outputs[:carries])

        def suppose(numbers: list[int]) -> list[int] | None:
            if self._steps_left <= 0:
                return None
            self._suppositions += 1
            results = iterate(numbers)
            self._suppositions -= 1
            return results

        search = CarrySearch(
            starts=self._numbers_of(equation.initial),
            numbers=[self._table.intern("given", v) for v in own],
            groups=self._groups[equation],
            suppose=suppose,
        )
        search.compare(self._known.get(loop, ()))
        search.define(lambda *key: self._table.intern("carry", loop, *key))

        results = iterate(search.numbers)
        # Numbers that depend on an unconfirmed assumption are not valid, so only the last round is recorded.
        if not self._suppositions:
            if search.pending:
                self.unproven_equalities.add(equation)
            made = [Carry(search.starts[i], search.numbers[i], results[i]) for i in decidable]
            if made and made not in self._known.setdefault(loop, []):
                self._known[loop].append(made)
        return search.numbers
