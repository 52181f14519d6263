"""Residuals: the values that the backward program takes from the forward program, with their origin and first
reader.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from rematscope.ir.number_table import is_box
from rematscope.ir.program import BOOKKEEPING, CASTS, Equation, Literal, Program, Value, nbytes
from rematscope.ir.source import Source


@dataclasses.dataclass(frozen=True, eq=False)
class Residual:
    """A value that the forward pass saves for the backward pass.

    Attributes:
      value: the residual in both programs, which share this object.
      array: the array that is saved: `value`, or the argument or constant that `stop_gradient` or a `shard_map` returns
        unchanged.
      kind: `"argument"`, `"constant"` (closed over, or a literal) or `"computed"`.
      name: the `checkpoint_name` of the value, or None.
      primitive: the name of the primitive that computed the value, even if it is inside `jit`, `scan` or a checkpoint;
        None for an argument or a constant.
      source: the user's source line that computed the value, or None.
      module: the module that computed the value, such as `layers_3/attention`, from JAX's name stack; else "".
      is_output: whether the function also returns this value, so that saving it takes no extra memory.
      needed_by: the first equation of the backward program that reads the value, including equations inside loops; None
        if the backward program only passes the value through.

    Example:
      >>> import jax.numpy as jnp
      >>> from rematscope import trace
      >>> [residual] = [r for r in trace(jnp.sin, jnp.ones((8, 4))).residuals]
      >>> residual.primitive, residual.shape, str(residual.dtype), residual.nbytes
      ('cos', (8, 4), 'float32', 128)
    """

    value: Value
    array: Value
    kind: str
    name: str | None
    primitive: str | None
    source: Source | None
    module: str
    is_output: bool
    needed_by: Equation | None

    def __repr__(self) -> str:
        made = f" by {self.primitive}" if self.primitive else ""
        line = f" on {self.source.where}" if self.source else ""
        name = f", named {self.name!r}" if self.name else ""
        return f"<{self.value!r}, {self.nbytes:,} bytes, {self.kind}{made}{line}{name}>"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape. If a `scan` stacked the residual, the first dimension is the trip count."""
        return self.value.shape

    @property
    def dtype(self) -> Any:
        """The NumPy dtype, or JAX's extended dtype of a PRNG key."""
        return self.value.dtype

    @property
    def nbytes(self) -> int:
        """The size of the whole array in bytes, including all iterations of a `scan`."""
        return nbytes(self.value)

    @property
    def device_bytes(self) -> int:
        """The size of each device's shard in bytes; if the sharding is unknown, the size of the whole array."""
        return self.value.device_bytes

    @property
    def memory(self) -> str:
        """The memory that holds the residual: `"device"`, or `"host"` if an offloading policy moves it there."""
        return self.value.memory


def residuals_of(
    fwd: Program, bwd: Program, crossing: Sequence[Value], outputs: Sequence[Value]
) -> tuple[Residual, ...]:
    """Return the residuals, given both programs.

    Args:
      crossing: the inputs of `bwd` other than the cotangents, in order.
    """
    makers = makers_of(fwd)
    readers = _first_readers(bwd)
    returned = {v for v in outputs if not isinstance(v, Literal)}
    arguments = set(fwd.inputs)

    def residual(value: Value) -> Residual:
        array = _handed_through(value, makers)
        if array in arguments:
            kind, (name, maker) = "argument", (None, None)
        elif array in makers:
            kind, (name, maker) = "computed", origin_of(value, makers)
        else:
            kind, (name, maker) = "constant", (None, None)
        primitive, source, module = (maker.primitive, maker.source, maker.module) if maker else (None, None, "")
        return Residual(value, array, kind, name, primitive, source, module, value in returned, readers.get(value))

    return tuple(map(residual, crossing))


# Maps each value to the equation that defines it, and to the index among the outputs of this equation.
Makers = dict[Value, tuple[Equation, int]]


def makers_of(program: Program) -> Makers:
    """Return the equation that defines each value of `program`, including its bodies."""
    return {v: (equation, i) for equation in program.all_equations() for i, v in enumerate(equation.defines)}


