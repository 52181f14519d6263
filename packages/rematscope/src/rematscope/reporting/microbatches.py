"""Compute the gradients of a training step in microbatches: run these parts of the step's program in loops.

The step is traced for one microbatch, so its program reads no other microbatch. The program is divided at the
gradients. The operations up to a gradient run in a loop, once per microbatch. The rest, such as the optimizer, runs
once. See `rematscope.reporting.gradient_loops`.

The gradient of a mean over k microbatches is the sum of the gradients of 1/k times each microbatch's loss. So the
cotangents of a microbatch are divided by k, or by the next power of two, which is exact. Each example's cotangents then
have the size that they have for the whole batch. Otherwise, they would overflow sooner in float16.
"""

import functools
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.core import Tracer
from jax.extend.core import jaxpr_as_fun
from jax.sharding import NamedSharding

from rematscope import jax_compat
from rematscope.errors import PlanError
from rematscope.jax_compat.vjp_hook import with_weak_type
from rematscope.reporting.arrays import as_type, stacked, unstacked
from rematscope.reporting.batch_axis import (
    OPENED,
    NotPaired,
    batch_axis,
    commutes,
    equal_values,
    known_axes,
    makes_batch,
    paired_bodies,
    same_equation,
)
from rematscope.reporting.flat_program import (
    FlatProgram,
    Operation,
    Variable,
    evaluate,
    flat_program,
    value_of,
    variables_of,
)
from rematscope.reporting.flat_step import cotangent_divisor
from rematscope.reporting.gradient_loops import (
    Divided,
    Loop,
    divided,
    gradient_marks,
    in_passes,
    mark_of,
    operations_before,
    operations_in_passes,
    outside_passes,
    per_example,
    without_scale,
)
from rematscope.reporting.parts import Part, evaluate_part, needs_number
from rematscope.reporting.relations import axes_or_unknown
from rematscope.reporting.traced_step import StepTrace, TracedStep

# Each part of the batch uses its part of the random numbers of the whole batch.

_POSITIONS = False  # outside of scans, the proof covers only positions that read rows of the part: see `gathers`
_DRAWS = frozenset("random_bits random_split rng_bit_generator rng_uniform threefry2x32 random_gamma".split())


def _around_last_pass(program: FlatProgram) -> list[list[Operation]]:
    """Return the operations outside of the passes of gradients: those before the last forward pass, and the others."""
    marks = [mark_of(op) for op in program.operations]
    last = max((i for i, mark in enumerate(marks) if mark is not None and mark.what == "differentiated"), default=0)
    outside = set(outside_passes(program))
    return [[op for op in each if op in outside] for each in (program.operations[:last], program.operations[last:])]


def _draws_for_parts(whole: Any, part: Any, count: int, may_make: bool = True) -> bool:
    """Return whether each part can use its own part of the random numbers that an equation draws.

    This also holds if all parts use the same random numbers.
    """
    if whole.primitive.name in _DRAWS:
        return (may_make and makes_batch(whole, part, count)) or commutes(whole, part, count)
    may_make = may_make and jax_compat.primitive_name(whole) in OPENED | jax_compat.JITS
    return all(
        len(a) == len(b) and all(_draws_for_parts(one, other, count, may_make) for one, other in zip(a, b, strict=True))
        for a, b in paired_bodies(whole, part)
    )


def _drawing_primitives(eqn: Any) -> set[str]:
    """Return the names of the primitives in an operation that draw random numbers."""
    return {each.primitive.name for each in (eqn, *jax_compat.equations_in(eqn))} & _DRAWS


