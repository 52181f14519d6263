"""Compute statistics of the data for the whole batch, and pass them to the loss of each part of the batch.

The loss `sum(errors * mask) / sum(mask)` is not the mean of the losses of the parts, which divide by their own sums.
But it is the sum of their shares of it: the parts' sums of errors, divided by the sum of the mask of the whole batch.
This sum depends on the data only, so the gradient stays the same if it is an argument of the step. Each value that the
loss computes from data only can become such an argument. A loss that is a sum over the parts is multiplied by their
number, so that it is a mean.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from jax.ad_checkpoint import checkpoint_name
from jax.extend import source_info_util

from rematscope import jax_compat
from rematscope.errors import PlanError
from rematscope.ir.specs import explicit_sharding
from rematscope.jax_compat.vjp_hook import transform_losses
from rematscope.reporting.flat_program import (
    FlatProgram,
    Operation,
    Variable,
    evaluate,
    flat_program,
    is_opened,
    operation_count,
    value_of,
    variables_of,
)
from rematscope.reporting.flat_step import FlatStep
from rematscope.reporting.gradient_loops import mark_of, operations_before
from rematscope.scheduling.blocks import run_checkpoint
from rematscope.tracing.arguments import shape_struct
from rematscope.tracing.checkpoints import CalledOnce, replace_calls

Place = tuple[int, int]  # an operation of a loss and its operand; the outputs follow the last operation
_NAME = "rematscope.whole"
_OPENED = jax_compat.CHECKPOINTS


class NoWholeValues(Exception):
    """A value that a loss needs for the whole batch cannot be computed before the loops."""


@dataclasses.dataclass
class LossChanges:
    """The values of a loss that are computed for the whole batch, and the factors of its sums.

    Attributes:
      names: the operations of the loss, with its checkpoints opened.
      reads: the number of the value that a place reads.
      firsts: the first place that reads each value.
      axes: the batch axis of each value; None for one without.
      factors: the factors of operands that are sums over the parts of the batch, for a part.
    """

    names: Sequence[str]
    reads: dict[Place, int] = dataclasses.field(default_factory=dict)
    firsts: list[Place] = dataclasses.field(default_factory=list)
    axes: list[int | None] = dataclasses.field(default_factory=list)
    factors: dict[Place, Fraction] = dataclasses.field(default_factory=dict)
    _numbers: dict[Variable, int] = dataclasses.field(default_factory=dict)

    def read(self, place: Place, variable: Variable, axis: int | None) -> None:
        """Let a place read the value of a variable for the whole batch."""
        if variable not in self._numbers:
            self._numbers[variable] = len(self.firsts)
            self.firsts.append(place)
            self.axes.append(axis)
        self.reads[place] = self._numbers[variable]

    def program_of(self, loss: Any, function: str) -> FlatProgram:
        """Return the operations of the jaxpr of the loss.

        Raises:
          PlanError: if they are not the operations that the changes are for.
        """
        program = flat_program(loss, _OPENED)
        if [op.name for op in program.operations] != [*self.names]:
            raise PlanError(f"Two traces of a loss of {function} differ.")
        return program


class _ChangedLoss:
    """A loss with values of the whole batch in place of its own."""

    def __init__(self, changes: LossChanges, program: FlatProgram, values: Sequence[Any], is_part: bool):
        self._changes, self._values, self._is_part = changes, values, is_part
        self._changed = {place for place, _ in (*changes.reads, *changes.factors)}
        self._needed = set[int]()
        last = len(program.operations)
        read = {*variables_of(v for i, v in enumerate(program.outputs) if (last, i) not in changes.reads)}
        for place, op in [*enumerate(program.operations)][::-1]:
            if op.eqn.effects or not read.isdisjoint(op.outvars):
                self._needed.add(place)
                read.update(variables_of(v for i, v in enumerate(op.invars) if (place, i) not in changes.reads))

    def run(self, jaxpr: Any, operands: Sequence[Any]) -> list[Any]:
        """Return the results of the loss."""
        return self._operands_at(len(self._changes.names), self._run_body(jaxpr, operands, 0))

    def _run_body(self, jaxpr: Any, operands: Sequence[Any], place: int) -> list[Any]:
        """Return the results of a jaxpr whose operations start at a place; None for those that are not needed."""
        body, constvars, consts = jax_compat.body_of(jaxpr)
        env: dict[Any, Any] = dict(zip((*constvars, *body.invars), (*consts, *operands), strict=True))

        def value(atom: Any) -> Any:
            return jax_compat.literal_value(atom) if jax_compat.is_literal(atom) else env.get(atom)

        for eqn in body.eqns:
            given = [value(v) for v in eqn.invars]
            stack = source_info_util.current_name_stack() + eqn.source_info.name_stack
            with source_info_util.user_context(eqn.source_info.traceback, name_stack=stack):
                results = self._run_operation(eqn, given, place)
            env.update(zip(eqn.outvars, results, strict=True))
            place += operation_count(eqn, _OPENED)
        return [value(v) for v in body.outvars]

    def _run_operation(self, eqn: Any, given: list[Any], place: int) -> Sequence[Any]:
        places = set(range(place, place + operation_count(eqn, _OPENED)))
        if not is_opened(eqn, _OPENED):
            if place not in self._needed:
                return [None] * len(eqn.outvars)
            return jax_compat.run(eqn, self._operands_at(place, given))
        (body,) = jax_compat.bodies(eqn)

        def inside(*operands: Any) -> list[Any]:
            return self._run_body(body, operands, place)

        if self._needed.isdisjoint(places):
            return inside(*given)
        if self._changed.isdisjoint(places) and all(v is not None for v in given):
            return jax_compat.run(eqn, given)
        if not jax_compat.is_checkpoint(eqn):
            return inside(*given)
        return run_checkpoint(eqn, given, inside)

    def _operands_at(self, place: int, operands: Sequence[Any]) -> list[Any]:
        """Return the operands of an operation, or the outputs, with their changes."""
        found = [*operands]
        for i in range(len(found)):
            if (place, i) in self._changes.reads:
                found[i] = self._values[self._changes.reads[place, i]]
            elif (place, i) in self._changes.factors:  # the proof compares the factors of the whole batch and of a part
                found[i] = found[i] * (float(self._changes.factors[place, i]) if self._is_part else 1.0)
        return found


class WholeValues:
    """A step whose losses read values that are computed for the whole batch.

    Args:
      step: the step.
      losses: the changes of the losses, by the numbers of their traces for the whole batch and for a part.

    Attributes:
      changed: the step as a function of these values and its leaves, for the types of the values.

    Raises:
      NoWholeValues: if a value depends on a gradient of the step, or if it is not one value of the whole step.
    """

    def __init__(self, step: FlatStep, losses: Mapping[tuple[int, int], LossChanges]):
        self._step = step
        starts = itertools.accumulate((len(changes.firsts) for changes in losses.values()), initial=0)
        each = [(pair, (changes, start)) for (pair, changes), start in zip(losses.items(), starts, strict=False)]
        self._of_losses = [{pair[which]: found for pair, found in each} for which in (0, 1)]  # for the whole, a part
        self._program, self._operations, self._values = self._trace_values()
        types = [shape_struct(v.aval, sharding=explicit_sharding(v.aval)) for v in self._values]
        axes = [axis for changes in losses.values() for axis in changes.axes]
        self.changed = FlatStep(self._run_step, [*types, *step.leaves], [*axes, *step.axes], step.name)

    def with_values(self, leaves: Sequence[Any]) -> FlatStep:
        """Return the step for leaves of the whole batch, and for the values that follow from these."""
        env = self._program.environment([None, *leaves])  # the values do not depend on the number of the part
        evaluate(self._operations, env)
        return dataclasses.replace(self.changed, leaves=[*(value_of(v, env) for v in self._values), *leaves])

    def _run_step(self, *arguments: Any) -> Any:
        """Run the step on the values, followed by its leaves."""
        count = len(self._values)
        values, leaves = arguments[:count], arguments[count:]
        is_part = dataclasses.replace(self._step, leaves=leaves).batch_lengths != self._step.batch_lengths

        def run(once: CalledOnce, given: Sequence[Any], changes: LossChanges, start: int) -> Any:
            program = changes.program_of(once.jaxpr, self._step.name)
            return once.returning(_ChangedLoss(changes, program, values[start:], is_part).run(once.jaxpr, given))

        return transform_losses(self._step.run, self._each_loss(is_part, run))(*leaves)

    def _each_loss(
        self, is_part: bool, run: Callable[[CalledOnce, Sequence[Any], LossChanges, int], Any]
    ) -> Callable[..., Callable[..., Any]]:
        """Return a function that replaces the calls of each loss that has changes.

        Args:
          is_part: whether the losses are traced for a part of the batch.
          run: takes the loss as it was traced, its leaves, its changes and the number of its first value.
        """
        numbers = itertools.count()

        def run_loss(once: CalledOnce, given: Sequence[Any]) -> Any:
            found = self._of_losses[is_part].get(next(numbers))
            return once.run(once.jaxpr, given) if found is None else run(once, given, *found)

        return lambda loss, *_: replace_calls(loss, run_loss)

    def _trace_values(self) -> tuple[FlatProgram, list[Operation], list[Variable]]:
        """Return the program of the step, the operations that compute the values, and the variables of the values."""
        types = dict[int, str]()  # of the values, by their numbers

        def name(once: CalledOnce, given: Sequence[Any], changes: LossChanges, start: int) -> Any:
            types.update(_name_values(changes, changes.program_of(once.jaxpr, self._step.name), start))
            return once.run(once.jaxpr, given)

        program = flat_program(self._step.jaxpr(1, self._each_loss(False, name)))
        named = [op for op in program.operations if op.value_name.startswith(_NAME)]
        found = [(int(op.value_name.split(":")[1]), op.outvars[0]) for op in named]
        # A value has another type if the loss runs for several examples, and is missing if it runs in a loop.
        if sorted((i, v.aval.str_short()) for i, v in found) != sorted(types.items()):
            raise NoWholeValues
        values = [dict(found)[i] for i in range(len(found))]
        operations = operations_before(values, program.operations)
        if any(mark_of(op) is not None for op in operations):
            raise NoWholeValues
        return program, operations, values


def _name_values(changes: LossChanges, program: FlatProgram, start: int) -> dict[int, str]:
    """Compute the values of a loss from the data that it closes over, name them, and return their types.

    Args:
      changes, program: the changes of the loss, and its operations.
      start: the number of its first value among the values of all losses.

    Raises:
      NoWholeValues: if a transformation around the gradient, such as `jax.jvp`, differentiates or maps them.
    """
    operands = [*(op.invars for op in program.operations), program.outputs]
    values = [operands[place][i] for place, i in changes.firsts]
    env = dict(program.constants)
    evaluate(operations_before(values, program.operations), env)
    if any(jax_compat.is_transformed(env[v]) for v in values):
        raise NoWholeValues
    name: Callable[[Any, str], Any] = checkpoint_name
    for i, v in enumerate(values):
        name(env[v], f"{_NAME}:{start + i}")
    return {start + i: v.aval.str_short() for i, v in enumerate(values)}
