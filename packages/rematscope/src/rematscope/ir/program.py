"""Programs: flat lists of equations, created from jaxprs.

The bodies of `jit`, checkpoints and custom derivative rules are inlined where they run. Loops and branches have a body
of their own, which is also a `Program` and reads values of the surrounding program directly. The outputs of an
optimization barrier are its operands, under the same names: a barrier constrains the order of operations and computes
nothing.

A `shard_map` has a body, too. It is like a `scan` without carries whose iterations run at the same time, each on one
device: the operands are split into shards, and the results are assembled from shards. In the body, each value is the
shard of one device.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import JaxprEqn

from rematscope import jax_compat
from rematscope.errors import TraceError
from rematscope.ir.source import Source
from rematscope.ir.specs import device_shape
from rematscope.render.units import counted


class Typed(Protocol):
    """Anything with a shape and a dtype: a `Value`, an array, a `jax.ShapeDtypeStruct`, JAX's abstract values."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> Any: ...  # NumPy's, or one of JAX's extended dtypes


class Placement(NamedTuple):
    """The sharding of an array over the devices of a mesh.

    Attributes:
      shape: the shape of each device's shard.
      is_explicit: whether the program determines the sharding. If not, it is an estimate of the compiler's choice; see
        `rematscope.ir.sharding_propagation`.
      axes: for each dimension, the mesh axes that shard it; None if only the shape is known.
    """

    shape: tuple[int, ...]
    is_explicit: bool
    axes: tuple[tuple[str, ...], ...] | None = None


class Part(NamedTuple):
    """The shape and dtype of one device's shard."""

    shape: tuple[int, ...]
    dtype: Any  # NumPy's, or one of JAX's extended dtypes


class Value:
    """An array in a program.

    Attributes:
      aval: JAX's abstract value, with shape, dtype and memory space.
      name: the name in the views.
      sharding: the sharding, if it is not part of `aval`; else None. See `rematscope.ir.placement`.
    """

    __slots__ = ("_type_placement", "aval", "name", "sharding")

    def __init__(self, aval: Any, name: str = ""):  # JAX's abstract values have no common type with a shape
        self.aval = aval
        self.name = name
        self.sharding: Placement | None = None
        self._type_placement: Placement | None = None  # that of `aval`, which is read many times

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape. If a loop stacked the array, the first dimension is the loop's trip count."""
        return tuple(self.aval.shape)

    @property
    def dtype(self) -> Any:
        """The NumPy dtype, or JAX's extended dtype of a PRNG key."""
        return self.aval.dtype

    @property
    def nbytes(self) -> int:
        """The size of the whole array in bytes."""
        return nbytes(self)

    @property
    def placement(self) -> "Placement":
        """The sharding of the array, determined by the program or estimated."""
        if self.sharding is not None:
            return self.sharding
        if self._type_placement is None:
            self._type_placement = Placement(*device_shape(self.aval))
        return self._type_placement

    @property
    def on_device(self) -> "Typed":
        """The shape and dtype of each device's shard."""
        if not hasattr(self.aval, "shape"):  # a token, which has no data
            return self
        shape = self.placement.shape
        return self if shape == self.shape else Part(shape, self.dtype)

    @property
    def device_bytes(self) -> int:
        """The size of each device's shard in bytes."""
        return nbytes(self.on_device)

    @property
    def memory(self) -> str:
        """The memory that holds the value: `"device"` or `"host"`."""
        return _memory_kind(getattr(self.aval, "memory_space", None))

    def __repr__(self) -> str:
        return f"{self.name}:{type_text(self)}"


@functools.lru_cache(maxsize=64)
def _memory_kind(space: Any) -> str:  # JAX's, an enumeration's or a text
    return "host" if str(getattr(space, "name", space)).lower() in ("host", "pinned_host") else "device"


def total_bytes(values: Iterable[Value]) -> int:
    """Return the bytes of the values' shards on each device."""
    return sum(value.device_bytes for value in values)


class Literal(Value):
    """A scalar constant that is written into the program.

    Attributes:
      aval: JAX's abstract value, as for `Value`.
      name: the scalar as text, such as `2.0`; `nothing` for a float0.
      value: the scalar.
    """

    __slots__ = ("value",)

    def __init__(self, aval: Any, value: Any):
        super().__init__(aval, _number_text(np.asarray(value), aval.dtype))
        self.value = value


