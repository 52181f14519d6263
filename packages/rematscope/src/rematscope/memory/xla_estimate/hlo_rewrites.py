"""Rewrite a program as XLA does before fusion: merge equal operations, and insert copies.

Each rule gives the name of the XLA pass if there is one. `packages/rematscope/tests/memory/test_rules_of_xla.py`
measures the effect of each rule. On every target:

* XLA computes equal operations once (`HloCSE`), unless a barrier separates them. Here, recomputed operations are merged
  with each other, as for checkpoints inside another one, but never with those of the forward pass. If XLA merges them
  with the forward pass and so undoes a checkpoint, the estimate is too low.
* The broadcast of an operand becomes a separate operation; see `broadcasts.py`.
* Of a `cond` with a constant index, only the chosen branch remains (`ConditionalSimplifier`).
* A multiplication by a mask becomes a select. A matmul that contracts an axis of length one becomes elementwise.
* A few iterations of a scan may be unrolled; see `unrolled.py`.
* The broadcast of a constant outside a loop moves into the loop's body (`SinkConstantsToControlFlow`).
* A gather with indices that may be out of bounds is followed by a select.

In addition, on a CPU:

* A matmul needs matrices, with batch axes in front. An operand whose contracted or remaining axes are in another order
  is copied first (`DotDecomposer`).
* Matmuls of 2-byte elements need a library, which multiplies only `bfloat16` in rows. Other operands are first copied
  to `float32`.
* A convolution reads N…C and …IO, and writes N…C. If the kernel is larger than the image, the two are swapped, and the
  reversed kernel is the only copy (`SwapConvOperands`).
* The derivative of a pooling is a scatter to positions that the forward pass finds.
* Random bits of JAX's default keys take two integers per element, and two more while a loop computes them.
* Operations whose operands no iteration of a loop changes run before the loop; see `loop_invariants.py`.
* A grouped matmul is dense: it has one copy of its operand per group, with zeros for the rows of the other groups.
"""

import dataclasses
import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import jax
import numpy as np
from jax.lax import GatherScatterMode

from rematscope.ir import primitives, roles
from rematscope.ir.number_table import NumberTable
from rematscope.ir.primitives import DUPLICABLE, MATMULS, MOVES
from rematscope.ir.program import RENAMES, Equation, Literal, Program, Value
from rematscope.ir.sharding_propagation import read_as
from rematscope.memory.xla_estimate.broadcasts import Broadcasts, value_like
from rematscope.memory.xla_estimate.dot_layout import is_copied, is_outer, is_swapped
from rematscope.memory.xla_estimate.loop_invariants import hoist_invariants
from rematscope.memory.xla_estimate.unrolled import copy_program, unroll_scan

# Moves that XLA duplicates are fused like elementwise operations; a transposition cannot reuse its operand's buffer.
FUSED_LIKE_ELEMENTWISE = primitives.ELEMENTWISE | (MOVES & DUPLICABLE) - {"transpose"}
YNNPACK_MIN_ELEMENTS = 4096  # from which on a CPU's library computes reductions with the operations around them
MIXED = "threefry2x32"  # the loop that mixes random bits


def rewrite_as_hlo(program: Program, target: str, is_body: bool = False) -> Program:
    """Return the program, including its bodies, with equal operations merged and with XLA's copies.

    Args:
      program: the program.
      target: the device.
      is_body: whether it is the body of a loop or a branch.

    Returns:
      A program with the same values and a few more. A `name` equation gives a merged value its other name.
    """
    lowering = _Lowering(target, Broadcasts(program), is_body)
    for equation in program.equations:
        lowering.add(equation)
    return dataclasses.replace(program, equations=lowering.equations)


