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
from typing import Any

import jax
from jax.sharding import NamedSharding

from rematscope import jax_compat
from rematscope.errors import PlanError
from rematscope.jax_compat.vjp_hook import outside_traces
from rematscope.reporting.batch_axis import (
    NotPaired,
    Pair,
    is_float,
    same_maps,
)
from rematscope.reporting.flat_program import FlatProgram, Operation, Variable, flat_program, variables_of
from rematscope.reporting.flat_step import FlatStep, explain_other_size
from rematscope.reporting.gathers import with_batched_gathers
from rematscope.reporting.gradient_loops import Divided, mark_of
from rematscope.reporting.microbatches import Microbatches, comparable_interface
from rematscope.reporting.relations import (
    OTHER,
    SAME,
    SLICED,
    SUMS,
    UNKNOWN,
    ZERO,
    Relation,
    Relations,
    axes_or_unknown,
    one_block,
    relation_of_constants,
)
from rematscope.reporting.traced_step import TracedStep, loss_mark_of
from rematscope.reporting.whole_values import LossChanges, NoWholeValues, WholeValues, find_whole_values

USE_CHUNKS = " Use chunks=, which computes the same gradient."


@dataclasses.dataclass(frozen=True, eq=False)
class Proof:
    """Whether microbatches give a step's results.

    Attributes:
      why: a sentence on why this is not proved; "" if it is.
      plain: the microbatches of the step as it is.
      values: the values of the whole batch that the microbatches need; None if they need none.
    """

    why: str
    plain: Microbatches
    values: WholeValues | None = None

    @functools.cached_property
    def microbatches(self) -> Microbatches:
        """The microbatches that give the results.

        The step that reads values of the whole batch is traced and proved, too.

        Raises:
          PlanError: if the microbatches are not proved to give the results.
        """
        if self.why:
            raise PlanError(self.why)
        if self.values is None:
            return self.plain
        changed = Microbatches(self.values.traced(), self.plain.count)
        why, _ = _why_not(changed)
        if why:
            raise PlanError(why)
        return changed

    def results(self, leaves: Sequence[Any], shardings: Sequence[NamedSharding | None]) -> list[Any]:
        """Run the step in these microbatches, and return the leaves of its outputs; see `Microbatches.results`.

        Raises:
          PlanError: if they are not proved to give the results.
        """
        microbatches, given = self.microbatches, leaves
        if self.values is not None:
            given = self.values.before(leaves)
        return microbatches.results(given, [*[None] * (len(given) - len(leaves)), *shardings])


def prove(step: TracedStep, count: int) -> Proof:
    """Prove that `count` microbatches give a step's results.

    A proof for loops over examples in place of each `jax.vmap` is enough: both compute the same values.

    Raises:
      PlanError: if the step cannot be divided; see `rematscope.reporting.gradient_loops.divided`.
    """
    step.step.check_microbatches(count)
    plain, values = Microbatches(step, count), None
    why, changes = _why_not(plain)
    if changes:
        with contextlib.suppress(NoWholeValues):
            values = find_whole_values(step, changes)
            why, _ = _why_not(plain, changes)
    if not why:
        return Proof("", plain, values)
    with contextlib.suppress(Exception):  # any error of a step whose maps are replaced
        interface = comparable_interface(plain.divided)
        if step.maps_examples():  # this proof comes last, because its traces use none of JAX's cached ones
            other = Microbatches(step.in_loops, count)
            if not _why_not(other)[0] and comparable_interface(other.divided) == interface:
                return Proof("", plain)
    return Proof(why, plain)


def prove_like(step: TracedStep, proof: Proof) -> Proof:
    """Return the proof for a step that differs from a proved one only by checkpoints inside of its losses.

    If the microbatches need values of the whole batch, these are found at the same places of the losses.
    """
    plain = Microbatches(step, proof.plain.count)
    if proof.values is None:
        return Proof(proof.why, plain)
    found = Proof("", plain, dataclasses.replace(proof.values, step=step.step))
    try:
        _ = found.microbatches
    except PlanError:  # the losses may have other operations
        return prove_or_explain(step, plain.count)
    return found


