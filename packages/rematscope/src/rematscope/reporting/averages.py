"""Prove that the gradient of a step is the mean of the gradients of its microbatches.

The step is traced for the whole batch and for a part of it. For each value of these programs, rules decide how the
value for the whole batch follows from the values for its parts: all are equal, the value is the concatenation of the
parts' values, or it is their sum. If the loss is the mean of the losses of the parts for all parameters and data, and
each operation before the loss follows a rule too, then the gradient of the loss is the mean of the parts' gradients.
The proof runs no operation, so it also works for large models. A value that no rule covers is unknown, and nothing is
proved about the values that depend on it. If the loss is unknown, the values that it computes from data only become
arguments, which `rematscope.reporting.whole_values` computes for the whole batch, and the changed step is proved.
"""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

from rematscope import jax_compat
from rematscope.errors import PlanError
from rematscope.ir.source import lines_of
from rematscope.reporting.arrays import with_explicit_sharding
from rematscope.reporting.batch_axis import (
    NotPaired,
    Pair,
    axes_of,
    batch_axis,
    commutes,
    custom_gradient,
    equal_values,
    is_float,
    is_map,
    is_opaque,
    makes_batch,
    same_equation,
    same_maps,
    same_params,
)
from rematscope.reporting.batch_blocks import ANY, blocks_of_results, is_divisible, makes_positions
from rematscope.reporting.flat_program import FlatProgram, Operation, Variable, flat_program, variables_of
from rematscope.reporting.flat_step import FlatStep, cotangent_divisor, explain_other_size
from rematscope.reporting.gathers import with_batched_gathers
from rematscope.reporting.gradient_loops import Divided, mark_of
from rematscope.reporting.microbatches import Microbatches, comparable_interface
from rematscope.reporting.whole_values import LossChanges, NoWholeValues, WholeValues
from rematscope.tracing.checkpoints import CalledOnce, replace_calls

_CUSTOM_GRADIENTS = frozenset({"custom_vjp_call"})
_LINEAR = frozenset(
    "neg reshape broadcast_in_dim squeeze expand_dims transpose copy name stop_gradient reduce_sum slice rev "
    "optimization_barrier sharding_constraint reshard convert_element_type split unstack".split()
)
_DIVISIONS = frozenset({"split", "unstack"})  # their results are parts of the operand
_SUMS = frozenset({"add", "sub", "add_any", "concatenate", "stack"})
_PRODUCTS = frozenset({"mul", "dot_general", "conv_general_dilated"})
_MARK = "rematscope.loss"
_OTHER = "other"  # in place of the batch axis of a value whose shapes differ in more than one axis
USE_CHUNKS = " Use chunks=, which computes the same gradient."


class Relation(NamedTuple):
    """The relation of a value for the whole batch to the values for the parts.

    Attributes:
      how: `"same"`: the value for the whole batch is `scale` times the value for each part. `"sliced"`: each slice of
        it along the batch axis is `scale` times the value for that part. `"sum"`: it is `scale` times the sum over the
        parts. `"zero"`: all values are 0. `"unknown"`: no rule covers an operation that it depends on.
      scale: the factor.
      cause: of an unknown relation, the equation that no rule covers, for the whole batch and for a part.
      blocks: of a sliced value, the number of blocks of its batch axis; see `rematscope.reporting.batch_blocks`. `ANY`
        if the values of all examples are equal.
    """

    how: str
    scale: Fraction = Fraction(1)
    cause: Any = None
    blocks: int = 1


_Rule = Callable[[Pair, Sequence[Relation]], Sequence[Relation]]
_SAME, _SLICED, _ZERO, _UNKNOWN = map(Relation, ("same", "sliced", "zero", "unknown"))


class WholeStep:
    """A step, which is traced for its whole batch once, and again for each number of microbatches.

    Args:
      step: the step. Only the types of its arguments are used.
      loops: whether each `jax.vmap` over the batch is traced as a loop over its examples.
    """

    def __init__(self, step: FlatStep, loops: bool = False):
        leaves = [with_explicit_sharding(v) if isinstance(v, jax.core.Tracer) else v for v in step.leaves]
        self.step, self._loops = dataclasses.replace(step, leaves=leaves), loops

    @functools.cached_property
    def in_loops(self) -> "WholeStep":
        """The step with loops over examples."""
        return WholeStep(self.step, loops=True)

    @functools.cached_property
    def program(self) -> tuple[FlatProgram, list[Any]]:
        """The program with marks at the inputs and outputs of the loss, and the jaxprs of the losses."""
        return self.part(1)

    def part(self, count: int) -> tuple[FlatProgram, list[Any]]:
        """Return the same for one of `count` parts of the batch."""
        losses = list[Any]()

        def record(once: CalledOnce, given: Sequence[Any]) -> Any:
            losses.append(once.jaxpr)
            number = len(losses) - 1
            consts = _with_mark_names(once.jaxpr.consts, number, "constant")
            results = jax.core.eval_jaxpr(once.jaxpr.jaxpr, consts, *_with_mark_names(given, number, "operand"))
            return once.returning(_with_mark_names(results, number, "result"))

        length = self.step.batch_lengths[0] // count
        with jax_compat.maps_as_loops(length) if self._loops else contextlib.nullcontext():
            jaxpr = self.step.jaxpr(count, lambda loss, _: replace_calls(loss, record))
        return flat_program(jaxpr, jax_compat.CHECKPOINTS), losses


