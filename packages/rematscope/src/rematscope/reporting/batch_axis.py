"""Find the operations that process each example of a batch independently, so that they can run on a part of the batch.

A program is traced twice, for the whole batch and for a part of it. An axis whose length differs is the batch axis,
even if it was merged with other axes. An operation *commutes with slicing* if its results for a part of the batch are
the corresponding slices of its results for the whole batch. For each primitive, a rule decides this from the batch axes
and the parameters. An operation without a rule counts as not commuting.
"""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import random

from rematscope import jax_compat
from rematscope.ir.primitives import ELEMENTWISE
from rematscope.ir.source import package_of
from rematscope.ir.specs import explicit_sharding
from rematscope.reporting.flat_program import Operation, Variable, flat_program

Axes = Sequence[int | None]  # the batch axis of each operand or result; None for one without a batch axis
_POINTWISE = ELEMENTWISE | set(
    "name stop_gradient copy clamp square random_fold_in sharding_constraint reshard".split()
)
OPENED = jax_compat.CHECKPOINTS | {"scan"}  # their bodies may contain `MADE` operations
_NESTED = OPENED | {"cond", "while", "custom_jvp_call", "custom_vjp_call"}
# A Python function, which may know the length of the batch, and Equinox's operations on all examples of a `vmap`.
_OPAQUE = frozenset({"pure_callback", "unvmap_all", "unvmap_any", "unvmap_max"})
_LIBRARIES = ("equinox", "diffrax")  # they use these only for errors, and so that examples of a `vmap` are independent
_LENGTHS = frozenset("shape new_sizes sizes limit_indices slice_sizes reps feature_group_count".split())
# Parameters that contain programs and rules, which are compared separately, or that do not affect a result.
_PROGRAMS = frozenset(
    "jaxpr call_jaxpr branches body_jaxpr cond_jaxpr fun_jaxpr jvp_jaxpr_fun fwd_jaxpr_thunk bwd out_trees num_consts "
    "symbolic_zeros sharding out_sharding policy ctx_mesh name debug_info".split()
)


class NotPaired(Exception):
    """Two traces of a function differ in more than the length of one axis."""


def batch_axis(whole: Any, part: Any, count: int) -> int | None:
    """Return the axis along which one type is `count` times as long as the other; None if both types are equal.

    Raises:
      NotPaired: if the types differ in another way.
    """
    shape, smaller = getattr(whole, "shape", ()), getattr(part, "shape", ())
    if len(shape) != len(smaller) or getattr(whole, "dtype", None) != getattr(part, "dtype", None):
        raise NotPaired
    differing = [i for i, (a, b) in enumerate(zip(shape, smaller, strict=True)) if a != b]
    if not differing:
        return None
    (axis, *others) = differing
    if others or shape[axis] != count * smaller[axis]:
        raise NotPaired
    return axis


def axes_of(whole: Sequence[Any], part: Sequence[Any], count: int) -> list[int | None]:
    """Return the batch axis of each of several variables or literals; None for those that are the same for a part.

    Raises:
      NotPaired: if the lists differ in length, or two types differ in more than the length of one axis.
    """
    if len(whole) != len(part):
        raise NotPaired
    return [batch_axis(a.aval, b.aval, count) for a, b in zip(whole, part, strict=True)]


@dataclasses.dataclass(frozen=True, eq=False)
class Pair(Operation):
    """An operation for the whole batch, with the same operation for one of `count` parts."""

    part: Operation
    count: int

    @property
    def eqns(self) -> tuple[Any, Any]:
        """The equations for the whole batch and for a part."""
        return self.eqn, self.part.eqn

    @property
    def before(self) -> list[int | None]:
        """The batch axes of the operands. Raises NotPaired as `axes_of` does."""
        return axes_of(self.invars, self.part.invars, self.count)

    @property
    def after(self) -> list[int | None]:
        """The batch axes of the results. Raises NotPaired as `axes_of` does."""
        return axes_of(self.outvars, self.part.outvars, self.count)


