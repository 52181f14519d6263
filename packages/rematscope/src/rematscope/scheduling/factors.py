"""What elementwise operations multiply a cotangent with, as one factor that is a value of the primal program.

The derivative of `gelu` leads a cotangent along several ways that come together again: each multiplies it with
something, and the products are added. A compiler writes what several operations read to memory, so that eight arrays
are there at once. Here the factors are multiplied and added, which is as much work, and the cotangent is multiplied
once. A factor depends on no cotangent, so it may be kept, or computed again from whatever is kept.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import primitives

from rematscope.ir.inline import without_dead_code
from rematscope.ir.program import Equation, Literal, Value, reads

_ADDS: dict[str, Any] = {"add": primitives.add_p, "add_any": primitives.add_p, "sub": primitives.sub_p}


@dataclasses.dataclass(frozen=True)
class _Way:
    """How a cotangent comes from an earlier one.

    Attributes:
      source: the earlier one.
      factor: what that is multiplied with.
      product: a multiplication on the way; None if there is none.
      joins: whether several ways come together on it.
    """

    source: Value
    factor: Value
    product: Equation | None = None
    joins: bool = False


def factored(
    equations: Sequence[Equation],
    outputs: Iterable[Value],
    on_cotangents: Collection[Value],
    is_given: Callable[[Value], bool],
) -> tuple[list[Equation], list[Equation]]:
    """A backward program in which ways that part and come together again are one product.

    Args:
      equations: of the backward program, or of a loop's body in it.
      outputs: what is needed of them.
      on_cotangents: the values that depend on a cotangent.
      is_given: whether an operation of the primal program may read a value.

    Returns:
      The backward program, and what is new to the primal program.
    """
    ways: dict[Value, _Way] = {}
    making: list[Equation] = []
    for equation in equations:
        others = [v for v in equation.inputs if v not in on_cotangents]
        if not _is_elementwise(equation) or len(others) != (equation.primitive == "mul"):
            continue
        before = [ways.get(v) or _Way(v, _number(1, v)) for v in equation.inputs if v in on_cotangents]
        if len({way.source for way in before}) == 1 and all(isinstance(v, Literal) or is_given(v) for v in others):
            ways[equation.outputs[0]] = _way(equation, before, others, making)
    needed = set(outputs)
    factors: list[Value] = []
    backward: list[Equation] = []
    for equation in reversed(equations):
        way = ways.get(equation.outputs[0]) if equation.outputs else None
        if way is not None and needed.isdisjoint(equation.outputs):
            continue
        if way is not None and way.joins and way.product is not None:
            factors.append(way.factor)
            equation = dataclasses.replace(way.product, inputs=(way.source, way.factor), outputs=equation.outputs)
        needed.update(equation.inputs, *(reads(body) for body in equation.bodies))
        backward.append(equation)
    return backward[::-1], without_dead_code(making, factors)


def _is_elementwise(equation: Equation) -> bool:
    """Whether an operation is a product, a sum or a difference of arrays of one type, numbers beside them."""
    if equation.primitive not in ("mul", "neg", *_ADDS):
        return False
    (result,) = equation.outputs
    return all(
        isinstance(v, Literal) or (v.shape, v.dtype) == (result.shape, result.dtype) for v in equation.inputs
    ) and not isinstance(result.dtype, jax.dtypes.extended)


def _way(equation: Equation, before: list[_Way], others: list[Value], making: list[Equation]) -> _Way:
    """The way to the result of an operation; what makes its factor is added to `making`."""
    operands = [*(way.factor for way in before), *others]
    numbers = [v for v in operands if isinstance(v, Literal)]
    ones = [v for v in numbers if v.value == 1]
    product = next((way.product for way in before if way.product is not None), None)
    joins = len(before) > 1 or any(way.joins for way in before)
    if equation.primitive == "mul":
        product = equation
    if equation.primitive == "mul" and ones:
        factor = next((v for v in operands if v is not ones[0]), ones[0])
    elif len(numbers) == len(operands):
        factor = _number(_NUMBERS[equation.primitive](*(v.value for v in numbers)), equation.outputs[0])
    else:
        factor = Value(equation.outputs[0].aval)
        factor.placed = equation.outputs[0].placed
        eqn = equation.eqn
        if equation.primitive in _ADDS:
            eqn = eqn.replace(primitive=_ADDS[equation.primitive], params={})
        name = eqn.primitive.name
        making.append(Equation(name, tuple(operands), (factor,), dict(eqn.params), eqn, calls=equation.calls))
    return _Way(before[0].source, factor, product, joins)


_NUMBERS: dict[str, Callable[..., Any]] = {
    "mul": np.multiply,
    "neg": np.negative,
    "add": np.add,
    "add_any": np.add,
    "sub": np.subtract,
}


def _number(number: Any, like: Value) -> Literal:
    return Literal(jax.ShapeDtypeStruct((), like.dtype), np.asarray(number, like.dtype))