def prove(step: WholeStep, count: int) -> tuple[str, WholeValues | None]:
    """Prove that `count` microbatches give a step's results.

    A proof for loops over examples in place of each `jax.vmap` is enough: both compute the same values.

    Returns:
      A sentence on why this is not proved, or ""; and the step with values of the whole batch if its microbatches need
      them.

    Raises:
      PlanError: if the step cannot be divided; see `rematscope.reporting.gradient_loops.divided`.
    """
    step.step.check_microbatches(count)
    why, plain, losses = _why_not(step, count)
    if why and plain is not None:
        with contextlib.suppress(Exception):  # any error of a step whose maps are replaced
            other, program, _ = _why_not(step.in_loops, count)
            is_same = program is not None and comparable_interface(program)[1:] == comparable_interface(plain)[1:]
            if is_same and not other:
                return "", None
    if not why or not losses:
        return why, None
    try:
        values = WholeValues(step.step, losses)
    except NoWholeValues:
        return why, None
    why, *_ = _why_not(WholeStep(values.changed), count)
    return why, None if why else values


def _why_not(step: WholeStep, count: int) -> tuple[str, Divided | None, dict[tuple[int, int], LossChanges]]:
    """Return such a sentence for a step as it is, the step for a part, and what its losses need of the whole batch.

    The step for a part is None if it cannot be divided.
    """
    microbatches, name, inputs = Microbatches(step.step, count), step.step.name, map(_of_argument, step.step.axes)
    (whole, losses), (part, smaller) = step.program, step.part(count)
    try:
        (larger, program), _ = microbatches.divided_pair(whole, part)
        proof = _Proof(count, losses, smaller, name, program, step.step.blocks)
        relations = proof.of_step(larger.program, [_SAME, *inputs])
    except NotPaired:
        return f"The program of {name} for a microbatch differs from that for the whole batch.", None, {}
    equations = [[op.eqn for op in each.operations] for each in (whole, part)]
    if proof.has_maps and not same_maps(*equations):
        return f"The gradient of {name} for an example depends on the length of the batch.", program, {}
    why = proof.refusal or _why_not_returned(relations, larger, program, proof, microbatches, name)
    return why, program, proof.changes if why else {}


def _why_not_returned(
    relations: Mapping[Variable, Relation],
    larger: Divided,
    program: Divided,
    proof: "_Proof",
    microbatches: Microbatches,
    function: str,
) -> str:
    """Return a sentence on a value that the step returns, or uses after its gradients, and that is not proved."""
    names = dict(zip(program.program.variables, larger.program.variables, strict=True))
    for loop in program.loops:
        for v in loop.crossing:
            if v in loop.same[0]:
                continue
            found = relations.get(names[v], _UNKNOWN)
            try:
                axis = microbatches.stack_axis(names[v], v, loop)
            except PlanError as error:
                return str(error)
            if v in loop.gradients:
                continue
            if v in loop.totals:
                is_known = found in (Relation("sum"), _ZERO)
            else:
                is_known = _one_block(found) in (_SLICED, _ZERO) if axis is not None else proof.is_mean(found)
            if not is_known:
                what = f"{v.aval.dtype}{list(names[v].aval.shape)}"
                how = "a sum over the examples" if v in loop.totals else "an average over the microbatches"
                return (
                    f"{function} returns, or uses after its gradient, {what} that is not proved to be {how}"
                    f"{_cause_of(found)}."
                )
    return ""


def prove_or_explain(step: WholeStep, count: int) -> tuple[str, WholeValues | None]:
    """Return what `prove` returns, or the reason why the step cannot be divided at all."""
    try:
        return prove(step, count)
    except PlanError as error:
        return str(error), None
    except Exception as error:  # any error that the step raises for another batch size
        return explain_other_size(step.step.name, error), None


def _with_mark_names(values: Sequence[Any], loss: int, what: str) -> list[Any]:
    name: Callable[[Any, str], Any] = checkpoint_name
    return [name(v, f"{_MARK}:{loss}:{what}:{i}") for i, v in enumerate(values)]


class _Loss:
    """A loss of a step, for the whole batch and for a part, and the relations of its operands and results."""

    def __init__(self, whole: Any, part: Any):
        as_written = [flat_program(each, jax_compat.CHECKPOINTS) for each in (whole, part)]
        self.operations = as_written[0].operations
        self.programs = with_batched_gathers(*as_written)
        self.operands: dict[str, dict[int, Relation]] = {"constant": {}, "operand": {}}
        self.results: list[Relation] | None = None

    @property
    def opened(self) -> list[FlatProgram]:
        """The programs of the loss as functions of its operands and of the values that it closes over."""
        return [
            program._replace(inputs=[*program.inputs, *program.constants], constants={}) for program in self.programs
        ]

    @property
    def inputs(self) -> list[Relation]:
        """The relations of the inputs of `opened`."""
        closed_over, (whole, part) = self.operands["constant"], self.programs
        pairs = enumerate(zip(whole.constants.values(), part.constants.values(), strict=True))
        constants = [closed_over.get(i) or _of_constants(one, other) for i, (one, other) in pairs]
        return [*(self.operands["operand"].get(i, _UNKNOWN) for i in range(len(whole.inputs))), *constants]


