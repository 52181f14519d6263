"""Compute a loss in chunks of its batch, without changing its value.

Operations that process each example independently (`rematscope.reporting.batch_axis`) run in a loop over parts of the
batch, with a checkpoint around each iteration. All other operations, such as means, batch normalization or a
contrastive loss, run once on the whole batch, between two such loops; a sum over the batch may first run for each part.
So the loss may combine examples in any way, and only the order of summation changes. A loop recomputes the values
inside of checkpoints that it reads from earlier loops, so that only the inputs and outputs of checkpoints are stored
for the whole batch. Within a limit, it also stores the results inside of checkpoints that avoid the most recompute
(`rematscope.reporting.stored_results`).
"""

import contextlib
import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from rematscope import jax_compat
from rematscope.errors import PlanError
from rematscope.ir.program import nbytes
from rematscope.ir.source import UNKNOWN_LINES
from rematscope.jax_compat.vjp_hook import with_weak_type
from rematscope.reporting.arrays import stacked, unstacked
from rematscope.reporting.batch_axis import DERIVED, NotPaired, commutes, known_axes, makes_batch
from rematscope.reporting.flat_program import (
    FlatProgram,
    Operation,
    Variable,
    flat_program,
    has_mutable_arrays,
    value_of,
    variables_of,
)
from rematscope.reporting.gathers import with_batched_gathers
from rematscope.reporting.head_axes import axes_of_results, heads, part_equations, program_with_head
from rematscope.reporting.parts import Part, run_equation_part
from rematscope.reporting.stored_results import results_to_store
from rematscope.scheduling.calls import heavy_flops

Parts = Mapping[Operation, Any]
Runner = Callable[[Sequence[Any]], list[Any]]
# Not maxima: JAX divides the gradient of a maximum equally among all elements that are equal to it.
_SPLIT_REDUCTIONS = frozenset({"reduce_sum", "reduce_prod", "reduce_and", "reduce_or"})


class ReadsNoBatch(NotPaired):
    """No operation of a loss reads values that have a batch axis."""


@dataclasses.dataclass(eq=False)
class _Step:
    """An operation of a loss.

    Attributes:
      invars, outvars: variables of the program for the whole batch.
      whole: a function that runs the operation on the whole batch.
      part: a function that runs it on a part of the batch, given the part's number; None if that is not possible.
      stage: the number of loops that run before the operation, or before the loop that contains it.
      makes: whether the operation makes positions or random bits, or depends only on such operations.
      op: the operation for the whole batch; None for a part of a reduction.
    """

    invars: Sequence[Any]
    outvars: Sequence[Variable]
    whole: Runner
    part: Callable[[Sequence[Any], Any], list[Any]] | None
    stage: int = 0
    makes: bool = False
    op: Operation | None = None

    @property
    def eqn(self) -> Any:
        """The equation for the whole batch, or None."""
        return None if self.op is None else self.op.eqn

    @property
    def is_recomputable(self) -> bool:
        """Whether several loops may run the operation, each with the cotangent of its own result.

        A custom gradient, such as one that limits the norm of a cotangent, need not be the sum of the gradients for
        cotangents that add up to its own.
        """
        equations = [] if self.eqn is None else [self.eqn, *jax_compat.equations_in(self.eqn)]
        return self.part is not None and not any(each.primitive.name.startswith("custom_vjp") for each in equations)