class _Lowering:
    """Rewrites the equations of one level, one after the other."""

    def __init__(self, target: str, repeated: Broadcasts, is_body: bool):
        self.equations: list[Equation] = []
        self._target, self._is_body = target, is_body
        self._repeated = repeated
        self._table = NumberTable()
        self._masks: dict[Value, Value] = {}  # values of 0 and 1, with the predicates that are True for 1
        self._again: set[Value] = set()  # recomputed values
        self._kept: dict[Hashable, Value] = {}  # for each value number or operation key, the first value

    def add(self, equation: Equation) -> None:
        """Append the operations that XLA compiles an equation to."""
        if equation.primitive == "scan" and (iterations := unroll_scan(equation)) != [equation]:
            for each in iterations:
                self.add(each)
            return
        if self._target == "cpu":
            moved, equation = hoist_invariants(equation)
            for each in moved:
                self.add(each)
        if equation.role == roles.RECOMPUTED:
            self._again.update(equation.outputs)
        self._repeated.note(equation)
        if (operand := self._operand_as_result(equation)) is not None:
            equation = dataclasses.replace(equation, primitive="name", inputs=(operand,))
            self._repeated.note(equation)
        if equation.primitive in RENAMES:
            self._table.assign(equation.outputs, map(self._table.number, equation.inputs))
            self.equations.append(equation)
        elif equation.primitive == "cond" and (branch := self._only_branch(equation)) is not None:
            for inner in branch.equations:
                self.add(inner)
            for result, value in zip(equation.outputs, branch.outputs, strict=True):
                self._repeated.note(self._append_operation("name", [value], result, equation))
        elif equation.bodies:
            equation = self._with_constants_inside(equation)
            bodies = tuple(rewrite_as_hlo(body, self._target, is_body=True) for body in equation.bodies)
            self.equations.append(dataclasses.replace(equation, bodies=bodies))
        elif equation.primitive == "optimization_barrier":  # XLA does not merge its results with earlier values
            self._table.assign(equation.outputs, (self._table.intern(equation, v) for v in equation.outputs))
            self.equations.append(equation)
        elif not self._merge_with_equal(equation):
            self._add_operation(equation)

    def _merge_with_equal(self, equation: Equation) -> bool:
        """Name the results after those of an equal operation, if there is one (`HloCSE`)."""
        numbers = self._table.results(equation)
        self._table.assign(equation.outputs, numbers)
        keys: list[Hashable] = [(number, equation.role == roles.RECOMPUTED) for number in numbers]
        if not keys or any(key not in self._kept for key in keys):
            self._kept.update(zip(keys, equation.outputs, strict=True))
            return False
        for key, value in zip(keys, equation.outputs, strict=True):
            if self._kept[key] is not value:  # in a schedule, both passes may define the same value
                self._repeated.note(self._append_operation("name", [self._kept[key]], value, equation))
        return True

    def _add_operation(self, equation: Equation) -> None:
        if equation.primitive in ("split", "unstack"):
            for value in equation.outputs:
                self._append_operation("slice", equation.inputs, value, equation)
            return
        if equation.primitive == "convert_element_type" and equation.inputs[0].dtype == bool:
            self._masks[equation.outputs[0]] = equation.inputs[0]
        self.equations.append(self._expand_operation(self._with_gathered_operands(equation)))

    def _operand_as_result(self, equation: Equation) -> Value | None:
        """Return the operand equal to the result of a constant select, a sum with 0 or a maximum with −∞; or None."""
        match equation.primitive:
            case "select_n" if (chosen := self._repeated.number(equation.inputs[0])) is not None:
                return equation.inputs[1 + int(chosen)]
            case "max" if isinstance(equation.inputs[0], Literal) and equation.inputs[0].name == "-inf":
                return equation.inputs[1]
            case "add" if equation.outputs[0].shape:
                for value, other in (equation.inputs, equation.inputs[::-1]):
                    if self._repeated.number(value) == 0 and other.shape == equation.outputs[0].shape:
                        return other
        return None

    def _with_constants_inside(self, loop: Equation) -> Equation:
        """Return a loop with the broadcasts of known numbers outside of it moved into its body."""
        around = loop.inputs[: loop.first_carry]
        numbers = {v: equation for v in around if (equation := self._repeated.of_number(v)) is not None}
        if loop.primitive != "scan" or not numbers:
            return loop
        inside = {v: value_like(v) for v in numbers}
        body = copy_program(loop.bodies[0], inside)
        body.equations[:0] = [dataclasses.replace(e, outputs=(inside[v],)) for v, e in numbers.items()]
        rest = tuple(v for v in around if v not in numbers)
        inputs = (*rest, *loop.inputs[loop.first_carry :])
        return dataclasses.replace(loop, inputs=inputs, first_carry=len(rest), bodies=(body,))

    def _only_branch(self, equation: Equation) -> Program | None:
        """Return the only branch of a `cond` that runs, if its index is constant; else None."""
        index = self._repeated.number(equation.inputs[0])
        return None if index is None else equation.bodies[min(max(int(index), 0), len(equation.bodies) - 1)]

    def _merge_key(self, primitive: str | None, inputs: Sequence[Value], like: Equation) -> tuple[Hashable, ...]:
        again = like.role == roles.RECOMPUTED or not self._again.isdisjoint(inputs)
        return primitive, again, *map(self._table.number, inputs)

    def _append_operation(self, primitive: str, inputs: Iterable[Value], output: Value, like: Equation) -> Equation:
        self.equations.append(Equation(primitive, tuple(inputs), (output,), {}, like.eqn, role=like.role))
        return self.equations[-1]

    def _append_once(self, primitive: str, inputs: Sequence[Value], like: Equation, **changed: Any) -> Value:
        """Append an operation unless it was appended for these operands; `changed` is the difference of its type."""
        key = self._merge_key(primitive, inputs, like), *map(str, changed.items())
        if key not in self._kept:
            first = inputs[0]
            value = value_like(first, **changed)
            (self._kept[key],) = self._append_operation(primitive, inputs, value, like).outputs
        return self._kept[key]

    def _with_gathered_operands(self, equation: Equation) -> Equation:
        """Return an operation with gathers of the operands whose shards it cannot use on a mesh.

        An operand that was gathered for a recompute is available in the backward pass too.
        """
        inputs = list(equation.inputs)
        if equation.primitive in MATMULS:
            for i, (value, needed) in enumerate(zip(inputs, read_as(equation), strict=True)):
                if needed.shape != value.placement.shape:
                    inputs[i] = self._append_once("all_gather", [value], dataclasses.replace(equation, role=""))
                    inputs[i].sharding = needed
        return equation.with_inputs(tuple(inputs))  # a copy, because both passes of a schedule may run an equation

    def _expand_operation(self, equation: Equation) -> Equation:
        if equation.primitive == "div" and self._repeated.is_inverted(*equation.inputs[1:], *equation.outputs):
            equation = dataclasses.replace(equation, primitive="mul")  # by the reciprocal, which is cheap to compute
        if equation.primitive == "mul":
            equation = self._masked_as_select(equation)
        if equation.primitive == "gather" and equation.params["mode"] == GatherScatterMode.FILL_OR_DROP:
            (result,) = equation.outputs
            found = value_like(result)
            self.equations.append(dataclasses.replace(equation, outputs=(found,)))
            return Equation("select_n", (found,), (result,), {}, equation.eqn, role=equation.role)
        if equation.primitive == "dot_general" and is_outer(equation):
            return dataclasses.replace(equation, primitive="mul")
        if self._target == "cpu":
            match equation.primitive:
                case "dot_general":
                    return self._expand_matmul(equation)
                case "conv_general_dilated":
                    return self._expand_convolution(equation)
                case "select_and_scatter_add":
                    return self._expand_pooling_gradient(equation)
                case "ragged_dot_general":
                    return self._expand_grouped_matmul(equation)
                case "random_bits" if str(equation.inputs[0].dtype) == "key<fry>":
                    return self._expand_random_bits(equation)
        if equation.primitive in FUSED_LIKE_ELEMENTWISE and len(equation.outputs) == 1:
            if (later := self._repeated.later(equation)) is None:
                return self._with_broadcasts(equation)
            self.equations += later[:-1]
            return later[-1]
        return equation

    def _masked_as_select(self, product: Equation) -> Equation:
        """Return a multiplication by a mask as a select between the value and 0, except for two-byte types."""
        one, other = product.inputs
        mask, value = (other, one) if other in self._masks else (one, other)
        if mask not in self._masks or mask.shape != product.outputs[0].shape or mask.dtype.itemsize == 2:
            return product
        return dataclasses.replace(product, primitive="select_n", inputs=(self._masks[mask], value))

    def _with_broadcasts(self, equation: Equation) -> Equation:
        """Return an operation with the implicit broadcasts of its operands as separate operations."""
        if equation.primitive in ("broadcast_in_dim", "pad", "slice"):
            return equation
        (result,) = equation.outputs
        shape, shapes = result.shape, [v.shape for v in equation.inputs]
        if any(len(each) not in (0, len(shape)) for each in shapes):
            return equation
        inputs = list(equation.inputs)
        for i, value in enumerate(inputs):
            if isinstance(value, Literal):
                is_spread = (
                    self._target == "cpu"
                    and len(inputs) > 1
                    and math.prod(result.on_device.shape) >= YNNPACK_MIN_ELEMENTS
                )
            else:
                is_spread = shapes[i] not in (shape, ())
            if is_spread:
                inputs[i] = self._append_once("broadcast_in_dim", [value], equation, shape=shape)
                inputs[i].sharding = result.sharding
        return equation.with_inputs(tuple(inputs))

    def _expand_matmul(self, equation: Equation) -> Equation:
        contracted, batches = equation.params["dimension_numbers"]
        lhs, rhs = equation.inputs[:2]
        turned = [is_copied(lhs, contracted[0], batches[0], 1), is_copied(rhs, contracted[1], batches[1], 0)]
        short = {v.dtype.itemsize < 4 for v in (lhs, rhs) if jax.numpy.issubdtype(v.dtype, np.floating)} == {True}
        rows = turned[0] or max(contracted[0], default=-1) == len(lhs.shape) - 1
        columns = len(rhs.shape) > len(contracted[1]) + len(batches[1])
        if short and not (rows and columns and lhs.dtype == rhs.dtype == jax.numpy.bfloat16):
            return self._with_copied_operands(equation, [True, True], dtype=np.dtype(np.float32))
        return self._with_copied_operands(equation, turned)

    def _with_copied_operands(self, equation: Equation, copied: Sequence[bool], **changed: Any) -> Equation:
        copies = [
            self._append_once("copy", [v], equation, **changed) if one and not isinstance(v, Literal) else v
            for v, one in zip(equation.inputs, copied, strict=False)
        ]
        return dataclasses.replace(equation, inputs=(*copies, *equation.inputs[len(copied) :]))

    def _expand_convolution(self, equation: Equation) -> Equation:
        numbers, last = equation.params["dimension_numbers"], len(equation.inputs[0].shape) - 1
        ends = [(spec[0], spec[1]) for spec in (numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec)]
        turned = [here != there for here, there in zip(ends, [(0, last), (last, last - 1), (0, last)], strict=True)]
        if is_swapped(equation):
            return self._with_copied_operands(equation, [False, True])
        convolution = self._with_copied_operands(equation, turned[:2])
        if equation.params["batch_group_count"] > 1:
            # XLA changes the order of axes for faster convolutions only outside of loops and branches.
            return self._expand_depthwise_gradient(convolution, turned[2] and not self._is_body)
        if not turned[2]:
            return convolution
        (result,) = equation.outputs
        raw = value_like(result)
        self.equations.append(dataclasses.replace(convolution, outputs=(raw,)))
        return Equation("copy", (raw,), (result,), {}, equation.eqn, role=equation.role)

    def _expand_depthwise_gradient(self, convolution: Equation, turned: bool) -> Equation:
        """Expand the gradient of a depthwise kernel: XLA computes it for all pairs of features, and masks the others.

        Args:
          turned: whether XLA computes the result with its axes in another order, and copies it.
        """
        (result,) = convolution.outputs
        axis = convolution.params["dimension_numbers"].out_spec[0]
        shape = [*result.shape]
        shape[axis] *= convolution.params["batch_group_count"]
        pairs = Value(result.aval.update(shape=tuple(shape)), result.name)
        self.equations.append(dataclasses.replace(convolution, outputs=(pairs,)))
        masked = value_like(pairs)
        self._append_operation("copy" if turned else "mul", (pairs,), masked, convolution)
        params = {"axes": (axis,)}
        return Equation("reduce_sum", (masked,), (result,), params, convolution.eqn, role=convolution.role)

    def _expand_pooling_gradient(self, equation: Equation) -> Equation:
        """Expand the gradient of a pooling: find each window's maximum, and scatter the cotangents there."""
        source, operand = equation.inputs
        axes = [self._append_iota(operand, axis, equation) for axis in range(len(operand.shape))]
        found = [value_like(source, dtype=np.dtype(np.int32)) for _ in axes]
        selected = (value_like(source), *found)
        self.equations.append(Equation("select", (operand, *axes), selected, {}, equation.eqn, role=equation.role))
        places = Value(found[0].aval.update(shape=(*source.on_device.shape, len(axes))), source.name)
        self._append_operation("concatenate", found, places, equation)
        zeros = value_like(operand)
        self._append_operation("zeros", (), zeros, equation)
        return dataclasses.replace(equation, primitive="scatter", inputs=(zeros, places, source))

    def _append_iota(self, value: Value, axis: int, like: Equation) -> Value:
        """Append the index of each element along an axis, once per shape."""
        key = "iota", value.shape, axis
        if key not in self._kept:
            (self._kept[key],) = self._append_operation(
                "iota", (), value_like(value, dtype=np.dtype(np.int32)), like
            ).outputs
        return self._kept[key]

    def _expand_random_bits(self, equation: Equation) -> Equation:
        """Expand random bits: two counters per element are mixed in a loop, and combined."""
        made = [[value_like(v, dtype=np.dtype(np.uint32)) for v in equation.outputs * 2] for _ in range(2)]
        for value in made[0]:
            self._append_operation("count", equation.inputs, value, equation)
        self.equations.append(dataclasses.replace(equation, primitive=MIXED, inputs=(*made[0],), outputs=(*made[1],)))
        return dataclasses.replace(equation, primitive="xor", inputs=(*made[1],))

    def _expand_grouped_matmul(self, equation: Equation) -> Equation:
        lhs, rhs, groups = equation.inputs[:3]
        numbers = equation.params["ragged_dot_dimension_numbers"]
        (contracted, _), _ = numbers.dot_dimension_numbers
        first = self._append_dense_groups(lhs, groups, equation)
        if set(numbers.lhs_ragged_dimensions) & set(contracted):
            second = self._append_dense_groups(rhs, groups, equation)
        else:
            first, second = (self._append_once("copy", [v], equation) for v in (first, rhs))
        return dataclasses.replace(equation, inputs=(first, second, *equation.inputs[2:]))

    def _append_dense_groups(self, value: Value, groups: Value, equation: Equation) -> Value:
        """Append the value once per group, with zeros for the rows of other groups."""
        shape = (int(groups.shape[-1]), *value.shape)
        ends = [self._append_once(name, [groups], equation, shape=shape, dtype=np.dtype(bool)) for name in ("ge", "lt")]
        mask = self._append_once("and", ends, equation)
        return self._append_once("select_n", [value, mask], equation, shape=shape)