class _Proof:
    """The relations between the values of two programs.

    Args:
      count: the number of parts of the batch.
      losses, smaller: the jaxprs of the losses for the whole batch and for a part, in the order of their traces.
      function: the name of the step.
      division: the step for a part, divided at its gradients.
      blocks: the number of blocks of the batch axes of the inputs; see `rematscope.reporting.arrays.device_blocks`.
        A part has rows of each block.
    """

    def __init__(
        self,
        count: int,
        losses: Sequence[Any],
        smaller: Sequence[Any],
        function: str,
        division: Divided,
        blocks: int,
    ):
        self._count = count
        self._function = function
        self._jaxprs, self._losses = (losses, smaller), dict[tuple[int, int], list[_Loss]]()
        self._division = division
        self._refusals = list[str]()
        self._has_value = False
        self.has_maps = False  # whether a scan over examples counts as independent, if its derivative does too
        self._whole_of = dict[Any, Variable]()
        self._counts = set[Variable]()  # see `_look_at_count`
        self._input_blocks = blocks
        self._outer_blocks = blocks  # the number of blocks of the axis in which the blocks of relations are counted
        self._is_in_rule = False  # in the rule of a custom gradient, other functions' custom gradients are not used

    @property
    def _mean(self) -> Relation:
        """The relation of a value for the whole batch that is the mean over the parts."""
        return Relation("sum", Fraction(1, self._count))

    def is_mean(self, relation: Relation) -> bool:
        """Return whether a relation implies that the value for the whole batch is the mean over the parts."""
        return relation in (_SAME, _ZERO, self._mean)

    def of_step(self, whole: FlatProgram, inputs: Sequence[Relation]) -> dict[Variable, Relation]:
        """Return the relations of the variables of a step that are defined in its loops, and before them.

        Each loop reads the results of earlier loops, and of the operations between them, for the whole batch.
        """
        division, part = self._division, self._division.program
        place = {op: i for i, loop in enumerate(division.loops) for op in loop.each}
        outside = {op for loop in division.loops for op in loop.after}
        home = {v: place.get(op, len(place) if op in outside else None) for op in part.operations for v in op.outvars}

        def relation_for(op: Operation) -> Callable[[Variable], Relation | None] | None:
            if op in outside:
                return None

            def known(v: Variable) -> Relation | None:
                if home.get(v) in (None, place.get(op)):
                    return None
                return _SLICED if v in division.axes else _SAME

            return known

        return self.of_program(whole, part, inputs, relation_for)

    def of_program(
        self,
        whole: FlatProgram,
        part: FlatProgram,
        inputs: Sequence[Relation],
        relation_for: Callable[[Operation], Callable[[Variable], Relation | None] | None] = lambda _: lambda _: None,
        rule: _Rule | None = None,
    ) -> dict[Variable, Relation]:
        """Return the relation of each variable of a program for the whole batch.

        Args:
          whole, part: the program for the whole batch and for a part.
          inputs: the relations of its inputs.
          relation_for: returns for an operation for a part the relations of those variables that it does not read from
            its own loop, or None if the operation is not in a loop, and its results have no relation.
          rule: returns the relations of the results of an operation; `_of_operation` by default.
        """
        rule = rule or self._of_operation
        found: dict[Variable, Relation] = dict(zip(whole.inputs, inputs, strict=True))
        both = zip(whole, part, strict=True)
        if any(len(one) != len(other) for one, other in both):
            raise NotPaired
        self._whole_of.update(zip([*part.inputs, *part.constants], [*whole.inputs, *whole.constants], strict=True))
        for (v, one), other in zip(whole.constants.items(), part.constants.values(), strict=True):
            found[v] = _of_constants(one, other)
        for op, smaller in zip(whole.operations, part.operations, strict=True):
            lengths = [(len(each.invars), len(each.outvars)) for each in (op, smaller)]
            same = op.eqn.primitive is smaller.eqn.primitive and op.name == smaller.name
            if not same or lengths[0] != lengths[1]:
                raise NotPaired
            self._whole_of.update(zip(smaller.outvars, op.outvars, strict=True))
            known, pair = relation_for(smaller), Pair(op.eqn, op.invars, op.outvars, smaller, self._count)
            if known is None:
                self._look_at_operand(pair)
                continue
            operands = [self._of_atom(a, b, found, known) for a, b in zip(op.invars, smaller.invars, strict=True)]
            found.update(zip(op.outvars, rule(pair, operands), strict=True))
            self._look_at_count(op)
        return found

    def _of_outputs(self, whole: FlatProgram, part: FlatProgram, inputs: Sequence[Relation]) -> list[Relation]:
        """Return the relations of the outputs of a program; see `of_program`."""
        found = self.of_program(whole, part, inputs)
        return [self._of_atom(a, b, found) for a, b in zip(whole.outputs, part.outputs, strict=True)]

    def _look_at_count(self, op: Operation) -> None:
        """Record an integer that counts elements: a sum of booleans, which cannot wrap around."""
        (operand,) = op.invars if len(op.invars) == 1 else (None,)
        is_truth = op.name == "convert_element_type" and op.eqn.invars[0].aval.dtype == bool
        if is_truth or (op.name == "reduce_sum" and operand in self._counts):
            self._counts.update(op.outvars)

    def _of_atom(
        self,
        atom: Any,
        smaller: Any,
        found: dict[Variable, Relation],
        known: Callable[[Variable], Relation | None] = lambda _: None,
    ) -> Relation:
        if isinstance(atom, Variable):
            if not isinstance(smaller, Variable) or self._whole_of[smaller] is not atom:
                raise NotPaired
            return known(smaller) or found[atom]
        if not jax_compat.is_literal(smaller):
            raise NotPaired
        return self._of_literals(jax_compat.literal_value(atom), jax_compat.literal_value(smaller))

    def _of_literals(self, one: Any, other: Any) -> Relation:
        """Return the relation of two literals, which may be powers of the length of the batch."""
        if getattr(one, "dtype", None) == jax.dtypes.float0:  # the cotangent of an integer
            return _ZERO
        if equal_values(one, other):
            return _ZERO if np.ndim(one) == 0 and jnp.isscalar(one) and one == 0 else _SAME
        if np.ndim(one) or np.ndim(other) or np.iscomplexobj(one) or np.iscomplexobj(other) or not float(other):
            return _UNKNOWN
        ratio, dtype = float(one) / float(other), getattr(one, "dtype", None)
        # Only rounding may differ: the lengths plus a small number, or minus one, are not such powers.
        tolerance = 2 * float(
            jnp.finfo(dtype if dtype is not None and jnp.issubdtype(dtype, jnp.floating) else float).eps
        )
        for power in (1, -1, 2, -2):
            if math.isclose(ratio, float(self._count) ** power, rel_tol=tolerance):
                return Relation("same", Fraction(self._count) ** power)
        return _UNKNOWN

    def _of_operation(self, op: Pair, operands: Sequence[Relation]) -> Sequence[Relation]:
        mark = jax_compat.checkpoint_name(op.eqn) or ""
        if mark.startswith(_MARK):
            is_example = op.part in self._division.of_examples
            other = jax_compat.checkpoint_name(op.part.eqn) or ""
            return operands if is_example else [self._at_loss(mark, other, operands[0])]
        gradient = mark_of(op)
        if gradient is not None:
            self._has_value |= op.part in self._division.of_examples
            if op.part not in self._division.of_examples:
                self._look_at_gradient(gradient.what, operands[0])
            return operands
        unknown = [Relation("unknown", cause=self._cause_of_unknown(op, operands))] * len(op.outvars)
        if any(r.how == "unknown" for r in operands):
            return unknown
        try:
            return self._relations_in_blocks(op, operands) or unknown
        except NotPaired:
            return unknown

    def _relations_in_blocks(self, op: Pair, operands: Sequence[Relation]) -> Sequence[Relation] | None:
        """Return the relations of the results of an operation whose operands may have several blocks.

        All operands must have the same blocks. Then the operation, and its bodies, are treated as if these were one.
        """
        joined = self._of_joined_blocks(op, operands)
        if joined is not None:
            return joined
        numbers = {r.blocks for r in operands if r.how == "sliced"}
        blocks = max(numbers, default=ANY)
        if not numbers <= {ANY, blocks}:
            return None
        outer, is_made = self._outer_blocks, makes_positions(op)
        around = outer * max(blocks, 1)
        if around > 1 and not is_divisible(op, around):
            return None
        if around != self._input_blocks and is_made:
            return None
        self._outer_blocks = around
        try:
            found = self._known_relations(op, [r._replace(blocks=1) for r in operands])
        finally:
            self._outer_blocks = outer
        if found is None:
            return None
        if blocks == ANY:  # all examples have equal values, unless the operation makes positions or random numbers
            is_simple = not is_made and not jax_compat.bodies(op.eqn) and op.eqn.primitive.name != "reshape"
            blocks = ANY if is_simple else 1
        return [r._replace(blocks=r.blocks * blocks) if r.how == "sliced" else r for r in found]

    def _of_joined_blocks(self, op: Pair, operands: Sequence[Relation]) -> list[Relation] | None:
        """Return the relations of the results of an operation that joins, divides or regroups blocks, or None."""
        present = {r.scale for r in operands if r.how == "sliced"}
        if len(present) != 1 or any(r.how not in ("sliced", "zero") for r in operands):
            return None
        axes = op.before
        pairs = zip(operands, axes, strict=True)
        given = [None if axis is None else r.blocks if r.how == "sliced" else ANY for r, axis in pairs]
        found = blocks_of_results(op, given)
        if found is None or not is_divisible(op, self._outer_blocks):
            return None
        after = zip(op.outvars, op.after, found, strict=True)
        parts = self._outer_blocks * self._count
        if any(v.aval.shape[axis or 0] % (max(n, 1) * parts) for v, axis, n in after):
            return None
        (scale,) = present
        return [Relation("sliced", scale, blocks=n) for n in found]

    def _cause_of_unknown(self, op: Pair, operands: Sequence[Relation]) -> Any:
        """Return the equation, for the whole batch and for a part, that makes the results of an operation unknown.

        A weighted mean is unknown because of its division, and not because of how the divisor is computed.
        """
        causes = [r.cause for r in operands if r.how == "unknown" and r.cause]
        is_mean = op.name == "div" and operands[0].how != "unknown"
        if is_mean and _axes_or_unknown(op.invars[1:], op.part.invars[1:], self._count) == [None]:
            return op.eqns
        return causes[0] if causes else op.eqns

    def _at_loss(self, mark: str, smaller: str, relation: Relation) -> Relation:
        """Return the relation of an operand or a result of a loss, given the marks for the whole batch and a part."""
        _, which, what, number = mark.split(":")
        loss = self._run_of_loss(int(which), int(smaller.split(":")[1]), what)
        if what != "result":
            loss.operands[what][int(number)] = relation
            return relation
        if loss.results is None:
            loss.results = self._of_outputs(loss.opened[0], loss.opened[1], loss.inputs)
        return loss.results[int(number)]

    @property
    def changes(self) -> dict[tuple[int, int], LossChanges]:
        """What the losses, by the numbers of their traces, need of the whole batch; only those that need something."""
        found = {pair: [self._changes_of(run) for run in runs] for pair, runs in self._losses.items()}
        needed = {pair: runs for pair, runs in found.items() if any(run.reads or run.factors for run in runs)}
        each = [*zip(*needed, strict=True)]
        if any(len(runs) > 1 for runs in needed.values()) or any(len({*which}) < len(which) for which in each):
            return {}  # a loss with one trace for several runs cannot read values of its run
        return {pair: run for pair, (run,) in needed.items()}

    def _changes_of(self, loss: _Loss) -> LossChanges:
        """Return which values of a loss, computed from data only, let the rules cover more of its operations."""
        whole, part = loss.opened
        changes = LossChanges([op.name for op in loss.operations])
        if loss.results is None:
            return changes
        of_data = set(whole.inputs[len(loss.programs[0].inputs) :])
        places = {v: i for i, op in enumerate(loss.operations) for v in op.outvars}

        def rule(op: Pair, operands: Sequence[Relation]) -> Sequence[Relation]:
            found = self._of_operation(op, operands)
            is_of_data = jax_compat.is_repeatable(op.eqn, prints=True) and of_data.issuperset(variables_of(op.invars))
            if is_of_data:
                of_data.update(op.outvars)
            if not any(r.how == "unknown" for r in found):
                return found
            place = places.get(op.outvars[0])
            if place is None or loss.operations[place].eqn is not op.eqn:  # of a gather that was replaced
                return found
            axes = _axes_or_unknown(op.outvars, op.part.outvars, self._count)
            if is_of_data and all(axis is None for axis in axes):
                return found
            return self._with_whole_values(op, operands, of_data, is_of_data, place, changes)

        self._change_outputs(whole, part, self.of_program(whole, part, loss.inputs, rule=rule), of_data, changes)
        return changes

    def _with_whole_values(
        self,
        op: Pair,
        operands: Sequence[Relation],
        of_data: Collection[Variable],
        is_of_data: bool,
        place: int,
        changes: LossChanges,
    ) -> Sequence[Relation]:
        """Return the relations of the results of an operation that reads values of the whole batch, if it needs them.

        Args:
          op, operands: the operation, and the relations of its operands.
          of_data: the variables that are computed from data only.
          is_of_data: whether the results are among them. Then the operation may run on a part of the batch, and only
            operands without a batch axis are computed for the whole batch.
          place: the place of the operation in the loss.
          changes: the changes of the loss, to which those of the operation are added.
        """
        axes = _axes_or_unknown(op.invars, op.part.invars, self._count)
        read = [
            i
            for i, (v, axis, relation) in enumerate(zip(op.invars, axes, operands, strict=True))
            if isinstance(v, Variable) and v in of_data and axis != _OTHER
            if _is_inexact(relation) and not (is_of_data and axis is not None)
        ]
        new = [_of_argument(axes[i]) if i in read else relation for i, relation in enumerate(operands)]
        found, factors = self._of_operation(op, new), dict[tuple[int, int], Fraction]()
        if op.name in _SUMS | {"select_n"} and any(r.how == "unknown" for r in found):
            pairs = [*enumerate(zip(op.invars, new, strict=True))]
            factors = {(place, i): f for i, (v, r) in pairs if (f := self._factor_to_mean(v, r)) is not None}
            new = [self._mean if (place, i) in factors else r for i, r in enumerate(new)]
            found = self._of_operation(op, new)
        is_known = not any(r.how == "unknown" for r in found)
        if is_known:
            changes.factors.update(factors)
        # If an operation on data stays unknown, the message is to name it, and not its operands.
        if is_known or not is_of_data:
            for i in read:
                changes.read((place, i), op.invars[i], axes[i])
        return found

    def _change_outputs(
        self,
        whole: FlatProgram,
        part: FlatProgram,
        relations: Mapping[Variable, Relation],
        of_data: Collection[Variable],
        changes: LossChanges,
    ) -> None:
        """Add the changes that make the outputs of a loss means over the parts of the batch."""
        place = len(changes.names)
        axes = _axes_or_unknown(whole.outputs, part.outputs, self._count)
        for i, (v, axis) in enumerate(zip(whole.outputs, axes, strict=True)):
            if not isinstance(v, Variable):
                continue
            relation = relations[v]
            factor = self._factor_to_mean(v, relation)
            if v in of_data and axis != _OTHER and _is_inexact(relation) and not self.is_mean(relation):
                changes.read((place, i), v, axis)
            elif factor is not None:
                changes.factors[place, i] = factor

    def _factor_to_mean(self, atom: Any, relation: Relation) -> Fraction | None:
        """Return the factor of a value for a part that makes it a mean; None if it is none or is no sum."""
        is_sum = relation.how == "sum" and not self.is_mean(relation) and is_float(atom.aval)
        return relation.scale * self._count if is_sum else None

    def _look_at_operand(self, op: Pair) -> None:
        """Record the relation of an operand of a loss that operations outside of loops compute."""
        mark, other = (jax_compat.checkpoint_name(each.eqn) or "" for each in (op, op.part))
        if mark.startswith(_MARK):
            self._at_loss(mark, other, _SLICED if op.part.outvars[0] in self._division.axes else _SAME)

    def _run_of_loss(self, whole: int, part: int, what: str) -> _Loss:
        """Return the run of a loss that an operand, a constant or a result belongs to."""
        runs = self._losses.setdefault((whole, part), [])
        if not runs or (what != "result" and runs[-1].results is not None):  # a jitted gradient may run several times
            runs.append(_Loss(self._jaxprs[0][whole], self._jaxprs[1][part]))
        return runs[-1]

    def _look_at_gradient(self, what: str, relation: Relation) -> None:
        if what == "differentiated" and relation not in (_SAME, _ZERO):
            self._refusals.append(
                f"{self._function} takes the gradient with respect to values that depend on the batch."
            )
        elif what == "cotangent" and relation not in (_SAME, _ZERO):
            self._refusals.append(f"{self._function} scales its gradient by a value that depends on the batch.")
        elif what == "value":
            self._has_value = True
            if not self.is_mean(relation):
                self._refusals.append(
                    f"The loss of {self._function} is not proved to be an average over the examples"
                    f"{_cause_of(relation)}. (A mean with weights that depend on parameters, batch normalization and "
                    "a contrastive loss are not.)"
                    f"{USE_CHUNKS}"
                )

    @property
    def refusal(self) -> str:
        """A sentence on why the gradient is not proved to be an average; "" if it is proved to be one."""
        if not self._has_value:
            return f"The value that {self._function} differentiates was not found."
        return self._refusals[0] if self._refusals else ""

    def _known_relations(self, op: Pair, operands: Sequence[Relation]) -> Sequence[Relation] | None:
        """Return the relations of the results of an operation; None if no rule covers it."""
        axes, name = op.after, op.name
        if name == "scan" and not self._is_in_rule and is_map(*op.eqns, self._count):
            fixed = jax_compat.scan_of(op.eqn).consts
            if {*operands[:fixed]} <= {_SAME, _ZERO} and {*operands[fixed:]} <= {_SLICED, _ZERO}:
                self.has_maps = True
                return [_SLICED] * len(axes)
        if not jax_compat.is_repeatable(op.eqn, prints=True):  # runs once per part, or accesses a mutable array
            return None
        if name in _CUSTOM_GRADIENTS:
            return self._of_custom_gradient(op, operands)
        if not self._is_in_rule and _contains_custom_gradient(op.eqn):
            return self._of_scan(op, operands) if name == "scan" else None
        if name in _LINEAR and operands and all(r == _ZERO for r in operands):
            return [_ZERO] * len(axes)
        plain = [_SAME if r == _ZERO else r for r in operands]
        if all(r == _SAME for r in plain) and all(axis is None for axis in axes):
            return [_SAME] * len(axes) if same_equation(*op.eqns) else None
        may_make = not self._is_in_rule  # a rule runs as it is, and does not know the number of its part
        if may_make and name != "iota" and makes_batch(*op.eqns, self._count):
            return [_SLICED]  # each microbatch uses its part of the random numbers of the whole batch
        divides = commutes(*op.eqns, self._count, may_make=may_make)
        if divides and all(r in (_SAME, _SLICED) for r in plain):
            return [_SAME if axis is None else _SLICED for axis in axes]
        if name == "scan":
            return self._of_scan(op, operands)
        if name == "scatter-add":
            found = self._of_scatter(op, operands)
            return None if found is None else [found]
        scaled = self._of_linear(op, operands, divides)
        if scaled is None or (scaled.how == "sum" and not _is_wide(op)):
            return None
        return [scaled if scaled.how != "same" or axis is None else scaled._replace(how="sliced") for axis in axes]

    def _of_custom_gradient(self, op: Pair, operands: Sequence[Relation]) -> list[Relation] | None:
        """Return the relations of the results of a `custom_vjp` function.

        Its gradients of operands without a batch axis must be sums over the examples. Its gradients must be linear in
        cotangents that have another size for the whole batch than for a part. So the rule is traced with the cotangents
        as further inputs, and the gradients must have the relations that follow from those of the operands. The
        function itself, which runs where it is not differentiated, must have the same results as its rule.
        """
        if is_opaque(op.eqn) or op.eqn.params.get("symbolic_zeros"):
            return None  # the rule is unknown, or may differ for operands that are not differentiated
        try:
            rules = [*map(custom_gradient, op.eqns)]
        except Exception:  # the rule cannot be traced by itself, for example because it names an axis of a mesh
            return None
        functions = [jax_compat.bodies(eqn)[0] for eqn in op.eqns]
        opened = jax_compat.CHECKPOINTS | _CUSTOM_GRADIENTS
        whole, part, function, smaller_function = (flat_program(each, opened) for each in (*rules, *functions))
        count = len(op.outvars)

        floats = [is_float(v.aval) for v in op.outvars]
        results = [*map(_one_block, self._of_rule(whole, part, [*operands, *[_UNKNOWN] * sum(floats)])[:count])]
        if [*map(_one_block, self._of_rule(function, smaller_function, operands))] != results:
            return None
        cotangents = [self._of_cotangent(r) for r, one in zip(results, floats, strict=True) if one]
        gradients = self._of_rule(whole, part, [*operands, *cotangents])[count:]
        given = [(r, v) for r, v in zip(operands, op.invars, strict=True)][op.eqn.params.get("num_consts", 0) :]
        expected = [self._of_cotangent(r) for r, v in given if is_float(v.aval)]
        pairs = zip(gradients, expected, strict=True)
        if not all(g == _ZERO or (g.how != "unknown" and _one_block(g, e.blocks) == e) for g, e in pairs):
            return None
        return results

    def _of_rule(self, whole: FlatProgram, part: FlatProgram, operands: Sequence[Relation]) -> list[Relation]:
        """Return the relations of the outputs of a function with a custom gradient, or of its rule."""
        outer, self._is_in_rule = self._is_in_rule, True
        try:
            return self._of_outputs(whole, part, operands)
        finally:
            self._is_in_rule = outer

    def _of_cotangent(self, relation: Relation) -> Relation:
        """Return the relation of the cotangents of a value, if the loss is the mean of the losses of the parts."""
        how = {"same": "sum", "sum": "same", "sliced": "sliced"}.get(relation.how)
        scale = cotangent_divisor(self._count) / (self._count * relation.scale)
        return _UNKNOWN if how is None else Relation(how, scale, blocks=max(relation.blocks, 1))

    def _of_linear(self, op: Pair, operands: Sequence[Relation], divides: bool) -> Relation | None:
        """Return the relation of the results of an operation that is linear in an operand; None if it is unknown."""
        name, summed = op.name, any(r.how == "sum" for r in operands)
        if (len(op.outvars) != 1 and name not in _DIVISIONS) or not _is_linear(op):
            return None
        if not is_float(op.outvars[0].aval) and not (_is_wide(op) and name in _LINEAR - {"neg"}):
            return None  # integers may wrap around
        is_cast = name == "convert_element_type" and not is_float(op.invars[0].aval)
        if is_cast and summed and op.invars[0] not in self._counts:
            return None  # a sum of integers that wraps around is right only as an integer
        reduced = self._over_batch(op, operands)
        if reduced is not None:
            return reduced
        if summed and any(r.how == "sliced" for r in operands):
            return None
        if not divides and not (summed or same_shapes(op)):
            return None
        if summed and not same_shapes(op):
            return None
        if name in _LINEAR:
            return operands[0]
        if name in _SUMS:
            return self._of_addends(operands)
        if name == "select_n" and operands[0] in (_SAME, _SLICED):
            return self._of_addends(operands[1:])
        if name in _PRODUCTS and sum(r.how == "sum" for r in operands) <= 1:
            scale = math.prod((r.scale for r in operands), start=Fraction(1))
        elif name == "div" and is_float(op.outvars[0].aval) and operands[1].how in ("same", "sliced"):
            scale = operands[0].scale / operands[1].scale
        else:
            return None
        how = _relation_of_product(operands)
        return _ZERO if how == "zero" else Relation(how, scale)

    def _over_batch(self, op: Pair, operands: Sequence[Relation]) -> Relation | None:
        """Return the relation of a sum over the batch: a `reduce_sum`, or a dot that contracts the batch axes."""
        axes = op.before
        if any(r.how != "sliced" for r in operands) or not same_params(op.eqn.params, op.part.eqn.params):
            return None
        if not _is_wide(op):
            return None
        scale = math.prod((r.scale for r in operands), start=Fraction(1))
        if op.eqn.primitive.name == "reduce_sum":
            return Relation("sum", scale) if axes[0] in op.eqn.params["axes"] else None
        if op.eqn.primitive.name == "dot_general":
            (one, other), _ = op.eqn.params["dimension_numbers"]
            places = [list(dims).index(axis) for dims, axis in zip((one, other), axes, strict=True) if axis in dims]
            return Relation("sum", scale) if len(places) == 2 and places[0] == places[1] else None
        return None

    def _of_scatter(self, op: Pair, operands: Sequence[Relation]) -> Relation | None:
        """Return the relation of a scatter that adds values of the examples to zeros, such as a sum per class."""
        axis, of_indices, of_updates = op.before
        windows = op.eqn.params["dimension_numbers"].update_window_dims
        added = [i for i in range(len(op.invars[2].aval.shape)) if i not in windows]
        if operands[0] != _ZERO or axis is not None or of_indices is None or of_indices >= len(added):
            return None
        is_paired = added[of_indices] == of_updates and operands[1] == _SLICED and operands[2].how == "sliced"
        return Relation("sum", operands[2].scale) if is_paired and _is_wide(op) else None

    def _of_addends(self, operands: Sequence[Relation]) -> Relation | None:
        present = [r for r in operands if r.how != "zero"]
        if not present:
            return _ZERO
        if len(set(present)) == 1:
            return present[0]
        return self._mean if all(map(self.is_mean, present)) else None

    def _of_scan(self, op: Pair, operands: Sequence[Relation]) -> Sequence[Relation] | None:
        loop, other = jax_compat.scan_of(op.eqn), jax_compat.scan_of(op.part.eqn)
        if not same_params(op.eqn.params, op.part.eqn.params):
            return None
        axes = op.before
        first = loop.consts + loop.carries
        if any(axis == 0 for axis in axes[first:]):
            return None
        opened = jax_compat.CHECKPOINTS | (_CUSTOM_GRADIENTS if self._is_in_rule else set())
        whole, part = flat_program(loop.body, opened), flat_program(other.body, opened)
        carries: list[Relation] = list(operands[loop.consts : first])
        for _ in range(4):
            results = self._of_outputs(whole, part, [*operands[: loop.consts], *carries, *operands[first:]])
            joined = [self._join_relations(a, b) for a, b in zip(carries, results, strict=False)]
            if joined == carries:
                stacked = axes_of(op.outvars[loop.carries :], op.part.outvars[loop.carries :], self._count)
                return None if 0 in stacked else [*carries, *results[loop.carries :]]
            carries = joined
        return None

    def _join_relations(self, one: Relation, other: Relation) -> Relation:
        """Return the relation of a value that has one of two relations, such as a carry; None if it is unknown."""
        one, other = _one_block(one, max(other.blocks, 1)), _one_block(other, max(one.blocks, 1))
        if one == other or "unknown" in (one.how, other.how):
            return one if one.how == "unknown" else other
        if _ZERO in (one, other):
            return other if one == _ZERO else one
        return self._mean if self.is_mean(one) and self.is_mean(other) else _UNKNOWN