def _handed_through(value: Value, makers: Makers) -> Value:
    """Return the operand of `stop_gradient` or of a `shard_map` if `value` is this operand unchanged; else `value`."""
    around: dict[Value, Value] = {}  # maps an input of a body to the operand of the shard_map
    array = value
    while array in makers or array in around:
        if array in around:
            array = around[array]
            continue
        equation, i = makers[array]
        if equation.primitive in _UNCHANGED:
            array = equation.inputs[0]
        elif equation.primitive == "shard_map":
            (body,) = equation.bodies
            pairs = zip(body.inputs, equation.inputs, strict=True)
            around.update((own, given) for own, given in pairs if own.placement.shape == given.placement.shape)
            array = body.outputs[i]
        else:
            return value
    return value if isinstance(array, Literal) or (around and array.shape == ()) else array


def origin_of(value: Value, makers: Makers) -> tuple[str | None, Equation | None]:
    """Return the checkpoint name of `value` and the operation that computed it."""
    name, equation = None, None
    around: dict[Value, tuple[Equation, int]] = {}  # maps an input of a loop body to the loop and its index
    carried: set[Value] = set()
    while value in makers or value in around:
        if value not in makers:
            # An input of a loop body: the previous iteration computed a carry; another equation, the array of a slice.
            loop, i = around[value]
            if i < loop.carries and value not in carried:
                carried.add(value)
                value = loop.bodies[-1].outputs[i]
            else:
                value = loop.inputs[loop.first_carry + i]
            continue
        equation, i = makers[value]
        if equation.primitive == "name":
            name = name or (None if carried else equation.params["name"])
            value = equation.inputs[0]
        elif equation.primitive == "device_put" or equation.primitive in _UNCHANGED:
            value = equation.inputs[i]
        elif equation.primitive == "cond":
            value = min((body.outputs[i] for body in equation.bodies), key=lambda v: _says_little(v, makers))
        elif equation.bodies:
            body = equation.bodies[-1]
            around.update((v, (equation, k)) for k, v in enumerate(body.inputs))
            value = body.outputs[i]
            if equation.primitive == "shard_map" and value in makers and is_box(made := makers[value][0]):
                value = made.inputs[0]
        else:
            break
    return name, equation


def _says_little(value: Value, makers: Makers) -> int:
    """Rank a branch's result by how little it tells about the origin of a residual; the smallest rank is best.

    An operation that computes the residual tells the most. A branch may also pass an operand through, or return zeros
    if it does not compute the residual.
    """
    if isinstance(value, Literal):
        return 2
    if value in makers:
        return 2 if makers[value][0].primitive in _FILLERS else 0
    return 1


_UNCHANGED = CASTS | {"stop_gradient"}  # primitives that return their operand
_FILLERS = ("broadcast_in_dim", "empty2", "iota")


def _first_readers(program: Program) -> dict[Value, Equation]:
    """Map each input of a program to the first equation that reads it or a copy of it.

    `checkpoint_name` copies a value, and so do loops and branches that pass it on unchanged: a slice that becomes a
    carry is read where the carry is read.
    """
    readers: dict[Value, int] = {}  # the index of the first equation that reads the value itself
    copies: dict[Value, list[Value]] = {}
    equations = list(program.all_equations())
    for index, equation in enumerate(equations):
        if equation.primitive not in BOOKKEEPING:
            predicate = equation.inputs[:1] if equation.primitive == "cond" else ()
            for value in predicate if equation.bodies else equation.inputs:
                readers.setdefault(value, index)
        for value, copy in copied_values(equation):
            copies.setdefault(value, []).append(copy)

    def first(value: Value) -> int | None:
        equal = [value]
        for one in equal:  # grows while it is read
            equal += [copy for copy in copies.get(one, ()) if copy not in equal]
        return min((readers[one] for one in equal if one in readers), default=None)

    found = {value: first(value) for value in program.inputs}
    return {value: equations[index] for value, index in found.items() if index is not None}


def copied_values(equation: Equation) -> Iterator[tuple[Value, Value]]:
    """Yield the values that an equation copies, with their copies."""
    if equation.primitive == "name":
        yield equation.inputs[0], equation.outputs[0]
    for body in equation.bodies if equation.primitive == "cond" else equation.bodies[-1:]:
        yield from zip(body.outputs, equation.outputs, strict=True)
    for body in equation.bodies:
        yield from zip(equation.bodies[-1].outputs[: equation.carries], body.inputs, strict=False)
        yield from zip(equation.inputs[equation.first_carry :], body.inputs, strict=bool(body.inputs))