def _why_not(
    microbatches: Microbatches, assumed: Mapping[tuple[int, int], LossChanges] | None = None
) -> tuple[str, dict[tuple[int, int], LossChanges]]:
    """Return such a sentence for a step as it is, or with assumed changes to its losses; and what these need."""
    step, count, whole, part = microbatches.step, microbatches.count, microbatches.whole, microbatches.part
    try:
        (larger, program), _ = microbatches.divided_pair
        proof = _Proof(step, count, (whole.losses, part.losses), program, assumed or {})
        relations = proof.of_step(larger.program, [SAME, *map(_of_argument, step.axes)])
    except NotPaired:
        return f"The program of {step.name} for a microbatch differs from that for the whole batch.", {}
    equations = [[op.eqn for op in each.program.operations] for each in (whole, part)]
    if proof.has_maps and not same_maps(*equations):
        return f"The gradient of {step.name} for an example depends on the length of the batch.", {}
    why = proof.refusal or _why_not_returned(relations, larger, program, proof, microbatches, step.name)
    return why, proof.changes if why and assumed is None else {}


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
            found = relations.get(names[v], UNKNOWN)
            if proof.assumed and found in (SAME, ZERO):  # the changed step reads this value, or computes it once
                continue
            try:
                axis = microbatches.stack_axis(names[v], v, loop)
            except PlanError as error:
                return str(error)
            if v in loop.gradients:
                continue
            if v in loop.totals:
                is_known = found in (Relation("sum"), ZERO)
            else:
                is_known = one_block(found) in (SLICED, ZERO) if axis is not None else proof.is_mean(found)
            if not is_known:
                what = f"{v.aval.dtype}{list(names[v].aval.shape)}"
                how = "a sum over the examples" if v in loop.totals else "an average over the microbatches"
                return (
                    f"{function} returns, or uses after its gradient, {what} that is not proved to be {how}"
                    f"{_cause_of(found)}."
                )
    return ""


def prove_or_explain(step: TracedStep, count: int) -> Proof:
    """Return what `prove` returns, or a proof with the reason why the step cannot be divided at all.

    An error that the step raises for its whole batch too is raised as it is.
    """
    try:
        return prove(step, count)
    except PlanError as error:
        return Proof(str(error), Microbatches(step, count))
    except Exception as error:  # any error that the step raises for another batch size
        with outside_traces(keeps_axes=True):
            jax.eval_shape(step.step.run, *step.step.types(1))
        return Proof(explain_other_size(step.step, error), Microbatches(step, count))


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
        constants = [closed_over.get(i) or relation_of_constants(one, other) for i, (one, other) in pairs]
        return [*(self.operands["operand"].get(i, UNKNOWN) for i in range(len(whole.inputs))), *constants]