def _one_block(relation: Relation, blocks: int = 1) -> Relation:
    """Return the relation of a value all of whose examples are equal with a number of blocks; others as they are."""
    return relation._replace(blocks=blocks) if relation.blocks == ANY else relation


def _is_inexact(relation: Relation) -> bool:
    """Return whether a value for a part is neither that of the whole batch nor a slice of it."""
    return _one_block(relation) not in (_SAME, _SLICED, _ZERO)


def _of_argument(axis: int | None) -> Relation:
    return _SAME if axis is None else _SLICED


def _axes_or_unknown(whole: Sequence[Any], part: Sequence[Any], count: int) -> list[Any]:
    """Return the batch axis of each of several variables; `_OTHER` if its shapes differ in more than one axis."""

    def axis(one: Any, other: Any) -> Any:
        try:
            return batch_axis(one.aval, other.aval, count)
        except NotPaired:
            return _OTHER

    return [axis(one, other) for one, other in zip(whole, part, strict=True)]


def _of_constants(one: Any, other: Any) -> Relation:
    return _SAME if equal_values(one, other) else _UNKNOWN


def _cause_of(relation: Relation) -> str:
    """Return the operation that no rule covers, as the end of a sentence; "" if there is none."""
    if relation.cause is None:
        return ""
    whole, part = relation.cause
    name = jax_compat.primitive_name(whole)
    what = "the custom gradient" if name == "custom_vjp_call" else f"{name}"
    cause = f": no rule covers {what} in {lines_of([whole.source_info])}"
    axis = _fixed_axis(whole, part) if name == "reshape" else None
    if axis is None:
        return cause
    return (
        f"{cause}, because axis {axis} of its result has length {whole.outvars[0].aval.shape[axis]} for the whole "
        "batch and for a microbatch. If this length is a number in the model, compute it from the shape of an array"
    )


