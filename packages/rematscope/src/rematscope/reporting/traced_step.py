"""The programs of a training step for its whole batch and for parts of it, each traced once.

The step is traced with marks at its gradients, and at the operands, constants and results of the losses that it
differentiates. The marks of losses are names that only this package gives; they do nothing when a program runs.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from jax.ad_checkpoint import checkpoint_name
from jax.extend.core import jaxpr_as_fun

from rematscope import jax_compat
from rematscope.jax_compat.vjp_hook import has_map
from rematscope.reporting.flat_program import LOSS_MARK, FlatProgram, Operation, flat_program
from rematscope.reporting.flat_step import FlatStep
from rematscope.reporting.gradient_loops import outside_passes
from rematscope.tracing.checkpoints import CalledOnce, replace_calls

RunLoss = Callable[[Any, Sequence[Any], int, Any], Sequence[Any]]


class LossMark(NamedTuple):
    """The mark of a value of a loss.

    Attributes:
      loss: the number of the loss, in the order of the traces of losses.
      what: `"operand"`, `"constant"` (a value that the loss closes over) or `"result"`.
      number: the number of the value among these.
    """

    loss: int
    what: str
    number: int


def loss_mark_of(op: Operation) -> LossMark | None:
    """Return the mark that an operation gives its operand; None for other operations."""
    if not op.is_loss_mark:
        return None
    _, loss, what, number = op.value_name.split(":")
    return LossMark(int(loss), what, int(number))


class StepTrace(NamedTuple):
    """A step, traced for one length of its batch.

    Attributes:
      program: its program, with marks.
      losses: the jaxprs of its losses, in the order of their traces. Their constants are values of a trace that ended.
      transformed: the marks of the constants of losses that a transformation around the gradient, such as `jax.jvp`,
        differentiates or maps.
      has_maps: whether it contains a `jax.vmap`.
      has_loops: whether a `jax.vmap` over the batch was traced as a loop.
    """

    program: FlatProgram
    losses: list[Any]
    transformed: set[LossMark]
    has_maps: bool
    has_loops: bool


class TracedStep:
    """A step that is traced once for each length of its batch.

    Args:
      step: the step. Only the types of its arguments are used.
      loops: whether each `jax.vmap` over the batch is traced as a loop over its examples.
    """

    def __init__(self, step: FlatStep, loops: bool = False):
        self.step, self._loops = dataclasses.replace(step, leaves=step.types(1)), loops
        self._traces = dict[Any, StepTrace]()

    def along(self, axes: Sequence[int | None]) -> "TracedStep":
        """Return the step with other batch axes of its leaves. Both share their traces."""
        if [*axes] == [*self.step.axes]:
            return self
        other = TracedStep(dataclasses.replace(self.step, axes=axes), self._loops)
        other._traces = self._traces
        return other

    @functools.cached_property
    def in_loops(self) -> "TracedStep":
        """The step with loops over examples."""
        return TracedStep(self.step, loops=True)

    def maps_examples(self) -> bool:
        """Return whether the step has a `jax.vmap` over the batch, which `in_loops` traces as a loop."""
        return any(found.has_maps for found in self._traces.values()) and self.in_loops.traced(1).has_loops

    def traced(self, count: int) -> StepTrace:
        """Return the step for one of `count` parts of its batch."""
        key = count, *map(jax.typeof, self.step.types(count))
        if key not in self._traces:
            self._traces[key] = self.trace(count)
        return self._traces[key]

    def trace(self, count: int, run: RunLoss = lambda jaxpr, given, *_: jaxpr_as_fun(jaxpr)(*given)) -> StepTrace:
        """Trace the step for one of `count` parts of its batch.

        Args:
          count: the number of parts.
          run: a function that runs the jaxpr of a loss on its operands, given also the number of the loss and that of
            the part.
        """
        losses, transformed = list[Any](), set[LossMark]()

        def change(loss: Callable[..., Any], which: Any) -> Callable[..., Any]:
            def record(once: CalledOnce, given: Sequence[Any]) -> Any:
                losses.append(once.jaxpr)
                number = len(losses) - 1
                consts = _marked(once.jaxpr.consts, number, "constant")
                marks = (LossMark(number, "constant", i) for i, v in enumerate(consts) if jax_compat.is_transformed(v))
                transformed.update(marks)
                operands = _marked(given, number, "operand")
                results = run(once.jaxpr.replace(consts=consts), operands, number, which)
                marked = _marked(results, number, "result")
                # A Python number among auxiliary results stays one, because the step may read its value.
                is_number = [isinstance(v, int | float | complex) for v in results]
                each = zip(results, marked, is_number, strict=True)
                return once.returning([v if number else named for v, named, number in each])

            return replace_calls(loss, record)

        length = self.step.batch_lengths[0] // count if self._loops else 0
        with jax_compat.maps_as_loops(length) if self._loops else contextlib.nullcontext(int) as loops:
            jaxpr = self.step.jaxpr(count, change)
            return StepTrace(_program_of(jaxpr), losses, transformed, has_map(jaxpr), loops() > 0)


def _marked(values: Sequence[Any], loss: int, what: str) -> list[Any]:
    name: Callable[[Any, str], Any] = checkpoint_name
    return [name(v, f"{LOSS_MARK}:{loss}:{what}:{i}") for i, v in enumerate(values)]


def _program_of(jaxpr: Any) -> FlatProgram:
    """Return the flat program of a step.

    Checkpoints outside of the passes of its gradients are opened, because a loop may run only some of their operations.
    They have no effect there.
    """
    opened = set[Any]()
    while True:
        program = flat_program(jaxpr, opened)
        found = {op.eqn for op in outside_passes(program) if op.name in jax_compat.CHECKPOINTS}
        if not found:
            return program
        opened |= found
