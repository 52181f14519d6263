"""The head of a loss, divided along a free axis of its matmul, such as the batch or the tokens.

The head starts at the matmul with the largest result, such as the logits of a language model. For each of its
equations, this module derives the equation for a part of the axis: it changes the lengths in the parameters, and
accepts the result only if the rules of `rematscope.reporting.batch_axis` prove that the equation commutes with slicing.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import jax
from jax.ad_checkpoint import checkpoint_name

from rematscope import jax_compat
from rematscope.ir.program import nbytes
from rematscope.reporting.batch_axis import DERIVED, commutes, makes_batch
from rematscope.reporting.flat_program import (
    FlatProgram,
    Operation,
    Variable,
    evaluate,
    flat_program,
    variables_of,
)
from rematscope.scheduling.calls import heavy_flops
from rematscope.tracing.arguments import shape_struct

_MOST_TRIED = 64  # assignments of axes to the operands of one equation


class PartAxes:
    """The axes along which the values of a program are divided into parts.

    Attributes:
      axes: the axis along which each variable is divided; None for a variable that each part reads whole.
      parts: the equation for a part, for each operation that runs in parts.
    """

    def __init__(
        self,
        program: FlatProgram,
        axes: Mapping[Variable, int | None],
        count: int,
        least_size: int = 0,
        differentiable: bool = True,
    ):
        """Args:
        program: the program.
        axes: the axes of some of its variables.
        count: the number of parts.
        least_size: the number of elements from which values made of no divided value are made in parts too.
        differentiable: as for `commutes`.
        """
        self.axes, self.parts = dict(axes), dict[Operation, Any]()
        self._makers = {v: op for op in program.operations for v in op.outvars}
        self._count, self._size, self._differentiable = count, least_size, differentiable

    def divide(self, operations: Iterable[Operation]) -> None:
        """Divide those of the operations that read a divided value, in order."""
        for op in operations:
            if any(self.axes.get(v) is not None for v in variables_of(op.invars)):
                self._divide_operation(op)

    def _divide_operation(self, op: Operation) -> None:
        """Find axes for the operands of an operation along which it can be divided, and its equation for a part."""
        if op in self.parts or op.name not in DERIVED:
            return
        operands = list(dict.fromkeys(variables_of(op.invars)))
        choices = [[self.axes[v]] if v in self.axes else [None, *_axes_to_divide(v, self._count)] for v in operands]
        for chosen in itertools.islice(itertools.product(*choices), _MOST_TRIED):
            axes = dict(zip(operands, chosen, strict=True))
            for part in part_equations(op, axes, self._count, self._differentiable):
                if self._has_known_axes(op, part):
                    self._accept_part(op, part, axes)
                    return

    def _has_known_axes(self, op: Operation, part: Any) -> bool:
        """Return whether all results are divided, and along the axes that they already have."""
        found = axes_of_results(op, part)
        return None not in found.values() and all(self.axes.get(v, axis) == axis for v, axis in found.items())

    def _accept_part(self, op: Operation, part: Any, axes: dict[Variable, int | None]) -> None:
        self.parts[op] = part
        new = [v for v in axes if v not in self.axes and axes[v] is not None]
        self.axes.update(axes)
        self.axes.update(axes_of_results(op, part))
        for v in new:  # values as large as the logits, such as one-hot labels, are also made in parts
            maker = self._makers.get(v)
            if maker is not None and math.prod(v.aval.shape) >= self._size and not heavy_flops(maker.eqn):
                self._divide_operation(maker)


def part_equations(
    op: Operation, axes: Mapping[Variable, int | None], count: int, differentiable: bool = True
) -> Iterator[Any]:
    """Yield equations that compute one of `count` parts of the results of an operation.

    Args:
      op: the operation, whose primitive is one of `DERIVED`.
      axes: the axis of each operand that is divided; None for one that is whole.
      count: the number of parts.
      differentiable: as for `commutes`.
    """
    holds_lengths = not _RESULT_LENGTHS.isdisjoint(op.eqn.params)
    for after in _axes_to_divide(op.outvars[0], count) if holds_lengths else [None]:
        before = [axes[v] if isinstance(v, Variable) else None for v in op.invars]
        part = _part_equation(op.eqn, before, after, count, differentiable)
        if part is not None:
            yield part


def _axes_to_divide(v: Variable, count: int) -> list[int | None]:
    return [axis for axis, length in enumerate(getattr(v.aval, "shape", ())) if length and length % count == 0]


def program_with_head(jaxpr: Any) -> FlatProgram:
    """Return the program of a loss, without the checkpoints around its last matmul, which may be that of the head."""
    opened = list[Any]()
    while True:
        program = flat_program(jaxpr, opened)
        last = next((op.eqn for op in reversed(program.operations) if heavy_flops(op.eqn)), None)
        if last is None or not jax_compat.is_checkpoint(last):
            return program
        opened.append(last)


def first_of_head(program: FlatProgram) -> Operation | None:
    """Return the matmul with the largest result, the last one of several; None for a program without a matmul."""
    matmuls = [op for op in program.operations if op.eqn.primitive.name == "dot_general"]
    return max(reversed(matmuls), key=lambda op: nbytes(op.outvars[0].aval), default=None)


def heads(program: FlatProgram, count: int) -> Iterator[tuple[Operation, PartAxes, int]]:
    """Yield the matmul that the head starts at, and the head divided along each axis of the matmul's operands.

    Args:
      program: the program of a loss.
      count: the number of parts.

    Yields:
      The matmul, the axes of the values of the head, and the length of the axis of the matmul's operand.
    """
    matmul = first_of_head(program)
    if matmul is None:
        return
    reached, head = set(matmul.outvars), list[Operation]()
    for op in program.operations:
        if op is matmul or not reached.isdisjoint(variables_of(op.invars)):
            reached.update(op.outvars)
            head.append(op)
    for operand in dict.fromkeys(variables_of(matmul.invars)):
        for axis, length in enumerate(operand.aval.shape):
            if length and length % count == 0:
                found = PartAxes(program, {operand: axis}, count, math.prod(matmul.outvars[0].aval.shape))
                found.divide(head)
                if matmul in found.parts:
                    yield matmul, found, length


# Parameters that hold the lengths of the result, and of the first operand.
_RESULT_LENGTHS, _OPERAND_LENGTHS = frozenset({"shape", "new_sizes"}), frozenset({"limit_indices", "slice_sizes"})


def _part_equation(eqn: Any, before: Sequence[int | None], after: int | None, count: int, differentiable: bool) -> Any:
    """Return an equation for one of `count` parts of its operands; None if it does not commute with slicing.

    Args:
      eqn: the equation for the whole operands.
      before: the axis of each operand that is divided; None for one that is whole.
      after: the axis of the result, for an equation whose parameters hold the result's lengths.
      count: the number of parts.
      differentiable: as for `commutes`.
    """
    operands = [
        shape_struct(v.aval, _part_lengths(v.aval.shape, axis, count))
        for v, axis in zip(eqn.invars, before, strict=True)
    ]
    try:
        if eqn.primitive.name == "custom_jvp_call":
            run = _custom_jvp_part(eqn, before, count)
        else:
            run = _with_part_lengths(eqn, before, after, count)
        jaxpr = jax_compat.make_jaxpr(run)(*operands).jaxpr
        if len(jaxpr.eqns) != 1 or list(jaxpr.outvars) != list(jaxpr.eqns[0].outvars):
            return None
        (part,) = jaxpr.eqns
        return part if commutes(eqn, part, count, differentiable) or makes_batch(eqn, part, count) else None
    except Exception:  # any error that a primitive raises for incompatible shapes
        return None


def _with_part_lengths(
    eqn: Any, before: Sequence[int | None], after: int | None, count: int
) -> Callable[..., list[Any]]:
    """Return a function of parts that runs an equation with the lengths of a part in its parameters."""
    if (name := jax_compat.checkpoint_name(eqn)) is not None:
        return lambda x: [checkpoint_name(x, name)]
    params = dict(eqn.params)
    for key in _RESULT_LENGTHS & params.keys():
        params[key] = _part_lengths(params[key], after, count)
    for key in _OPERAND_LENGTHS & params.keys():
        reads_all = before[0] is not None and params[key][before[0]] == eqn.invars[0].aval.shape[before[0]]
        params[key] = _part_lengths(params[key], before[0] if reads_all else None, count)
    smaller = eqn.replace(params=params)
    return lambda *operands: jax_compat.run(smaller, list(operands))


def _custom_jvp_part(eqn: Any, before: Sequence[int | None], count: int) -> Callable[..., list[Any]]:
    """Return a function of parts that runs a function with a custom derivative, and has the same derivative."""

    def derivative(*both: Any) -> Any:
        middle = len(both) // 2
        return jax.jvp(lambda *given: jax_compat.run(eqn, list(given)), both[:middle], both[middle:])

    def jvp_rule(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        shapes = [shape_struct(v.aval) for v in eqn.invars]
        of_parts = _in_part(jax_compat.make_jaxpr(derivative)(*shapes, *shapes), [*before, *before], count)
        results = of_parts(*primals, *tangents)
        return results[: len(results) // 2], results[len(results) // 2 :]

    found: Any = jax.custom_jvp(_in_part(jax_compat.bodies(eqn)[0], before, count))
    found.defjvp(jvp_rule)
    return cast("Callable[..., list[Any]]", found)


def _in_part(jaxpr: Any, before: Sequence[int | None], count: int) -> Callable[..., list[Any]]:
    """Return a jaxpr as a function of parts of its operands."""
    program = flat_program(jaxpr)
    divided = PartAxes(program, dict(zip(program.inputs, before, strict=True)), count, differentiable=False)
    divided.divide(program.operations)

    def run(*operands: Any) -> list[Any]:
        env = program.environment(operands)
        evaluate(program.operations, env, lambda op, given: jax_compat.run(divided.parts.get(op, op.eqn), given))
        return program.results(env)

    return run


def _part_lengths(lengths: Sequence[int], axis: int | None, count: int) -> tuple[int, ...]:
    return tuple(n // count if i == axis else n for i, n in enumerate(lengths))


def axes_of_results(op: Operation, part: Any) -> dict[Variable, int | None]:
    """Return, for each result, the axis along which the result of the equation for a part is shorter."""
    found: dict[Variable, int | None] = {}
    for v, smaller in zip(op.outvars, part.outvars, strict=True):
        both = zip(v.aval.shape, smaller.aval.shape, strict=True)
        found[v] = next((i for i, (length, shorter) in enumerate(both) if length != shorter), None)
    return found