def _number_text(number: np.ndarray, dtype: Any) -> str:
    if dtype == jax.dtypes.float0:
        return "nothing"  # the cotangent of an integer
    if jax.dtypes.issubdtype(dtype, np.floating) and dtype.itemsize <= 4:
        return str(np.float32(number))  # 0.7978846, which Python's own floats take for 0.7978845834732056
    return str(number.item())


DTYPE_LETTERS = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u", "complex": "c"}


def type_text(value: Typed) -> str:
    """Return the dtype and shape as text, such as `f32[5,4]`."""
    return _type_text(value.dtype, tuple(value.shape))


@functools.lru_cache(1 << 12)
def _type_text(dtype: Any, shape: tuple[int, ...]) -> str:
    return f"{_dtype_text(dtype)}[{','.join(map(str, shape))}]"


@functools.cache
def _dtype_text(dtype: Any) -> str:  # NumPy's, or one of JAX's extended dtypes
    name = str(dtype)
    if "float0" in name:  # NumPy writes it as the structure that it is
        name = "float0"
    stem = re.split("[^a-z]", name, maxsplit=1)[0]
    return DTYPE_LETTERS[stem] + name[len(stem) :] if stem in DTYPE_LETTERS and name != "float0" else name


def nbytes(value: Typed) -> int:
    """Return the size in bytes of an array. A float0 has 0 bytes; a PRNG key has the bytes of its words."""
    return math.prod(value.shape) * int(value.dtype.itemsize)


@dataclasses.dataclass(eq=False)
class Equation:
    """One operation of a program.

    Attributes:
      primitive: the name of the JAX primitive. The primitive `name` gives its operand a checkpoint name.
      inputs: the values that the operation reads, including the values that its bodies close over.
      outputs: the values that the operation defines. The outputs of an optimization barrier are its inputs.
      params: the parameters of the JAX primitive.
      eqn: the JAX equation that this equation was created from.
      bodies: the loop body or the branches, in the order of the primitive's parameters.
      role: in a backward program, `"R"` (recomputed), `"D"` (deferred) or `"B"` (backward); in a forward program, `""`.
      length: the trip count of a loop; 1 for a loop of unknown length and for all other operations.
      counted: False for a `while` loop whose trip count is unknown; its cost then counts as one iteration.
      devices: the number of devices that exchange data in a collective; 1 for all other operations.
      reverse: whether a `scan` runs from the last slice to the first.
      first_carry, carries: the position in `inputs` of a loop's first carry, and the number of carries.
      calls: the `jit`, checkpoint and custom-rule equations that this equation was inlined from, and the loops and
        branches around it, innermost first.
      index: the letter that stands for a loop's iteration number in the views.
    """

    primitive: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    params: dict[str, Any]
    eqn: JaxprEqn
    bodies: tuple["Program", ...] = ()
    role: str = ""
    length: int = 1
    counted: bool = True
    devices: int = 1
    reverse: bool = False
    first_carry: int = 0
    carries: int = 0
    calls: tuple[JaxprEqn, ...] = ()
    index: str = ""

    def __reduce__(self) -> NoReturn:
        raise TraceError(
            "programs of JAX cannot be pickled or copied, and this result contains some. Keep its figures or its text, "
            "str(result), or call the function again where you need it. auto's plans can be pickled."
        )

    @functools.cached_property
    def source(self) -> Source | None:
        """The user's source line of this operation, or None if it is unknown.

        For an operation inside a JAX function, this is the line that calls the JAX function.
        """
        return Source.of(*(eqn.source_info for eqn in (self.eqn, *self.calls)))

    @functools.cached_property
    def module(self) -> str:
        """The module from Flax, Haiku or `jax.named_scope`, such as `layers_3/attention/query`; `""` if there is no
        module."""
        return "/".join(scope for eqn in (*reversed(self.calls), self.eqn) for scope in jax_compat.scopes(eqn))

    @property
    def defines(self) -> tuple[Value, ...]:
        """The values that the operation computes: its outputs, but none for an optimization barrier."""
        return () if self.primitive == "optimization_barrier" else self.outputs

    @property
    def initial(self) -> tuple[Value, ...]:
        """The values of a loop's carries before its first iteration."""
        return self.inputs[self.first_carry : self.first_carry + self.carries]

    @property
    def stacked_inputs(self) -> tuple[Value, ...]:
        """The arrays that a `scan` slices per iteration, or that a `shard_map` splits across devices; empty for other
        equations."""
        return self.inputs[self.first_carry + self.carries :] if self.primitive in ("scan", "shard_map") else ()

    def with_inputs(self, inputs: tuple[Value, ...]) -> "Equation":
        """Return a copy with other operands. `dataclasses.replace` takes five times as long."""
        copy = object.__new__(Equation)
        vars(copy).update(vars(self), inputs=inputs)
        return copy

    def walk(self) -> Iterator[tuple["Equation", int]]:
        """Yield the equation, or the equations in its bodies, as `Program.walk` does."""
        return Program((), [self], ()).walk()

    def nested(self) -> Iterator["Equation"]:
        """Yield the equation, and all equations in its bodies."""
        return Program((), [self], ()).all_equations()


