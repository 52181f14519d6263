"""A jaxpr as one list of operations, with the bodies of its jits, and of `jnp.searchsorted`, in place of the calls."""

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

from rematscope import jax_compat
from rematscope.ir.source import UNKNOWN_LINES, lines_of

LOSS_MARK = "rematscope.loss"  # the start of the names that mark the values of losses; see `traced_step`


class Variable:
    """A variable of a flat program. Each call of a jitted function has variables of its own."""

    __slots__ = ("aval",)

    def __init__(self, aval: Any):
        self.aval = aval


@dataclasses.dataclass(frozen=True, eq=False)
class Operation:
    """An equation with variables of the flat program.

    Attributes:
      eqn: the equation.
      invars, outvars: its operands and results.
      calls: the equations whose bodies contain it, innermost first.
    """

    eqn: Any
    invars: Sequence[Any]
    outvars: Sequence[Any]
    calls: tuple[Any, ...] = dataclasses.field(default=(), kw_only=True)

    @functools.cached_property
    def name(self) -> str:
        """The name of the primitive; see `rematscope.jax_compat.primitive_name`."""
        return jax_compat.primitive_name(self.eqn)

    @functools.cached_property
    def value_name(self) -> str:
        """The name that `checkpoint_name` gives the value; "" for other operations."""
        return jax_compat.checkpoint_name(self.eqn) or ""

    @property
    def is_loss_mark(self) -> bool:
        """Whether it marks a value of a loss; see `rematscope.reporting.traced_step`."""
        return self.value_name.startswith(LOSS_MARK)

    @property
    def lines(self) -> str:
        """The source lines of the equation, or of the innermost call whose lines are known.

        JAX traces a jitted function once for all its calls, so its equations may not name the lines of a call.
        """
        found = (lines_of([eqn.source_info]) for eqn in (self.eqn, *self.calls))
        return next((lines for lines in found if lines != UNKNOWN_LINES), UNKNOWN_LINES)


class FlatProgram(NamedTuple):
    """A jaxpr without calls.

    Attributes:
      inputs: its inputs.
      constants: the values that it closes over, by variable.
      operations: its operations in their order.
      outputs: variables, and literals.
      recomputed: the variables inside of opened checkpoints without a policy, but for the results of these checkpoints.
    """

    inputs: Sequence[Variable]
    constants: dict[Variable, Any]
    operations: Sequence[Operation]
    outputs: Sequence[Any]
    recomputed: Collection[Any] = ()

    def environment(self, operands: Sequence[Any]) -> dict[Variable, Any]:
        """Return the values of the constants and of the inputs, for which `operands` are given."""
        return {**self.constants, **dict(zip(self.inputs, operands, strict=True))}

    def results(self, env: dict[Variable, Any]) -> list[Any]:
        """Return the values of the outputs in an environment."""
        return [value_of(v, env) for v in self.outputs]

    @property
    def variables(self) -> list[Variable]:
        """All variables, in the order of the program."""
        return [*self.inputs, *self.constants, *(v for op in self.operations for v in op.outvars)]


def flat_program(jaxpr: Any, opened: Collection[Any] = ()) -> FlatProgram:
    """Return the flat program of a jaxpr.

    Args:
      jaxpr: an open or closed jaxpr.
      opened: further equations whose bodies take their place, or the names of primitives, such as `"checkpoint"`.
    """
    operations: list[Operation] = []
    constants: dict[Variable, Any] = {}
    recomputed = set[Variable]()

    def add(jaxpr: Any, operands: Sequence[Any], calls: tuple[Any, ...] = ()) -> list[Any]:
        body, constvars, consts = jax_compat.body_of(jaxpr)
        names = dict(zip(body.invars, operands, strict=True))
        for variable, value in zip(constvars, consts, strict=True):
            names[variable] = Variable(variable.aval)
            constants[names[variable]] = value

        def named(atom: Any) -> Any:
            return atom if jax_compat.is_literal(atom) else names[atom]

        for eqn in body.eqns:
            given = [named(v) for v in eqn.invars]
            if is_opened(eqn, opened):
                start = len(operations)
                results = add(jax_compat.bodies(eqn)[0], given, (eqn, *calls))
                if jax_compat.is_checkpoint(eqn) and eqn.params.get("policy", "unknown") is None:
                    inside = {v for op in operations[start:] for v in op.outvars}
                    recomputed.update(inside.difference(variables_of(results)))
            else:
                results = [Variable(v.aval) for v in eqn.outvars]
                operations.append(Operation(eqn, given, results, calls=calls))
            names.update(zip(eqn.outvars, results, strict=True))
        return [named(v) for v in body.outvars]

    inputs = [Variable(v.aval) for v in jax_compat.body_of(jaxpr)[0].invars]
    outputs = add(jaxpr, inputs)
    return FlatProgram(inputs, constants, operations, outputs, recomputed)


def is_opened(eqn: Any, opened: Collection[Any] = ()) -> bool:
    """Return whether the body of an equation takes its place in a flat program; `opened` as for `flat_program`."""
    is_call = eqn.primitive.name in jax_compat.JITS or jax_compat.is_call_without_gradient(eqn)
    return is_call or jax_compat.primitive_name(eqn) in opened or eqn in opened


def operation_count(eqn: Any, opened: Collection[Any] = ()) -> int:
    """Return the number of operations that an equation becomes in a flat program; `opened` as for `flat_program`."""
    if not is_opened(eqn, opened):
        return 1
    return sum(operation_count(each, opened) for each in jax_compat.body_of(jax_compat.bodies(eqn)[0])[0].eqns)


def evaluate(
    operations: Iterable[Operation],
    env: dict[Variable, Any],
    run: Callable[[Operation, list[Any]], Sequence[Any]] = lambda op, given: jax_compat.run(op.eqn, given),
) -> None:
    """Run operations on the values of an environment, and add their results to it. Marks of losses do nothing."""
    for op in operations:
        given = [value_of(v, env) for v in op.invars]
        env.update(zip(op.outvars, given if op.is_loss_mark else run(op, given), strict=True))


def value_of(atom: Any, env: dict[Variable, Any]) -> Any:
    """Return the value of a variable or a literal."""
    return env[atom] if isinstance(atom, Variable) else jax_compat.literal_value(atom)


def variables_of(atoms: Iterable[Any]) -> list[Variable]:
    """Return the variables among variables and literals."""
    return [v for v in atoms if isinstance(v, Variable)]


def has_mutable_arrays(program: FlatProgram) -> bool:
    """Return whether operations of a program access mutable arrays (`jax.new_ref`), which their order matters for."""
    return any(jax_compat.is_mutable_array(v.aval) for op in program.operations for v in (*op.invars, *op.outvars))
