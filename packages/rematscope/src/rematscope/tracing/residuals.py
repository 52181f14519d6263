"""What crosses from the forward to the backward program, where it was made and what reads it."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from rematscope.ir.number_table import is_box
from rematscope.ir.program import BOOKKEEPING, CASTS, Equation, Literal, Program, Value, nbytes
from rematscope.ir.source import Source


@dataclasses.dataclass(frozen=True, eq=False)
class Residual:
    """A value that the forward pass saves for the backward pass.

    Attributes:
      value: the value; both programs share this object.
      array: the value itself, or the argument or constant that a `shard_map` passes through unchanged.
      kind: `"argument"`, `"constant"` (closed over, or a literal) or `"computed"`.
      name: its `checkpoint_name`, or None.
      primitive: the operation that computed it, looked up through jit, scan, names and nested checkpoints; or None.
      source: the user's source line that computed it, or None.
      module: its module, `layers_3/attention`, from JAX's name stack; else "".
      is_output: whether the function also returns this value, so that saving it takes no extra memory.
      needed_by: the first backward equation that reads it, also inside loops; None if it is only passed through.

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

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape. For a residual that a scan stacks, the first dimension is the trip count."""
        return self.value.shape

    @property
    def dtype(self) -> Any:
        """The NumPy dtype, or JAX's extended dtype of a PRNG key."""
        return self.value.dtype

    @property
    def nbytes(self) -> int:
        """The bytes of the whole array, over all iterations of a scan."""
        return nbytes(self.value)

    @property
    def device_bytes(self) -> int:
        """The bytes of each device's shard; of the whole array if it is not sharded or its sharding is unknown."""
        return self.value.device_bytes

    @property
    def memory(self) -> str:
        """`"device"`, or `"host"` if an offloading policy moves it there."""
        return self.value.memory


def residuals_of(
    fwd: Program, bwd: Program, crossing: Sequence[Value], outputs: Sequence[Value]
) -> tuple[Residual, ...]:
    """What is told of each value that crosses.

    Args:
      fwd, bwd: both programs.
      crossing: the values that `bwd` is given besides the cotangents, in its order.
      outputs: what the function itself returns.
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


# Value → the equation that defines it, and which of its outputs it is.
Makers = dict[Value, tuple[Equation, int]]


def makers_of(program: Program) -> Makers:
    """What defines each value of `program`, bodies included."""
    makers: Makers = {}
    for equation in program.equations:
        if equation.primitive != "optimization_barrier":
            makers.update((v, (equation, i)) for i, v in enumerate(equation.outputs))
        for body in equation.bodies:
            makers.update(makers_of(body))
    return makers


def _handed_through(value: Value, makers: Makers) -> Value:
    """What is given to a shard_map that returns it as it is, each device the same part of it; else the value itself."""
    around: dict[Value, Value] = {}  # a body's own input → what the shard_map is given
    array = value
    while array in makers or array in around:
        if array in around:
            array = around[array]
            continue
        equation, i = makers[array]
        if equation.primitive in CASTS:
            array = equation.inputs[0]
        elif equation.primitive == "shard_map":
            (body,) = equation.bodies
            pairs = zip(body.inputs, equation.inputs, strict=True)
            around.update((own, given) for own, given in pairs if own.placement.shape == given.placement.shape)
            array = body.outputs[i]
        else:
            return value
    return value if isinstance(array, Literal) or array.shape == () else array


def origin_of(value: Value, makers: Makers) -> tuple[str | None, Equation | None]:
    """The checkpoint name of `value` and the operation that really made it."""
    name, equation = None, None
    around: dict[Value, tuple[Equation, int]] = {}  # a loop body's own input → the loop, and which input it is
    carried: set[Value] = set()
    while value in makers or value in around:
        if value not in makers:
            # A loop body's own input: a carry is made by the iteration before, a slice by what made the array.
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
        elif equation.primitive == "device_put" or equation.primitive in CASTS:
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
    """How little a branch's result tells of where a residual comes from: least where an operation made it.

    A branch may also hand on what was given; and where it does not make a residual, it fills its place with zeros.
    """
    if isinstance(value, Literal):
        return 2
    if value in makers:
        return 2 if makers[value][0].primitive in _FILLERS else 0
    return 1


_FILLERS = ("broadcast_in_dim", "empty2", "iota")


def _first_readers(program: Program) -> dict[Value, Equation]:
    """Value → the first equation that does something with it; to give it a name is nothing."""
    readers: dict[Value, Equation] = {}
    names: list[Equation] = []
    for equation in program.equations:
        if equation.primitive == "name":
            names.append(equation)
        if equation.primitive in BOOKKEEPING:
            continue
        inner: dict[Value, Equation] = {}
        for body in equation.bodies:
            for value, reader in _first_readers(body).items():
                inner.setdefault(value, reader)
        if equation.bodies:
            # What a body is handed as a carry or a slice is read where the body reads it.
            own = equation.bodies[-1].inputs
            handed = equation.inputs[equation.first_carry :]
            for outside, inside in zip(handed, own, strict=bool(own)):
                if inside in inner:
                    inner.setdefault(outside, inner[inside])
        for value in equation.inputs:
            if value in inner or not equation.bodies:
                readers.setdefault(value, inner.get(value, equation))
        for value, reader in inner.items():
            readers.setdefault(value, reader)
    for equation in reversed(names):
        (value,), (named,) = equation.inputs, equation.outputs
        if named in readers:
            readers.setdefault(value, readers[named])
    return readers
