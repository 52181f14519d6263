"""Rules: how the value of an operation for the whole batch follows from the values for the parts of the batch.

`Relations` applies them to each operation of a program. `rematscope.reporting.averages` proves with them that the
gradient of a step is the mean of the gradients of its microbatches.
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rematscope import jax_compat
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
    same_params,
)
from rematscope.reporting.batch_blocks import ANY, blocks_of_results, is_divisible, makes_positions
from rematscope.reporting.flat_program import FlatProgram, Operation, Variable, flat_program
from rematscope.reporting.flat_step import cotangent_divisor

_CUSTOM_GRADIENTS = frozenset({"custom_vjp_call"})
_LINEAR = frozenset(
    "neg reshape broadcast_in_dim squeeze expand_dims transpose copy name stop_gradient reduce_sum slice rev "
    "optimization_barrier sharding_constraint reshard convert_element_type split unstack".split()
)
_DIVISIONS = frozenset({"split", "unstack"})  # their results are parts of the operand
SUMS = frozenset({"add", "sub", "add_any", "concatenate", "stack"})
_PRODUCTS = frozenset({"mul", "dot_general", "conv_general_dilated"})
OTHER = "other"  # in place of the batch axis of a value whose shapes differ in more than one axis


class Relation(NamedTuple):
    """The relation of a value for the whole batch to the values for the parts.

    Attributes:
      how: `"same"`: the value for the whole batch is `scale` times the value for each part. `"sliced"`: each slice of
        it along the batch axis is `scale` times the value for that part. `"sum"`: it is `scale` times the sum over the
        parts. `"zero"`: all values are 0. `"unknown"`: no rule covers an operation that it depends on.
      scale: the factor.
      cause: of an unknown relation, the operation that no rule covers.
      blocks: of a sliced value, the number of blocks of its batch axis; see `rematscope.reporting.batch_blocks`. `ANY`
        if the values of all examples are equal.
    """

    how: str
    scale: Fraction = Fraction(1)
    cause: Pair | None = None
    blocks: int = 1


Rule = Callable[[Pair, Sequence[Relation]], Sequence[Relation]]
SAME, SLICED, ZERO, UNKNOWN = map(Relation, ("same", "sliced", "zero", "unknown"))


class Relations:
    """The relations between the values of a program for the whole batch and those for a part.

    Args:
      count: the number of parts of the batch.
      blocks: the number of blocks of the batch axes of the inputs; see `rematscope.reporting.arrays.device_blocks`.
        A part has rows of each block.
    """

    def __init__(self, count: int, blocks: int):
        self._count = count
        self.has_maps = False  # whether a scan over examples counts as independent, if its derivative does too
        self._whole_of = dict[Any, Variable]()
        self._counts = set[Variable]()  # see `_look_at_count`
        self._input_blocks = blocks
        self._outer_blocks = blocks  # the number of blocks of the axis in which the blocks of relations are counted
        self._is_in_rule = False  # in the rule of a custom gradient, other functions' custom gradients are not used

    @property
    def _mean_relation(self) -> Relation:
        """The relation of a value for the whole batch that is the mean over the parts."""
        return Relation("sum", Fraction(1, self._count))

    def is_mean(self, relation: Relation) -> bool:
        """Return whether a relation implies that the value for the whole batch is the mean over the parts."""
        return relation in (SAME, ZERO, self._mean_relation)

    def of_program(
        self,
        whole: FlatProgram,
        part: FlatProgram,
        inputs: Sequence[Relation],
        relation_for: Callable[[Operation], Callable[[Variable], Relation | None] | None] = lambda _: lambda _: None,
        rule: Rule | None = None,
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
            found[v] = relation_of_constants(one, other)
        for op, smaller in zip(whole.operations, part.operations, strict=True):
            lengths = [(len(each.invars), len(each.outvars)) for each in (op, smaller)]
            same = op.eqn.primitive is smaller.eqn.primitive and op.name == smaller.name
            if not same or lengths[0] != lengths[1]:
                raise NotPaired
            self._whole_of.update(zip(smaller.outvars, op.outvars, strict=True))
            known = relation_for(smaller)
            pair = Pair(op.eqn, op.invars, op.outvars, smaller, self._count, calls=op.calls)
            if known is None:
                self._look_outside(pair)
                continue
            operands = [self._of_atom(a, b, found, known) for a, b in zip(op.invars, smaller.invars, strict=True)]
            found.update(zip(op.outvars, rule(pair, operands), strict=True))
            self._look_at_count(op)
        return found

    def _look_outside(self, op: Pair) -> None:
        """Look at an operation whose results have no relation; of a step, those outside of its loops."""

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
            return ZERO
        if equal_values(one, other):
            return ZERO if np.ndim(one) == 0 and jnp.isscalar(one) and one == 0 else SAME
        if np.ndim(one) or np.ndim(other) or np.iscomplexobj(one) or np.iscomplexobj(other) or not float(other):
            return UNKNOWN
        ratio, dtype = float(one) / float(other), getattr(one, "dtype", None)
        # Only rounding may differ: the lengths plus a small number, or minus one, are not such powers.
        tolerance = 2 * float(
            jnp.finfo(dtype if dtype is not None and jnp.issubdtype(dtype, jnp.floating) else float).eps
        )
        for power in (1, -1, 2, -2):
            if math.isclose(ratio, float(self._count) ** power, rel_tol=tolerance):
                return Relation("same", Fraction(self._count) ** power)
        return UNKNOWN

    def _of_operation(self, op: Pair, operands: Sequence[Relation]) -> Sequence[Relation]:
        """Return the relations of the results of an operation."""
        unknown = [Relation("unknown", cause=self._cause_of_unknown(op, operands))] * len(op.outvars)
        if any(r.how == "unknown" for r in operands):
            return unknown
        try:
            if op.name in jax_compat.CHECKPOINTS:
                whole, part = (flat_program(jax_compat.bodies(eqn)[0]) for eqn in op.eqns)
                return self._of_outputs(whole, part, operands)
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

    def _cause_of_unknown(self, op: Pair, operands: Sequence[Relation]) -> Pair:
        """Return the operation that makes the results of an operation unknown.

        A weighted mean is unknown because of its division, and not because of how the divisor is computed.
        """
        causes = [r.cause for r in operands if r.how == "unknown" and r.cause]
        is_mean = op.name == "div" and operands[0].how != "unknown"
        if is_mean and axes_or_unknown(op.invars[1:], op.part.invars[1:], self._count) == [None]:
            return op
        return causes[0] if causes else op

    def _known_relations(self, op: Pair, operands: Sequence[Relation]) -> Sequence[Relation] | None:
        """Return the relations of the results of an operation; None if no rule covers it."""
        axes, name = op.after, op.name
        if name == "scan" and not self._is_in_rule and is_map(*op.eqns, self._count):
            fixed = jax_compat.scan_of(op.eqn).consts
            if {*operands[:fixed]} <= {SAME, ZERO} and {*operands[fixed:]} <= {SLICED, ZERO}:
                self.has_maps = True
                return [SLICED] * len(axes)
        if not jax_compat.is_repeatable(op.eqn, prints=True):  # runs once per part, or accesses a mutable array
            return None
        if name in _CUSTOM_GRADIENTS:
            return self._of_custom_gradient(op, operands)
        if not self._is_in_rule and _contains_custom_gradient(op.eqn):
            return self._of_scan(op, operands) if name == "scan" else None
        if name in _LINEAR and operands and all(r == ZERO for r in operands):
            return [ZERO] * len(axes)
        plain = [SAME if r == ZERO else r for r in operands]
        if all(r == SAME for r in plain) and all(axis is None for axis in axes):
            return [SAME] * len(axes) if same_equation(*op.eqns) else None
        may_make = not self._is_in_rule  # a rule runs as it is, and does not know the number of its part
        if may_make and name != "iota" and makes_batch(*op.eqns, self._count):
            return [SLICED]  # each microbatch uses its part of the random numbers of the whole batch
        divides = commutes(*op.eqns, self._count, may_make=may_make)
        if divides and all(r in (SAME, SLICED) for r in plain):
            return [SAME if axis is None else SLICED for axis in axes]
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
        results = [*map(one_block, self._of_rule(whole, part, [*operands, *[UNKNOWN] * sum(floats)])[:count])]
        if [*map(one_block, self._of_rule(function, smaller_function, operands))] != results:
            return None
        cotangents = [self._of_cotangent(r) for r, one in zip(results, floats, strict=True) if one]
        gradients = self._of_rule(whole, part, [*operands, *cotangents])[count:]
        given = [(r, v) for r, v in zip(operands, op.invars, strict=True)][op.eqn.params.get("num_consts", 0) :]
        expected = [self._of_cotangent(r) for r, v in given if is_float(v.aval)]
        pairs = zip(gradients, expected, strict=True)
        if not all(g == ZERO or (g.how != "unknown" and one_block(g, e.blocks) == e) for g, e in pairs):
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
        return UNKNOWN if how is None else Relation(how, scale, blocks=max(relation.blocks, 1))

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
        if name in SUMS:
            return self._of_addends(operands)
        if name == "select_n" and operands[0] in (SAME, SLICED):
            return self._of_addends(operands[1:])
        if name in _PRODUCTS and sum(r.how == "sum" for r in operands) <= 1:
            scale = math.prod((r.scale for r in operands), start=Fraction(1))
        elif name == "div" and is_float(op.outvars[0].aval) and operands[1].how in ("same", "sliced"):
            scale = operands[0].scale / operands[1].scale
        else:
            return None
        how = _relation_of_product(operands)
        return ZERO if how == "zero" else Relation(how, scale)

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
        if operands[0] != ZERO or axis is not None or of_indices is None or of_indices >= len(added):
            return None
        is_paired = added[of_indices] == of_updates and operands[1] == SLICED and operands[2].how == "sliced"
        return Relation("sum", operands[2].scale) if is_paired and _is_wide(op) else None

    def _of_addends(self, operands: Sequence[Relation]) -> Relation | None:
        present = [r for r in operands if r.how != "zero"]
        if not present:
            return ZERO
        if len(set(present)) == 1:
            return present[0]
        return self._mean_relation if all(map(self.is_mean, present)) else None

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
        one, other = one_block(one, max(other.blocks, 1)), one_block(other, max(one.blocks, 1))
        if one == other or "unknown" in (one.how, other.how):
            return one if one.how == "unknown" else other
        if ZERO in (one, other):
            return other if one == ZERO else one
        return self._mean_relation if self.is_mean(one) and self.is_mean(other) else UNKNOWN


def one_block(relation: Relation, blocks: int = 1) -> Relation:
    """Return the relation of a value all of whose examples are equal with a number of blocks; others as they are."""
    return relation._replace(blocks=blocks) if relation.blocks == ANY else relation


def axes_or_unknown(whole: Sequence[Any], part: Sequence[Any], count: int) -> list[Any]:
    """Return the batch axis of each of several variables; `OTHER` if its shapes differ in more than one axis."""

    def axis(one: Any, other: Any) -> Any:
        try:
            return batch_axis(one.aval, other.aval, count)
        except NotPaired:
            return OTHER

    return [axis(one, other) for one, other in zip(whole, part, strict=True)]


def relation_of_constants(one: Any, other: Any) -> Relation:
    return SAME if equal_values(one, other) else UNKNOWN


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
