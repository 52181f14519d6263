"""Find the collectives that the shardings of arrays imply; on a mesh with explicit axes, the program has no others.

The type of an array contains the mesh axes that shard each dimension ("sharding in types"). If the operands of an
operation are sharded differently from its result, the compiler inserts a collective. A sum over a sharded dimension
gives each device a partial sum of every element, so a reduction follows. Under automatic axes, a sharding constraint
implies a collective if the sharding of its operand is known.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

from rematscope.ir.primitives import REDUCTIONS
from rematscope.ir.program import Equation, Value
from rematscope.ir.specs import spec_of

_REDUCTIONS = REDUCTIONS - {"argmax", "argmin", "reduce"}  # reductions of one array that can be combined from parts


class ImplicitCollective(NamedTuple):
    """A collective that the shardings of arrays imply.

    Attributes:
      kind: XLA's name of the collective.
      operand, result: the bytes of the operand and of the result on each device.
      devices: the number of devices that exchange data with each other.
    """

    kind: str
    operand: int
    result: int
    devices: int


def implicit_collectives(equation: Equation) -> Iterator[ImplicitCollective]:
    """Yield the collectives that an operation needs because of the shardings of its operands and its result."""
    if len(equation.outputs) != 1 or not equation.inputs:
        return
    if equation.primitive == "reshard":
        yield from _resharding_collectives(equation.inputs[0], equation.outputs[0])
        return
    if equation.primitive == "sharding_constraint":
        yield from _constraint_collectives(equation.inputs[0], equation.outputs[0])
        return
    if equation.primitive == "dot_general":
        (summed, _), _ = equation.params["dimension_numbers"]
    elif equation.primitive in _REDUCTIONS:
        summed = equation.params["axes"]
    else:
        return
    operand = spec_of(equation.inputs[0].aval)
    axes = {axis for dimension in summed for axis in operand.axes[dimension]} if operand is not None else set()
    yield from _reduction_collectives(axes, equation.outputs[0])


def _resharding_collectives(array: Value, result: Value) -> Iterator[ImplicitCollective]:
    before, after = spec_of(array.aval), spec_of(result.aval)
    if before is None or after is None:
        return
    yield from _reduction_collectives(before.unreduced, result)
    was = {axis: i for i, axes in enumerate(before.axes) for axis in axes}
    will = {axis: i for i, axes in enumerate(after.axes) for axis in axes}
    if gathered := before.ways(was.keys() - will.keys()):
        yield ImplicitCollective("all-gather", array.device_bytes, gathered * array.device_bytes, gathered)
    if moved := before.ways({axis for axis in was.keys() & will.keys() if was[axis] != will[axis]}):
        yield ImplicitCollective("all-to-all", array.device_bytes, array.device_bytes, moved)


def _constraint_collectives(array: Value, result: Value) -> Iterator[ImplicitCollective]:
    """Yield the collectives of a sharding constraint under automatic axes, from the shapes of the shards.

    There are none if the sharding of the operand or of the result is not known.
    """
    before, after = array.placement, result.placement
    if not (before.is_explicit and after.is_explicit) or before.shape == after.shape:
        return
    ways = math.prod(after.shape) // max(1, math.prod(before.shape))
    if ways > 1:
        yield ImplicitCollective("all-gather", array.device_bytes, result.device_bytes, ways)
    elif any(b < a for b, a in zip(before.shape, after.shape, strict=True)):
        moved = math.prod(a // b for b, a in zip(before.shape, after.shape, strict=True) if b < a)
        yield ImplicitCollective("all-to-all", array.device_bytes, result.device_bytes, moved)


def _reduction_collectives(axes: set[str] | frozenset[str], result: Value) -> Iterator[ImplicitCollective]:
    """Yield the collectives that turn partial sums along some axes into `result`; none if `result` is unreduced too."""
    after = spec_of(result.aval)
    if after is None:
        return
    scattered = {axis for dimension in after.axes for axis in dimension} & axes
    if parts := after.ways(scattered):
        yield ImplicitCollective("reduce-scatter", parts * result.device_bytes, result.device_bytes, parts)
    if everywhere := after.ways(axes - scattered - after.unreduced):
        yield ImplicitCollective("all-reduce", result.device_bytes, result.device_bytes, everywhere)