def known_axes(pairs: Iterable[tuple[Variable, Variable]], count: int) -> dict[Variable, int | None]:
    """Return the batch axis of the first variable of each pair; without those whose types differ in another way."""
    found: dict[Variable, int | None] = {}
    for v, smaller in pairs:
        with contextlib.suppress(NotPaired):
            found[v] = batch_axis(v.aval, smaller.aval, count)
    return found


def paired_bodies(whole: Any, part: Any) -> list[tuple[Sequence[Any], Sequence[Any]]]:
    """Return the equations of each body of two equations that have as many bodies."""
    bodies = zip(jax_compat.bodies(whole), jax_compat.bodies(part), strict=True)
    return [(jax_compat.body_of(a)[0].eqns, jax_compat.body_of(b)[0].eqns) for a, b in bodies]


def commutes(whole: Any, part: Any, count: int, differentiable: bool = True, may_make: bool = True) -> bool:
    """Return whether an equation commutes with slicing.

    Args:
      whole: the equation for the whole batch.
      part: the same equation for one of `count` parts.
      count: the number of parts.
      differentiable: whether the custom derivatives of functions in the equation must commute too.
      may_make: whether the bodies of `OPENED` equations may contain equations that `makes_batch` accepts.
    """
    name = jax_compat.primitive_name(whole)
    if name != jax_compat.primitive_name(part) or is_opaque(whole) or not jax_compat.is_repeatable(whole, prints=True):
        return False
    try:
        before, after = axes_of(whole.invars, part.invars, count), axes_of(whole.outvars, part.outvars, count)
        if not same_params(whole.params, part.params):
            return False
        if all(axis is None for axis in (*before, *after)):
            return _same_lengths(whole, part) and _same_bodies(whole, part, differentiable)
        if name in _NESTED:
            return _bodies_commute(whole, part, count, before, after, differentiable, may_make)
        if not _same_bodies(whole, part):  # such as the operation of a `reduce`
            return False
        if name in _POINTWISE or name == "optimization_barrier":
            return _elementwise_rule(whole, before, after)
        rule = _RULES.get(name)
        return rule is not None and rule(whole, before, after)
    except NotPaired:
        return False


def same_params(whole: dict[str, Any], part: dict[str, Any]) -> bool:
    """Return whether two equations have the same parameters, ignoring lengths and programs."""
    if whole.keys() != part.keys():
        return False
    update, other = whole.get("update_jaxpr"), part.get("update_jaxpr")  # of a scatter
    if update is not None and other is not None and not same_programs(update, other):
        return False
    ignored = _LENGTHS | _PROGRAMS | {"update_jaxpr"}
    return all(key in ignored or equal_values(value, part[key]) for key, value in whole.items())


def _same_lengths(whole: Any, part: Any) -> bool:
    return all(equal_values(value, part.params[key]) for key, value in whole.params.items() if key in _LENGTHS)


def _same_bodies(whole: Any, part: Any, differentiable: bool = True, deep: bool = True) -> bool:
    bodies, others = jax_compat.bodies(whole), jax_compat.bodies(part)
    if len(bodies) != len(others) or not all(same_programs(a, b, deep) for a, b in zip(bodies, others, strict=True)):
        return False
    defines_derivative = whole.primitive.name.startswith("custom_") and differentiable
    try:
        return not defines_derivative or _derivative_commutes(whole, part, 1)
    except NotPaired:
        return False


def same_programs(whole: Any, part: Any, differentiable: bool = True) -> bool:
    """Return whether two jaxprs compute the same values and, if `differentiable`, have the same custom derivatives."""
    pairs = paired_operations(whole, part)
    return pairs is not None and all(same_equation(op.eqn, other.eqn, differentiable) for op, other in pairs)


