"""Predict the shardings that a program leaves to the compiler: a result is sharded like its operands.

Under automatic axes, XLA propagates shardings from operation to operation until nothing changes (GSPMD, Xu et al.,
2021, arXiv:2105.04663). This module propagates them forward, then backward from readers to values that can be computed
in shards at no cost: broadcasts, results of elementwise operations, stacks and carries of loops. So an update
`w - lr * g` shards the gradient like the parameter. An operation or a constraint that shards some dimensions leaves the
others to readers; a constraint on each slice does not bind the stack. A sum over a sharded dimension is a sum of
partial sums, which devices exchange; it is replicated until an operation reads a shard of it. If two operands use the
same mesh axis for different dimensions, the operand with more elements keeps it, and the other is gathered; of equally
large operands, the first one keeps it.

The order of operations decides conflicts, and is that of Shardy, XLA's partitioner (`op_priority_propagation.cc`):
elementwise operations, reshapes and transposes propagate first, in both directions. Then matmuls, gathers and all other
operations follow, and broadcasts are last. So a constraint in a loop's body shards the carry, even if the initial value
is read from a table with another sharding. Without constraints, the weights in the body shard the carry before an
initial value that comes from a gather or a matmul.
"""

import enum
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rematscope.ir.primitives import ELEMENTWISE, REDUCTIONS
from rematscope.ir.program import BOOKKEEPING, Equation, Literal, Placement, Program, Value
from rematscope.ir.specs import device_shape

Axes = tuple[tuple[str, ...], ...]  # for each dimension, the mesh axes that it is sharded across

_CONTRACTIONS = frozenset({"dot_general", "conv_general_dilated"})  # the operations with dimension numbers
_SUMS = _CONTRACTIONS | {"gather", "scatter", "scatter-add"}
_PASS_THROUGH = ELEMENTWISE | {"sharding_constraint", "reshape", "squeeze", "expand_dims", "transpose"}
_ALONG = {"sort": "dimension", "cumsum": "axis", "cumprod": "axis", "cumlogsumexp": "axis"}
_ALONG |= {"cummax": "axis", "cummin": "axis"}


def propagate(programs: Sequence[Program], like: Mapping[Value, Value], sizes: Mapping[str, int]) -> None:
    """Record the predicted shardings of values in programs that run one after the other.

    Args:
      programs: the programs, in which `rematscope.ir.placement.place` has recorded the known shardings.
      like: maps later inputs, the cotangents, to the results whose sharding they have.
      sizes: the size of each mesh axis.
    """
    spread = _Propagation(sizes)
    for program in programs:
        spread.bind_sums(program)
    for spread.stage in _Stage:
        for sweep, order in ((spread.forward, 1), (spread.backward, -1), (spread.forward, 1)):
            for program in programs[::order]:
                sweep(program)
                spread.copy(like)


def read_as(equation: Equation) -> list[Placement]:
    """Return the sharding with which an operation reads each operand.

    A matmul's operand is gathered along a contracted dimension whose mesh axes the result uses, and along a dimension
    that has a different sharding in the result.
    """
    found = [v.placement for v in equation.inputs]
    if equation.primitive not in _CONTRACTIONS:
        return found
    (result,) = equation.outputs
    after = result.placement.axes
    if after is None or any(place.axes is None for place in found[:2]):
        return found
    kept = _kept_dimensions(equation)
    used = {axis for axes in after for axis in axes}
    for i, (value, place) in enumerate(zip(equation.inputs[:2], found[:2], strict=True)):
        shape = list(place.shape)
        for dimension, axes in enumerate(place.axes or ()):
            there = after[kept[i][dimension]] if dimension in kept[i] else ()
            if axes and (there != axes if dimension in kept[i] else not used.isdisjoint(axes)):
                shape[dimension] = value.shape[dimension]
        found[i] = place._replace(shape=tuple(shape))
    return found