class Microbatches:
    """The microbatches of a step: parts of its batch, whose gradients are computed one after the other.

    Args:
      traces: the step.
      count: the number of parts.

    Attributes:
      step: the step.
      count: the number of parts.
      whole, part: the step, traced for the whole batch and for a part.
    """

    def __init__(self, traces: TracedStep, count: int):
        self._traces, self.step, self.count = traces, traces.step, count

    @property
    def whole(self) -> StepTrace:
        return self._traces.traced(1)

    @property
    def part(self) -> StepTrace:
        return self._traces.traced(self.count)

    def results(self, leaves: Sequence[Any], shardings: Sequence[NamedSharding | None]) -> list[Any]:
        """Run the step with its gradients computed in microbatches, and return the leaves of its outputs.

        Gradients are added up and other floating-point values that depend on the batch, such as the loss, are averaged
        over the microbatches. Arrays with one entry per example are concatenated, but gradients per example are added
        up.

        Args:
          leaves: the arguments of the step for the whole batch.
          shardings: the sharding of each leaf across devices, as far as it is known.

        Raises:
          PlanError: if the step cannot be divided; see `divided`.
        """
        step, count, blocks = self.step, self.count, self.step.blocks
        whole, program, draws = self._divided_in_parts()
        of_whole, outputs = self._in_whole(whole, program)
        axes = {**program.axes, **self._axes_outside_loops(of_whole)}
        self._check_lengths(program, of_whole)
        numbered_leaves = [jnp.zeros((), jnp.int32), *leaves]
        inputs, constants = program.program.inputs, program.program.constants
        inside = program.program.environment(numbered_leaves)
        outside = {**inside, **dict(zip(constants, whole.program.constants.values(), strict=True))}
        for op in program.once:
            _evaluate_twice(op, of_whole.get(op), inside, outside)
        parts = {
            v: stacked(leaf, axis, count, sharding, blocks)
            for v, leaf, axis, sharding in zip(inputs[1:], leaves, step.axes, shardings, strict=True)
            if axis is not None
        }
        pairs = list(zip(whole.crossing, program.crossing, strict=True))
        for loop in program.loops:
            evaluate([of_whole[op] for op in loop.same[1]], outside)
            own = [(u, v) for u, v in pairs if v in loop.crossing and v not in loop.same[0]]
            stack_axes = {v: self.stack_axis(u, v, loop) for u, v in own}
            outside |= self._loop_results(loop, inputs[0], stack_axes, inside, parts, draws)
            outside |= {v: as_type(outside[v], u.aval) for u, v in own}
            evaluate([of_whole[op] for op in loop.after], outside)
            known = [*loop.crossing, *(v for op in loop.after for v in op.outvars)]
            inside |= {v: outside[v] for v in known}
            repeated = self._evaluate_repeated(loop.after, of_whole, axes, inside)
            divided_values = [v for v in known if v in axes and v not in repeated]
            parts |= {v: stacked(outside[v], axes[v], count, blocks=blocks) for v in divided_values}
        return [value_of(v, outside) for v in outputs]

    def _evaluate_repeated(
        self,
        operations: Sequence[Operation],
        of_whole: Mapping[Operation, Operation],
        axes: Mapping[Variable, int],
        inside: dict[Any, Any],
    ) -> set[Variable]:
        """Run operations whose results are equal for all parts, and return these results.

        An example is a bias that is broadcast to the shape of the batch. Its value for a part is computed in place of
        that for the whole batch, which may be large.
        """
        found = set[Variable]()
        for op in operations:
            is_divided = any(v in axes and v not in found for v in variables_of(op.invars))
            if is_divided or axes.keys().isdisjoint(op.outvars):
                continue
            if self._is_same_for_a_part(of_whole[op], op):
                evaluate([op], inside)
                found.update(op.outvars)
        return found

    def _is_same_for_a_part(self, whole: Operation, part: Operation) -> bool:
        """Return whether an operation computes the same for a part, except for the length of the batch axis."""
        if part.is_loss_mark:
            return True
        literals = zip(whole.eqn.invars, part.eqn.invars, strict=True)
        return commutes(whole.eqn, part.eqn, self.count, may_make=False) and all(
            equal_values(jax_compat.literal_value(one), jax_compat.literal_value(other))
            for one, other in literals
            if jax_compat.is_literal(one) and jax_compat.is_literal(other)
        )

    def _check_lengths(self, program: Divided, of_whole: Mapping[Operation, Operation]) -> None:
        """Raise PlanError if a loss reads an operation outside of loops that depends on the length of the batch.

        The proof assumes that the operations of a loss run for a part. Those that only read the results of earlier
        loops run for the whole batch.
        """
        in_losses, read = in_passes(program.program), set[Variable]()
        for loop in reversed(program.loops):
            for op in operations_before(read, loop.after):
                if op in in_losses and not self._is_same_for_a_part(of_whole[op], op):
                    raise PlanError(
                        f"A loss of {self.step.name} computes a value from the length of the batch and from another "
                        f"gradient, but not from the batch ({op.name} in {op.lines}), which microbatches= does not "
                        "support. Compute the value outside of the loss."
                    )
            read.update(v for op in loop.each for v in variables_of(op.invars))

    def _axes_outside_loops(self, of_whole: Mapping[Operation, Operation]) -> dict[Variable, int]:
        """Return the batch axes of the results of operations for a part, given those for the whole batch.

        `Divided.axes` may miss them in a loss with random numbers, such as those of a bias that is broadcast.
        """
        found = dict[Variable, int]()
        for part, whole in of_whole.items():
            for v, axis in zip(part.outvars, axes_or_unknown(whole.eqn.outvars, part.outvars, self.count), strict=True):
                if isinstance(axis, int):
                    found[v] = axis
        return found

    def _loop_results(
        self,
        loop: Loop,
        number: Variable,
        stack_axes: Mapping[Variable, int | None],
        given: Mapping[Any, Any],
        parts: Mapping[Any, Any],
        draws: Mapping[Operation, Operation],
    ) -> dict[Variable, Any]:
        """Run a loop over the parts of the batch, and return the values of its crossing variables for the whole batch.

        Args:
          loop: the loop.
          number: the variable of the number of the part.
          stack_axes: what `stack_axis` returns for each of its crossing variables that depends on the batch.
          given: the values of the variables before the loop.
          parts: the stacks of the parts of the divided variables.
          draws: what `_paired_draws` returns.
        """
        count, blocks = self.count, self.step.blocks
        read = {v for op in loop.each for v in variables_of(op.invars)}
        summed = [v for v, axis in stack_axes.items() if axis is None]
        listed = [(v, axis) for v, axis in stack_axes.items() if axis is not None]
        read_parts = {v: stack for v, stack in parts.items() if v in read}
        sums_of_parts = {v for v in summed if v in loop.totals or v in loop.gradients}

        def turn(sums: list[Any], numbered: tuple[Any, list[Any]]) -> tuple[list[Any], list[Any]]:
            which, slices = numbered
            typed = {v: as_type(part, v.aval) for v, part in zip(read_parts, slices, strict=True)}
            inside = {**given, number: which, **typed}
            evaluate_part(loop.each, draws, inside, Part(which, count, _POSITIONS, blocks))
            # A mean is divided before it is added up: the sum of the parts may overflow although their mean does not.
            own = [inside[v].astype(total.dtype) for total, v in zip(sums, summed, strict=True)]
            added = [
                total + (part if v in sums_of_parts else part / count)
                for total, part, v in zip(sums, own, summed, strict=True)
            ]
            return added, [inside[v] for v, _ in listed]

        def start(v: Variable) -> Any:
            is_float = jnp.issubdtype(v.aval.dtype, jnp.inexact)
            dtype = jnp.promote_types(v.aval.dtype, jnp.float32) if is_float else v.aval.dtype
            return as_type(jnp.zeros(v.aval.shape, dtype), v.aval)

        sums, stacks = lax.scan(
            turn, [start(v) for v in summed], (jnp.arange(count, dtype=jnp.int32), list(read_parts.values()))
        )
        ratio = cotangent_divisor(count) / count
        found = {v: unstacked(x, axis, blocks) for (v, axis), x in zip(listed, stacks, strict=True)}
        for v, total in zip(summed, sums, strict=True):
            if v in loop.gradients and v not in loop.totals:
                total = total * ratio
            found[v] = total.astype(v.aval.dtype)
        return {v: with_weak_type(value, v.aval) for v, value in found.items()}

    # Random numbers

    def _paired_draws(self, whole: FlatProgram, part: FlatProgram) -> dict[Operation, Operation]:
        """Return the operations outside of the passes of gradients that need the number of their part of the batch.

        Other operations after the last forward pass that draw random numbers run outside of loops.

        Args:
          whole, part: the step for the whole batch and for a part, with marks at its gradient.

        Returns:
          A dictionary that maps each such operation for a part to the same operation for the whole batch.

        Raises:
          PlanError: if an operation draws random numbers, and it is not known which of them belong to a part.
        """
        (before, after), (before_part, after_part) = map(_around_last_pass, (whole, part))
        found = self._operations_with_number(before, before_part)
        if [op.name for op in after] == [op.name for op in after_part]:
            for op, smaller in zip(after, after_part, strict=True):
                is_known = not _drawing_primitives(op.eqn) or _draws_for_parts(op.eqn, smaller.eqn, self.count)
                if is_known and self._needs_number(op, smaller):
                    found[smaller] = op
        return found

    def _operations_with_number(
        self, whole: Sequence[Operation], part: Sequence[Operation]
    ) -> dict[Operation, Operation]:
        random = [op for op in (*whole, *part) if _drawing_primitives(op.eqn)]
        if [op.name for op in whole] == [op.name for op in part]:
            pairs = {smaller: op for op, smaller in zip(whole, part, strict=True)}
            if all(_draws_for_parts(op.eqn, each.eqn, self.count) for each, op in pairs.items() if op in random):
                return {each: op for each, op in pairs.items() if self._needs_number(op, each)}
        if not random:
            return {}
        drawn = ", ".join(sorted({name for op in random for name in _drawing_primitives(op.eqn)}))
        raise PlanError(
            f"{self.step.name} draws random numbers ({drawn}) for its loss, and it is not known which of them belong "
            "to a microbatch. Split the key in the step, one part per microbatch, and use jax.lax.scan."
        )

    def _needs_number(self, whole: Operation, part: Operation) -> bool:
        return needs_number(whole.eqn, part.eqn, self.count, _POSITIONS)

    def _run_loss_of_part(self, whole: Any, part: Any, operands: Sequence[Any], which: Any) -> list[Any]:
        """Run a loss, given as jaxprs for the whole batch and for a part, on part number `which`."""
        program = flat_program(part)
        numbered = self._operations_with_number(flat_program(whole).operations, program.operations)
        if not numbered:
            return jaxpr_as_fun(part)(*operands)
        env = program.environment(operands)
        evaluate_part(program.operations, numbered, env, Part(which, self.count, _POSITIONS, self.step.blocks))
        return program.results(env)

    # Division at the gradients

    def _divided_in_parts(self) -> tuple[Divided, Divided, dict[Operation, Operation]]:
        """Return the step for the whole batch and for a part, divided at its gradients, and the paired draws."""
        try:
            both, draws = self.divided_pair
        except NotPaired:
            raise self._difference_error() from None
        whole, plain = self.whole.program, self.part.program
        losses = self._paired_losses(self.whole.losses, self.part.losses)
        if not any(
            self._operations_with_number(flat_program(one).operations, flat_program(other).operations)
            for one, other in zip(losses, self.part.losses, strict=True)
        ):
            return *both, draws
        numbered = self._traces.trace(
            self.count, lambda part, given, loss, which: self._run_loss_of_part(losses[loss], part, given, which)
        ).program
        axes = self._axes_like(plain, both[1].axes, numbered)
        numbered = without_scale(numbered, per_example(numbered, axes))
        draws = self._paired_draws(whole, numbered)
        program = divided(numbered, self.step.axes, self.step.name, [*draws], axes)
        if not has_same_interface(program, both[1]):
            raise self._difference_error("with its part of the random numbers")
        return both[0], program, draws

    def _difference_error(self, how: str = "from that for the whole batch") -> PlanError:
        return PlanError(f"The program of {self.step.name} for a microbatch differs {how}.")

    @property
    def divided(self) -> Divided:
        """The step for a part, divided at its gradients."""
        return self.divided_pair[0][1]

    @functools.cached_property
    def divided_pair(self) -> tuple[tuple[Divided, Divided], dict[Operation, Operation]]:
        """The step for the whole batch and for a part, divided at its gradients, and the paired draws.

        Raises:
          PlanError: as for `divided` and `_paired_draws`.
          NotPaired: if the two programs differ in more than shapes and literals.
        """
        whole, part = self.whole.program, self.part.program
        draws, axes = self._paired_draws(whole, part), self._paired_axes(whole, part)
        inside, pairs = in_passes(part), zip(whole.operations, part.operations, strict=True)
        random = [(op, smaller) for op, smaller in pairs if smaller in inside and self._needs_number(op, smaller)]

        def in_loops(which: int, program: FlatProgram, drawn: Collection[Operation]) -> Divided:
            own = axes[which]
            scaled = without_scale(program, per_example(program, own))
            drawn_inside = [pair[which] for pair in random]
            return divided(scaled, self.step.axes, self.step.name, drawn, own, drawn_inside)

        one, other = in_loops(0, whole, [*draws.values()]), in_loops(1, part, [*draws])
        if _crossing_places(one) != _crossing_places(other):
            raise NotPaired
        return (one, other), draws

    def _paired_axes(self, whole: FlatProgram, part: FlatProgram) -> tuple[dict[Variable, int], dict[Variable, int]]:
        """Return the batch axes of the variables of the step for the whole batch and for a part.

        Raises:
          NotPaired: if the two programs have other operations.
        """
        names = [[(op.name, len(op.outvars)) for op in each.operations] for each in (whole, part)]
        if names[0] != names[1] or len(whole.constants) != len(part.constants):
            raise NotPaired
        part_of = dict(zip(whole.variables, part.variables, strict=True))
        outputs = zip(whole.outputs, part.outputs, strict=True)
        if any(part_of.get(v) is not u for v, u in outputs if isinstance(v, Variable)):
            raise NotPaired
        found = {v: axis for v, axis in known_axes(part_of.items(), self.count).items() if axis is not None}
        return found, {part_of[v]: axis for v, axis in found.items()}

    def _axes_like(
        self, program: FlatProgram, axes: Mapping[Variable, int], numbered: FlatProgram
    ) -> dict[Variable, int]:
        """Return the batch axes of the variables of the step, without those in passes with random numbers.

        Args:
          program, axes: the step for a part of the batch, and the batch axes of its variables.
          numbered: the same step, whose losses use their part of the random numbers.
        """
        outside = [outside_passes(each) for each in (program, numbered)]
        gradients = [[v for _, v in gradient_marks(each)] for each in (program, numbered)]
        if [op.name for op in outside[0]] != [op.name for op in outside[1]] or len(gradients[0]) != len(gradients[1]):
            raise self._difference_error("with its part of the random numbers")
        pairs = [*zip(program.inputs, numbered.inputs, strict=True), *zip(*gradients, strict=True)]
        for op, other in zip(*outside, strict=True):
            pairs += zip((*op.invars, *op.outvars), (*other.invars, *other.outvars), strict=True)
        for own, others in zip(*map(operations_in_passes, (program, numbered)), strict=True):
            if [*map(_form_of, own)] == [*map(_form_of, others)]:  # another loss may read the values of this one
                for op, other in zip(own, others, strict=True):  # an operand may be the number of the part
                    pairs += zip(op.outvars, other.outvars, strict=True)
        pairs += zip(program.outputs, numbered.outputs, strict=True)
        return {other: axes[v] for v, other in pairs if isinstance(v, Variable) and v in axes}

    def _paired_losses(self, whole: Sequence[Any], part: Sequence[Any]) -> list[Any]:
        """Return for each loss of the step for a part, in the order of its traces, that for the whole batch.

        Args:
          whole, part: the jaxprs of the losses, in the order of their traces. A loss may be traced more than once.

        Raises:
          PlanError: if it is not known which of several losses belong together.
        """
        if len(whole) == len(part):
            return [*whole]
        if any(len({re.sub(r" at 0x[0-9a-f]+", "", str(loss)) for loss in each}) != 1 for each in (whole, part)):
            raise PlanError(f"{self.step.name} traces its losses more often for the whole batch than for a microbatch.")
        return [whole[-1]] * len(part)

    def _in_whole(self, whole: Divided, part: Divided) -> tuple[dict[Operation, Operation], list[Any]]:
        """Map the operations outside of the loops of the step for a part to those of the step for the whole batch.

        Also return the outputs of the step for the whole batch. Both use the variables of the step for a part. Two
        paired operations compute the same values if none of their literals and shapes depends on the length of the
        batch.

        Raises:
          PlanError: if the two programs differ in more than shapes and literals.
        """
        both = [_outside_loops(each) for each in (whole, part)]
        names = [[op.name for op in operations] for operations in both]
        known = [[*each.program.inputs, *each.program.constants, *each.crossing] for each in (whole, part)]
        if names[0] != names[1] or len(known[0]) != len(known[1]):
            raise self._difference_error()
        variables: dict[Any, Any] = dict(zip(*known, strict=True))
        found = dict[Operation, Operation]()
        for op, other in zip(*both, strict=True):
            operands = [variables[v] if isinstance(v, Variable) else v for v in op.invars]
            found[other] = Operation(op.eqn, operands, other.outvars)
            variables.update(zip(op.outvars, other.outvars, strict=True))
        return found, [variables[v] if isinstance(v, Variable) else v for v in whole.program.outputs]

    def stack_axis(self, whole: Variable, part: Variable, loop: Loop) -> int | None:
        """Return the axis along which the values of all microbatches are concatenated; None if they are added up.

        Args:
          whole, part: a crossing variable of the step for the whole batch, and the same variable for a part.
          loop: the loop that defines it.

        Raises:
          PlanError: if neither concatenation nor the mean gives the value for the whole batch.
        """
        function, what = self.step.name, f"{part.aval.dtype}{list(whole.aval.shape)}"
        try:
            axis = batch_axis(whole.aval, part.aval, self.count)
        except NotPaired:
            raise PlanError(
                f"{function} returns, or uses after its gradient, {what}, whose shape does not follow from the length "
                "of the batch, so microbatches= cannot combine its parts. Compute it outside of the step."
            ) from None
        if axis is not None and part in loop.gradients:
            raise PlanError(
                f"{function} takes one gradient with respect to its batch, {what}, and to other values, which "
                "microbatches= does not support. Take two gradients, or split the batch in the step, with jax.lax.scan."
            )
        if axis is not None or part in loop.gradients | loop.totals or jnp.issubdtype(part.aval.dtype, jnp.floating):
            return axis
        raise PlanError(
            f"{function} returns, or uses after its gradient, an array of {part.aval.dtype} that depends on the batch, "
            "and microbatches= only averages floating-point values. Compute it outside of the step."
        )