def paired_operations(whole: Any, part: Any) -> list[tuple[Operation, Operation]] | None:
    """Return the operations of two jaxprs in pairs; None if they read different values, literals or constants."""
    program, smaller = flat_program(whole), flat_program(part)
    constants = program.constants.values(), smaller.constants.values()
    if any(len(one) != len(other) for one, other in zip(program, smaller, strict=True)):
        return None
    if not all(map(equal_values, *constants)):
        return None
    names: dict[Any, Any] = dict(
        zip((*smaller.inputs, *smaller.constants), (*program.inputs, *program.constants), strict=True)
    )

    def same(atoms: Sequence[Any], others: Sequence[Any]) -> bool:
        return len(atoms) == len(others) and all(map(same_atom, atoms, others))

    def same_atom(one: Any, other: Any) -> bool:
        literals = [jax_compat.is_literal(one), jax_compat.is_literal(other)]
        return equal_values(one.val, other.val) if all(literals) else not any(literals) and names[other] is one

    pairs = [*zip(program.operations, smaller.operations, strict=True)]
    for op, other in pairs:
        if not same(op.invars, other.invars) or len(op.outvars) != len(other.outvars):
            return None
        names.update(zip(other.outvars, op.outvars, strict=True))
    return pairs if same(program.outputs, smaller.outputs) else None


def same_equation(whole: Any, part: Any, differentiable: bool = True) -> bool:
    """Return whether two equations compute the same values: their types, parameters, literals and bodies are equal.

    If `differentiable`, their custom derivatives must be equal too.
    """
    if whole.primitive is not part.primitive or len(whole.invars) != len(part.invars):
        return False
    if is_opaque(whole):
        return False
    for one, other in zip((*whole.invars, *whole.outvars), (*part.invars, *part.outvars), strict=False):
        if one.aval.strip_weak_type() != other.aval.strip_weak_type():
            return False
        if jax_compat.is_literal(one) and not (jax_compat.is_literal(other) and equal_values(one.val, other.val)):
            return False
    if not same_params(whole.params, part.params) or not _same_lengths(whole, part):
        return False
    return _same_bodies(whole, part, differentiable, differentiable)


def same_maps(whole: Sequence[Any], part: Sequence[Any]) -> bool:
    """Return whether all scans that have another length in one of two sequences of equations have equal bodies."""

    def same(one: Any, other: Any) -> bool:
        bodies = jax_compat.bodies(one), jax_compat.bodies(other)
        if one.primitive is not other.primitive or len(bodies[0]) != len(bodies[1]):
            return False
        if one.primitive.name == "scan" and jax_compat.scan_of(one).length != jax_compat.scan_of(other).length:
            return same_programs(bodies[0][0], bodies[1][0], differentiable=False)
        return all(same_maps(*pair) for pair in paired_bodies(one, other))

    return len(whole) == len(part) and all(map(same, whole, part))


def is_map(whole: Any, part: Any, count: int) -> bool:
    """Return whether a scan runs the same function for each example of a batch, as the `vmap` in its place does."""
    loop, smaller = jax_compat.scan_of(whole), jax_compat.scan_of(part)
    inside = [*jax_compat.equations_in(whole)]
    # The gradients of a custom rule need not be linear in its cotangents, which are equal for powers of two.
    names = {"custom_vmap_call", "rng_bit_generator"} | ({"custom_vjp_call"} if count & (count - 1) else set())
    return (
        loop.carries == 0
        and loop.length == count * smaller.length
        and axes_of(whole.invars, part.invars, count) == [None] * loop.consts + [0] * (len(whole.invars) - loop.consts)
        and names.isdisjoint(eqn.primitive.name for eqn in inside)
        and all(_is_threefry(eqn) and (jax_compat.bodies(eqn) or _is_repeatable(eqn)) for eqn in inside)
        and same_programs(loop.body, smaller.body, differentiable=False)
    )


def _is_repeatable(eqn: Any) -> bool:
    """Return whether an equation may run once per example; `is_opaque` decides for callbacks."""
    return eqn.primitive.name in _OPAQUE or jax_compat.is_repeatable(eqn, prints=True)


def is_opaque(eqn: Any) -> bool:
    """Return whether an equation may know the length of the batch, or is a `HiPrim` with its own derivative rule."""
    if eqn.primitive.name in _OPAQUE:
        return package_of(eqn.source_info, "_unvmap.py") not in _LIBRARIES
    has_rule = jax_compat.hi_primitive(eqn) is not None and jax_compat.primitive_name(eqn) not in OPENED | {"name"}
    return has_rule and any(is_float(v.aval) for v in eqn.outvars)