@dataclasses.dataclass(eq=False)
class Program:
    """A list of equations. Calling a program runs it.

    Attributes:
      inputs: the values that the program is called with. For a loop body, these are the carries, then the slices. A
        branch has no inputs.
      outputs: the values that the program returns.
      equations: the equations, in order of execution.
      constants: maps values to the arrays that the program closes over.
    """

    inputs: tuple[Value, ...]
    equations: list[Equation]
    outputs: tuple[Value, ...]
    constants: dict[Value, Any] = dataclasses.field(default_factory=dict)

    def __call__(self, *arrays: Any) -> list[jax.Array]:
        """Run the program.

        Args:
          *arrays: one concrete array or tracer for each of `inputs`, with the same shape and dtype.

        Returns:
          One array for each of `outputs`.

        Raises:
          TypeError: if the number of arrays differs from the number of inputs.
        """
        if len(arrays) != len(self.inputs):
            raise TypeError(f"this program takes {counted(len(self.inputs), 'array')}, but got {len(arrays)}")
        env = dict(self.constants)
        return _run_program(self, arrays, env)

    def walk(self, trip_count: int = 1) -> Iterator[tuple[Equation, int]]:
        """Yield each equation that computes something, including those in bodies, and the number of times it runs.

        A loop of unknown length counts as one iteration (see `Equation.counted`). Every branch of a `cond` counts, as
        if all branches ran.
        """
        for equation in self.equations:
            if equation.bodies:
                for body in equation.bodies:
                    yield from body.walk(trip_count * equation.length)
            elif equation.primitive not in BOOKKEEPING:
                yield equation, trip_count

    def all_equations(self) -> Iterator[Equation]:
        """Yield each equation, loops and branches included, and then the equations in its bodies."""
        for equation in self.equations:
            yield equation
            for body in equation.bodies:
                yield from body.all_equations()

    def count(self, primitive: str | None = None, role: str | None = None) -> int:
        """Return how many operations run. An operation in a loop counts once per iteration.

        Args:
          primitive: count only operations with this primitive, such as `"dot_general"`.
          role: count only operations with this role in the backward pass, such as `"R"` for recomputed ones.
        """
        return sum(
            trip_count
            for equation, trip_count in self.walk()
            if primitive in (None, equation.primitive) and role in (None, equation.role)
        )


# Inside a shard_map, what says of a value that it may differ from device to device, or is summed or not.
CASTS = frozenset({"pvary", "preduced", "reduced_vary_cast", "vary_unreduced_cast"})

# Equations whose result is their operand.
RENAMES = CASTS | {"name"}

# Equations that move no data and compute nothing.
BOOKKEEPING = RENAMES | {"optimization_barrier"}

_Env = dict[Value, Any]  # the array that each value is


def _run_program(program: Program, arrays: Sequence[Any], env: _Env) -> list[Any]:
    env.update(zip(program.inputs, arrays, strict=True))

    def read(value: Value) -> Any:
        return value.value if isinstance(value, Literal) else env[value]

    for equation in program.equations:
        operands = [read(v) for v in equation.inputs]
        results = _RUN.get(equation.primitive, _run_primitive)(equation, operands, env)
        env.update(zip(equation.outputs, results, strict=True))
    return [read(v) for v in program.outputs]


def _run_primitive(equation: Equation, operands: list[Any], env: _Env) -> list[Any]:
    return jax_compat.run(equation.eqn, operands)


def _run_barrier(equation: Equation, operands: list[Any], env: _Env) -> list[Any]:
    barrier: Callable[[list[Any]], list[Any]] = jax.lax.optimization_barrier
    # Until JAX 0.10 what passes one barrier in a shard_map differs from device to device if anything of it does.
    types: list[Any] = list(map(jax.typeof, operands))
    kinds = [str(getattr(aval, "vma", None) or getattr(aval, "mat", "")) for aval in types]
    results: dict[int, Any] = {}
    for kind in set(kinds):
        places = [i for i, each in enumerate(kinds) if each == kind]
        results.update(zip(places, barrier([operands[i] for i in places]), strict=True))
    return [results[i] for i in range(len(operands))]