def _kept_dimensions(equation: Equation) -> list[dict[int, int]]:
    """Map the dimensions of both operands of a matmul to those of the result."""
    if equation.primitive == "conv_general_dilated":
        numbers = equation.params["dimension_numbers"]
        return [{numbers.lhs_spec[0]: numbers.out_spec[0]}, {numbers.rhs_spec[0]: numbers.out_spec[1]}]
    contracted, batches = equation.params["dimension_numbers"]
    found = [{dimension: i for i, dimension in enumerate(batch)} for batch in batches]
    place = len(batches[0])
    for operand, value in enumerate(equation.inputs[:2]):
        for dimension in range(len(value.shape)):
            if dimension not in contracted[operand] and dimension not in batches[operand]:
                found[operand][dimension] = place
                place += 1
    return found


class _Stage(enum.IntEnum):
    """The order in which operations propagate shardings: a later stage does not change what an earlier one decided."""

    ELEMENTWISE = enum.auto()  # elementwise operations, reshapes, transposes, and the carries of loops
    OTHERS = enum.auto()  # also all other operations, except from a broadcast's operand to its result
    BROADCASTS = enum.auto()


class _Propagation:
    def __init__(self, sizes: Mapping[str, int]):
        self.stage = _Stage.ELEMENTWISE
        self._sizes = {axis: size for axis, size in sizes.items() if size > 1}
        self._bound: set[Value] = set()  # sums of partial sums, which are replicated before any shard is read
        self._stacks: set[Value] = set()  # stacked results of loops, which readers may divide further than each slice

    def bind_sums(self, program: Program) -> None:
        """Record which values may be sums of partial sums, before any sharding is known."""
        for equation in program.all_equations():
            if equation.primitive in _SUMS or equation.primitive in REDUCTIONS:
                self._bound.update(equation.outputs)

    def forward(self, program: Program) -> None:
        for equation in program.equations:
            if equation.primitive in ("scan", "while"):
                self._propagate_loop(equation)
            elif equation.primitive == "cond":
                for body in equation.bodies:
                    self.forward(body)
                for value, *results in zip(equation.outputs, *(b.outputs for b in equation.bodies), strict=True):
                    self._assign_axes(value, self._join_operands([(v, self._sharded_axes(v)) for v in results], value))
            elif equation.primitive in BOOKKEEPING:
                for value, operand in zip(equation.outputs, equation.inputs, strict=True):
                    self._assign_axes(value, self._sharded_axes(operand))
            elif self._is_due(equation):
                for value in equation.outputs:
                    self._assign_axes(value, self._result_axes(equation, value))

    def _is_due(self, equation: Equation) -> bool:
        """Return whether an operation shards its results like its operands at this stage."""
        if equation.primitive == "shard_map":
            return False
        if equation.primitive == "broadcast_in_dim":
            (result,) = equation.outputs
            is_reshape = math.prod(equation.inputs[0].shape) == math.prod(result.shape)
            return is_reshape or self.stage == _Stage.BROADCASTS
        return self.stage > _Stage.ELEMENTWISE or equation.primitive in _PASS_THROUGH

    def copy(self, like: Mapping[Value, Value]) -> None:
        for value, other in like.items():
            self._assign_axes(value, self._sharded_axes(other))

    def backward(self, program: Program) -> None:
        for equation in reversed(program.equations):
            if equation.primitive in ("scan", "while"):
                self._shard_loop_like_readers(equation)
            elif equation.primitive == "cond":
                for body in equation.bodies:
                    for result, value in zip(equation.outputs, body.outputs, strict=True):
                        self._assign_backward(value, self._sharded_axes(result))
                    self.backward(body)
            elif equation.primitive in BOOKKEEPING:
                for value, operand in zip(equation.outputs, equation.inputs, strict=True):
                    self._assign_backward(operand, self._sharded_axes(value))
            elif len(equation.outputs) == 1 and equation.primitive != "shard_map":
                self._shard_operands_like_result(equation)

    def _shard_loop_like_readers(self, loop: Equation) -> None:
        body, carries = loop.bodies[-1], loop.carries
        for result, value in zip(loop.outputs[:carries], body.outputs[:carries], strict=False):
            self._assign_backward(value, self._sharded_axes(result))
        for result, value in zip(loop.outputs[carries:], body.outputs[carries:], strict=True):
            self._assign_backward(value, self._sharded_axes(result)[1:])
        for inner in loop.bodies:
            self.backward(inner)
        for first, value in zip(loop.initial, body.inputs, strict=False):
            self._assign_backward(first, self._sharded_axes(value))

    def _shard_operands_like_result(self, equation: Equation) -> None:
        (result,) = equation.outputs
        axes = self._sharded_axes(result)
        for value in equation.inputs:
            if value.shape == result.shape and (equation.primitive not in _SUMS or value is equation.inputs[0]):
                self._assign_backward(value, axes)
            elif equation.primitive == "broadcast_in_dim":
                places = equation.params["broadcast_dimensions"]
                pairs = zip(value.shape, places, strict=True)
                self._assign_backward(value, tuple(axes[p] if n == result.shape[p] else () for n, p in pairs))
            elif equation.primitive == "transpose":
                places = equation.params["permutation"]
                self._assign_backward(value, tuple(axes[places.index(i)] for i in range(len(places))))
            elif equation.primitive in ("reshape", "squeeze", "expand_dims"):
                self._assign_backward(value, self._reshape_axes(result.shape, value.shape, axes))

    def _sharded_axes(self, value: Value) -> Axes:
        """Return the mesh axes that each dimension of a value is sharded across; none if unknown."""
        placement = value.placement
        if placement.axes is not None or isinstance(value, Literal):
            return placement.axes or ((),) * len(value.shape)
        free = dict(self._sizes)
        found = []
        for whole, part in zip(value.shape, placement.shape, strict=False):  # for example a result of a shard_map
            axis = next((axis for axis, size in free.items() if part < whole and -(-whole // size) == part), None)
            found.append(() if axis is None else (axis,))
            free.pop(axis or "", None)
        return tuple(found)

    def _assign_axes(self, value: Value, axes: Axes) -> None:
        if isinstance(value, Literal) or not hasattr(value.aval, "shape"):
            return
        if value.placement.is_explicit and (value not in self._stacks or axes == self._sharded_axes(value)):
            return
        parts = [math.prod(self._sizes.get(axis, 1) for axis in over) for over in axes]
        pairs = zip(value.shape, axes, parts, strict=True)
        value.sharding = Placement(tuple(-(-n // part) if over else n for n, over, part in pairs), False, axes)

    def _assign_backward(self, value: Value, axes: Axes) -> None:
        """Shard a value like its reader, in addition to its own sharding, if its shards can be computed at no cost."""
        if value not in self._bound and any(axes):
            self._assign_axes(value, self._join_axes(self._sharded_axes(value), axes))

    def _join_operands(self, operands: Iterable[tuple[Value, Axes]], result: Value) -> Axes:
        """Return the combined sharding of operands of the same shape."""
        found: Axes = ((),) * len(result.shape) if result.sharding is None else self._sharded_axes(result)
        for _, axes in operands:
            found = self._join_axes(found, axes)
        return found

    def _join_axes(self, first: Axes, second: Axes) -> Axes:
        """Return the first sharding, extended by the second where the first uses neither dimension nor mesh axes."""
        found = list(first)
        used = {axis for axes in found for axis in axes}
        for dimension, over in enumerate(second):
            if over and not found[dimension] and used.isdisjoint(over):
                found[dimension] = over
                used.update(over)
        return tuple(found)

    def _propagate_loop(self, loop: Equation) -> None:
        body, carries = loop.bodies[-1], loop.carries
        for array, part in zip(loop.stacked_inputs, body.inputs[carries:], strict=True):
            self._assign_axes(part, self._sharded_axes(array)[1:])

        def carry(values: Sequence[Value]) -> None:
            for program in loop.bodies:
                for value, own in zip(values, program.inputs[:carries], strict=True):
                    self._assign_axes(own, self._join_operands([(value, self._sharded_axes(value))], own))

        if self.stage == _Stage.ELEMENTWISE:
            carry(loop.initial)
        for values in (body.outputs[:carries], loop.initial):  # the second time, with the new shardings of the carries
            for program in loop.bodies:
                self.forward(program)
            carry(values)
        for result, value in zip(loop.outputs, body.inputs[:carries], strict=False):
            self._assign_axes(result, self._sharded_axes(value))
        for array, part in zip(loop.outputs[carries:], body.outputs[carries:], strict=True):
            if not device_shape(array.aval)[1]:
                self._stacks.add(array)
            self._assign_axes(array, self._join_axes(self._sharded_axes(array), ((), *self._sharded_axes(part))))

    def _result_axes(self, equation: Equation, result: Value) -> Axes:
        is_early = equation.primitive in ELEMENTWISE and self.stage < _Stage.BROADCASTS
        arrays = [v for v in equation.inputs if hasattr(v.aval, "shape") and (not is_early or v.shape == result.shape)]
        operands = [(v, self._sharded_axes(v)) for v in arrays]
        whole: Axes = ((),) * len(getattr(result, "shape", ()))
        if not operands or not whole:
            return whole if result.sharding is None else self._sharded_axes(result)
        first, axes = operands[0]
        params = equation.params
        match equation.primitive:
            case "dot_general" | "conv_general_dilated":
                found = self._matmul_axes(equation, operands)
            case "broadcast_in_dim":
                pairs = zip(first.shape, params["broadcast_dimensions"], axes, strict=True)
                places = {p: over for n, p, over in pairs if n == result.shape[p]}
                found = tuple(places.get(d, ()) for d in range(len(whole)))
            case "transpose":
                found = tuple(axes[d] for d in params["permutation"])
            case "reshape" | "squeeze" | "expand_dims":
                found = self._reshape_axes(first.shape, result.shape, axes)
            case "gather":
                found = self._gather_axes(equation, result)
            case "concatenate" | "dynamic_update_slice" | "select_and_scatter_add":
                found = self._join_operands(_of_equal_sizes(operands, result), result)
            case name if name.startswith("scatter"):
                found = self._join_axes(axes, self._scatter_axes(equation))
            case name if len(first.shape) > len(whole) and (name == "unstack" or "axes" in params):
                removed = (params["axis"],) if name == "unstack" else params["axes"]
                found = tuple(over for d, over in enumerate(axes) if d not in removed)
                if not any(axes[d] for d in removed):
                    self._bound.discard(result)
            case "split":  # each part is sharded across as many devices as the whole
                parts = [math.prod(self._sizes.get(axis, 1) for axis in over) for over in axes]
                found = tuple(o if n % part == 0 else () for o, n, part in zip(axes, result.shape, parts, strict=True))
            case name if name in _ALONG:
                along = params[_ALONG[name]]
                found = tuple(() if d == along else over for d, over in enumerate(axes))
            case _ if all(v.shape == result.shape or not v.shape for v, _ in operands):
                found = self._join_operands([(v, a) for v, a in operands if v.shape], result)
            case _ if len(first.shape) == len(whole):  # also elementwise, where an axis of length 1 is broadcast
                found = self._join_operands(_of_equal_sizes(operands, result), result)
            case _:
                found = whole
        return found if result.sharding is None else self._join_axes(self._sharded_axes(result), found)

    def _matmul_axes(self, equation: Equation, operands: Sequence[tuple[Value, Axes]]) -> Axes:
        (result,) = equation.outputs
        found: list[tuple[str, ...]] = [()] * len(result.shape)
        used: set[str] = set()
        pairs = zip(operands[:2], _kept_dimensions(equation), strict=True)
        for (_, axes), kept in sorted(pairs, key=lambda pair: -math.prod(pair[0][0].shape)):
            for dimension, place in kept.items():
                if axes[dimension] and not found[place] and used.isdisjoint(axes[dimension]):
                    found[place] = axes[dimension]
                    used.update(axes[dimension])
        return tuple(found)

    def _scatter_axes(self, equation: Equation) -> Axes:
        """Return how the updates and indices of a scatter shard its operand: along slices, and along batch dimensions.

        The result is a sum of partial sums only if the updates are sharded along another dimension.
        """
        operand, indices, updates = equation.inputs
        numbers = equation.params["dimension_numbers"]
        hidden = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
        slices = iter([d for d in range(len(operand.shape)) if d not in hidden])
        batch = dict(zip(numbers.scatter_indices_batching_dims, numbers.operand_batching_dims, strict=True))
        rest = enumerate(self._sharded_axes(indices))
        found: list[tuple[str, ...]] = [()] * len(operand.shape)
        is_sum = False
        for place, over in enumerate(self._sharded_axes(updates)):
            if place in numbers.update_window_dims:
                dimension = next(slices)
                if updates.shape[place] == operand.shape[dimension]:
                    found[dimension] = over
                continue
            index, index_axes = next(rest)
            if index in batch:
                found[batch[index]] = over or index_axes
            else:
                is_sum |= bool(over or index_axes)
        if not is_sum:
            self._bound.discard(equation.outputs[0])
        return tuple(found)

    def _gather_axes(self, equation: Equation, result: Value) -> Axes:
        operand, indices = equation.inputs[:2]
        numbers = equation.params["dimension_numbers"]
        hidden = {*numbers.collapsed_slice_dims, *getattr(numbers, "operand_batching_dims", ())}
        own = iter([d for d in range(len(operand.shape)) if d not in hidden])
        rest = iter(self._sharded_axes(indices))
        found: list[tuple[str, ...]] = []
        for place in range(len(result.shape)):
            if place not in numbers.offset_dims:
                found.append(next(rest))
                continue
            dimension = next(own)
            alike = equation.params["slice_sizes"][dimension] == operand.shape[dimension]
            found.append(self._sharded_axes(operand)[dimension] if alike else ())
        used: set[str] = set()
        indices_first = math.prod(indices.shape) > math.prod(operand.shape)
        for place in sorted(range(len(found)), key=lambda place: (place in numbers.offset_dims) == indices_first):
            if used.isdisjoint(found[place]):
                used.update(found[place])
            else:
                found[place] = ()
        return tuple(found)

    def _reshape_axes(self, before: Sequence[int], after: Sequence[int], axes: Axes) -> Axes:
        """Return the sharding after a reshape: merged or split dimensions are sharded like the first one."""
        found: list[tuple[str, ...]] = [()] * len(after)
        if 0 in before:
            return tuple(found)
        for old, new in _reshape_groups(before, after):
            divided = [d for d in old if axes[d]]
            if not divided or not new or divided[0] != next((d for d in old if before[d] > 1), divided[0]):
                continue
            over = axes[divided[0]]
            parts = math.prod(self._sizes.get(axis, 1) for axis in over)
            place = next((d for d in new if after[d] > 1), new[0])
            if after[place] % parts == 0:
                found[place] = over
        return tuple(found)


def _of_equal_sizes(operands: Iterable[tuple[Value, Axes]], result: Value) -> list[tuple[Value, Axes]]:
    """Return the operands with as many dimensions as the result, each sharded only where the sizes are equal."""
    return [
        (v, tuple(over if n == m else () for over, n, m in zip(axes, v.shape, result.shape, strict=True)))
        for v, axes in operands
        if len(v.shape) == len(result.shape)
    ]


def _reshape_groups(before: Sequence[int], after: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Group the dimensions of two shapes so that corresponding groups have the same number of elements."""
    i = j = 0
    while i < len(before) or j < len(after):
        old: list[int] = []
        new: list[int] = []
        sizes = [1, 1]
        while not (old or new) or sizes[0] != sizes[1]:
            if (sizes[0] <= sizes[1] and i < len(before)) or j == len(after):
                sizes[0] *= before[i]
                old.append(i)
                i += 1
            else:
                sizes[1] *= after[j]
                new.append(j)
                j += 1
        yield old, new