class _Proof(Relations):
    """The relations between the values of a step for the whole batch and for a part, and what they do not prove.

    Args:
      step: the step.
      count: the number of parts of the batch.
      jaxprs: those of the losses for the whole batch and for a part, in the order of their traces.
      division: the step for a part, divided at its gradients.
      assumed: the changes that losses are assumed to have, by the numbers of their traces.
    """

    def __init__(
        self,
        step: FlatStep,
        count: int,
        jaxprs: tuple[Sequence[Any], Sequence[Any]],
        division: Divided,
        assumed: Mapping[tuple[int, int], LossChanges],
    ):
        super().__init__(count, step.blocks)
        self._function, self._jaxprs, self._division = step.name, jaxprs, division
        self.assumed = assumed
        self._losses = dict[tuple[int, int], list[_Loss]]()  # the runs of each loss, by the numbers of its traces
        self._refusals = list[str]()
        self._has_value = False

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
                return SLICED if v in division.axes else SAME

            return known

        return self.of_program(whole, part, inputs, relation_for)

    def _of_operation(self, op: Pair, operands: Sequence[Relation]) -> Sequence[Relation]:
        if op.is_loss_mark:
            is_example = op.part in self._division.of_examples
            return operands if is_example else [self._at_loss(op, operands[0])]
        gradient = mark_of(op)
        if gradient is not None:
            self._has_value |= op.part in self._division.of_examples
            if op.part not in self._division.of_examples:
                self._look_at_gradient(gradient.what, operands[0])
            return operands
        return super()._of_operation(op, operands)

    def _at_loss(self, op: Pair, relation: Relation) -> Relation:
        """Return the relation of an operand or a result of a loss, given the operation that marks it."""
        mark, smaller = loss_mark_of(op), loss_mark_of(op.part)
        assert mark is not None and smaller is not None, "both operations mark a value"
        loss = self._run_of_loss(mark.loss, smaller.loss, mark.what)
        if mark.what != "result":
            loss.operands[mark.what][mark.number] = relation
            return relation
        if loss.results is None:
            changes = self.assumed.get((mark.loss, smaller.loss))
            whole, part = loss.opened
            loss.results = changes.results if changes else self._of_outputs(whole, part, loss.inputs)
        return loss.results[mark.number]

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

        def relate_op(op: Pair, operands: Sequence[Relation]) -> Sequence[Relation]:
            found = self._of_operation(op, operands)
            is_of_data = jax_compat.is_repeatable(op.eqn, prints=True) and of_data.issuperset(variables_of(op.invars))
            if is_of_data:
                of_data.update(op.outvars)
            if not any(r.how == "unknown" for r in found):
                return found
            place = places.get(op.outvars[0])
            if place is None or loss.operations[place].eqn is not op.eqn:  # of a gather that was replaced
                return found
            axes = axes_or_unknown(op.outvars, op.part.outvars, self._count)
            if is_of_data and all(axis is None for axis in axes):
                return found
            return self._with_whole_values(op, operands, of_data, is_of_data, place, changes)

        self._change_outputs(whole, part, self.of_program(whole, part, loss.inputs, rule=relate_op), of_data, changes)
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
        axes = axes_or_unknown(op.invars, op.part.invars, self._count)
        read = [
            i
            for i, (v, axis, relation) in enumerate(zip(op.invars, axes, operands, strict=True))
            if isinstance(v, Variable) and v in of_data and axis != OTHER
            if _is_inexact(relation) and not (is_of_data and axis is not None)
        ]
        new = [_of_argument(axes[i]) if i in read else relation for i, relation in enumerate(operands)]
        found, factors = self._of_operation(op, new), dict[tuple[int, int], Fraction]()
        if op.name in SUMS | {"select_n"} and any(r.how == "unknown" for r in found):
            pairs = [*enumerate(zip(op.invars, new, strict=True))]
            factors = {(place, i): f for i, (v, r) in pairs if (f := self._factor_to_mean(v, r)) is not None}
            new = [self._mean_relation if (place, i) in factors else r for i, r in enumerate(new)]
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
        relations: dict[Variable, Relation],
        of_data: Collection[Variable],
        changes: LossChanges,
    ) -> None:
        """Add the changes that make the outputs of a loss means over the parts of the batch."""
        place = len(changes.names)
        axes = axes_or_unknown(whole.outputs, part.outputs, self._count)
        for i, (v, smaller, axis) in enumerate(zip(whole.outputs, part.outputs, axes, strict=True)):
            relation = self._of_atom(v, smaller, relations)
            factor = self._factor_to_mean(v, relation)
            is_of_data = isinstance(v, Variable) and v in of_data
            if is_of_data and axis != OTHER and _is_inexact(relation) and not self.is_mean(relation):
                changes.read((place, i), v, axis)
                relation = _of_argument(axis)
            elif factor is not None:
                changes.factors[place, i] = factor
                relation = self._mean_relation
            changes.results.append(relation)

    def _factor_to_mean(self, atom: Any, relation: Relation) -> Fraction | None:
        """Return the factor of a value for a part that makes it a mean; None if it is none or is no sum."""
        is_sum = relation.how == "sum" and not self.is_mean(relation) and is_float(atom.aval)
        return relation.scale * self._count if is_sum else None

    def _look_outside(self, op: Pair) -> None:
        """Record the relation of an operand of a loss that operations outside of loops compute."""
        if op.is_loss_mark:
            relation = SLICED if op.part.outvars[0] in self._division.axes else SAME
            self._at_loss(op, relation)

    def _run_of_loss(self, whole: int, part: int, what: str) -> _Loss:
        """Return the run of a loss that an operand, a constant or a result belongs to."""
        runs = self._losses.setdefault((whole, part), [])
        if not runs or (what != "result" and runs[-1].results is not None):  # a jitted gradient may run several times
            runs.append(_Loss(self._jaxprs[0][whole], self._jaxprs[1][part]))
        return runs[-1]

    def _look_at_gradient(self, what: str, relation: Relation) -> None:
        if what == "differentiated" and relation not in (SAME, ZERO):
            self._refusals.append(
                f"{self._function} takes the gradient with respect to values that depend on the batch."
            )
        elif what == "cotangent" and relation not in (SAME, ZERO):
            self._refusals.append(f"{self._function} scales its gradient by a value that depends on the batch.")
        elif what == "value":
            self._has_value = True
            if not self.is_mean(relation):
                self._refusals.append(_not_an_average(self._function, relation))

    @property
    def refusal(self) -> str:
        """A sentence on why the gradient is not proved to be an average; "" if it is proved to be one."""
        if not self._has_value:
            return f"The value that {self._function} differentiates was not found."
        return self._refusals[0] if self._refusals else ""


def _is_inexact(relation: Relation) -> bool:
    """Return whether a value for a part is neither that of the whole batch nor a slice of it."""
    return one_block(relation) not in (SAME, SLICED, ZERO)


def _of_argument(axis: int | None) -> Relation:
    return SAME if axis is None else SLICED


def _not_an_average(function: str, loss: Relation) -> str:
    return (
        f"The loss of {function} is not proved to be an average over the examples{_cause_of(loss)}. (A mean with "
        f"weights that depend on parameters, batch normalization and a contrastive loss are not.){USE_CHUNKS}"
    )


def _cause_of(relation: Relation) -> str:
    """Return the operation that no rule covers, as the end of a sentence; "" if there is none."""
    if relation.cause is None:
        return ""
    whole, part = relation.cause.eqns
    name = jax_compat.primitive_name(whole)
    what = "the custom gradient" if name == "custom_vjp_call" else f"{name}"
    cause = f": no rule covers {what} in {relation.cause.lines}"
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
