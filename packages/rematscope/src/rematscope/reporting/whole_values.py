"""Compute statistics of the data for the whole batch, and pass them to the loss of each part of the batch.

The loss `sum(errors * mask) / sum(mask)` is not the mean of the losses of the parts, which divide by their own sums.
But it is the sum of their shares of it: the parts' sums of errors, divided by the sum of the mask of the whole batch.
This sum depends on the data only, so the gradient stays the same if it is an argument of the step. Each value that the
loss computes from data only can become such an argument. A loss that is a sum over the parts is multiplied by their
number, so that it is a mean.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import jax
from jax.extend import source_info_util

from rematscope import jax_compat
from rematscope.errors import PlanError
from rematscope.ir.specs import explicit_sharding
from rematscope.jax_compat.vjp_hook import is_in_jvp, transform_losses
from rematscope.reporting.flat_program import (
    FlatProgram,
    Operation,
    Variable,
    evaluate,
    flat_program,
    is_opened,
    operation_count,
    variables_of,
)
from rematscope.reporting.flat_step import FlatStep
from rematscope.reporting.gradient_loops import mark_of, operations_before
from rematscope.reporting.relations import Relation
from rematscope.reporting.traced_step import LossMark, TracedStep, loss_mark_of
from rematscope.scheduling.blocks import run_checkpoint
from rematscope.tracing.arguments import shape_struct
from rematscope.tracing.checkpoints import CalledOnce, replace_calls

Place = tuple[int, int]  # an operation of a loss and its operand; the outputs follow the last operation
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
      results: the relations of the results of the loss with these changes.
    """

    names: Sequence[str]
    reads: dict[Place, int] = dataclasses.field(default_factory=dict)
    firsts: list[Place] = dataclasses.field(default_factory=list)
    axes: list[int | None] = dataclasses.field(default_factory=list)
    factors: dict[Place, Fraction] = dataclasses.field(default_factory=dict)
    results: list[Relation] = dataclasses.field(default_factory=list)
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


@dataclasses.dataclass(frozen=True, eq=False)
class WholeValues:
    """A step whose losses read values that are computed for the whole batch.

    Attributes:
      step: the step.
      losses: the changes of the losses, by the numbers of their traces for the whole batch and for a part.
      program: the program of the values, as a function of the inputs of the step.
    """

    step: FlatStep
    losses: Mapping[tuple[int, int], LossChanges]
    program: FlatProgram

    def traced(self) -> TracedStep:
        """Return the step as a function of these values and its leaves, for the types of the values."""
        avals = [v.aval for v in self.program.outputs]
        types = [shape_struct(aval, sharding=explicit_sharding(aval)) for aval in avals]
        axes = [axis for changes in self.losses.values() for axis in changes.axes]
        leaves, axes = [*types, *self.step.leaves], [*axes, *self.step.axes]
        return TracedStep(dataclasses.replace(self.step, run=self._run_step, leaves=leaves, axes=axes))

    def before(self, leaves: Sequence[Any]) -> list[Any]:
        """Return the values for leaves of the whole batch, followed by these leaves."""
        env = self.program.environment([None, *leaves])  # the values do not depend on the number of the part
        evaluate(self.program.operations, env)
        return [*self.program.results(env), *leaves]

    def _run_step(self, *arguments: Any) -> Any:
        """Run the step on the values, followed by its leaves."""
        count = len(self.program.outputs)
        values, leaves = arguments[:count], arguments[count:]
        is_part = dataclasses.replace(self.step, leaves=leaves).batch_lengths != self.step.batch_lengths
        numbers = itertools.count()
        starts = itertools.accumulate((len(changes.firsts) for changes in self.losses.values()), initial=0)
        each = zip(self.losses.items(), starts, strict=False)  # with the number of the first value of each loss
        of_losses = {pair[is_part]: (changes, start) for (pair, changes), start in each}

        def run_loss(once: CalledOnce, given: Sequence[Any]) -> Any:
            found = of_losses.get(next(numbers))
            if found is None:
                return once.run(once.jaxpr, given)
            changes, start = found
            program = changes.program_of(once.jaxpr, self.step.name)
            return once.returning(_ChangedLoss(changes, program, values[start:], is_part).run(once.jaxpr, given))

        return transform_losses(self.step.run, lambda loss: replace_calls(loss, run_loss))(*leaves)


def find_whole_values(traces: TracedStep, losses: Mapping[tuple[int, int], LossChanges]) -> WholeValues:
    """Return a step whose losses read values of the whole batch, which follow from the program of the step.

    Args:
      traces: the step.
      losses: the changes of its losses, by the numbers of their traces for the whole batch and for a part.

    Raises:
      NoWholeValues: if a value depends on a gradient of the step, or if it is not one value of the whole step.
    """
    whole = traces.traced(1)
    marked = dict[LossMark | None, list[Operation]]()
    for op in whole.program.operations:
        marked.setdefault(loss_mark_of(op), []).append(op)
    operations, constants, values = [*whole.program.operations], {**whole.program.constants}, list[Any]()
    for (number, _), changes in losses.items():
        loss = changes.program_of(whole.losses[number], traces.step.name)
        places = [*(op.invars for op in loss.operations), loss.outputs]
        own = [places[place][i] for place, i in changes.firsts]
        needed = operations_before(own, loss.operations)
        read = {*own, *(v for op in needed for v in variables_of(op.invars))}
        known = dict[Any, Any]()  # the variable of the step for each constant of the loss
        for i, (v, value) in enumerate(loss.constants.items()):
            if v not in read:
                continue
            if i < len(whole.losses[number].consts):
                mark = LossMark(number, "constant", i)
                if mark in whole.transformed:
                    raise NoWholeValues
                known[v] = _only_variable(marked.get(mark, []), v)
            elif isinstance(value, jax.core.Tracer):
                raise NoWholeValues
            else:
                constants[v] = value
        for op in needed:
            operands = [known.get(v, v) if isinstance(v, Variable) else v for v in op.invars]
            operations.append(dataclasses.replace(op, invars=operands))
        values += [known.get(v, v) for v in own]
    found = operations_before(values, operations)
    if any(mark_of(op) is not None for op in found):
        raise NoWholeValues
    return WholeValues(traces.step, losses, FlatProgram(whole.program.inputs, constants, found, values))


def _only_variable(marks: Sequence[Operation], constant: Variable) -> Variable:
    """Return the variable of the step whose value is that of a constant of a loss, given the operations that mark it.

    Raises:
      NoWholeValues: if the loss is in a loop, runs several times, or is in a jit or a checkpoint that a transformation
        differentiates or maps: an argument in place of the value would have no derivative.
    """
    if len(marks) != 1:
        raise NoWholeValues
    (op,) = marks
    is_differentiated = any(is_in_jvp(call) for call in op.calls)
    if is_differentiated or op.outvars[0].aval.str_short() != constant.aval.str_short():
        raise NoWholeValues
    return op.outvars[0]
