"""A program: the flat list of equations that a pass runs, made from a jaxpr.

`jit`, checkpoint and custom-rule bodies stand inlined where they run. Loops and branches keep a body, which is a
`Program` too and reads values of the program around it directly. An optimization barrier returns its operands under
their own names: it says when, not what.
"""

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import source_info_util

from rematscope.ir import jax_internals
from rematscope.ir.source import Source

source_info_util.register_exclusion(__file__)


class Value:
    """One array that a program computes or is given: its abstract value, and the name it is shown under."""

    __slots__ = ("aval", "name")

    def __init__(self, aval, name: str = ""):
        self.aval = aval
        self.name = name

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.aval.shape)

    @property
    def dtype(self):
        return self.aval.dtype

    @property
    def nbytes(self) -> int:
        return nbytes(self)

    def __repr__(self):
        return f"{self.name}:{type_text(self)}"


class Literal(Value):
    """A scalar written into the program itself."""

    __slots__ = ("value",)

    def __init__(self, aval, value):
        # A float0 is the cotangent of an integer: there is nothing in it.
        super().__init__(aval, "nothing" if aval.dtype == jax.dtypes.float0 else str(np.asarray(value).item()))
        self.value = value


_SHORT = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u", "complex": "c"}


def type_text(value) -> str:
    """`f32[5,4]`, for anything with a shape and a dtype."""
    name = str(value.dtype)
    if "float0" in name:  # NumPy writes it as the structure that it is
        name = "float0"
    stem = re.match("[a-z]*", name)[0]
    if stem in _SHORT and name != "float0":
        name = _SHORT[stem] + name[len(stem) :]
    return f"{name}[{','.join(map(str, value.shape))}]"


def nbytes(value) -> int:
    """Bytes of anything with a shape and a dtype; a PRNG key counts its words, a float0 cotangent nothing."""
    if value.dtype == jax.dtypes.float0:
        return 0
    return int(np.prod(value.shape, dtype=np.int64)) * value.dtype.itemsize


@dataclasses.dataclass(eq=False)
class Equation:
    """One operation.

    Attributes:
      primitive: JAX's name of the operation; `name` gives its operand a checkpoint name.
      inputs: what it reads, including what its bodies read from around them.
      outputs: what it defines. A barrier's outputs are its inputs.
      params: JAX's parameters of the primitive.
      bodies: loop body or branches, in the order of the primitive's parameters.
      role: in a backward program, `"R"`, `"L"` or `"B"`; see `rematscope.ir.roles`. Empty in a forward program.
      length: how often the body of a `scan` runs; 1 for everything else.
      first_carry, carries: where in `inputs` a loop's carried values start, and how many there are.
      calls: the jit, checkpoint and custom-rule equations that it was inlined from, with the loops and branches that
        it stands in, innermost first.
      index: the letter that counts a loop's iterations.
    """

    primitive: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    params: dict[str, Any]
    eqn: jax.extend.core.JaxprEqn
    bodies: tuple["Program", ...] = ()
    role: str = ""
    length: int = 1
    first_carry: int = 0
    carries: int = 0
    calls: tuple[jax.extend.core.JaxprEqn, ...] = ()
    index: str = ""

    @cached_property
    def source(self) -> Source | None:
        """The user's line that this operation comes from; for JAX's own functions, the line that calls them."""
        found = (Source.of(eqn.source_info) for eqn in (self.eqn, *self.calls))
        return next((source for source in found if source is not None), None)

    @property
    def initial(self) -> tuple[Value, ...]:
        """A loop's carried values before its first iteration."""
        return self.inputs[self.first_carry : self.first_carry + self.carries]

    @property
    def stacked_inputs(self) -> tuple[Value, ...]:
        """The arrays that a scan's body reads one slice of at a time."""
        return self.inputs[self.first_carry + self.carries :] if self.primitive == "scan" else ()


@dataclasses.dataclass(eq=False)
class Program:
    """A straight list of equations; calling it runs it.

    Attributes:
      inputs: values given from outside. A loop body's are its carries, then its slices; a branch has none.
      outputs: values handed back.
      equations: in order of execution.
      constants: arrays that the program closes over.
    """

    inputs: tuple[Value, ...]
    equations: list[Equation]
    outputs: tuple[Value, ...]
    constants: dict[Value, Any] = dataclasses.field(default_factory=dict)

    def __call__(self, *arrays) -> list[jax.Array]:
        """Runs the program on concrete or abstract arrays, one for each of `inputs`."""
        if len(arrays) != len(self.inputs):
            raise TypeError(f"this program takes {len(self.inputs)} arrays, and got {len(arrays)}")
        env = dict(self.constants)
        return _run(self, arrays, env)

    def walk(self, times: int = 1) -> Iterator[tuple[Equation, int]]:
        """Yields every equation that computes something, bodies included, with how often it runs.

        A `while_loop` counts one iteration, for its trip count is not in the program; a branch counts once.
        """
        for equation in self.equations:
            if equation.bodies:
                for body in equation.bodies:
                    yield from body.walk(times * equation.length)
            elif equation.primitive not in BOOKKEEPING:
                yield equation, times

    def count(self, primitive: str | None = None, role: str | None = None) -> int:
        """How many operations run, of a primitive and role if given; a scan's body counts once an iteration."""
        return sum(
            times
            for equation, times in self.walk()
            if primitive in (None, equation.primitive) and role in (None, equation.role)
        )


# Equations that move no data and compute nothing.
BOOKKEEPING = frozenset({"name", "optimization_barrier"})


def _run(program: Program, arrays: Sequence, env: dict[Value, Any]) -> list:
    env.update(zip(program.inputs, arrays, strict=True))

    def read(value):
        return value.value if isinstance(value, Literal) else env[value]

    for equation in program.equations:
        operands = [read(v) for v in equation.inputs]
        results = _RUN.get(equation.primitive, _run_primitive)(equation, operands, env)
        env.update(zip(equation.outputs, results, strict=True))
    return [read(v) for v in program.outputs]


def _run_primitive(equation, operands, env):
    return jax_internals.run(equation.eqn, operands)


def _run_barrier(equation, operands, env):
    return jax.lax.optimization_barrier(operands)


def _run_scan(equation, operands, env):
    (body,) = equation.bodies
    start, stop = equation.first_carry, equation.first_carry + equation.carries

    def step(carry, xs):
        out = _run(body, [*carry, *xs], dict(env))
        return out[: equation.carries], out[equation.carries :]

    carry, stacked = jax.lax.scan(
        step, operands[start:stop], operands[stop:], equation.length, reverse=equation.params["reverse"]
    )
    return [*carry, *stacked]


def _run_while(equation, operands, env):
    condition, body = equation.bodies
    start = equation.first_carry
    return jax.lax.while_loop(
        lambda carry: _run(condition, carry, dict(env))[0],
        lambda carry: _run(body, carry, dict(env)),
        operands[start:],
    )


def _run_cond(equation, operands, env):
    branches = [lambda body=body: _run(body, (), dict(env)) for body in equation.bodies]
    return jax.lax.switch(jnp.asarray(operands[0], jnp.int32), branches)


_RUN: dict[str, Callable] = {
    "optimization_barrier": _run_barrier,
    "name": lambda equation, operands, env: operands,
    "scan": _run_scan,
    "while": _run_while,
    "cond": _run_cond,
}


def reads(program: Program) -> set[Value]:
    """Every value that the program, its bodies included, reads or hands back."""
    found = set(program.outputs)
    for equation in program.equations:
        found.update(equation.inputs)
        for body in equation.bodies:
            found |= reads(body)
    return found
