"""The data flow of a program, through loops and branches, for the rules about names."""

from collections.abc import Callable, Iterable, Iterator

from rematscope import jax_compat
from rematscope.choices.recompute_graph import Node
from rematscope.ir.dependence import reachable
from rematscope.ir.primitives import VIEWS
from rematscope.ir.program import Equation, Program, Value
from rematscope.linting.linted_function import line_text, source_of
from rematscope.tracing.residuals import copied_values

# Operations whose derivative uses their own result.
OWN_RESULT = frozenset("cbrt cumprod erf_inv exp exp2 logistic rsqrt sqrt tan tanh".split())


# Operations that only move data: their operand and their result may have the same name.
SAME_DATA = VIEWS | frozenset("broadcast_in_dim convert_element_type copy rev transpose".split())


def upstream(nodes: Iterable[Node], enters: Callable[[Node], bool]) -> list[Node]:
    """Return nodes and all nodes that they depend on, except for nodes that `enters` rejects."""
    return reachable(filter(enters, nodes), lambda node: filter(enters, node.reads))


class Values:
    """The origins and the readers of a program's values.

    Attributes:
      equations: all equations of the program and its bodies, without barriers.
    """

    def __init__(self, program: Program):
        self.equations: list[Equation] = []
        self._given = dict.fromkeys(program.inputs, "an argument") | dict.fromkeys(program.constants, "a constant")
        self._maker: dict[Value, Equation] = {}
        self._readers: dict[Value, list[Equation]] = {}
        self._loop: dict[Value, Equation] = {}  # for each input of a loop's body
        self._from: dict[Value, list[Value]] = {}  # the same value outside or inside of a body
        self._to: dict[Value, list[Value]] = {}
        self._returned = set(program.outputs)
        self._visit_program(program)

    def _visit_program(self, program: Program) -> None:
        for equation in program.equations:
            if equation.primitive == "optimization_barrier":
                continue
            self.equations.append(equation)
            self._maker.update(dict.fromkeys(equation.outputs, equation))
            for body in equation.bodies:
                self._visit_program(body)
                self._loop.update(dict.fromkeys(body.inputs, equation))
            if not equation.bodies:
                for value in equation.inputs:
                    self._readers.setdefault(value, []).append(equation)
                continue
            for source, target in copied_values(equation):
                self._from.setdefault(target, []).append(source)
                self._to.setdefault(source, []).append(target)

    def makers(self, value: Value) -> list[Equation]:
        """Return the operations that may compute a value: several if branches or iterations meet."""
        return [self._maker[v] for v in _follow_steps(value, self._from) if v in self._maker and v not in self._from]

    def origin(self, value: Value) -> Equation | None:
        """Return the operation that computed a value, skipping names and moves of data; None for an input.

        A loop may carry a value that it only moves. Its move then reads its own result, so each move is followed once.
        """
        followed: set[Equation] = set()
        pending = self.makers(value)[::-1]
        while pending:
            maker = pending.pop()
            if maker.primitive not in SAME_DATA:
                return maker
            if maker not in followed:
                followed.add(maker)
                pending += self.makers(maker.inputs[0])[::-1]
        return None

    def softmax_input(self, exp: Equation) -> Value | None:
        """Return the value from which its maximum is subtracted before `exp`, or None."""
        difference = self.origin(exp.inputs[0])
        if difference is None or difference.primitive != "sub":
            return None
        value, most = difference.inputs
        maximum = self.origin(most)
        if maximum is not None and maximum.primitive == "max":  # with −∞, as jnp.max does
            maximum = next((e for v in maximum.inputs if (e := self.origin(v)) is not None), None)
        if maximum is None or maximum.primitive != "reduce_max":
            return None
        return value if maximum.inputs[0] is value or self.origin(maximum.inputs[0]) is self.origin(value) else None

    def readers(self, value: Value) -> list[Equation]:
        """Return the operations that read a value, in bodies too, names included."""
        return [reader for v in _follow_steps(value, self._to) for reader in self._readers.get(v, ())]

    def is_returned(self, value: Value) -> bool:
        return not self._returned.isdisjoint(_follow_steps(value, self._to))

    def given(self, named: Equation) -> str | None:
        """Describe the named value if it is an argument, a constant, or an input of the checkpoint; else None."""
        value = named.inputs[0]
        while value in self._maker and self._maker[value].primitive == "name":
            value = self._maker[value].inputs[0]
        if value in self._given:
            return self._given[value]
        checkpoint = next((eqn for eqn in named.calls if jax_compat.is_checkpoint(eqn)), None)
        around = self._maker.get(value) or self._loop.get(value)
        if checkpoint is None or around is None or any(eqn is checkpoint for eqn in around.calls):
            return None
        return f"the input of the checkpoint on {line_text(source_of(checkpoint, ()))}"

    def uses(self, named: list[Equation]) -> list[Equation]:
        """Return the operations that read named values."""
        found = []
        pending = [value for equation in named for value in equation.outputs]
        seen = set()
        while pending:
            for value in _follow_steps(pending.pop(), self._to):
                for reader in self._readers.get(value, ()):
                    if reader.primitive != "name":
                        found.append(reader)
                    elif reader not in seen:
                        seen.add(reader)
                        pending += reader.outputs
        return found

    def unnamed_uses(self, named: list[Equation]) -> list[Equation]:
        """Return the operations that read the values without the names."""
        return [reader for e in named for reader in self._readers.get(e.inputs[0], ()) if reader.primitive != "name"]

    def before(self, equations: list[Equation]) -> Iterator[Equation]:
        """Yield the operations that some operations depend on, the nearest first."""
        seen = set()
        layer = equations
        while layer:
            makers = [maker for e in layer for v in e.inputs for maker in self.makers(v)]
            layer = [maker for maker in dict.fromkeys(makers) if maker not in seen]
            seen.update(layer)
            yield from layer


def _follow_steps(value: Value, step: dict[Value, list[Value]]) -> list[Value]:
    return reachable([value], lambda v: step.get(v, []))