def _run_scan(equation: Equation, operands: list[Any], env: _Env) -> list[Any]:
    (body,) = equation.bodies
    start, stop = equation.first_carry, equation.first_carry + equation.carries

    def step(carry: list[Any], xs: list[Any]) -> tuple[list[Any], list[Any]]:
        out = _run_program(body, [*carry, *xs], dict(env))
        return out[: equation.carries], out[equation.carries :]

    unroll = equation.params.get("unroll", 1)
    carry, stacked = jax.lax.scan(
        step, operands[start:stop], operands[stop:], equation.length, reverse=equation.reverse, unroll=unroll
    )
    return [*carry, *stacked]


def _run_shard_map(equation: Equation, operands: list[Any], env: _Env) -> list[Any]:
    (body,) = equation.bodies
    mapped = jax.shard_map(
        lambda *parts: tuple(_run_program(body, parts, dict(body.constants))),
        mesh=equation.params["mesh"],
        in_specs=equation.params["in_specs"],
        out_specs=equation.params["out_specs"],
        axis_names=set(equation.params["axes"]),
        check_vma=equation.params["check_vma"],
    )
    result: Callable[..., Any] = jax.jit(mapped)  # bare, it would run one operation after another on each device
    return list(result(*operands))


def _run_while(equation: Equation, operands: list[Any], env: _Env) -> list[Any]:
    condition, body = equation.bodies

    def run_condition(carry: list[Any]) -> Any:
        return _run_program(condition, carry, dict(env))[0]

    def run_body(carry: list[Any]) -> list[Any]:
        return _run_program(body, carry, dict(env))

    def run_body_of_running(carry: list[Any]) -> list[Any]:
        running, values = run_condition(carry), run_body(carry)
        rows = [jnp.broadcast_to(jnp.expand_dims(running, range(running.ndim, v.ndim)), v.shape) for v in values]
        return list(map(jax.lax.select, rows, values, carry))

    carry = operands[equation.first_carry :]
    # Under `vmap`, a loop has one condition per example. It runs until all are False, and the carry of an example
    # stays as it is once its condition is False: JAX lowers such a loop in the same way.
    result: list[Any] = (
        jax.lax.while_loop(lambda carry: jnp.any(run_condition(carry)), run_body_of_running, carry)
        if condition.outputs[0].aval.shape
        else jax.lax.while_loop(run_condition, run_body, carry)
    )
    return result


def _run_cond(equation: Equation, operands: list[Any], env: _Env) -> list[Any]:
    branches = [lambda body=body: _run_program(body, (), dict(env)) for body in equation.bodies]
    result: list[Any] = jax.lax.switch(jnp.asarray(operands[0], jnp.int32), branches)
    return result


_RUN: dict[str, Callable[[Equation, list[Any], _Env], list[Any]]] = {
    "optimization_barrier": _run_barrier,
    "name": lambda equation, operands, env: operands,
    "scan": _run_scan,
    "while": _run_while,
    "shard_map": _run_shard_map,
    "cond": _run_cond,
}


def values_of_program(program: Program) -> set[Value]:
    """Every value that the program, its bodies included, reads or hands back."""
    found = set(program.outputs)
    for equation in program.equations:
        found.update(equation.inputs)
        for body in equation.bodies:
            found |= values_of_program(body)
    return found


def reading(equation: Equation) -> list[Value]:
    """Return the operands of an equation and the free values of its bodies, without duplicates and literals."""
    inside = (v for body in equation.bodies for v in free_values(body))
    return [v for v in dict.fromkeys((*equation.inputs, *inside)) if not isinstance(v, Literal)]


def free_values(program: Program) -> list[Value]:
    """Return the values that a body reads from outside, in the order of the first reads."""
    own = own_values(program)
    found = (v for equation in program.equations for v in reading(equation))
    return [v for v in dict.fromkeys((*found, *program.outputs)) if v not in own and not isinstance(v, Literal)]


def own_values(program: Program) -> set[Value]:
    """Return the inputs of a body and the results of its equations; a barrier counts as having no results."""
    return {*program.inputs, *(v for e in program.equations for v in e.defines)}