class ChunkedLoss:
    """The program of a loss, divided into loops over parts of the batch and operations on the whole batch.

    Attributes:
      hidden_bytes: the bytes of the results that are computed in loops and not returned from them.
      all_bytes: the bytes of all results.
    """

    def __init__(
        self, program: FlatProgram, axes: Mapping[Variable, int | None], parts: Parts, count: int, stored_bytes: int = 0
    ):
        """Args:
          program: the program of the loss.
          axes: the axis along which each variable is divided; None, or no entry, for a variable that is not divided.
          parts: for each operation that may run in a loop, the equation for one of `count` parts.
          count: the number of parts.
          stored_bytes: a limit on the results inside of checkpoints that are stored for later loops.

        Raises:
          NotPaired: if no operation can run in a loop.
          PlanError: if the loss uses mutable arrays.
        """
        if has_mutable_arrays(program):
            raise PlanError(
                "The loss uses mutable arrays (jax.new_ref), so its operations cannot run in another order, which "
                "chunks= and head_chunks= need. Use values in place of these arrays."
            )
        self._count, self._program = count, program
        self._stored: Collection[Variable] = ()
        self._axes = dict(axes)
        steps = list[_Step]()
        self._in_loops: set[Variable] = set()  # the results of operations that may run in a loop
        for op in program.operations:
            for step in self._make_steps(op, parts.get(op)):
                steps.append(step)
                self._in_loops.update(step.outvars if step.part is not None else ())
        self._set_stages(steps)
        if stored_bytes:
            self._stored = self._results_to_store(steps, stored_bytes)
        self._regions = self._make_regions(steps)
        readers = Counter(v for region in self._regions for v in region.reads)
        self._shared = {v for v, number in readers.items() if number > 1}
        self._outside = [step for step in steps if step.part is None]
        returned = {v for region in self._regions for v in region.outputs}
        self._hidden = {v for region in self._regions for step in region.steps for v in step.outvars} - returned
        self.hidden_bytes = sum(nbytes(v.aval) for v in self._hidden)
        self.all_bytes = sum(nbytes(v.aval) for step in steps for v in step.outvars)
        if not self.hidden_bytes:
            reads_batch = any(self._axis_of(v) is not None for step in steps for v in step.invars)
            raise (NotPaired if reads_batch else ReadsNoBatch)(self._why_undivided(steps))

    # Analysis

    def _make_steps(self, op: Operation, other: Any) -> Iterator[_Step]:
        whole = lambda operands, eqn=op.eqn: jax_compat.run(eqn, list(operands))  # noqa: E731
        step = _Step(op.invars, op.outvars, whole, None, op=op)
        if all(self._axis_of(v) is None for v in (*op.invars, *op.outvars)):
            yield step
        elif other is not None and commutes(op.eqn, other, self._count):
            yield dataclasses.replace(step, part=self._part_runner(op, other))
        elif other is not None and makes_batch(op.eqn, other, self._count):
            yield dataclasses.replace(step, part=self._part_runner(op, other), makes=True)
        elif self._has_partial_results(op):
            yield from self._reduce_parts(op)
        else:
            yield step

    def _why_undivided(self, steps: Sequence[_Step]) -> str:
        """Return a sentence on the first operation that needs the whole batch, if no operation runs in a loop."""
        reads_batch = (step for step in steps if any(self._axis_of(v) is not None for v in step.invars))
        first = next((step.op for step in reads_batch if step.part is None and step.op is not None), None)
        if first is None:
            places = (step.op.lines for step in steps if step.op is not None)
            where = next((place for place in places if place != UNKNOWN_LINES), UNKNOWN_LINES)
            return (
                f"the loss that starts with {where} does not read the batch. If its code states the batch size as a "
                "number, take this number from the shape of an argument instead."
            )
        return f"{first.name} in {first.lines} needs the whole batch, and no operation before it is divided."

    def _axis_of(self, atom: Any) -> int | None:
        return self._axes.get(atom) if isinstance(atom, Variable) else None

    def _part_runner(self, op: Operation, other: Any) -> Callable[[Sequence[Any], Any], list[Any]]:
        def run(operands: Sequence[Any], which: Any) -> list[Any]:
            return run_equation_part(op.eqn, other, operands, Part(which, self._count))

        return run

    def _has_partial_results(self, op: Operation) -> bool:
        """Return whether an operation reduces the batch axis, and needs less memory if it reduces each part first."""
        params, axes = op.eqn.params, tuple(self._axis_of(v) for v in op.invars)
        if op.name in _SPLIT_REDUCTIONS:
            is_reduced = axes[0] in params["axes"]
            if is_reduced and len(params["axes"]) > 1:
                return True
        else:
            is_reduced = op.name == "dot_general" and axes in zip(*params["dimension_numbers"][0], strict=True)
        if not is_reduced:
            return False
        result = op.outvars[0].aval
        is_narrow = jnp.issubdtype(result.dtype, jnp.inexact) and result.dtype.itemsize < 4  # a part may overflow
        inside = {*variables_of(op.invars)} & self._in_loops
        return not is_narrow and self._count * nbytes(result) < sum(nbytes(v.aval) for v in inside)

    def _reduce_parts(self, op: Operation) -> Iterator[_Step]:
        """Split a reduction of the batch axis in two: of each part, which runs in a loop, and of the results."""
        eqn, result = op.eqn, op.outvars[0].aval
        middle = Variable(jax.core.ShapedArray((self._count, *result.shape), result.dtype))
        self._axes[middle] = 0

        def reduce_part(operands: Sequence[Any]) -> list[Any]:
            return [jnp.expand_dims(eqn.primitive.bind(*operands, **eqn.params), 0)]

        def reduce_results(operands: Sequence[Any]) -> list[Any]:
            if op.name == "dot_general":
                return [with_weak_type(jnp.sum(operands[0], 0, dtype=result.dtype), result)]
            return [eqn.primitive.bind(*operands, **{**eqn.params, "axes": (0,)})]

        yield _Step(op.invars, [middle], reduce_part, lambda operands, _: reduce_part(operands))
        yield _Step([middle], op.outvars, reduce_results, None, op=op)

    def _set_stages(self, steps: Sequence[_Step]) -> None:
        """Number the loops: a loop runs after all operations outside of loops whose results it reads."""
        available: dict[Any, int] = {}
        makers: dict[Any, _Step] = {}
        readers: dict[_Step, list[_Step]] = {}
        for step in steps:
            for v in variables_of(step.invars):
                after_loop = v in makers and makers[v].part is not None and step.part is None
                step.stage = max(step.stage, available.get(v, 0) + after_loop)
                if v in makers:
                    readers.setdefault(makers[v], []).append(step)
            available.update(dict.fromkeys(step.outvars, step.stage))
            makers.update(dict.fromkeys(step.outvars, step))
        returned = set(variables_of(self._program.outputs))
        for step in reversed(steps):  # positions and random bits are made in the loop that reads them first
            made_of_nothing = step.part is not None and all(
                self._axis_of(v) is None or (v in makers and makers[v].makes) for v in variables_of(step.invars)
            )
            later = readers.get(step, [])
            if made_of_nothing and later and returned.isdisjoint(step.outvars):
                step.makes = True
                step.stage = min(reader.stage - (reader.part is None) for reader in later)

    def _results_to_store(self, steps: Sequence[_Step], limit: int) -> Collection[Variable]:
        makers = {v: step for step in steps for v in step.outvars}
        loops: dict[int, list[_Step]] = {}
        for step in steps:
            if step.part is not None:
                loops.setdefault(step.stage, []).append(step)
        stored = results_to_store(
            loops,
            loop_of=lambda step: step.stage,
            operands=functools.cache(lambda step: self._recomputed_for(step, makers)),
            cost=functools.cache(lambda step: 0.0 if step.eqn is None else heavy_flops(step.eqn)),
            size=lambda step: sum(nbytes(v.aval) for v in step.outvars),
            limit=limit,
        )
        return {v for step in stored for v in step.outvars}

    def _recomputed_for(self, step: _Step, makers: Mapping[Any, _Step]) -> list[_Step]:
        """Return the steps whose results a step reads, and which each loop that runs this step recomputes."""
        read = [v for v in variables_of(step.invars) if v in self._program.recomputed and v in makers]
        return [makers[v] for v in read if v not in self._stored and makers[v].is_recomputable]

    def _make_regions(self, steps: Sequence[_Step]) -> list["_Region"]:
        makers = {v: step for step in steps for v in step.outvars}
        loops = {
            stage: self._steps_of_loop(stage, steps, makers)
            for stage in sorted({step.stage for step in steps if step.part is not None})
        }
        read_outside = set(variables_of(self._program.outputs))
        read_outside.update(v for step in steps if step.part is None for v in variables_of(step.invars))
        read_outside.update(v for inside in loops.values() for v in _read_by(inside))
        found = []
        for stage, members in loops.items():
            inside = [step for step in steps if step in members]
            outputs = [v for step in inside if step.stage == stage for v in step.outvars if v in read_outside]
            if outputs:
                found.append(_Region(stage, self._with_casts(inside, makers), outputs))
        return found

    def _steps_of_loop(self, stage: int, steps: Sequence[_Step], makers: Mapping[Any, _Step]) -> set[_Step]:
        """Return the steps of a loop, with those of earlier loops whose results are recomputed in this loop."""
        found = {step for step in steps if step.part is not None and step.stage == stage}
        remaining = [*found]
        while remaining:
            for maker in self._recomputed_for(remaining.pop(), makers):
                remaining += {maker} - found
                found.add(maker)
        return found

    def _with_casts(self, inside: list[_Step], makers: dict[Any, _Step]) -> list[_Step]:
        """Move casts of weights to fewer bits into the loop, so that their gradients are summed at full precision."""
        made = {v for step in inside for v in step.outvars}
        casts = []
        for v in dict.fromkeys(v for step in inside for v in variables_of(step.invars) if v not in made):
            maker = makers.get(v)
            if maker is None or maker.eqn is None or maker.eqn.primitive.name != "convert_element_type":
                continue
            before, after = maker.eqn.invars[0].aval.dtype, maker.eqn.outvars[0].aval.dtype
            floats = all(jnp.issubdtype(dtype, np.floating) for dtype in (before, after))
            if self._axis_of(v) is None and floats and before.itemsize > after.itemsize:
                casts.append(dataclasses.replace(maker, part=_same_for_all_parts(maker.whole)))
        return [*casts, *inside]

    def returns(self, variable: Variable) -> bool:
        """Return whether a result is stored for the whole batch.

        This is so if it is computed outside of loops, or if the loss or an operation outside of its loop reads it.
        """
        return variable not in self._hidden

    # Execution

    def run(self, operands: Sequence[Any]) -> list[Any]:
        """Return the results of the loss for the leaves of its arguments."""
        program = self._program
        env = program.environment(operands)
        last = max((step.stage for step in self._outside), default=0)
        regions = {region.stage: region for region in self._regions}
        latest = dict[Variable, Any]()
        for stage in range(max(last, *regions) + 1):
            for step in self._outside:
                if step.stage == stage:
                    env.update(zip(step.outvars, step.whole([value_of(v, env) for v in step.invars]), strict=True))
            if stage in regions:
                self._run_region(regions[stage], env, latest)
        return program.results(env)

    def _run_region(self, region: "_Region", env: dict[Any, Any], latest: dict[Variable, Any]) -> None:
        """Run a loop, and add its results to `env`.

        Args:
          region: the loop.
          env: the values of all variables that it reads, for the whole batch.
          latest: for values that all parts of several loops read, such as weights, the copies from the last such loop.
        """
        sliced = [v for v in region.reads if self._axis_of(v) is not None]
        fixed = [v for v in region.reads if self._axis_of(v) is None]
        shared = [v for v in fixed if v in self._shared and jnp.issubdtype(jnp.result_type(env[v]), jnp.inexact)]

        def compute(
            which: Any, copies: Sequence[Any], fixed_values: Sequence[Any], slices: Sequence[Any]
        ) -> tuple[list[Any], list[Any]]:
            given = dict(zip(fixed, fixed_values, strict=True))
            passed = []
            for v, copy in zip(shared, copies, strict=True):
                given[v], copy = _differentiated_as_copy(given[v], copy)
                passed.append(copy)
            inside = {v: _as_original_dtype(value, env[v]) for v, value in given.items()}
            inside.update(zip(sliced, slices, strict=True))
            for step in region.steps:
                assert step.part is not None, "only such operations are in regions"
                results = step.part([value_of(v, inside) for v in step.invars], which)
                inside.update(zip(step.outvars, results, strict=True))
            return passed, [inside[v] for v in region.outputs]

        once = jax.checkpoint(compute, prevent_cse=False)
        values = {v: _as_float32(env[v]) for v in fixed}
        stacks = [stacked(env[v], self._axis_of(v) or 0, self._count) for v in sliced]
        copies, results = lax.scan(
            lambda copies, xs: once(xs[0], copies, [*values.values()], xs[1]),
            [jnp.asarray(latest.get(v, values[v])) for v in shared],
            (jnp.arange(self._count), stacks),
        )
        latest.update(zip(shared, copies, strict=True))
        for v, result in zip(region.outputs, results, strict=True):
            axis = self._axis_of(v)
            env[v] = result[0] if axis is None else unstacked(result, axis)