def _fixed_axis(whole: Any, part: Any) -> int | None:
    """Return the axis of a reshape's result that starts with the batch but has the same length for a part of it."""
    (shape, new), (smaller, other) = ([v.aval.shape for v in (e.invars[0], e.outvars[0])] for e in (whole, part))
    before = next((math.prod(shape[:i]) for i, (a, b) in enumerate(zip(shape, smaller, strict=False)) if a != b), None)
    pairs = enumerate(zip(new, other, strict=False))
    return next((i for i, (a, b) in pairs if a == b > 1 and math.prod(new[:i]) == before), None)


def _contains_custom_gradient(eqn: Any) -> bool:
    return any(jax_compat.primitive_name(inner) in _CUSTOM_GRADIENTS for inner in jax_compat.equations_in(eqn))


def same_shapes(op: Pair) -> bool:
    """Return whether two operations have the same shapes and parameters, and no batch axis."""
    if any(axis is not None for axis in (*op.before, *op.after)):
        return False
    keys = [key for key in op.eqn.params if key not in ("sharding", "out_sharding")]
    return all(equal_values(op.eqn.params[key], op.part.eqn.params.get(key)) for key in keys)


def _is_wide(op: Operation) -> bool:
    """Return whether a sum over the whole batch overflows only if the sums over its parts do."""
    dtype = op.outvars[0].aval.dtype
    return bool(dtype.itemsize >= 4 or dtype == jnp.bfloat16)


def _is_linear(op: Operation) -> bool:
    """Return whether an operation has no cast that rounds to integers."""
    dtype = getattr(op.outvars[0].aval, "dtype", None)
    if op.eqn.primitive.name != "convert_element_type":
        return True
    before = getattr(op.invars[0].aval, "dtype", None)
    to_float = dtype is not None and jnp.issubdtype(dtype, np.inexact)
    return bool(to_float or (before is not None and not jnp.issubdtype(before, np.inexact) and before == dtype))


def _relation_of_product(operands: Sequence[Relation]) -> str:
    """Return the relation of a product, given those of its factors.

    A product with zero counts as zero only if all factors do: another factor may be NaN or infinite in some parts.
    """
    hows = {r.how for r in operands}
    return "zero" if hows == {"zero"} else next((how for how in ("sum", "sliced") if how in hows), "same")