def _evaluate_twice(op: Operation, whole: Operation | None, inside: dict[Any, Any], outside: dict[Any, Any]) -> None:
    """Run an operation for a part of the batch and, if it differs, for the whole batch.

    Args:
      op: the operation for a part.
      whole: the operation for the whole batch; None if only the loops read its results.
      inside, outside: the values that the loops and the other operations read, to which the results are added.
    """
    evaluate([op], inside)
    if whole is None:
        return
    is_same = same_equation(op.eqn, whole.eqn) and all(inside[v] is outside[v] for v in variables_of(op.invars))
    if is_same:
        outside |= {v: inside[v] for v in op.outvars}
    else:
        evaluate([whole], outside)


def _form_of(op: Operation) -> tuple[str, list[str]]:
    """Return the name of an operation and the types of its results."""
    return op.name, [v.aval.str_short() for v in op.outvars]


def _crossing_places(program: Divided) -> list[list[int]]:
    """Return the indices of the crossing values of each loop among all values that the loop computes."""
    made = [{v: i for i, v in enumerate(v for op in loop.each for v in op.outvars)} for loop in program.loops]
    return [[places[v] for v in loop.crossing] for loop, places in zip(program.loops, made, strict=True)]


def has_same_interface(program: Divided, other: Divided) -> bool:
    """Return whether two programs have equal constants, crossing values and operations outside of loops."""
    constants = [[*each.program.constants.values()] for each in (program, other)]
    if comparable_interface(program) != comparable_interface(other) or len(constants[0]) != len(constants[1]):
        return False
    pairs = zip(*constants, strict=True)
    are_known = ((one, other, isinstance(one, Tracer) or isinstance(other, Tracer)) for one, other in pairs)
    return all(one is other if traced else equal_values(one, other) for one, other, traced in are_known)


def comparable_interface(program: Divided) -> list[Any]:
    """Return the crossing values and the operations outside of loops in a comparable form."""
    crossing = [
        (
            v in loop.gradients,
            v in loop.totals,
            v in loop.same[0],
            program.axes.get(v) if loop is not program.loops[-1] else None,
            v.aval.str_short(),
        )
        for loop in program.loops
        for v in loop.crossing
    ]
    return [
        crossing,
        [[op.name for op in loop.after] for loop in program.loops],
    ]


def _outside_loops(program: Divided) -> list[Operation]:
    """Return the operations outside of loops, without those before the loops that no other one and no output reads."""
    later = [op for loop in program.loops for op in (*loop.same[1], *loop.after)]
    read = [*program.program.outputs, *(v for op in later for v in op.invars)]
    return [*operations_before(variables_of(read), program.once), *later]