def equal_values(one: Any, other: Any) -> bool:
    if one is other or callable(one):
        return one is other or type(one) is type(other)
    if hasattr(one, "__array__") or hasattr(other, "__array__"):  # not SparseInfo, a tuple with a `shape`
        one, other = np.asarray(one), np.asarray(other)
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    return bool(one == other) or (one != one and other != other)  # NaN equals NaN


def programs_commute(whole: Any, part: Any, count: int, may_make: bool = False, differentiable: bool = True) -> bool:
    """Return whether each equation of a jaxpr, and of the jits in it, commutes with slicing.

    Args:
      whole, part, count, differentiable: as for `commutes`, but for programs instead of equations.
      may_make: whether equations that `makes_batch` accepts are allowed, here and in the bodies of `OPENED` equations.
    """
    pairs = paired_operations(whole, part)
    return pairs is not None and all(
        commutes(op.eqn, other.eqn, count, differentiable, may_make)
        or (may_make and makes_batch(op.eqn, other.eqn, count))
        for op, other in pairs
    )


def _bodies_commute(
    whole: Any, part: Any, count: int, before: Axes, after: Axes, differentiable: bool, may_make: bool
) -> bool:
    bodies, others = jax_compat.bodies(whole), jax_compat.bodies(part)
    if len(bodies) != len(others):
        return False
    name = jax_compat.primitive_name(whole)
    may_make = may_make and name in OPENED
    if not all(programs_commute(a, b, count, may_make, differentiable) for a, b in zip(bodies, others, strict=True)):
        return False
    if name == "scan":
        return _scan_slices(whole, part, count, before, after)
    if name == "cond":
        return before[0] is None
    if name.startswith("custom_") and differentiable:
        return _derivative_commutes(whole, part, count)
    return True


def _scan_slices(whole: Any, part: Any, count: int, before: Axes, after: Axes) -> bool:
    """Return whether a scan does not iterate over the batch axis, and has the same batch axes inside and outside."""
    loop, smaller = jax_compat.scan_of(whole), jax_compat.scan_of(part)
    if loop.length != smaller.length:
        return False
    body, other = jax_compat.body_of(loop.body)[0], jax_compat.body_of(smaller.body)[0]
    inside, results = axes_of(body.invars, other.invars, count), axes_of(body.outvars, other.outvars, count)
    first = loop.consts + loop.carries

    def lies(outer: Axes, inner: Axes, stacked: int) -> bool:
        deep = [None if a is None else a - (i >= stacked) for i, a in enumerate(outer)]
        return deep == list(inner)

    return lies(before, inside, first) and lies(after, results, loop.carries)


def _derivative_commutes(whole: Any, part: Any, count: int) -> bool:
    """Return whether the custom derivative of a function commutes with slicing."""
    if whole.params.get("symbolic_zeros"):
        return False  # the rule may differ for operands that are not differentiated
    if whole.primitive.name == "custom_vjp_call":
        inexact = [is_float(v.aval) for v in whole.invars]
        axes = axes_of(whole.invars, part.invars, count)
        if any(a is None and one for a, one in zip(axes, inexact, strict=True)):
            return False  # a custom gradient of an operand without a batch axis need not be a sum over the examples
        return programs_commute(custom_gradient(whole), custom_gradient(part), count, differentiable=False)

    try:
        both = custom_tangents(whole), custom_tangents(part)
    except Exception:  # any error of a rule, such as that of Equinox's `nondifferentiable`
        return False
    return programs_commute(*both, count, differentiable=False)


def custom_tangents(eqn: Any) -> Any:
    """Return the jaxpr of a `custom_jvp_call` and its tangents, for operands that are also their tangents."""
    inexact = [is_float(v.aval) for v in eqn.invars]

    def tangent(*operands: Any) -> Any:
        floats = [v for v, one in zip(operands, inexact, strict=True) if one]

        def of_floats(*some: Any) -> Any:
            rest = iter(some)
            return jax_compat.run(eqn, [next(rest) if one else v for v, one in zip(operands, inexact, strict=True)])

        return jax.jvp(of_floats, floats, floats)

    return jax_compat.make_jaxpr(tangent)(*(_as_operand(v.aval) for v in eqn.invars))