@jax.custom_jvp
def _differentiated_as_copy(value: Any, copy: Any) -> tuple[Any, Any]:
    """Return a value and an equal copy of it, both with the derivative of the copy.

    A loop carries the copy unchanged, and the next loop starts with it. So the backward pass adds up the gradients of
    all loops in one array that its loops carry. If a loop closed over the value instead, JAX would start a sum of zeros
    for each loop, and XLA for a CPU allocates all of them before the first loop of the backward pass.
    """
    return value, copy


@_differentiated_as_copy.defjvp
def _differentiate_copy(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> Any:
    return primals, (tangents[1], tangents[1])


def _as_float32(value: Any) -> Any:
    """Return a 16-bit float as float32: a loop adds up the gradients of its iterations in the dtype of the value."""
    dtype = jnp.result_type(value)
    return value.astype(jnp.float32) if jnp.issubdtype(dtype, np.floating) and dtype.itemsize < 4 else value


def _as_original_dtype(value: Any, original: Any) -> Any:
    return value.astype(original.dtype) if jnp.result_type(value) != jnp.result_type(original) else value


def chunked_batch(whole: Any, part: Any, count: int, stored_bytes: int = 0) -> ChunkedLoss:
    """Return a loss that computes all operations in chunks of the batch that commute with slicing.

    Args:
      whole, part: the jaxprs of the loss for the whole batch and for one of `count` parts.
      count: the number of parts.
      stored_bytes: a limit on the results inside of checkpoints that are stored for later loops.

    Raises:
      NotPaired: if the two programs differ in more than the length of the batch axis.
    """
    with contextlib.suppress(NotPaired):
        program, axes, parts = _paired(whole, part, count)
        if all(op.name not in jax_compat.CHECKPOINTS or commutes(op.eqn, parts[op], count) for op in parts):
            return ChunkedLoss(program, axes, parts, count, stored_bytes)
    return ChunkedLoss(*_paired(whole, part, count, jax_compat.CHECKPOINTS), count, stored_bytes)


def chunked_head(whole: Any, count: int) -> ChunkedLoss:
    """Return a loss that computes its head in chunks along the axis that leaves the fewest bytes outside of loops.

    Args:
      whole: the jaxpr of the loss.
      count: the number of chunks.

    Raises:
      NotPaired: if the result of the head's matmul would be stored outside of loops for each axis.
    """
    (program,) = with_batched_gathers(program_with_head(whole))
    found: list[tuple[int, int, ChunkedLoss]] = []
    for matmul, head, length in heads(program, count):
        with contextlib.suppress(NotPaired):
            chunked = ChunkedLoss(program, head.axes, head.parts, count)
            if not chunked.returns(matmul.outvars[0]):
                found.append((chunked.hidden_bytes, length, chunked))
    if not found:
        raise NotPaired
    return max(found, key=lambda each: each[:2])[2]


def _paired(
    whole: Any, part: Any, count: int, opened: Collection[Any] = ()
) -> tuple[FlatProgram, dict[Variable, Any], Parts]:
    """Return the program of a loss with the batch axis of each variable, and the equations of the program for a part.

    Args:
      whole, part, count: as for `chunked_batch`.
      opened: as for `flat_program`.
    """
    program, smaller = with_batched_gathers(*(flat_program(each, opened) for each in (whole, part)))
    forms = [[(op.name, len(op.invars), len(op.outvars)) for op in each.operations] for each in (program, smaller)]
    if forms[0] != forms[1] or len(program.constants) != len(smaller.constants):
        raise NotPaired(_first_difference(program, smaller))
    axes = known_axes(zip(program.variables, smaller.variables, strict=True), count)
    parts = dict[Operation, Any]()
    for op, other in zip(program.operations, smaller.operations, strict=True):
        parts[op] = other.eqn
        if not _has_same_ranks(op, other):
            _derive_part(op, axes, parts, count)
    return program, axes, parts


def _first_difference(program: FlatProgram, smaller: FlatProgram) -> str:
    """Return a sentence on the first operation that a program for a part of the batch does not have."""
    for op, other in itertools.zip_longest(program.operations, smaller.operations):
        if op is None or other is None or op.name != other.name or len(op.invars) != len(other.invars):
            names = ["no operation" if each is None else jax_compat.primitive_name(each.eqn) for each in (op, other)]
            if names[0] == names[1] == "optimization_barrier":  # of nested checkpoints
                return "its checkpoints for a part of the batch include other operations. Choose another checkpoint=."
            where = (op or other).lines
            return f"its program for a part of the batch differs at {where}, with {names[1]} in place of {names[0]}."
    return "its program for a part of the batch reads other constants."


def _has_same_ranks(op: Operation, smaller: Operation) -> bool:
    """Return whether an operation and its equation for a part have the same ranks.

    The ranks differ if JAX treats axes of length 1 specially.
    """
    pairs = zip((*op.invars, *op.outvars), (*smaller.invars, *smaller.outvars), strict=True)
    return all(len(a.aval.shape) == len(b.aval.shape) for a, b in pairs)


def _derive_part(op: Operation, axes: dict[Variable, int | None], parts: dict[Operation, Any], count: int) -> None:
    """Replace the equation for a part by an equation derived from the one for the whole batch, if there is one."""
    if op.name not in DERIVED or not axes.keys() >= set(variables_of(op.invars)):
        return
    for part in part_equations(op, axes, count):
        found = axes_of_results(op, part)
        if all(axes.get(v, axis) == axis for v, axis in found.items()):
            parts[op] = part
            axes.update(found)
            return


@dataclasses.dataclass(frozen=True)
class _Region:
    """Operations that run in one loop over the parts of the batch, and the results that are read outside of it."""

    stage: int
    steps: Sequence[_Step]
    outputs: Sequence[Variable]

    @property
    def reads(self) -> list[Variable]:
        """The variables that the operations read, and that none of them defines."""
        made = {v for step in self.steps for v in step.outvars}
        return [v for v in dict.fromkeys(v for s in self.steps for v in variables_of(s.invars)) if v not in made]


def _read_by(steps: Collection[_Step]) -> set[Variable]:
    """Return the variables that steps read, and that others define."""
    return {v for step in steps for v in variables_of(step.invars)} - {v for step in steps for v in step.outvars}


def _same_for_all_parts(run: Runner) -> Callable[[Sequence[Any], Any], list[Any]]:
    return lambda operands, _: run(operands)
