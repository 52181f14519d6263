"""What an operation costs: floating-point operations, transcendentals and bytes touched.

The counts are those of the program as written, before XLA fuses or rewrites anything. The conventions are XLA's: a
multiply-add is 2 FLOPs, an elementwise operation 1 FLOP an element of its result, a reduction 1 an element it reads; a
transcendental function counts apart; moving or reshaping data is free of FLOPs and costs the bytes it reads and writes.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from rematscope.ir import jax_internals
from rematscope.ir.jax_internals import AnyJaxpr
from rematscope.ir.program import Equation, Program, Typed, nbytes


@dataclasses.dataclass(frozen=True)
class Cost:
    """A sum of operations.

    Attributes:
      flops: floating-point operations other than transcendental functions.
      transcendentals: elements that a transcendental function (`sin`, `exp`, `tanh`, `sqrt`, …) was applied to.
      bytes: bytes read and written if every operation reads its operands and writes its results once.
    """

    flops: int = 0
    transcendentals: int = 0
    bytes: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.flops + other.flops, self.transcendentals + other.transcendentals, self.bytes + other.bytes)

    def __mul__(self, trip_count: int) -> "Cost":
        return Cost(self.flops * trip_count, self.transcendentals * trip_count, self.bytes * trip_count)


_TRANSCENDENTAL = frozenset(
    "acos acosh asin asinh atan atan2 atanh cbrt cos cosh digamma erf erf_inv erfc exp exp2 expm1 igamma igammac "
    "lgamma log log1p log2 logistic pow rsqrt sin sinh sqrt tan tanh".split()
)
_MOVES_DATA = frozenset(
    "all_gather all_to_all bitcast_convert_type broadcast_in_dim concatenate convert_element_type copy copy_p "
    "device_put dynamic_slice dynamic_update_slice empty2 gather iota pad ppermute pvary random_bits random_fold_in "
    "random_seed random_split random_unwrap random_wrap rev reshape scatter select_n sharding_constraint slice split "
    "squeeze stop_gradient transpose".split()
)
_PER_OPERAND_ELEMENT = ("reduce", "argmax", "argmin", "cum", "sort", "psum", "top_k")


def cost_of(equation: Equation) -> Cost:
    """The cost of one run of `equation`; a loop or branch costs what its bodies cost, see `program_cost`.

    Example:
      >>> import jax.numpy as jnp
      >>> from rematscope import cost_of, trace
      >>> product, sine, cosine = trace(lambda w, x: jnp.sin(w @ x), jnp.ones((5, 4)), jnp.ones(4)).forward.equations
      >>> cost_of(product).flops, cost_of(sine).transcendentals
      (40, 5)
    """
    return _cost(equation.primitive, equation.inputs, equation.outputs, equation.params)


def program_cost(program: Program, role: str | None = None) -> Cost:
    """Sums the cost of every operation, of one role if given, over all iterations of scans.

    A `while_loop` counts one iteration, for its trip count is not in the program; of a branch the costliest counts; a
    kernel or `shard_map` that stands as one equation counts its program once.
    """
    total = Cost()
    for equation in program.equations:
        if equation.primitive == "cond":
            total += max((program_cost(body, role) for body in equation.bodies), key=lambda c: (c.flops, c.bytes))
        elif equation.bodies:
            for body in equation.bodies:
                total += program_cost(body, role) * equation.length
        elif role in (None, equation.role):
            total += cost_of(equation)
    return total


def _cost(primitive: str, inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Cost:
    if primitive in ("name", "optimization_barrier"):
        return Cost()
    moved = sum(map(nbytes, inputs)) + sum(map(nbytes, outputs))
    size = sum(math.prod(v.shape) for v in outputs)
    if primitive in _MOVES_DATA:
        return Cost(bytes=moved)
    if primitive in _TRANSCENDENTAL:
        return Cost(transcendentals=size, bytes=moved)
    if primitive == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        return Cost(flops=2 * size * math.prod(inputs[0].shape[d] for d in contracted), bytes=moved)
    if primitive == "conv_general_dilated":
        kernel = inputs[1].shape
        features = params["dimension_numbers"].rhs_spec[0]
        return Cost(flops=2 * size * math.prod(kernel) // kernel[features], bytes=moved)
    if primitive == "integer_pow":
        power = abs(params["y"])
        products = power.bit_length() - 1 + power.bit_count() - 1 + (params["y"] < 0)  # by squaring
        return Cost(flops=size * max(1, products), bytes=moved)
    if primitive.startswith("scatter"):
        return Cost(flops=math.prod(inputs[2].shape), bytes=moved)  # one for each number added, not for the whole table
    if primitive.startswith(_PER_OPERAND_ELEMENT):
        return Cost(flops=sum(math.prod(v.shape) for v in inputs[:1]), bytes=moved)
    if primitive == "custom_linear_solve":
        # Of its four functions one runs; the others are for its derivative.
        return _jaxpr_cost(params["jaxprs"].solve)
    if bodies := list(jax_internals.jaxprs_in_params(params)):
        # A kernel or custom solver that stands as one equation: its parts, once each.
        return sum((_jaxpr_cost(body) for body in bodies), Cost())
    return Cost(flops=size, bytes=moved)


def _jaxpr_cost(jaxpr: AnyJaxpr) -> Cost:
    total = Cost()
    for eqn in jax_internals.body_of(jaxpr)[0].eqns:
        trip_count = jax_internals.scan_of(eqn).length if eqn.primitive.name == "scan" else 1
        inputs: list[Any] = [v.aval for v in eqn.invars]  # all of arrays, which JAX's types do not say
        outputs: list[Any] = [v.aval for v in eqn.outvars]
        total += _cost(eqn.primitive.name, inputs, outputs, eqn.params) * trip_count
    return total