def _as_operand(aval: Any) -> Any:
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=explicit_sharding(aval))


def custom_gradient(eqn: Any) -> Any:
    """Return the jaxpr of a `custom_vjp_call` and its gradients, whose last inputs are the cotangents.

    The outputs are the results of the call, and the gradients of the floating-point operands, without the values that
    the function closes over.
    """
    closed_over = eqn.params.get("num_consts", 0)

    def gradients(operands: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        constants, given = operands[:closed_over], operands[closed_over:]
        out, pullback = jax.vjp(lambda *given: jax_compat.run(eqn, [*constants, *given]), *given)
        rest = iter(cotangents)
        found = pullback([next(rest) if is_float(v) else np.zeros(v.shape, jax.dtypes.float0) for v in out])
        return [*out, *(ct for ct, v in zip(found, given, strict=True) if is_float(v))]

    shapes = [_as_operand(v.aval) for v in (*eqn.invars, *eqn.outvars)]
    count = len(eqn.invars)
    return jax_compat.make_jaxpr(gradients)(shapes[:count], [each for each in shapes[count:] if is_float(each)])


def is_float(value: Any) -> bool:
    return jnp.issubdtype(getattr(value, "dtype", np.int32), np.inexact)


# Rules for primitives: each returns whether the parameters map the batch axes of the operands to those of the results.


def _elementwise_rule(eqn: Any, before: Axes, after: Axes) -> bool:
    if eqn.primitive.name == "optimization_barrier":
        return list(before) == list(after)
    axes = {axis for axis in (*before, *after) if axis is not None}
    return len(axes) == 1 and all(axis is not None for axis in after) and _is_threefry(eqn)


def _operand_shape(eqn: Any, operand: int = 0) -> tuple[int, ...]:
    return tuple(eqn.invars[operand].aval.shape)


def _axis_after_removal(axis: int, removed: Sequence[int]) -> int | None:
    return None if axis in removed else axis - sum(other < axis for other in removed)


def _moves_axis(eqn: Any, before: Axes, after: Axes) -> bool:
    """Decide for an operation that treats all positions of some axes alike, by where it moves these axes.

    Operands that are scalars, such as the first value of a reduction, have no batch axis.
    """
    axis, *others = {axis for v, axis in zip(eqn.invars, before, strict=True) if v.aval.shape} or {None}
    moved = None if axis is None or others else _MOVES[eqn.primitive.name](eqn, axis)
    return moved is not None and set(after) == {moved}


def _after_reduction(eqn: Any, axis: int) -> int | None:
    return _axis_after_removal(axis, eqn.params.get("axes", eqn.params.get("dimensions", ())))


def _unless_along(eqn: Any, axis: int) -> int | None:
    """Return the axis, unless the operation is along it, such as a sort or a cumulative sum."""
    rank = len(_operand_shape(eqn))
    along = eqn.params.get("axis", eqn.params.get("dimension", rank - 1))
    return None if axis == along % rank else axis


def _of_last_axes(count: int) -> Callable[[Any, int], int | None]:
    """Return the axis, unless it is one of the last ones of an operand, such as the axes of the matrices."""
    return lambda eqn, axis: axis if all(axis < len(v.aval.shape) - count for v in eqn.invars) else None


# For each primitive, the axis of its results for an axis of its operands; None if it mixes positions of this axis.
_MOVES: dict[str, Callable[[Any, int], int | None]] = {
    **dict.fromkeys("argmax argmin reduce reduce_and reduce_max reduce_min".split(), _after_reduction),
    **dict.fromkeys("reduce_or reduce_prod reduce_sum squeeze".split(), _after_reduction),
    **dict.fromkeys("cumsum cumprod cummax cummin cumlogsumexp sort top_k concatenate split".split(), _unless_along),
    **dict.fromkeys("cholesky lu qr eigh svd triangular_solve".split(), _of_last_axes(2)),
    "fft": lambda eqn, axis: _of_last_axes(len(eqn.params["fft_lengths"]))(eqn, axis),
    "rev": lambda eqn, axis: None if axis in eqn.params["dimensions"] else axis,
    "expand_dims": lambda eqn, axis: _axes_of_operand(eqn)[axis],
    "transpose": lambda eqn, axis: tuple(eqn.params["permutation"]).index(axis),
    "unstack": lambda eqn, axis: _axis_after_removal(axis, (eqn.params["axis"],)),
    "stack": lambda eqn, axis: axis + (eqn.params["axis"] <= axis),
    "pad": lambda eqn, axis: axis if tuple(eqn.params["padding_config"][axis]) == (0, 0, 0) else None,
}


def _axes_of_operand(eqn: Any) -> list[int]:
    """Return the axes of the result of an `expand_dims` that are not new."""
    return [i for i in range(len(eqn.outvars[0].aval.shape)) if i not in eqn.params["dimensions"]]


def _iota_rule(eqn: Any, before: Axes, after: Axes) -> bool:
    """Decide for positions along an axis: all examples get the same ones, unless it is the batch axis."""
    return after[0] != eqn.params["dimension"]


def _dot_rule(eqn: Any, before: Axes, after: Axes) -> bool:
    contracted, batched = eqn.params["dimension_numbers"]
    expected: list[int] = []
    for which in (0, 1):
        axis = before[which]
        if axis is None:
            continue
        if axis in contracted[which]:
            return False
        if axis in batched[which]:
            place = list(batched[which]).index(axis)
            if before[1 - which] != batched[1 - which][place]:
                return False
            expected.append(place)
            continue
        if before[1 - which] is not None:
            return False
        free = _axis_after_removal(axis, (*contracted[which], *batched[which]))
        offset = len(batched[0]) + (
            0 if which == 0 else len(_operand_shape(eqn)) - len(contracted[0]) - len(batched[0])
        )
        expected.append(offset + (free or 0))
    return set(expected) == {after[0]}


def _convolution_rule(eqn: Any, before: Axes, after: Axes) -> bool:
    """Decide for a convolution of the batch, or of each example with weights of its own, which are groups of features.

    The lengths of the other axes are those of a part, so they determine the numbers of groups for a part.
    """
    numbers = eqn.params["dimension_numbers"]
    of_batch = before[1] is None and before[0] == numbers.lhs_spec[0] and after[0] == numbers.out_spec[0]
    features = numbers.lhs_spec[1], numbers.rhs_spec[0], numbers.out_spec[1]
    return eqn.params["batch_group_count"] == 1 and (of_batch or (*before, *after) == features)


def _window_rule(eqn: Any, before: Axes, after: Axes) -> bool:
    axis, params = before[0], eqn.params
    if axis is None or axis != after[0] or any(one is not None for one in before[1:]):
        return False
    ones = [params.get(key) for key in ("window_dimensions", "window_strides", "base_dilation", "window_dilation")]
    return all(each is None or each[axis] == 1 for each in ones) and tuple(params["padding"][axis]) == (0, 0)


def _reshape_rule(eqn: Any, before: Axes, after: Axes) -> bool:
    axis, new = before[0], after[0]
    if axis is None or new is None:
        return False
    shape, order = _operand_shape(eqn), eqn.params.get("dimensions")
    earlier = range(axis) if order is None else order[: order.index(axis)]
    return math.prod(shape[i] for i in earlier) == math.prod(eqn.outvars[0].aval.shape[:new])


def _broadcast_rule(eqn: Any, before: Axes, after: Axes) -> bool:
    """Decide for a broadcast. If the operand has no batch axis, all examples get the same values."""
    return before[0] is None or eqn.params["broadcast_dimensions"][before[0]] == after[0]


def _tile_rule(eqn: Any, before: Axes, after: Axes) -> bool:
    """Decide for a repetition along each axis. If it makes the batch axis, all examples must get the same values."""
    axis = after[0]
    if axis is None or before[0] not in (None, axis):
        return False
    return _operand_shape(eqn)[axis] == 1 if before[0] is None else eqn.params["reps"][axis] == 1


def _slice_rule(eqn: Any, before: Axes, after: Axes) -> bool:
    axis = before[0]
    return axis is not None and axis == after[0] and eqn.outvars[0].aval.shape[axis] == _operand_shape(eqn)[axis]


def _dynamic_slice_rule(eqn: Any, before: Axes, after: Axes) -> bool:
    return _slice_rule(eqn, before, after) and all(axis is None for axis in before[1:])


def _dynamic_update_rule(eqn: Any, before: Axes, after: Axes) -> bool:
    axis = before[0]
    same = axis is not None and before[1] == axis == after[0] and all(one is None for one in before[2:])
    return same and _operand_shape(eqn, 1)[axis or 0] == _operand_shape(eqn)[axis or 0]


def _gather_rule(eqn: Any, before: Axes, after: Axes) -> bool:
    numbers, (axis, index_axis) = eqn.params["dimension_numbers"], before
    rows = [i for i in range(len(eqn.outvars[0].aval.shape)) if i not in numbers.offset_dims]
    expected = set[int | None]()
    if index_axis is not None:
        if index_axis >= len(rows):
            return False
        expected.add(rows[index_axis])
    if axis is not None and axis in numbers.operand_batching_dims:
        place = list(numbers.operand_batching_dims).index(axis)
        if index_axis != numbers.start_indices_batching_dims[place]:
            return False
    elif axis is not None:
        removed = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
        window = _axis_after_removal(axis, removed)
        whole = window is not None and eqn.params["slice_sizes"][axis] == _operand_shape(eqn)[axis]
        if not whole or axis in numbers.start_index_map or index_axis is not None:
            return False
        expected.add(numbers.offset_dims[window or 0])
    elif index_axis in numbers.start_indices_batching_dims:
        return False
    return expected == {after[0]}


def _scatter_rule(eqn: Any, before: Axes, after: Axes) -> bool:
    """Decide for a scatter: each example writes to its own row, or each index to the same place of all examples."""
    numbers, (axis, index_axis, update_axis) = eqn.params["dimension_numbers"], before
    if axis is None or update_axis is None or after[0] != axis:
        return False
    if axis in numbers.operand_batching_dims:
        rows = [i for i in range(len(eqn.invars[2].aval.shape)) if i not in numbers.update_window_dims]
        place = numbers.scatter_indices_batching_dims[list(numbers.operand_batching_dims).index(axis)]
        return index_axis == place and rows[place] == update_axis
    window = _axis_after_removal(axis, (*numbers.inserted_window_dims, *numbers.operand_batching_dims))
    if window is None or index_axis is not None or axis in numbers.scatter_dims_to_operand_dims:
        return False
    is_whole = _operand_shape(eqn, 2)[update_axis] == _operand_shape(eqn)[axis]
    return is_whole and numbers.update_window_dims[window] == update_axis


def _key_rule(eqn: Any, before: Axes, after: Axes) -> bool:
    """Decide for an operation on keys, whose results have additional trailing axes."""
    return before[0] is not None and set(before) == set(after) and _is_threefry(eqn)


def _is_threefry(eqn: Any) -> bool:
    """Return whether an equation reads no keys other than threefry's.

    With other generators, the numbers drawn from a key depend on the number of keys.
    """
    keys = [v.aval.dtype for v in eqn.invars if jnp.issubdtype(v.aval.dtype, jax.dtypes.prng_key)]
    return all("fry" in str(dtype) for dtype in keys)


_RULES: dict[str, Callable[[Any, Axes, Axes], bool]] = {
    **dict.fromkeys(_MOVES, _moves_axis),
    **dict.fromkeys("reduce_window reduce_window_max reduce_window_min reduce_window_sum".split(), _window_rule),
    **dict.fromkeys("random_bits random_split random_wrap random_unwrap random_seed".split(), _key_rule),
    "iota": _iota_rule,
    "dot_general": _dot_rule,
    "conv_general_dilated": _convolution_rule,
    "reshape": _reshape_rule,
    "broadcast_in_dim": _broadcast_rule,
    "tile": _tile_rule,
    "slice": _slice_rule,
    "dynamic_slice": _dynamic_slice_rule,
    "dynamic_update_slice": _dynamic_update_rule,
    "gather": _gather_rule,
    **dict.fromkeys("scatter scatter-add scatter-sub scatter-mul scatter-min scatter-max".split(), _scatter_rule),
}  # fmt: skip


# Operations whose results have a batch axis although their operands have none: positions, random bits and keys.

MADE = frozenset({"iota", "random_bits", "random_split"})

# Primitives whose equation for a part can be derived from the one for the whole batch.
DERIVED = _POINTWISE | _RULES.keys() | MADE | {"custom_jvp_call"}


def makes_batch(whole: Any, part: Any, count: int) -> bool:
    """Return whether an equation makes positions, random bits or keys for a batch, which `run_part` can make in parts.

    The keys and random bits must come from a single key.
    """
    name = whole.primitive.name
    if name != part.primitive.name or name not in MADE:
        return False
    try:
        before, after = axes_of(whole.invars, part.invars, count), axes_of(whole.outvars, part.outvars, count)
    except NotPaired:
        return False
    if after[0] is None or any(axis is not None for axis in before):
        return False
    return name == "iota" or not whole.invars[0].aval.shape  # a single key


def _counts_positions(eqn: Any) -> bool:
    """Return whether each element of an equation's random bits depends only on the key and the element's position."""
    return (
        eqn.primitive.name == "random_bits"
        and _is_threefry(eqn)
        and bool(jax.config.jax_threefry_partitionable)
        and eqn.params["bit_width"] in (8, 16, 32)
        and math.prod(eqn.outvars[0].aval.shape) < 2**32
    )


def run_part(whole: Any, operands: Sequence[Any], axis: int, which: Any, length: int, blocks: int = 1) -> Any:
    """Return a part of the result of an equation that makes a batch.

    Args:
      whole: the equation for the whole batch, as `makes_batch` accepts it.
      operands: its operands.
      axis: the batch axis of its result.
      which: the number of the part, a traced integer.
      length: the length of the part's axis.
      blocks: the number of blocks of the axis. The part has `length // blocks` entries of each of them.
    """
    shape, dtype = whole.outvars[0].aval.shape, whole.outvars[0].aval.dtype
    smaller, size = (*shape[:axis], length, *shape[axis + 1 :]), length // blocks

    def places(kind: Any) -> Any:
        """Return the positions of the part's entries along the axis."""
        own = jax.lax.broadcasted_iota(kind, smaller, axis)
        first = which.astype(kind) * kind(size)
        if blocks == 1:
            return own + first
        return own // kind(size) * kind(shape[axis] // blocks) + own % kind(size) + first

    if whole.primitive.name == "iota":
        along = whole.params["dimension"]
        # 16-bit floats would round sums of positions
        return (places(np.int32) if along == axis else jax.lax.broadcasted_iota(np.int32, smaller, along)).astype(dtype)
    if not _counts_positions(whole):  # other generators have to make the bits of the whole batch for each part
        (made,) = jax_compat.run(whole, list(operands))
        in_blocks = made.reshape(*shape[:axis], blocks, shape[axis] // blocks, *made.shape[axis + 1 :])
        found = jax.lax.dynamic_slice_in_dim(in_blocks, which * size, size, axis + 1)
        return found.reshape(*shape[:axis], length, *made.shape[axis + 1 :])
    # With jax_threefry_partitionable=True, the counters of the threefry generator are the elements' positions.
    offsets = (
        (places(np.uint32) if i == axis else jax.lax.broadcasted_iota(np.uint32, smaller, i))
        * np.uint32(math.prod(shape[i + 1 :]))
        for i in range(len(shape))
    )
    position = functools.reduce(jnp.add, offsets)
    first, second = jax.random.key_data(operands[0])
    bits = random.threefry2x32_p.bind(first, second, jnp.zeros_like(position), position)
    return (bits[0] ^ bits[1]).astype(dtype)
